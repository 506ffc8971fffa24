"""Target keys into DuckDB, and the statement that decides: MERGE, or a join and an anti join."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.model import Match, MergeStrategy, Scan
from fsspeckit.core.parallel import ahead
from fsspeckit.core.plan.confirm import KeyBatch, read_keys
from fsspeckit.core.storage import Location
from fsspeckit.datasets.duckdb import sql
from fsspeckit.datasets.duckdb.payload import CHUNK_ROWS
from fsspeckit.datasets.duckdb.source import Found, PinnedSource

SCAN_ROWS = 1_000_000
MERGE_ROWS = 1_000_000
LEAST_MERGE_ROWS = 10_000


@dataclass(frozen=True)
class Matcher:
    """One match of a source with the row groups of a target."""

    source: PinnedSource
    strategy: MergeStrategy
    native: bool

    @property
    def _keys(self) -> int:
        return len(self.source.shape.keys)

    @property
    def _compared(self) -> int:
        """Partition columns that tell whether a key would move; when they are part of the key it cannot."""
        return 0 if self.source.shape.partition_in_key else len(self.source.shape.partitions)

    def match(self, location: Location, scans: Sequence[Scan]) -> Match:
        target = self._load(location, scans)
        merge = self._merge_using_duckdb_merge if self.native else self._merge_using_union_all
        query, updated, inserted = merge(target)
        groups = self._groups(target, query)
        if self.strategy.updates and sum(count for *_, count in groups) != updated:
            raise DatasetMergeError(
                f"MERGE operation failed: {updated} rows were updated, but the positions say otherwise. "
                "This is a bug in fsspeckit; nothing was changed.",
                operation="match",
            )
        paths = tuple(scan.footer.path for scan in scans)
        self.source.found[:] = [Found(query, paths, groups)]
        return Match(_by_path(paths, groups), self._met(query, inserted), *self._moved(query))

    def _load(self, location: Location, scans: Sequence[Scan]) -> str:
        """The scanned keys with their positions, in a table; rows with a null key match nothing and stay out."""
        shape = self.source.shape

        def read(item: tuple[int, Scan]) -> pa.Table:
            number, scan = item
            parts = [_positions(batch, number) for batch in read_keys(location, scan, shape)]
            return pa.concat_tables(parts)

        name = self.source.workspace.create_like("target", _target_schema(self.source, self._compared))
        for table in _gathered(ahead(read, _split(scans), min(4, os.cpu_count() or 1))):
            self.source.workspace.insert(name, table)
        return name

    def _merge_using_duckdb_merge(self, target: str) -> tuple[str, int, int]:
        """MERGE into the table of keys and positions; the counts are what RETURNING says was done."""
        actions: Counter[str] = Counter()
        start, size = 0, MERGE_ROWS
        while start < self.source.payload.rows:
            statement = sql.merge_statement(target, self.source.keys, self._keys, self.strategy, start, start + size)
            try:
                returned = self.source.workspace.fetch(statement).column(0)
            except duckdb.OutOfMemoryException:
                if size <= LEAST_MERGE_ROWS:
                    raise
                size //= 4
                continue
            actions.update({d["values"]: d["counts"] for d in pc.value_counts(returned).to_pylist()})
            start += size
        return sql.merged_rows(target, self._compared), actions["UPDATE"], actions["INSERT"]

    def _merge_using_union_all(self, target: str) -> tuple[str, int, int]:
        query = sql.union_query(target, self.source.keys, self._keys, self._compared, self.strategy)
        found = self.source.workspace.create("found", query)
        counts = self.source.workspace.run(f"SELECT count(file_no), count(*) - count(file_no) FROM {found}")
        updated, inserted = counts[0]
        return f"SELECT * FROM {found}", updated, inserted

    def _groups(self, target: str, query: str) -> tuple[tuple[int, int, int], ...]:
        """Matched rows by file number and row group, in order."""
        rows = query if self.strategy.updates else sql.existing_rows(target, self.source.keys, self._keys)
        found = self.source.workspace.run(
            f"SELECT file_no, row_group, count(*) FROM ({rows}) WHERE file_no IS NOT NULL "
            "GROUP BY file_no, row_group ORDER BY file_no ASC, row_group ASC"
        )
        return tuple((int(f), int(g), int(n)) for f, g, n in found)

    def _met(self, query: str, inserted: int) -> int:
        """How many source rows have a key that the target has."""
        counted = f"SELECT count(DISTINCT source_row) FROM ({query})"
        if self.strategy.inserts:
            counted = f"SELECT count(*) - {inserted} FROM {self.source.keys}"
        return int(self.source.workspace.run(counted)[0][0])

    def _moved(self, query: str) -> tuple[int, tuple[tuple[Any, ...], ...]]:
        if not self._compared or not self.strategy.updates:
            return 0, ()
        moved = sql.moved_rows(query, self.source.keys, self._compared)
        found = self.source.workspace.run(f"SELECT row, count(*) OVER () FROM ({moved}) ORDER BY place ASC LIMIT 5")
        return (int(found[0][1]) if found else 0), self.source.samples([row for row, _ in found])


def _split(scans: Sequence[Scan]) -> Iterator[tuple[int, Scan]]:
    """Scans by file number, cut so that the keys of one are comfortable to hold."""
    for number, scan in enumerate(scans):
        part: list[int] = []
        for group in scan.row_groups:
            part.append(group)
            if sum(scan.footer.row_groups[g].rows for g in part) >= SCAN_ROWS:
                yield number, Scan(scan.footer, tuple(part))
                part = []
        if part:
            yield number, Scan(scan.footer, tuple(part))


def _positions(batch: KeyBatch, number: int) -> pa.Table:
    rows = len(batch.keys[0])
    columns: dict[str, Any] = {f"k{i}": column for i, column in enumerate(batch.keys)}
    columns |= {f"p{i}": column for i, column in enumerate(batch.partitions)}
    columns["file_no"] = pa.array(np.full(rows, number, dtype=np.int32))
    columns["row_group"] = pa.array(np.full(rows, batch.row_group, dtype=np.int32))
    columns["row_no"] = pa.array(np.arange(rows, dtype=np.int64))
    columns["source_row"] = pa.nulls(rows, pa.int64())
    table = pa.table(columns)
    for i, column in enumerate(batch.keys):
        if column.null_count:
            table = table.filter(table.column(f"k{i}").is_valid())
    return table


def _target_schema(source: PinnedSource, compared: int) -> pa.Schema:
    names = [*sql.listed("k", len(source.shape.keys)), *sql.listed("p", compared)]
    positions = [("file_no", pa.int32()), ("row_group", pa.int32()), ("row_no", pa.int64()), ("source_row", pa.int64())]
    own = source.key_schema
    return pa.schema([*(own.field(n) for n in names), *positions])


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Small tables put together: a thousand small files are not a thousand statements."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(t.num_rows for t in waiting) >= CHUNK_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _by_path(paths: Sequence[str], groups: Sequence[tuple[int, int, int]]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for number, group, count in groups:
        found.setdefault(paths[number], {})[group] = count
    return found
