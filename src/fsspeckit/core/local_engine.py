"""The base of engines that run in one process: threads within a memory bound, a spool that spills, Arrow sources."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeVar

import pyarrow as pa

from fsspeckit.core.actions import Actions
from fsspeckit.core.dataset.footer_cache import cached_footers
from fsspeckit.core.dataset.footers import read_planned
from fsspeckit.core.engine import Scratch, Source
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.match.key_index import IndexedKeys, KeySet
from fsspeckit.core.model import FileInfo, Replace, Shape
from fsspeckit.core.parallel import Pool, parallel_map
from fsspeckit.core.progress import SILENT, Progress
from fsspeckit.core.rows.exchange import Buckets, Read, Send, Step, Task, pull
from fsspeckit.core.rows.spool import Part, PartWriter, Spool, conformed, in_memory_part
from fsspeckit.core.rows.store import LocalStore
from fsspeckit.core.storage import Location
from fsspeckit.core.values.conform import conform

Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalEngine:
    """`core.engine.Engine` without `name` and `open`, which every engine of one process adds."""

    replace: Replace = "in_place"
    application_id: str | None = None
    compression: str | None = None
    partition_timezone = "UTC"
    source_timezone: str | None = None
    ignores_case = False
    memory_bound = 1 << 30
    """Bytes of decoded row groups in memory at once, for all threads together."""
    spool_bytes = 256 << 20
    """Bytes of a stream that the spool holds in memory; more go to a file."""

    pool: Pool | None = None
    progress: Progress = SILENT

    def __init__(self, threads: int | None = None) -> None:
        self.parallelism = threads or min(8, os.cpu_count() or 1)

    @contextlib.contextmanager
    def running(self, progress: Progress) -> Iterator[Self]:
        """This engine with a pool of threads, for one merge."""
        with Pool.of(self.parallelism, progress.stop) as pool:
            engine = copy.copy(self)
            engine.pool, engine.progress = pool, progress
            yield engine

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> Footers:
        return cached_footers(location, files, columns, lambda infos: read_planned(location, infos, columns))

    @contextlib.contextmanager
    def keys(self, spool: Spool, actions: Actions) -> Iterator[KeySet]:
        yield IndexedKeys(spool, self, actions)

    def map(
        self, step: Step, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        """Apply `function` with as many threads as the memory bound allows."""
        if not items:
            return []
        heaviest = max(map(weight, items)) or 1
        workers = max(1, min(self.parallelism, len(items), self.memory_bound // heaviest))
        if self.pool is None:
            return parallel_map(function, items, workers)
        return self.pool.part(workers).map(function, items)

    def exchange(
        self,
        step: Step,
        spool: Spool,
        send: Send,
        receive: Callable[[Item, Read], Result],
        tasks: Sequence[Task[Item]],
    ) -> list[Result]:
        """Rows in memory are taken as they are needed; rows in a file are written into buckets first."""
        read: Read = partial(pull, spool, send)
        if not spool.in_memory:
            sent = (bucketed for part in range(len(spool.parts)) for bucketed in send([part], None))
            read = Buckets.of(spool.store, sent).read
        return self.map(step, lambda task: receive(task.item, read), tasks, lambda task: task.weight)


@dataclass(frozen=True)
class ArrowSource:
    """A table of the caller, or a stream. A table is not copied. Rows of a stream beyond `memory` bytes go to a file in
    `folder`, by default the scratch folder."""

    schema: pa.Schema
    rows: pa.Table | Callable[[], Iterable[pa.RecordBatch]]
    memory: int = LocalEngine.spool_bytes
    folder: str | None = None
    close: Callable[[], None] = lambda: None

    def renamed(self, names: Sequence[str]) -> Source:
        fields = [field.with_name(name) for field, name in zip(self.schema, names, strict=True)]
        return replace(self, schema=pa.schema(fields, self.schema.metadata))

    def spool(self, shape: Shape, scratch: Scratch | None, progress: Progress = SILENT) -> Spool:
        store = LocalStore(self.memory, partial(self._spill_folder, scratch))
        parts: tuple[Part, ...]
        try:
            if isinstance(self.rows, pa.Table):
                table = conform(self._named(self.rows), shape)
                parts = (in_memory_part(store, shape, table),) if table.num_rows else ()
                progress.advance(rows=table.num_rows)
            else:
                writer = PartWriter(store, shape)
                tables = (self._named(pa.Table.from_batches([batch])) for batch in self.rows())
                for piece in conformed(tables, shape):
                    writer.write(piece)
                    progress.advance(rows=piece.num_rows)
                parts = writer.finish()
        except BaseException:
            store.close()
            raise
        return Spool(shape, store, parts)

    def _named(self, table: pa.Table) -> pa.Table:
        """With the names and metadata of the schema; the metadata gives the calendar."""
        return table.rename_columns(self.schema.names).replace_schema_metadata(self.schema.metadata)

    def _spill_folder(self, scratch: Scratch | None) -> str | None:
        if self.folder is not None or scratch is None:
            return self.folder
        place = scratch()
        return place.storage.local_path(place.root)
