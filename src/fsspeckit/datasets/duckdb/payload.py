"""The source's rows, numbered, in a temporary table that spills; read back by ranges of row numbers only.

Whole rows never take part in a join or a sort of DuckDB's: with whole rows these ran out of memory at a 300 MB limit
(seen), while keys and row numbers sort in no space at all. Rows that must stand in another order are dealt into
buckets by `Arrangement`: every row is read once, written once and read once more, whatever the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.datasets.duckdb import transport
from fsspeckit.datasets.duckdb.workspace import Workspace

CHUNK_BYTES = 32 << 20
CHUNK_ROWS = 122_880  # a row group of DuckDB's
MAX_BUCKETS = 64


class Payload:
    """Rows in the shape's plain schema. Columns are `row`, then the wire columns `c0`, `c1`, …"""

    def __init__(self, workspace: Workspace, schema: pa.Schema) -> None:
        self._workspace = workspace
        self.schema = schema
        self.rows, self._bytes = 0, 0
        self.wire = transport.wire_schema(schema)
        self.table = workspace.create_like("payload", pa.schema([("row", pa.int64()), *self.wire]))

    def append(self, rows: pa.Table) -> None:
        wire = transport.encode_table(rows)
        numbers = pa.array(np.arange(self.rows, self.rows + rows.num_rows, dtype=np.int64))
        self._workspace.insert(self.table, wire.add_column(0, "row", numbers))
        self.rows += rows.num_rows
        self._bytes += wire.nbytes

    @property
    def chunk_rows(self) -> int:
        """How many rows make a chunk that is comfortable to hold."""
        width = max(1, self._bytes // max(1, self.rows))
        return max(1, min(CHUNK_ROWS, CHUNK_BYTES // width))

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Row numbers from and to, in order."""
        size = self.chunk_rows
        for start in range(0, self.rows, size):
            yield start, min(start + size, self.rows)

    def read(self, start: int, stop: int) -> pa.Table:
        """Wire columns of a range of rows, in order."""
        found = self._workspace.fetch(f"SELECT * FROM {self.table} WHERE row >= {start} AND row < {stop}")
        return sorted_by(found, "row").drop_columns(["row"])

    def pick(self, rows: list[int], names: tuple[str, ...]) -> pa.Table:
        """Some columns of a few rows, plain, in the order asked for."""
        numbers = [self.schema.get_field_index(name) for name in names]
        wanted = ", ".join(str(int(row)) for row in rows)
        columns = "".join(f", c{i}" for i in numbers)
        condition = f"row IN ({wanted})" if rows else "false"
        found = self._workspace.fetch(f"SELECT row{columns} FROM {self.table} WHERE {condition}")
        places = {row: place for place, row in enumerate(found.column("row").to_pylist())}
        ordered = found.drop_columns(["row"]).take(pa.array([places[row] for row in rows], pa.int64()))
        return transport.decode_table(ordered, pa.schema([self.schema.field(i) for i in numbers]))

    def column_chunks(self, names: tuple[str, ...]) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Row numbers and some columns, plain, chunk by chunk."""
        numbers = [self.schema.get_field_index(name) for name in names]
        schema = pa.schema([self.schema.field(i) for i in numbers])
        columns = "".join(f", c{i}" for i in numbers)
        for start, stop in self.chunks():
            found = self._workspace.fetch(
                f"SELECT row{columns} FROM {self.table} WHERE row >= {start} AND row < {stop}"
            )
            yield found.column("row"), transport.decode_table(found.drop_columns(["row"]), schema)

    def decode(self, wire: pa.Table) -> pa.Table:
        return transport.decode_table(wire, self.schema)


class Arrangement:
    """Payload rows in another order, readable by ranges of places.

    `moves` is a table of `row` (which payload row), `place` (0, 1, 2, … without gaps) and `mark` (a number that
    travels with the row). One row may go to many places.
    """

    def __init__(self, workspace: Workspace, payload: Payload, moves: str) -> None:
        self._workspace, self._payload, self._moves = workspace, payload, moves
        self.count = int(workspace.run(f"SELECT count(*) FROM {moves}")[0][0])
        self._size = max(payload.chunk_rows, -(-self.count // MAX_BUCKETS))
        self._columns = pa.schema([("place", pa.int64()), ("mark", pa.int64()), *payload.wire])
        self._buckets = [workspace.create_like("bucket", self._columns) for _ in range(0, self.count, self._size)]
        for start, stop in payload.chunks():
            self._deal(start, stop)

    def _deal(self, start: int, stop: int) -> None:
        moves = self._workspace.fetch(
            f"SELECT row - {start} AS row, place, mark FROM {self._moves} WHERE row >= {start} AND row < {stop}"
        )
        if not moves.num_rows:
            return
        moves = sorted_by(moves, "place")
        rows = self._payload.read(start, stop).take(moves.column("row"))
        rows = rows.add_column(0, "place", moves.column("place")).add_column(1, "mark", moves.column("mark"))
        for bucket, part in _parts(rows, self._size):
            self._workspace.insert(self._buckets[bucket], part)

    def read(self, start: int, stop: int) -> tuple[Any, pa.Table]:
        """Marks and plain rows of a range of places (not an empty one), in order."""
        buckets = self._buckets[start // self._size : -(-stop // self._size)]
        parts = [
            self._workspace.fetch(f"SELECT * FROM {name} WHERE place >= {start} AND place < {stop}") for name in buckets
        ]
        found = sorted_by(pa.concat_tables(parts), "place")
        marks = found.column("mark").to_numpy()
        return marks, self._payload.decode(found.drop_columns(["place", "mark"]))

    def chunks(self) -> Iterator[tuple[int, int]]:
        size = self._payload.chunk_rows
        for start in range(0, self.count, size):
            yield start, min(start + size, self.count)

    def drop(self) -> None:
        self._workspace.drop(*self._buckets, self._moves)


def _parts(rows: pa.Table, size: int) -> Iterator[tuple[int, pa.Table]]:
    """Rows sorted by place, cut at the borders of the buckets."""
    bucket = rows.column("place").to_numpy() // size
    borders = [0, *(np.flatnonzero(np.diff(bucket)) + 1).tolist(), len(bucket)]
    for start, stop in pairwise(borders):
        yield int(bucket[start]), rows.slice(start, stop - start)


def sorted_by(table: pa.Table, column: str) -> pa.Table:
    """DuckDB may hand rows over in any order, and mostly does in the right one."""
    values = table.column(column).to_numpy()
    if len(values) < 2 or bool((values[1:] >= values[:-1]).all()):
        return table
    return table.take(pc.sort_indices(table.column(column)))
