"""What PyArrow alone makes of a file, and what a merge should make of that: by other means than the code under test."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
Row = tuple[Any, ...]


class Unread(Exception):
    """PyArrow does not read the file, or not all the rows that it promises."""


def read(raw: bytes, columns: list[str] | None = None) -> list[pa.Table]:
    """The rows of a file: its row groups one by one or, where PyArrow does not read these, all at once."""
    try:
        file = _open(raw)
        promised = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        if file.metadata.num_rows != sum(promised):
            raise Unread("row groups do not add up")
        try:
            tables = [file.read_row_group(g, columns=columns) for g in range(file.num_row_groups)]
        except OSError:
            tables, promised = [file.read(columns=columns)], [file.metadata.num_rows]
        for table, rows in zip(tables, promised, strict=True):
            _validate(table)
            if table.num_rows != rows:
                raise Unread("fewer rows than promised")
        return tables or [file.schema_arrow.empty_table()]
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
        raise Unread(str(error)) from error


def read_groups(raw: bytes) -> list[pa.Table | None]:
    """The row groups of a file, one by one; `None` for one that PyArrow does not read, or not all of."""
    try:
        file = _open(raw)
        groups = range(file.num_row_groups)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unread(str(error)) from error
    tables: list[pa.Table | None] = []
    for group in groups:
        try:
            table = file.read_row_group(group)
            _validate(table)
            tables.append(table if table.num_rows == file.metadata.row_group(group).num_rows else None)
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError):
            tables.append(None)
    return tables


def _validate(table: pa.Table) -> None:
    """Offsets and indexes within bounds. Text that is not UTF-8 and times beyond midnight stay as they are."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error) and "is not within the acceptable range" not in str(error):
            raise


def keys_told(raw: bytes, keys: list[Any]) -> bool:
    """Can it be known of every row group whether a key is in it: from its statistics, or by reading the column?"""
    metadata = pq.read_metadata(io.BytesIO(raw))
    file = _open(raw)
    leaf = metadata.schema.to_arrow_schema().names.index("id")
    for group in range(metadata.num_row_groups):
        rows, chunk = metadata.row_group(group).num_rows, metadata.row_group(group).column(leaf)
        stats = chunk.statistics
        if rows == 0 or (stats is not None and stats.has_null_count and stats.null_count == rows):
            continue
        if stats is not None and stats.has_min_max and not any(_within(stats, k) for k in keys):
            continue
        try:
            if file.read_row_group(group, columns=["id"]).num_rows != rows:
                return False
        except (pa.ArrowException, OSError, ValueError):
            return False
    return True


def touch_chunks(raw: bytes) -> None:
    """What Python code that looks at a footer does; PyArrow may end the process here."""
    metadata = pq.read_metadata(io.BytesIO(raw))
    for group in range(metadata.num_row_groups):
        for column in range(metadata.row_group(group).num_columns):
            chunk = metadata.row_group(group).column(column)
            _ = chunk.compression, chunk.statistics


def _open(raw: bytes) -> pq.ParquetFile:
    source = pa.BufferReader(raw)
    file = pq.ParquetFile(source, page_checksum_verification=True)
    unit = "us" if (file.metadata.created_by or "").startswith("parquet-mr") else "ns"
    if any(file.metadata.schema.column(i).physical_type == "INT96" for i in range(file.metadata.num_columns)):
        return pq.ParquetFile(source, page_checksum_verification=True, coerce_int96_timestamp_unit=unit)
    return file


def rows(tables: list[pa.Table], names: list[str], loose: bool = False) -> list[Row]:
    """Rows as Python values that are equal where the values are, whatever the width or unit of their type.

    `loose` fills up columns that the tables do not have.
    """
    missing = [name for name in names if name not in tables[0].column_names]
    if missing and not loose:
        raise Unread(f"columns {missing} are missing")
    for name in missing:
        tables = [table.append_column(name, pa.nulls(table.num_rows)) for table in tables]
    columns = [[cell for table in tables for cell in cells(table.column(name))] for name in names]
    return list(zip(*columns, strict=True))


def cells(column: Any) -> list[Any]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return cells(array.storage)
    if t.is_dictionary(kind):
        return cells(array.dictionary_decode())
    if t.is_string(kind) or t.is_large_string(kind):
        return list(array.cast(pa.large_binary() if t.is_large_string(kind) else pa.binary()).to_pylist())
    if t.is_timestamp(kind) or t.is_duration(kind) or t.is_time64(kind):
        return [None if v is None else v * _NANOS[kind.unit] for v in array.view(pa.int64()).to_pylist()]
    if t.is_time32(kind):
        return [None if v is None else v * _NANOS[kind.unit] for v in array.view(pa.int32()).to_pylist()]
    if t.is_date32(kind):
        return list(array.view(pa.int32()).to_pylist())
    if t.is_floating(kind):
        return [None if v is None else repr(v) for v in array.to_pylist()]
    return _nested_cells(array) if t.is_nested(kind) else list(array.to_pylist())


def _nested_cells(array: Any) -> list[Any]:
    valid = array.is_valid().to_pylist()
    if t.is_struct(array.type):
        parts = [cells(array.field(i)) for i in range(array.type.num_fields)]
        return [row if ok else None for ok, row in zip(valid, zip(*parts, strict=True), strict=True)]
    if t.is_map(array.type):
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        values, offsets = cells(pairs), array.offsets.to_pylist()
        offsets = [o - offsets[0] for o in offsets] if len(values) < offsets[-1] else offsets
    elif t.is_fixed_size_list(array.type):
        size = array.type.list_size
        values, offsets = cells(array.values), [(array.offset + i) * size for i in range(len(array) + 1)]
    else:
        values, offsets = cells(array.values), array.offsets.to_pylist()
    return [tuple(values[offsets[i] : offsets[i + 1]]) if ok else None for i, ok in enumerate(valid)]


def merged(target: list[Row], source: list[Row], strategy: str) -> Counter[Row]:
    """The rows of a merge; the key stands first in a row, and is there once in the source."""
    new = {row[0]: row for row in source}
    if strategy in ("full_merge", "overwrite"):
        return Counter(source)
    if strategy == "append":
        return Counter([*target, *source])
    if strategy == "delete":
        return Counter(row for row in target if row[0] is None or row[0] not in new)
    there = {row[0] for row in target if row[0] is not None}
    kept = [new.get(row[0], row) if strategy != "insert" and row[0] is not None else row for row in target]
    added = [row for key, row in new.items() if key not in there] if strategy != "update" else []
    return Counter([*kept, *added])


def statistics_lie(raw: bytes, key: str) -> bool:
    """Do the statistics of the key contradict its values, but not themselves? Who prunes by them cannot know.

    Bounds in the wrong order and more nulls than rows prove nothing: they are no excuse.
    """
    file = _open(raw)
    leaf = file.schema_arrow.names.index(key)
    for group in range(file.num_row_groups):
        stats = file.metadata.row_group(group).column(leaf).statistics
        column = file.read_row_group(group, columns=[key]).column(key)
        if stats is None:
            continue
        if stats.has_null_count and stats.null_count != column.null_count and 0 <= stats.null_count <= len(column):
            return True
        if t.is_string(column.type):
            column = column.cast(pa.binary())
        try:
            values = [v for v in column.to_pylist() if v is not None]
        except (OverflowError, ValueError):  # no day that Python knows
            return True
        if stats.has_min_max and _in_order(stats) and not all(_within(stats, v) for v in values):
            return True
    return False


def _in_order(stats: pq.Statistics) -> bool:
    try:
        return bool(stats.min <= stats.max)
    except (OverflowError, ValueError, TypeError):
        return bool(stats.min_raw <= stats.max_raw)


def _within(stats: pq.Statistics, value: Any) -> bool:
    """Text is compared by its bytes, and days by their number: a bound may be cut, or no day that Python knows."""
    if isinstance(value, (str, bytes)):
        raw: Any = value.encode() if isinstance(value, str) else value
        return bool(stats.min_raw <= raw <= stats.max_raw)
    try:
        return bool(stats.min <= value <= stats.max)
    except (OverflowError, ValueError):
        one = pa.array([value])
        raw = one.view(pa.int32() if t.is_date32(one.type) else pa.int64())[0].as_py()
        return bool(stats.min_raw <= raw <= stats.max_raw)
