"""Key-value entries of a footer, and how each is treated in a file with new values.

An entry may describe the values of its file: an extent, an index, a filter. `KNOWN` lists such entries. All others are
the user's, and are kept.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from fsspeckit.core.values.schema import SPARK_ROW

ARROW_SCHEMA = b"ARROW:schema"


class Treatment(StrEnum):
    """How an entry is treated when its file is rewritten, or is the template of a new file."""

    KEPT = "kept"
    WITH_SCHEMA = "kept, and taken over together with the schema"
    UPDATED = "kept, without what is no longer true"
    DROPPED = "dropped"


KNOWN: Mapping[bytes, Treatment] = {
    # Arrow: the schema, with a copy of all entries that its writer knew. PyArrow believes the copy.
    ARROW_SCHEMA: Treatment.WITH_SCHEMA,
    # pandas and fastparquet: columns, and an index of row numbers
    b"pandas": Treatment.WITH_SCHEMA,
    # GeoParquet: `bbox`, `geometry_types` and `orientation` of each geometry column
    b"geo": Treatment.UPDATED,
    # DuckDB: bloom filters of intervals hash normalised values. Only chunks that are copied have such a filter.
    b"duckdb.interval_bloom_filter": Treatment.KEPT,
    # Spark: the schema, the version and the session's zone. `values.calendars` knows the flags of the old calendar.
    SPARK_ROW: Treatment.WITH_SCHEMA,
    b"org.apache.spark.version": Treatment.KEPT,
    b"org.apache.spark.timeZone": Treatment.KEPT,
    b"org.apache.spark.legacyDateTime": Treatment.KEPT,
    b"org.apache.spark.legacyINT96": Treatment.KEPT,
    # Other writers: the schema in their own format
    b"iceberg.schema": Treatment.WITH_SCHEMA,
    b"avro.schema": Treatment.WITH_SCHEMA,
    b"parquet.avro.schema": Treatment.WITH_SCHEMA,
    b"parquet.proto.class": Treatment.WITH_SCHEMA,
    b"parquet.proto.descriptor": Treatment.WITH_SCHEMA,
    b"thrift.class": Treatment.WITH_SCHEMA,
    b"thrift.descriptor": Treatment.WITH_SCHEMA,
    b"huggingface": Treatment.WITH_SCHEMA,
    b"gdal:schema": Treatment.WITH_SCHEMA,
    b"writer.model.name": Treatment.KEPT,
    # Hudi: bounds and a bloom filter of the record keys, in files that were copied out of a Hudi table
    b"hoodie_min_record_key": Treatment.DROPPED,
    b"hoodie_max_record_key": Treatment.DROPPED,
    b"hoodie_bloom_filter_type_code": Treatment.DROPPED,
    b"org.apache.hudi.bloomfilter": Treatment.DROPPED,
}
"""The entries of streams are kept, too: see `dataset.ledger`."""


@dataclass(frozen=True, slots=True)
class NewValues:
    """The new values of a file: those of the columns that `changed`, or of all columns.

    `rows` is the number of rows, if the file has the old rows in their old order.
    """

    changed: Collection[str] | None = None
    rows: int | None = None

    def concern(self, *columns: str) -> bool:
        return self.changed is None or not set(self.changed).isdisjoint(columns)


def is_of_schema(name: bytes) -> bool:
    return KNOWN.get(name) is Treatment.WITH_SCHEMA


def updated_entry(name: bytes, value: bytes, values: NewValues) -> bytes | None:
    """The value of an entry that is true for the new values; `None` if the entry is dropped."""
    if KNOWN.get(name) is Treatment.DROPPED:
        return None
    update = _UPDATES.get(name)
    return value if update is None else update(value, values)


def updated_entries(entries: Mapping[bytes, bytes], values: NewValues) -> dict[bytes, bytes]:
    updated = {name: updated_entry(name, value, values) for name, value in entries.items()}
    return {name: value for name, value in updated.items() if value is not None}


def _arrow_schema(value: bytes, values: NewValues) -> bytes:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
    except (ValueError, pa.ArrowException, OSError):  # PyArrow opened the file nevertheless
        return value
    entries = updated_entries(schema.metadata or {}, values)
    if entries == (schema.metadata or {}):
        return value
    return base64.b64encode(schema.with_metadata(entries).serialize().to_pybytes())


def _geo(value: bytes, values: NewValues) -> bytes:
    """Drop the extents, types and winding orders of changed geometries. An empty list of types means unknown."""
    document = _parsed(value)
    columns = document.get("columns")
    if not isinstance(columns, dict):
        return value
    fields: dict[str, Any] = {name: field for name, field in columns.items() if isinstance(field, dict)}
    stale = [name for name, field in fields.items() if values.concern(name, *_covering_columns(field))]
    for name in stale:
        unknown = {"geometry_types": [], "geometry_type": "Unknown"}  # the second one until version 0.4
        kept = {key: part for key, part in fields[name].items() if key not in ("bbox", "orientation")}
        columns[name] = {key: unknown.get(key, part) for key, part in kept.items()}
    return json.dumps(document).encode() if stale else value


def _covering_columns(field: Mapping[str, Any]) -> set[str]:
    """The columns with a bounding box for each geometry: `{"bbox": {"xmin": ["bbox", "xmin"], …}}`."""
    covering = field.get("covering")
    boxes = [box for box in covering.values() if isinstance(box, dict)] if isinstance(covering, dict) else []
    return {path[0] for box in boxes for path in box.values() if isinstance(path, list) and path}


def _pandas(value: bytes, values: NewValues) -> bytes:
    """Drop an index of row numbers unless the number of rows is the same. pandas then counts from 0."""
    document = _parsed(value)
    index = document.get("index_columns")
    if not isinstance(index, list) or not any(_is_range(part) for part in index):
        return value
    if values.rows is not None and all(_length(part) == values.rows for part in index if _is_range(part)):
        return value
    document["index_columns"] = [part for part in index if not _is_range(part)]
    return json.dumps(document).encode()


def _is_range(part: Any) -> bool:
    return isinstance(part, dict) and part.get("kind") == "range"


def _length(part: Mapping[str, Any]) -> int | None:
    try:
        return len(range(part["start"], part["stop"], part["step"]))
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


def _parsed(value: bytes) -> dict[str, Any]:
    """A JSON object; an empty one for any other text, which is the user's."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


_UPDATES: Mapping[bytes, Callable[[bytes, NewValues], bytes]] = {
    ARROW_SCHEMA: _arrow_schema,
    b"geo": _geo,
    b"pandas": _pandas,
}


_OF_WRITERS = (b"org.apache.spark.version", b"org.apache.spark.timeZone", b"writer.model.name")
"""Entries that say who wrote a file, and where. They may differ: a joined file has those of one of its files."""


def differing_entry(files: Sequence[Mapping[bytes, bytes]]) -> tuple[bytes, int] | None:
    """The first entry that a file with the rows of all these files cannot have, and the number of the file whose value
    is not that of the first file; `None` if there is none.

    Entries of the schema come from one file.

    >>> differing_entry([{b"a": b"1", b"thrift.class": b"x"}, {b"a": b"2"}])
    (b'a', 1)
    """
    for name in dict.fromkeys(name for entries in files for name in entries):
        if is_of_schema(name) or name in _OF_WRITERS:
            continue
        values = [updated_entry(name, e[name], NewValues()) if name in e else None for e in files]
        other = next((number for number, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            return name, other
    return None
