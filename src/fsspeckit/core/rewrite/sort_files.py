"""Sort the rows of a bin: which columns can be sorted by, whether rows are in order already, and sorted tables.

Rows that do not fit into memory are sorted in runs, which are written to files and merged. The order is that of Arrow:
nulls last, NaN before them. Rows with equal values keep their order.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Footer, Target
from fsspeckit.core.parquet.reader import read_row_group
from fsspeckit.core.rewrite.compaction import MAX_ROWS
from fsspeckit.core.rewrite.group_reader import open_group_file
from fsspeckit.core.rows.spool import Numbers
from fsspeckit.core.storage import Location
from fsspeckit.core.suggestions import did_you_mean
from fsspeckit.core.values import arrays

_RUN_BYTES = 128 << 20
# The rows of a run that are in memory while runs are merged.
_BLOCK_BYTES = 1 << 20


def check_sortable(target: Target, sort_by: Sequence[str]) -> None:
    assert target.schema is not None
    for name in sort_by:
        if name not in target.schema.names:
            hint = did_you_mean([name], target.schema.names)
            raise ArgumentError(f"sort_by names {name!r}, but the data set stores {target.schema.names}.{hint}")
        dtype = arrays.plain_type(target.schema.field(name).type)
        if t.is_nested(dtype) or t.is_null(dtype) or not _has_order(dtype):
            raise ArgumentError(f"Rows cannot be sorted by {name!r}, which is {dtype}. Choose another column.")


def _has_order(dtype: pa.DataType) -> bool:
    try:
        pc.sort_indices(pa.array([], dtype))
    except pa.ArrowNotImplementedError:
        return False
    return True


def rows_are_sorted(location: Location, sort_by: Sequence[str], files: Sequence[Footer]) -> bool:
    """Are the rows of these files, which have the same columns, in order, one file after the other? Reads the sort
    columns up to the first row that is not."""
    last: pa.Table | None = None
    sort_by = [name for name in sort_by if files and name in files[0].schema.names]
    for file in files:
        with open_group_file(location, file) as opened:
            for number in range(len(file.row_groups)):
                table = arrays.plain_table(read_row_group(location, file.path, opened.file, number, sort_by))
                if last is not None:
                    table = pa.concat_tables([last, table], promote_options="permissive")
                if not _is_sorted(table, sort_by):
                    return False
                last = table.slice(table.num_rows - 1) if table.num_rows else last
    return True


def _is_sorted(table: pa.Table, sort_by: Sequence[str]) -> bool:
    return bool((_order(table, sort_by) == np.arange(table.num_rows)).all())


def _order(table: pa.Table, sort_by: Sequence[str]) -> Numbers:
    """The rows in their order. Arrow's sort is stable."""
    keys = [(name, "ascending") for name in sort_by]
    order: Numbers = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
    return order


def sorted_tables(
    tables: Iterator[pa.Table], sort_by: Sequence[str], max_bytes: int, folder: str | None
) -> Generator[pa.Table, None, None]:
    """All rows in order, in tables of at most `MAX_ROWS` rows and about `max_bytes`. Runs are below `folder`."""
    with contextlib.ExitStack() as stack:
        runs = _Runs(stack, folder)
        waiting, size = list[pa.Table](), 0
        for table in tables:
            waiting.append(table)
            size += table.nbytes
            if size > _RUN_BYTES:
                runs.write(_sorted(waiting, sort_by))
                waiting, size = [], 0
        if not runs.files:
            yield from _row_groups(iter([_sorted(waiting, sort_by)] if waiting else []), max_bytes)
            return
        if waiting:
            runs.write(_sorted(waiting, sort_by))
        waiting = []
        yield from _row_groups(_merged([runs.read(file) for file in runs.files], sort_by), max_bytes)


def _sorted(tables: Sequence[pa.Table], sort_by: Sequence[str]) -> pa.Table:
    table = pa.concat_tables(tables)
    return table.take(pa.array(_order(table, sort_by)))


class _Runs:
    """Sorted runs in a temporary folder, which is made for the first one."""

    def __init__(self, stack: contextlib.ExitStack, folder: str | None) -> None:
        self._stack, self._parent, self._folder = stack, folder, ""
        self.files: list[str] = []

    def write(self, table: pa.Table) -> None:
        if not self._folder:
            self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sort-", dir=self._parent))
        path = os.path.join(self._folder, f"run-{len(self.files):05d}")
        rows = max(1, _BLOCK_BYTES * table.num_rows // max(1, table.nbytes))
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks(), max_chunksize=rows)
        self.files.append(path)

    def read(self, path: str) -> Iterator[pa.Table]:
        with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(number)])


@dataclass
class _Run:
    blocks: Iterator[pa.Table]
    rows: pa.Table | None


def _merged(runs: Sequence[Iterator[pa.Table]], sort_by: Sequence[str]) -> Iterator[pa.Table]:
    """Merge sorted runs: the rows up to the least last row of a block are final, since every block is in order."""
    open_runs = [_Run(blocks, next(blocks, None)) for blocks in runs]
    while open_runs := [run for run in open_runs if run.rows is not None]:
        heads = [run.rows for run in open_runs if run.rows is not None]
        table = pa.concat_tables(heads)
        order = _order(table, sort_by)
        ends = np.cumsum([head.num_rows for head in heads])
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        final = int(places[ends - 1].min()) + 1
        yield table.take(pa.array(order[:final]))
        taken = np.bincount(np.searchsorted(ends, order[:final], side="right"), minlength=len(heads))
        for run, head, count in zip(open_runs, heads, taken.tolist(), strict=True):
            run.rows = head.slice(count) if count < head.num_rows else next(run.blocks, None)


def _row_groups(tables: Iterator[pa.Table], max_bytes: int) -> Iterator[pa.Table]:
    """The same rows in tables of the size of a row group."""
    waiting: list[pa.Table] = []
    rows, size = 0, 0.0
    for table in tables:
        row_bytes = table.nbytes / max(1, table.num_rows)
        while table.num_rows:
            room = min(MAX_ROWS - rows, max(1, int((max_bytes - size) / max(1.0, row_bytes))))
            piece, table = table.slice(0, room), table.slice(room)
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + row_bytes * piece.num_rows
            if table.num_rows:
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0.0
    if waiting:
        yield pa.concat_tables(waiting)
