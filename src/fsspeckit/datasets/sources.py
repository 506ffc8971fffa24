"""Sources as Arrow streams: tables, batches, readers, objects with an Arrow stream, and paths of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fsspeckit.core.commit.session import warn_unfinished
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import ArgumentError, FsspeckitError, UnreadableFileError, os_reason
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.parquet.reader import open_parquet, read_batches
from fsspeckit.core.parquet.schema import int96_columns
from fsspeckit.core.storage import Access, Location
from fsspeckit.core.values import arrays
from fsspeckit.core.values.calendars import Calendar, from_file_calendar
from fsspeckit.core.values.schema import unify_sources
from fsspeckit.core.values.zones import has_timestamp, int96_mark, mark_int96, without_int96_marks


def to_reader(source: Any, access: Access | None = None) -> pa.RecordBatchReader:
    """A source of any supported type as a stream of record batches. Paths are not read into memory as a whole."""
    if isinstance(source, pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return source.to_reader()
    if isinstance(source, (str, os.PathLike)):
        return path_reader(source, access or Access())
    if is_paths(source):
        return chained([path_reader(s, access or Access()) for s in source])
    if hasattr(source, "__arrow_c_stream__"):
        return _stream_reader(source)
    raise ArgumentError(
        f"Cannot read a source of type {type(source).__name__}. Give a PyArrow table, record batch, reader or dataset, "
        "anything with an Arrow stream (pandas, Polars, a DuckDB relation), a list of dicts, an iterator of record "
        "batches, or a path to Parquet, Arrow, CSV or JSON lines files."
    )


def keys_source(keys: Any, key_columns: Sequence[str]) -> Any:
    """Keys as a source. A list has the values of one key column, or tuples of the values of several."""
    if isinstance(keys, (pa.Array, pa.ChunkedArray)) or type(keys).__name__ in ("Series", "ndarray"):
        if len(key_columns) != 1:
            raise ArgumentError(f"keys has one column, and key_columns are {list(key_columns)}. Give a table.")
        return pa.table({key_columns[0]: keys if isinstance(keys, pa.ChunkedArray) else pa.array(keys)})
    if not isinstance(keys, (list, tuple, set, frozenset)) or any(isinstance(key, os.PathLike) for key in keys):
        return keys
    if keys and all(isinstance(key, Mapping) for key in keys):
        return list(keys)
    rows = [(key,) for key in keys] if len(key_columns) == 1 else list(keys)
    if any(not isinstance(row, (list, tuple)) or len(row) != len(key_columns) for row in rows):
        raise ArgumentError(f"keys must be tuples with a value for each of {list(key_columns)}.")
    columns = zip(*rows, strict=True) if rows else [()] * len(key_columns)
    try:
        return pa.table({name: pa.array(list(values)) for name, values in zip(key_columns, columns, strict=True)})
    except OverflowError as error:
        raise ArgumentError(
            "keys have an integer of more than 64 bits. Leave it out, or give keys as a table."
        ) from error
    except (pa.ArrowException, TypeError) as error:
        raise ArgumentError(f"keys have values of different types: {error}. Give them as a table.") from error


def _stream_reader(source: Any) -> pa.RecordBatchReader:
    """Polars raises a Rust panic for types that it cannot export, such as decimal256."""
    try:
        return pa.RecordBatchReader.from_stream(source)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ArgumentError(
            f"The source, a {type(source).__name__}, cannot be read: its library failed with {str(error)!r}. Give it "
            "as a PyArrow table, or as a path."
        ) from error


def is_paths(source: Any) -> bool:
    """Is the source one path, or a non-empty list of paths?"""
    if isinstance(source, (list, tuple)) and source:
        return all(isinstance(s, (str, os.PathLike)) for s in source)
    return isinstance(source, (str, os.PathLike))


def path_reader(path: str | os.PathLike[str], access: Access) -> pa.RecordBatchReader:
    """A Parquet file, or all data files of a directory."""
    with reading_errors(path):
        return _path_reader(access.locate(path))


@contextmanager
def reading_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the source in errors of the file system: the caller would take them for errors of the target."""
    try:
        yield
    except FsspeckitError:
        raise
    except OSError as error:
        raise UnreadableFileError(f"Cannot read {os.fspath(path)}: {os_reason(error)}.") from error


def _path_reader(location: Location) -> pa.RecordBatchReader:
    if location.storage.is_dir(location.root):
        from fsspeckit.datasets.scan import scan_dataset

        reader = scan_dataset(location, batch_size=16_384, batch_readahead=4, fragment_readahead=1)
        if not any(has_timestamp(arrays.plain_type(field.type), zoned=False) for field in reader.schema):
            return reader
        footers = read_footers(location, existing_files(location), ())
        return pa.RecordBatchReader.from_batches(mark_int96(reader.schema, [f.int96 for f in footers]), reader)
    folder, (info,) = data_files(location)
    file = open_parquet(folder, info.path)
    schema = mark_int96(file.schema_arrow, [int96_columns(file.schema_arrow, file.metadata)])
    return pa.RecordBatchReader.from_batches(schema, read_batches(folder, info.path, file, 16_384))


def data_files(location: Location) -> tuple[Location, Sequence[FileInfo]]:
    """The Parquet files of a directory, or a single file with the folder that contains it."""
    if location.storage.is_dir(location.root):
        return location, existing_files(location)
    info = location.storage.stat(location.root)
    if info is None:
        raise ArgumentError(f"{location.shown} does not exist.")
    folder = Location(location.storage, location.parent, location.shown.rpartition("/")[0])
    return folder, [replace(info, path=location.name)]


def chained(readers: list[pa.RecordBatchReader]) -> pa.RecordBatchReader:
    """Concatenate streams. Each column gets a type that can hold the values of all streams."""
    schema = unify_sources([without_int96_marks(reader.schema) for reader in readers])
    schema = mark_int96(schema, [frozenset(f.name for f in r.schema if int96_mark(f)) for r in readers])

    def batches() -> Iterator[pa.RecordBatch]:
        for reader in readers:
            for batch in reader:
                batch = from_file_calendar(batch, Calendar.of(reader.schema.metadata), "the source")
                columns = [arrays.cast(arrays.plain(batch.column(f.name)), f.type) for f in schema]
                yield pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def existing_files(location: Location) -> tuple[FileInfo, ...]:
    """List the files of a data set to read. Warn if a commit to it is unfinished."""
    warn_unfinished(location)
    infos = list_files(location)
    if not infos:
        raise ArgumentError(f"{location.shown} has no Parquet files.{_other_files(location)}")
    return infos


def _other_files(location: Location) -> str:
    """A hint, if a folder has files that can be read by a pattern."""
    endings = ("csv", "tsv", "json", "jsonl", "ndjson", "arrow", "feather")
    names = location.storage.names(location.root) if location.storage.is_dir(location.root) else []
    ending = next((name.rpartition(".")[2] for name in names if name.rpartition(".")[2] in endings), None)
    return "" if ending is None else f" To read its .{ending} files, give the pattern {location.show(f'*.{ending}')}."


def path_fields(footers: Sequence[Footer], stored: pa.Schema) -> list[pa.Field]:
    """The partition columns that the files do not store."""
    named = dict.fromkeys(name for footer in footers for name in footer.partition if name not in stored.names)
    return [pa.field(name, _partition_type([f.partition.get(name) for f in footers])) for name in named]


def _partition_type(texts: Sequence[str | None]) -> pa.DataType:
    """The type that PyArrow infers from paths: int32 if every value is an integer of that size, otherwise string.

    PyArrow infers none if all values are null. Then it is string, too.
    """
    if not any(texts):
        return pa.string()
    try:
        pa.array(texts, pa.string()).cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32()
