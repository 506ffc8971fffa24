"""The command line: parse, call, print."""

from __future__ import annotations


def main() -> None:
    from fsspeckit.cli.commands import cli

    cli()
