"""Sources that become an Arrow table: tables, batches, readers, anything with an Arrow stream, Parquet paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.parquet.reader import open_parquet, read_batches
from fsspeckit.core.parquet.schema import int96_columns
from fsspeckit.core.storage import Access, Location
from fsspeckit.core.values import arrays
from fsspeckit.core.values.calendars import Calendar, from_file_calendar
from fsspeckit.core.values.schema import unify_sources
from fsspeckit.core.values.zones import has_timestamp, int96_mark, mark_int96, without_int96_marks
from fsspeckit.datasets.files import existing_files


def to_table(source: Any, access: Access | None = None) -> pa.Table:
    """Read a source of any supported kind as one Arrow table."""
    return source if isinstance(source, pa.Table) else to_reader(source, access).read_all()


def to_reader(source: Any, access: Access | None = None) -> pa.RecordBatchReader:
    """A source of any supported kind as a stream of record batches, no more of it in memory than there was."""
    if isinstance(source, pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return source.to_reader()
    if isinstance(source, (str, os.PathLike)):
        return _path_reader(source, access or Access())
    if is_paths(source):
        return _chained([_path_reader(s, access or Access()) for s in source])
    if hasattr(source, "__arrow_c_stream__"):
        return _stream_reader(source)
    raise ArgumentError(
        f"Cannot read a source of type {type(source).__name__}. Give a PyArrow table, record batch or reader, anything "
        "with an Arrow stream (pandas, Polars, a DuckDB relation), or a path to Parquet files."
    )


def _stream_reader(source: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(source)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust: Polars has no decimal256, and says so in no other way
            raise
        raise ArgumentError(
            f"The source, a {type(source).__name__}, cannot be read: its library failed with {str(error)!r}. Give it "
            "as a PyArrow table, or as a path."
        ) from error


def is_paths(source: Any) -> bool:
    """One path, or some."""
    if isinstance(source, (list, tuple)) and source:
        return all(isinstance(s, (str, os.PathLike)) for s in source)
    return isinstance(source, (str, os.PathLike))


def _path_reader(path: str | os.PathLike[str], access: Access) -> pa.RecordBatchReader:
    """A Parquet file, or all data files of a directory."""
    location = access.locate(path)
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
    """The Parquet files of a source: a directory's, or the one file, in the folder that it lies in."""
    if location.storage.is_dir(location.root):
        return location, existing_files(location)
    info = location.storage.stat(location.root)
    if info is None:
        raise ArgumentError(f"{location.shown} does not exist.")
    folder = Location(location.storage, location.parent, location.shown.rpartition("/")[0])
    return folder, [replace(info, path=location.name)]


def _chained(readers: list[pa.RecordBatchReader]) -> pa.RecordBatchReader:
    """Streams one after the other, in a type of each column that holds the values of all."""
    schema = unify_sources([without_int96_marks(reader.schema) for reader in readers])
    schema = mark_int96(schema, [frozenset(f.name for f in r.schema if int96_mark(f)) for r in readers])

    def batches() -> Iterator[pa.RecordBatch]:
        for reader in readers:
            for batch in reader:
                batch = from_file_calendar(batch, Calendar.of(reader.schema.metadata), "the source")
                columns = [arrays.cast(arrays.plain(batch.column(f.name)), f.type) for f in schema]
                yield pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
