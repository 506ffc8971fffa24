"""Sources that become an Arrow table: tables, batches, readers, anything with an Arrow stream, Parquet paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs

from fsspeckit.core import arrays
from fsspeckit.core.calendars import Calendar, corrected
from fsspeckit.core.commit.session import warn_unfinished
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError, UnreadableFileError
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.plan.footers import has_int96, int96_unit, open_parquet, read_footers
from fsspeckit.core.plan.listing import list_files
from fsspeckit.core.plan.partitions import value_array
from fsspeckit.core.schema import plain_schema, unify_footers, unify_sources
from fsspeckit.core.storage import FsspecStorage, Location, locate


def to_table(source: Any, filesystem: Any = None) -> pa.Table:
    """Read a source of any supported kind as one Arrow table."""
    return source if isinstance(source, pa.Table) else to_reader(source, filesystem).read_all()


def to_reader(source: Any, filesystem: Any = None) -> pa.RecordBatchReader:
    """A source of any supported kind as a stream of record batches, no more of it in memory than there was."""
    if isinstance(source, pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return source.to_reader()
    if isinstance(source, (str, os.PathLike)):
        return _path_reader(source, filesystem)
    if is_paths(source):
        return _chained([_path_reader(s, filesystem) for s in source])
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source)
    raise ArgumentError(
        f"Cannot read a source of type {type(source).__name__}. Give a PyArrow table, record batch or reader, anything "
        "with an Arrow stream (pandas, Polars, a DuckDB relation), or a path to Parquet files."
    )


def is_paths(source: Any) -> bool:
    """One path, or some."""
    if isinstance(source, (list, tuple)) and source:
        return all(isinstance(s, (str, os.PathLike)) for s in source)
    return isinstance(source, (str, os.PathLike))


def _path_reader(path: str | os.PathLike[str], filesystem: Any) -> pa.RecordBatchReader:
    """A Parquet file, or all data files of a directory."""
    location = locate(path, filesystem)
    if location.storage.is_dir(location.root):
        reader = open_dataset(location).scanner(batch_size=16_384, batch_readahead=4, fragment_readahead=1).to_reader()
        return _named(location.shown, reader.schema, reader)
    folder, (info,) = data_files(location)
    file = open_parquet(folder, info.path)
    return _named(location.shown, file.schema_arrow, file.iter_batches(batch_size=16_384))


def data_files(location: Location) -> tuple[Location, Sequence[FileInfo]]:
    """The Parquet files of a source: a directory's, or the one file, in the folder that it lies in."""
    if location.storage.is_dir(location.root):
        return location, existing_files(location)
    info = location.storage.stat(location.root)
    if info is None:
        raise ArgumentError(f"{location.shown} does not exist.")
    folder = Location(location.storage, location.parent, location.shown.rpartition("/")[0])
    return folder, [replace(info, path=location.name)]


def existing_files(location: Location) -> tuple[FileInfo, ...]:
    """The files of a data set that is to be read; warns if a commit to it is unfinished."""
    warn_unfinished(location)
    infos = list_files(location)
    if not infos:
        raise ArgumentError(f"{location.shown} has no Parquet files.")
    return infos


def _named(shown: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """The same batches; a page that cannot be read is an error that names the source."""

    def read() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFileError(f"Cannot read the source {shown}: {error}.", operation="read") from error

    return pa.RecordBatchReader.from_batches(schema, read())


def _chained(readers: list[pa.RecordBatchReader]) -> pa.RecordBatchReader:
    """Streams one after the other, in a type of each column that holds the values of all."""
    schema = unify_sources([reader.schema for reader in readers])

    def batches() -> Iterator[pa.RecordBatch]:
        for reader in readers:
            for batch in reader:
                batch = corrected(batch, Calendar.of(reader.schema.metadata), "the source")
                columns = [arrays.cast(arrays.plain(batch.column(f.name)), f.type) for f in schema]
                yield pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def read_dataset(location: Location, columns: Any = None, filter: Any = None) -> pa.Table:
    """All rows of a data set."""
    return open_dataset(location).to_table(columns=columns, filter=filter)


def open_dataset(location: Location) -> ds.Dataset:
    """The data files as one; partition columns get the types that PyArrow infers from the paths."""
    infos = existing_files(location)
    footers = read_footers(location, infos, ())
    return _dataset(location, infos, footers)


def _dataset(location: Location, infos: tuple[FileInfo, ...], footers: list[Footer]) -> ds.Dataset:
    schema = unify_footers(footers)
    stored_too = any(name in schema.names for footer in footers for name in footer.partition)
    if stored_too or any(f.calendar or not f.schema.equals(schema) for f in footers):
        return ds.dataset(_file_by_file(location, footers, schema))
    found = ds.dataset(
        [location.at(info.path) for info in infos],
        filesystem=location.storage.fs if isinstance(location.storage, FsspecStorage) else pyarrow.fs.LocalFileSystem(),
        format=ds.ParquetFileFormat(coerce_int96_timestamp_unit=_int96_unit(footers)),
        partitioning=ds.HivePartitioning.discover(segment_encoding="uri"),
        partition_base_dir=location.root,
    )
    fields = [_readable(field, found.schema) for field in schema]
    fields += [field for field in found.schema if field.name not in schema.names]
    return found.replace_schema(pa.schema(fields, schema.metadata))


def _file_by_file(location: Location, footers: list[Footer], schema: pa.Schema) -> pa.Table:
    """Files of different schemas, each brought to the common one: Arrow's own scan refuses most of them."""
    named = dict.fromkeys(n for f in footers for n in f.partition if n not in schema.names)
    fields = [pa.field(n, partition_type([f.partition.get(n) for f in footers])) for n in named]
    wanted = plain_schema([*schema, *fields])
    return pa.concat_tables([_one_file(location, footer, wanted) for footer in footers])


def partition_type(texts: Sequence[str | None]) -> pa.DataType:
    """As PyArrow infers it from paths: int32 if every value is a whole number of that size, else text."""
    try:
        pa.array(texts, pa.string()).cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32()


def _one_file(location: Location, footer: Footer, wanted: pa.Schema) -> pa.Table:
    with open_parquet(location, footer.path, footer.metadata) as file:
        table = corrected(file.read(), footer.calendar, location.show(footer.path), footer.int96)
    stored = dict(zip(table.column_names, table.columns, strict=True))

    def column(field: pa.Field) -> Any:
        if field.name in stored:
            return _cast(stored[field.name], field, location.show(footer.path))
        return value_array(footer.partition.get(field.name), field.type, table.num_rows)

    return pa.table([column(f) for f in wanted], schema=wanted)


def _cast(column: pa.ChunkedArray, wanted: pa.Field, where: str) -> Any:
    try:
        return arrays.cast(arrays.plain(column), wanted.type)
    except arrays.DoesNotFit as error:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} of {where} holds {error.args[0]!r}, which the files' common type {wanted.type} "
            "cannot hold. Bring the files to one type first."
        ) from None


def _int96_unit(footers: list[Footer]) -> str | None:
    units = {int96_unit(f.metadata) for f in footers if f.metadata is not None and has_int96(f.metadata)}
    return units.pop() if len(units) == 1 else None


def _readable(field: pa.Field, found: pa.Schema) -> pa.Field:
    """A data set scan knows the storage of extension types only."""
    if field.name in found.names and isinstance(field.type, pa.BaseExtensionType):
        return field.with_type(found.field(field.name).type)
    return field
