"""The merge, from end to end. No engine has a flow of its own.

    source ─▶ spool ─▶ profile ─▶ validate ─▶ plan: footers ▸ prune ▸ match ─▶ rewrite ─▶ check ─▶ commit ─▶ result

1. **Target.** List the data files and read their footers: schemas, row groups, key bounds. The schemas of the files
   are unified, and the source is cast to the unified schema. Partition columns are found in the paths.
2. **Source.** Spool it (it is read twice and must give the same rows), profile it, refuse null and duplicate keys.
3. **Plan.** Partition values and statistics prove for most row groups that they have no source key. Of the others only
   the key columns are read and matched. Files in *other* partitions are matched too: a key there would move. The
   actions of the merge (`actions`) decide what happens to each matched row: it is updated, deleted, moved or kept.
4. **Rewrite.** Files with rows to change are merged row group by row group into staging; rows with new keys go to new
   files, and files that lose all rows are removed. A file whose matched rows equal the source's is not rewritten. If
   the source has a value that the type of one file cannot hold, all files take the common type of that column, since
   readers refuse a mixture, and so they do if a file with a narrower type may come first. Files get the columns that
   they lack if a file that has them may come first.
5. **Check and commit.** The rows in the staged footers must add up, and the target must not have changed. One journal
   commits all files.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from fsspeckit.core import results, validate
from fsspeckit.core.actions import MatchedRows
from fsspeckit.core.commit.session import Session, warn_unfinished, writing
from fsspeckit.core.commit.undo import kept_copies
from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.listing import list_files, no_dataset
from fsspeckit.core.dataset.partitions import timezone
from fsspeckit.core.dataset.target import (
    evolved_template,
    in_timezone,
    new_file_options,
    overwritten_target,
    partition_map,
    read_target,
    shape_of_files,
    template,
)
from fsspeckit.core.engine import Engine, Scratch, Source, Untyped
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.execution_plan import CommonRequest, ExecutionPlan, Request, files_with_missing_rows
from fsspeckit.core.key_map import map_column, map_of_result
from fsspeckit.core.match.filter_scan import match_filter
from fsspeckit.core.match.filters import filter_names, parse_filters
from fsspeckit.core.match.hits import Hits, MatchResult
from fsspeckit.core.match.key_index import profile_of, scan_bytes
from fsspeckit.core.match.prune import Pruned, prune
from fsspeckit.core.merge_log import check_commit_log, finished
from fsspeckit.core.model import (
    DEFAULT_ROW_OPTIONS,
    FileInfo,
    Footer,
    Match,
    MergeStrategy,
    Profile,
    Rewritten,
    RowOptions,
    Scan,
    Shape,
    Staged,
    Target,
)
from fsspeckit.core.progress import Progress
from fsspeckit.core.reports import MergePlan, MergeResult, WritePlan, WriteResult
from fsspeckit.core.rewrite.inserts import NewFiles, count_by_folder, insert_rows
from fsspeckit.core.rows.deduplicate import one_row_per_key
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Location
from fsspeckit.core.values import keys
from fsspeckit.core.values.schema import check_case_insensitive_names, in_target_case
from fsspeckit.core.values.shape import shape_of, shape_of_target
from fsspeckit.core.write_changes import (
    check_free_space,
    compare_changes,
    read_staged,
    replacing,
    retype,
    work_of,
    write_changes,
)
from fsspeckit.core.write_plan import PlannedWrite, WriteRequest, plan_removals

__all__ = ["MergeStrategy", "Request", "WriteRequest", "plan", "plan_write", "run", "write"]


def run(engine: Engine, location: Location, source: object, request: Request) -> MergeResult:
    """Merge `source` into the data set at `location`, or delete the rows that `request.filters` select."""
    check_commit_log(request.commit_log, location)
    strategy, on_progress = request.strategy.value, request.on_progress
    with (
        Progress.of(f"{strategy} into {location.shown}", "lock", on_progress) as progress,
        engine.running(progress) as engine,
        writing(location, request.lock_timeout, progress.waiting) as session,
    ):
        progress.enter("footers")
        target, request = _target(engine, location, request)
        if request.batch and ledger.is_replay(request.batch, target.ledger):
            return finished(engine, location, request, progress, results.unchanged(location, target, request))
        progress.enter("source")
        with _spooled(engine, source, target, request, _scratch(session)) as spooled:
            progress.enter("match")
            planned = _plan(engine, location, spooled, target, request)
            validate.removed_rows(planned.counts.deleted, request.max_removed_rows)
            progress.enter("write", *work_of(planned))
            with location.storage.syncing():
                rewritten, inserted = write_changes(engine, location, planned, session)
                removed = _removed(planned, rewritten)
                result = results.result(location, planned, rewritten, inserted, removed)
                staged = [*(s for r in rewritten for s in r.staged), *inserted]
                footers: Sequence[Footer] = ()
                if staged or removed:
                    progress.enter("sync")
                    session.sync_staging()
                    staging = replace(location, root=session.stage(()))
                    footers = _check(engine, staging, staged, result, planned)
        if staged or removed:
            progress.enter("commit")
            session.commit(staged, removed, target.files.infos, results.note(result) if request.undoable else None)
        key_map = map_of_result(location, planned, rewritten, inserted, footers)
        result = replace(result, kept_copies=kept_copies(location) if result.deleted else [], key_map=key_map)
        return finished(engine, location, request, progress, result)


def plan(engine: Engine, location: Location, source: object, request: Request) -> MergePlan:
    """Plan a merge: nothing is locked and nothing is written."""
    warn_unfinished(location)
    title, on_progress = f"plan of {request.strategy.value} into {location.shown}", request.on_progress
    with Progress.of(title, "footers", on_progress) as progress, engine.running(progress) as engine:
        target, request = _target(engine, location, request)
        progress.enter("source")
        with _spooled(engine, source, target, request, None) as spooled:
            progress.enter("match")
            planned = _plan(engine, location, spooled, target, request)
            compared = None
            if request.compare:
                touched = planned.touched
                progress.enter("compare", len(touched), sum(footer.info.size for footer in touched))
                compared = compare_changes(engine, location, planned)
            new_rows: dict[str, int] = {}
            if not request.actions.replaces_target:
                partitions, count = partition_map(target, planned.shape), planned.counts.new_rows
                hits, actions = planned.matched.hits, request.actions
                new_rows = count_by_folder(engine, planned.spool, hits, count, partitions, actions)
            return results.describe(location, planned, new_rows, compared)


def write(engine: Engine, location: Location, source: object, request: WriteRequest) -> WriteResult:
    """Add rows as new files, or replace all data files or those of some partitions by new ones, in one commit."""
    with (
        Progress.of(f"{request.mode} into {location.shown}", "lock", request.on_progress) as progress,
        engine.running(progress) as engine,
        writing(location, request.lock_timeout, progress.waiting) as session,
    ):
        progress.enter("footers")
        with _planned_write(engine, location, source, request, _scratch(session)) as planned:
            validate.removed_rows(planned.removed_rows, request.max_removed_rows)
            target, spool, shape = planned.target, planned.spool, planned.shape
            partitions, layout = partition_map(target, shape), template(target, shape)
            options = new_file_options(location, target, layout, request.options, engine.compression)
            files = NewFiles(shape, partitions, session.stage([""]), options, layout, target.ledger, progress=progress)
            if request.schema.evolve:
                files = replace(files, evolved_template=evolved_template(target, shape))
                check_free_space(location, files.staging, planned.rewritten)
            old_bytes = sum(footer.info.size for footer in planned.rewritten)
            progress.enter("write", len(planned.rewritten), spool.bytes + old_bytes)
            with location.storage.syncing():
                staged = insert_rows(engine, location, spool, None, spool.rows, files)
                if not staged and planned.keeps_no_file:
                    staged = files.write_empty(location, planned.folder_of_empty_file)
                session.stage(sorted({posixpath.dirname(footer.path) for footer in planned.rewritten}))
                columns, added, replace_mode = planned.columns, planned.added, replacing(engine, location)
                rewritten = retype(engine, location, spool, files, planned.rewritten, columns, added, replace_mode)
                progress.enter("sync")
                if staged:
                    session.sync_staging()
        removed = [*planned.removed, *_moved(rewritten, planned.infos)]
        result = results.written(location, request.mode, staged, rewritten, removed, planned)
        changed = [*(s for r in rewritten for s in r.staged), *staged]
        progress.enter("commit")
        session.commit(changed, removed, planned.infos, results.note(result) if request.undoable else None)
    return result


def plan_write(engine: Engine, location: Location, source: object, request: WriteRequest) -> WritePlan:
    """Plan a plain write: nothing is locked and nothing is written."""
    warn_unfinished(location)
    title = f"plan of {request.mode} into {location.shown}"
    with (
        Progress.of(title, "footers", request.on_progress) as progress,
        engine.running(progress) as engine,
        _planned_write(engine, location, source, request, None) as planned,
    ):
        spool, partitions = planned.spool, partition_map(planned.target, planned.shape)
        new_rows = count_by_folder(engine, spool, None, spool.rows, partitions)
        return results.describe_write(location, request.mode, planned, new_rows)


@contextlib.contextmanager
def _planned_write(
    engine: Engine, location: Location, source: object, request: WriteRequest, scratch: Scratch | None
) -> Iterator[PlannedWrite]:
    """Everything about a plain write before the first byte is written. The source's rows last until the block ends."""
    infos, target, overwritten_rows = list_files(location), None, None
    if request.mode != "overwrite":
        target = read_target(engine.footers, location, (), request.partition_columns, engine.ignores_case)
    engine.progress.enter("source")
    with contextlib.closing(_open(engine, source, target)) as opened:
        if target is None:
            target, overwritten_rows = overwritten_target(location, opened.schema, request.partition_columns)
        elif engine.ignores_case and target.schema is not None:
            request = request.renamed(partial(in_target_case, target))
        shape = _shape(engine, request, target, opened)
        spool = opened.spool(shape, scratch, engine.progress)
    with contextlib.closing(spool.store):
        shape = shape_of_files(target, shape, spool.columns_to_retype)
        planned = plan_removals(request, infos, target, spool, shape, overwritten_rows)
        if request.schema.evolve:
            validate.rows_to_insert(spool.rows, shape)
            validate.bytes_to_rewrite([footer.info.size for footer in planned.rewritten], request.schema)
        yield planned


def _target(engine: Engine, location: Location, request: Request) -> tuple[Target, Request]:
    """The target, and the request with column names in the target's spelling."""
    ignores_case, columns = engine.ignores_case, request.partition_columns
    bounds = request.key_columns if request.filters is None else filter_names(request.filters)
    target = read_target(engine.footers, location, bounds, columns, ignores_case)
    if target.schema is None and request.must_exist:
        raise no_dataset(location)
    if target.schema is None or not ignores_case:
        return target, request
    own_names = partial(in_target_case, target)
    if own_names(bounds) != bounds:
        target = read_target(engine.footers, location, own_names(bounds), columns, ignores_case)
    return target, request.renamed(own_names)


def _open(engine: Engine, source: object, target: Target | None) -> Source:
    opened = engine.open(source.typed(partial(_type_in, target, engine)) if isinstance(source, Untyped) else source)
    if not engine.ignores_case:
        return opened
    if target is None or target.schema is None:
        check_case_insensitive_names(opened.schema.names)
        return opened
    return opened.renamed(in_target_case(target, opened.schema.names))


def _type_in(target: Target | None, engine: Engine, name: str) -> pa.DataType | None:
    """The type of a column in the target."""
    if target is None or target.schema is None:
        return None
    if engine.ignores_case:
        (name,) = in_target_case(target, [name])
    return target.schema.field(name).type if name in target.schema.names else None


@contextlib.contextmanager
def _spooled(
    engine: Engine, source: object, target: Target, request: Request, scratch: Scratch | None
) -> Iterator[Spool]:
    """The source's rows in the target's shape, until the block ends. A delete by filters has no source rows."""
    with contextlib.closing(_open(engine, source, target)) as opened:
        if request.filters is not None:
            shape = _in_timezone(engine, request, shape_of_target(target))
        else:
            options = request.rows_of(opened.schema, ignores_case=engine.ignores_case)
            shape = _shape(engine, request, target, opened, request.key_columns, options)
        for name in request.key_columns:
            keys.check_key_type(name, shape.schema.field(name).type)
        spool = opened.spool(shape, scratch, engine.progress)
    with contextlib.closing(spool.store):
        yield spool


def _shape(
    engine: Engine,
    request: CommonRequest,
    target: Target,
    source: Source,
    key_columns: Sequence[str] = (),
    options: RowOptions = DEFAULT_ROW_OPTIONS,
) -> Shape:
    """The columns of the merge. The engine gives the default time zones."""

    def zone_of_source() -> str | None:
        zone = request.source_timezone or engine.source_timezone
        return None if zone is None else timezone(zone, "source_timezone")

    shape = shape_of(target, source.schema, key_columns, zone_of_source, options, evolves=request.schema.evolve)
    return _in_timezone(engine, request, replace(shape, max_lengths=request.max_lengths))


def _in_timezone(engine: Engine, request: CommonRequest, shape: Shape) -> Shape:
    return in_timezone(shape, lambda: request.partition_timezone or engine.partition_timezone)


def _scratch(session: Session) -> Scratch:
    return lambda: replace(session.location, root=session.stage([""]))


def _plan(engine: Engine, location: Location, spool: Spool, target: Target, request: Request) -> ExecutionPlan:
    """Everything before the first write."""
    if request.filters is not None:
        return _plan_filters(engine, location, spool, target, request)
    shape, source_rows, actions, order = spool.shape, spool.rows, request.actions, request.row_order
    validate.order_columns(request.dedup_order_by, shape.schema)
    with contextlib.ExitStack() as stack:
        key_set = stack.enter_context(engine.keys(spool, actions))
        profile = profile_of(spool, key_set)
        validate.no_null_keys(profile.null_keys)
        validate.no_null_sequence(profile.null_sequences)
        if order is not None and profile.duplicate_keys:
            stack.close()
            spool = one_row_per_key(engine, spool, order)
            key_set = stack.enter_context(engine.keys(spool, actions))
            profile = profile_of(spool, key_set)
            validate.no_null_keys(profile.null_keys)
        validate.no_duplicate_keys(profile.duplicate_keys, profile.duplicate_samples, shape.keys)
        validate.rows_to_write(target, shape, profile, request.rows, evolves=request.schema.evolve)
        validate.missing_rows(actions, target, shape, profile)
        whole = files_with_missing_rows(actions, target, shape, profile)
        pruned = prune(target.files, shape, profile, partition_map(target, shape), whole)
        if profile.rows == 0:
            pruned = [Pruned((), "the source has no rows")] * len(pruned)
        scans = [Scan(target.files[n], file.row_groups) for n, file in enumerate(pruned) if file.row_groups]
        engine.progress.expect(len(scans), sum(map(scan_bytes, scans)))
        matched = key_set.match(location, scans)
    validate.no_moved_keys(matched.match, actions, shape.partitions)
    validate.whole_rows(target, shape, matched.match.moved, actions)
    shape = shape_of_files(target, shape, profile.columns_to_retype)
    planned = ExecutionPlan(request, target, shape, source_rows, spool, profile, pruned, matched)
    validate.rows_to_insert(planned.counts.inserted, shape)
    if request.schema.evolve:
        validate.types_unchanged(target, shape, request.schema)
        validate.bytes_to_rewrite([footer.info.size for footer in planned.brought_along], request.schema)
    return planned


def _plan_filters(engine: Engine, location: Location, spool: Spool, target: Target, request: Request) -> ExecutionPlan:
    """The plan of a delete by filters: which row groups have rows to delete, and how many."""
    zone, ignores_case = spool.shape.partition_timezone, engine.ignores_case
    row_filter = parse_filters(request.filters, target, zone, ignores_case=ignores_case)
    selected, scans = match_filter(engine, location, target, row_filter)
    groups = {path: {g: MatchedRows(deleted=n) for g, n in counts.items()} for path, counts in selected.items()}
    pruned = [Pruned((*scan.selected, *scan.read), scan.reason) for scan in scans]
    profile = Profile(0, {}, 0, (), frozenset(), {})
    matched = MatchResult(Match(groups, 0), Hits(spool.store, (), {}))
    return ExecutionPlan(request, target, spool.shape, 0, spool, profile, pruned, matched, row_filter)


def _removed(planned: ExecutionPlan, rewritten: Sequence[Rewritten]) -> list[FileInfo]:
    """The files that the commit removes: their rows are deleted, or in files with other names."""
    if planned.request.rewrite_mode == "full" and planned.counts:
        return [f.info for f in planned.touched]
    return _moved(rewritten, planned.target.files.infos)


def _moved(rewritten: Sequence[Rewritten], infos: Sequence[FileInfo]) -> list[FileInfo]:
    moved = {r.path for r in rewritten if r.removed or (r.staged and r.staged[0].path != r.path)}
    return [info for info in infos if info.path in moved]


def _check(
    engine: Engine, staging: Location, staged: Sequence[Staged], result: MergeResult, planned: ExecutionPlan
) -> Sequence[Footer]:
    """Check before the commit that the rows in the staged footers add up to the counts. Returns these footers."""
    column, target = map_column(planned), planned.target
    footers, all_rows_written = read_staged(engine, staging, staged, () if column is None else (column,))
    counted = sum(f.row_count for f in result.files)
    balance = target.rows + result.inserted - result.deleted
    if not all_rows_written or counted != result.target_count_after or counted != balance:
        raise DatasetMergeError(
            f"Row counts do not add up: {target.rows} + {result.inserted} - {result.deleted} is not {counted}. "
            "This is a bug in fsspeckit; nothing was changed.",
            operation="check",
        )
    return footers
