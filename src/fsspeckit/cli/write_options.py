"""The options of `fsspeckit write`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import click

from fsspeckit.cli.columns import key_option, split_columns
from fsspeckit.cli.options import (
    ENGINE_OPTIONS,
    NEW_FILE_OPTIONS,
    REPORT_OPTIONS,
    TIMEZONE_OPTIONS,
    Command,
    add_options,
    gathered,
    lock_timeout_option,
    undoable_option,
)
from fsspeckit.cli.row_options import SCHEMA_OPTIONS
from fsspeckit.datasets.options import NewFileOptions

WriteMode = Literal["append", "overwrite", "overwrite_partitions", "full_merge"]


@dataclass(frozen=True, kw_only=True)
class WriteCommand(Command):
    """A write as the command line describes it; `options` are those of `DatasetIO.write_parquet_dataset`."""

    sources: tuple[str, ...]
    mode: WriteMode
    keys: tuple[str, ...]
    partition_by: tuple[str, ...]
    partitions: tuple[str, ...]
    options: NewFileOptions

    def arguments(self) -> dict[str, Any]:
        """The arguments of `DatasetIO.write_parquet_dataset` and `plan_parquet_dataset`."""
        if self.mode == "full_merge" and not self.keys:
            raise click.UsageError("--mode full_merge needs the key columns (-k).")
        if self.mode != "full_merge" and self.keys:
            raise click.UsageError("-k is for --mode full_merge; leave it out.")
        if self.mode != "overwrite_partitions" and self.partitions:
            raise click.UsageError("--partition is for --mode overwrite_partitions; leave it out.")
        arguments: dict[str, Any] = {**self.options, "partition_columns": list(self.partition_by) or None}
        if self.mode == "full_merge":
            return {**arguments, "strategy": self.mode, "key_columns": list(self.keys)}
        return {**arguments, "mode": self.mode, "partitions": [*map(parse_partition, self.partitions)] or None}


def parse_partition(text: str) -> dict[str, str | None]:
    """A partition as its folders spell it.

    >>> parse_partition("day=2026-01-01"), parse_partition("year=2026/month=01/")
    ({'day': '2026-01-01'}, {'year': '2026', 'month': '01'})
    """
    from fsspeckit.core.dataset.partitions import parse_hive_partition_path

    folders = text.strip("/").split("/")
    partition = parse_hive_partition_path("/".join([*folders, "file"]))
    if len(partition) < len(folders):
        raise click.UsageError(f"--partition {text} is not of the form column=value or column=value/column=value.")
    return partition


_WRITE_OPTIONS = [
    click.argument("sources", metavar="SOURCE...", nargs=-1, required=True),
    click.argument("target"),
    click.option(
        "-m",
        "--mode",
        type=click.Choice(get_args(WriteMode)),
        default="append",
        show_default=True,
        help="append adds files, overwrite replaces all data files, overwrite_partitions replaces those of the "
        "source's partitions, full_merge makes the target equal to the source, by key.",
    ),
    key_option(help="With full_merge: the columns that identify a row."),
    click.option(
        "--partition",
        "partitions",
        metavar="COLUMN=VALUE",
        multiple=True,
        help="With overwrite_partitions: a partition to replace, e.g. day=2026-01-01 or year=2026/month=01, as its "
        "folders spell it. Rows of other partitions are refused; without rows it becomes empty. May be repeated.",
    ),
    click.option(
        "--partition-by",
        metavar="COLUMNS",
        multiple=True,
        callback=split_columns,
        help="The partition columns of a new data set. Those of an existing one are detected.",
    ),
    *SCHEMA_OPTIONS,
    *ENGINE_OPTIONS,
    *NEW_FILE_OPTIONS,
    lock_timeout_option,
    undoable_option,
    *TIMEZONE_OPTIONS,
    *REPORT_OPTIONS,
]


def confirm_removal(target: str, rows: int | None) -> None:
    """Ask on a terminal whether rows may be removed; elsewhere refuse."""
    from fsspeckit.core.errors import ArgumentError
    from fsspeckit.report.summary import count

    removed = "an unknown number of rows (a file cannot be read)" if rows is None else count(rows, "row")
    sentence = f"This write would remove {removed} of {target}."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ArgumentError(f"{sentence} Nothing was changed. Add --yes to remove them, --dry-run to see the files.")
    click.confirm(f"{sentence} Go on?", abort=True, err=True)


def write_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a write to a command, which gets them as one `WriteCommand`."""
    return add_options(_WRITE_OPTIONS, gathered(command, WriteCommand, NewFileOptions, skip=("partition_by",)))
