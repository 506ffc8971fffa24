"""What all commands share: errors become one line and an exit code, warnings go to standard error."""

from __future__ import annotations

import contextlib
import errno
import warnings
from typing import Any, TextIO

import click

REFUSED = 1
UNFINISHED = 3
INTERRUPTED = 130

_LIBRARIES = {"pyarrow": "PyArrow", "duckdb": "DuckDB", "_duckdb": "DuckDB", "pyspark": "Spark", "py4j": "Spark"}


class Commands(click.Group):
    """A group whose commands show no traceback for errors that the user can fix."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except KeyboardInterrupt:
            say(
                "Interrupted",
                "nothing was changed, unless the commit was recorded already: then the next write or `fsspeckit "
                "recover` finishes it.",
            )
            ctx.exit(INTERRUPTED)
        except click.ClickException:
            raise
        except Exception as error:
            message = _refusal(error)
            if message is None:
                raise
            say("Error", message)
            ctx.exit(_exit_code(error))


def say(severity: str, message: str) -> None:
    """Print one line on standard error, if that can be written to."""
    colour = {"Error": "red", "Warning": "yellow"}.get(severity)
    with contextlib.suppress(OSError):
        click.echo(f"{click.style(severity + ':', fg=colour, bold=True)} {' '.join(message.splitlines())}", err=True)


def _refusal(error: Exception) -> str | None:
    """The message for an error that the user can fix; `None` for a bug in this package."""
    from fsspeckit.core.errors import FsspeckitError

    if isinstance(error, FsspeckitError):
        return str(error)
    if isinstance(error, OSError):
        return None if error.errno == errno.EPIPE else _os_message(error)  # `fsspeckit … | head`: click ends quietly
    library = _LIBRARIES.get(type(error).__module__.partition(".")[0])
    if library is not None:
        return f"{library} failed: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"
    return None


def _exit_code(error: Exception) -> int:
    from fsspeckit.core.errors import CommitUnfinishedError

    return UNFINISHED if isinstance(error, CommitUnfinishedError) else REFUSED


def _os_message(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return f"{error.strerror}: {error.filename}" if error.filename is not None else error.strerror


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say("Warning", str(message))
