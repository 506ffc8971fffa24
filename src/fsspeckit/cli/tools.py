"""Commands about the installation: its version, build the zip for executors, show a sample, check what works."""

from __future__ import annotations

from typing import Any

import click

from fsspeckit.cli.options import ENGINES, json_option


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


@click.command(short_help="Build the zip for Spark executors.")
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
def ship(file: str) -> None:
    """Build FILE, a zip of fsspeckit for Spark's --py-files or addArtifacts."""
    from fsspeckit.ship import make_zip

    size = make_zip(file)
    click.echo(f"Wrote {file}, {size / 1e6:.1f} MB. Executors also need pyarrow, numpy and pandas in their Python.")


@click.command(short_help="Build a sample lake and merge into it.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Use only this engine. May be repeated."
)
@click.option(
    "--keep", metavar="FOLDER", type=click.Path(file_okay=False), help="Build the lake in this folder, and keep it."
)
def demo(**options: Any) -> None:
    """Build a small sample lake, plan a merge, run it, and show what happened."""
    from fsspeckit.cli.demo import run

    run(**options)


@click.command(short_help="Check the installation.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Check only this engine. May be repeated."
)
@json_option
def doctor(engines: tuple[str, ...], as_json: bool) -> None:
    """Check Python, packages, Java, memory, the cache and every engine. Each problem comes with a fix."""
    from fsspeckit.cli.doctor import run

    run(engines or ENGINES, as_json)
