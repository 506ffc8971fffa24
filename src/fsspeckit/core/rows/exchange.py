"""Exchange: every part of the source is sent once, and each task receives the rows that it needs.

A *bucket* is a set of rows that fits in memory. Bucket numbers are unique across tasks. A task receives its buckets in
order, one table each. Engines transport the rows from memory, through files, or by a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.core.parallel import Pool
from fsspeckit.core.progress import Progress
from fsspeckit.core.rows.spool import Numbers, Spool
from fsspeckit.core.rows.store import BatchFile, BatchFileWriter, Store, one_batch

Item = TypeVar("Item")
Result = TypeVar("Result")

Bucketed = Iterator[tuple[int, pa.Table]]
Send = Callable[[Sequence[int], range | None], Bucketed]
"""Rows of some parts with their bucket: only the buckets of a range, or all. Runs where the parts are stored."""
Read = Callable[[int], pa.Table | None]
"""The rows of a bucket from all parts; `None` if it has none."""

BUCKET_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a merge and its size: files to match or rewrite, rows to insert or deduplicate, and about the
    bytes that it reads."""

    name: Literal["match", "deduplicate", "compare", "rewrite", "insert"]
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Task(Generic[Item]):
    """Work on an item with the rows of some buckets. `size` is about the bytes that it processes in all, `weight` those
    that it holds in memory at once."""

    item: Item
    buckets: range
    size: int = 0
    weight: int = 0


class Runner(Protocol):
    """Runs functions of the core in threads or on executors. Functions and items must be picklable for executors."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""

    @property
    def pool(self) -> Pool | None:
        """The threads that tasks run in and may use themselves; `None` if tasks run in other processes."""

    @property
    def progress(self) -> Progress:
        """Counts what is finished. Functions of the core count in the process of the caller, engines what other
        processes have done."""

    def map(
        self, step: Step, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        """Apply `function` to each item; results are in order. `weight` is about the bytes of an item in memory."""

    def exchange(
        self,
        step: Step,
        spool: Spool,
        send: Send,
        receive: Callable[[Item, Read], Result],
        tasks: Sequence[Task[Item]],
    ) -> list[Result]:
        """Send every part, then call `receive` for each task with its item and a function that reads a bucket."""


def pull(spool: Spool, send: Send, bucket: int) -> pa.Table | None:
    """`Read` without sending: take the rows of a bucket from a spool that this process can read."""
    tables = [table for _, table in send(range(len(spool.parts)), range(bucket, bucket + 1))]
    return pa.concat_tables(tables) if tables else None


@dataclass(frozen=True, slots=True)
class Buckets:
    """Rows of a store by bucket, one batch file each, written in one pass over the parts."""

    store: Store
    files: dict[int, BatchFile]

    @classmethod
    def of(cls, store: Store, tables: Iterable[tuple[int, pa.Table]]) -> Buckets:
        writers: dict[int, BatchFileWriter] = {}
        for bucket, table in tables:
            if bucket not in writers:
                writers[bucket] = store.writer("bucket")
            writers[bucket].write(one_batch(table))
        return cls(store, {bucket: writer.finish() for bucket, writer in writers.items()})

    def read(self, bucket: int) -> pa.Table | None:
        file = self.files.get(bucket)
        return None if file is None else pa.Table.from_batches(list(self.store.read(file)))


def by_bucket(table: pa.Table, buckets: Numbers) -> Bucketed:
    """Rows grouped by bucket; the order within a bucket is kept."""
    if len(buckets) and bool((buckets == buckets[0]).all()):
        yield int(buckets[0]), table
        return
    order = np.argsort(buckets, kind="stable")
    distinct, starts = np.unique(buckets[order], return_index=True)
    ordered = table.take(pa.array(order))
    for bucket, start, end in zip(distinct.tolist(), starts, [*starts[1:], len(order)], strict=True):
        yield bucket, ordered.slice(start, end - start)
