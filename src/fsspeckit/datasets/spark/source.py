"""Sources: Spark DataFrames, Parquet paths, and what becomes an Arrow table. Each is evaluated once, into parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from fsspeckit.core import schema
from fsspeckit.core.errors import ArgumentError, DatasetMergeError, FsspeckitError
from fsspeckit.core.model import Footer, Shape
from fsspeckit.core.plan.confirm import read_row_group
from fsspeckit.core.plan.footers import leaf_count, open_parquet
from fsspeckit.core.plan.partitions import value_array
from fsspeckit.core.schema import unify_footers
from fsspeckit.core.storage import Location, locate
from fsspeckit.datasets.sources import to_table
from fsspeckit.datasets.spark import session
from fsspeckit.datasets.spark.parts import Part, PartWriter, conformed
from fsspeckit.datasets.spark.scratch import Scratch


def is_frame(source: Any) -> bool:
    """Is it a DataFrame of classic Spark or of Spark Connect?"""
    return type(source).__module__.startswith("pyspark.") and hasattr(source, "mapInArrow")


@dataclass(frozen=True, slots=True)
class Frame:
    """A Spark DataFrame; executors write what they compute of it straight into parts."""

    frame: Any
    schema: pa.Schema

    def pin(self, cluster: session.Cluster, shape: Shape, scratch: Scratch) -> list[Part]:
        frame = self.frame.mapInArrow(_pin_partition(self.schema, shape, scratch), session.OUTCOME)
        return [part for parts in session.collect("pin", frame) for part in parts]


def _pin_partition(given: pa.Schema, shape: Shape, scratch: Scratch) -> Any:
    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]).cast(given) for batch in batches)
        context = TaskContext.get()
        assert context is not None
        yield session.outcome(context.partitionId(), lambda: write_parts(tables, shape, scratch))
        for _ in tables:  # a refused row ends the reading early, but Spark wants its rows taken
            pass

    return remote


def write_parts(tables: Iterable[pa.Table], shape: Shape, scratch: Scratch) -> list[Part]:
    writer = PartWriter(scratch, shape)
    for table in conformed(tables, shape):
        writer.write(table)
    return writer.finish()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that the caller holds in memory already."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def pin(self, cluster: session.Cluster, shape: Shape, scratch: Scratch) -> list[Part]:
        writer = PartWriter(scratch, shape)
        writer.write(schema.conform(self.table, shape))
        return writer.finish()


@dataclass(frozen=True, slots=True)
class Files:
    """Parquet files, read by executors with PyArrow: names and types that Spark does not know are no matter."""

    location: Location
    footers: tuple[Footer, ...]
    schema: pa.Schema

    def pin(self, cluster: session.Cluster, shape: Shape, scratch: Scratch) -> list[Part]:
        read = partial(_pin_files, self.location, self.schema, shape, scratch)
        found = cluster.map("pin", read, self.footers, lambda footer: footer.info.size)
        return [part for parts in found for part in parts]


def _pin_files(
    location: Location, schema: pa.Schema, shape: Shape, scratch: Scratch, footers: list[Footer]
) -> list[list[Part]]:
    return [write_parts(_row_groups(location, schema, footer), shape, scratch) for footer in footers]


def _row_groups(location: Location, wanted: pa.Schema, footer: Footer) -> Iterator[pa.Table]:
    with open_parquet(location, footer.path) as file:
        for group in range(file.num_row_groups):
            table = read_row_group(location, footer.path, file, group)
            yield pa.table([_column(table, footer, field) for field in wanted], names=wanted.names)


def _column(table: pa.Table, footer: Footer, field: pa.Field) -> Any:
    if field.name in table.column_names:
        return table.column(field.name)
    if field.name in footer.partition:
        return value_array(footer.partition[field.name], field.type, table.num_rows)
    return pa.nulls(table.num_rows, field.type)


def open_source(source: Any, filesystem: Any, footers: Any, int96: frozenset[str]) -> Frame | Table | Files:
    """Take a source of any kind; nothing of it is read yet but footers."""
    if is_frame(source):
        return Frame(source, frame_schema(source, int96))
    if isinstance(source, (str, os.PathLike)):
        location = locate(source, filesystem)
        if location.storage.is_dir(location.root):
            return _files(location, footers)
    return Table(to_table(source, filesystem))


def _files(location: Location, footers: Any) -> Files:
    from fsspeckit.core.plan.listing import list_files

    found = tuple(footers(location, list_files(location), ()))
    if not found:
        raise ArgumentError(f"{location.shown} has no Parquet files.")
    unified = unify_footers(found)
    names = dict.fromkeys(name for footer in found for name in footer.partition if name not in unified.names)
    fields = [pa.field(name, _partition_type([f.partition.get(name) for f in found])) for name in names]
    return Files(location, found, pa.schema([*unified, *fields], unified.metadata))


def _partition_type(texts: list[str | None]) -> pa.DataType:
    """As PyArrow infers it: int32 if every value is a whole number of that size, else text."""
    try:
        pa.array([t for t in texts if t is not None], pa.string()).cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32()


def frame_schema(frame: Any, int96: frozenset[str] = frozenset()) -> pa.Schema:
    """The Arrow schema of a DataFrame: times are instants, and like Spark's writer we make every column nullable.

    INT96 says nothing of zones. Spark writes instants in it and Arrow reads plain times; in columns that the target
    stores so, an instant is the plain time in UTC.
    """
    empty: pa.Schema = frame.limit(0).toArrow().schema
    return pa.schema([pa.field(f.name, _loose(f.type, None if f.name in int96 else "UTC")) for f in empty])


def _loose(kind: pa.DataType, zone: str | None) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _loose(f.type, zone)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_loose(kind.key_type, zone), _loose(kind.item_type, zone))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = pa.field("element", _loose(kind.value_type, zone))
        return pa.list_(element) if pa.types.is_list(kind) else pa.large_list(element)
    return kind


def int96_columns(location: Location, footers: Iterable[Footer]) -> frozenset[str]:
    """Top-level columns that the files store, or hold somewhere within, as INT96. One file tells for its schema."""
    models = {footer.schema.remove_metadata(): footer for footer in footers if _has_naive_times(footer.schema)}
    return frozenset(name for footer in models.values() for name in _int96_names(location, footer))


def _has_naive_times(schema: pa.Schema) -> bool:
    return any("timestamp[" in str(field.type) for field in schema)


def _int96_names(location: Location, footer: Footer) -> Iterator[str]:
    metadata = footer.metadata
    if metadata is None:
        with open_parquet(location, footer.path) as file:
            metadata = file.metadata
    leaf = 0
    for field in footer.schema:
        leaves = range(leaf, leaf + leaf_count(field.type))
        if any(metadata.schema.column(i).physical_type == "INT96" for i in leaves):
            yield field.name
        leaf = leaves.stop


def check_seen(scratch: Scratch, parts: list[Part]) -> None:
    """What executors wrote must be visible here: without a common file system nothing can be committed."""
    if parts and scratch.size(f"{parts[-1].name}.rows") is None:
        raise DatasetMergeError(
            f"Spark's executors wrote into {scratch.folder}, but it cannot be seen from here. Driver and executors "
            "must share the file system that the data set is on (for `plan`, name a shared folder by scratch=).",
            operation="pin",
        )


__all__ = ["Files", "Frame", "FsspeckitError", "Table", "check_seen", "open_source"]
