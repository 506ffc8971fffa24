"""The options of `fsspeckit sql`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

import click

from fsspeckit.cli.options import (
    ENGINE_OPTIONS,
    REPORT_OPTIONS,
    REWRITE_OPTIONS,
    Command,
    add_options,
    gathered,
    pairs,
    wrong_pair,
)
from fsspeckit.cli.row_options import SCHEMA_OPTIONS, on_move_option
from fsspeckit.cli.sources import read_sources
from fsspeckit.datasets.options import DeleteOptions, MergeOptions

if TYPE_CHECKING:
    from fsspeckit.statements import Call


@dataclass(frozen=True, kw_only=True)
class SqlCommand(Command):
    """A statement and its sources as the command line gives them. `target` is the statement's."""

    target: str = ""
    statement: str | None
    file: TextIO | None
    sources: dict[str, str]
    create: bool
    options: MergeOptions

    def prepared(self) -> tuple[SqlCommand, Call]:
        """The command with the target of its statement, and the call that the statement stands for."""
        from fsspeckit import statements
        from fsspeckit.core.storage import Access

        statement = statements.parsed(self._text())
        name = getattr(statement, "source", None)
        unused = [source for source in self.sources if source != name]
        if unused:
            raise click.UsageError(f"--source {unused[0]}: the statement has no source of this name.")
        options: dict[str, Any] = dict(self.options)
        if name is None:
            wrong = sorted(options.keys() - DeleteOptions.__optional_keys__)
            if wrong or self.create:
                option = "create" if self.create else wrong[0].replace("_", "-")
                raise click.UsageError(f"--{option} has no effect on DELETE; leave it out.")
        elif self.create:
            options["must_exist"] = False
        data = None if name is None else self._source(name, is_path=getattr(statement, "source_is_path", False))
        call = statements.call_of(statement, data, options, Access(None, self.storage_options or None))
        return replace(self, target=call.target), call

    def _text(self) -> str:
        if (self.statement is None) == (self.file is None):
            raise click.UsageError("Give the statement, or a file that contains it (-f FILE).")
        if self.statement is not None:
            return self.statement
        assert self.file is not None
        try:
            return self.file.read()
        except UnicodeDecodeError:
            raise click.UsageError(f"{self.file.name} is not text in UTF-8.") from None

    def _source(self, name: str, *, is_path: bool) -> Any:
        if name not in self.sources and not is_path:
            raise click.UsageError(f"The statement's source {name!r} is missing: --source {name}=FILE.")
        return read_sources([self.sources.get(name, name)], self.storage_options)


def _named_sources(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    wrong = wrong_pair(values)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not of the form NAME=FILE.")
    return pairs(values)


_OPTIONS = [
    click.argument("statement", required=False),
    click.option("-f", "--file", type=click.File(encoding="utf-8-sig"), help="A file with the statement, or -."),
    click.option(
        "--source",
        "sources",
        metavar="NAME=FILE",
        multiple=True,
        callback=_named_sources,
        help="The file, pattern or folder for a source of the statement: --source changes=changes.parquet for USING "
        "changes. - is standard input.",
    ),
    click.option("--create", is_flag=True, help="Create a target that does not exist, instead of refusing it."),
    click.option(
        "--on-duplicates",
        type=click.Choice(("refuse", "latest")),
        help="If the source has several rows for one key: refuse them (default), or keep the latest by the sequence.",
    ),
    on_move_option,
    *SCHEMA_OPTIONS,
    *ENGINE_OPTIONS,
    *REWRITE_OPTIONS,
    *REPORT_OPTIONS,
]


def sql_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a statement to a command, which gets them as one `SqlCommand`."""
    return add_options(_OPTIONS, gathered(command, SqlCommand, MergeOptions))
