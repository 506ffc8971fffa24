"""Sources: Spark DataFrames, Parquet paths, and everything that becomes an Arrow stream.

Each source is evaluated once. Few rows return to the driver and stay in its memory; many are written to the shared
folder as parts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa

from fsspeckit.core.commit.session import plan_folder
from fsspeckit.core.engine import Scratch, Source
from fsspeckit.core.errors import ArgumentError, DatasetMergeError
from fsspeckit.core.model import Footer, Shape
from fsspeckit.core.progress import Progress
from fsspeckit.core.rows.spool import Part, PartWriter, Spool, conformed
from fsspeckit.core.rows.store import SharedFolder, Store
from fsspeckit.core.storage import Access, LocalStorage, Location
from fsspeckit.core.values.schema import check_key_collations
from fsspeckit.core.values.zones import mark_int96
from fsspeckit.datasets.sources import is_paths, to_reader
from fsspeckit.datasets.spark.columns import (
    arrow_compatible,
    collations,
    frame_schema,
    is_frame,
    spark_frame,
    with_plain_names,
)
from fsspeckit.datasets.spark.files import Files, ReadFooters, open_files, row_groups
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.tasks import RESULT_TYPES, collect_results, map_in_arrow, partition_result

# A frame is coalesced to at most this many tasks: 2,000 partitions of two rows, a task each, took a minute.
SOURCE_TASKS_PER_CORE = 16
MIN_SOURCE_TASKS = 64


def open_source(source: Any, operation: Operation, access: Access, footers: ReadFooters) -> Source:
    """Open a source of any type. No rows are read yet."""
    source = spark_frame(source)
    if is_frame(source):
        if source.isStreaming:
            raise ArgumentError(
                "The source is a streaming DataFrame, which has no end. Merge it batch by batch: frame.writeStream"
                ".foreachBatch(SparkDatasetIO(spark).foreach_batch(path, key_columns, app_id=...)).start()."
            )
        frame = arrow_compatible(source)
        return FrameSource(operation, frame_schema(frame), frame)
    if is_paths(source):
        files = open_files(source if isinstance(source, (list, tuple)) else [source], access, footers)
        schema = mark_int96(files.schema, [footer.int96 for _, footer in files.files])
        return FilesSource(operation, schema, files)
    reader = to_reader(source, access)
    return StreamSource(operation, reader.schema, reader)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of the source in its shape: in memory, or as parts in the shared folder."""

    in_memory: tuple[pa.Table, ...]
    parts: tuple[Part, ...] = ()


def read_rows(tables: Iterable[pa.Table], shape: Shape, folder: Callable[[], Store], memory: int) -> SourceRows:
    """Read rows once and cast them to the shape. If they have more than `memory` bytes, write them to the folder."""
    tables_in_memory: list[pa.Table] = []
    size, writer = 0, None
    for table in conformed(tables, shape):
        size += table.nbytes
        tables_in_memory.append(table)
        if size > memory:
            writer = writer or PartWriter(folder(), shape)
            for waiting in tables_in_memory:
                writer.write(waiting)
            tables_in_memory.clear()
    return SourceRows(tuple(tables_in_memory), writer.finish() if writer else ())


@dataclass(frozen=True)
class _SparkSource:
    """The base of all sources. See `core.engine.Source`."""

    operation: Operation
    schema: pa.Schema

    def renamed(self, names: Sequence[str]) -> Self:
        fields = [field.with_name(name) for field, name in zip(self.schema, names, strict=True)]
        return replace(self, schema=pa.schema(fields, self.schema.metadata))

    def spool(self, shape: Shape, scratch: Scratch | None, progress: Progress) -> Spool:
        self.operation.describe("read the source")
        store = self.operation.open_store(partial(_shared_folder, self.operation, scratch))
        parts: list[Part] = []
        try:
            writer = PartWriter(store, shape)
            for rows in self._read(shape):
                for table in rows.in_memory:
                    writer.write(table)
                if rows.parts:
                    _check_visible(self.operation.share_store(), rows.parts)
                    parts += [*writer.finish(), *rows.parts]
                    writer = PartWriter(store, shape)
            parts += writer.finish()
        except BaseException:
            store.close()
            raise
        progress.advance(rows=sum(part.rows for part in parts))
        return Spool(shape, store, tuple(parts))

    def _read(self, shape: Shape) -> Sequence[SourceRows]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close: frames and readers are the caller's, and files are closed when they are read."""


def _shared_folder(operation: Operation, scratch: Scratch | None) -> SharedFolder:
    """A merge uses its staging folder. A plan has none: it uses a folder in the data set's object store, or a temporary
    folder."""
    if scratch is not None:
        place = scratch()
        return SharedFolder(place.storage, place.root)
    target, own_scratch = operation.target, operation.cluster.scratch
    in_store = plan_folder(target) if own_scratch is None else None
    if in_store is not None:
        return SharedFolder(target.storage, in_store, temporary=True)
    folder = tempfile.mkdtemp(prefix="fsspeckit-", dir=own_scratch)
    return SharedFolder(LocalStorage(), folder, temporary=True)


def _check_visible(store: SharedFolder, parts: Sequence[Part]) -> None:
    """The driver must see what executors wrote: without a shared file system nothing can be committed."""
    if store.storage.stat(store.at(parts[-1].rows_file.name)) is None:
        raise DatasetMergeError(
            f"Spark's executors wrote to {store.folder}, but the driver does not see their files. Driver and executors "
            "must share the file system of the data set (for `plan`, pass a shared folder as scratch=).",
            operation="spool",
        )


@dataclass(frozen=True)
class FrameSource(_SparkSource):
    """A Spark DataFrame, which executors evaluate."""

    frame: Any

    def _read(self, shape: Shape) -> Sequence[SourceRows]:
        check_key_collations(collations(self.schema.names, self.frame.schema), shape.keys, "the source")
        frame, columns = self._needed(with_plain_names(self.frame), shape)
        cluster, memory = self.operation.cluster, 0
        if not cluster.has_dynamic_allocation:
            tasks = max(MIN_SOURCE_TASKS, SOURCE_TASKS_PER_CORE * cluster.parallelism)
            frame, memory = frame.coalesce(tasks), cluster.driver_bytes // tasks
        folder = self.operation.share_store()

        def read(batches: Iterable[pa.RecordBatch]) -> SourceRows:
            tables = (pa.Table.from_batches([batch]).rename_columns(columns.names).cast(columns) for batch in batches)
            return read_rows(tables, shape, lambda: folder, memory)

        reading = map_in_arrow(frame, partition_result(read, self.operation.paths), RESULT_TYPES)
        return collect_results("spool", reading, self.operation.label)

    def _needed(self, frame: Any, shape: Shape) -> tuple[Any, pa.Schema]:
        """Only the columns that the merge needs: Spark does not pass others to Python, and may not even read them."""
        needed = _needed_columns(self.schema, shape)
        if len(needed) == len(self.schema):
            return frame, self.schema
        names = frame.columns
        return frame.select([names[i] for i in needed]), pa.schema([self.schema.field(i) for i in needed])


def _needed_columns(columns: pa.Schema, shape: Shape) -> list[int]:
    """The numbers of the source's columns that the merge needs: a delete needs only the key and the sequence."""
    needed = {*shape.source_columns, *([] if shape.deletes is None else [shape.deletes.column])}
    return [number for number, name in enumerate(columns.names) if name in needed]


@dataclass(frozen=True)
class StreamSource(_SparkSource):
    """Rows in the driver's process, read batch by batch."""

    reader: pa.RecordBatchReader

    def _read(self, shape: Shape) -> Sequence[SourceRows]:
        names, metadata = self.schema.names, self.schema.metadata  # the metadata gives the calendar
        tables = (
            pa.Table.from_batches([batch]).rename_columns(names).replace_schema_metadata(metadata)
            for batch in self.reader
        )
        return [read_rows(tables, shape, self.operation.share_store, self.operation.cluster.driver_bytes)]


@dataclass(frozen=True)
class FilesSource(_SparkSource):
    """Parquet files. Executors read them with PyArrow, so that Spark need not know their names and types."""

    files: Files

    def _read(self, shape: Shape) -> Sequence[SourceRows]:
        needed, files, cluster = _needed_columns(self.schema, shape), self.files.files, self.operation.cluster
        columns = pa.schema([self.files.schema.field(i) for i in needed], self.files.schema.metadata)
        names = [self.schema.names[i] for i in needed]
        if cluster.is_small(sum(footer.info.size for _, footer in files), len(files)):
            tables = (table for location, footer in files for table in row_groups(location, columns, names, footer))
            return [read_rows(tables, shape, self.operation.share_store, cluster.driver_bytes)]
        folder = self.operation.share_store()

        def read(file: tuple[Location, Footer]) -> SourceRows:
            location, footer = file
            return read_rows(row_groups(location, columns, names, footer), shape, lambda: folder, memory=0)

        return self.operation.map("spool", read, files, lambda file: file[1].info.size)
