"""Match keys in DuckDB with MERGE, or with a join and an anti join.

Only keys and row numbers are loaded into the database. With whole rows, joins and sorts ran out of memory at a limit of
300 MB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.actions import Actions, HitAction, MatchedRows
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.match.hits import MatchResult, hit_batch
from fsspeckit.core.match.key_index import GroupCounts, counted_keys, hits_of
from fsspeckit.core.match.key_reader import KeyBatch
from fsspeckit.core.model import Match, Scan
from fsspeckit.core.parallel import prefetch_map
from fsspeckit.core.progress import SILENT, Progress
from fsspeckit.core.rows.spool import RowId, Spool
from fsspeckit.core.storage import Location
from fsspeckit.core.values.keys import Lookup
from fsspeckit.datasets.duckdb import sql
from fsspeckit.datasets.duckdb.workspace import Workspace

CHUNK_ROWS = 122_880  # DuckDB's row group size
SCAN_ROWS = 1_000_000
MERGE_ROWS = 1_000_000
MIN_MERGE_ROWS = 10_000
# With a source of at most this many rows, only target keys that are in the source are loaded. Ten million took 320 MB.
SMALL_SOURCE_ROWS = 100_000
# Maximum number of files that the log line of a failed MERGE lists.
_LOGGED_FILES = 10


@dataclass(frozen=True, slots=True)
class _Merged:
    """A query of positions, source rows and actions; and by action, the rows that the statement counted.

    A row without a position has a new key. New keys are counted by `None`.
    """

    rows: str
    counts: Counter[int | None]


class SqlKeys:
    """`core.match.key_index.KeySet`: the canonical keys of the source in a temporary table, with their row numbers."""

    def __init__(
        self, workspace: Workspace, spool: Spool, actions: Actions, native: bool, progress: Progress = SILENT
    ) -> None:
        self._workspace, self._spool, self._actions, self._native = workspace, spool, actions, native
        self._progress = progress
        self._schema = spool.key_schema
        self._columns = sql.Columns.of(self._schema.names)
        self._decisions = sql.decisions(self._columns, actions)
        self._source = workspace.create_like("keys", self._schema.append(pa.field("row", pa.int64())))
        start = 0
        for table in _concatenated(_tables(spool)):
            numbers = pa.array(np.arange(start, start + table.num_rows, dtype=np.int64))
            workspace.insert(self._source, table.append_column("row", numbers))
            start += table.num_rows

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        by = ", ".join(self._columns.keys)
        query = f"SELECT min(row) AS row FROM {self._source} GROUP BY {by} HAVING count(*) > 1"
        firsts = self._workspace.run(f"SELECT row, count(*) OVER () FROM ({query}) ORDER BY row ASC LIMIT 5")
        return (firsts[0][1] if firsts else 0), self._spool.row_ids([row for row, _ in firsts])

    def match(self, location: Location, scans: Sequence[Scan]) -> MatchResult:
        merge = self._merge_using_duckdb_merge if self._native else self._merge_using_union_all
        try:
            target = self._load(location, scans)
            merged = merge(target)
        except duckdb.Error as error:
            error.add_note(_files_note([location.show(scan.footer.path) for scan in scans]))
            raise
        rows = merged.rows
        if not self._actions.changes_matched:  # the statement did not return matched rows
            rows = sql.matched_rows(target, self._source, self._columns, self._decisions)
        groups = self._groups(rows, scans, merged)
        match = Match(groups, self._matched_keys(rows, merged), *self._elsewhere(rows))
        return MatchResult(match, hits_of(self._spool, scans, self._hits(rows)))

    def _load(self, location: Location, scans: Sequence[Scan]) -> str:
        """Load the scanned keys with their positions into a table, except rows with a null key, which match nothing."""
        shape, wanted = self._spool.shape, dict[str, Lookup]()
        if self._spool.rows <= SMALL_SOURCE_ROWS:
            columns_of_source = self._spool.all_keys()
            wanted = {name: Lookup(columns_of_source[name]) for name in self._columns.keys}

        def read(item: tuple[int, Scan]) -> pa.Table:
            number, scan = item
            is_last = scan.row_groups[-1] == scans[number].row_groups[-1]
            batches = counted_keys(location, scan, shape, self._progress, files=int(is_last))
            return pa.concat_tables([_positions(batch, number, wanted) for batch in batches])

        columns = self._target_schema(self._columns.of_target, ("source_row", pa.int64()), ("action", pa.int8()))
        target = self._workspace.create_like("target", columns)
        for table in _concatenated(prefetch_map(read, _split(scans), 2)):
            self._workspace.insert(target, table.select(columns.names))
        return target

    def _target_schema(self, names: Sequence[str], *more: tuple[str, pa.DataType]) -> pa.Schema:
        positions = zip(sql.POSITION, (pa.int32(), pa.int32(), pa.int64()), strict=True)
        return pa.schema([*(self._schema.field(name) for name in names), *positions, *more])

    def _merge_using_duckdb_merge(self, target: str) -> _Merged:
        """MERGE into the table of keys and positions. The counts are those of its RETURNING clause.

        Deleted rows leave the table, so that their keys and positions are kept in another one.
        """
        counts: Counter[int | None] = Counter()
        kept = self._target_schema(self._columns.keys)
        deleted = self._workspace.create_like("deleted", kept) if self._deletes else None
        start, size = 0, MERGE_ROWS
        while start < self._spool.rows:
            statement = sql.merge_statement(target, self._source, self._columns, self._actions, start, start + size)
            try:
                returned = self._workspace.fetch(statement)
            except duckdb.OutOfMemoryException:
                if size <= MIN_MERGE_ROWS:
                    raise
                size //= 4
                continue
            counts.update(_counted(returned))
            if deleted is not None:
                removed = returned.filter(pc.equal(returned.column("merge_action"), "DELETE"))
                self._workspace.insert(deleted, removed.select(kept.names))
            start += size
        if deleted is not None:
            query = sql.matched_rows(deleted, self._source, self._columns, [(None, HitAction.DELETE)])
            deleted = self._workspace.create("deletes", query)
        return _Merged(sql.merged_rows(target, deleted), counts)

    @property
    def _deletes(self) -> bool:
        return any(action == HitAction.DELETE for _, action in self._decisions)

    def _merge_using_union_all(self, target: str) -> _Merged:
        pairs = self._workspace.create("pairs", sql.union_query(target, self._source, self._columns, self._actions))
        counts = self._workspace.run(f"SELECT action, count(*) FROM {pairs} GROUP BY action")
        return _Merged(f"SELECT * FROM {pairs}", Counter(dict(counts)))

    def _groups(self, rows: str, scans: Sequence[Scan], merged: _Merged) -> GroupCounts:
        """Matched rows by path and row group, checked against the counts of the statement."""
        by_group: dict[tuple[int, int], dict[int, int]] = {}
        totals: Counter[int] = Counter()
        for file, group, action, count in self._workspace.run(
            f"SELECT file_no, row_group, action, count(*) FROM ({rows}) WHERE file_no IS NOT NULL "
            "GROUP BY file_no, row_group, action ORDER BY file_no ASC, row_group ASC"
        ):
            by_group.setdefault((file, group), {})[action] = count
            totals[action] += count
        counted = Counter({action: count for action, count in merged.counts.items() if action is not None})
        if self._actions.changes_matched and counted != totals:
            raise DatasetMergeError(
                f"MERGE operation failed: it counted {_shown(counted)}, but the positions say {_shown(totals)}. "
                "This is a bug in fsspeckit; nothing was changed.",
                operation="match",
            )
        groups: GroupCounts = {}
        for (file, group), counts in by_group.items():
            groups.setdefault(scans[file].footer.path, {})[group] = MatchedRows.of(counts)
        return groups

    def _matched_keys(self, rows: str, merged: _Merged) -> int:
        """The number of source rows whose key is in the target, without delete rows."""
        if self._actions.inserts:
            return sum(part.rows - part.delete_rows for part in self._spool.parts) - merged.counts[None]
        return int(self._workspace.run(sql.matched_keys(rows, self._source, self._columns))[0][0])

    def _elsewhere(self, rows: str) -> tuple[int, tuple[tuple[Any, ...], ...], int]:
        """The source rows that would replace a row in another partition, samples, and how many of them move."""
        if not any(action == HitAction.MOVE for _, action in self._decisions):
            return 0, (), 0
        firsts = self._workspace.run(
            "SELECT row, count(*) OVER (), sum(CASE WHEN at_home THEN 0 ELSE 1 END) OVER () "
            f"FROM ({sql.rows_elsewhere(rows)}) ORDER BY row ASC LIMIT 5"
        )
        _, count, moved = firsts[0] if firsts else (0, 0, 0)
        samples = self._spool.samples(self._spool.row_ids([row for row, *_ in firsts]))
        return int(count), samples, int(moved)

    def _hits(self, rows: str) -> Iterator[pa.RecordBatch]:
        """Ordered by file, or by part of the source if the spool is read from disk."""
        order = "file_no ASC, row_group ASC, row_no ASC" if self._spool.in_memory else "source_row ASC"
        columns, offsets = ", ".join([*sql.POSITION, "action", "source_row"]), self._spool.offsets
        query = f"SELECT {columns} FROM ({rows}) WHERE file_no IS NOT NULL ORDER BY {order}"
        for table in self._workspace.stream(query, CHUNK_ROWS):
            file, group, position, action, source_rows = (column.to_numpy() for column in table.columns)
            yield hit_batch(file, group, position, action, source_rows, offsets)


def _counted(returned: pa.Table) -> Counter[int | None]:
    """The returned rows by action. Without a column `action` rows are updated in one way."""
    by = [name for name in ("merge_action", "action") if name in returned.column_names]
    counts: Counter[int | None] = Counter()
    for row in returned.group_by(by).aggregate([([], "count_all")]).to_pylist():
        done = {"INSERT": None, "DELETE": HitAction.DELETE, "UPDATE": row.get("action", HitAction.UPDATE)}
        counts[done[row["merge_action"]]] += row["count_all"]
    return counts


def _shown(counts: Mapping[int, int]) -> str:
    """
    >>> _shown({0: 2, 1: 1})
    'UPDATE: 2, DELETE: 1'
    """
    return ", ".join(f"{HitAction(action).name}: {count}" for action, count in counts.items())


def _files_note(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _LOGGED_FILES} more" if len(paths) > _LOGGED_FILES else ""
    return f"files={', '.join(paths[:_LOGGED_FILES])}{more}"


def _tables(spool: Spool) -> Iterator[pa.Table]:
    for part in range(len(spool.parts)):
        for batch in spool.read_keys(part):
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                yield pa.Table.from_batches([batch.slice(start, CHUNK_ROWS)])


def _split(scans: Sequence[Scan]) -> Iterator[tuple[int, Scan]]:
    """Scans with their file numbers, split into groups of about `SCAN_ROWS` rows to limit memory."""
    for number, scan in enumerate(scans):
        groups: list[int] = []
        for group in scan.row_groups:
            groups.append(group)
            if sum(scan.footer.row_groups[g].rows for g in groups) >= SCAN_ROWS:
                yield number, Scan(scan.footer, tuple(groups))
                groups = []
        if groups:
            yield number, Scan(scan.footer, tuple(groups))


def _positions(batch: KeyBatch, number: int, wanted: Mapping[str, Lookup]) -> pa.Table:
    """Keys with their positions, reduced column by column to values that are in `wanted`."""
    columns: dict[str, Any] = {f"k{i}": column for i, column in enumerate(batch.keys)}
    possible = np.ones(len(batch.keys[0]), dtype=bool)
    for name, column in columns.items():
        if name in wanted:
            possible &= wanted[name].find(column) >= 0
        elif column.null_count:
            possible &= column.is_valid().to_numpy(zero_copy_only=False)
    columns |= {f"p{i}": column for i, column in enumerate(batch.partitions)}
    columns |= {f"q{i}": column for i, column in enumerate(batch.sequence)}
    rows = np.flatnonzero(possible)
    table = pa.table(columns)
    if len(rows) < len(possible):
        table = table.take(pa.array(rows))
    positions = {
        "file_no": pa.array(np.full(len(rows), number, dtype=np.int32)),
        "row_group": pa.array(np.full(len(rows), batch.row_group, dtype=np.int32)),
        "row_no": pa.array(rows),
        "source_row": pa.nulls(len(rows), pa.int64()),
        "action": pa.nulls(len(rows), pa.int8()),
    }
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | positions)


def _concatenated(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate small tables, so that a thousand small files do not need a thousand statements."""
    pending: list[pa.Table] = []
    for table in tables:
        pending.append(table)
        if sum(t.num_rows for t in pending) >= CHUNK_ROWS:
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)
