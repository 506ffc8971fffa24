"""What footers have in common: a lake has thousands of files and few schemas, so each is worked out once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.cached import cached_property
from fsspeckit.core.target import ledger, thrift
from fsspeckit.core.target.bounds import Leaf
from fsspeckit.core.values.calendars import SPARK_VERSION, Calendar
from fsspeckit.core.values.collations import collations

_SCHEMA, _ROW_GROUPS = 2, 4  # of FileMetaData, in parquet.thrift
# Footers that all differ (an entry for each file) are not compared with one another for ever.
_MOST = 16


@dataclass(frozen=True, eq=False)
class Common:
    """All that a footer says beside its row groups; fields as of `model.Footer`.

    `raw` are all bytes of the first one, `head` those up to the end of the schema.
    """

    raw: bytes
    head: bytes
    entries: Mapping[bytes, bytes] | None
    created_by: str
    schema: pa.Schema
    columns: pq.ParquetSchema
    ledger: Mapping[str, str]
    int96: frozenset[str]
    calendar: Calendar
    collated: Mapping[str, str]
    by_spark: bool

    @classmethod
    def of(cls, raw: bytes, schema: pa.Schema, metadata: pq.FileMetaData) -> Common:
        entries = metadata.metadata
        return cls(
            raw,
            raw[: thrift.end_of_field(raw, _SCHEMA)],
            entries,
            metadata.created_by,
            schema,
            metadata.schema,
            ledger.recorded(entries),
            int96_columns(schema, metadata),
            Calendar.of(entries),
            collations(entries),
            SPARK_VERSION in (entries or {}),
        )

    @cached_property
    def rest(self) -> bytes | None:
        """Its bytes behind the row groups; `None` where these cannot be told, though PyArrow may make sense of them."""
        try:
            return self.raw[thrift.end_of_field(self.raw, _ROW_GROUPS) :]
        except thrift.Damaged:
            return None

    @cached_property
    def _places(self) -> dict[str, int]:
        return leaf_indexes(self.schema, len(self.columns))

    @cached_property
    def _leaves(self) -> dict[str, Leaf]:
        """Those that were asked for: PyArrow takes its time to tell of each."""
        return {}

    def of_columns(self, columns: Sequence[str] | None) -> list[Leaf]:
        named = [name for name in self._places if columns is None or name in columns]
        for name in [name for name in named if name not in self._leaves]:
            place = self._places[name]
            self._leaves[name] = Leaf.of(name, place, self.columns.column(place), self.calendar)
        return [self._leaves[name] for name in named]

    def is_around(self, raw: bytes) -> bool:
        """Are the first and the last bytes of another footer the same?"""
        return self.rest is not None and raw.startswith(self.head) and raw.endswith(self.rest)

    def is_of(self, raw: bytes, metadata: pq.FileMetaData) -> bool:
        """Does another footer say the same? Its schema does if its bytes are the same from the first on."""
        return (
            raw.startswith(self.head) and metadata.metadata == self.entries and metadata.created_by == self.created_by
        )


# Of the last few footers that had nothing in common with those before.
_recent: deque[Common] = deque(maxlen=4)


@dataclass(frozen=True, slots=True)
class Known:
    """What the footers read so far have in common."""

    seen: list[Common] = field(default_factory=list)

    @classmethod
    def recent(cls) -> Known:
        """With what the last footers had in common, which were often of the same data set."""
        return cls([*_recent])

    def find(self, raw: bytes, metadata: pq.FileMetaData) -> Common | None:
        return next((common for common in self.seen if common.is_of(raw, metadata)), None)

    def find_around(self, raw: bytes) -> Common | None:
        return next((common for common in self.seen if common.is_around(raw)), None)

    def learn(self, raw: bytes, schema: pa.Schema, metadata: pq.FileMetaData) -> Common:
        common = Common.of(raw, schema, metadata)
        if len(self.seen) < _MOST:
            self.seen.append(common)
        _recent.append(common)
        return common


def has_int96(metadata: pq.FileMetaData) -> bool:
    return any(metadata.schema.column(i).physical_type == "INT96" for i in range(metadata.num_columns))


def int96_columns(schema: pa.Schema, metadata: pq.FileMetaData) -> frozenset[str]:
    if not has_int96(metadata):
        return frozenset()
    names = [field.name for field in schema for _ in range(leaf_count(field.type))]
    return frozenset(n for i, n in enumerate(names) if metadata.schema.column(i).physical_type == "INT96")


def leaf_indexes(schema: pa.Schema, leaves: int) -> dict[str, int]:
    """Which leaf column holds each flat top-level column.

    By counting, not by name: a struct `s` with a leaf `id` and a column called `s.id` have the same path.
    """
    found, position = {}, 0
    for column in schema:
        width = leaf_count(column.type)
        if width == 1 and not t.is_nested(column.type) and not t.is_duration(column.type):  # durations: Arrow's unit
            found[column.name] = position
        position += width
    return found if position == leaves else {}


def leaf_count(kind: pa.DataType) -> int:
    """How many Parquet columns a value of this type is stored in."""
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_count(kind.storage_type)
    if t.is_nested(kind):
        return sum(leaf_count(kind.field(i).type) for i in range(kind.num_fields))
    return 1
