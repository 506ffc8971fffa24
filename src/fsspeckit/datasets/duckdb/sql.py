"""The SQL statements of a merge. They contain no name, path or value of the user.

Columns are `k0`, `k1`, … for canonical keys, `p0`, `p1`, … for canonical partition values and `q0`, `q1`, … for the
sequence. The table `source` has those of the source, `d` for delete rows, and the row number `row`. The table `target`
has those of the target with their positions (`file_no`, `row_group`, `row_no`). After the merge it also has the
`source_row` that each key matched, and the `action` (`HitAction`) that this row causes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fsspeckit.core.actions import Actions, HitAction
from fsspeckit.core.errors import ArgumentError

POSITION = ("file_no", "row_group", "row_no")
_SAFE_PATH = re.compile(r"[A-Za-z0-9._\-/=:]+")

Decision = tuple[str | None, HitAction]
"""A condition on `target` and `source` (`None`: always true), and the action if it is the first that holds."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the source's keys, by their names (see `core.rows.spool.canonical_keys`).

    >>> Columns.of(["k0", "k1", "p0", "d"])
    Columns(keys=('k0', 'k1'), partitions=('p0',), sequence=(), deletes=True)
    """

    keys: tuple[str, ...]
    partitions: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    deletes: bool = False

    @classmethod
    def of(cls, names: Sequence[str]) -> Columns:
        keys, partitions, sequence = (tuple(n for n in names if n.startswith(prefix)) for prefix in "kpq")
        return cls(keys, partitions, sequence, "d" in names)

    @property
    def of_target(self) -> tuple[str, ...]:
        return (*self.keys, *self.partitions, *self.sequence)

    @property
    def same_keys(self) -> str:
        """
        >>> Columns(("k0", "k1")).same_keys
        'target.k0 = source.k0 AND target.k1 = source.k1'
        """
        return " AND ".join(f"target.{k} = source.{k}" for k in self.keys)

    @property
    def elsewhere(self) -> str:
        """Are the rows in different partitions?"""
        return "(" + " OR ".join(f"target.{p} IS DISTINCT FROM source.{p}" for p in self.partitions) + ")"

    @property
    def older(self) -> str:
        """Is the source row older? A null of the target is least: no comparison with it is true.

        >>> Columns(("k0",), sequence=("q0", "q1")).older
        '(source.q0 < target.q0 OR (source.q0 = target.q0 AND source.q1 < target.q1))'
        """
        condition = ""
        for q in reversed(self.sequence):
            later = f" OR (source.{q} = target.{q} AND {condition})" if condition else ""
            condition = f"(source.{q} < target.{q}{later})" if later else f"source.{q} < target.{q}"
        return condition


def decisions(columns: Columns, actions: Actions) -> list[Decision]:
    """What happens to a hit, as `Actions.hit_actions` says. The first condition that holds decides."""
    if not actions.changes_matched:
        return [(None, HitAction.KEEP)]
    decided: list[Decision] = []
    if columns.sequence and columns.partitions:
        decided.append((f"{columns.older} AND {columns.elsewhere}", HitAction.SKIP_ELSEWHERE))
    if columns.sequence:
        decided.append((columns.older, HitAction.SKIP))
    if actions.matched == "delete":
        return [*decided, (None, HitAction.DELETE)]
    if columns.deletes:
        decided.append(("source.d", HitAction.DELETE))
    if columns.partitions:
        decided.append((columns.elsewhere, HitAction.MOVE))
    return [*decided, (None, HitAction.UPDATE)]


def merge_statement(
    target: str, source: str, columns: Columns, actions: Actions, start: int = 0, stop: int | None = None
) -> str:
    """The native MERGE of the source rows from `start` up to, but not including, `stop`.

    It returns the `action` where rows are updated in several ways, and keys and positions of the rows that it deletes:
    RETURNING cannot name the source row.
    """
    decided = decisions(columns, actions) if actions.changes_matched else []
    clauses = [_when_matched(condition, action) for condition, action in decided]
    if actions.inserts:
        names = ", ".join([*columns.keys, "source_row"])
        values = ", ".join(f"source.{c}" for c in [*columns.keys, "row"])
        new = " AND NOT source.d" if columns.deletes else ""
        clauses.append(f"WHEN NOT MATCHED{new} THEN INSERT ({names}) VALUES ({values})")
    used = [*(columns.of_target if decided else columns.keys), *(["d"] if columns.deletes else []), "row"]
    rows = f"row >= {start}" + ("" if stop is None else f" AND row < {stop}")
    returned = ["merge_action", *(["action"] if len(decided) > 1 else [])]
    if any(action == HitAction.DELETE for _, action in decided):
        returned += [*columns.keys, *POSITION]
    return (
        f"MERGE INTO {target} AS target USING (SELECT {', '.join(used)} FROM {source} WHERE {rows}) AS source "
        f"ON ({columns.same_keys}) {' '.join(clauses)} RETURNING {', '.join(returned)}"
    )


def _when_matched(condition: str | None, action: HitAction) -> str:
    when = "WHEN MATCHED" if condition is None else f"WHEN MATCHED AND {condition}"
    if action == HitAction.DELETE:
        return f"{when} THEN DELETE"
    return f"{when} THEN UPDATE SET source_row = source.row, action = {action:d}"


def merged_rows(target: str, deleted: str | None) -> str:
    """The result of the MERGE: positions, source rows and actions. A row without a position has a new key."""
    columns = ", ".join([*POSITION, "source_row", "action"])
    rows = f"SELECT {columns} FROM {target} WHERE source_row IS NOT NULL"
    return rows if deleted is None else f"{rows} UNION ALL SELECT {columns} FROM {deleted}"


def union_query(target: str, source: str, columns: Columns, actions: Actions) -> str:
    """The same result without MERGE."""
    parts = []
    if actions.changes_matched:
        parts.append(matched_rows(target, source, columns, decisions(columns, actions)))
    if actions.inserts:
        nulls = ", ".join(f"NULL AS {c}" for c in POSITION)
        new = "NOT source.d AND " if columns.deletes else ""
        parts.append(
            f"SELECT {nulls}, source.row AS source_row, NULL AS action FROM {source} AS source "
            f"WHERE {new}NOT EXISTS (SELECT 1 FROM {target} AS target WHERE {columns.same_keys})"
        )
    return " UNION ALL ".join(parts)


def matched_rows(target: str, source: str, columns: Columns, decided: Sequence[Decision]) -> str:
    """The target positions whose key is in the source, with their source rows and actions."""
    positions = ", ".join(f"target.{c}" for c in POSITION)
    whens = " ".join(f"WHEN {condition or 'true'} THEN {action:d}" for condition, action in decided)
    return (
        f"SELECT {positions}, source.row AS source_row, CAST(CASE {whens} END AS TINYINT) AS action "
        f"FROM {target} AS target JOIN {source} AS source ON ({columns.same_keys}) WHERE target.file_no IS NOT NULL"
    )


def matched_keys(rows: str, source: str, columns: Columns) -> str:
    """The number of source rows that match a row and are not delete rows."""
    written = "NOT d AND " if columns.deletes else ""
    return f"SELECT count(*) FROM {source} WHERE {written}row IN (SELECT source_row FROM ({rows}))"


def rows_elsewhere(rows: str) -> str:
    """The source rows that match a row in another partition that they would replace: do they match one `at_home`?"""
    moves = f"SELECT source_row FROM ({rows}) WHERE action = {HitAction.MOVE:d}"
    at_home = f"bool_or(action IN ({HitAction.UPDATE:d}, {HitAction.SKIP:d}))"
    return (
        f"SELECT source_row AS row, {at_home} AS at_home FROM ({rows}) "
        f"WHERE source_row IN ({moves}) GROUP BY source_row"
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
