"""Print messages, reports and JSON, and write the HTML page."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from fsspeckit.report.content import PageReport

# Do not wrap lines in a pipe.
_PIPE_WIDTH = 1_000_000
_SECRET = ("--storage-option", "--conf")
ARGUMENTS = "fsspeckit.arguments"
_ASCII = {"→": "->", "…": "...", "–": "-", "·": "-", "█": "#", "━": "="}


def say(severity: str, message: str) -> None:
    """Print one line on standard error, if that can be written to."""
    colour = {"Error": "red", "Warning": "yellow"}.get(severity)
    with contextlib.suppress(OSError):
        click.echo(f"{click.style(severity + ':', fg=colour, bold=True)} {' '.join(message.splitlines())}", err=True)


def console() -> Console:
    """A console that does not wrap lines in a pipe and can print any path in any encoding."""
    from rich.console import Console

    codecs.register_error("fsspeckit", _to_ascii)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="fsspeckit")
    made = Console(highlight=False, emoji=False, markup=False, file=sys.stdout)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = _PIPE_WIDTH
    return made


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
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
        drop_output()


def drop_output() -> None:
    """Discard buffered output that cannot be written: Python would try again at exit, and exit with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def run_facts(engine: str | None = None, seconds: float | None = None) -> dict[str, Any]:
    """What every JSON document has besides its report."""
    from fsspeckit import __version__

    facts = {"version": __version__, "engine": engine, "seconds": None if seconds is None else round(seconds, 3)}
    return {name: value for name, value in facts.items() if value is not None}


def emit_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


def emit(view: Any, to: Console | None = None) -> None:
    """Print a view, without trailing blanks in a pipe."""
    made = to or console()
    if made.is_terminal:
        made.print(view)
        return
    with made.capture() as captured:
        made.print(view)
    made.file.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def save_html(
    report: PageReport, target: str, file: str | None, engine: str = "", seconds: float | None = None
) -> None:
    """Write the page of a report that was made just now, if a file is named for it."""
    if file is None:
        return
    from fsspeckit.report.content import Record
    from fsspeckit.report.html import page

    began = datetime.now(UTC) - timedelta(seconds=seconds or 0)
    text = page(report, target, Record(command_line(), engine, began, seconds))
    Path(file).write_text(text, encoding="utf-8")


def command_line() -> str:
    """The command as it was typed, without what may be a secret: the values of storage options and Spark's settings."""
    typed = click.get_current_context().meta.get(ARGUMENTS, [])
    shown = ["fsspeckit"]
    for before, argument in zip(["", *typed], typed, strict=False):
        option, equals, value = argument.partition("=")
        if before in _SECRET and equals:
            shown.append(f"{shlex.quote(option)}=…")
        elif option in _SECRET and equals:
            shown.append(f"{option}={shlex.quote(value.partition('=')[0])}=…")
        else:
            shown.append(shlex.quote(argument))
    return " ".join(shown)
