"""Rows out of Parquet files, counted.

A reader may pass over a page that it does not know, or stop at a chunk that says it has no values, and call that the
end (both seen, of one changed byte). So whatever is read of a file is held against the rows that its footer promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.storage import Location
from fsspeckit.core.target.footers import reading, unreadable
from fsspeckit.core.target.thrift import Damaged


def read_row_group(
    location: Location, path: str, file: pq.ParquetFile, group: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read whole columns of a row group by top-level name; a page that cannot be read is an error naming the file."""
    with reading(location, path):
        # `columns` selects by path, so that `s.id` also brings the struct `s`: pick by name afterwards.
        table = file.read_row_group(group, None if columns is None else list(columns), use_threads=False)
        table = table if columns is None else table.select(list(columns))
        check_values(table, doubtful_columns(table.schema))
    check_rows(location, path, table.num_rows, file.metadata.row_group(group).num_rows, f" of row group {group}")
    return table


def read_batches(location: Location, path: str, file: pq.ParquetFile, batch_size: int) -> Iterator[pa.RecordBatch]:
    """All rows of a file, a little at a time."""
    doubtful = doubtful_columns(file.schema_arrow)
    for group in range(file.num_row_groups):
        rows = 0
        with reading(location, path):
            for batch in file.iter_batches(batch_size, row_groups=[group]):
                rows += batch.num_rows
                check_values(batch, doubtful)
                yield batch
        check_rows(location, path, rows, file.metadata.row_group(group).num_rows, f" of row group {group}")


def read_file(location: Location, path: str, file: pq.ParquetFile) -> pa.Table:
    """All rows of a file at once."""
    with reading(location, path):
        table = file.read()
        check_values(table, doubtful_columns(table.schema))
    check_rows(location, path, table.num_rows, file.metadata.num_rows)
    return table


def doubtful_columns(schema: pa.Schema) -> list[int]:
    """Columns with values that PyArrow reads without a word and stumbles over later: see `check_values`."""
    return [i for i, field in enumerate(schema) if _is_doubtful(field.type)]


def _is_doubtful(dtype: pa.DataType) -> bool:
    if t.is_decimal(dtype) or t.is_dictionary(dtype):
        return True
    return any(_is_doubtful(dtype.field(i).type) for i in range(dtype.num_fields))


def check_values(table: pa.Table | pa.RecordBatch, columns: Sequence[int]) -> None:
    """Refuse decimals of too many digits, which are written as others, and indexes into no dictionary."""
    for index in columns:
        column = table.column(index)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _check_leaves(chunk)


def _check_leaves(array: pa.Array) -> None:
    if t.is_decimal(array.type):
        array.validate(full=True)
    elif t.is_dictionary(array.type):
        bounds = pc.min_max(array.indices).as_py()
        if bounds["max"] is not None and not 0 <= bounds["min"] <= bounds["max"] < len(array.dictionary):
            raise Damaged(f"a dictionary of {len(array.dictionary)} values has no value {bounds['max']}")
    elif t.is_map(array.type):
        _check_leaves(array.keys)
        _check_leaves(array.items)
    elif t.is_struct(array.type):
        for i in range(array.type.num_fields):
            _check_leaves(array.field(i))
    elif t.is_nested(array.type):
        _check_leaves(array.flatten())


def check_rows(location: Location, path: str, rows: int, promised: int, where: str = "") -> None:
    if rows != promised:
        raise unreadable(location, path, f"{rows} rows{where} can be read, and its footer says {promised}")
