"""The pinned source: its rows in `Payload`, its keys in a narrow table of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.model import Shape
from fsspeckit.core.values import keys, ordering, schema
from fsspeckit.datasets.duckdb.payload import CHUNK_BYTES, CHUNK_ROWS, Payload
from fsspeckit.datasets.duckdb.workspace import Workspace


@dataclass(frozen=True)
class Found:
    """What `match` remembers: a query of (file_no, row_group, row_no, source_row), and matched rows by row group."""

    query: str
    files: tuple[str, ...]
    groups: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class PinnedSource:
    """`keys` has `k0…`, `p0…`, `o0…` (where canonical keys do not sort as values do), `row` and `place`.

    `row` numbers the payload; `place` is where the row stands in the source. They differ once the source is reduced
    to one row per key: the row that stays takes the place of the key's first one.
    """

    workspace: Workspace
    shape: Shape
    payload: Payload
    keys: str
    reduced: bool = False
    found: list[Found] = field(default_factory=list)

    @classmethod
    def new(cls, workspace: Workspace, shape: Shape) -> PinnedSource:
        payload = Payload(workspace, schema.plain_schema(shape.schema))
        empty = key_table(payload.schema.empty_table(), shape, 0)
        return cls(workspace, shape, payload, workspace.create_like("keys", empty.schema))

    def append(self, rows: pa.Table) -> None:
        """Rows in the shape's plain schema."""
        self.workspace.insert(self.keys, key_table(rows, self.shape, self.payload.rows))
        self.payload.append(rows)

    def with_keys(self, table: str) -> PinnedSource:
        return replace(self, keys=table, reduced=True, found=[])

    @property
    def key_schema(self) -> pa.Schema:
        """Of the key table, as Arrow has it; a query of it may come in other types."""
        return key_table(self.payload.schema.empty_table(), self.shape, 0).schema

    def order_column(self, number: int) -> str:
        """The column that sorts as key number so and so does."""
        kind = self.payload.schema.field(self.shape.keys[number]).type
        return f"k{number}" if ordering.keeps_order(kind) else f"o{number}"

    def samples(self, rows: Sequence[int]) -> tuple[tuple[Any, ...], ...]:
        shown = self.payload.pick(list(rows), self.shape.keys)
        return keys.sample(shown.columns, range(len(rows)))


def key_table(rows: pa.Table, shape: Shape, first: int) -> pa.Table:
    """Canonical keys and partitions of some rows, numbered from `first`."""
    columns: dict[str, Any] = {f"k{i}": keys.canonical(rows.column(n)) for i, n in enumerate(shape.keys)}
    columns |= {f"p{i}": keys.canonical(rows.column(n)) for i, n in enumerate(shape.partitions)}
    for i, name in enumerate(shape.keys):
        if not ordering.keeps_order(rows.schema.field(name).type):
            columns[f"o{i}"] = ordering.order_key(rows.column(name))
    numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return pa.table({**columns, "row": numbers, "place": numbers})


def portions(batches: Iterable[pa.RecordBatch], columns: pa.Schema) -> Iterator[pa.Table]:
    """Record batches put together or cut up to a comfortable size."""
    waiting: list[pa.RecordBatch] = []
    rows, size = 0, 0
    for batch in batches:
        for piece in _pieces(batch):
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield pa.Table.from_batches(waiting, columns)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, columns)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    width = max(1, batch.nbytes // max(1, batch.num_rows))
    step = max(1, min(CHUNK_ROWS, CHUNK_BYTES // width))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
