"""Write the changes of a merge into staging: rewritten files, new files, and files that take new types."""

from __future__ import annotations

import posixpath
from collections.abc import Container, Mapping, Sequence

from fsspeckit.core.commit.session import Session
from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.target import (
    evolved_template,
    files_of_other_types,
    new_file_options,
    partition_map,
    template,
)
from fsspeckit.core.engine import Engine
from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.execution_plan import ExecutionPlan, Request
from fsspeckit.core.match.hits import Hits, MatchResult
from fsspeckit.core.model import FileInfo, Footer, Match, Replace, Rewritten, Shape, Staged, Target
from fsspeckit.core.rewrite.append import APPEND_BYTES, append_rows, files_to_append_to
from fsspeckit.core.rewrite.compare import Comparison
from fsspeckit.core.rewrite.files import compare_files, new_name, rewrite_files
from fsspeckit.core.rewrite.inserts import NewFiles, insert_rows
from fsspeckit.core.rewrite.job import Job
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Location

# When every eighth file is rewritten, its keys are read again and compared: a wrong match would concern many files.
_VERIFY_EVERY = 8


def write_changes(
    engine: Engine, location: Location, planned: ExecutionPlan, session: Session
) -> tuple[list[Rewritten], list[Staged]]:
    """Write rewritten files and new rows into staging."""
    request, counts, spool, hits = planned.request, planned.counts, planned.spool, planned.matched.hits
    if not counts:
        return [], []
    touched = planned.touched
    folders = {posixpath.dirname(f.path) for f in [*touched, *planned.brought_along]}
    staging = session.stage(sorted(folders | {""}))
    files = new_files(engine, location, planned.target, planned.shape, staging, request)
    if request.actions.replaces_target:
        if not spool.rows:
            return [], files.write_empty(location, posixpath.dirname(planned.target.files[0].path))
        return [], insert_rows(engine, location, spool, None, spool.rows, files)
    replace = replacing(engine, location, request.replace)
    if request.schema.evolve:
        check_free_space(location, staging, [*touched, *planned.brought_along])
    jobs = _jobs(planned, files, replace)
    rewritten = rewrite_files(engine, location, planned.shape, spool, planned.matched, jobs)
    written = {job.footer.path for job in jobs}
    rewritten += [Rewritten(path, (), removed=True) for path in sorted(planned.emptied) if path not in written]
    append_to: dict[str, Footer] = {}
    if request.small_files == "append" and not (planned.retyped or planned.added):
        append_to = _append_to(planned, files, written | {r.path for r in rewritten})
    if append_to:
        session.stage(sorted(append_to))
        appended, inserted = append_rows(engine, location, spool, hits, counts.new_rows, files, append_to)
        rewritten += appended
    else:
        inserted = insert_rows(engine, location, spool, hits, counts.new_rows, files)
    done = {r.path for r in rewritten if r.staged or r.removed}
    if done or inserted or planned.evolves_all:
        retyped, added = planned.retyped, planned.added_to_all
        others = [f for f in files_of_other_types(planned.target, planned.shape, retyped, added) if f.path not in done]
        rewritten += retype(engine, location, spool, files, others, retyped, added, replace)
    if done and not inserted and not any(r.staged for r in rewritten):
        copied = ledger.file_to_copy([f for f in planned.target.files if f.path not in done], files.ledger)
        if copied is not None:  # no file would record what streams have committed
            session.stage([posixpath.dirname(copied.path)])
            rewritten += retype(engine, location, spool, files, [copied], frozenset(), {}, replace)
    return rewritten, inserted


def compare_changes(engine: Engine, location: Location, planned: ExecutionPlan) -> dict[str, Comparison]:
    """What a merge would find when it rewrites the files with matched rows, by their paths; nothing is written."""
    request = planned.request
    if not planned.counts:
        return {}
    files = new_files(engine, location, planned.target, planned.shape, "", request)
    jobs = _jobs(planned, files, replacing(engine, location, request.replace))
    compared = compare_files(engine, location, planned.shape, planned.spool, planned.matched, jobs) if jobs else []
    by_path = {comparison.path: comparison for comparison in compared}
    return {path: by_path.get(path, Comparison(path, True)) for path in [*by_path, *planned.emptied]}


def work_of(planned: ExecutionPlan) -> tuple[int, int]:
    """How many files are rewritten, and about how many bytes of old files and new rows that takes."""
    counts, spool, files = planned.counts, planned.spool, list[Footer]()
    if counts and not planned.request.actions.replaces_target:
        files = [f for f in planned.touched if f.path not in planned.emptied] + planned.brought_along
    new_rows = planned.profile.rows if planned.request.actions.replaces_target else counts.new_rows
    new_bytes = spool.bytes * new_rows // max(1, spool.rows)
    return len(files), sum(footer.info.size for footer in files) + new_bytes


def _append_to(planned: ExecutionPlan, files: NewFiles, changed: Container[str]) -> dict[str, Footer]:
    """The files that few new rows are appended to; many rows make files of their own."""
    spool = planned.spool
    few = 0 < spool.bytes * planned.counts.new_rows <= APPEND_BYTES * max(1, spool.rows)
    return files_to_append_to(planned.target, files, changed) if few else {}


def _jobs(planned: ExecutionPlan, files: NewFiles, replace: Replace) -> list[Job]:
    """The files to rewrite. Files that lose all rows are removed, except the last file of the data set."""
    emptied = planned.emptied
    keeps_no_file = len(emptied) == len(planned.target.files) and not planned.counts.new_rows
    kept = None
    if keeps_no_file:  # PyArrow cannot read a data set whose only partition value is null
        kept = min(planned.touched_numbers, key=lambda n: None in planned.target.files[n].partition.values())
    numbers = [n for n in planned.touched_numbers if planned.target.files.infos[n].path not in emptied or n == kept]
    return [_job(planned, files, replace, number, n, n == kept) for number, n in enumerate(numbers)]


def _job(planned: ExecutionPlan, files: NewFiles, replace: Replace, number: int, file: int, keep_empty: bool) -> Job:
    request, footer, changed = planned.request, planned.target.files[file], planned.changed_groups(file)
    return Job(
        footer,
        changed_groups=tuple(changed),
        staging=files.staging,
        staged=f"file-{number:05d}",
        path=footer.path if replace == "in_place" else new_name(footer.path),
        template=files.template,
        as_new_files=files.options if request.rewrite_mode == "full" else None,
        ledger=files.ledger,
        verify_keys=number % _VERIFY_EVERY == 0,
        retyped=planned.retyped,
        added=planned.added,
        deletes=any(rows.deleted for rows in changed.values()),
        deleted_groups=frozenset(g for g, rows in changed.items() if rows.deleted == footer.row_groups[g].rows),
        delete_missing=planned.deletes_missing(file),
        row_filter=planned.row_filter,
        keep_empty=keep_empty,
    )


def new_files(
    engine: Engine, location: Location, target: Target, shape: Shape, staging: str, request: Request
) -> NewFiles:
    entries, layout = ledger.with_batch(target.ledger, request.batch), template(target, shape)
    partitions = partition_map(target, shape)
    options = new_file_options(location, target, layout, request.options, engine.compression)
    evolved = evolved_template(target, shape) if request.schema.evolve else None
    actions, progress = request.actions, engine.progress
    return NewFiles(shape, partitions, staging, options, layout, entries, actions, evolved, progress)


def retype(
    engine: Engine,
    location: Location,
    spool: Spool,
    files: NewFiles,
    footers: Sequence[Footer],
    columns: frozenset[str],
    added: Mapping[str, Footer | None],
    replace: Replace,
) -> list[Rewritten]:
    """Rewrite files with the common type of some columns, and with columns that they lack; no row changes."""
    jobs = [
        Job(
            footer,
            changed_groups=(),
            staging=files.staging,
            staged=f"type-{number:05d}",
            path=footer.path if replace == "in_place" else new_name(footer.path),
            template=files.template,
            ledger=files.ledger,
            retyped=columns,
            added=added,
            keeps_rows=True,
        )
        for number, footer in enumerate(footers)
    ]
    no_hits = MatchResult(Match({}, 0), Hits(spool.store, (), {}))
    return rewrite_files(engine, location, files.shape, spool, no_hits, jobs) if jobs else []


def read_staged(
    engine: Engine, staging: Location, staged: Sequence[Staged], columns: Sequence[str] = ()
) -> tuple[Sequence[Footer], bool]:
    """The footers of staged files, and whether they have as many rows as were written.

    A file with a receipt cannot be read before the commit. Its writer has checked its footer (`receipt_of`).
    """
    readable = [s for s in staged if s.receipt is None]
    infos = [FileInfo(s.staged, s.size, 0) for s in readable]
    footers = engine.footers(staging, infos, columns) if infos else ()
    rows = {footer.path: footer.rows for footer in footers}
    return footers, all(rows[s.staged] == s.rows for s in readable)


def check_free_space(location: Location, staging: str, footers: Sequence[Footer]) -> None:
    """Refuse a schema change that would fill the disk. Rewritten files are about as large as the old ones."""
    needed, free = sum(footer.info.size for footer in footers), location.storage.free_bytes(staging)
    if free is not None and needed > free:
        raise SchemaMismatchError(
            f"The schema change rewrites {needed:,} bytes of files, and the disk has {free:,} bytes free. Free some "
            "space, or let only files with changed rows get new columns (evolve_files='touched'). Nothing was changed."
        )


def replacing(engine: Engine, location: Location, requested: Replace | None = None) -> Replace:
    return requested or (engine.replace if location.storage.renames_atomically else "new_file")
