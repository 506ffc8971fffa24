"""Sources: Spark DataFrames, Parquet paths, and what becomes an Arrow stream. Each is evaluated once, into parts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from fsspeckit.core.commit.session import plan_folder
from fsspeckit.core.dataset.partitions import value_array
from fsspeckit.core.engine import Scratch, Source
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.model import FileInfo, Footer, Shape
from fsspeckit.core.parquet.reader import open_parquet, read_row_group
from fsspeckit.core.rows.spool import Part, PartWriter, Spool, conformed
from fsspeckit.core.rows.store import SharedFolder, Store
from fsspeckit.core.storage import Access, LocalStorage, Location
from fsspeckit.core.values.calendars import corrected
from fsspeckit.core.values.collations import check_keys
from fsspeckit.core.values.schema import unify_footers, unify_sources
from fsspeckit.core.values.zones import mark_int96
from fsspeckit.datasets.sources import data_files, is_paths, path_fields, to_reader
from fsspeckit.datasets.spark import session
from fsspeckit.datasets.spark.columns import collated, frame_schema, is_frame, plainly_named, relaxed
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.shared import Shared
from fsspeckit.datasets.spark.store import DriverStore

# A task for each of 2,000 partitions of two rows takes a minute.
TASKS_PER_CORE = 16
LEAST_TASKS = 64


def _renamed(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    fields = [field.with_name(name) for field, name in zip(columns, names, strict=True)]
    return pa.schema(fields, columns.metadata)


@dataclass(frozen=True, slots=True)
class Pinned:
    """Rows of the source: few of them as they are, many as parts in the shared folder."""

    rows: tuple[pa.Table, ...]
    parts: tuple[Part, ...] = ()


def pin(tables: Iterable[pa.Table], shape: Shape, folder: Callable[[], Store], memory: int) -> Pinned:
    """Read rows once, in the shape: up to `memory` bytes are returned, more are written to the folder."""
    rows: list[pa.Table] = []
    size, writer = 0, None
    for table in conformed(tables, shape):
        size += table.nbytes
        rows.append(table)
        if size > memory:
            writer = writer or PartWriter(folder(), shape)
            for waiting in rows:
                writer.write(waiting)
            rows.clear()
    return Pinned(tuple(rows), writer.finish() if writer else ())


def _spooled(
    operation: Operation, shape: Shape, scratch: Scratch | None, read: Callable[[DriverStore], Iterable[Pinned]]
) -> Spool:
    """All rows of the source; those that came to the driver stay in its memory."""
    store = DriverStore(partial(_folder, operation, scratch))
    parts: list[Part] = []
    try:
        operation.describe("pin the source")
        writer = PartWriter(store, shape)
        for pinned in read(store):
            for rows in pinned.rows:
                writer.write(rows)
            if pinned.parts:
                _check_seen(store.share(), pinned.parts)
                parts += [*writer.finish(), *pinned.parts]
                writer = PartWriter(store, shape)
        parts += writer.finish()
    except BaseException:
        store.close()
        raise
    operation.spooled(store)
    return Spool(shape, store, tuple(parts))


def _folder(operation: Operation, scratch: Scratch | None) -> SharedFolder:
    """A merge's goes with its staging. A plan has none, and lies in the store if the data set does."""
    if scratch is not None:
        place = scratch()
        return SharedFolder(place.storage, place.root)
    target, asked_for = operation.target, operation.cluster.scratch
    shared = plan_folder(target) if asked_for is None else None
    if shared is not None:
        return SharedFolder(target.storage, shared, temporary=True)
    folder = tempfile.mkdtemp(prefix="fsspeckit-", dir=asked_for)
    return SharedFolder(LocalStorage(), folder, temporary=True)


def _check_seen(store: SharedFolder, parts: Sequence[Part]) -> None:
    """What executors wrote must be visible here: without a common file system nothing can be committed."""
    if store.storage.stat(store.at(parts[-1].rows_file.name)) is None:
        raise DatasetMergeError(
            f"Spark's executors wrote into {store.folder}, but it cannot be seen from here. Driver and executors "
            "must share the file system that the data set is on (for `plan`, name a shared folder by scratch=).",
            operation="pin",
        )


@dataclass(frozen=True)
class Frame:
    """A Spark DataFrame. Executors compute it once: few rows come to the driver, many are written into parts."""

    operation: Operation
    frame: Any
    schema: pa.Schema

    def renamed(self, names: Sequence[str]) -> Source:
        return replace(self, schema=_renamed(self.schema, names))

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        check_keys(collated(self.schema.names, self.frame.schema), shape.keys, "the source")
        return _spooled(self.operation, shape, scratch, partial(self._pin, shape))

    def _pin(self, shape: Shape, store: DriverStore) -> list[Pinned]:
        plain, memory = plainly_named(self.frame), 0
        cluster = self.operation.cluster
        if not cluster.grows:
            tasks = max(LEAST_TASKS, TASKS_PER_CORE * cluster.parallelism)
            plain, memory = plain.coalesce(tasks), cluster.driver_bytes // tasks
        folder = self.operation.share(store)
        pin_partition = _pin_partition(self.schema, shape, folder, memory, self.operation.shared)
        return session.collect("pin", session.mapped(plain, pin_partition, session.OUTCOME))

    def close(self) -> None:
        """The frame is the caller's."""


def _pin_partition(columns: pa.Schema, shape: Shape, folder: SharedFolder, memory: int, shared: Shared) -> Any:
    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]).rename_columns(columns.names).cast(columns) for batch in batches)
        context = TaskContext.get()
        assert context is not None
        yield session.outcome(context.partitionId(), lambda: pin(tables, shape, lambda: folder, memory), shared)
        for _ in tables:  # a refused row ends the reading early, but Spark wants its rows taken
            pass

    return remote


@dataclass(frozen=True)
class Stream:
    """Rows that the driver's process has or reads; they pass through it batch by batch."""

    operation: Operation
    reader: pa.RecordBatchReader
    schema: pa.Schema

    def renamed(self, names: Sequence[str]) -> Source:
        return replace(self, schema=_renamed(self.schema, names))

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        names, entries = self.schema.names, self.schema.metadata  # which tell of another calendar
        tables = (pa.Table.from_batches([batch]).rename_columns(names) for batch in self.reader)
        named = (table.replace_schema_metadata(entries) for table in tables)
        memory = self.operation.cluster.driver_bytes
        return _spooled(self.operation, shape, scratch, lambda store: [pin(named, shape, store.share, memory)])

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

    operation: Operation
    files: Files
    schema: pa.Schema

    def renamed(self, names: Sequence[str]) -> Source:
        return replace(self, schema=_renamed(self.schema, names))

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        return _spooled(self.operation, shape, scratch, partial(self._pin, shape))

    def _pin(self, shape: Shape, store: DriverStore) -> list[Pinned]:
        columns, names, files, cluster = self.files.schema, self.schema.names, self.files.files, self.operation.cluster
        if cluster.is_little(sum(footer.info.size for _, footer in files), len(files)):
            tables = (table for place, footer in files for table in row_groups(place, columns, names, footer))
            return [pin(tables, shape, store.share, cluster.driver_bytes)]
        pin_file = partial(_pin_file, columns, names, shape, self.operation.share(store))
        return self.operation.map("pin", pin_file, files, lambda file: file[1].info.size)

    def close(self) -> None:
        """Nothing is open between two steps."""


def _pin_file(
    columns: pa.Schema, names: list[str], shape: Shape, folder: SharedFolder, file: tuple[Location, Footer]
) -> Pinned:
    location, footer = file
    return pin(row_groups(location, columns, names, footer), shape, lambda: folder, memory=0)


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


def open_source(source: Any, operation: Operation, access: Access, footers: ReadFooters) -> Source:
    """Take a source of any kind; nothing of it is read yet but footers."""
    if is_frame(source):
        frame = relaxed(source)
        return Frame(operation, frame, frame_schema(frame))
    if is_paths(source):
        files = open_files(source if isinstance(source, (list, tuple)) else [source], access, footers)
        return FilesSource(operation, files, marked(files))
    reader = to_reader(source, access)
    return Stream(operation, reader, reader.schema)


def open_files(paths: Sequence[Any], access: Access, footers: ReadFooters) -> Files:
    opened = [_files(access.locate(path), footers) for path in paths]
    unified = opened[0].schema if len(opened) == 1 else unify_sources([files.schema for files in opened])
    return Files(tuple(file for files in opened for file in files.files), unified)


def marked(files: Files) -> pa.Schema:
    """The schema of a source, which says where it has INT96: these are instants."""
    return mark_int96(files.schema, [footer.int96 for _, footer in files.files])


def _files(location: Location, footers: ReadFooters) -> Files:
    """A Parquet file, or all data files of a directory with the columns that their paths name."""
    inside, infos = data_files(location)
    read = footers(inside, infos, ())
    unified = unify_footers(read)
    columns = pa.schema([*unified, *path_fields(read, unified)], unified.metadata)
    return Files(tuple((inside, footer) for footer in read), columns)
