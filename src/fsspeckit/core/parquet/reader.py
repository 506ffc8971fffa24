"""Open and read Parquet files, and check what PyArrow does not check. Every error names the file.

PyArrow may pass over a page that it does not know, or stop at a chunk that claims to have no values, and report neither
(both seen, after one changed byte). So the rows that are read are compared with the rows that the footer promises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.errors import DatasetMergeError, LayoutError, StorageError, UnreadableFileError
from fsspeckit.core.parquet.footer_checks import check_chunks, check_entries
from fsspeckit.core.parquet.footer_io import footer_bytes
from fsspeckit.core.parquet.schema import has_int96, int96_unit
from fsspeckit.core.parquet.thrift import CorruptFile, Struct, decode_whole
from fsspeckit.core.storage import Location
from fsspeckit.core.storage.objects import StoreError
from fsspeckit.core.values import arrays, nested

# Microseconds beyond this do not fit into nanoseconds.
_MAX_MICROSECONDS = 2**63 // 1000 - 1


@contextlib.contextmanager
def reading(location: Location, path: str) -> Iterator[None]:
    """Turn the errors of PyArrow and of the file system into errors that name the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise unreadable(location, path, error) from error


# Words of PyArrow, about files that end otherwise than Parquet files do, and about encrypted ones.
_NOT_PARQUET = ("magic bytes not found", "file size is 0 bytes", "smaller than the minimum file footer")
_ENCRYPTED = ("encrypted metadata", "Cannot decrypt", "FileDecryption is not", "columns are encrypted")


def unreadable(location: Location, path: str, why: object) -> DatasetMergeError:
    if isinstance(why, StoreError):  # the store failed, not the file
        message = f"Cannot read {location.show(path)}: {why}. Remove the cause; nothing was changed."
        return StorageError(message, why, operation="read", path=path)
    of_the_system = isinstance(why, OSError) and why.errno is not None
    what, way_out = ("", "Remove the cause") if of_the_system else (" as Parquet", "Restore or remove the file")
    reason = str(why).strip().rstrip(".")
    if any(words in reason for words in _NOT_PARQUET):
        reason = "it is not a Parquet file, or its end is missing"
    if any(words in reason for words in _ENCRYPTED):
        what, way_out = "", "Store it without Parquet's encryption, or take it out of the data set"
        reason = f"it is encrypted, and fsspeckit has no keys ({reason})"
    return UnreadableFileError(
        f"Cannot read {location.show(path)}{what}: {reason}. {way_out}; nothing was changed.",
        operation="read",
        path=path,
    )


def open_parquet(location: Location, path: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a data file. INT96 is read in the unit that its writer used."""
    with reading(location, path), contextlib.ExitStack() as opened:
        file = open_source(opened.enter_context(location.storage.open_input(location.at(path))), metadata)
        opened.pop_all()
    return file


def open_source(
    source: Any, metadata: pq.FileMetaData | None = None, dictionary_columns: Sequence[str] | None = None
) -> pq.ParquetFile:
    """Open Parquet from anything that PyArrow reads; `metadata` is the footer, if it was read before.

    `dictionary_columns` are read as dictionaries.
    """
    file = _open(source, metadata, dictionary_columns)
    if metadata is None:
        check_counts(file.metadata)
        _check_text(file)
    return _with_int96(source, file, dictionary_columns)


def _with_int96(source: Any, file: pq.ParquetFile, dictionary_columns: Sequence[str] | None = None) -> pq.ParquetFile:
    if not has_int96(file.metadata):
        return file
    return _open(source, file.metadata, dictionary_columns, int96_unit(file.metadata))


def _open(
    source: Any,
    metadata: pq.FileMetaData | None,
    dictionary_columns: Sequence[str] | None = None,
    unit: str | None = None,
) -> pq.ParquetFile:
    """With the options for every file: page checksums are verified, and the calling thread reads.

    With `pre_buffer`, PyArrow's own threads would read, which is no faster; `storage.object_files` has one more reason.
    """
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=dictionary_columns,
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=True,
        pre_buffer=False,
    )


def check_counts(metadata: pq.FileMetaData) -> None:
    """Refuse a footer whose numbers of rows or columns contradict each other. PyArrow does not compare them."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    if metadata.num_rows != sum(rows) or min(rows, default=0) < 0:
        raise CorruptFile(f"its footer says {metadata.num_rows} rows, and {sum(rows)} in the row groups together")
    width = next((group.num_columns for group in groups if group.num_columns != metadata.num_columns), None)
    if width is not None:
        raise CorruptFile(f"a row group has {width} columns, and its schema {metadata.num_columns}")


def _check_text(file: pq.ParquetFile) -> None:
    """Refuse column paths, a writer's name and time zones that are not UTF-8. PyArrow decodes them when asked."""
    for leaf in range(file.metadata.num_columns):
        _ = file.metadata.schema.column(leaf).path
    _ = file.metadata.created_by
    for dtype in file.schema_arrow.types:
        _check_zones(dtype)


def _check_zones(dtype: pa.DataType) -> None:
    if t.is_timestamp(dtype):
        _ = dtype.tz
    if t.is_dictionary(dtype):
        _check_zones(dtype.value_type)
    for i in range(dtype.num_fields):
        _check_zones(dtype.field(i).type)


def arrow_schema(file: pq.ParquetFile, tail: bytes) -> pa.Schema:
    """The Arrow schema of a file whose last bytes are `tail`, after a check of its texts."""
    _check_text(file)
    return _with_int96(pa.BufferReader(tail), file).schema_arrow


def raw_footer(location: Location, path: str) -> bytes:
    with reading(location, path), location.storage.open_input(location.at(path)) as source:
        return footer_bytes(source)


def checked_footer(location: Location, path: str, raw: bytes, metadata: pq.FileMetaData) -> Struct:
    """The decoded footer of a file. After this check PyArrow can be asked for any column chunk, but no statistics."""
    with reading(location, path):
        fields = decode_whole(raw)
        check_entries(fields)
        check_chunks(fields, metadata.schema)
    return fields


def checked_metadata(location: Location, path: str) -> pq.FileMetaData:
    """The footer of a file, whose column chunks PyArrow can be asked for."""
    with open_parquet(location, path) as file:
        checked_footer(location, path, raw_footer(location, path), file.metadata)
        return file.metadata


def read_row_group(
    location: Location, path: str, file: pq.ParquetFile, group: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read a row group: all columns, or some by their top-level names."""
    with reading(location, path):
        # `columns` selects by path, so that `s.id` also reads the struct `s`: select by name afterwards.
        table = file.read_row_group(group, None if columns is None else list(columns), use_threads=False)
        table = table if columns is None else table.select(list(columns))
        check_values(table, unchecked_columns(table.schema))
    check_rows(location, path, table.num_rows, file.metadata.row_group(group).num_rows, f" of row group {group}")
    return table


def read_batches(location: Location, path: str, file: pq.ParquetFile, batch_size: int) -> Iterator[pa.RecordBatch]:
    """Read all rows of a file in batches."""
    unchecked = unchecked_columns(file.schema_arrow)
    for group in range(file.num_row_groups):
        rows = 0
        with reading(location, path):
            for batch in file.iter_batches(batch_size, row_groups=[group]):
                rows += batch.num_rows
                check_values(batch, unchecked)
                yield batch
        check_rows(location, path, rows, file.metadata.row_group(group).num_rows, f" of row group {group}")


def read_file(location: Location, path: str, file: pq.ParquetFile) -> pa.Table:
    """Read all rows of a file at once."""
    with reading(location, path):
        table = file.read()
        check_values(table, unchecked_columns(table.schema))
    check_rows(location, path, table.num_rows, file.metadata.num_rows)
    return table


def check_rows(location: Location, path: str, rows: int, promised: int, where: str = "") -> None:
    if rows != promised:
        raise unreadable(location, path, f"{rows} rows{where} can be read, and its footer says {promised}")


def unchecked_columns(schema: pa.Schema) -> list[int]:
    """The columns whose values PyArrow reads without a check: those with decimals or dictionaries."""
    return [i for i, field in enumerate(schema) if nested.contains(field.type, _is_unchecked)]


def _is_unchecked(dtype: pa.DataType) -> bool:
    return bool(t.is_decimal(dtype) or t.is_dictionary(dtype))


def check_values(table: pa.Table | pa.RecordBatch, columns: Sequence[int]) -> None:
    """Refuse decimals of too many digits, which would be written as other values, and indices beyond a dictionary."""
    for index in columns:
        column = table.column(index)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _check_array(chunk)


def _check_array(array: pa.Array) -> None:
    if t.is_decimal(array.type):
        array.validate(full=True)
    elif t.is_dictionary(array.type):
        bounds = pc.min_max(array.indices).as_py()
        if bounds["max"] is not None and not 0 <= bounds["min"] <= bounds["max"] < len(array.dictionary):
            raise CorruptFile(f"a dictionary of {len(array.dictionary)} values has no value {bounds['max']}")
    elif t.is_map(array.type):
        _check_array(array.keys)
        _check_array(array.items)
    elif t.is_struct(array.type):
        for i in range(array.type.num_fields):
            _check_array(array.field(i))
    elif t.is_nested(array.type):
        _check_array(array.flatten())


def check_int96(
    location: Location,
    path: str,
    file: pq.ParquetFile,
    groups: Iterable[int] | None = None,
    columns: Collection[str] | None = None,
) -> None:
    """Refuse a file whose INT96 values cannot be read without loss, before they are written again.

    INT96 holds nanoseconds of any year, 64 bits hold either nanoseconds or any year. So values are read in both units
    and compared: all of them, or those of some columns in some row groups.
    """
    if not has_int96(file.metadata):
        return
    other_unit = "ns" if int96_unit(file.metadata) == "us" else "us"
    with contextlib.ExitStack() as stack:
        with reading(location, path):
            source = stack.enter_context(location.storage.open_input(location.at(path)))
            second = _open(source, file.metadata, unit=other_unit)
        pairs = zip(file.schema_arrow, second.schema_arrow, strict=True)
        names = [a.name for a, b in pairs if a.type != b.type and t.is_timestamp(a.type)]
        names = [name for name in names if columns is None or name in columns]
        for group in range(file.num_row_groups) if groups is None else groups if names else ():
            chosen, other = (read_row_group(location, path, f, group, names) for f in (file, second))
            if not all(_same_instants(chosen.column(n), other.column(n)) for n in names):
                raise LayoutError(
                    f"{location.show(path)}: INT96 timestamps with nanoseconds, or of years beyond 1677..2262, cannot "
                    "be rewritten without loss. Convert the column first; nothing was changed.",
                    operation="rewrite",
                )


def _same_instants(chosen: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    nanos, micros = sorted((arrays.one_array(c) for c in (chosen, other)), key=lambda c: c.type.unit)
    nanos, micros = nanos.view(pa.int64()), micros.view(pa.int64())
    fits = pc.and_(pc.less(micros, _MAX_MICROSECONDS), pc.greater(micros, -_MAX_MICROSECONDS))
    if chosen.type.unit == "ns":
        return pc.all(fits).as_py() is not False
    return bool(pc.multiply(micros.filter(fits), 1000).equals(nanos.filter(fits)))
