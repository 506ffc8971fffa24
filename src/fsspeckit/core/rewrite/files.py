"""The files that are rewritten, each with the source rows that replace rows of it."""

from __future__ import annotations

import heapq
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.match.hits import Hits, replaced_rows
from fsspeckit.core.model import Match, Rewritten, Shape
from fsspeckit.core.parallel import Pool
from fsspeckit.core.rewrite.file import rewrite_file
from fsspeckit.core.rewrite.job import Job, RowGroupChange
from fsspeckit.core.rows.exchange import BUCKET_BYTES, Bucketed, Read, Runner, Step, Task, by_bucket
from fsspeckit.core.rows.spool import PART_BYTES, Spool
from fsspeckit.core.rows.store import unique_name
from fsspeckit.core.storage import Location

Place = tuple[int, int]
"""A row group: the number of its file in the hits, and its own."""

# A row group lies in memory as it was, as it becomes, and encoded.
_COPIES = 3
# Less is written by one thread before another has started.
_LARGE = 8 << 20
# Columns of a file that are dealt out take more time in all: it is worth while if one is alone for one part in so many.
_MUCH = 4
_OWN_NAME = re.compile(r"\.fk[0-9a-f]{8}$")


def new_name(path: str) -> str:
    """`<stem>.fk<8 hex>.parquet`; an earlier `.fk…` part is replaced."""
    stem, dot, suffix = path.rpartition(".")
    return f"{_OWN_NAME.sub('', stem)}.fk{uuid.uuid4().hex[:8]}{dot}{suffix}"


def rewrite_files(
    runner: Runner, location: Location, shape: Shape, spool: Spool, hits: Hits, match: Match, jobs: Sequence[Job]
) -> list[Rewritten]:
    """Merge the matched source rows into their files of that shape; the outcomes come in the order of the jobs."""
    step = Step("rewrite", len(jobs), sum(job.footer.info.size for job in jobs))
    order, threads, pool = jobs, dict[str, int](), runner.pool if spool.of_one_process else None
    if spool.of_one_process and step.bytes > _LARGE:
        order = sorted(jobs, key=lambda job: -job.footer.info.size.bit_length())  # alike, in their order
        threads = _shared(runner.parallelism, order)
    tasks, buckets = _tasks(runner.parallelism, spool, hits, match, order)
    send, receive = (
        partial(_send, spool, hits, buckets),
        partial(_receive, location, shape, spool, buckets, pool or Pool(), threads),
    )
    rewritten = runner.exchange(step, spool, send, receive, tasks)
    outcomes = {outcome.path: outcome for some in rewritten for outcome in some}
    return [outcomes[job.footer.path] for job in jobs]


def _shared(parallelism: int, jobs: Sequence[Job]) -> dict[str, int]:
    """The files during much of which threads would have nothing else to do, if each took the next file whenever it is
    done with one; and how many threads go through such a file."""
    busy_until, ends = [0] * parallelism, dict[str, int]()
    for job in jobs:
        ends[job.footer.path] = busy_until[0] + job.footer.info.size
        heapq.heapreplace(busy_until, ends[job.footer.path])
    sizes = {job.footer.path: job.footer.info.size for job in jobs}
    shared = [path for path, end in ends.items() if (end - busy_until[0]) * _MUCH > sizes[path]]
    return dict.fromkeys(shared, parallelism // max(1, len(shared)))


FileJobs = tuple[tuple[int, Job], ...]
"""Files to rewrite one after the other, with their numbers in the hits."""


def _tasks(
    parallelism: int, spool: Spool, hits: Hits, match: Match, jobs: Sequence[Job]
) -> tuple[list[Task[FileJobs]], dict[Place, int]]:
    """Some files for each task; its buckets are runs of touched row groups whose new rows are comfortable to hold."""
    row_bytes = spool.bytes // max(1, spool.rows)
    tasks, buckets, bucket = [], {}, 0
    for gathered in _gathered(parallelism, hits, jobs, dwindling=spool.of_one_process):
        first, new_bytes = bucket, 0
        for number, job in gathered:
            for group in job.touched:
                group_bytes = max(1, row_bytes * match.rows[job.footer.path][group])
                if new_bytes and new_bytes + group_bytes > BUCKET_BYTES:
                    bucket, new_bytes = bucket + 1, 0
                buckets[number, group] = bucket
                new_bytes += group_bytes
        bucket += bool(new_bytes)
        heaviest = max((group.bytes for _, job in gathered for group in job.footer.row_groups), default=0)
        size = sum(job.footer.info.size for _, job in gathered)
        tasks.append(Task(gathered, range(first, bucket), size, _COPIES * heaviest))
    return tasks, buckets


def _gathered(parallelism: int, hits: Hits, jobs: Sequence[Job], *, dwindling: bool) -> Iterator[FileJobs]:
    """Small files are gathered as long as everybody has enough to do: `dwindling`, so that all threads end together,
    or alike, where every task has to read its rows from afar."""
    left = sum(job.footer.info.size for job in jobs)
    waiting: list[tuple[int, Job]] = []
    size = 0
    for job in jobs:
        if waiting and size + job.footer.info.size > left // (4 * parallelism):
            yield tuple(waiting)
            left -= size if dwindling else 0
            waiting, size = [], 0
        waiting.append((hits.files.get(job.footer.path, -1), job))
        size += job.footer.info.size
    if waiting:
        yield tuple(waiting)


# -- what runs where the rows are, and where the files are


def _send(spool: Spool, hits: Hits, buckets: Mapping[Place, int], parts: Sequence[int], only: range | None) -> Bucketed:
    """The rows of some parts that replace others, bucketed by the row group they go to."""
    files = {file for (file, _), bucket in buckets.items() if only is None or bucket in only}
    matched = hits.read(files, parts)
    if len(parts) > 1:  # the order in which `replaced_rows` gives them
        matched = matched.sort_by("part")
    file_of, group_of = (matched.column(name).to_numpy().astype(np.int64) for name in ("file", "row_group"))
    codes, index = np.unique(file_of << 32 | group_of, return_inverse=True)
    bucket_of = np.array([buckets.get((code >> 32, code & 0xFFFFFFFF), -1) for code in codes.tolist()], dtype=np.int64)
    row_buckets = bucket_of[index]
    wanted = row_buckets >= 0 if only is None else (row_buckets >= only.start) & (row_buckets < only.stop)
    matched, row_buckets = matched.filter(pa.array(wanted)), row_buckets[wanted]
    count = max(1, PART_BYTES * spool.rows // max(1, spool.bytes))  # a row may replace many
    for start in range(0, len(row_buckets), count):
        rows = replaced_rows(spool, matched.slice(start, count))
        yield from by_bucket(rows, row_buckets[start : start + count])


def _receive(
    location: Location,
    shape: Shape,
    spool: Spool,
    buckets: Mapping[Place, int],
    pool: Pool,
    threads: Mapping[str, int],
    jobs: FileJobs,
    read: Read,
) -> list[Rewritten]:
    """`threads` are for files whose columns several threads of the pool encode."""
    arrived, done = _Arrived(buckets, read), []
    for number, job in jobs:
        if not spool.of_one_process:  # a task may be tried again, or twice at once
            job = replace(job, staged=unique_name(job.staged))
        for_columns = pool.part(threads.get(job.footer.path, 1))
        done.append(rewrite_file(location, shape, job, FileRows(arrived, number), for_columns))
    return done


@dataclass
class _Arrived:
    """New rows by row group. The last bucket is kept: its row groups are asked for one after the other."""

    buckets: Mapping[Place, int]
    read: Read
    bucket: int = -1
    groups: dict[Place, tuple[Any, pa.Table]] = field(default_factory=dict)

    def rows(self, place: Place) -> tuple[Any, pa.Table]:
        if self.buckets[place] != self.bucket:
            self.groups.clear()
            self.bucket = self.buckets[place]
            table = self.read(self.bucket)
            assert table is not None, "a touched row group has new rows"
            self.groups = _by_place(table)
        return self.groups[place]


def _by_place(table: pa.Table) -> dict[Place, tuple[Any, pa.Table]]:
    """Positions and rows of each row group, in order."""
    files, groups, positions = (table.column(i).to_numpy() for i in range(3))
    order = np.lexsort((positions, groups, files))
    rows = table.select(range(3, table.num_columns))
    if not (order == np.arange(len(order))).all():
        rows, files, groups, positions = rows.take(pa.array(order)), files[order], groups[order], positions[order]
    borders = np.flatnonzero((np.diff(files) != 0) | (np.diff(groups) != 0)) + 1
    return {
        (int(files[start]), int(groups[start])): (positions[start:end], rows.slice(start, end - start))
        for start, end in pairwise([0, *borders.tolist(), len(order)])
    }


@dataclass(frozen=True, slots=True)
class FileRows:
    """`job.FileChanges` of one file."""

    arrived: _Arrived
    file: int

    def row_group(self, group: int) -> RowGroupChange:
        return RowGroupChange(*self.arrived.rows((self.file, group)))
