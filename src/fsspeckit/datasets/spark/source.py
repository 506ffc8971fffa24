"""Sources: Spark DataFrames, Parquet paths, and what becomes an Arrow stream. Each is evaluated once, into parts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from fsspeckit.core.commit.head import plan_folder
from fsspeckit.core.engine import Scratch, Source
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.model import FileInfo, Footer, Shape
from fsspeckit.core.spool.parts import Part, PartWriter, Spool, conformed
from fsspeckit.core.spool.store import SharedFolder, Store
from fsspeckit.core.storage import Access, LocalStorage, Location, StoreStorage
from fsspeckit.core.target.footers import open_parquet
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.target.partitions import value_array
from fsspeckit.core.values.calendars import corrected
from fsspeckit.core.values.collations import check_keys
from fsspeckit.core.values.schema import unify_footers, unify_sources
from fsspeckit.datasets.files import path_fields
from fsspeckit.datasets.sources import data_files, is_paths, to_reader
from fsspeckit.datasets.spark import session
from fsspeckit.datasets.spark.columns import collated, frame_schema, is_frame, plainly_named, relaxed
from fsspeckit.datasets.spark.shared import Shared, local_paths

# A task for each of 2,000 partitions of two rows takes a minute.
TASKS_PER_CORE = 16
LEAST_TASKS = 64


def _renamed(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    fields = [field.with_name(name) for field, name in zip(columns, names, strict=True)]
    return pa.schema(fields, columns.metadata)


def _spooled(
    cluster: session.Cluster, shape: Shape, scratch: Scratch | None, write: Callable[[SharedFolder], Iterable[Part]]
) -> Spool:
    """The parts that are written into a folder which driver and executors see."""
    store = _store(cluster, scratch)
    try:
        cluster.shared = replace(cluster.shared, scratch=local_paths(store.storage, store.folder))
        cluster.jobs.describe("pin the source")
        parts = tuple(write(store))
        _check_seen(store, parts)
    except BaseException:
        store.close()
        raise
    return Spool(shape, store, parts)


def _store(cluster: session.Cluster, scratch: Scratch | None) -> SharedFolder:
    """A merge's goes with its staging. A plan has none, and lies in the store if the data set does."""
    if scratch is not None:
        place = scratch()
        return SharedFolder(place.storage, place.root)
    target = cluster.target
    if target is not None and isinstance(target.storage, StoreStorage) and cluster.scratch is None:
        return SharedFolder(target.storage, plan_folder(target.root), temporary=True)
    folder = tempfile.mkdtemp(prefix="fsspeckit-", dir=cluster.scratch)
    return SharedFolder(LocalStorage(), folder, temporary=True)


def _check_seen(store: SharedFolder, parts: Sequence[Part]) -> None:
    """What executors wrote must be visible here: without a common file system nothing can be committed."""
    if parts and store.storage.stat(store.at(parts[-1].rows_run.name)) is None:
        raise DatasetMergeError(
            f"Spark's executors wrote into {store.folder}, but it cannot be seen from here. Driver and executors "
            "must share the file system that the data set is on (for `plan`, name a shared folder by scratch=).",
            operation="pin",
        )


@dataclass(frozen=True)
class Frame:
    """A Spark DataFrame; executors write what they compute of it straight into parts."""

    cluster: session.Cluster
    frame: Any
    schema: pa.Schema

    def renamed(self, names: Sequence[str]) -> Source:
        return replace(self, schema=_renamed(self.schema, names))

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        check_keys(collated(self.schema.names, self.frame.schema), shape.keys, "the source")
        return _spooled(self.cluster, shape, scratch, partial(self._parts, shape))

    def _parts(self, shape: Shape, store: SharedFolder) -> Iterator[Part]:
        plain = plainly_named(self.frame)
        if not self.cluster.grows:
            plain = plain.coalesce(max(LEAST_TASKS, TASKS_PER_CORE * self.cluster.parallelism))
        pin = _pin_partition(self.schema, shape, store, self.cluster.shared)
        frame = session.mapped(plain, pin, session.OUTCOME)
        return (part for parts in session.collect("pin", frame) for part in parts)

    def close(self) -> None:
        """The frame is the caller's."""


def _pin_partition(columns: pa.Schema, shape: Shape, store: Store, shared: Shared) -> Any:
    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]).rename_columns(columns.names).cast(columns) for batch in batches)
        context = TaskContext.get()
        assert context is not None
        yield session.outcome(context.partitionId(), lambda: write_parts(tables, shape, store), shared)
        for _ in tables:  # a refused row ends the reading early, but Spark wants its rows taken
            pass

    return remote


def write_parts(tables: Iterable[pa.Table], shape: Shape, store: Store) -> tuple[Part, ...]:
    writer = PartWriter(store, shape)
    for table in conformed(tables, shape):
        writer.write(table)
    return writer.finish()


@dataclass(frozen=True)
class Stream:
    """Rows that the driver's process has or reads; they pass through it batch by batch."""

    cluster: session.Cluster
    reader: pa.RecordBatchReader
    schema: pa.Schema

    def renamed(self, names: Sequence[str]) -> Source:
        return replace(self, schema=_renamed(self.schema, names))

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        names, entries = self.schema.names, self.schema.metadata  # which tell of another calendar
        tables = (pa.Table.from_batches([batch]).rename_columns(names) for batch in self.reader)
        named = (table.replace_schema_metadata(entries) for table in tables)
        return _spooled(self.cluster, shape, scratch, partial(write_parts, named, shape))

    def close(self) -> None:
        """The rows are the caller's."""


@dataclass(frozen=True)
class Files:
    """Parquet files, and the columns that they and their paths have."""

    files: tuple[tuple[Location, Footer], ...]
    schema: pa.Schema


@dataclass(frozen=True)
class FilesSource:
    """Parquet files, read by executors with PyArrow: names and types that Spark does not know are no matter."""

    cluster: session.Cluster
    files: Files
    schema: pa.Schema

    def renamed(self, names: Sequence[str]) -> Source:
        return replace(self, schema=_renamed(self.schema, names))

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        return _spooled(self.cluster, shape, scratch, partial(self._parts, shape))

    def _parts(self, shape: Shape, store: SharedFolder) -> Iterator[Part]:
        read, files = partial(_pin_file, self.files.schema, self.schema.names, shape, store), self.files.files
        if self.cluster.is_little(sum(footer.info.size for _, footer in files), len(files)):
            return (part for file in files for part in read(file))
        pinned = self.cluster.map("pin", read, files, lambda file: file[1].info.size)
        return (part for parts in pinned for part in parts)

    def close(self) -> None:
        """Nothing is open between two steps."""


def _pin_file(
    columns: pa.Schema, names: list[str], shape: Shape, store: Store, file: tuple[Location, Footer]
) -> tuple[Part, ...]:
    location, footer = file
    return write_parts(row_groups(location, columns, names, footer), shape, store)


def row_groups(
    location: Location, wanted: pa.Schema, names: list[str], footer: Footer, zone: str = "UTC"
) -> Iterator[pa.Table]:
    location.expect(footer.info)
    with open_parquet(location, footer.path) as file:
        stored = [name for name in wanted.names if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            table = read_row_group(location, footer.path, file, group, stored)
            table = corrected(table, footer.calendar, location.show(footer.path), footer.int96)
            yield pa.table([_column(table, footer, field, zone) for field in wanted], names=names)


def _column(table: pa.Table, footer: Footer, field: pa.Field, zone: str) -> Any:
    if field.name in table.column_names:
        return table.column(field.name)
    if field.name in footer.partition:
        return value_array(footer.partition[field.name], field.type, table.num_rows, zone)
    return pa.nulls(table.num_rows, field.type)


ReadFooters = Callable[[Location, Iterable[FileInfo], Sequence[str]], Sequence[Footer]]


def open_source(source: Any, cluster: session.Cluster, access: Access, footers: ReadFooters) -> Source:
    """Take a source of any kind; nothing of it is read yet but footers."""
    if is_frame(source):
        frame = relaxed(source)
        return Frame(cluster, frame, frame_schema(frame))
    if is_paths(source):
        files = open_files(source if isinstance(source, (list, tuple)) else [source], access, footers)
        return FilesSource(cluster, files, files.schema)
    reader = to_reader(source, access)
    return Stream(cluster, reader, reader.schema)


def open_files(paths: Sequence[Any], access: Access, footers: ReadFooters) -> Files:
    opened = [_files(access.locate(path), footers) for path in paths]
    unified = opened[0].schema if len(opened) == 1 else unify_sources([files.schema for files in opened])
    return Files(tuple(file for files in opened for file in files.files), unified)


def _files(location: Location, footers: ReadFooters) -> Files:
    """A Parquet file, or all data files of a directory with the columns that their paths name."""
    inside, infos = data_files(location)
    read = footers(inside, infos, ())
    unified = unify_footers(read)
    columns = pa.schema([*unified, *path_fields(read, unified)], unified.metadata)
    return Files(tuple((inside, footer) for footer in read), columns)
