"""Print one JSON document or a report for people, and write the HTML page."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsspeckit.cli.group import say

if TYPE_CHECKING:
    from rich.console import Console

    from fsspeckit.core.model import MergePlan, MergeResult

# Lines in a pipe are not wrapped.
_PIPE_WIDTH = 1_000_000
_ASCII = {"→": "->", "…": "...", "–": "-", "·": "-", "█": "#", "━": "="}


def console() -> Console:
    """A console that folds nothing in a pipe and can print any path in any encoding."""
    from rich.console import Console

    codecs.register_error("fsspeckit", _spell_out)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="fsspeckit")
    made = Console(highlight=False, emoji=False, markup=False, file=sys.stdout)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = _PIPE_WIDTH
    return made


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(_ASCII.get(c, c.encode("ascii", "backslashreplace").decode()) for c in text), error.end


@contextlib.contextmanager
def reporting(done: str) -> Iterator[None]:
    """Print a report of finished work. If that fails, say so on standard error and exit with 0.

    A script that saw a failure would repeat the merge.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()  # otherwise the error would show up at exit
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        say("Note", f"{done}, but the report could not be written: {reason}.")
        _drop_output()


def _drop_output() -> None:
    """Discard buffered output that cannot be written: Python would try again at exit, and exit with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def emit_json(value: Any) -> None:
    from fsspeckit.report.serial import to_json

    click.echo(to_json(value))


def emit(view: Any, to: Console | None = None) -> None:
    """Print a view; without trailing blanks in a pipe."""
    made = to or console()
    if made.is_terminal:
        made.print(view)
        return
    with made.capture() as captured:
        made.print(view)
    made.file.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def save_html(report: MergePlan | MergeResult, target: str, file: str) -> None:
    from fsspeckit.report.html import page

    Path(file).write_text(page(report, target), encoding="utf-8", errors="replace")
