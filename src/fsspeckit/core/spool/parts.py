"""The spool: parts of moderate size, each a run of rows and a run of their canonical keys.

Rows stand in the shape's plain types. A row is named by its part and its number in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.core.model import Shape
from fsspeckit.core.spool.store import LocalStore, Run, RunWriter, Store, one_batch
from fsspeckit.core.target.partitions import identities
from fsspeckit.core.values import arrays, keys, schema
from fsspeckit.core.values.ordering import Intervals, merged

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
PART_BYTES = 128 << 20
INTERVAL_BYTES = 32 << 10

RowId = tuple[int, int]
"""A row of the source: its part, and its number in it."""
Numbers = npt.NDArray[np.integer]
"""Rows, positions or labels by number."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of a part without reading it: O(batches), never O(rows)."""

    rows_run: Run
    keys_run: Run
    nulls: tuple[int, ...]
    intervals: tuple[Intervals | None, ...]
    partitions: Mapping[tuple[Any, ...], int]
    """How many rows go to each partition; all to `()` where there are none."""

    @property
    def rows(self) -> int:
        return self.rows_run.rows

    @property
    def bytes(self) -> int:
        return self.rows_run.bytes

    @property
    def key_bytes(self) -> int:
        return self.keys_run.bytes


@dataclass(frozen=True, slots=True)
class Spool:
    """The source, pinned: it reads the same as often as it is read, until its store is closed."""

    shape: Shape
    store: Store
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def key_bytes(self) -> int:
        return sum(part.key_bytes for part in self.parts)

    @property
    def in_memory(self) -> bool:
        """Is every row at hand? Then nothing has to be sent."""
        store = self.store
        return isinstance(store, LocalStore) and all(store.holds(part.rows_run) for part in self.parts)

    @property
    def of_one_process(self) -> bool:
        return isinstance(self.store, LocalStore)

    @property
    def offsets(self) -> Numbers:
        """Where each part begins when the rows of all parts are numbered through."""
        return np.concatenate([[0], np.cumsum([part.rows for part in self.parts], dtype=np.int64)])

    def row_ids(self, rows: Sequence[int]) -> list[RowId]:
        """Rows numbered through, by part."""
        starts = self.offsets.tolist()
        return [(part := bisect_right(starts, row) - 1, row - starts[part]) for row in rows]

    def read(self, part: int) -> Iterator[pa.Table]:
        for batch in self.store.read(self.parts[part].rows_run):
            yield pa.Table.from_batches([batch])

    def read_keys(self, part: int) -> Iterator[pa.RecordBatch]:
        """Canonical columns: keys `k0`, `k1` …, and where a key could move the partitions `p0`, `p1` …"""
        return self.store.read(self.parts[part].keys_run)

    def all_keys(self) -> dict[str, pa.Array]:
        """The canonical columns of the whole source, in memory."""
        batches = [batch for number in range(len(self.parts)) for batch in self.read_keys(number)]
        table = pa.Table.from_batches(batches, batches[0].schema if batches else self.key_schema)
        return {name: arrays.one_array(table.column(name)) for name in table.column_names}

    @property
    def key_schema(self) -> pa.Schema:
        names = dict.fromkeys([*self.shape.keys, *self.shape.partitions])
        columns = schema.plain_schema(self.shape.schema.field(name) for name in names)
        return canonical_keys(columns.empty_table(), self.shape).schema

    def take(self, part: int, rows: Numbers) -> pa.Table:
        """Rows of a part by their numbers, in any order; only the batches that hold one are read."""
        starts = np.asarray(self.parts[part].rows_run.starts)
        if len(starts) == 1:
            (batch,) = self.store.read(self.parts[part].rows_run)
            return pa.Table.from_batches([batch]).take(pa.array(rows))
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        numbers = np.searchsorted(starts, ordered, side="right") - 1
        touched = np.unique(numbers).tolist()
        batches = self.store.read(self.parts[part].rows_run, touched)
        tables = [
            pa.Table.from_batches([batch]).take(pa.array(ordered[numbers == number] - starts[number]))
            for number, batch in zip(touched, batches, strict=True)
        ]
        if not tables:
            return schema.plain_schema(self.shape.schema).empty_table()
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_tables(tables).take(pa.array(back))

    def samples(self, rows: Sequence[RowId]) -> tuple[tuple[Any, ...], ...]:
        """Keys of some rows as they are shown in messages."""
        tables = [self.take(part, np.array([row])).select(self.shape.keys) for part, row in rows]
        if not tables:
            return ()
        table = pa.concat_tables(tables)
        return keys.sample([table.column(k) for k in self.shape.keys], range(len(tables)))


class PartWriter:
    """Rows in, parts out."""

    def __init__(self, store: Store, shape: Shape) -> None:
        self._store, self._shape = store, shape
        self._open: _OpenPart | None = None
        self._done: list[Part] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows that `schema.conform` brought to the shape."""
        for piece in pieces(rows):
            if self._open is None:
                self._open = _OpenPart(self._shape, self._store.writer("rows"), self._store.writer("keys"))
            self._open.write(piece)
            if self._open.rows.run.bytes >= PART_BYTES:
                self._end_part()

    def finish(self) -> tuple[Part, ...]:
        self._end_part()
        return tuple(self._done)

    def _end_part(self) -> None:
        if self._open is not None:
            self._done.append(self._open.close())
            self._open = None


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows cut up to what is comfortable to hold as one batch."""
    if rows.num_rows:
        count = max(1, min(BATCH_ROWS, rows.num_rows * BATCH_BYTES // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, count):
            yield rows.slice(start, count)


@dataclass
class _OpenPart:
    shape: Shape
    rows: RunWriter
    keys: RunWriter
    partitions: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.nulls = [0] * len(self.shape.keys)
        self.intervals: list[Intervals | None] = [[] for _ in self.shape.keys]

    def write(self, rows: pa.Table) -> None:
        self.rows.write(one_batch(rows))
        self.keys.write(canonical_keys(rows, self.shape))
        self.learn(rows)

    def learn(self, rows: pa.Table) -> None:
        for i, name in enumerate(self.shape.keys):
            self.nulls[i] += rows.column(name).null_count
            self.intervals[i] = merged([self.intervals[i], keys.intervals(rows.column(name))])
        self.partitions.update(_rows_by_partition(rows, self.shape))

    def close(self) -> Part:
        intervals = tuple(_bounded(cover) for cover in self.intervals)
        return Part(self.rows.finish(), self.keys.finish(), tuple(self.nulls), intervals, dict(self.partitions))


def held_part(store: LocalStore, shape: Shape, rows: pa.Table) -> Part:
    """A part that is a table in the shape, as somebody holds it anyway: nothing of it is copied or written out."""
    if rows.num_rows < rows.column(0).num_chunks * BATCH_ROWS // 8:
        rows = rows.combine_chunks()
    batches = rows.to_batches()
    key_batches = [canonical_keys(pa.Table.from_batches([batch]), shape) for batch in batches]
    part = _OpenPart(shape, _Held(store.hold("rows", batches)), _Held(store.hold("keys", key_batches)))
    part.learn(rows)
    return part.close()


@dataclass
class _Held:
    run: Run

    def write(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("what is held is whole")

    def finish(self) -> Run:
        return self.run


def canonical_keys(rows: pa.Table, shape: Shape) -> pa.RecordBatch:
    """Key columns `k0`, `k1` …, and where a key could move the partition columns `p0`, `p1` …"""
    compared = () if shape.partition_in_key else shape.partitions
    columns = {f"k{i}": keys.canonical(rows.column(name)) for i, name in enumerate(shape.keys)}
    columns |= {f"p{i}": keys.canonical(rows.column(name)) for i, name in enumerate(compared)}
    return pa.RecordBatch.from_pydict(columns or {"none": pa.nulls(rows.num_rows)})


def _rows_by_partition(rows: pa.Table, shape: Shape) -> dict[tuple[Any, ...], int]:
    """How many rows go to each partition, as comparable values."""
    if not shape.partitions:
        return {(): rows.num_rows} if rows.num_rows else {}
    codes, partitions = numbered_partitions(rows, shape)
    return dict(zip(partitions, np.bincount(codes).tolist(), strict=True))


def numbered_partitions(rows: pa.Table, shape: Shape) -> tuple[Numbers, list[tuple[Any, ...]]]:
    """A number per row, and the partition behind each number."""
    if not shape.partitions or not rows.num_rows:
        return np.zeros(rows.num_rows, dtype=np.int64), [()] if rows.num_rows else []
    codes, first = keys.group([keys.canonical(rows.column(p)) for p in shape.partitions])
    distinct = rows.select(shape.partitions).take(pa.array(first))
    return codes, list(zip(*(identities(column) for column in distinct.columns), strict=True))


def _bounded(cover: Intervals | None) -> Intervals | None:
    """What a task sends to the driver stays small, however long the keys are."""
    if not cover or not isinstance(cover[0][0], bytes):
        return cover
    longest = max(len(value) for interval in cover for value in interval)
    return merged([cover], max(1, INTERVAL_BYTES // (2 * longest + 8)))


def conformed(tables: Iterable[pa.Table], shape: Shape) -> Iterator[pa.Table]:
    """Tables gathered or cut up to a comfortable size, and brought to the shape."""
    waiting: list[pa.Table] = []
    for piece in (piece for table in tables for piece in pieces(table)):
        waiting.append(piece)
        if sum(t.num_rows for t in waiting) >= BATCH_ROWS or sum(t.nbytes for t in waiting) >= BATCH_BYTES:
            yield schema.conform(pa.concat_tables(waiting), shape)
            waiting = []
    if waiting:
        yield schema.conform(pa.concat_tables(waiting), shape)
