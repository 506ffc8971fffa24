"""The pinned source: parts of moderate size, each a file of rows and a file of canonical keys.

Rows stand in the shape's plain types, written by PyArrow, so Spark's type system never touches them. Row `n` of a
part is found by the offsets of its record batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.model import Shape
from fsspeckit.core.target.partitions import identities
from fsspeckit.core.values import keys, schema
from fsspeckit.core.values.ordering import Intervals, merged
from fsspeckit.datasets.spark.scratch import ArrowFile, Scratch, one_batch, unique

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
PART_BYTES = 128 << 20
INTERVAL_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class Part:
    """What the driver knows of a part: O(batches), never O(rows)."""

    name: str
    starts: tuple[int, ...]
    rows: int
    bytes: int
    key_bytes: int
    nulls: tuple[int, ...]
    intervals: tuple[Intervals | None, ...]
    partitions: frozenset[tuple[Any, ...]]


class PartWriter:
    """Rows in, parts out."""

    def __init__(self, scratch: Scratch, shape: Shape) -> None:
        self._scratch, self._shape = scratch, shape
        self._open: _OpenPart | None = None
        self._done: list[Part] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows that `schema.conform` brought to the shape."""
        for piece in _pieces(rows):
            if self._open is None:
                self._open = _OpenPart(self._scratch, self._shape)
            self._open.write(piece)
            if self._open.bytes >= PART_BYTES:
                self._end_part()

    def finish(self) -> list[Part]:
        self._end_part()
        return self._done

    def _end_part(self) -> None:
        if self._open is not None:
            self._done.append(self._open.close())
            self._open = None


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.num_rows:
        count = max(1, min(BATCH_ROWS, rows.num_rows * BATCH_BYTES // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, count):
            yield rows.slice(start, count)


@dataclass
class _OpenPart:
    scratch: Scratch
    shape: Shape
    name: str = field(default_factory=lambda: unique("pin"))
    starts: list[int] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    key_bytes: int = 0
    partitions: set[tuple[Any, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.nulls = [0] * len(self.shape.keys)
        self.intervals: list[Intervals | None] = [[] for _ in self.shape.keys]
        self._rows_file = self.scratch.writer(f"{self.name}.rows", schema.plain_schema(self.shape.schema))
        self._keys_file: ArrowFile | None = None

    def write(self, rows: pa.Table) -> None:
        self.starts.append(self.rows)
        self._rows_file.write(one_batch(rows))
        self._write_keys(rows)
        self._learn(rows)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes

    def _write_keys(self, rows: pa.Table) -> None:
        batch = canonical_keys(rows, self.shape)
        if self._keys_file is None:
            self._keys_file = self.scratch.writer(f"{self.name}.keys", batch.schema)
        self._keys_file.write(batch)
        self.key_bytes += batch.nbytes

    def _learn(self, rows: pa.Table) -> None:
        for i, name in enumerate(self.shape.keys):
            self.nulls[i] += rows.column(name).null_count
            self.intervals[i] = merged([self.intervals[i], keys.intervals(rows.column(name))])
        self.partitions |= distinct_partitions(rows, self.shape)

    def close(self) -> Part:
        self._rows_file.close()
        if self._keys_file is not None:
            self._keys_file.close()
        return Part(
            self.name,
            tuple(self.starts),
            self.rows,
            self.bytes,
            self.key_bytes,
            tuple(self.nulls),
            tuple(_bounded(found) for found in self.intervals),
            frozenset(self.partitions),
        )


def canonical_keys(rows: pa.Table, shape: Shape) -> pa.RecordBatch:
    """Key columns `k0`, `k1` …, and where a key could move the partition columns `p0`, `p1` …"""
    compared = () if shape.partition_in_key else shape.partitions
    columns = {f"k{i}": keys.canonical(rows.column(name)) for i, name in enumerate(shape.keys)}
    columns |= {f"p{i}": keys.canonical(rows.column(name)) for i, name in enumerate(compared)}
    if not columns:
        columns = {"none": pa.nulls(rows.num_rows)}
    return pa.RecordBatch.from_pydict(columns)


def distinct_partitions(rows: pa.Table, shape: Shape) -> set[tuple[Any, ...]]:
    """The partitions that rows go to, as comparable values."""
    if not shape.partitions:
        return set()
    _, first = keys.group([keys.canonical(rows.column(p)) for p in shape.partitions])
    return set(partition_values(rows.take(pa.array(first)), shape))


def partition_values(rows: pa.Table, shape: Shape) -> list[tuple[Any, ...]]:
    return list(zip(*(identities(rows.column(p)) for p in shape.partitions), strict=True))


def _bounded(found: Intervals | None) -> Intervals | None:
    """What every task sends to the driver stays small, however long the keys are."""
    if not found or not isinstance(found[0][0], bytes):
        return found
    longest = max(len(value) for interval in found for value in interval)
    return merged([found], max(1, INTERVAL_BYTES // (2 * longest + 8)))


def conformed(tables: Iterable[pa.Table], shape: Shape) -> Iterator[pa.Table]:
    """Small tables gathered into larger ones and brought to the shape."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(t.num_rows for t in waiting) >= BATCH_ROWS or sum(t.nbytes for t in waiting) >= BATCH_BYTES:
            yield schema.conform(pa.concat_tables(waiting), shape)
            waiting = []
    if waiting:
        yield schema.conform(pa.concat_tables(waiting), shape)


def read_rows(scratch: Scratch, part: Part) -> Iterator[pa.Table]:
    reader = scratch.reader(f"{part.name}.rows")
    for number in range(reader.num_record_batches):
        yield pa.Table.from_batches([reader.get_batch(number)])


def read_keys(scratch: Scratch, part: Part) -> Iterator[pa.RecordBatch]:
    reader = scratch.reader(f"{part.name}.keys")
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def all_keys(scratch: Scratch, parts: Sequence[Part]) -> pa.Table:
    """The keys of the whole source. Only for sources within Spark's broadcast threshold."""
    return pa.Table.from_batches([batch for part in parts for batch in read_keys(scratch, part)])


def take(scratch: Scratch, part: Part, rows: Any) -> pa.Table:
    """Rows of a part by ascending number; only the record batches that hold one are read."""
    reader = scratch.reader(f"{part.name}.rows")
    numbers = np.searchsorted(np.asarray(part.starts), rows, side="right") - 1
    tables = []
    for number in np.unique(numbers).tolist():
        inside = rows[numbers == number] - part.starts[number]
        tables.append(pa.Table.from_batches([reader.get_batch(number)]).take(pa.array(inside)))
    return pa.concat_tables(tables) if tables else reader.schema.empty_table()


def samples(scratch: Scratch, parts: Sequence[Part], shape: Shape, rows: Sequence[tuple[int, int]]) -> Any:
    """Keys of some rows, given by part and row, as they are shown in messages."""
    found = [take(scratch, parts[part], np.array([row])).select(shape.keys) for part, row in rows]
    if not found:
        return ()
    table = pa.concat_tables(found)
    return keys.sample([table.column(k) for k in shape.keys], range(len(found)))


def offsets(parts: Sequence[Part]) -> Any:
    """Where each part begins when the rows of all parts are numbered through."""
    return np.concatenate([[0], np.cumsum([part.rows for part in parts], dtype=np.int64)])


def locate_row(starts: Any, row: int) -> tuple[int, int]:
    part = bisect_right(starts.tolist(), row) - 1
    return part, row - int(starts[part])
