"""Options that name columns: `-k id`, `-k a,b`, `-k a -k b`."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import click


def split_columns(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Column names: `a,b` are two, `"a,b"` with its quotes is one."""
    named = [next(csv.reader([value], skipinitialspace=True), [""]) for value in values]
    for value, names in zip(values, named, strict=True):
        if "" in names or not names:
            raise click.BadParameter(f"{value!r} has an empty column name.", ctx, parameter)
    return tuple(name for names in named for name in names)


def list_or_none(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    return list(values) or None


def columns_or_none(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    return list(split_columns(ctx, parameter, values)) or None


def columns_option(*names: str, help: str) -> Callable[..., Any]:
    """An option with some columns, as a list or `None`."""
    return click.option(*names, metavar="COLUMNS", multiple=True, callback=columns_or_none, help=help)


def key_option(*, required: bool = False, help: str = "") -> Callable[..., Any]:
    """`-k` with the key columns."""
    text = help or "The columns that identify a row: -k id, or -k order_id,line."
    return click.option(
        "-k",
        "--key",
        "keys",
        metavar="COLUMNS",
        multiple=True,
        required=required,
        callback=split_columns,
        help=text,
    )
