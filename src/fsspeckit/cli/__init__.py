"""The command line: parse, call, print."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from fsspeckit.cli.commands import cli

        cli(prog_name="fsspeckit")
    except KeyboardInterrupt:
        sys.exit(130)
