"""One row per key: the greatest by the given columns, at the place of the key's first row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.core.plan import validate
from fsspeckit.core.values import ordering
from fsspeckit.core.values.equality import identical_rows
from fsspeckit.datasets.duckdb.payload import Arrangement
from fsspeckit.datasets.duckdb.source import PinnedSource
from fsspeckit.datasets.duckdb.sql import listed, numbered


def deduplicated(source: PinnedSource, order_by: Sequence[str]) -> PinnedSource:
    """Null is least and NaN greatest. Rows that tie for the greatest must be identical."""
    ranked = _rank(source, order_by)
    _check_ties(source, ranked, order_by)
    names = ", ".join(c for c in source.key_schema.names if c != "place")
    winners = f"SELECT {names}, first AS place FROM {ranked} WHERE number = 1 ORDER BY place ASC"
    reduced = source.with_keys(source.workspace.create("keys", winners))
    source.workspace.drop(ranked, source.keys)
    return reduced


def _rank(source: PinnedSource, order_by: Sequence[str]) -> str:
    """Every row with its number within the key (1 is the greatest), the winner's row and whether it ties with it."""
    columns = listed("b", len(order_by))
    orders = _order_table(source, tuple(order_by))
    by = ", ".join(listed("k", len(source.shape.keys)))
    order = ", ".join([*(f"{c} DESC NULLS LAST" for c in columns), "place ASC"])
    ties = " AND ".join(f"{c} IS NOT DISTINCT FROM first_value({c}) OVER greatest" for c in columns) or "true"
    ranked = source.workspace.create(
        "ranked",
        f"SELECT keys.*, row_number() OVER greatest AS number, first_value(keys.row) OVER greatest AS winner, "
        f"min(place) OVER (PARTITION BY {by}) AS first, {ties} AS ties "
        f"FROM {source.keys} AS keys JOIN {orders} AS orders ON (keys.row = orders.order_row) "
        f"WINDOW greatest AS (PARTITION BY {by} ORDER BY {order})",
    )
    source.workspace.drop(orders)
    return ranked


def _order_table(source: PinnedSource, order_by: tuple[str, ...]) -> str:
    """The columns that decide, in a form that sorts as the values do."""
    name = ""
    for rows, columns in source.payload.column_chunks(order_by):
        orders = [ordering.order_key(column) for column in columns.columns]
        table = pa.table([rows, *orders], names=["order_row", *listed("b", len(orders))])
        name = name or source.workspace.create_like("orders", table.schema)
        source.workspace.insert(name, table)
    return name


def _check_ties(source: PinnedSource, ranked: str, order_by: Sequence[str]) -> None:
    wrong = list(dict.fromkeys(_differing_winners(source, ranked)))
    validate.no_differing_duplicates(len(wrong), source.samples(wrong[:5]), source.shape.keys, order_by)


def _differing_winners(source: PinnedSource, ranked: str) -> Iterator[int]:
    """The winner's row, for every row that ties with it and is not identical."""
    tied = f"SELECT row AS loser, winner FROM {ranked} WHERE number > 1 AND ties"
    losers, winners = (
        Arrangement(
            source.workspace,
            source.payload,
            source.workspace.create(
                "moves", numbered(f"SELECT {side} AS row, loser, winner FROM ({tied})", ["loser"], "winner")
            ),
        )
        for side in ("loser", "winner")
    )
    for start, stop in losers.chunks():
        (marks, left), (_, right) = losers.read(start, stop), winners.read(start, stop)
        yield from _differing(marks, left, right)
    losers.drop()
    winners.drop()


def _differing(marks: Any, left: pa.Table, right: pa.Table) -> Iterator[int]:
    if identical_rows(left, right):
        return
    for i, mark in enumerate(marks.tolist()):
        if not identical_rows(left.slice(i, 1), right.slice(i, 1)):
            yield mark
