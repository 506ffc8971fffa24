"""The options of `fsspeckit compact`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fsspeckit.cli.columns import list_or_none
from fsspeckit.cli.options import (
    ENGINE_OPTIONS,
    REPORT_OPTIONS,
    Command,
    add_options,
    gathered,
    lock_timeout_option,
    undoable_option,
)
from fsspeckit.cli.write_options import parse_partition
from fsspeckit.datasets.options import CompactOptions

if TYPE_CHECKING:
    from fsspeckit.core.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class CompactCommand(Command):
    """A compaction as the command line describes it; `options` are those of `DatasetIO.compact`."""

    only: tuple[str, ...]
    options: CompactOptions

    def arguments(self, on_progress: OnProgress) -> CompactOptions:
        """The options of `DatasetIO.compact` and `plan_compact`."""
        if not self.only:
            return {**self.options, "on_progress": on_progress}
        return {**self.options, "on_progress": on_progress, "partitions": [parse_partition(text) for text in self.only]}


_OPTIONS = [
    click.argument("target"),
    click.option("--target-size", metavar="SIZE", default="256MB", show_default=True, help="Approximate file size."),
    click.option(
        "--sort-by",
        metavar="COLUMN",
        multiple=True,
        callback=list_or_none,
        help="Sort the rows of each partition by this column. May be repeated.",
    ),
    click.option(
        "--partition",
        "only",
        metavar="K=V",
        multiple=True,
        help="Only this partition, e.g. day=2026-01-01, or year=2026/month=1. May be repeated.",
    ),
    lock_timeout_option,
    undoable_option,
    *ENGINE_OPTIONS,
    *REPORT_OPTIONS,
]


def compact_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a compaction to a command, which gets them as one `CompactCommand`."""
    return add_options(_OPTIONS, gathered(command, CompactCommand, CompactOptions))
