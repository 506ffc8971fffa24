"""Footers as bytes, and back: JSON and numbers side by side, since these can hold nothing but values.

What is said of each file stands in columns, as does what is said of each row group. A column of whole numbers is read
at once, where JSON takes its time for each of them, and a footer is made only when somebody asks for it.
"""

from __future__ import annotations

import base64
import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa

from fsspeckit.core.cached import cached_property
from fsspeckit.core.footers import BoundsColumn, Footers
from fsspeckit.core.model import Bounds, FileInfo, Footer, RowGroup
from fsspeckit.core.target.partitions import parse_hive_partition_path
from fsspeckit.core.values.calendars import Calendar

# To be raised when a footer, its bounds or this form come to mean something else.
FORMAT = 2
_ODD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException)
# How many columns tell what a file is known by; then come its kind and its number of row groups, then their rows and
# bytes, then three columns for the bounds of each key column.
_IDENTITY = 5
_FIRST_BOUNDS = _IDENTITY + 4


@dataclass(frozen=True)
class Memory:
    """What is remembered of the files of a data set, in the order of their paths.

    `shared` has what the footers of a kind share, as `Footer` has it, the schema first.
    """

    paths: list[str]
    identities: list[list[Any]]
    kinds: list[int]
    group_counts: list[int]
    group_rows: list[int]
    group_bytes: list[int]
    bounds: Mapping[str, BoundsColumn]
    shared: list[tuple[Any, ...]]

    @classmethod
    def of(cls, data: bytes | None, columns: Sequence[str]) -> Memory | None:
        """What bytes say, if they are whole, of this form and of this PyArrow."""
        try:
            text, _, numbers = (data or b"").partition(b"\n")
            version, names, shared, paths, table = json.loads(text)
            if (version, names) != (_version(), sorted(columns)):
                return None
            read = list(_unpacked(table, numbers))
            kinds, counts, rows, sizes = read[_IDENTITY:_FIRST_BOUNDS]
            bounds = [(read[at], read[at + 1], read[at + 2]) for at in range(_FIRST_BOUNDS, len(read), 3)]
            by_name, decoded = dict(zip(names, bounds, strict=True)), [_decoded_shared(one) for one in shared]
            memory = cls(paths, read[:_IDENTITY], kinds, counts, rows, sizes, by_name, decoded)
            return memory if memory._adds_up() else None
        except _ODD:
            return None

    def _adds_up(self) -> bool:
        """Can every footer be made of it?"""
        of_files = [*self.identities, self.kinds, self.group_counts]
        of_groups = [self.group_rows, self.group_bytes, *(part for column in self.bounds.values() for part in column)]
        return (
            all(len(column) == len(self.paths) for column in of_files)
            and all(len(column) == sum(self.group_counts) for column in of_groups)
            and min(self.group_counts, default=0) >= 0
            and set(self.kinds) <= set(range(len(self.shared)))
        )

    def recall(self, infos: Sequence[FileInfo]) -> Footers:
        """The footers of the files that are still what they were."""
        identities = _identities(infos)
        if identities == self.identities and [info.path for info in infos] == self.paths:
            return _Recalled(self, infos)
        known = dict(zip(self.paths, enumerate(zip(*self.identities, strict=True)), strict=True))
        now = zip(infos, zip(*identities, strict=True), strict=True)
        there = [(info, *known[info.path], identity) for info, identity in now if info.path in known]
        return Footers(self.footer(place, info) for info, place, before, identity in there if before == identity)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate(self.group_counts, initial=0))

    def footer(self, number: int, info: FileInfo) -> Footer:
        schema, ledger, int96, calendar, collated, by_spark = self.shared[self.kinds[number]]
        groups = tuple([self._row_group(group) for group in range(*self._starts[number : number + 2])])
        partition = parse_hive_partition_path(info.path)
        return Footer(info, schema, groups, partition, None, ledger, int96, calendar, collated, by_spark, True)

    def _row_group(self, group: int) -> RowGroup:
        bounds = {}
        for name, (lower, upper, nulls) in self.bounds.items():
            if lower[group] is not None or nulls[group] is not None:  # nothing but nulls has no bounds, yet is counted
                bounds[name] = Bounds(lower[group], upper[group], nulls[group])
        return RowGroup(self.group_rows[group], self.group_bytes[group], bounds)


class _Recalled(Footers):
    """The footers of files that are all as they were. Each is made when it is asked for."""

    def __init__(self, memory: Memory, infos: Sequence[FileInfo]) -> None:
        self._memory, self._listed = memory, list(infos)
        self._footers = [None] * len(infos)

    def _made(self, number: int) -> Footer:
        return self._memory.footer(number, self._listed[number])

    @property
    def infos(self) -> list[FileInfo]:
        return self._listed

    @cached_property
    def kinds(self) -> list[Footer]:
        return [self[self._memory.kinds.index(kind)] for kind in dict.fromkeys(self._memory.kinds)]

    @property
    def group_counts(self) -> list[int]:
        return self._memory.group_counts

    @property
    def group_rows(self) -> list[int]:
        return self._memory.group_rows

    def bounds(self, column: str) -> BoundsColumn:
        return self._memory.bounds[column] if column in self._memory.bounds else super().bounds(column)


def encode(footers: Iterable[Footer], columns: Iterable[str]) -> bytes:
    """Footers with their bounds of some columns, for `Memory.of`."""
    numbers: dict[str, int] = {}
    texts: dict[tuple[int, ...], str | None] = {}
    kept, kinds = [], []
    for footer in sorted(footers, key=lambda f: f.path):
        own = tuple(map(id, (footer.schema, footer.ledger, footer.int96, footer.calendar, footer.collated)))
        if own not in texts:
            texts[own] = _encoded_shared(footer)
        text = texts[own]
        if text is not None:
            kept.append(footer)
            kinds.append(numbers.setdefault(text, len(numbers)))
    every, names = Footers(kept), sorted(columns)
    sizes = [group.bytes for footer in kept for group in footer.row_groups]
    bounds = [list(map(_plain, part)) for name in names for part in every.bounds(name)]
    table, packed = _packed([*_identities(every.infos), kinds, every.group_counts, every.group_rows, sizes, *bounds])
    paths, shared = [info.path for info in every.infos], list(map(json.loads, numbers))
    return json.dumps([_version(), names, shared, paths, table]).encode() + b"\n" + packed


def _version() -> list[Any]:
    return [FORMAT, pa.__version__, sys.byteorder]


def _identities(infos: Sequence[FileInfo]) -> list[list[Any]]:
    """All that tells a file from any other: in a store its ETag and size, on a disk each of these."""
    return [
        [info.size for info in infos],
        [info.etag or info.mtime_ns for info in infos],
        [info.ctime_ns for info in infos],
        [info.inode for info in infos],
        [info.device for info in infos],
    ]


def _packed(table: list[list[Any]]) -> tuple[list[Any], bytes]:
    """Columns of whole numbers as bytes, with their length in their place; the others as they are."""
    numbers, columns = bytearray(), list[Any]()
    for column in table:
        try:
            numbers += array("q", column).tobytes()
            columns.append(len(column))
        except (TypeError, OverflowError):
            columns.append(column)
    return columns, bytes(numbers)


def _unpacked(columns: list[Any], numbers: bytes) -> Iterator[list[Any]]:
    begin = 0
    for place, column in enumerate(columns):
        if isinstance(column, int):
            yield array("q", numbers[begin : begin + 8 * column]).tolist()
            begin += 8 * column
        elif place >= _FIRST_BOUNDS:
            yield list(map(_value, column))
        elif place < _IDENTITY:  # ETags, or inodes beyond 64 bits
            yield list(column)
        else:
            raise ValueError("not whole numbers")
    if begin != len(numbers):
        raise ValueError("other numbers than those that are told of")


def _encoded_shared(footer: Footer) -> str | None:
    """As JSON; `None` if its schema does not come back as it was."""
    schema = footer.schema.serialize()
    if not pa.ipc.read_schema(schema).equals(footer.schema, check_metadata=True):
        return None
    calendar = [footer.calendar.dates, footer.calendar.int96]
    text = base64.b64encode(schema).decode()
    return json.dumps([text, footer.ledger, sorted(footer.int96), calendar, footer.collated, footer.by_spark])


def _decoded_shared(shared: list[Any]) -> tuple[Any, ...]:
    schema, ledger, int96, calendar, collated, by_spark = shared
    read = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    return read, ledger, frozenset(int96), Calendar(*calendar), collated, by_spark


def _plain(value: Any) -> Any:
    """Numbers are themselves, bytes are text of as many characters, a decimal stands in a list."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [str(value)] if isinstance(value, Decimal) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, str):
        return plain.encode("latin-1")
    return Decimal(plain[0]) if isinstance(plain, list) else plain
