"""What an operation of the soak does, in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

Row = dict[str, Any]

BASE = ("id", "x", "n", "p", "w")
COUNTS = ("inserted", "updated", "deleted", "skipped", "moved")
LARGEST_INT32 = 2**31 - 1
# Operations that change no row. The others are strategies of merges and modes of writes.
SAME_ROWS = ("compact", "forget")
WRITES = ("append", "overwrite", "overwrite_partitions")


@dataclass(frozen=True)
class Operation:
    """A merge, write or other operation, and what befalls it.

    `kind` is what was drawn. With `kill` or `fail`, it ends at call `point`, counted from the commit point if
    `recorded`. The source has the `columns`, and `is_wide` says whether its `w` is int64.
    """

    lake: str
    kind: str
    strategy: str
    rows: list[Row]
    columns: list[str]
    options: dict[str, Any]
    is_wide: bool = False
    fate: str = "live"
    recorded: bool = False
    point: int = 0


@dataclass(frozen=True)
class State:
    """The rows by key, the columns of every file, whether `w` is int64, and the last batch of the stream."""

    rows: dict[int, Row] = field(default_factory=dict)
    columns: tuple[str, ...] = BASE
    is_wide: bool = False
    batch: int = 0

    @property
    def multiset(self) -> Counter[tuple[Any, ...]]:
        return Counter(as_tuple(row) for row in self.rows.values())


def as_tuple(row: Row) -> tuple[Any, ...]:
    return tuple(sorted(row.items()))


def expected(operation: Operation, old: State) -> tuple[State, dict[str, int]]:
    """The state after an operation that is done, and its counts. Undo is not one of these."""
    strategy, options = operation.strategy, operation.options
    if strategy in SAME_ROWS:
        return old, {}
    if "batch" in options and options["batch"] <= old.batch:
        return old, dict.fromkeys(COUNTS, 0)
    if strategy == "filter":
        [(column, _, bound)] = options["filters"]
        kept = {key: row for key, row in old.rows.items() if row[column] >= bound}
        return replace(old, rows=kept), _counts(deleted=len(old.rows) - len(kept))
    if strategy == "overwrite":
        return State({row["id"]: row for row in operation.rows}, batch=old.batch), {}
    new = _merged(operation, old)
    if strategy in WRITES:
        return new[0], {}
    return new


def _merged(operation: Operation, old: State) -> tuple[State, dict[str, int]]:
    strategy, options = operation.strategy, operation.options
    columns = (*old.columns, *(name for name in operation.columns if name not in (*old.columns, "op")))
    source = {row["id"]: row for row in sorted(operation.rows, key=lambda row: row.get("n", 0))}
    gone = _missing(operation, old, source)
    rows = {key: {name: row.get(name) for name in columns} for key, row in old.rows.items() if key not in gone}
    counts = Counter(deleted=len(gone))
    for key, row in source.items():
        is_old = key in rows
        if "sequence_by" in options and is_old and row["n"] < rows[key]["n"]:
            counts["skipped"] += 1
        elif strategy == "delete" or row.get("op") == "D":
            counts["deleted"] += is_old
            rows.pop(key, None)
        elif strategy != ("insert" if is_old else "update"):
            counts["updated" if is_old else "inserted"] += 1
            counts["moved"] += is_old and rows[key]["p"] != row["p"]
            rows[key] = _row_after(row, rows.get(key), columns, options.get("update_columns"))
    is_wide = old.is_wide or any((row.get("w") or 0) > LARGEST_INT32 for row in operation.rows)
    return State(rows, columns, is_wide, options.get("batch", old.batch)), _counts(**counts)


def _missing(operation: Operation, old: State, source: dict[int, Row]) -> set[int]:
    """The keys of old rows that the operation removes because the source does not have them."""
    if operation.strategy == "full_merge":
        return old.rows.keys() - source.keys()
    if operation.strategy == "overwrite_partitions":
        named = {partition["p"] for partition in operation.options.get("partitions") or ()}
        partitions = named or {row["p"] for row in source.values()}
        return {key for key, row in old.rows.items() if row["p"] in partitions}
    if operation.options.get("delete_missing") == "partitions":
        partitions = {row["p"] for row in source.values()}
        return {key for key, row in old.rows.items() if row["p"] in partitions and key not in source}
    return set()


def _row_after(new: Row, old: Row | None, columns: tuple[str, ...], updated: list[str] | None) -> Row:
    """A column that the source does not give is kept, or null in a new row."""
    given = {name: value for name, value in new.items() if name in columns}
    if old is None:
        return dict.fromkeys(columns) | given
    return old | {name: value for name, value in given.items() if updated is None or name in updated}


def _counts(**counts: int) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in COUNTS}
