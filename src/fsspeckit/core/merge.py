"""The merge, from end to end. No engine has a flow of its own.

    source ─▶ spool ─▶ profile ─▶ validate ─▶ plan: footers ▸ prune ▸ match ─▶ rewrite ─▶ check ─▶ commit ─▶ result

1. **Target.** List the data files and read their footers: schemas, row groups, key bounds. The schemas of the files
   are unified, and the source is cast to the unified schema. Partition columns are found in the paths.
2. **Source.** Spool it (it is read twice and must give the same rows), profile it, refuse null and duplicate keys.
3. **Plan.** Partition values and statistics prove for most row groups that they have no source key. Of the others only
   the key columns are read and matched. Files in *other* partitions are matched too: a key there would move, and is
   refused.
4. **Rewrite.** Files with matched rows are merged row group by row group into staging; rows with new keys go to new
   files. A file whose matched rows equal the source's is not rewritten. If the source has a value that the type of one
   file cannot hold, all files take the common type of that column, since readers refuse a mixture. Files get the
   columns that they lack if a file that has them may come first.
5. **Check and commit.** The rows in the staged footers must add up, and the target must not have changed. One journal
   commits all files.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from fsspeckit.core import results as outcome
from fsspeckit.core import validate
from fsspeckit.core.commit.session import Session, warn_unfinished, writing
from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.dataset.missing_columns import columns_to_add
from fsspeckit.core.dataset.partitions import timezone
from fsspeckit.core.dataset.target import (
    files_of_other_types,
    in_timezone,
    overwritten_target,
    partition_map,
    read_target,
    shape_of_files,
    template,
)
from fsspeckit.core.engine import Engine, Scratch, Source
from fsspeckit.core.errors import ArgumentError, DatasetMergeError
from fsspeckit.core.execution_plan import Planned, Request
from fsspeckit.core.match.hits import Hits
from fsspeckit.core.match.key_index import profile_of
from fsspeckit.core.match.prune import Pruned, prune
from fsspeckit.core.model import (
    FileInfo,
    Footer,
    Match,
    MergePlan,
    MergeResult,
    MergeStrategy,
    Replace,
    Rewritten,
    Scan,
    Shape,
    Staged,
    Target,
    WriteOptions,
    WriteResult,
)
from fsspeckit.core.rewrite.files import new_name, rewrite_files
from fsspeckit.core.rewrite.inserts import NewFiles, insert_rows
from fsspeckit.core.rewrite.job import Job
from fsspeckit.core.rows.deduplicate import one_row_per_key
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Location
from fsspeckit.core.values import keys
from fsspeckit.core.values.schema import check_case_insensitive_names, in_target_case, shape_of

__all__ = ["MergeStrategy", "Request", "plan", "run", "write"]

# Of so many files, the keys of one are read again when it is rewritten: a match that went wrong would not do so once.
_VERIFIED = 8


def run(engine: Engine, location: Location, source: object, request: Request) -> MergeResult:
    """Merge `source` into the data set at `location`."""
    with engine.running() as engine, writing(location, request.lock_timeout) as session:
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
                    session.sync_staging()
                    _check(engine, location, session.stage(()), staged, result, target)
        if staged or removed:
            session.commit(staged, removed, target.files.infos)
        return result


def plan(engine: Engine, location: Location, source: object, request: Request) -> MergePlan:
    """Plan a merge: nothing is locked and nothing is written."""
    warn_unfinished(location)
    with engine.running() as engine:
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
    source_timezone: str | None = None,
) -> WriteResult:
    """Add rows as new files, or replace all data files by new ones, in one commit."""
    if mode not in ("append", "overwrite"):
        raise ArgumentError(f"Unknown mode {mode!r}. Choose 'append' or 'overwrite'.")
    with engine.running() as engine, writing(location, lock_timeout) as session:
        infos = list_files(location)
        target = None
        if mode == "append":
            target = read_target(engine.footers, location, (), partition_columns, engine.ignores_case)
        with contextlib.closing(_open(engine, source, target)) as opened:
            if target is None:
                target = overwritten_target(location, opened.schema, partition_columns)
            shape = _shape(engine, target, opened, (), partition_timezone, source_timezone)
            files = _new_files(target, shape, session.stage([""]), options or WriteOptions())
            spool = opened.spool(shape, _scratch(session))
        with contextlib.closing(spool.store), location.storage.syncing():
            files = replace(files, shape=shape_of_files(target, shape, spool.columns_to_retype))
            files = replace(files, template=template(target, files.shape))
            staged = insert_rows(engine, location, spool, None, spool.rows, files)
            partitions = {values for part in spool.parts for values in part.partitions}
            added = columns_to_add(target, files.shape, (), partitions, partial(partition_map, target, files.shape))
            columns = spool.columns_to_retype.union(added)
            others = files_of_other_types(target, files.shape, columns, added)
            session.stage(sorted({posixpath.dirname(f.path) for f in others}))
            retyped = _retype(engine, location, spool, files, others, columns, added, _replacing(engine, location))
            if staged:
                session.sync_staging()
        if not staged and (mode == "overwrite" or not infos):
            staged = files.write_empty(location, "")
        removed = list(infos) if mode == "overwrite" else _moved(retyped, infos)
        session.commit([*(s for r in retyped for s in r.staged), *staged], removed, infos)
    return outcome.written(location, mode, staged, retyped, removed)


def _target(engine: Engine, location: Location, request: Request) -> tuple[Target, Request]:
    """The target, and the request with column names in the target's spelling."""
    ignores_case, columns = engine.ignores_case, request.partition_columns
    target = read_target(engine.footers, location, request.key_columns, columns, ignores_case)
    if target.schema is None or not ignores_case:
        return target, request
    key_columns, order = (in_target_case(target, names) for names in (request.key_columns, request.dedup_order_by))
    if key_columns != request.key_columns:
        target = read_target(engine.footers, location, key_columns, columns, ignores_case)
    return target, replace(request, key_columns=key_columns, dedup_order_by=order)


def _open(engine: Engine, source: object, target: Target | None) -> Source:
    opened = engine.open(source)
    if not engine.ignores_case:
        return opened
    if target is None or target.schema is None:
        check_case_insensitive_names(opened.schema.names)
        return opened
    return opened.renamed(in_target_case(target, opened.schema.names))


@contextlib.contextmanager
def _spooled(
    engine: Engine, source: object, target: Target, request: Request, scratch: Scratch | None
) -> Iterator[Spool]:
    """The source's rows in the target's shape, until the block ends."""
    with contextlib.closing(_open(engine, source, target)) as opened:
        in_folders, of_source = request.partition_timezone, request.source_timezone
        shape = _shape(engine, target, opened, request.key_columns, in_folders, of_source)
        for name in request.key_columns:
            keys.check_key_type(name, shape.schema.field(name).type)
        spool = opened.spool(shape, scratch)
    with contextlib.closing(spool.store):
        yield spool


def _shape(
    engine: Engine,
    target: Target,
    source: Source,
    key_columns: Sequence[str],
    partition_timezone: str | None,
    source_timezone: str | None,
) -> Shape:
    """The columns of the merge. The engine gives the default time zones."""

    def zone_of_source() -> str | None:
        zone = source_timezone or engine.source_timezone
        return None if zone is None else timezone(zone, "source_timezone")

    shape = shape_of(target, source.schema, key_columns, zone_of_source)
    return in_timezone(shape, lambda: partition_timezone or engine.partition_timezone)


def _scratch(session: Session) -> Scratch:
    return lambda: replace(session.location, root=session.stage([""]))


def _plan(
    engine: Engine, location: Location, spool: Spool, target: Target, request: Request
) -> tuple[Planned, Spool, Hits]:
    """Everything before the first write. Returns the spool too: it may have been reduced to one row per key."""
    shape, source_rows = spool.shape, spool.rows
    validate.order_columns(request.dedup_order_by, shape.schema)
    with contextlib.ExitStack() as stack:
        key_set = stack.enter_context(engine.keys(spool))
        profile = profile_of(spool, key_set)
        validate.no_null_keys(dict(profile.null_keys))
        if request.actions.reduce_source and profile.duplicate_keys:
            stack.close()
            spool = one_row_per_key(engine, spool, request.dedup_order_by)
            key_set = stack.enter_context(engine.keys(spool))
            profile = profile_of(spool, key_set)
        validate.source(profile, shape.keys)
        pruned = prune(target.files, shape, profile, partition_map(target, shape))
        if profile.rows == 0:
            pruned = [Pruned((), "the source has no rows")] * len(pruned)
        scans = [Scan(target.files[n], file.row_groups) for n, file in enumerate(pruned) if file.row_groups]
        matched = key_set.match(location, scans, request.actions)
    validate.no_moved_keys(matched.match, request.actions, shape.partitions)
    shape = shape_of_files(target, shape, profile.columns_to_retype)
    return Planned(request, target, shape, source_rows, profile, pruned, matched.match), spool, matched.hits


def _rewrite(
    engine: Engine, location: Location, spool: Spool, hits: Hits, planned: Planned, session: Session
) -> tuple[list[Rewritten], list[Staged]]:
    """Write rewritten files and new rows into staging."""
    request = planned.request
    if not planned.counts:
        return [], []
    touched = planned.touched
    folders = {posixpath.dirname(f.path) for f in [*touched, *planned.brought_along]}
    staging = session.stage(sorted(folders | {""}))
    files = _new_files(planned.target, planned.shape, staging, request.options, request.batch)
    if request.actions.replaces_target:
        if not spool.rows:
            return [], files.write_empty(location, posixpath.dirname(planned.target.files[0].path))
        return [], insert_rows(engine, location, spool, None, spool.rows, files)
    jobs = _jobs(engine, location, planned, touched, files)
    rewritten = rewrite_files(engine, location, planned.shape, spool, hits, planned.match, jobs)
    inserted = insert_rows(engine, location, spool, hits, planned.counts.inserted, files)
    done = {r.path for r in rewritten if r.staged or r.removed}
    if done or inserted:
        retyped, added = planned.retyped, planned.added
        others = [f for f in files_of_other_types(planned.target, planned.shape, retyped, added) if f.path not in done]
        how = _replacing(engine, location, request.replace)
        rewritten += _retype(engine, location, spool, files, others, retyped, added, how)
    return rewritten, inserted


def _retype(
    engine: Engine,
    location: Location,
    spool: Spool,
    files: NewFiles,
    footers: Sequence[Footer],
    columns: frozenset[str],
    added: Mapping[str, Footer | None],
    how: Replace,
) -> list[Rewritten]:
    """Rewrite files with the common type of some columns, and with columns that they lack; no row changes."""
    jobs = [
        Job(
            footer,
            changed_groups=(),
            staging=files.staging,
            staged=f"type-{number:05d}",
            path=footer.path if how == "in_place" else new_name(footer.path),
            template=files.template,
            ledger=files.ledger,
            retyped=columns,
            added=added,
            only_types=True,
        )
        for number, footer in enumerate(footers)
    ]
    nothing = Hits(spool.store, (), {})
    return rewrite_files(engine, location, files.shape, spool, nothing, Match({}, 0), jobs) if jobs else []


def _replacing(engine: Engine, location: Location, requested: Replace | None = None) -> Replace:
    return requested or (engine.replace if location.storage.renames_atomically else "new_file")


def _jobs(
    engine: Engine, location: Location, planned: Planned, footers: Sequence[Footer], files: NewFiles
) -> list[Job]:
    request = planned.request
    how = _replacing(engine, location, request.replace)
    matched = planned.match.rows if request.actions.changes_matched else {}
    return [
        Job(
            footer,
            changed_groups=tuple(sorted(g for g, n in matched.get(footer.path, {}).items() if n)),
            staging=files.staging,
            staged=f"file-{number:05d}",
            path=footer.path if how == "in_place" else new_name(footer.path),
            template=files.template,
            as_new_files=request.options if request.rewrite_mode == "full" else None,
            ledger=files.ledger,
            verify_keys=number % _VERIFIED == 0,
            retyped=planned.retyped,
            added=planned.added,
        )
        for number, footer in enumerate(footers)
    ]


def _new_files(
    target: Target, shape: Shape, staging: str, options: WriteOptions, batch: Batch | None = None
) -> NewFiles:
    entries = ledger.with_batch(target.ledger, batch)
    return NewFiles(shape, partition_map(target, shape), staging, options, template(target, shape), entries)


def _removed(planned: Planned, rewritten: Sequence[Rewritten]) -> list[FileInfo]:
    """The files that the commit removes: their rows are in files with other names."""
    if planned.request.rewrite_mode == "full" and planned.counts:
        return [f.info for f in planned.touched]
    return _moved(rewritten, planned.target.files.infos)


def _moved(rewritten: Sequence[Rewritten], infos: Sequence[FileInfo]) -> list[FileInfo]:
    moved = {r.path for r in rewritten if r.staged and r.staged[0].path != r.path}
    return [info for info in infos if info.path in moved]


def _check(
    engine: Engine, location: Location, staging: str, staged: Sequence[Staged], result: MergeResult, target: Target
) -> None:
    """Check before the commit that the rows in the staged footers add up to the counts."""
    readable = [s for s in staged if s.receipt is None]  # the writer has checked the footers of the others
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
