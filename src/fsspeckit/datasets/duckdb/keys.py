"""Match keys in DuckDB with MERGE, or with a join and an anti join.

Only keys and row numbers are loaded into the database. With whole rows, joins and sorts ran out of memory at a limit of
300 MB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.actions import Actions
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.match.hits import HITS, Hits, MatchResult, write_hits
from fsspeckit.core.match.key_index import Counts
from fsspeckit.core.match.key_reader import KeyBatch, read_keys
from fsspeckit.core.model import Match, Scan
from fsspeckit.core.parallel import prefetch_map
from fsspeckit.core.rows.spool import RowId, Spool
from fsspeckit.core.storage import Location
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


class SqlKeys:
    """`core.match.key_index.KeySet`: the canonical keys of the source in a temporary table, with their row numbers."""

    def __init__(self, workspace: Workspace, spool: Spool, native: bool) -> None:
        self._workspace, self._spool, self._native = workspace, spool, native
        self._columns = spool.key_schema
        self._keys = sql.listed("k", len(spool.shape.keys))
        self._partitions = [name for name in self._columns.names if name.startswith("p")]
        self._source = workspace.create_like("keys", self._columns.append(pa.field("row", pa.int64())))
        start = 0
        for table in _concatenated(_tables(spool)):
            numbers = pa.array(np.arange(start, start + table.num_rows, dtype=np.int64))
            workspace.insert(self._source, table.append_column("row", numbers))
            start += table.num_rows

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        by = ", ".join(self._keys)
        query = f"SELECT min(row) AS row FROM {self._source} GROUP BY {by} HAVING count(*) > 1"
        firsts = self._workspace.run(f"SELECT row, count(*) OVER () FROM ({query}) ORDER BY row ASC LIMIT 5")
        return (firsts[0][1] if firsts else 0), self._spool.row_ids([row for row, _ in firsts])

    def match(self, location: Location, scans: Sequence[Scan], actions: Actions) -> MatchResult:
        merge = self._merge_using_duckdb_merge if self._native else self._merge_using_union_all
        try:
            target = self._load(location, scans)
            rows, updated, inserted = merge(target, actions)
        except duckdb.Error as error:
            error.add_note(_files_note([location.show(scan.footer.path) for scan in scans]))
            raise
        if not actions.changes_matched:  # the statement did not return matched rows
            rows = sql.matched_rows(target, self._source, len(self._keys), len(self._partitions))
        paths = [scan.footer.path for scan in scans]
        counts = self._counts(rows, paths)
        if actions.changes_matched and sum(sum(groups.values()) for groups in counts.values()) != updated:
            raise DatasetMergeError(
                f"MERGE operation failed: {updated} rows were updated, but the positions say otherwise. "
                "This is a bug in fsspeckit; nothing was changed.",
                operation="match",
            )
        match = Match(counts, self._matched_keys(rows, inserted if actions.inserts else None), *self._moved(rows))
        hit_files = tuple(write_hits(self._spool.store, self._hits(rows)))
        return MatchResult(
            match, Hits(self._spool.store, hit_files, {path: number for number, path in enumerate(paths)})
        )

    def _load(self, location: Location, scans: Sequence[Scan]) -> str:
        """Load the scanned keys with their positions into a table, except rows with a null key, which match nothing."""
        shape, wanted = self._spool.shape, self._spool.all_keys() if self._spool.rows <= SMALL_SOURCE_ROWS else {}

        def read(item: tuple[int, Scan]) -> pa.Table:
            number, scan = item
            return pa.concat_tables([_positions(batch, number, wanted) for batch in read_keys(location, scan, shape)])

        positions = [("file_no", pa.int32()), ("row_group", pa.int32()), ("row_no", pa.int64())]
        columns = pa.schema([*self._columns, *positions, ("source_row", pa.int64())])
        target = self._workspace.create_like("target", columns)
        for table in _concatenated(prefetch_map(read, _split(scans), 2)):
            self._workspace.insert(target, table.select(columns.names))
        return target

    def _merge_using_duckdb_merge(self, target: str, actions: Actions) -> tuple[str, int, int]:
        """MERGE into the table of keys and positions. The counts are those of its RETURNING clause."""
        done: Counter[str] = Counter()
        start, size = 0, MERGE_ROWS
        while start < self._spool.rows:
            statement = sql.merge_statement(target, self._source, len(self._keys), actions, start, start + size)
            try:
                returned = self._workspace.fetch(statement).column(0)
            except duckdb.OutOfMemoryException:
                if size <= MIN_MERGE_ROWS:
                    raise
                size //= 4
                continue
            done.update({d["values"]: d["counts"] for d in pc.value_counts(returned).to_pylist()})
            start += size
        return sql.merged_rows(target, len(self._partitions)), done["UPDATE"], done["INSERT"]

    def _merge_using_union_all(self, target: str, actions: Actions) -> tuple[str, int, int]:
        query = sql.union_query(target, self._source, len(self._keys), len(self._partitions), actions)
        pairs = self._workspace.create("pairs", query)
        counts = self._workspace.run(f"SELECT count(file_no), count(*) - count(file_no) FROM {pairs}")
        updated, inserted = counts[0]
        return f"SELECT * FROM {pairs}", updated, inserted

    def _counts(self, rows: str, paths: Sequence[str]) -> Counts:
        counts: Counts = {}
        for file, group, count in self._workspace.run(
            f"SELECT file_no, row_group, count(*) FROM ({rows}) WHERE file_no IS NOT NULL "
            "GROUP BY file_no, row_group ORDER BY file_no ASC, row_group ASC"
        ):
            counts.setdefault(paths[file], {})[int(group)] = int(count)
        return counts

    def _matched_keys(self, rows: str, inserted: int | None) -> int:
        """The number of source rows whose key is in the target."""
        if inserted is not None:
            return self._spool.rows - inserted
        return int(self._workspace.run(f"SELECT count(DISTINCT source_row) FROM ({rows})")[0][0])

    def _moved(self, rows: str) -> tuple[int, tuple[tuple[Any, ...], ...]]:
        if not self._partitions:
            return 0, ()
        moved = sql.moved_rows(rows, self._source, len(self._partitions))
        firsts = self._workspace.run(f"SELECT row, count(*) OVER () FROM ({moved}) ORDER BY row ASC LIMIT 5")
        samples = self._spool.samples(self._spool.row_ids([row for row, _ in firsts]))
        return (int(firsts[0][1]) if firsts else 0), samples

    def _hits(self, rows: str) -> Iterator[pa.RecordBatch]:
        """Ordered by file, or by part of the source if the spool is read from disk."""
        order = "file_no, row_group, row_no" if self._spool.in_memory else "source_row"
        offsets = self._spool.offsets
        query = (
            f"SELECT file_no, row_group, row_no, source_row FROM ({rows}) WHERE file_no IS NOT NULL ORDER BY {order}"
        )
        for table in self._workspace.stream(query, CHUNK_ROWS):
            *position, source_rows = (column.to_numpy() for column in table.columns)
            part = np.searchsorted(offsets, source_rows, side="right") - 1
            columns = [*position, part, source_rows - offsets[part]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, HITS, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=HITS)


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


def _positions(batch: KeyBatch, number: int, wanted: Mapping[str, pa.Array]) -> pa.Table:
    """Keys with their positions, reduced column by column to values that are in `wanted`."""
    columns: dict[str, Any] = {f"k{i}": column for i, column in enumerate(batch.keys)}
    possible = np.ones(len(batch.keys[0]), dtype=bool)
    for name, column in columns.items():
        if name in wanted:
            possible &= pc.is_in(column, wanted[name], skip_nulls=True).to_numpy(zero_copy_only=False)
        elif column.null_count:
            possible &= column.is_valid().to_numpy(zero_copy_only=False)
    columns |= {f"p{i}": column for i, column in enumerate(batch.partitions)}
    rows = np.flatnonzero(possible)
    table = pa.table(columns)
    if len(rows) < len(possible):
        table = table.take(pa.array(rows))
    positions = {
        "file_no": pa.array(np.full(len(rows), number, dtype=np.int32)),
        "row_group": pa.array(np.full(len(rows), batch.row_group, dtype=np.int32)),
        "row_no": pa.array(rows),
        "source_row": pa.nulls(len(rows), pa.int64()),
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
