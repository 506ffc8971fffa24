"""The progress bar of a command, and what Ctrl-C says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fsspeckit.core.progress import OnProgress, ProgressEvent

_DONE = "fsspeckit.done"

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress bar.")


@contextlib.contextmanager
def watching(done: str | None, *, quiet: bool, as_json: bool) -> Iterator[OnProgress]:
    """The `on_progress` of one operation: a bar on standard error, if that is a terminal.

    `done` is what Ctrl-C says after the operation; `None` if it changes nothing.
    """
    from fsspeckit.report.progress_bar import TerminalBar, progress_bar

    bar = None if quiet or as_json else progress_bar()
    meta = click.get_current_context().find_root().meta

    def on_progress(event: ProgressEvent) -> None:
        if event.phase == "done" and done is not None:
            meta[_DONE] = done
        if bar is not None:
            bar(event)

    try:
        yield on_progress
    finally:
        if isinstance(bar, TerminalBar):
            bar.close()


def interruption(ctx: click.Context, error: KeyboardInterrupt) -> str:
    """`Interrupted. Nothing was changed.`"""
    if error.args:  # the core says what it has changed
        return f"Interrupted. {error}"
    if ctx.invoked_subcommand in ("demo", "doctor", "ship"):
        return "Interrupted."
    done = ctx.find_root().meta.get(_DONE)
    return f"Interrupted. {done}." if done else "Interrupted. Nothing was changed."
