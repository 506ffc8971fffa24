"""The subcommands. Everything heavy is imported when a command runs, so that `--help` answers at once."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fsspeckit import __version__
from fsspeckit.cli.group import Commands, say
from fsspeckit.cli.options import ENGINES, MergeCommand, merge_options, storage_option
from fsspeckit.cli.output import emit, emit_json, save_html
from fsspeckit.cli.sources import find, read_sources
from fsspeckit.core import defaults

if TYPE_CHECKING:
    from fsspeckit.core.model import MergePlan, MergeResult
    from fsspeckit.report.terminal import PlanView, ResultView

_EPILOG = (
    "Exit codes: 0 done, 1 refused (the data set is as it was), 2 wrong usage, 3 recorded but not finished (do not "
    "repeat it: run `fsspeckit recover`), 130 interrupted."
)


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fsspeckit", message="%(prog)s %(version)s")
def cli() -> None:
    """MERGE for plain Parquet: insert, update and upsert rows by key into a directory of Parquet files."""


@cli.command(short_help="Merge Parquet files into a data set.")
@merge_options
@click.option("--dry-run", is_flag=True, help="Only plan: show what would happen and change nothing.")
def merge(command: MergeCommand, dry_run: bool) -> None:
    """Merge SOURCE (Parquet files or folders, or - for standard input) into the data set TARGET."""
    if dry_run:
        _plan(command)
        return
    from fsspeckit.report.terminal import ResultView

    source = read_sources(command.sources, command.storage_options)
    io = command.dataset_io()
    existed = _exists(command.target, command.storage_options)
    started = time.perf_counter()
    result = io.merge(source, command.target, *command.asked, **command.options)
    seconds = time.perf_counter() - started
    _show(command, existed, result, ResultView(result, command.target, seconds))


@cli.command(short_help="Show what a merge would do; change nothing.")
@merge_options
def plan(command: MergeCommand) -> None:
    """Show what `merge` would do, file by file and with exact counts, and change nothing."""
    _plan(command)


def _plan(command: MergeCommand) -> None:
    from fsspeckit.report.terminal import PlanView

    existed = _exists(command.target, command.storage_options)
    source = read_sources(command.sources, command.storage_options)
    zone = command.options.get("partition_timezone")
    planned = command.dataset_io().plan(source, command.target, *command.asked, partition_timezone=zone)
    _show(command, existed, planned, PlanView(planned, command.target))


def _show(command: MergeCommand, existed: bool, report: MergePlan | MergeResult, view: PlanView | ResultView) -> None:
    from fsspeckit.core.model import MergePlan
    from fsspeckit.report.serial import document

    if command.html:
        save_html(report, command.target, command.html)
    _note_target(existed, command, future=isinstance(report, MergePlan))
    if command.as_json:
        emit_json(document(report, command.target))
    else:
        emit(view)


def _exists(target: str, storage_options: Mapping[str, str]) -> bool:
    location = find(target, storage_options)
    return bool(location.storage.is_dir(location.root))


def _note_target(existed: bool, command: MergeCommand, *, future: bool) -> None:
    """A target that was not there may be a slip of the pen."""
    if existed:
        return
    if command.strategy == "update":
        say("Warning", f"{command.target} does not exist; there is nothing to update.")
    elif future or _exists(command.target, command.storage_options):
        say("Note", f"{command.target} {'does not exist and would be' if future else 'did not exist and was'} created.")


@cli.command(short_help="Show what a data set is made of.")
@click.argument("target")
@click.option("-k", "--key", "keys", multiple=True, help="Show the range of this column, which pruning goes by.")
@storage_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def inspect(target: str, keys: tuple[str, ...], storage_options: dict[str, str], as_json: bool) -> None:
    """Show files, rows, sizes, row groups, partitions, codecs and key ranges of the data set TARGET."""
    from fsspeckit.report.inspection import inspect as look
    from fsspeckit.report.serial import document
    from fsspeckit.report.terminal import InspectionView

    seen = look(target, keys, storage_options=storage_options)
    if seen.unfinished:
        say(
            "Warning",
            f"unfinished commit in {target}; rows may be missing or doubled until "
            f"`fsspeckit recover {shlex.quote(target)}`.",
        )
    if as_json:
        emit_json(document(seen, target))
    else:
        emit(InspectionView(seen))


@cli.command(short_help="Finish or undo what a killed writer left.")
@click.argument("target")
@click.option(
    "--lock-timeout", type=click.FloatRange(0), default=defaults.LOCK_TIMEOUT, show_default=True, metavar="SECONDS"
)
@storage_option
@click.option("--forget-stream", metavar="NAME", help="Also drop the record of a stream that ended a week ago or more.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.option("--finish", is_flag=True, help="Carry a recorded commit out although files have changed since.")
@click.option("--discard", is_flag=True, help="Give a recorded commit up; says which files stay half done.")
def recover(
    target: str,
    lock_timeout: float,
    storage_options: dict[str, str],
    forget_stream: str | None,
    as_json: bool,
    finish: bool,
    discard: bool,
) -> None:
    """Finish or clear away what a killed writer left in the data set TARGET.

    A recorded commit is finished if every file is as it expects; else nothing is changed, what was found is told, and
    --finish or --discard decides.
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
    if as_json:
        emit_json({"target": target, "done": done})
    else:
        click.echo("\n".join(done) or f"Nothing to recover in {target}.")


@cli.command(short_help="Make the zip that Spark's executors need.")
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
def ship(file: str) -> None:
    """Write the zip FILE for Spark's --py-files or addArtifacts, for executors that do not have fsspeckit."""
    from fsspeckit.ship import make_zip

    size = make_zip(file)
    click.echo(f"Wrote {file}, {size / 1e6:.1f} MB. Executors also need pyarrow, numpy and pandas in their Python.")


@cli.command(short_help="Build a sample lake and merge into it.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Only this engine; may be repeated."
)
@click.option("--keep", metavar="FOLDER", type=click.Path(file_okay=False), help="Build the lake here and leave it.")
def demo(**options: Any) -> None:
    """Build a small sample lake, plan a merge, run it, and show what happened."""
    from fsspeckit.cli.demo import run

    run(**options)
