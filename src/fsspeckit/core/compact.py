"""Compaction: join small files, cut large ones, encode small row groups again, and sort.

    list ─▶ footers ─▶ choose bins ─▶ rewrite each bin ─▶ check ─▶ commit ─▶ repeat until nothing is chosen

Rows do not change. Each commit replaces the files of some bins, and the next one is planned again. So a compaction that
was killed continues where it was, and other writers wait for one commit only. One that can be undone is one commit.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fsspeckit.core import defaults
from fsspeckit.core.commit.session import CommitNote, Session, unfinished, warn_unfinished, writing
from fsspeckit.core.dataset.ledger import without_streams
from fsspeckit.core.dataset.listing import no_dataset
from fsspeckit.core.dataset.target import read_target
from fsspeckit.core.engine import Engine
from fsspeckit.core.errors import ArgumentError, DatasetMergeError
from fsspeckit.core.model import FileInfo, Footer, Staged, Target
from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet.join import different_entries
from fsspeckit.core.parquet.metadata_entries import differing_entry
from fsspeckit.core.progress import OnProgress, Progress
from fsspeckit.core.reports import BinPlan, CompactPlan, CompactResult
from fsspeckit.core.rewrite.compaction import MAX_BYTES, Bin, choose_bins
from fsspeckit.core.rewrite.join_files import Joined, JoinJob, join_files
from fsspeckit.core.rewrite.sort_files import check_sortable, rows_are_sorted
from fsspeckit.core.rows.exchange import Step
from fsspeckit.core.storage import Location
from fsspeckit.core.values.schema import in_target_case
from fsspeckit.core.write_changes import read_staged

# A commit replaces about this many bytes, and at least a few files for each task.
_COMMIT_BYTES = 1 << 30
_FILES_PER_TASK = 2
# While a row group is encoded, memory holds its rows, perhaps twice, and its bytes.
_COPIES = 3


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """`partitions` limits the compaction to partitions with these values. `undoable`: all bins in one commit."""

    target_size: int = defaults.TARGET_SIZE
    sort_by: tuple[str, ...] = ()
    partitions: tuple[Mapping[str, Any], ...] | None = None
    lock_timeout: float = defaults.LOCK_TIMEOUT
    undoable: bool = False
    on_progress: OnProgress | None = None


@dataclass
class _Commits:
    """What the commits so far did. `known` are the files that were there at the start, and the new ones: those of other
    writers wait for the next compaction, so that this one ends."""

    known: set[str] | None = None
    commits: int = 0
    written: set[str] = field(default_factory=set)
    before: tuple[int, int] | None = None
    bytes_written: int = 0
    bytes_copied: int = 0
    removed: list[str] = field(default_factory=list)


def compact(engine: Engine, location: Location, request: CompactRequest) -> CompactResult:
    """Rewrite small, large and unsorted files of the data set at `location`."""
    commits = _Commits()
    with (
        Progress.of(f"compaction of {location.shown}", "lock", request.on_progress) as progress,
        engine.running(progress) as engine,
        _interruptions(location, commits),
    ):
        while True:
            with writing(location, request.lock_timeout, progress.waiting) as session:
                progress.enter("footers")
                target, request = _target(engine, location, request)
                bins, remaining = _next_bins(engine, location, target, request, commits)
                if not bins:
                    return _result(location, target.files.infos, target.rows, commits)
                progress.next_part(sum(b.bytes for b in bins) / max(1, remaining))
                progress.enter("write", sum(len(b.files) for b in bins), sum(b.bytes for b in bins))
                with location.storage.syncing():
                    joined = _write(engine, location, session, target, bins, request)
                    progress.enter("sync")
                    session.sync_staging()
                    _check(engine, location, session, bins, joined)
                staged = [s for files in joined for s in files.staged]
                removed = [file.info for chosen in bins for file in chosen.files]
                keep = _note(target, staged, removed) if request.undoable else None
                progress.enter("commit")
                session.commit(staged, removed, target.files.infos, keep)
            _count(commits, joined, removed)
            if request.undoable:
                return _result(location, _infos_after(target, staged, removed), target.rows, commits)
            progress.enter("lock")


@contextlib.contextmanager
def _interruptions(location: Location, commits: _Commits) -> Iterator[None]:
    """Ctrl-C after some commits changed files, though no row."""
    try:
        yield
    except KeyboardInterrupt as error:
        if commits.commits and not unfinished(location):
            error.args = (f"No row was changed. Commits that stay: {commits.commits}. Compact again to go on.",)
        raise


def plan(engine: Engine, location: Location, request: CompactRequest) -> CompactPlan:
    """What the first pass of a compaction would do. Nothing is locked and nothing is written."""
    warn_unfinished(location)
    title = f"plan of the compaction of {location.shown}"
    with Progress.of(title, "footers", request.on_progress) as progress, engine.running(progress) as engine:
        target, request = _target(engine, location, request)
        bins = _choose(location, target, request, None)
    planned = [
        BinPlan(b.folder, len(b.files), b.rows, b.bytes, b.reason, b.new_files(request.target_size)) for b in bins
    ]
    infos = target.files.infos
    return CompactPlan(
        files_before=len(infos),
        files_after=len(infos) + sum(b.new_files - b.files for b in planned),
        bytes_before=sum(info.size for info in infos),
        rows=target.rows,
        bins=tuple(planned),
    )


def _target(engine: Engine, location: Location, request: CompactRequest) -> tuple[Target, CompactRequest]:
    """The target, with the bounds of the sort columns, and the request with the target's spelling of columns."""
    target = read_target(engine.footers, location, request.sort_by, None, engine.ignores_case)
    if target.schema is None:
        raise no_dataset(location)
    if engine.ignores_case and in_target_case(target, request.sort_by) != request.sort_by:
        request = replace(request, sort_by=in_target_case(target, request.sort_by))
        target = read_target(engine.footers, location, request.sort_by, None, engine.ignores_case)
    check_sortable(target, request.sort_by)
    return target, request


def _next_bins(
    engine: Engine, location: Location, target: Target, request: CompactRequest, commits: _Commits
) -> tuple[list[Bin], int]:
    """The bins of the next commit, about as many bytes as a commit replaces; and the bytes of all bins."""
    infos = target.files.infos
    if commits.known is None:
        commits.known = {info.path for info in infos}
        commits.before = len(infos), sum(info.size for info in infos)
    limit = max(_COMMIT_BYTES, _FILES_PER_TASK * engine.parallelism * request.target_size)
    chosen: list[Bin] = []
    candidates = _choose(location, target, request, commits)
    for candidate in candidates:
        if chosen and not request.undoable and sum(c.bytes for c in chosen) + candidate.bytes > limit:
            break
        chosen.append(candidate)
    return chosen, sum(candidate.bytes for candidate in candidates)


def _choose(location: Location, target: Target, request: CompactRequest, commits: _Commits | None) -> list[Bin]:
    files = _in_partitions(target, request.partitions)
    written = set[str]() if commits is None else commits.written
    if commits is not None and commits.known is not None:
        files = [file for file in files if file.path in commits.known]
    is_sorted = partial(rows_are_sorted, location, request.sort_by)
    bins = choose_bins(files, request.target_size, request.sort_by, is_sorted, partial(_owner_of, location))
    # A new file is never cut or sorted a second time, so that this ends: the other reasons make fewer of something.
    once = ("large file", "not sorted")
    bins = [b for b in bins if b.reason not in once or not written.issuperset(f.path for f in b.files)]
    for chosen in bins:
        _check_entries(location, chosen)
    return bins


def _owner_of(location: Location, file: Footer) -> str:
    disk = location.on_disk()
    try:
        return "" if disk is None else disk.storage.owner_of(disk.at(file.path))
    except FileNotFoundError:  # the commit will notice
        return ""


def _in_partitions(target: Target, partitions: Sequence[Mapping[str, Any]] | None) -> list[Footer]:
    if partitions is None:
        return list(target.files)
    columns = list(target.partition_columns)
    for wanted in partitions:
        unknown = sorted(set(wanted) - set(columns))
        if unknown or not wanted:
            raise ArgumentError(
                f"partitions has {dict(wanted)}, but the data set is partitioned by {columns}."
                if columns
                else "partitions has no effect: the data set is not partitioned. Leave it out."
            )
    texts = [{name: None if value is None else str(value) for name, value in wanted.items()} for wanted in partitions]
    files = [file for file in target.files if any(_is_in(file, wanted) for wanted in texts)]
    for wanted in texts:
        if not any(_is_in(file, wanted) for file in files):
            raise ArgumentError(f"There is no partition {wanted}. Check the values.")
    return files


def _is_in(file: Footer, wanted: Mapping[str, str | None]) -> bool:
    """Is the file in a folder of these values? `month=01` is month 1."""

    def plain(text: str | None) -> str | int | None:
        return int(text) if text is not None and text.lstrip("-").isdecimal() else text

    return all(name in file.partition and plain(file.partition[name]) == plain(v) for name, v in wanted.items())


def _check_entries(location: Location, chosen: Bin) -> None:
    """Refuse files whose key-value entries one file cannot have, as far as their schemas show them."""
    distinct = {id(file.schema): file for file in chosen.files}
    files = list(distinct.values())
    differing = differing_entry([without_streams(file.schema.metadata or {}) for file in files])
    if differing is not None:
        name, other = differing
        raise different_entries(name, location.show(files[0].path), location.show(files[other].path))


def _write(
    engine: Engine,
    location: Location,
    session: Session,
    target: Target,
    bins: Sequence[Bin],
    request: CompactRequest,
) -> list[Joined]:
    staging = session.stage(sorted({posixpath.dirname(file.path) for chosen in bins for file in chosen.files}))
    jobs = [
        JoinJob(chosen, staging, f"compact-{number:05d}", request.target_size, target.ledger, request.sort_by)
        for number, chosen in enumerate(bins)
    ]
    step = Step("rewrite", sum(len(chosen.files) for chosen in bins), sum(chosen.bytes for chosen in bins))
    return engine.map(step, partial(_join, location, engine.pool or Pool(), engine.progress), jobs, _weight)


def _join(location: Location, pool: Pool, progress: Progress, job: JoinJob) -> Joined:
    joined = join_files(location, pool, job)
    progress.advance(len(job.bin.files), job.bin.bytes)
    return joined


def _weight(job: JoinJob) -> int:
    largest = max((group.bytes for file in job.bin.files for group in file.row_groups), default=0)
    return _COPIES * max(MAX_BYTES, min(largest, job.bin.bytes))


def _check(engine: Engine, location: Location, session: Session, bins: Sequence[Bin], joined: Sequence[Joined]) -> None:
    """Check before the commit that every bin has as many rows as before, in the footers of the staged files."""
    staging = replace(location, root=session.stage(()))
    _, all_rows_written = read_staged(engine, staging, [s for files in joined for s in files.staged])
    for chosen, files in zip(bins, joined, strict=True):
        counted = sum(s.rows for s in files.staged)
        if not all_rows_written or counted != chosen.rows:
            raise DatasetMergeError(
                f"Row counts do not add up: {chosen.rows} rows would become {counted}. This is a bug in fsspeckit; "
                "nothing was changed.",
                operation="check",
            )


def _count(commits: _Commits, joined: Sequence[Joined], removed: Sequence[FileInfo]) -> None:
    assert commits.known is not None
    new = {s.path for files in joined for s in files.staged}
    commits.commits += 1
    commits.known |= new
    commits.written |= new
    commits.bytes_written += sum(s.size for files in joined for s in files.staged)
    commits.bytes_copied += sum(files.copied for files in joined)
    commits.removed += [info.path for info in removed]


def _infos_after(target: Target, staged: Sequence[Staged], removed: Sequence[FileInfo]) -> list[FileInfo]:
    removed_paths = {info.path for info in removed}
    kept = [info for info in target.files.infos if info.path not in removed_paths]
    return sorted([*kept, *(FileInfo(s.path, s.size, 0) for s in staged)], key=lambda info: info.path)


def _note(target: Target, staged: Sequence[Staged], removed: Sequence[FileInfo]) -> CommitNote:
    """What the record of an undoable compaction says."""
    files = {"files_before": len(target.files.infos), "files_after": len(_infos_after(target, staged, removed))}
    return CommitNote("compact", {**files, "rows": target.rows})


def _result(location: Location, infos: Sequence[FileInfo], rows: int, commits: _Commits) -> CompactResult:
    files, size = commits.before or (len(infos), sum(info.size for info in infos))
    return CompactResult(
        files_before=files,
        files_after=len(infos),
        bytes_before=size,
        bytes_after=sum(info.size for info in infos),
        rows=rows,
        commits=commits.commits,
        bytes_written=commits.bytes_written,
        bytes_copied=commits.bytes_copied,
        new_files=[location.show(info.path) for info in infos if info.path in commits.written],
        removed_files=[location.show(path) for path in commits.removed if path not in commits.written],
    )
