"""Exit codes: an error becomes one line on standard error and an exit code. Warnings go to standard error, too."""

from __future__ import annotations

import errno
import warnings
from typing import Any

import click

from fsspeckit.cli.output import say

REFUSED = 1
UNFINISHED = 3
INTERRUPTED = 130

_LIBRARIES = {"pyarrow": "PyArrow", "duckdb": "DuckDB", "_duckdb": "DuckDB", "pyspark": "Spark", "py4j": "Spark"}


class Commands(click.Group):
    """Commands that show no traceback for errors that the user can fix."""

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
            from fsspeckit.core.errors import CommitUnfinishedError

            message = _user_message(error)
            if message is None:
                raise
            say("Error", message)
            ctx.exit(UNFINISHED if isinstance(error, CommitUnfinishedError) else REFUSED)


def _user_message(error: Exception) -> str | None:
    """The message for an error that the user can fix; `None` for a bug in this package."""
    from fsspeckit.core.errors import FsspeckitError

    if isinstance(error, FsspeckitError):
        return str(error)
    if isinstance(error, OSError):
        if error.errno == errno.EPIPE:  # `fsspeckit … | head`: click handles it
            return None
        if error.strerror is None:
            return str(error)
        return f"{error.strerror}: {error.filename}" if error.filename is not None else error.strerror
    library = _LIBRARIES.get(type(error).__module__.partition(".")[0])
    if library is not None:
        return f"{library} failed: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"
    return None


def _show_warning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
    say("Warning", str(message))
