"""A delete, a change feed and a move, as a user writes them, with the rows of a small lake before and after.

Each of them removes all rows of some file: files are rewritten, added and removed in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

import fsspeckit

Row = tuple[int, str, str]  # id, x, partition

FILES = [f"p={p}/f{f}.parquet" for p in (1, 2) for f in range(3)]


def ids_of(file: str) -> list[int]:
    """Four keys: `p=2/f1.parquet` has 210 to 213."""
    first = 100 * int(file[2]) + 10 * int(file[5])
    return list(range(first, first + 4))


def rows_of(file: str) -> list[Row]:
    return [(key, f"old{key}", file[2]) for key in ids_of(file)]


def table(file: str) -> pa.Table:
    return pa.table({"id": ids_of(file), "x": [f"old{key}" for key in ids_of(file)]})


def with_partition(table: pa.Table, path: str) -> Iterable[Row]:
    partition = path.rpartition("p=")[2].partition("/")[0]
    return [(row["id"], row["x"], partition) for row in table.to_pylist()]


OLD: list[Row] = [row for file in FILES for row in rows_of(file)]

# All of p=1, one row of p=2, and a key that does not exist
DELETED = [*(key for file in FILES[:3] for key in ids_of(file)), 201, 999]

# Texts are compared as the sequence: `old…` is older than `z` and newer than `a`.
FEED: list[dict[str, Any]] = [
    *({"id": key, "x": "z", "p": None, "op": "D"} for key in ids_of("p=1/f1.parquet")),
    {"id": 200, "x": "z1", "p": 2, "op": "U"},
    {"id": 200, "x": "z2", "p": 2, "op": "U"},
    {"id": 201, "x": "z2", "p": None, "op": "D"},
    {"id": 201, "x": "z1", "p": 2, "op": "U"},
    {"id": 202, "x": "a", "p": None, "op": "D"},
    {"id": 203, "x": "a", "p": 2, "op": "U"},
    {"id": 290, "x": "z", "p": 2, "op": "I"},
    {"id": 999, "x": "z", "p": None, "op": "D"},
]
_FEED_SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.string()), ("p", pa.int64()), ("op", pa.string())])

# All rows of one file move to p=2, one row of p=2 moves to p=1, one stays, one is new.
MOVED = [*((key, 2) for key in ids_of("p=1/f1.parquet")), (210, 1), (211, 2), (290, 2)]


def delete(lake: str, **options: Any) -> object:
    return fsspeckit.merge(pa.table({"id": DELETED}), lake, strategy="delete", key_columns=["id"], **options)


def feed(lake: str, **options: Any) -> object:
    return fsspeckit.merge(
        pa.Table.from_pylist(FEED, _FEED_SCHEMA),
        lake,
        strategy="upsert",
        key_columns=["id"],
        delete_column="op",
        delete_values=["D"],
        sequence_by="x",
        on_duplicates="latest",
        **options,
    )


def move(lake: str, **options: Any) -> object:
    source = pa.table({"id": [key for key, _ in MOVED], "x": ["moved"] * len(MOVED), "p": [p for _, p in MOVED]})
    return fsspeckit.merge(source, lake, strategy="upsert", key_columns=["id"], on_move="move", **options)


def _new() -> dict[str, list[Row]]:
    old = {row[0]: row for row in OLD}
    fed = {key: row for key, row in old.items() if key not in (201, *ids_of("p=1/f1.parquet"))}
    fed |= {200: (200, "z2", "2"), 290: (290, "z", "2")}
    return {
        "delete": [row for row in OLD if row[0] not in DELETED],
        "feed": list(fed.values()),
        "move": list((old | {key: (key, "moved", str(p)) for key, p in MOVED}).values()),
    }


OPERATIONS: dict[str, Callable[..., object]] = {"delete": delete, "feed": feed, "move": move}
NEW = _new()
CASES = list(OPERATIONS)
