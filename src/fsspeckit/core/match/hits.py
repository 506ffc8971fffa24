"""Hits: pairs of a target row and a source row with the same key. They stay in the store; callers see counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.core.actions import Actions, HitAction
from fsspeckit.core.model import Match
from fsspeckit.core.rows.spool import Numbers, Spool, write_rows
from fsspeckit.core.rows.store import BatchFile, Store

HITS = pa.schema(
    [
        ("file", pa.int32()),
        ("row_group", pa.int32()),
        ("position", pa.int64()),
        ("action", pa.int8()),
        ("part", pa.int32()),
        ("row", pa.int64()),
    ]
)
"""`file` is the number of the scan, `action` a `HitAction`; `part` and `row` identify the source row."""


@dataclass(frozen=True, slots=True)
class HitFile:
    """A batch file of hits, and the files and parts that it may contain (`None`: any)."""

    batch_file: BatchFile
    files: frozenset[int] | None = None
    parts: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Hits:
    """All hits of a match; `files` gives the number of each scanned path."""

    store: Store
    hit_files: tuple[HitFile, ...]
    files: dict[str, int]

    def read(self, files: Collection[int] | None = None, parts: Collection[int] | None = None) -> pa.Table:
        """The hits of some files and some parts; `None` means all."""
        tables = [HITS.empty_table()]
        for hit_file in self.hit_files:
            if _may_hold(hit_file.files, files) and _may_hold(hit_file.parts, parts):
                table = pa.Table.from_batches(list(self.store.read(hit_file.batch_file)), HITS)
                tables.append(_only(_only(table, "file", files, hit_file.files), "part", parts, hit_file.parts))
        return pa.concat_tables(tables)


def _may_hold(held: frozenset[int] | None, wanted: Collection[int] | None) -> bool:
    return held is None or wanted is None or not held.isdisjoint(wanted)


def _only(hits: pa.Table, column: str, values: Collection[int] | None, held: frozenset[int] | None) -> pa.Table:
    if values is None or (held is not None and held <= set(values)):
        return hits
    return hits.filter(pa.array(np.isin(hits.column(column).to_numpy(), list(values))))


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The counts of a match, and its hits."""

    match: Match
    hits: Hits


def hit_batch(
    file: int | Numbers,
    row_group: int | Numbers,
    positions: Numbers,
    actions: Numbers,
    rows: Numbers,
    offsets: Numbers,
) -> pa.RecordBatch:
    """Hits, of one row group or of several; `rows` are source rows, counted over all parts."""
    part = np.searchsorted(offsets, rows, side="right") - 1
    columns = [np.full(len(rows), file), np.full(len(rows), row_group), positions, actions, part, rows - offsets[part]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, HITS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=HITS)


def write_hits(store: Store, batches: Iterable[pa.RecordBatch]) -> Iterator[HitFile]:
    """Write each batch of hits to a batch file of its own, so that `read` can skip it by its files and parts."""
    for batch in batches:
        if batch.num_rows:
            writer = store.writer("hits")
            writer.write(batch)
            files, parts = (_distinct(batch.column(name).to_numpy()) for name in ("file", "part"))
            yield HitFile(writer.finish(), files, parts)


def _distinct(numbers: Numbers) -> frozenset[int]:
    """Usually there is one value: check that first."""
    if (numbers == numbers[0]).all():
        return frozenset([int(numbers[0])])
    return frozenset(np.unique(numbers).tolist())


def changes_of_hits(spool: Spool, hits: pa.Table) -> pa.Table:
    """The file, row group, position and action of each hit, then the columns that its source row changes.

    Hits must be sorted by part. Only updates need the values of the source row; for others they are null. Columns are
    addressed by position: source columns may have any name.
    """
    parts, updates = hits.column("part").to_numpy(), hits.column("action").to_numpy() == HitAction.UPDATE
    assert bool((parts[:-1] <= parts[1:]).all()), "hits are sorted by part"
    tables = []
    for number in np.unique(parts).tolist():
        here, updated = hits, updates
        if len(spool.parts) > 1:
            here, updated = hits.filter(pa.array(parts == number)), updates[parts == number]
        rows = spool.take(number, here.column("row").to_numpy()[updated]).select(spool.shape.updated_columns)
        if not updated.all():
            rows = rows.take(pa.array(np.cumsum(updated) - 1, mask=~updated))
        tables.append(pa.table([*here.columns[:4], *rows.columns], names=[*HITS.names[:4], *rows.column_names]))
    return pa.concat_tables(tables)


def rows_to_insert(spool: Spool, hits: Hits | None, part: int, actions: Actions) -> Iterator[pa.Table]:
    """Rows of a part that go to new files: rows with a new key, and rows that move; without hits, all rows."""
    if hits is None:
        yield from (write_rows(table, spool.shape) for table in spool.read(part))
        return
    here = hits.read(parts=[part])
    rows, hit_actions = here.column("row").to_numpy(), here.column("action").to_numpy()
    inserted = np.full(spool.parts[part].rows, actions.inserts)
    inserted[rows] = False
    inserted[rows[hit_actions == HitAction.MOVE]] = True
    inserted[rows[(hit_actions == HitAction.UPDATE) | (hit_actions == HitAction.SKIP)]] = False
    start = 0
    for table in spool.read(part):
        mask = inserted[start : start + table.num_rows]
        start += table.num_rows
        if mask.any():
            chosen = write_rows(table if mask.all() else table.filter(pa.array(mask)), spool.shape)
            if chosen.num_rows:
                yield chosen
