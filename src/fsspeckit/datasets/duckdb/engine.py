"""DuckDB's primitives: joins, aggregates and spilling are DuckDB's, files are the core's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.core.model import (
    FileInfo,
    Footer,
    Match,
    MergeStrategy,
    Profile,
    Replace,
    Rewritten,
    Scan,
    Shape,
    Staged,
)
from fsspeckit.core.parallel import ahead
from fsspeckit.core.rewrite.kernel import Job, rewrite_file
from fsspeckit.core.rewrite.sink import NewFiles
from fsspeckit.core.storage import Location
from fsspeckit.core.target.footers import read_footers
from fsspeckit.core.values import schema
from fsspeckit.datasets.duckdb import dedup
from fsspeckit.datasets.duckdb.match import Matcher
from fsspeckit.datasets.duckdb.opening import Opened, open_source
from fsspeckit.datasets.duckdb.payload import Arrangement, sorted_by
from fsspeckit.datasets.duckdb.profile import profile_source
from fsspeckit.datasets.duckdb.source import PinnedSource, portions
from fsspeckit.datasets.duckdb.sql import listed, numbered
from fsspeckit.datasets.duckdb.workspace import Workspace

# Decoded row groups that may be in memory at once, beside what DuckDB is allowed.
MEMORY_BOUND = 256 << 20


class DuckDBEngine:
    """See `core.engine.Engine`. One for each call: it owns a cursor, and everything goes when that is closed."""

    name = "duckdb"
    replace: Replace = "in_place"
    partition_timezone = "UTC"
    ignores_case = False
    wants_scratch = False

    def __init__(self, connection: Any, filesystem: Any, strategy: MergeStrategy, native: bool) -> None:
        self._connection, self._filesystem = connection, filesystem
        self._strategy, self._native = strategy, native
        self._workspace = Workspace(connection)
        self._held = ExitStack()
        self._held.callback(self._workspace.close)

    def close(self) -> None:
        self._held.close()

    def open(self, source: Any) -> Opened:
        opened = open_source(source, self._connection, self._filesystem)
        self._held.callback(opened.close)
        return opened

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> list[Footer]:
        return read_footers(location, files, columns)

    def pin(self, opened: Opened, shape: Shape, scratch: Location | None) -> PinnedSource:
        source = PinnedSource.new(self._workspace, shape)
        for table in portions(opened.batches(), opened.schema):
            source.append(schema.conform(table, shape))
        opened.close()
        return source

    def release(self, source: PinnedSource) -> None:
        """Nothing to do: `close` follows at once, and a statement that fails here would hide why the merge did."""

    def profile(self, source: PinnedSource) -> Profile:
        return profile_source(source)

    def deduplicate(self, source: PinnedSource, order_by: Sequence[str]) -> PinnedSource:
        return dedup.deduplicated(source, order_by)

    def match(self, location: Location, source: PinnedSource, scans: Sequence[Scan]) -> Match:
        return Matcher(source, self._strategy, self._native).match(location, scans)

    def rewrite(self, location: Location, source: PinnedSource, jobs: Sequence[Job]) -> list[Rewritten]:
        rows = _MatchedRows.of(source) if any(job.touched for job in jobs) else None

        def one(job: Job) -> Rewritten:
            return rewrite_file(location, source.shape, job, FileRows(rows, job.footer.path))

        heaviest = max((6 * group.bytes for job in jobs for group in job.footer.row_groups), default=0)
        workers = max(1, min(4, os.cpu_count() or 1, MEMORY_BOUND // max(1, heaviest)))
        done = list(ahead(one, jobs, workers))
        if rows is not None:
            rows.arrangement.drop()
        return done

    def insert(
        self, location: Location, source: PinnedSource, files: NewFiles, rows: Literal["new", "all"]
    ) -> list[Staged]:
        query = f"SELECT * FROM {source.keys}"
        if rows == "new":
            query += f" WHERE row IN (SELECT source_row FROM ({source.found[0].query}) WHERE file_no IS NULL)"
        in_order = not source.shape.partitions and not source.reduced
        return files.write(location, _stored(source, query) if in_order else _arranged(source, query))


def _stored(source: PinnedSource, query: str) -> Iterator[pa.Table]:
    """The wanted rows as they lie in the payload."""
    wanted = source.workspace.create("wanted", f"SELECT row FROM ({query}) ORDER BY row ASC")
    for start, stop in source.payload.chunks():
        rows = source.workspace.fetch(
            f"SELECT row - {start} AS row FROM {wanted} WHERE row >= {start} AND row < {stop}"
        )
        if rows.num_rows:
            chunk = source.payload.read(start, stop)
            if rows.num_rows < chunk.num_rows:
                chunk = chunk.take(sorted_by(rows, "row").column("row"))
            yield source.payload.decode(chunk)
    source.workspace.drop(wanted)


def _arranged(source: PinnedSource, query: str) -> Iterator[pa.Table]:
    """The wanted rows, those of one partition together."""
    order = [*listed("p", len(source.shape.partitions)), "place"]
    arrangement = Arrangement(
        source.workspace, source.payload, source.workspace.create("moves", numbered(query, order))
    )
    for start, stop in arrangement.chunks():
        yield arrangement.read(start, stop)[1]
    arrangement.drop()


@dataclass(frozen=True)
class _MatchedRows:
    """The source rows that replace rows of the target, in the order of their positions there."""

    arrangement: Arrangement
    ranges: dict[tuple[str, int], tuple[int, int]]

    @classmethod
    def of(cls, source: PinnedSource) -> _MatchedRows:
        found = source.found[0]
        query = f"SELECT source_row AS row, file_no, row_group, row_no FROM ({found.query}) WHERE file_no IS NOT NULL"
        moves = source.workspace.create("moves", numbered(query, ["file_no", "row_group", "row_no"], "row_no"))
        ranges, start = {}, 0
        for number, group, count in found.groups:
            ranges[found.files[number], group] = (start, start + count)
            start += count
        return cls(Arrangement(source.workspace, source.payload, moves), ranges)


class FileRows:
    """`kernel.Replacements` of one file. The kernel asks for a row group several times in a row."""

    def __init__(self, rows: _MatchedRows | None, path: str) -> None:
        self._rows, self._path = rows, path
        self._last: tuple[int, tuple[Any, pa.Table]] | None = None

    def rows(self, row_group: int) -> tuple[Any, pa.Table]:
        if self._last is None or self._last[0] != row_group:
            assert self._rows is not None, "a touched row group has matched rows"
            self._last = (row_group, self._rows.arrangement.read(*self._rows.ranges[self._path, row_group]))
        return self._last[1]
