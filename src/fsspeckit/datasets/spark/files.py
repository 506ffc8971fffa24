"""Parquet files that tasks read with PyArrow: a source given as paths, or a data set that Spark cannot read itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from fsspeckit.core.dataset.partitions import value_array
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.parquet.reader import open_parquet, read_row_group
from fsspeckit.core.storage import Access, Location
from fsspeckit.core.values import arrays
from fsspeckit.core.values.calendars import from_file_calendar
from fsspeckit.core.values.schema import unify_footers, unify_sources
from fsspeckit.datasets.sources import data_files, path_fields
from fsspeckit.datasets.spark.columns import arrow_schema, spark_schema
from fsspeckit.datasets.spark.operation import Operation

_BATCH_ROWS = 16_384

ReadFooters = Callable[[Location, Iterable[FileInfo], Sequence[str]], Sequence[Footer]]


@dataclass(frozen=True)
class Files:
    """Parquet files, and the columns of the files and their paths."""

    files: tuple[tuple[Location, Footer], ...]
    schema: pa.Schema


def open_files(paths: Sequence[Any], access: Access, footers: ReadFooters) -> Files:
    """Parquet files, or all data files of directories. Only footers are read."""
    opened = [_open(access.locate(path), footers) for path in paths]
    unified = opened[0].schema if len(opened) == 1 else unify_sources([files.schema for files in opened])
    return Files(tuple(file for files in opened for file in files.files), unified)


def _open(location: Location, read_footers: ReadFooters) -> Files:
    inside, infos = data_files(location)
    footers = read_footers(inside, infos, ())
    unified = unify_footers(footers)
    columns = pa.schema([*unified, *path_fields(footers, unified)], unified.metadata)
    return Files(tuple((inside, footer) for footer in footers), columns)


def row_groups(
    location: Location, schema: pa.Schema, names: list[str], footer: Footer, zone: str = "UTC"
) -> Iterator[pa.Table]:
    """The row groups of a file with the columns of `schema`, renamed to `names`. `zone` is that of folder names."""
    location.expect(footer.info)
    with open_parquet(location, footer.path) as file:
        stored = [name for name in schema.names if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            table = read_row_group(location, footer.path, file, group, stored)
            table = from_file_calendar(table, footer.calendar, location.show(footer.path), footer.int96)
            yield pa.table([_column(table, footer, field, zone) for field in schema], names=names)


def _column(table: pa.Table, footer: Footer, field: pa.Field, zone: str) -> Any:
    if field.name in table.column_names:
        return table.column(field.name)
    if field.name in footer.partition:
        return value_array(footer.partition[field.name], field.type, table.num_rows, zone)
    return pa.nulls(table.num_rows, field.type)


def spark_batches(location: Location, schema: pa.Schema, footer: Footer, zone: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the types that Spark takes from Python."""
    for table in row_groups(location, schema, schema.names, footer, zone):
        columns = [_cast(column, field) for column, field in zip(table.columns, schema, strict=True)]
        yield from pa.table(columns, schema=schema).to_batches(max_chunksize=_BATCH_ROWS)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return arrays.plain(column).cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"Column {field.name!r} does not fit {field.type} of Spark: {error}.") from error


def read_frame(operation: Operation, files: Files, columns: Sequence[str] | None, zone: str) -> Any:
    """The rows of all files as a DataFrame. Tasks read them when the frame is evaluated, as the files are then."""
    all_types = spark_schema(files.schema)
    missing = [name for name in columns or () if name not in all_types.names]
    if missing:
        raise ArgumentError(f"There is no column {missing[0]!r}. The data set has {', '.join(all_types.names)}.")
    types = all_types if columns is None else T.StructType([all_types[name] for name in columns])
    schema = arrow_schema(types)
    without_metadata = [(location, replace(footer, metadata=None)) for location, footer in files.files]

    def read(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
        for location, footer in (without_metadata[number] for number in numbers):
            yield from spark_batches(location, schema, footer, zone)

    return operation.rows(read, [footer.info.size for _, footer in files.files], types)
