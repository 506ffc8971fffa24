"""The subcommands. Large modules are imported when a command runs, so that `--help` is fast."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fsspeckit.cli.columns import key_option
from fsspeckit.cli.compact_options import CompactCommand, compact_options
from fsspeckit.cli.exit_codes import Commands
from fsspeckit.cli.options import (
    Command,
    DeleteCommand,
    MergeCommand,
    check_page_outside,
    delete_options,
    html_option,
    json_option,
    lock_timeout_option,
    merge_options,
    storage_option,
)
from fsspeckit.cli.output import emit, emit_json, reporting, run_facts, save_html, say
from fsspeckit.cli.sources import find, read_sources
from fsspeckit.cli.sql_options import SqlCommand, sql_options
from fsspeckit.cli.tools import demo, doctor, ship, version_option
from fsspeckit.cli.watching import quiet_option, watching
from fsspeckit.cli.write_options import WriteCommand, confirm_removal, write_options

if TYPE_CHECKING:
    from fsspeckit.core.progress import OnProgress
    from fsspeckit.core.reports import MergePlan, MergeResult, WritePlan, WriteResult
    from fsspeckit.datasets.options import MergeOptions
    from fsspeckit.report.summary import Report

_EPILOG = (
    "Exit codes: 0 success; 1 refused, nothing was changed; 2 wrong usage; 3 committed but not finished: do not run it "
    "again, run `fsspeckit recover`; 130 interrupted."
)


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
def cli() -> None:
    """MERGE for plain Parquet: insert, update, upsert and delete rows by key in a directory of Parquet files."""


_dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would happen, but change nothing.")
_compare_option = click.option(
    "--compare", is_flag=True, help="With the plan: also read the matched rows, and show which of them would change."
)


@cli.command(short_help="Merge files into a data set.")
@merge_options
@_dry_run_option
@_compare_option
def merge(command: MergeCommand, dry_run: bool, compare: bool) -> None:
    """Merge SOURCE into the data set TARGET.

    SOURCE is one or more files or patterns (Parquet, Arrow, CSV or JSON lines), folders of Parquet files, or - for
    standard input.
    """
    if compare and not dry_run:
        raise click.UsageError("--compare is for --dry-run: a merge compares rows in any case.")
    if dry_run:
        _plan(command, compare)
        return
    source = read_sources(command.sources, command.storage_options)
    io = command.dataset_io()
    existed = _exists(command.target, command.storage_options)
    started, done = time.perf_counter(), f"The merge into {command.target} is done"
    with command.watching(done) as on_progress:
        options: MergeOptions = {**command.options, "on_progress": on_progress}
        result = io.merge(source, command.target, *command.positional, **options)
    seconds = time.perf_counter() - started
    with reporting(done):
        _note_target(existed, command, future=False)
    _report_result(command, result, seconds, done)


@cli.command(short_help="Show what a merge would do.")
@merge_options
@_compare_option
def plan(command: MergeCommand, compare: bool) -> None:
    """Show what `merge` would do, file by file and with exact counts. Nothing is changed."""
    _plan(command, compare)


def _plan(command: MergeCommand, compare: bool) -> None:
    existed = _exists(command.target, command.storage_options)
    source = read_sources(command.sources, command.storage_options)
    started, io, options = time.perf_counter(), command.dataset_io(), command.plan_options
    with command.watching() as on_progress:
        options |= {"compare": compare, "on_progress": on_progress}
        planned = io.plan(source, command.target, *command.positional, **options)
    _note_target(existed, command, future=True)
    _report_plan(command, planned, started)


@cli.command(short_help="Delete rows by key or by condition.")
@delete_options
@_dry_run_option
def delete(command: DeleteCommand, dry_run: bool) -> None:
    """Delete rows from the data set TARGET, by the keys in a file or by a condition."""
    arguments, io, started = command.arguments(), command.dataset_io(), time.perf_counter()
    if dry_run:
        with command.watching() as on_progress:
            planned = io.plan_delete(command.target, **arguments, on_progress=on_progress)
        _report_plan(command, planned, started)
        return
    done = f"The delete from {command.target} is done"
    _run(command, done, started, lambda on_progress: io.delete(command.target, **arguments, on_progress=on_progress))


def _run(command: Command, done: str, started: float, work: Callable[[OnProgress], MergeResult]) -> None:
    with command.watching(done) as on_progress:
        result = work(on_progress)
    _report_result(command, result, time.perf_counter() - started, done)


@cli.command(short_help="Run a MERGE or DELETE statement.")
@sql_options
@_dry_run_option
def sql(command: SqlCommand, dry_run: bool) -> None:
    """Run STATEMENT, a MERGE INTO or DELETE FROM a data set that exists.

    A statement is refused unless a merge or delete does exactly what it says. The message quotes the clause.
    """
    (command, call), started = command.prepared(), time.perf_counter()
    io, done = command.dataset_io(), f"The statement on {command.target} is done"
    if dry_run:
        with command.watching() as on_progress:
            planned = call.watched(on_progress).plan(io)
        _report_plan(command, planned, started)
        return
    _run(command, done, started, lambda on_progress: call.watched(on_progress).run(io))


@cli.command(short_help="Append rows, or replace all rows or those of some partitions.")
@write_options
@_dry_run_option
@click.option("--yes", is_flag=True, help="Do not ask before rows of the target are removed.")
def write(command: WriteCommand, dry_run: bool, yes: bool) -> None:
    """Write SOURCE into the data set TARGET as new files.

    SOURCE is the same as for `merge`.

    A write that would remove rows asks first. If there is no terminal to ask on, it is refused without --yes.
    """
    from fsspeckit.core.errors import RemovedRowsError

    arguments, io = command.arguments(), command.dataset_io()
    source = read_sources(command.sources, command.storage_options)
    existed, started = _exists(command.target, command.storage_options), time.perf_counter()
    if dry_run:
        with command.watching() as on_progress:
            planned = io.plan_parquet_dataset(source, command.target, **arguments, on_progress=on_progress)
        _note_target(existed, command, future=True)
        _report_plan(command, planned, started)
        return
    done = f"The write into {command.target} is done"

    def run(max_removed_rows: int | None) -> MergeResult | WriteResult:
        with command.watching(done) as on_progress:
            limited = {**arguments, "max_removed_rows": max_removed_rows, "on_progress": on_progress}
            return io.write_parquet_dataset(source, command.target, **limited)

    try:
        result = run(None if yes else 0)
    except RemovedRowsError as refused:
        confirm_removal(command.target, refused.rows)
        started = time.perf_counter()
        # No more rows than the user has agreed to: another writer may have added some in the meantime.
        result = run(refused.rows)
    seconds = time.perf_counter() - started
    with reporting(done):
        _note_target(existed, command, future=False)
    _report_result(command, result, seconds, done)


def _report_result(command: Command, result: MergeResult | WriteResult, seconds: float, done: str) -> None:
    """The change is committed: an error in the report does not change the exit code."""
    from fsspeckit.core.reports import MergeResult
    from fsspeckit.report.terminal import ResultView, WriteResultView

    with reporting(done):
        save_html(result, command.target, command.html, command.engine, seconds)
    with reporting(done):
        if isinstance(result, MergeResult):
            _print(command, result, ResultView(result, command.target, seconds), seconds)
        else:
            _print(command, result, WriteResultView(result, command.target, seconds), seconds)


def _report_plan(command: Command, planned: MergePlan | WritePlan, started: float) -> None:
    from fsspeckit.core.reports import WritePlan
    from fsspeckit.report.terminal import PlanView, WritePlanView

    save_html(planned, command.target, command.html, command.engine, time.perf_counter() - started)
    if isinstance(planned, WritePlan):
        _print(command, planned, WritePlanView(planned, command.target))
    else:
        _print(command, planned, PlanView(planned, command.target))


def _print(command: Command, report: Report, view: Any, seconds: float | None = None) -> None:
    from fsspeckit.report.summary import document

    if command.as_json:
        emit_json({**document(report, command.target), **run_facts(command.engine, seconds)})
    else:
        emit(view)


def _exists(target: str, storage_options: Mapping[str, str]) -> bool:
    location = find(target, storage_options)
    return bool(location.storage.is_dir(location.root))


def _note_target(existed: bool, command: MergeCommand | WriteCommand, *, future: bool) -> None:
    """Mention a target that did not exist: its path may be misspelt."""
    if existed:
        return
    if isinstance(command, MergeCommand) and command.strategy in ("update", "delete"):
        say("Warning", f"{command.target} does not exist; there is nothing to {command.strategy}.")
    elif future or _exists(command.target, command.storage_options):
        verb = "does not exist and would be created" if future else "did not exist and was created"
        advice = (
            " Check the path; --must-exist refuses this." if isinstance(command, MergeCommand) else " Check the path."
        )
        say("Warning", f"{command.target} {verb}: a NEW DATA SET.{advice}")


@cli.command(short_help="Join small files, cut large ones, and sort.")
@compact_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, and change nothing.")
def compact(command: CompactCommand, dry_run: bool) -> None:
    """Rewrite the small files of the data set TARGET as few large ones, partition by partition. No row changes."""
    from fsspeckit.report.compaction import CompactPlanView, CompactResultView

    io, started = command.dataset_io(), time.perf_counter()
    if dry_run:
        with command.watching() as on_progress:
            planned = io.plan_compact(command.target, **command.arguments(on_progress))
        save_html(planned, command.target, command.html, command.engine, time.perf_counter() - started)
        _print(command, planned, CompactPlanView(planned, command.target))
        return
    done = f"The compaction of {command.target} is done"
    with command.watching(done) as on_progress:
        result = io.compact(command.target, **command.arguments(on_progress))
    seconds = time.perf_counter() - started
    with reporting(done):
        save_html(result, command.target, command.html, command.engine, seconds)
        _print(command, result, CompactResultView(result, command.target, seconds))


@cli.command(short_help="Describe a data set.")
@click.argument("target")
@key_option(help="Show the range of these columns in each file.")
@storage_option
@json_option
@html_option
def inspect(
    target: str, keys: tuple[str, ...], storage_options: dict[str, str], as_json: bool, html: str | None
) -> None:
    """Show the files, rows, sizes, row groups, partitions, codecs and key ranges of the data set TARGET."""
    from fsspeckit.report.inspection import inspect as inspect_dataset
    from fsspeckit.report.summary import document
    from fsspeckit.report.terminal import InspectionView

    check_page_outside(html, target)
    inspection = inspect_dataset(target, keys, storage_options=storage_options)
    save_html(inspection, target, html)
    if inspection.unfinished:
        say(
            "Warning",
            f"unfinished commit in {target}; rows may be missing or doubled until "
            f"`fsspeckit recover {shlex.quote(target)}`.",
        )
    if as_json:
        emit_json({**document(inspection, target), **run_facts()})
    else:
        emit(InspectionView(inspection))


@cli.command(short_help="Finish or abandon an interrupted commit.")
@click.argument("target")
@lock_timeout_option
@storage_option
@click.option("--forget-stream", metavar="NAME", help="Forget a stream that has been idle for seven days.")
@json_option
@click.option("--finish", is_flag=True, help="Apply the recorded commit even though files have changed since.")
@click.option("--discard", is_flag=True, help="Abandon the recorded commit, and list files that it has replaced.")
def recover(
    target: str,
    lock_timeout: float,
    storage_options: dict[str, str],
    forget_stream: str | None,
    as_json: bool,
    finish: bool,
    discard: bool,
) -> None:
    """Finish an interrupted commit in the data set TARGET, and remove temporary files of writers that were killed.

    If the files have changed since the commit was recorded, nothing is done: the differences are listed, and you choose
    between --finish and --discard.
    """
    from fsspeckit import api
    from fsspeckit.core.errors import ArgumentError

    done = api.recover(
        target,
        lock_timeout=lock_timeout,
        storage_options=storage_options,
        finish=finish,
        discard=discard,
        forget_stream=forget_stream,
    )
    if not done and not _exists(target, storage_options):
        raise ArgumentError(f"{target} does not exist.")
    with reporting(f"The recovery of {target} is done"):
        if as_json:
            emit_json({"target": target, "done": done, **run_facts()})
        else:
            click.echo("\n".join(done) or f"Nothing to recover in {target}.")


@cli.command(short_help="Undo the last undoable merge, delete, write or compaction.")
@click.argument("target")
@lock_timeout_option
@storage_option
@quiet_option
@json_option
def undo(target: str, lock_timeout: float, storage_options: dict[str, str], quiet: bool, as_json: bool) -> None:
    """Put back the files that the last undoable commit to the data set TARGET replaced or removed (see --undoable).

    If the data set has changed since, nothing is done, and the changes are reported.
    """
    from dataclasses import asdict

    from fsspeckit import commits
    from fsspeckit.report.summary import count

    done = f"The undo of the last commit to {target} is done"
    options: dict[str, Any] = {"lock_timeout": lock_timeout, "storage_options": storage_options}
    with watching(done, quiet=quiet, as_json=as_json) as on_progress:
        undone = commits.undo(target, **options, on_progress=on_progress)
    with reporting(done):
        if as_json:
            fields = {**asdict(undone), "committed_at": undone.committed_at.isoformat()}
            emit_json({"target": target, **fields, **run_facts()})
        else:
            put_back, removed = count(len(undone.restored_files), "file"), count(len(undone.removed_files), "file")
            when = f"{undone.committed_at:%Y-%m-%d %H:%M:%S} UTC"
            click.echo(f"Undid the {undone.operation} of {when}: {put_back} put back, {removed} removed.")


@cli.command(short_help="List the commits that can be undone, and drop old ones.")
@click.argument("target")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Drop all but the last N, with the files they kept.")
@click.option("--older-than", metavar="AGE", help="Drop those that are older, e.g. 7d, 12h or 30m.")
@lock_timeout_option
@storage_option
@json_option
def history(
    target: str,
    keep: int | None,
    older_than: str | None,
    lock_timeout: float,
    storage_options: dict[str, str],
    as_json: bool,
) -> None:
    """List the undoable commits to the data set TARGET, the latest first: time, strategy, counts and kept size."""
    from dataclasses import asdict

    from fsspeckit import commits
    from fsspeckit.core.dataset.listing import no_dataset
    from fsspeckit.report.summary import kept_commit_line

    limits: dict[str, Any] = {"keep": keep, "older_than": older_than}
    listed = commits.history(target, lock_timeout=lock_timeout, storage_options=storage_options, **limits)
    if not listed and not _exists(target, storage_options):
        raise no_dataset(find(target, storage_options))
    drops = keep is not None or older_than is not None
    with reporting(f"Old commits to {target} are dropped") if drops else contextlib.nullcontext():
        if as_json:
            fields = [{**asdict(commit), "committed_at": commit.committed_at.isoformat()} for commit in listed]
            emit_json({"target": target, "commits": fields, **run_facts()})
        else:
            click.echo("\n".join(map(kept_commit_line, listed)) or f"{target} has no commit that can be undone.")


for _command in (ship, demo, doctor):
    cli.add_command(_command)
