"""Exit codes: an error becomes one line on standard error and an exit code. Warnings go to standard error, too."""

from __future__ import annotations

import contextlib
import errno
import re
import warnings
from collections.abc import Sequence
from typing import Any

import click

from fsspeckit.cli.output import ARGUMENTS, emit_json, run_facts, say
from fsspeckit.cli.watching import interruption
from fsspeckit.core.suggestions import did_you_mean

REFUSED = 1
UNFINISHED = 3
INTERRUPTED = 130

_JSON = "fsspeckit.json"
_LIBRARIES = {"pyarrow": "PyArrow", "duckdb": "DuckDB", "_duckdb": "DuckDB", "pyspark": "Spark", "py4j": "Spark"}

# Options whose argument in Python has another name than their parameter here.
_ARGUMENT_OF = {"-k": "key_columns", "-p": "partition_columns", "--partition-by": "partition_columns", "--keys": "keys"}
# An argument with a value, such as on_move='move', undoable=True or sequence_by=[…], or a name such as update_columns.
# Texts in quotes are a user's, and a call such as merge(…, on_move='move') is Python as a whole.
_ARGUMENT = re.compile(
    r"""
    (?<!\w)'[^']*' | "[^"]*" | [\w.]+\([^()]*\)
    | (?<![\w/\\.-]) (?P<name>[a-z]+(?:_[a-z]+)*) = (?P<value>True\b|'[\w.-]*'|…|\[…\])
    | (?<![\w/\\.=-]) (?P<word>[a-z]+(?:_[a-z]+)+) (?![\w/\\=(-])
    """,
    re.VERBOSE,
)


class Commands(click.Group):
    """Commands that show no traceback for errors that the user can fix."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        typed, wants_json = list(args), "--json" in args
        ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[_JSON], ctx.meta[ARGUMENTS] = wants_json, typed
        return ctx

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if hasattr(error, "possibilities"):  # later versions of click suggest commands themselves
                raise
            hint = did_you_mean(args[:1], self.list_commands(ctx))
            raise click.UsageError(f"{error.message.rstrip('.')}.{hint}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            said = interruption(ctx, error)
            _emit_error(ctx, "Interrupted", said, INTERRUPTED)
            with contextlib.suppress(OSError):
                click.echo(said, err=True)
            ctx.exit(INTERRUPTED)
        except click.ClickException as error:
            _emit_error(ctx, "UsageError", error.format_message(), error.exit_code)
            raise
        except Exception as error:
            from fsspeckit.core.errors import CommitUnfinishedError

            message = _user_message(error)
            if message is None:
                raise
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            message = with_option_names(command, message, ctx.meta[ARGUMENTS])
            code = UNFINISHED if isinstance(error, CommitUnfinishedError) else REFUSED
            _emit_error(ctx, type(error).__name__, message, code)
            say("Error", message)
            ctx.exit(code)


def _emit_error(ctx: click.Context, error_type: str, message: str, code: int) -> None:
    """With `--json`, print the error as a document, too. Standard error has it as a line in any case."""
    if not ctx.meta.get(_JSON):
        return
    with contextlib.suppress(OSError):
        error = {"type": error_type, "message": " ".join(message.split()), "exit_code": code}
        emit_json({"error": error, **run_facts()})


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


def with_option_names(command: click.Command | None, message: str, typed: Sequence[str] = ()) -> str:
    """The message with the command's options in place of the arguments of the Python function.

    What the user typed stays: a data set may be called `sort_by`.

    >>> name = click.Option(["--on-duplicates"])
    >>> with_option_names(click.Command("merge", params=[name]), "Pass on_duplicates='latest'.")
    'Pass --on-duplicates latest.'
    """
    params = [param for param in command.params if isinstance(param, click.Option)] if command else []
    options = {_ARGUMENT_OF.get(param.opts[0], param.name): param.opts[-1] for param in params}

    def as_option(found: re.Match[str]) -> str:
        option = options.get(found["name"] or found["word"])
        if option is None or found[0] in typed:
            return found[0]
        value = found["value"]
        return option if value in (None, "True") else f"{option} {value.strip(chr(39))}"

    return _ARGUMENT.sub(as_option, message)


def _show_warning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
    say("Warning", str(message))
