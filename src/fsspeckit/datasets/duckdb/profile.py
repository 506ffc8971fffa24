"""What the source is like: aggregates of its key table, and the intervals that its keys lie in."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

from fsspeckit.core.model import Profile
from fsspeckit.core.target.partitions import identities
from fsspeckit.core.values import keys, ordering
from fsspeckit.datasets.duckdb import transport
from fsspeckit.datasets.duckdb.payload import CHUNK_ROWS
from fsspeckit.datasets.duckdb.source import PinnedSource
from fsspeckit.datasets.duckdb.sql import listed


def profile_source(source: PinnedSource) -> Profile:
    shape = source.shape
    names = listed("k", len(shape.keys))
    counted = "".join(f", count(*) - count({k})" for k in names)
    rows, *nulls = source.workspace.run(f"SELECT count(*){counted} FROM {source.keys}")[0]
    duplicates, firsts = (0, []) if any(nulls) or not rows else _duplicates(source, names)
    return Profile(
        rows=rows,
        null_keys=dict(zip(shape.keys, nulls, strict=True)),
        duplicate_keys=duplicates,
        duplicate_samples=source.samples(firsts),
        partitions=_partitions(source),
        intervals={name: _intervals(source, i) for i, name in enumerate(shape.keys)},
    )


def _duplicates(source: PinnedSource, names: list[str]) -> tuple[int, list[int]]:
    """How many keys occur more than once, and the first row of up to five of them."""
    by = ", ".join(names)
    query = f"SELECT min(row) AS row FROM {source.keys} GROUP BY {by} HAVING count(*) > 1"
    found = source.workspace.run(f"SELECT row, count(*) OVER () FROM ({query}) ORDER BY row ASC LIMIT 5")
    return (found[0][1] if found else 0), [row for row, _ in found]


def _partitions(source: PinnedSource) -> frozenset[tuple[Any, ...]]:
    """The distinct partition tuples: as many as there are folders, so they may come back."""
    columns = listed("p", len(source.shape.partitions))
    if not columns:
        return frozenset()
    by = ", ".join(columns)
    firsts = source.workspace.run(f"SELECT min(row) FROM {source.keys} GROUP BY {by}")
    distinct = source.payload.pick([row for (row,) in firsts], source.shape.partitions)
    return frozenset(zip(*(identities(column) for column in distinct.columns), strict=True))


def _intervals(source: PinnedSource, number: int) -> ordering.Intervals | None:
    with closing(_covers(source, number)) as covers:
        return ordering.merged(covers)


def _covers(source: PinnedSource, number: int) -> Generator[list[tuple[Any, Any]] | None, None, None]:
    """Intervals of sorted stretches of one key column; a stretch has the same gaps as the whole."""
    index = source.payload.schema.get_field_index(source.shape.keys[number])
    kind = source.payload.schema.field(index).type
    query = (
        f"SELECT payload.c{index} AS c FROM {source.payload.table} AS payload JOIN {source.keys} AS keys "
        f"ON (payload.row = keys.row) ORDER BY keys.{source.order_column(number)} ASC NULLS LAST"
    )
    for batch in source.workspace.stream(query, CHUNK_ROWS):
        yield keys.intervals(transport.decode(batch.column(0).chunk(0), kind))
