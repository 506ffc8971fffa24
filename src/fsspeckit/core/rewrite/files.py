"""Rewrite files: bring the matched source rows to their files, and divide the work into tasks and threads."""

from __future__ import annotations

import heapq
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.core.actions import HitAction, MatchedRows
from fsspeckit.core.dataset.footers import open_planned
from fsspeckit.core.match.filter_scan import selected_rows
from fsspeckit.core.match.filters import RowFilter
from fsspeckit.core.match.hits import Hits, MatchResult, changes_of_hits
from fsspeckit.core.model import Footer, Rewritten, Shape
from fsspeckit.core.parallel import Pool
from fsspeckit.core.progress import FileMeter, Progress
from fsspeckit.core.rewrite.compare import Comparison, compare_file
from fsspeckit.core.rewrite.file import rewrite_file
from fsspeckit.core.rewrite.job import FileChanges, Job, RowGroupChange
from fsspeckit.core.rows.exchange import BUCKET_BYTES, Bucketed, Read, Runner, Step, Task, by_bucket
from fsspeckit.core.rows.spool import PART_BYTES, Numbers, Spool
from fsspeckit.core.rows.store import unique_name
from fsspeckit.core.storage import Location

FileResult = TypeVar("FileResult", Rewritten, Comparison)
_FileFunction = Callable[[Location, Shape, Job, FileChanges, Pool | None, FileMeter | None], FileResult]

RowGroupId = tuple[int, int]
"""The number of the file in the hits, and the number of the row group."""

# While a row group is rewritten, memory holds its old rows, its new rows, and the encoded columns.
_COPIES = 3
# Below this size one thread is done before a second one has started.
_PARALLEL_BYTES = 8 << 20
# Encoding the columns of a file with several threads costs more CPU time. It pays if otherwise one thread would work
# alone for at least this fraction of the file.
_ALONE_FRACTION = 1 / 4
_OWN_NAME = re.compile(r"\.fk[0-9a-f]{8}$")


def new_name(path: str, token: str | None = None) -> str:
    """`<stem>.fk<8 hex>.parquet`; an earlier `.fk…` part is replaced. `token` are the hexadecimal digits."""
    stem, dot, suffix = path.rpartition(".")
    return f"{_OWN_NAME.sub('', stem)}.fk{token or uuid.uuid4().hex[:8]}{dot}{suffix}"


def own_token(path: str) -> str | None:
    """The eight hexadecimal digits in a name that `new_name` made."""
    match = _OWN_NAME.search(path.rpartition(".")[0])
    return None if match is None else match[0][-8:]


def rewrite_files(
    runner: Runner, location: Location, shape: Shape, spool: Spool, matched: MatchResult, jobs: Sequence[Job]
) -> list[Rewritten]:
    """Merge the matched source rows into their files. Results have the order of the jobs."""
    return _with_changes("rewrite", rewrite_file, runner, location, shape, spool, matched, jobs)


def compare_files(
    runner: Runner, location: Location, shape: Shape, spool: Spool, matched: MatchResult, jobs: Sequence[Job]
) -> list[Comparison]:
    """What `rewrite_files` would do, in the order of the jobs."""
    return _with_changes("compare", compare_file, runner, location, shape, spool, matched, jobs)


def _with_changes(
    name: Literal["rewrite", "compare"],
    function: _FileFunction[FileResult],
    runner: Runner,
    location: Location,
    shape: Shape,
    spool: Spool,
    matched: MatchResult,
    jobs: Sequence[Job],
) -> list[FileResult]:
    """Call a function with each file and its changed rows. Results have the order of the jobs."""
    step = Step(name, len(jobs), sum(job.footer.info.size for job in jobs))
    order, threads, pool = jobs, dict[str, int](), runner.pool if spool.of_one_process else None
    if spool.of_one_process and step.bytes > _PARALLEL_BYTES:
        # The largest files first. Files of similar size keep their order.
        order = sorted(jobs, key=lambda job: -job.footer.info.size.bit_length())
        threads = _threads_per_file(runner.parallelism, order)
    tasks, buckets = _tasks(runner.parallelism, spool, matched, order)
    send = partial(_send, spool, matched.hits, buckets)
    receive = partial(_receive, function, location, shape, spool, buckets, pool or Pool(), threads, runner.progress)
    results = runner.exchange(step, spool, send, receive, tasks)
    by_path = {result.path: result for task_results in results for result in task_results}
    return [by_path[job.footer.path] for job in jobs]


def _threads_per_file(parallelism: int, jobs: Sequence[Job]) -> dict[str, int]:
    """The number of threads for the last files, during which other threads would be idle.

    Each thread takes the next file when it is done with one, and the time for a file is its size.
    """
    busy_until, ends = [0] * parallelism, dict[str, int]()
    for job in jobs:
        ends[job.footer.path] = busy_until[0] + job.footer.info.size
        heapq.heapreplace(busy_until, ends[job.footer.path])
    sizes = {job.footer.path: job.footer.info.size for job in jobs}
    shared = [path for path, end in ends.items() if end - busy_until[0] > sizes[path] * _ALONE_FRACTION]
    return dict.fromkeys(shared, parallelism // max(1, len(shared)))


FileJobs = tuple[tuple[int, Job], ...]
"""Files that one task rewrites, with their numbers in the hits."""


def _tasks(
    parallelism: int, spool: Spool, matched: MatchResult, jobs: Sequence[Job]
) -> tuple[list[Task[FileJobs]], dict[RowGroupId, int]]:
    """Files for each task. A bucket has the new rows of consecutive row groups, about `BUCKET_BYTES` of them."""
    row_bytes = spool.bytes // max(1, spool.rows)
    tasks, buckets, bucket = [], {}, 0
    for batch in _file_batches(parallelism, matched.hits, jobs, shrinking=spool.of_one_process):
        first, new_bytes = bucket, 0
        for number, job in batch:
            for group in job.changed_groups if job.row_filter is None else ():
                if group in job.deleted_groups:
                    continue
                rows = matched.match.groups.get(job.footer.path, {}).get(group, MatchedRows())
                group_bytes = max(1, row_bytes * rows.total)
                if new_bytes and new_bytes + group_bytes > BUCKET_BYTES:
                    bucket, new_bytes = bucket + 1, 0
                buckets[number, group] = bucket
                new_bytes += group_bytes
        bucket += bool(new_bytes)
        largest = max((group.bytes for _, job in batch for group in job.footer.row_groups), default=0)
        size = sum(job.footer.info.size for _, job in batch)
        tasks.append(Task(batch, range(first, bucket), size, _COPIES * largest))
    return tasks, buckets


def _file_batches(parallelism: int, hits: Hits, jobs: Sequence[Job], *, shrinking: bool) -> Iterator[FileJobs]:
    """Small files in batches, at least four batches for each thread.

    `shrinking` batches let all threads finish at about the same time. Batches of equal size are better where each task
    has to fetch its rows.
    """
    remaining = sum(job.footer.info.size for job in jobs)
    batch: list[tuple[int, Job]] = []
    size = 0
    for job in jobs:
        if batch and size + job.footer.info.size > remaining // (4 * parallelism):
            yield tuple(batch)
            remaining -= size if shrinking else 0
            batch, size = [], 0
        batch.append((hits.files.get(job.footer.path, -1), job))
        size += job.footer.info.size
    if batch:
        yield tuple(batch)


# -- tasks: `_send` runs where the rows are, `_receive` where files are rewritten


def _send(
    spool: Spool, hits: Hits, buckets: Mapping[RowGroupId, int], parts: Sequence[int], only: range | None
) -> Bucketed:
    """The matched rows of these parts, by the bucket of the row group that they go to."""
    files = {file for (file, _), bucket in buckets.items() if only is None or bucket in only}
    matched = hits.read(files, parts)
    if len(parts) > 1:  # `replaced_rows` returns rows in the order of the parts
        matched = matched.sort_by("part")
    file_of, group_of = (matched.column(name).to_numpy().astype(np.int64) for name in ("file", "row_group"))
    codes, index = np.unique(file_of << 32 | group_of, return_inverse=True)
    bucket_of = np.array([buckets.get((code >> 32, code & 0xFFFFFFFF), -1) for code in codes.tolist()], dtype=np.int64)
    row_buckets = bucket_of[index]
    wanted = row_buckets >= 0 if only is None else (row_buckets >= only.start) & (row_buckets < only.stop)
    matched, row_buckets = matched.filter(pa.array(wanted)), row_buckets[wanted]
    count = max(1, PART_BYTES * spool.rows // max(1, spool.bytes))  # one source row may replace many
    for start in range(0, len(row_buckets), count):
        rows = changes_of_hits(spool, matched.slice(start, count))
        yield from by_bucket(rows, row_buckets[start : start + count])


def _receive(
    function: _FileFunction[FileResult],
    location: Location,
    shape: Shape,
    spool: Spool,
    buckets: Mapping[RowGroupId, int],
    pool: Pool,
    threads: Mapping[str, int],
    progress: Progress,
    jobs: FileJobs,
    read: Read,
) -> list[FileResult]:
    """Rewrite or compare the files of a task. Several threads of the pool encode the columns of those in `threads`."""
    received, results = _ReceivedRows(buckets, read), list[FileResult]()
    for number, job in jobs:
        if not spool.of_one_process:  # Spark may run a task again, or twice at the same time
            job = replace(job, staged=unique_name(job.staged))
        file_pool = pool.part(threads.get(job.footer.path, 1))
        changes: FileChanges = FileRows(received, number, job)
        if job.row_filter is not None:
            changes = FilterChanges(location, job.footer, job.row_filter)
        meter = progress.meter(job.footer.info.size)
        results.append(function(location, shape, job, changes, file_pool, meter))
        meter.finish()
    return results


@dataclass(frozen=True, slots=True)
class _GroupHits:
    """The hits of one row group in the order of their positions, with the new values of updated rows."""

    positions: Numbers
    actions: Numbers
    rows: pa.Table

    def change(self, missing_from: int | None) -> RowGroupChange:
        """The change of a row group; of `missing_from` rows in all, those without a hit are deleted too."""
        updated = self.actions == HitAction.UPDATE
        deleted = (self.actions == HitAction.DELETE) | (self.actions == HitAction.MOVE)
        if missing_from is not None:
            removed = np.ones(missing_from, dtype=bool)
            removed[self.positions[~deleted]] = False
            removed_positions = np.flatnonzero(removed)
        else:
            removed_positions = self.positions[deleted]
        rows = self.rows if updated.all() else self.rows.filter(pa.array(updated))
        return RowGroupChange(self.positions[updated], rows, removed_positions)


@dataclass
class _ReceivedRows:
    """Hits by row group. The last bucket is kept, as its row groups are rewritten one after the other."""

    buckets: Mapping[RowGroupId, int]
    read: Read
    bucket: int = -1
    hits: dict[RowGroupId, _GroupHits] = field(default_factory=dict)

    def group(self, row_group: RowGroupId) -> _GroupHits:
        if self.buckets[row_group] != self.bucket:
            self.hits.clear()  # before the next bucket is read, to free the memory
            self.bucket = self.buckets[row_group]
            table = self.read(self.bucket)
            assert table is not None, "a changed row group has hits"
            self.hits = _by_row_group(table)
        return self.hits[row_group]


def _by_row_group(table: pa.Table) -> dict[RowGroupId, _GroupHits]:
    """The hits of a bucket by row group, in the order of their positions."""
    files, groups, positions, actions = (table.column(i).to_numpy() for i in range(4))
    order = np.lexsort((positions, groups, files))
    rows = table.select(range(4, table.num_columns))
    if not (order == np.arange(len(order))).all():
        rows, actions = rows.take(pa.array(order)), actions[order]
        files, groups, positions = files[order], groups[order], positions[order]
    borders = np.flatnonzero((np.diff(files) != 0) | (np.diff(groups) != 0)) + 1
    return {
        (int(files[start]), int(groups[start])): _GroupHits(
            positions[start:end], actions[start:end], rows.slice(start, end - start)
        )
        for start, end in pairwise([0, *borders.tolist(), len(order)])
    }


@dataclass(frozen=True, slots=True)
class FileRows:
    """`job.FileChanges` of one file: hits update and delete rows."""

    received: _ReceivedRows
    file: int
    job: Job

    def row_group(self, group: int) -> RowGroupChange:
        rows = self.job.footer.row_groups[group].rows if self.job.delete_missing else None
        return self.received.group((self.file, group)).change(rows)


@dataclass(slots=True)
class FilterChanges:
    """`job.FileChanges` of one file: the rows that a filter selects are deleted.

    The filter's columns of a row group are read again when it is rewritten.
    """

    location: Location
    footer: Footer
    row_filter: RowFilter

    def row_group(self, group: int) -> RowGroupChange:
        self.location.expect(self.footer.info)
        with open_planned(self.location, self.footer) as file:
            deleted = selected_rows(self.location, self.footer, file, group, self.row_filter)
            if self.footer.metadata is None:  # parsed once, and not for each row group
                self.footer = replace(self.footer, metadata=file.metadata)
        return RowGroupChange(np.zeros(0, dtype=np.int64), pa.table({}), deleted)
