"""The SQL statements of a merge. They contain no name, path or value of the user.

Columns are `k0`, `k1`, … for canonical keys and `p0`, `p1`, … for canonical partition values. The table `source` has
the source's keys with their row number `row`. The table `target` has the target's keys with their positions (`file_no`,
`row_group`, `row_no`) and, after the merge, the `source_row` that each key matched.
"""

from __future__ import annotations

import re

from fsspeckit.core.actions import Actions
from fsspeckit.core.errors import ArgumentError

POSITION = ("file_no", "row_group", "row_no")
_SAFE_PATH = re.compile(r"[A-Za-z0-9._\-/=:]+")


def listed(prefix: str, count: int) -> list[str]:
    """
    >>> listed("k", 2)
    ['k0', 'k1']
    """
    return [f"{prefix}{i}" for i in range(count)]


def same_keys(keys: int) -> str:
    """
    >>> same_keys(2)
    'target.k0 = source.k0 AND target.k1 = source.k1'
    """
    return " AND ".join(f"target.{k} = source.{k}" for k in listed("k", keys))


def merge_statement(
    target: str, source: str, keys: int, actions: Actions, start: int = 0, stop: int | None = None
) -> str:
    """The native MERGE of the source rows from `start` up to, but not including, `stop`."""
    columns = ", ".join([*listed("k", keys), "row"])
    rows = f"row >= {start}" + ("" if stop is None else f" AND row < {stop}")
    clauses = []
    if actions.changes_matched:
        clauses.append("WHEN MATCHED THEN UPDATE SET source_row = source.row")
    if actions.inserts:
        names = ", ".join([*listed("k", keys), "source_row"])
        values = ", ".join(f"source.{c}" for c in [*listed("k", keys), "row"])
        clauses.append(f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})")
    return (
        f"MERGE INTO {target} AS target USING (SELECT {columns} FROM {source} WHERE {rows}) AS source "
        f"ON ({same_keys(keys)}) {' '.join(clauses)} RETURNING merge_action"
    )


def merged_rows(target: str, partitions: int) -> str:
    """The result of the MERGE: target positions with their source rows. A row without a position has a new key."""
    columns = ", ".join([*POSITION, "source_row", *listed("p", partitions)])
    return f"SELECT {columns} FROM {target} WHERE source_row IS NOT NULL"


def union_query(target: str, source: str, keys: int, partitions: int, actions: Actions) -> str:
    """The same result without MERGE."""
    positions, parts = [*POSITION, *listed("p", partitions)], []
    if actions.changes_matched:
        columns = ", ".join(f"target.{c}" for c in positions)
        parts.append(
            f"SELECT {columns}, source.row AS source_row "
            f"FROM {target} AS target JOIN {source} AS source ON ({same_keys(keys)})"
        )
    if actions.inserts:
        columns = ", ".join(f"NULL AS {c}" for c in positions)
        parts.append(
            f"SELECT {columns}, source.row AS source_row FROM {source} AS source "
            f"WHERE NOT EXISTS (SELECT 1 FROM {target} AS target WHERE {same_keys(keys)})"
        )
    return " UNION ALL ".join(parts)


def matched_rows(target: str, source: str, keys: int, partitions: int) -> str:
    """The target positions whose key is in the source, with their source rows."""
    columns = ", ".join(f"target.{c}" for c in [*POSITION, *listed("p", partitions)])
    return (
        f"SELECT {columns}, source.row AS source_row FROM {target} AS target JOIN {source} AS source "
        f"ON ({same_keys(keys)}) WHERE target.file_no IS NOT NULL"
    )


def moved_rows(pairs: str, source: str, partitions: int) -> str:
    """The source rows whose key is in another partition of the target."""
    differ = " OR ".join(f"pairs.{p} IS DISTINCT FROM source.{p}" for p in listed("p", partitions))
    return (
        f"SELECT DISTINCT source.row FROM ({pairs}) AS pairs JOIN {source} AS source "
        f"ON (source.row = pairs.source_row) WHERE pairs.file_no IS NOT NULL AND ({differ})"
    )


class PathValidator:
    """Checks and escapes paths for SQL text. The merge itself puts no path into SQL.

    >>> PathValidator.validate_path_for_sql("/lake/year=2024/part-0.parquet")
    >>> PathValidator.escape_for_sql("it's")
    "it''s"
    """

    @staticmethod
    def validate_path_for_sql(path: str) -> None:
        """Allow letters, digits and `. _ - / = :`, and refuse everything else, `..` and `--`.

        Raises:
            ValueError: if the path has characters that are dangerous in SQL.
        """
        if not isinstance(path, str) or not _SAFE_PATH.fullmatch(path):
            raise ArgumentError(f"Path {path!r} has characters that are not allowed in SQL; bind it as a parameter.")
        if ".." in path:
            raise ArgumentError(f"Path {path!r} leaves its folder with '..'; give the resolved path.")
        if "--" in path:
            raise ArgumentError(f"Path {path!r} contains '--', which starts a SQL comment; bind it as a parameter.")

    @staticmethod
    def escape_for_sql(path: str) -> str:
        """Escape the path for a SQL string literal."""
        return path.replace("'", "''")
