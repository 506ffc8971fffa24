"""Standard output: one JSON document, or a report for people; and the HTML page beside it."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from fsspeckit.core.model import MergePlan, MergeResult

# In a pipe there is no edge to wrap at.
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


def emit_json(value: Any) -> None:
    from fsspeckit.report.serial import to_json

    click.echo(to_json(value))


def emit(view: Any, to: Console | None = None) -> None:
    """Print a view; in a pipe without the blanks that tables are padded with."""
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
