"""Rows brought to whoever works on them: every part is sent out once, and each task receives what is for it.

A *label* is a bucket of rows that is comfortable to hold. Labels are numbered through the tasks; a task receives its
labels in order, one table each. Engines choose the way: out of memory, through files of their own, or by a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.core.spool.parts import Numbers, Spool
from fsspeckit.core.spool.store import Run, RunWriter, Store, one_batch

Item = TypeVar("Item")
Result = TypeVar("Result")

Labelled = Iterator[tuple[int, pa.Table]]
Send = Callable[[Sequence[int], range | None], Labelled]
"""The rows of some parts with their labels: of the labels in a range, or of all. Runs where the parts are."""
Read = Callable[[int], pa.Table | None]
"""The rows of a label, from all parts; `None` if there are none."""

LABEL_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a merge, and how much there is of it: files to match or rewrite, rows to insert or reduce; and about
    the bytes that all of it reads."""

    name: Literal["match", "deduplicate", "rewrite", "insert"]
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Task(Generic[Item]):
    """Work on an item, for which the rows of some labels are needed: about the bytes that it handles in all, and those
    that it has in memory at once."""

    item: Item
    labels: range
    size: int = 0
    weight: int = 0


class Runner(Protocol):
    """Where the core's functions run: threads, or executors. What they are given must be picklable for the latter."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""

    def map(
        self, step: Step, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        """`function` over items, in order; `weight` is about the bytes that one of them has in memory at once."""

    def exchange(
        self,
        step: Step,
        spool: Spool,
        send: Send,
        receive: Callable[[Item, Read], Result],
        tasks: Sequence[Task[Item]],
    ) -> list[Result]:
        """Send every part, then let each task receive: its item, and a way to read the rows of its labels."""


def pull(spool: Spool, send: Send, label: int) -> pa.Table | None:
    """`Read` where the whole spool is at hand: nothing was sent, the rows are taken from where they are."""
    tables = [table for _, table in send(range(len(spool.parts)), range(label, label + 1))]
    return pa.concat_tables(tables) if tables else None


@dataclass(frozen=True, slots=True)
class Dealt:
    """Rows dealt into a store by one pass over the parts: a run for each label."""

    store: Store
    runs: dict[int, Run]

    @classmethod
    def of(cls, store: Store, tables: Iterable[tuple[int, pa.Table]]) -> Dealt:
        writers: dict[int, RunWriter] = {}
        for label, table in tables:
            if label not in writers:
                writers[label] = store.writer("dealt")
            writers[label].write(one_batch(table))
        return cls(store, {label: writer.finish() for label, writer in writers.items()})

    def read(self, label: int) -> pa.Table | None:
        run = self.runs.get(label)
        return None if run is None else pa.Table.from_batches(list(self.store.read(run)))


def by_label(table: pa.Table, labels: Numbers) -> Labelled:
    """Rows grouped by their label, in order within it."""
    if len(labels) and bool((labels == labels[0]).all()):
        yield int(labels[0]), table
        return
    order = np.argsort(labels, kind="stable")
    distinct, starts = np.unique(labels[order], return_index=True)
    ordered = table.take(pa.array(order))
    for label, start, end in zip(distinct.tolist(), starts, [*starts[1:], len(order)], strict=True):
        yield label, ordered.slice(start, end - start)
