"""The subcommands."""

from __future__ import annotations

import click


@click.group()
def cli() -> None:
    """MERGE for plain Parquet."""
