"""The merge, from end to end. No engine has a flow of its own.

    source ─▶ pin ─▶ profile ─▶ validate ─▶ plan: list ▸ footers ▸ prune ▸ match ─▶ rewrite ─▶ check ─▶ commit ─▶ result

1. **Target.** List the data files and read their footers: schemas, row groups, key bounds. Files are unified to one
   schema, which the source is brought to value by value; partition columns are found in the paths.
2. **Source.** Pin it (it is read twice and must say the same), profile it, refuse null and duplicate keys.
3. **Plan.** Partition values and per-row-group statistics prove most files free of source keys. In what survives,
   only key columns are read and matched. Files in *other* partitions are matched too, as a guard: a key that lies
   there would move, and is refused.
4. **Rewrite.** Files with matched rows are merged row group by row group into staging; rows with new keys go to new
   files. A file whose matched rows already equal the source's is spared.
5. **Check and commit.** The staged footers must add up; the target must not have changed; then one journal makes it so.
"""

from __future__ import annotations

import posixpath
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.core import arrays, keys, validate
from fsspeckit.core.commit import ledger
from fsspeckit.core.commit.ledger import Batch
from fsspeckit.core.commit.session import Session, warn_unfinished, writing
from fsspeckit.core.engine import Engine, Pinned
from fsspeckit.core.errors import ArgumentError, DatasetMergeError
from fsspeckit.core.model import (
    FileInfo,
    FilePlan,
    Footer,
    Match,
    MergeFileMetadata,
    MergePlan,
    MergeResult,
    MergeStrategy,
    Profile,
    Replace,
    Rewritten,
    Scan,
    Shape,
    Staged,
    Target,
    WriteOptions,
    WriteResult,
)
from fsspeckit.core.plan.listing import list_files
from fsspeckit.core.plan.partitions import PartitionMap, parse_hive_partition_path
from fsspeckit.core.plan.prune import Pruned, prune
from fsspeckit.core.rewrite.kernel import Job
from fsspeckit.core.rewrite.sink import NewFiles
from fsspeckit.core.rewrite.stamp import stamped_copy
from fsspeckit.core.schema import shape_of, unify_footers
from fsspeckit.core.storage import Location

_OWN_NAME = re.compile(r"\.fk[0-9a-f]{8}$")


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    strategy: MergeStrategy
    key_columns: tuple[str, ...]
    partition_columns: tuple[str, ...] | None = None
    rewrite_mode: Literal["full", "incremental"] = "incremental"
    dedup_order_by: tuple[str, ...] = ()
    options: WriteOptions = field(default_factory=WriteOptions)
    replace: Replace | None = None
    lock_timeout: float = 60
    batch: Batch | None = None


@dataclass(frozen=True)
class _Planned:
    """Everything that is known before the first byte is written."""

    request: Request
    target: Target
    shape: Shape
    partitions: PartitionMap
    profile: Profile
    pruned: Sequence[Pruned]
    match: Match


def run(engine: Engine, location: Location, source: Any, request: Request) -> MergeResult:
    """Merge `source` into the data set at `location`."""
    with writing(location, request.lock_timeout) as session:
        target = read_target(engine, location, request.key_columns, request.partition_columns)
        if request.batch and ledger.is_replay(request.batch, target.ledger):
            return _unchanged(location, target, request)
        pinned, shape = _pin(engine, source, target, request.key_columns, session)
        try:
            planned, pinned = _plan(engine, location, pinned, target, shape, request)
            rewritten, inserted = _rewrite(engine, location, pinned, planned, session)
            rewritten = _recorded(engine, location, planned, session, rewritten, inserted)
            removed = _removed(planned, rewritten)
            result = _result(location, planned, rewritten, inserted, removed)
            staged = [*(s for r in rewritten for s in r.staged), *inserted]
            if staged or removed:
                _check(engine, location, session.stage(()), staged, result, target)
                session.commit(staged, removed, [f.info for f in target.files])
            return result
        finally:
            engine.release(pinned)


def plan(engine: Engine, location: Location, source: Any, request: Request) -> MergePlan:
    """The same work without the rewrite: nothing is locked and nothing is written."""
    warn_unfinished(location)
    target = read_target(engine, location, request.key_columns, request.partition_columns)
    pinned, shape = _pin(engine, source, target, request.key_columns, None)
    try:
        planned, pinned = _plan(engine, location, pinned, target, shape, request)
        return _describe(location, planned)
    finally:
        engine.release(pinned)


def write(
    engine: Engine,
    location: Location,
    source: Any,
    mode: Literal["append", "overwrite"],
    partition_columns: tuple[str, ...] | None = None,
    options: WriteOptions | None = None,
    lock_timeout: float = 60,
) -> WriteResult:
    """Add rows as new files, or replace all data files by new ones, in one commit."""
    if mode not in ("append", "overwrite"):
        raise ArgumentError(f"Unknown mode {mode!r}. Choose 'append' or 'overwrite'.")
    with writing(location, lock_timeout) as session:
        infos = list_files(location)
        given = engine.open(source)
        target = _write_target(engine, location, mode, given.schema, partition_columns)
        shape = shape_of(target, given.schema, ())
        pinned = engine.pin(given, shape, _scratch(engine, session))
        try:
            files = _new_files(target, shape, session.stage([""]), options or WriteOptions())
            staged = engine.insert(location, pinned, files, "all")
            if not staged and (mode == "overwrite" or not infos):
                staged = files.write_empty(location, "")
            removed = list(infos) if mode == "overwrite" else []
            session.commit(staged, removed, infos)
        finally:
            engine.release(pinned)
    entries = [_entry(location, s, "inserted") for s in staged]
    return WriteResult(mode, sum(s.rows for s in staged), entries, [location.show(f.path) for f in removed])


def _write_target(
    engine: Engine, location: Location, mode: str, source: pa.Schema, partition_columns: tuple[str, ...] | None
) -> Target:
    """An overwrite owes nothing to the old files (which may be broken) but their partition columns."""
    if mode == "append":
        return read_target(engine, location, (), partition_columns)
    if partition_columns is None:
        found = _named_in_paths(parse_hive_partition_path(f.path) for f in list_files(location))
        partition_columns = tuple(c for c in found if c in source.names)
    return Target((), None, (), partition_columns, ledger.readable_entries(location, list_files(location)))


def read_target(
    engine: Engine, location: Location, key_columns: Sequence[str], partition_columns: tuple[str, ...] | None
) -> Target:
    """List the data files, read their footers and unify them."""
    files = tuple(engine.footers(location, list_files(location), key_columns))
    columns = _partition_columns(files, partition_columns)
    if not files:
        return Target((), None, (), columns)
    schema = unify_footers(files)
    return Target(files, schema, tuple(schema.names), columns, ledger.entries(files))


def _partition_columns(files: Sequence[Footer], given: tuple[str, ...] | None) -> tuple[str, ...]:
    """The columns that paths name, in the order of the folders; they must be the ones given, if any are."""
    found = _named_in_paths(footer.partition for footer in files)
    if given is None:
        return found
    if found and set(found) != set(given):
        raise ArgumentError(f"partition_columns is {list(given)}, but the target is partitioned by {list(found)}.")
    return found or given


def _named_in_paths(partitions: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for partition in partitions for name in partition))


def _pin(
    engine: Engine, source: Any, target: Target, key_columns: Sequence[str], session: Session | None
) -> tuple[Pinned, Shape]:
    given = engine.open(source)
    shape = shape_of(target, given.schema, key_columns)
    for name in key_columns:
        keys.check_key_type(name, shape.schema.field(name).type)
    return engine.pin(given, shape, _scratch(engine, session)), shape


def _scratch(engine: Engine, session: Session | None) -> str | None:
    """A folder for engines that pin their source on disk; it goes with the staging."""
    return session.stage([""]) if session is not None and engine.wants_scratch else None


def _plan(
    engine: Engine, location: Location, pinned: Pinned, target: Target, shape: Shape, request: Request
) -> tuple[_Planned, Pinned]:
    """Everything up to the first write. The source may come back reduced to one row per key."""
    validate.order_columns(request.dedup_order_by, shape.schema)
    profile = engine.profile(pinned)
    validate.no_null_keys(dict(profile.null_keys))
    if request.strategy is MergeStrategy.DEDUPLICATE and profile.duplicate_keys:
        pinned = engine.deduplicate(pinned, request.dedup_order_by)
        profile = engine.profile(pinned)
    validate.source(profile, shape.keys)
    partitions = _partition_map(target, shape)
    pruned = prune(target.files, shape, profile, partitions)
    if profile.rows == 0:
        pruned = [Pruned(p.footer, (), "the source has no rows", guard=False) for p in pruned]
    match = engine.match(location, pinned, [Scan(p.footer, p.row_groups) for p in pruned if p.row_groups])
    validate.no_moved_keys(match, request.strategy, shape.partitions)
    return _Planned(request, target, shape, partitions, profile, pruned, match), pinned


def _partition_map(target: Target, shape: Shape) -> PartitionMap:
    types = [arrays.plain_type(shape.schema.field(name).type) for name in shape.partitions]
    return PartitionMap.of(target.files, shape.partitions, types)


def _counts(planned: _Planned) -> tuple[int, int, int]:
    """Inserted, updated, deleted."""
    strategy, match = planned.request.strategy, planned.match
    new = planned.profile.rows - match.keys
    if strategy is MergeStrategy.FULL_MERGE:
        return new, match.keys, planned.target.rows - match.keys
    return new if strategy.inserts else 0, match.total if strategy.updates else 0, 0


def _rewrite(
    engine: Engine, location: Location, pinned: Pinned, planned: _Planned, session: Session
) -> tuple[list[Rewritten], list[Staged]]:
    """Write what changes into staging: the files with matched rows, and the new rows."""
    request, full_merge = planned.request, planned.request.strategy is MergeStrategy.FULL_MERGE
    inserted, updated, deleted = _counts(planned)
    if not (inserted or updated or deleted):
        return [], []
    touched = _touched(planned)
    folders = {posixpath.dirname(f.path) for f in touched}
    staging = session.stage(sorted(folders | {""}))
    files = _new_files(planned.target, planned.shape, staging, request.options, request.batch)
    if full_merge and not planned.profile.rows:
        return [], files.write_empty(location, posixpath.dirname(planned.target.files[0].path))
    jobs = (
        [] if full_merge else [_job(engine, location, planned, footer, staging, i) for i, footer in enumerate(touched)]
    )
    rewritten = engine.rewrite(location, pinned, jobs)
    if full_merge:
        return rewritten, engine.insert(location, pinned, files, "all")
    return rewritten, engine.insert(location, pinned, files, "new") if inserted else []


def _touched(planned: _Planned) -> list[Footer]:
    """The files to rewrite: those with matched rows, or all of them."""
    if planned.request.rewrite_mode == "full":
        return list(planned.target.files)
    if not planned.request.strategy.updates:
        return []
    return [f for f in planned.target.files if planned.match.rows_in(f.path)]


def _job(engine: Engine, location: Location, planned: _Planned, footer: Footer, staging: str, number: int) -> Job:
    how = planned.request.replace or (engine.replace if location.storage.renames_atomically else "new_file")
    groups = planned.match.rows.get(footer.path, {}) if planned.request.strategy.updates else {}
    return Job(
        footer,
        touched=tuple(sorted(g for g, n in groups.items() if n)),
        staging=staging,
        staged=f"file-{number:05d}",
        path=footer.path if how == "in_place" else _new_name(footer.path, planned.target),
        template=_template(planned.target),
        fresh=planned.request.options if planned.request.rewrite_mode == "full" else None,
        ledger=ledger.with_batch(planned.target.ledger, planned.request.batch),
    )


def _recorded(
    engine: Engine,
    location: Location,
    planned: _Planned,
    session: Session,
    rewritten: list[Rewritten],
    inserted: Sequence[Staged],
) -> list[Rewritten]:
    """A stream's batch that changed no file is recorded in the smallest one, or a replay could not be told."""
    if planned.request.batch is None or inserted or any(r.staged for r in rewritten) or not planned.target.files:
        return rewritten
    smallest = min(planned.target.files, key=lambda f: f.info.size)
    folder = session.stage([posixpath.dirname(smallest.path)])
    return [stamped_copy(location, _job(engine, location, planned, smallest, folder, 0))]


def _new_name(path: str, target: Target) -> str:
    """`<stem>.fk<8 hex>.parquet`; an earlier `.fk…` part is replaced."""
    stem, dot, suffix = path.rpartition(".")
    name = f"{_OWN_NAME.sub('', stem)}.fk{uuid.uuid4().hex[:8]}{dot}{suffix}"
    if any(f.path == name for f in target.files):
        raise DatasetMergeError(f"{name} exists already; try again.", operation="stage")
    return name


def _new_files(
    target: Target, shape: Shape, staging: str, options: WriteOptions, batch: Batch | None = None
) -> NewFiles:
    entries = ledger.with_batch(target.ledger, batch)
    return NewFiles(shape, _partition_map(target, shape), staging, options, _template(target), entries)


def _template(target: Target) -> Footer | None:
    """A file that has the unified schema already; new files are written like it."""
    if target.schema is None:
        return None
    return next((f for f in reversed(target.files) if target.schema.equals(f.schema) and f.row_groups), None)


def _removed(planned: _Planned, rewritten: Sequence[Rewritten]) -> list[FileInfo]:
    """Old files whose rows now stand under another name."""
    if planned.request.rewrite_mode == "full" and any(_counts(planned)):
        return [f.info for f in planned.target.files]
    moved = {r.path for r in rewritten if r.staged and r.staged[0].path != r.path}
    return [f.info for f in planned.target.files if f.path in moved]


def _check(
    engine: Engine, location: Location, staging: str, staged: Sequence[Staged], result: MergeResult, target: Target
) -> None:
    """Before the commit: do the rows in the staged files' footers add up to the counts?"""
    inside = replace(location, root=staging)
    infos = [FileInfo(s.staged, s.size, 0) for s in staged]
    rows = {f.path: f.rows for f in engine.footers(inside, infos, ())}
    wrong = [s for s in staged if rows[s.staged] != s.rows]
    counted = sum(f.row_count for f in result.files)
    balance = target.rows + result.inserted - result.deleted
    if wrong or counted != result.target_count_after or counted != balance:
        raise DatasetMergeError(
            f"Row counts do not add up: {target.rows} + {result.inserted} - {result.deleted} is not {counted}. "
            "This is a bug in fsspeckit; nothing was changed.",
            operation="check",
        )


def _entry(location: Location, staged: Staged, operation: Literal["rewritten", "inserted"]) -> MergeFileMetadata:
    return MergeFileMetadata(location.show(staged.path), staged.rows, operation, staged.size)


def _result(
    location: Location,
    planned: _Planned,
    rewritten: Sequence[Rewritten],
    inserted: Sequence[Staged],
    removed: Sequence[FileInfo],
) -> MergeResult:
    new, updated, deleted = _counts(planned)
    gone = {f.path for f in removed} | {r.path for r in rewritten if r.staged}
    kept = [f for f in planned.target.files if f.path not in gone]
    files = [_entry(location, s, "rewritten") for r in rewritten for s in r.staged]
    files += [_entry(location, s, "inserted") for s in inserted]
    files += [MergeFileMetadata(location.show(f.path), f.rows, "preserved", f.info.size) for f in kept]
    by = {op: [f.path for f in files if f.operation == op] for op in ("rewritten", "inserted", "preserved")}
    return MergeResult(
        strategy=planned.request.strategy.value,
        source_count=planned.profile.rows,
        target_count_before=planned.target.rows,
        target_count_after=planned.target.rows + new - deleted,
        inserted=new,
        updated=updated,
        deleted=deleted,
        files=files,
        rewritten_files=by["rewritten"],
        inserted_files=by["inserted"],
        preserved_files=by["preserved"],
        removed_files=[location.show(f.path) for f in removed],
    )


def _unchanged(location: Location, target: Target, request: Request) -> MergeResult:
    """The result of a batch that was committed before."""
    files = [MergeFileMetadata(location.show(f.path), f.rows, "preserved", f.info.size) for f in target.files]
    kept = [f.path for f in files]
    return MergeResult(request.strategy.value, 0, target.rows, target.rows, 0, 0, 0, files, preserved_files=kept)


def _describe(location: Location, planned: _Planned) -> MergePlan:
    inserted, updated, deleted = _counts(planned)
    touched = {f.path for f in _touched(planned)}
    return MergePlan(
        strategy=planned.request.strategy.value,
        key_columns=planned.shape.keys,
        partition_columns=planned.shape.partitions,
        source_count=planned.profile.rows,
        target_count_before=planned.target.rows,
        inserted=inserted,
        updated=updated,
        deleted=deleted,
        files=tuple(_file_plan(location, planned, p, p.footer.path in touched) for p in planned.pruned),
        hints=tuple(_hints(planned)),
    )


def _file_plan(location: Location, planned: _Planned, pruned: Pruned, touched: bool) -> FilePlan:
    footer, matched = pruned.footer, planned.match.rows_in(pruned.footer.path)
    scanned = len(pruned.row_groups)
    base = FilePlan(
        location.show(footer.path),
        "prune",
        pruned.reason,
        footer.rows,
        footer.info.size,
        len(footer.row_groups),
        scanned,
        matched,
    )
    if touched:
        return replace(base, action="rewrite", reason=f"{matched} matched row(s)")
    if pruned.guard:
        return replace(base, action="guard")
    return (
        replace(base, action="scan", reason=f"{matched} existing key(s)" if matched else "no key matched")
        if scanned
        else base
    )


def _hints(planned: _Planned) -> list[str]:
    guarded = [p for p in planned.pruned if p.guard]
    if not guarded:
        return []
    size = sum(p.footer.row_groups[g].bytes for p in guarded for g in p.row_groups)
    missing = [c for c in planned.shape.partitions if c not in planned.shape.keys]
    return [
        f"Key columns of {len(guarded)} file(s) in other partitions ({size:,} bytes with all columns) are read only to "
        f"make sure that no key moves. Adding {missing} to the key columns would spare this."
    ]
