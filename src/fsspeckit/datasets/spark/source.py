"""Sources: Spark DataFrames, Parquet paths, and what becomes an Arrow stream. Each is evaluated once, into parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkValueError
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from fsspeckit.core.errors import DatasetMergeError, SchemaMismatchError
from fsspeckit.core.model import FileInfo, Footer, Shape
from fsspeckit.core.storage import Location, locate
from fsspeckit.core.target.footers import open_parquet
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.target.partitions import value_array
from fsspeckit.core.values import arrays
from fsspeckit.core.values.calendars import corrected
from fsspeckit.core.values.collations import check_keys
from fsspeckit.core.values.schema import unify_footers, unify_sources
from fsspeckit.datasets.scan import path_fields
from fsspeckit.datasets.sources import data_files, is_paths, to_reader
from fsspeckit.datasets.spark import session
from fsspeckit.datasets.spark.parts import Part, PartWriter, conformed
from fsspeckit.datasets.spark.scratch import Scratch
from fsspeckit.datasets.spark.shared import Shared


def is_frame(source: Any) -> bool:
    """Is it a DataFrame of classic Spark or of Spark Connect?"""
    return type(source).__module__.startswith("pyspark.") and hasattr(source, "mapInArrow")


def collated(names: Iterable[str], schema: Any) -> dict[str, str]:
    """Columns whose text Spark does not compare byte by byte."""
    kinds = {name: getattr(f.dataType, "collation", None) for name, f in zip(names, schema.fields, strict=True)}
    return {name: kind for name, kind in kinds.items() if kind not in (None, "UTF8_BINARY")}


@dataclass(frozen=True, slots=True)
class Frame:
    """A Spark DataFrame; executors write what they compute of it straight into parts."""

    frame: Any
    schema: pa.Schema

    def pin(self, cluster: session.Cluster, shape: Shape, scratch: Scratch) -> list[Part]:
        check_keys(collated(self.schema.names, self.frame.schema), shape.keys, "the source")
        plain = self.frame.toDF(*(f"c{i}" for i in range(len(self.schema))))  # Spark looks columns up by name
        frame = plain.mapInArrow(_pin_partition(self.schema, shape, scratch, cluster.shared), session.OUTCOME)
        return [part for parts in session.collect("pin", frame) for part in parts]


def _pin_partition(given: pa.Schema, shape: Shape, scratch: Scratch, shared: Shared) -> Any:
    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]).rename_columns(given.names).cast(given) for batch in batches)
        context = TaskContext.get()
        assert context is not None
        yield session.outcome(context.partitionId(), lambda: write_parts(tables, shape, scratch), shared)
        for _ in tables:  # a refused row ends the reading early, but Spark wants its rows taken
            pass

    return remote


def write_parts(tables: Iterable[pa.Table], shape: Shape, scratch: Scratch) -> list[Part]:
    writer = PartWriter(scratch, shape)
    for table in conformed(tables, shape):
        writer.write(table)
    return writer.finish()


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows that the driver's process has or reads; they pass through it batch by batch."""

    reader: pa.RecordBatchReader
    schema: pa.Schema

    def pin(self, cluster: session.Cluster, shape: Shape, scratch: Scratch) -> list[Part]:
        names, entries = self.schema.names, self.schema.metadata  # which tell of another calendar
        tables = (pa.Table.from_batches([batch]).rename_columns(names) for batch in self.reader)
        return write_parts((t.replace_schema_metadata(entries) for t in tables), shape, scratch)


@dataclass(frozen=True, slots=True)
class Files:
    """Parquet files, read by executors with PyArrow: names and types that Spark does not know are no matter."""

    files: tuple[tuple[Location, Footer], ...]
    schema: pa.Schema
    columns: pa.Schema

    def pin(self, cluster: session.Cluster, shape: Shape, scratch: Scratch) -> list[Part]:
        read = partial(_pin_files, self.columns, self.schema.names, shape, scratch)
        found = cluster.map("pin", read, self.files, lambda file: file[1].info.size)
        return [part for parts in found for part in parts]


def _pin_files(
    columns: pa.Schema, names: list[str], shape: Shape, scratch: Scratch, files: list[tuple[Location, Footer]]
) -> list[list[Part]]:
    return [write_parts(row_groups(location, columns, names, footer), shape, scratch) for location, footer in files]


def row_groups(
    location: Location, wanted: pa.Schema, names: list[str], footer: Footer, zone: str = "UTC"
) -> Iterator[pa.Table]:
    with open_parquet(location, footer.path) as file:
        for group in range(file.num_row_groups):
            table = read_row_group(location, footer.path, file, group)
            table = corrected(table, footer.calendar, location.show(footer.path), footer.int96)
            yield pa.table([_column(table, footer, field, zone) for field in wanted], names=names)


def _column(table: pa.Table, footer: Footer, field: pa.Field, zone: str) -> Any:
    if field.name in table.column_names:
        return table.column(field.name)
    if field.name in footer.partition:
        return value_array(footer.partition[field.name], field.type, table.num_rows, zone)
    return pa.nulls(table.num_rows, field.type)


ReadFooters = Callable[[Location, Iterable[FileInfo], Sequence[str]], list[Footer]]


def open_source(source: Any, filesystem: Any, footers: ReadFooters) -> Frame | Stream | Files:
    """Take a source of any kind; nothing of it is read yet but footers."""
    if is_frame(source):
        frame = relaxed(source)
        return Frame(frame, frame_schema(frame))
    if not is_paths(source):
        reader = to_reader(source, filesystem)
        return Stream(reader, reader.schema)
    paths = source if isinstance(source, (list, tuple)) else [source]
    found = [_files(locate(path, filesystem), footers) for path in paths]
    unified = found[0].schema if len(found) == 1 else unify_sources([files.schema for files in found])
    return Files(tuple(file for files in found for file in files.files), unified, unified)


def _files(location: Location, footers: ReadFooters) -> Files:
    """A Parquet file, or all data files of a directory with the columns that their paths name."""
    inside, infos = data_files(location)
    found = footers(inside, infos, ())
    unified = unify_footers(found)
    columns = pa.schema([*unified, *path_fields(found, unified)], unified.metadata)
    return Files(tuple((inside, footer) for footer in found), columns, columns)


def frame_schema(frame: Any) -> pa.Schema:
    """The Arrow schema of a DataFrame: times are instants, and like Spark's writer we make every column nullable."""
    if hasattr(frame, "toArrow"):
        return loose_schema(frame.limit(0).toArrow().schema)
    return loose_schema(to_arrow_schema(frame.schema))  # before Spark 4.0


def loose_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _loose(f.type)) for f in schema])


def relaxed(frame: Any) -> Any:
    """A frame that can become Arrow: elements of `array()`, which have no type, may be null.

    Intervals, which Spark would read back as numbers, and maps of nothing cannot.
    """
    columns, odd = [], False
    for field in _fields(frame):
        check_carried(field)
        kind = _nullable_voids(field.dataType)
        odd = odd or kind != field.dataType
        column = F.col("`" + field.name.replace("`", "``") + "`")
        columns.append(column if kind == field.dataType else column.cast(kind).alias(field.name))
    return frame.select(columns) if odd else frame


def _fields(frame: Any) -> list[Any]:
    try:
        return list(frame.schema.fields)
    except PySparkValueError as error:  # an interval, before Spark 4.0
        raise SchemaMismatchError(
            f"A column of the source has a type that PySpark does not know: {error}. Cast it to another type, such as "
            "string."
        ) from error


def check_carried(field: Any) -> None:
    wrong = next(_not_carried(field.dataType), None)
    if wrong is not None:
        raise SchemaMismatchError(
            f"Column {field.name!r} of the source is {field.dataType.simpleString()}; {wrong.simpleString()} "
            "cannot be stored in Parquet as it is. Cast it to another type, such as string."
        )


# The first of them has no class before Spark 4.0.
_KINDS = ("CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType")
_INTERVALS = tuple(getattr(T, name) for name in _KINDS if hasattr(T, name))


def _not_carried(kind: Any) -> Iterator[Any]:
    if isinstance(kind, _INTERVALS) or (isinstance(kind, T.MapType) and isinstance(kind.keyType, T.NullType)):
        yield kind
    for child in _children(kind):
        yield from _not_carried(child)


def _children(kind: Any) -> list[Any]:
    if isinstance(kind, T.StructType):
        return [field.dataType for field in kind.fields]
    if isinstance(kind, T.MapType):
        return [kind.keyType, kind.valueType]
    return [kind.elementType] if isinstance(kind, T.ArrayType) else []


def _nullable_voids(kind: Any) -> Any:
    if isinstance(kind, T.ArrayType):
        void = isinstance(kind.elementType, T.NullType)
        return T.ArrayType(_nullable_voids(kind.elementType), kind.containsNull or void)
    if isinstance(kind, T.MapType):
        void = isinstance(kind.valueType, T.NullType)
        return T.MapType(kind.keyType, _nullable_voids(kind.valueType), kind.valueContainsNull or void)
    if isinstance(kind, T.StructType):
        return T.StructType(
            [
                T.StructField(
                    f.name,
                    _nullable_voids(f.dataType),
                    f.nullable or isinstance(f.dataType, T.NullType),
                    f.metadata,
                )
                for f in kind.fields
            ]
        )
    return kind


def _loose(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return arrays.with_children(kind, lambda field: pa.field(field.name, _loose(field.type)))


def check_seen(scratch: Scratch, parts: list[Part]) -> None:
    """What executors wrote must be visible here: without a common file system nothing can be committed."""
    if parts and scratch.size(f"{parts[-1].name}.rows") is None:
        raise DatasetMergeError(
            f"Spark's executors wrote into {scratch.folder}, but it cannot be seen from here. Driver and executors "
            "must share the file system that the data set is on (for `plan`, name a shared folder by scratch=).",
            operation="pin",
        )
