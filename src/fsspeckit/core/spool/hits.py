"""Hits: which row of the target met which row of the source. Callers see counts, the hits stay in the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.core.model import Match
from fsspeckit.core.spool.parts import Numbers, Spool
from fsspeckit.core.spool.store import Run, Store

HITS = pa.schema(
    [
        ("file", pa.int32()),
        ("row_group", pa.int32()),
        ("position", pa.int64()),
        ("part", pa.int32()),
        ("row", pa.int64()),
    ]
)
"""`file` numbers the scans that were matched; `part` and `row` name the source row."""


@dataclass(frozen=True, slots=True)
class HitRun:
    """A run of hits, and the files and parts that it may speak of (`None`: any)."""

    run: Run
    files: frozenset[int] | None = None
    parts: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Hits:
    """All hits of a match; `files` are the numbers of the paths that were scanned."""

    store: Store
    runs: tuple[HitRun, ...]
    files: dict[str, int]

    def read(self, files: Collection[int] | None = None, parts: Collection[int] | None = None) -> pa.Table:
        """The hits of some files, or of some parts; whatever else a run holds is left out."""
        tables = [HITS.empty_table()]
        for run in self.runs:
            if _may_hold(run.files, files) and _may_hold(run.parts, parts):
                table = pa.Table.from_batches(list(self.store.read(run.run)), HITS)
                tables.append(_only(_only(table, "file", files, run.files), "part", parts, run.parts))
        return pa.concat_tables(tables)


def _may_hold(held: frozenset[int] | None, asked_for: Collection[int] | None) -> bool:
    return held is None or asked_for is None or not held.isdisjoint(asked_for)


def _only(hits: pa.Table, column: str, values: Collection[int] | None, held: frozenset[int] | None) -> pa.Table:
    if values is None or (held is not None and held <= set(values)):
        return hits
    return hits.filter(pa.array(np.isin(hits.column(column).to_numpy(), list(values))))


@dataclass(frozen=True, slots=True)
class Meeting:
    """What came of a match: the counts, and the hits behind them."""

    match: Match
    hits: Hits


def hit_batch(file: int, row_group: int, positions: Numbers, rows: Numbers, offsets: Numbers) -> pa.RecordBatch:
    """Hits of one row group; `rows` are source rows numbered through."""
    part = np.searchsorted(offsets, rows, side="right") - 1
    columns = [np.full(len(rows), file), np.full(len(rows), row_group), positions, part, rows - offsets[part]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, HITS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=HITS)


def write_hits(store: Store, batches: Iterable[pa.RecordBatch]) -> Iterator[HitRun]:
    """Batches of hits, each a run of its own, so that it is found by the files and parts in it."""
    for batch in batches:
        if batch.num_rows:
            writer = store.writer("hits")
            writer.write(batch)
            files, parts = (_distinct(batch.column(name).to_numpy()) for name in ("file", "part"))
            yield HitRun(writer.finish(), files, parts)


def _distinct(numbers: Numbers) -> frozenset[int]:
    """Mostly there is one only, which is told at once."""
    if (numbers == numbers[0]).all():
        return frozenset([int(numbers[0])])
    return frozenset(np.unique(numbers).tolist())


def replaced_rows(spool: Spool, hits: pa.Table) -> pa.Table:
    """For every hit, sorted by part, its file, row group and position, and the source row to put there; columns are
    told by place."""
    parts = hits.column("part").to_numpy()
    assert bool((parts[:-1] <= parts[1:]).all()), "rows come back part by part"
    tables = []
    for number in np.unique(parts).tolist():
        here = hits.filter(pa.array(parts == number)) if len(spool.parts) > 1 else hits
        rows = spool.take(number, here.column("row").to_numpy())
        names = [*HITS.names[:3], *rows.column_names]
        tables.append(pa.table([*here.columns[:3], *rows.columns], names=names))
    return pa.concat_tables(tables)


def new_rows(spool: Spool, hits: Hits | None, part: int) -> Iterator[pa.Table]:
    """Rows of a part that met no key of the target; without hits, all of them."""
    if hits is None:
        yield from spool.read(part)
        return
    is_new = np.ones(spool.parts[part].rows, dtype=bool)
    is_new[hits.read(parts=[part]).column("row").to_numpy()] = False
    start = 0
    for table in spool.read(part):
        mask = is_new[start : start + table.num_rows]
        start += table.num_rows
        if mask.any():
            yield table if mask.all() else table.filter(pa.array(mask))
