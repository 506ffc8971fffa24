"""PyArrow's primitives: the source is a table in memory, the target is streamed by threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.model import FileInfo, Footer, Match, Profile, Replace, Rewritten, Scan, Shape, Staged
from fsspeckit.core.plan import validate
from fsspeckit.core.plan.confirm import read_keys
from fsspeckit.core.rewrite.kernel import Job, rewrite_file
from fsspeckit.core.rewrite.sink import NewFiles
from fsspeckit.core.storage import Location
from fsspeckit.core.target.footers import read_footers
from fsspeckit.core.target.partitions import identities
from fsspeckit.core.values import arrays, keys, schema
from fsspeckit.core.values.equality import identical_rows
from fsspeckit.datasets.sources import to_table

Item = TypeVar("Item")
Result = TypeVar("Result")

# Decoded row groups that may be in memory at once, whatever the number of cores.
MEMORY_BOUND = 1 << 30


@dataclass
class PinnedTable:
    """The source in the target's types; `found[path][row group]` are positions and the source rows that go there."""

    table: pa.Table
    shape: Shape
    found: dict[str, dict[int, tuple[Any, Any]]] = field(default_factory=dict)

    @cached_property
    def index(self) -> keys.KeyIndex:
        return keys.KeyIndex([keys.canonical(self.table.column(k)) for k in self.shape.keys])

    def canonical_partitions(self) -> list[pa.Array]:
        return [keys.canonical(self.table.column(p)) for p in self.shape.partitions]

    def samples(self, rows: Sequence[int]) -> tuple[tuple[Any, ...], ...]:
        return keys.sample([self.table.column(k) for k in self.shape.keys], rows)


class PyArrowEngine:
    """See `core.engine.Engine`."""

    name = "pyarrow"
    replace: Replace = "in_place"
    partition_timezone = "UTC"
    ignores_case = False
    wants_scratch = False

    def __init__(self, filesystem: Any = None, threads: int | None = None) -> None:
        self._filesystem = filesystem
        self._threads = threads or min(8, os.cpu_count() or 1)

    def open(self, source: Any) -> pa.Table:
        return to_table(source, self._filesystem)

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> list[Footer]:
        return read_footers(location, files, columns)

    def pin(self, opened: pa.Table, shape: Shape, scratch: Location | None) -> PinnedTable:
        return PinnedTable(schema.conform(opened, shape), shape)

    def release(self, source: PinnedTable) -> None:
        source.found.clear()

    def profile(self, source: PinnedTable) -> Profile:
        table, shape = source.table, source.shape
        nulls = {k: table.column(k).null_count for k in shape.keys}
        count, rows = (0, []) if any(nulls.values()) or not table.num_rows else source.index.duplicates()
        return Profile(
            rows=table.num_rows,
            null_keys=nulls,
            duplicate_keys=count,
            duplicate_samples=source.samples(rows),
            partitions=_partitions(source),
            intervals={k: keys.intervals(table.column(k)) for k in shape.keys},
        )

    def deduplicate(self, source: PinnedTable, order_by: Sequence[str]) -> PinnedTable:
        table, ties = deduplicated(source, order_by)
        validate.no_differing_duplicates(len(ties), source.samples(ties[:5]), source.shape.keys, order_by)
        return PinnedTable(table, source.shape)

    def match(self, location: Location, source: PinnedTable, scans: Sequence[Scan]) -> Match:
        met = np.zeros(source.table.num_rows, dtype=bool)
        moved = np.zeros(source.table.num_rows, dtype=bool)
        ours = [] if source.shape.partition_in_key else source.canonical_partitions()

        def search(scan: Scan) -> tuple[str, dict[int, tuple[Any, Any]]]:
            hits = {}
            for batch in read_keys(location, scan, source.shape):
                rows = source.index.find(batch.keys)
                positions = np.flatnonzero(rows >= 0)
                if len(positions):
                    hits[batch.row_group] = (positions, rows[positions])
                    met[rows[positions]] = True
                    for mine, theirs in zip(ours, batch.partitions, strict=True):
                        there = keys.differ(mine.take(pa.array(rows[positions])), theirs.take(pa.array(positions)))
                        moved[rows[positions][there]] = True
            return scan.footer.path, hits

        source.found = dict(self._map(search, scans, lambda scan: max(_sizes(scan.footer, scan.row_groups), default=0)))
        counts = {path: {g: len(p) for g, (p, _) in hits.items()} for path, hits in source.found.items() if hits}
        gone = np.flatnonzero(moved)
        return Match(counts, int(met.sum()), len(gone), source.samples(gone[:5].tolist()))

    def rewrite(self, location: Location, source: PinnedTable, jobs: Sequence[Job]) -> list[Rewritten]:
        def one(job: Job) -> Rewritten:
            rows = TableRows(source.table, source.found.get(job.footer.path, {}))
            return rewrite_file(location, source.shape, job, rows)

        return self._map(
            one, jobs, lambda job: 3 * max(_sizes(job.footer, range(len(job.footer.row_groups))), default=0)
        )

    def insert(
        self, location: Location, source: PinnedTable, files: NewFiles, rows: Literal["new", "all"]
    ) -> list[Staged]:
        table = source.table
        if rows == "new":
            new = np.ones(table.num_rows, dtype=bool)
            for hits in source.found.values():
                for _, found in hits.values():
                    new[found] = False
            table = table.filter(pa.array(new))
        return files.write(location, [table])

    def _map(
        self, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        """Run over items by as many threads as keep the decoded row groups within the memory bound."""
        if not items:
            return []
        heaviest = max(map(weight, items)) or 1
        workers = max(1, min(self._threads, len(items), MEMORY_BOUND // heaviest))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(function, items))


@dataclass(frozen=True, slots=True)
class TableRows:
    """`kernel.Replacements` out of a table, by row number."""

    table: pa.Table
    found: dict[int, tuple[Any, Any]]

    def rows(self, row_group: int) -> tuple[Any, pa.Table]:
        positions, rows = self.found[row_group]
        return positions, self.table.take(pa.array(rows))


def _sizes(footer: Footer, groups: Iterable[int]) -> list[int]:
    return [footer.row_groups[g].bytes for g in groups]


def _partitions(source: PinnedTable) -> frozenset[tuple[Any, ...]]:
    if not source.shape.partitions or not source.table.num_rows:
        return frozenset()
    _, first = keys.group(source.canonical_partitions())
    distinct = source.table.select(source.shape.partitions).take(pa.array(first))
    return frozenset(zip(*(identities(column) for column in distinct.columns), strict=True))


def deduplicated(source: PinnedTable, order_by: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """One row per key, at the place of the key's first row; and a row of every key that cannot be decided.

    The greatest row by `order_by` wins (null is least, NaN greatest). Rows that tie must be identical.
    """
    table, codes = source.table, source.index.groups()
    best = _greatest(table, codes, order_by)
    winner = best[codes]
    tied = np.ones(table.num_rows, dtype=bool)
    for name in order_by:
        column = keys.canonical(table.column(name))
        tied &= ~keys.differ(column, column.take(pa.array(winner)))
    rows = np.flatnonzero(tied & (winner != np.arange(table.num_rows)))
    _, first = np.unique(codes, return_index=True)
    return table.take(pa.array(best[codes[np.sort(first)]])), _differing(table, rows, winner[rows])


def _greatest(table: pa.Table, codes: Any, order_by: Sequence[str]) -> Any:
    """The row of every key that sorts last by `order_by`; among ties, the first in the source."""
    ranks = [rank for name in order_by for rank in _ranks(table.column(name))]
    order = np.lexsort([-np.arange(len(codes)), *reversed(ranks), codes])
    last = np.flatnonzero(np.diff(codes[order], append=-1))
    return order[last]


def _ranks(column: pa.ChunkedArray) -> list[Any]:
    """Numbers that sort as the column does, null least and NaN greatest."""
    array = arrays.one_array(column)
    nan = np.zeros(len(array), dtype=bool)
    if pa.types.is_floating(array.type):
        array = array.cast(pa.float64())
        nan = pc.is_nan(array).fill_null(False).to_numpy(zero_copy_only=False)
    ranks = pc.rank(keys.sortable(array), sort_keys="ascending", tiebreaker="dense").to_numpy()
    return [nan, np.where(array.is_valid().to_numpy(zero_copy_only=False), ranks, 0)]


def _differing(table: pa.Table, rows: Any, winners: Any) -> list[int]:
    """The winners that are not identical to every row they tie with."""
    losers, kept = (table.take(pa.array(r)) for r in (rows, winners))
    if identical_rows(losers, kept):
        return []
    wrong = [i for i in range(len(rows)) if not identical_rows(losers.slice(i, 1), kept.slice(i, 1))]
    return list(dict.fromkeys(winners[wrong].tolist()))
