"""What engines of one process share: threads within a memory bound, a spool that spills, sources that are Arrow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from fsspeckit.core.engine import Scratch, Source
from fsspeckit.core.footers import Footers
from fsspeckit.core.model import FileInfo, Replace, Shape
from fsspeckit.core.parallel import side_by_side
from fsspeckit.core.spool.exchange import Dealt, Read, Send, Step, Task, pull
from fsspeckit.core.spool.keyset import IndexedKeys, KeySet
from fsspeckit.core.spool.parts import Part, PartWriter, Spool, conformed, held_part
from fsspeckit.core.spool.store import LocalStore
from fsspeckit.core.storage import LocalStorage, Location
from fsspeckit.core.target.footers import read_planned
from fsspeckit.core.target.remembered import remembered
from fsspeckit.core.values import schema

Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalEngine:
    """`core.engine.Engine` without the name and `open`; an engine of one process may be no more than these two."""

    replace: Replace = "in_place"
    partition_timezone = "UTC"
    ignores_case = False
    memory_bound = 1 << 30
    """Decoded row groups that may be in memory at once, whatever the number of cores."""
    spool_bytes = 256 << 20
    """Rows of a stream that are held in memory; the others go to a file."""

    def __init__(self, threads: int | None = None) -> None:
        self.parallelism = threads or min(8, os.cpu_count() or 1)

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> Footers:
        return remembered(location, files, columns, lambda infos: read_planned(location, infos, columns))

    @contextlib.contextmanager
    def keys(self, spool: Spool) -> Iterator[KeySet]:
        yield IndexedKeys(spool, self)

    def map(
        self, step: Step, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        """By as many threads as keep what is in memory within the bound."""
        if not items:
            return []
        heaviest = max(map(weight, items)) or 1
        workers = max(1, min(self.parallelism, len(items), self.memory_bound // heaviest))
        return side_by_side(function, items, workers, of=self.parallelism)

    def exchange(
        self,
        step: Step,
        spool: Spool,
        send: Send,
        receive: Callable[[Item, Read], Result],
        tasks: Sequence[Task[Item]],
    ) -> list[Result]:
        """Out of memory the rows are taken as they are needed; out of a file they are dealt once, and then read."""
        read: Read = partial(pull, spool, send)
        if not spool.in_memory:
            sent = (labelled for part in range(len(spool.parts)) for labelled in send([part], None))
            read = Dealt.of(spool.store, sent).read
        return self.map(step, lambda task: receive(task.item, read), tasks, lambda task: task.weight)


@dataclass(frozen=True)
class ArrowSource:
    """A table that the caller holds, or a stream. A table is never copied; of a stream, what does not fit into
    `memory` bytes goes to a file in `folder`, or else in the scratch folder."""

    schema: pa.Schema
    rows: pa.Table | Callable[[], Iterable[pa.RecordBatch]]
    memory: int = LocalEngine.spool_bytes
    folder: str | None = None
    close: Callable[[], None] = lambda: None

    def renamed(self, names: Sequence[str]) -> Source:
        fields = [field.with_name(name) for field, name in zip(self.schema, names, strict=True)]
        return replace(self, schema=pa.schema(fields, self.schema.metadata))

    def spool(self, shape: Shape, scratch: Scratch | None) -> Spool:
        store = LocalStore(self.memory, partial(self._spill_folder, scratch))
        parts: tuple[Part, ...]
        try:
            if isinstance(self.rows, pa.Table):
                table = schema.conform(self._named(self.rows), shape)
                parts = (held_part(store, shape, table),) if table.num_rows else ()
            else:
                writer = PartWriter(store, shape)
                tables = (self._named(pa.Table.from_batches([batch])) for batch in self.rows())
                for piece in conformed(tables, shape):
                    writer.write(piece)
                parts = writer.finish()
        except BaseException:
            store.close()
            raise
        return Spool(shape, store, parts)

    def _named(self, table: pa.Table) -> pa.Table:
        """With the names and entries of the schema: these tell of another calendar."""
        return table.rename_columns(self.schema.names).replace_schema_metadata(self.schema.metadata)

    def _spill_folder(self, scratch: Scratch | None) -> str | None:
        if self.folder is not None or scratch is None:
            return self.folder
        place = scratch()
        return place.root if isinstance(place.storage, LocalStorage) else None
