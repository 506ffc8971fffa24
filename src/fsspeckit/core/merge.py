"""The merge, from end to end. No engine has a flow of its own.

    source ─▶ spool ─▶ profile ─▶ validate ─▶ plan: footers ▸ prune ▸ match ─▶ rewrite ─▶ check ─▶ commit ─▶ result

1. **Target.** List the data files and read their footers: schemas, row groups, key bounds. Files are unified to one
   schema, which the source is brought to value by value; partition columns are found in the paths.
2. **Source.** Spool it (it is read twice and must say the same), profile it, refuse null and duplicate keys.
3. **Plan.** Partition values and per-row-group statistics prove most files free of source keys. In what survives,
   only key columns are read and matched. Files in *other* partitions are matched too, as a guard: a key that lies
   there would move, and is refused.
4. **Rewrite.** Files with matched rows are merged row group by row group into staging; rows with new keys go to new
   files. A file whose matched rows already equal the source's is spared.
5. **Check and commit.** The staged footers must add up; the target must not have changed; then one journal makes it so.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from fsspeckit.core import outcome
from fsspeckit.core.commit.session import Session, warn_unfinished, writing
from fsspeckit.core.engine import Engine, Scratch, Source
from fsspeckit.core.errors import ArgumentError, DatasetMergeError
from fsspeckit.core.model import (
    FileInfo,
    Footer,
    MergePlan,
    MergeResult,
    MergeStrategy,
    Rewritten,
    Scan,
    Shape,
    Staged,
    Target,
    WriteOptions,
    WriteResult,
)
from fsspeckit.core.plan import validate
from fsspeckit.core.plan.planned import Planned, Request
from fsspeckit.core.plan.prune import Pruned, prune
from fsspeckit.core.rewrite.files import rewrite_files
from fsspeckit.core.rewrite.inserts import NewFiles, insert_rows
from fsspeckit.core.rewrite.kernel import Job
from fsspeckit.core.spool.dedup import one_row_per_key
from fsspeckit.core.spool.hits import Hits
from fsspeckit.core.spool.keyset import profile_of
from fsspeckit.core.spool.parts import Spool
from fsspeckit.core.storage import Location
from fsspeckit.core.target import ledger
from fsspeckit.core.target.dataset import in_timezone, overwritten_target, partition_map, read_target, template
from fsspeckit.core.target.ledger import Batch
from fsspeckit.core.target.listing import list_files
from fsspeckit.core.values import keys
from fsspeckit.core.values.schema import check_told_apart, shape_of, spelled_like

__all__ = ["MergeStrategy", "Request", "plan", "run", "write"]

# Of so many files, the keys of one are read again when it is rewritten: a match that went wrong would not do so once.
_GUARDED = 8
_OWN_NAME = re.compile(r"\.fk[0-9a-f]{8}$")


def run(engine: Engine, location: Location, source: object, request: Request) -> MergeResult:
    """Merge `source` into the data set at `location`."""
    with writing(location, request.lock_timeout) as session:
        target, request = _target(engine, location, request)
        if request.batch and ledger.is_replay(request.batch, target.ledger):
            return outcome.unchanged(location, target, request)
        with _spooled(engine, source, target, request, _scratch(session)) as pinned:
            planned, spool, hits = _plan(engine, location, pinned, target, request)
            with location.storage.syncing():
                rewritten, inserted = _rewrite(engine, location, spool, hits, planned, session)
                removed = _removed(planned, rewritten)
                result = outcome.result(location, planned, rewritten, inserted, removed)
                staged = [*(s for r in rewritten for s in r.staged), *inserted]
                if staged or removed:
                    session.settle()
                    _check(engine, location, session.stage(()), staged, result, target)
        if staged or removed:
            session.commit(staged, removed, target.files.infos)
        return result


def plan(engine: Engine, location: Location, source: object, request: Request) -> MergePlan:
    """The same work without the rewrite: nothing is locked and nothing is written."""
    warn_unfinished(location)
    target, request = _target(engine, location, request)
    with _spooled(engine, source, target, request, None) as spool:
        planned, _, _ = _plan(engine, location, spool, target, request)
        return outcome.describe(location, planned)


def write(
    engine: Engine,
    location: Location,
    source: object,
    mode: Literal["append", "overwrite"],
    partition_columns: tuple[str, ...] | None = None,
    options: WriteOptions | None = None,
    lock_timeout: float = 60,
    partition_timezone: str | None = None,
) -> WriteResult:
    """Add rows as new files, or replace all data files by new ones, in one commit."""
    if mode not in ("append", "overwrite"):
        raise ArgumentError(f"Unknown mode {mode!r}. Choose 'append' or 'overwrite'.")
    with writing(location, lock_timeout) as session:
        infos = list_files(location)
        target = None
        if mode == "append":
            target = read_target(engine.footers, location, (), partition_columns, engine.ignores_case)
        with contextlib.closing(_open(engine, source, target)) as opened:
            if target is None:
                target = overwritten_target(location, opened.schema, partition_columns)
            shape = _zoned(engine, shape_of(target, opened.schema, ()), partition_timezone)
            files = _new_files(target, shape, session.stage([""]), options or WriteOptions())
            spool = opened.spool(shape, _scratch(session))
        with contextlib.closing(spool.store), location.storage.syncing():
            staged = insert_rows(engine, location, spool, None, spool.rows, files)
            if staged:
                session.settle()
        if not staged and (mode == "overwrite" or not infos):
            staged = files.write_empty(location, "")
        removed = list(infos) if mode == "overwrite" else []
        session.commit(staged, removed, infos)
    entries = [outcome.entry(location, s, "inserted") for s in staged]
    return WriteResult(mode, sum(s.rows for s in staged), entries, [location.show(f.path) for f in removed])


def _target(engine: Engine, location: Location, request: Request) -> tuple[Target, Request]:
    """The target, and the request with columns spelled as the target spells them."""
    ignores_case, columns = engine.ignores_case, request.partition_columns
    target = read_target(engine.footers, location, request.key_columns, columns, ignores_case)
    if target.schema is None or not ignores_case:
        return target, request
    key_columns, order = (spelled_like(target, names) for names in (request.key_columns, request.dedup_order_by))
    if key_columns != request.key_columns:
        target = read_target(engine.footers, location, key_columns, columns, ignores_case)
    return target, replace(request, key_columns=key_columns, dedup_order_by=order)


def _open(engine: Engine, source: object, target: Target | None) -> Source:
    opened = engine.open(source)
    if not engine.ignores_case:
        return opened
    if target is None or target.schema is None:
        check_told_apart(opened.schema.names)
        return opened
    return opened.renamed(spelled_like(target, opened.schema.names))


@contextlib.contextmanager
def _spooled(
    engine: Engine, source: object, target: Target, request: Request, scratch: Scratch | None
) -> Iterator[Spool]:
    """The source's rows in the target's shape, as long as they are needed."""
    with contextlib.closing(_open(engine, source, target)) as opened:
        shape = _zoned(engine, shape_of(target, opened.schema, request.key_columns), request.partition_timezone)
        for name in request.key_columns:
            keys.check_key_type(name, shape.schema.field(name).type)
        spool = opened.spool(shape, scratch)
    with contextlib.closing(spool.store):
        yield spool


def _zoned(engine: Engine, shape: Shape, asked_for: str | None) -> Shape:
    return in_timezone(shape, lambda: asked_for or engine.partition_timezone)


def _scratch(session: Session) -> Scratch:
    return lambda: replace(session.location, root=session.stage([""]))


def _plan(
    engine: Engine, location: Location, spool: Spool, target: Target, request: Request
) -> tuple[Planned, Spool, Hits]:
    """Everything up to the first write. The spool may come back reduced to one row per key."""
    shape, source_rows = spool.shape, spool.rows
    validate.order_columns(request.dedup_order_by, shape.schema)
    with contextlib.ExitStack() as stack:
        key_set = stack.enter_context(engine.keys(spool))
        profile = profile_of(spool, key_set)
        validate.no_null_keys(dict(profile.null_keys))
        if request.strategy is MergeStrategy.DEDUPLICATE and profile.duplicate_keys:
            stack.close()
            spool = one_row_per_key(engine, spool, request.dedup_order_by)
            key_set = stack.enter_context(engine.keys(spool))
            profile = profile_of(spool, key_set)
        validate.source(profile, shape.keys)
        pruned = prune(target.files, shape, profile, partition_map(target, shape))
        if profile.rows == 0:
            pruned = [Pruned((), "the source has no rows")] * len(pruned)
        scans = [Scan(target.files[n], file.row_groups) for n, file in enumerate(pruned) if file.row_groups]
        meeting = key_set.meet(location, scans, request.strategy)
    validate.no_moved_keys(meeting.match, request.strategy, shape.partitions)
    return Planned(request, target, shape, source_rows, profile, pruned, meeting.match), spool, meeting.hits


def _rewrite(
    engine: Engine, location: Location, spool: Spool, hits: Hits, planned: Planned, session: Session
) -> tuple[list[Rewritten], list[Staged]]:
    """Write what changes into staging: the files with matched rows, and the new rows."""
    request, full_merge = planned.request, planned.request.strategy is MergeStrategy.FULL_MERGE
    if not planned.counts:
        return [], []
    touched = planned.touched
    folders = {posixpath.dirname(f.path) for f in touched}
    staging = session.stage(sorted(folders | {""}))
    files = _new_files(planned.target, planned.shape, staging, request.options, request.batch)
    if full_merge and not planned.profile.rows:
        return [], files.write_empty(location, posixpath.dirname(planned.target.files[0].path))
    if full_merge:
        return [], insert_rows(engine, location, spool, None, spool.rows, files)
    jobs = _jobs(engine, location, planned, touched, files)
    rewritten = rewrite_files(engine, location, spool, hits, planned.match, jobs)
    return rewritten, insert_rows(engine, location, spool, hits, planned.counts.inserted, files)


def _jobs(
    engine: Engine, location: Location, planned: Planned, footers: Sequence[Footer], files: NewFiles
) -> list[Job]:
    request = planned.request
    how = request.replace or (engine.replace if location.storage.renames_atomically else "new_file")
    matched = planned.match.rows if request.strategy.updates else {}
    return [
        Job(
            footer,
            touched=tuple(sorted(g for g, n in matched.get(footer.path, {}).items() if n)),
            staging=files.staging,
            staged=f"file-{number:05d}",
            path=footer.path if how == "in_place" else _new_name(footer.path),
            template=files.template,
            fresh=request.options if request.rewrite_mode == "full" else None,
            ledger=files.ledger,
            guarded=number % _GUARDED == 0,
        )
        for number, footer in enumerate(footers)
    ]


def _new_name(path: str) -> str:
    """`<stem>.fk<8 hex>.parquet`; an earlier `.fk…` part is replaced."""
    stem, dot, suffix = path.rpartition(".")
    return f"{_OWN_NAME.sub('', stem)}.fk{uuid.uuid4().hex[:8]}{dot}{suffix}"


def _new_files(
    target: Target, shape: Shape, staging: str, options: WriteOptions, batch: Batch | None = None
) -> NewFiles:
    entries = ledger.with_batch(target.ledger, batch)
    return NewFiles(shape, partition_map(target, shape), staging, options, template(target, shape), entries)


def _removed(planned: Planned, rewritten: Sequence[Rewritten]) -> list[FileInfo]:
    """Old files whose rows now stand under another name."""
    if planned.request.rewrite_mode == "full" and planned.counts:
        return [f.info for f in planned.touched]
    moved = {r.path for r in rewritten if r.staged and r.staged[0].path != r.path}
    return [info for info in planned.target.files.infos if info.path in moved]


def _check(
    engine: Engine, location: Location, staging: str, staged: Sequence[Staged], result: MergeResult, target: Target
) -> None:
    """Before the commit: do the rows in the staged files' footers add up to the counts?"""
    readable = [s for s in staged if s.receipt is None]  # of the others, their writers have looked at the footers
    infos = [FileInfo(s.staged, s.size, 0) for s in readable]
    rows = {f.path: f.rows for f in engine.footers(replace(location, root=staging), infos, ())} if infos else {}
    wrong = [s for s in readable if rows[s.staged] != s.rows]
    counted = sum(f.row_count for f in result.files)
    balance = target.rows + result.inserted - result.deleted
    if wrong or counted != result.target_count_after or counted != balance:
        raise DatasetMergeError(
            f"Row counts do not add up: {target.rows} + {result.inserted} - {result.deleted} is not {counted}. "
            "This is a bug in fsspeckit; nothing was changed.",
            operation="check",
        )
