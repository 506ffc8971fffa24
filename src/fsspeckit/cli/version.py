"""The option `--version`."""

from __future__ import annotations

import click


def _print_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from fsspeckit import installation
    from fsspeckit.cli.output import say

    click.echo(installation.description())
    for problem in installation.problems():
        say("Warning", problem)
    ctx.exit()


version_option = click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and where it is installed.",
)
