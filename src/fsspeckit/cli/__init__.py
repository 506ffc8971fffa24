"""The command line: parse, call, print."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from fsspeckit.cli.commands import cli

        cli(prog_name="fsspeckit")
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # commands report their own errors: this one is about the output of `--help`
        from fsspeckit.cli.output import drop_output, say

        say("Error", f"Cannot write to standard output: {error.strerror or error}.")
        drop_output()
        sys.exit(1)
