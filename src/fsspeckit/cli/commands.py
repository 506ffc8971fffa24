"""The subcommands. Large modules are imported when a command runs, so that `--help` is fast."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fsspeckit.cli.columns import key_option
from fsspeckit.cli.compact_options import CompactCommand, compact_options
from fsspeckit.cli.exit_codes import Commands
from fsspeckit.cli.options import (
    ENGINES,
    Command,
    DeleteCommand,
    MergeCommand,
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
from fsspeckit.cli.version import version_option
from fsspeckit.cli.write_options import WriteCommand, write_options

if TYPE_CHECKING:
    from fsspeckit.core.reports import MergePlan, MergeResult, WritePlan, WriteResult
    from fsspeckit.report.summary import Report

_EPILOG = (
    "Exit codes: 0 success; 1 refused, nothing was changed; 2 wrong usage; 3 committed but not finished: do not run it "
    "again, run `fsspeckit recover`; 130 interrupted."
)


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
def cli() -> None:
    """MERGE for plain Parquet: insert, update, upsert and delete rows by key in a directory of Parquet files."""


@cli.command(short_help="Merge files into a data set.")
@merge_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, but change nothing.")
def merge(command: MergeCommand, dry_run: bool) -> None:
    """Merge SOURCE into the data set TARGET.

    SOURCE is one or more files or patterns (Parquet, Arrow, CSV or JSON lines), folders of Parquet files, or - for
    standard input.
    """
    if dry_run:
        _plan(command)
        return
    source = read_sources(command.sources, command.storage_options)
    io = command.dataset_io()
    existed = _exists(command.target, command.storage_options)
    started = time.perf_counter()
    result = io.merge(source, command.target, *command.positional, **command.options)
    seconds = time.perf_counter() - started
    with reporting(f"The merge into {command.target} is done"):
        _note_target(existed, command, future=False)
    _report_result(command, result, seconds, f"The merge into {command.target} is done")


@cli.command(short_help="Show what a merge would do.")
@merge_options
def plan(command: MergeCommand) -> None:
    """Show what `merge` would do, file by file and with exact counts. Nothing is changed."""
    _plan(command)


def _plan(command: MergeCommand) -> None:
    existed = _exists(command.target, command.storage_options)
    source = read_sources(command.sources, command.storage_options)
    started = time.perf_counter()
    planned = command.dataset_io().plan(source, command.target, *command.positional, **command.plan_options)
    _note_target(existed, command, future=True)
    _report_plan(command, planned, started)


@cli.command(short_help="Delete rows by key or by condition.")
@delete_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, but change nothing.")
def delete(command: DeleteCommand, dry_run: bool) -> None:
    """Delete rows from the data set TARGET, by the keys in a file or by a condition."""
    arguments, io, started = command.arguments(), command.dataset_io(), time.perf_counter()
    if dry_run:
        _report_plan(command, io.plan_delete(command.target, **arguments), started)
        return
    result = io.delete(command.target, **arguments)
    _report_result(command, result, time.perf_counter() - started, f"The delete from {command.target} is done")


@cli.command(short_help="Run a MERGE or DELETE statement.")
@sql_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, but change nothing.")
def sql(command: SqlCommand, dry_run: bool) -> None:
    """Run STATEMENT, a MERGE INTO or DELETE FROM a data set that exists.

    Statements that are not exactly a merge with some options are refused, with the clause that is not.
    """
    (command, call), started = command.prepared(), time.perf_counter()
    if dry_run:
        _report_plan(command, call.plan(command.dataset_io()), started)
        return
    result = call.run(command.dataset_io())
    _report_result(command, result, time.perf_counter() - started, f"The statement on {command.target} is done")


@cli.command(short_help="Append rows, or replace all rows or those of some partitions.")
@write_options
@click.option("--dry-run", is_flag=True, help="Show what would happen, but change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before rows of the target are removed.")
def write(command: WriteCommand, dry_run: bool, yes: bool) -> None:
    """Write SOURCE into the data set TARGET as new files.

    SOURCE is as in `merge`.

    A write that would remove rows asks first. Where it cannot ask, it is refused without --yes.
    """
    from fsspeckit.core.errors import RemovedRowsError

    arguments, io = command.arguments(), command.dataset_io()
    source = read_sources(command.sources, command.storage_options)
    existed, started = _exists(command.target, command.storage_options), time.perf_counter()
    if dry_run:
        planned = io.plan_parquet_dataset(source, command.target, **arguments)
        _note_target(existed, command, future=True)
        _report_plan(command, planned, started)
        return
    try:
        result = io.write_parquet_dataset(source, command.target, max_removed_rows=None if yes else 0, **arguments)
    except RemovedRowsError as refused:
        _confirm_removal(command.target, refused.rows)
        started = time.perf_counter()
        # No more rows than the user has agreed to: another writer may have added some in the meantime.
        result = io.write_parquet_dataset(source, command.target, max_removed_rows=refused.rows, **arguments)
    seconds, done = time.perf_counter() - started, f"The write into {command.target} is done"
    with reporting(done):
        _note_target(existed, command, future=False)
    _report_result(command, result, seconds, done)


def _confirm_removal(target: str, rows: int | None) -> None:
    """Ask on a terminal whether rows may be removed; elsewhere refuse."""
    from fsspeckit.core.errors import ArgumentError
    from fsspeckit.report.summary import count

    removed = "an unknown number of rows (a file cannot be read)" if rows is None else count(rows, "row")
    sentence = f"This write would remove {removed} of {target}."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ArgumentError(f"{sentence} Nothing was changed. Add --yes to remove them, --dry-run to see the files.")
    click.confirm(f"{sentence} Go on?", abort=True, err=True)


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
        planned = io.plan_compact(command.target, **command.arguments())
        save_html(planned, command.target, command.html, command.engine, time.perf_counter() - started)
        _print(command, planned, CompactPlanView(planned, command.target))
        return
    result = io.compact(command.target, **command.arguments())
    seconds = time.perf_counter() - started
    with reporting(f"The compaction of {command.target} is done"):
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
@json_option
def undo(target: str, lock_timeout: float, storage_options: dict[str, str], as_json: bool) -> None:
    """Put back the files that the last undoable commit to the data set TARGET replaced or removed (see --undoable).

    If the data set has changed since, nothing is done, and the changes are reported.
    """
    from dataclasses import asdict

    from fsspeckit import commits
    from fsspeckit.report.summary import count

    undone = commits.undo(target, lock_timeout=lock_timeout, storage_options=storage_options)
    with reporting(f"The undo of the last commit to {target} is done"):
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
    """List the undoable commits to the data set TARGET, the last one first: time, strategy, counts and kept size."""
    from dataclasses import asdict

    from fsspeckit import commits
    from fsspeckit.core.errors import ArgumentError
    from fsspeckit.report.summary import kept_commit_line

    limits: dict[str, Any] = {"keep": keep, "older_than": older_than}
    listed = commits.history(target, lock_timeout=lock_timeout, storage_options=storage_options, **limits)
    if not listed and not _exists(target, storage_options):
        raise ArgumentError(f"{target} does not exist.")
    drops = keep is not None or older_than is not None
    with reporting(f"Old commits to {target} are dropped") if drops else contextlib.nullcontext():
        if as_json:
            fields = [{**asdict(commit), "committed_at": commit.committed_at.isoformat()} for commit in listed]
            emit_json({"target": target, "commits": fields, **run_facts()})
        else:
            click.echo("\n".join(map(kept_commit_line, listed)) or f"{target} has no commit that can be undone.")


@cli.command(short_help="Build the zip for Spark executors.")
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
def ship(file: str) -> None:
    """Build FILE, a zip of fsspeckit for Spark's --py-files or addArtifacts."""
    from fsspeckit.ship import make_zip

    size = make_zip(file)
    click.echo(f"Wrote {file}, {size / 1e6:.1f} MB. Executors also need pyarrow, numpy and pandas in their Python.")


@cli.command(short_help="Build a sample lake and merge into it.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Use only this engine. May be repeated."
)
@click.option(
    "--keep", metavar="FOLDER", type=click.Path(file_okay=False), help="Build the lake in this folder, and keep it."
)
def demo(**options: Any) -> None:
    """Build a small sample lake, plan a merge, run it, and show what happened."""
    from fsspeckit.cli.demo import run

    run(**options)


@cli.command(short_help="Check the installation.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Check only this engine. May be repeated."
)
@json_option
def doctor(engines: tuple[str, ...], as_json: bool) -> None:
    """Check Python, packages, Java, memory, the cache and every engine. Each problem comes with a fix."""
    from fsspeckit.cli.doctor import run

    run(engines or ENGINES, as_json)
