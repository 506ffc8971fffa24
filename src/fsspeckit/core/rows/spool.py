"""The spool: the source's rows in parts, each a batch file of rows and a batch file of their canonical keys.

Rows have the plain types of the shape. A row is identified by its part and its number in the part.
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
import pyarrow.compute as pc

from fsspeckit.core.dataset.partitions import identities
from fsspeckit.core.model import Shape
from fsspeckit.core.rows.store import BatchFile, BatchFileWriter, LocalStore, Store, one_batch
from fsspeckit.core.values import arrays, keys, schema
from fsspeckit.core.values.conform import conform
from fsspeckit.core.values.keys import Intervals, merge_intervals
from fsspeckit.core.values.unify import columns_to_retype

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
PART_BYTES = 128 << 20
INTERVAL_BYTES = 32 << 10

RowId = tuple[int, int]
"""A row of the source: its part, and its number in the part."""
Numbers = npt.NDArray[np.integer]
"""Rows, positions or buckets by number."""


@dataclass(frozen=True, slots=True)
class Part:
    """The metadata of a part: O(batches), never O(rows)."""

    rows_file: BatchFile
    keys_file: BatchFile
    nulls: tuple[int, ...]
    intervals: tuple[Intervals | None, ...]
    partitions: Mapping[tuple[Any, ...], int]
    """Rows to write, by partition; without partition columns all rows are in `()`."""
    columns_to_retype: frozenset[str] = frozenset()
    """The columns with a value that the type of one of the target's files cannot hold."""
    delete_rows: int = 0
    delete_partitions: frozenset[tuple[Any, ...]] = frozenset()
    """The partitions of delete rows, if the key has all partition columns."""
    null_sequences: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return self.rows_file.rows

    @property
    def bytes(self) -> int:
        return self.rows_file.bytes

    @property
    def key_bytes(self) -> int:
        return self.keys_file.bytes


@dataclass(frozen=True, slots=True)
class Spool:
    """The pinned source: every read gives the same rows, until the store is closed."""

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
    def columns_to_retype(self) -> frozenset[str]:
        """The columns with a value that the type of one of the target's files cannot hold."""
        return frozenset[str]().union(*(part.columns_to_retype for part in self.parts))

    @property
    def in_memory(self) -> bool:
        """Are all rows in the memory of this process? Then nothing has to be sent."""
        store = self.store
        return isinstance(store, LocalStore) and all(store.is_in_memory(part.rows_file) for part in self.parts)

    @property
    def of_one_process(self) -> bool:
        return isinstance(self.store, LocalStore)

    @property
    def offsets(self) -> Numbers:
        """The first row number of each part, counted over all parts, and the number of rows."""
        return np.concatenate([[0], np.cumsum([part.rows for part in self.parts], dtype=np.int64)])

    def row_ids(self, rows: Sequence[int]) -> list[RowId]:
        """Row numbers counted over all parts, as part and row."""
        starts = self.offsets.tolist()
        return [(part := bisect_right(starts, row) - 1, row - starts[part]) for row in rows]

    def read(self, part: int) -> Iterator[pa.Table]:
        for batch in self.store.read(self.parts[part].rows_file):
            yield pa.Table.from_batches([batch])

    def read_keys(self, part: int) -> Iterator[pa.RecordBatch]:
        """The columns of `canonical_keys`."""
        return self.store.read(self.parts[part].keys_file)

    def all_keys(self) -> dict[str, pa.Array]:
        """The canonical columns of all parts, in memory."""
        batches = [batch for number in range(len(self.parts)) for batch in self.read_keys(number)]
        table = pa.Table.from_batches(batches, batches[0].schema if batches else self.key_schema)
        return {name: arrays.one_array(table.column(name)) for name in table.column_names}

    @property
    def key_schema(self) -> pa.Schema:
        return canonical_keys(empty_rows(self.shape), self.shape).schema

    def take(self, part: int, rows: Numbers) -> pa.Table:
        """Rows of a part by their numbers, in any order; only the batches that hold one are read."""
        starts = np.asarray(self.parts[part].rows_file.starts)
        if len(starts) == 1:
            (batch,) = self.store.read(self.parts[part].rows_file)
            return pa.Table.from_batches([batch]).take(pa.array(rows))
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        numbers = np.searchsorted(starts, ordered, side="right") - 1
        touched = np.unique(numbers).tolist()
        batches = self.store.read(self.parts[part].rows_file, touched)
        tables = [
            pa.Table.from_batches([batch]).take(pa.array(ordered[numbers == number] - starts[number]))
            for number, batch in zip(touched, batches, strict=True)
        ]
        if not tables:
            return empty_rows(self.shape)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_tables(tables).take(pa.array(back))

    def samples(self, rows: Sequence[RowId]) -> tuple[tuple[Any, ...], ...]:
        """Keys of some rows for error messages."""
        tables = [self.take(part, np.array([row])).select(self.shape.keys) for part, row in rows]
        if not tables:
            return ()
        table = pa.concat_tables(tables)
        return keys.sample([table.column(k) for k in self.shape.keys], range(len(tables)))


class PartWriter:
    """Writes rows into parts of about `PART_BYTES`."""

    def __init__(self, store: Store, shape: Shape) -> None:
        self._store, self._shape = store, shape
        self._open: _OpenPart | None = None
        self._done: list[Part] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows that `values.conform` has cast to the shape."""
        for piece in pieces(rows):
            if self._open is None:
                self._open = _OpenPart(self._shape, self._store.writer("rows"), self._store.writer("keys"))
            self._open.write(piece)
            if self._open.rows.file.bytes >= PART_BYTES:
                self._end_part()

    def finish(self) -> tuple[Part, ...]:
        self._end_part()
        return tuple(self._done)

    def _end_part(self) -> None:
        if self._open is not None:
            self._done.append(self._open.close())
            self._open = None


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Slices of a table, each small enough for one batch."""
    if rows.num_rows:
        count = max(1, min(BATCH_ROWS, rows.num_rows * BATCH_BYTES // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, count):
            yield rows.slice(start, count)


@dataclass
class _OpenPart:
    shape: Shape
    rows: BatchFileWriter
    keys: BatchFileWriter
    partitions: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.nulls = [0] * len(self.shape.keys)
        self.intervals: list[Intervals | None] = [[] for _ in self.shape.keys]
        self.columns_to_retype: set[str] = set()
        self.delete_rows, self.delete_partitions = 0, set[tuple[Any, ...]]()
        self.null_sequences = [0] * len(self.shape.sequence)

    def write(self, rows: pa.Table) -> None:
        self.rows.write(one_batch(rows))
        self.keys.write(canonical_keys(rows, self.shape))
        self.add_metadata(rows)

    def add_metadata(self, rows: pa.Table) -> None:
        for i, name in enumerate(self.shape.keys):
            self.nulls[i] += rows.column(name).null_count
            self.intervals[i] = merge_intervals([self.intervals[i], keys.intervals(rows.column(name))])
        for i, name in enumerate(self.shape.sequence):
            self.null_sequences[i] += rows.column(name).null_count
        written, deletes = write_rows(rows, self.shape), self.shape.deletes
        self.partitions.update(_rows_by_partition(written, self.shape))
        if deletes is not None:
            self.delete_rows += rows.num_rows - written.num_rows
            if self.shape.partition_in_key:
                self.delete_partitions.update(_rows_by_partition(rows.filter(rows.column(deletes.flag)), self.shape))
        retyped, mixed = self.columns_to_retype, self.shape.mixed
        undecided = {name: mixed[name] for name in mixed if name not in retyped and name in rows.column_names}
        retyped |= columns_to_retype(rows.slice(0, 0) if self.shape.only_keys else written, undecided)

    def close(self) -> Part:
        intervals = tuple(_bounded(cover) for cover in self.intervals)
        return Part(
            self.rows.finish(),
            self.keys.finish(),
            tuple(self.nulls),
            intervals,
            dict(self.partitions),
            frozenset(self.columns_to_retype),
            self.delete_rows,
            frozenset(self.delete_partitions),
            tuple(self.null_sequences),
        )


def in_memory_part(store: LocalStore, shape: Shape, rows: pa.Table) -> Part:
    """A part over a table that the caller holds in memory: its rows are neither copied nor spilled."""
    if rows.num_rows < rows.column(0).num_chunks * BATCH_ROWS // 8:
        rows = rows.combine_chunks()
    batches = rows.to_batches()
    key_batches = [canonical_keys(pa.Table.from_batches([batch]), shape) for batch in batches]
    part = _OpenPart(
        shape,
        _WrittenBatches(store.add_in_memory("rows", batches)),
        _WrittenBatches(store.add_in_memory("keys", key_batches)),
    )
    part.add_metadata(rows)
    return part.close()


@dataclass
class _WrittenBatches:
    """A `BatchFileWriter` whose batches are in the store already."""

    file: BatchFile

    def write(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("all batches are written")

    def finish(self) -> BatchFile:
        return self.file


def canonical_keys(rows: pa.Table, shape: Shape) -> pa.RecordBatch:
    """Key columns `k0`, `k1` …; partition columns `p0`, `p1` … if a key could move; the sequence `q0`, `q1` … in a form
    that keeps its order; and `d` for delete rows."""
    columns = {f"k{i}": keys.canonical(rows.column(name)) for i, name in enumerate(shape.keys)}
    columns |= {f"p{i}": keys.canonical(rows.column(name)) for i, name in enumerate(shape.compared_partitions)}
    columns |= {f"q{i}": keys.ordered(rows.column(name)) for i, name in enumerate(shape.sequence)}
    if shape.deletes is not None:
        columns["d"] = arrays.one_array(rows.column(shape.deletes.flag))
    return pa.RecordBatch.from_pydict(columns or {"none": pa.nulls(rows.num_rows)})


def empty_rows(shape: Shape) -> pa.Table:
    """A table like those of the spool, without rows."""
    table = schema.plain_schema(shape.schema.field(name) for name in shape.source_columns).empty_table()
    return table if shape.deletes is None else table.append_column(shape.deletes.flag, pa.array([], pa.bool_()))


def write_rows(rows: pa.Table, shape: Shape) -> pa.Table:
    """The rows that are not delete rows."""
    if shape.deletes is None:
        return rows
    return rows.filter(pc.invert(rows.column(shape.deletes.flag)))


def _rows_by_partition(rows: pa.Table, shape: Shape) -> dict[tuple[Any, ...], int]:
    """Rows by partition; partitions are comparable values."""
    if not shape.partitions or not shape.source_has_partitions:
        return {(): rows.num_rows} if rows.num_rows else {}
    codes, partitions = numbered_partitions(rows, shape)
    return dict(zip(partitions, np.bincount(codes).tolist(), strict=True))


def numbered_partitions(rows: pa.Table, shape: Shape) -> tuple[Numbers, list[tuple[Any, ...]]]:
    """The partition number of each row, and the partition of each number."""
    if not shape.partitions or not rows.num_rows:
        return np.zeros(rows.num_rows, dtype=np.int64), [()] if rows.num_rows else []
    codes, first = keys.group([keys.canonical(rows.column(p)) for p in shape.partitions])
    distinct = rows.select(shape.partitions).take(pa.array(first))
    return codes, list(zip(*(identities(column) for column in distinct.columns), strict=True))


def _bounded(cover: Intervals | None) -> Intervals | None:
    """Fewer intervals if keys are long: tasks send them to the driver."""
    if not cover or not isinstance(cover[0][0], bytes):
        return cover
    longest = max(len(value) for interval in cover for value in interval)
    return merge_intervals([cover], max(1, INTERVAL_BYTES // (2 * longest + 8)))


def conformed(tables: Iterable[pa.Table], shape: Shape) -> Iterator[pa.Table]:
    """Tables joined or sliced to the size of a batch, and cast to the shape."""
    waiting: list[pa.Table] = []
    for piece in (piece for table in tables for piece in pieces(table)):
        waiting.append(piece)
        if sum(t.num_rows for t in waiting) >= BATCH_ROWS or sum(t.nbytes for t in waiting) >= BATCH_BYTES:
            yield conform(pa.concat_tables(waiting), shape)
            waiting = []
    if waiting:
        yield conform(pa.concat_tables(waiting), shape)
