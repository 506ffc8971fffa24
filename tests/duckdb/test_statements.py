"""The statements that decide what happens to matched rows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit.core.actions import PRESETS, HitAction
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, sql
from fsspeckit.datasets.duckdb.version import library_version, supports_merge
from recording import Recording
from support import rows, write_lake

PLAIN = sql.Columns(("k0",))
FEED = sql.Columns(("k0",), ("p0",), ("q0",), deletes=True)
UPSERT = PRESETS["upsert"]
native_only = pytest.mark.skipif(not supports_merge(library_version()), reason="this DuckDB has no MERGE statement")


def clauses(columns: sql.Columns, strategy: str) -> list[str]:
    """The WHEN clauses and what is returned."""
    statement = sql.merge_statement("t", "s", columns, PRESETS[strategy], 0, 10)
    return re.split(r" (?=WHEN |RETURNING )", statement.partition(") WHEN")[1][2:] + statement.partition(") WHEN")[2])


def test_a_plain_upsert() -> None:
    assert sql.merge_statement("t", "s", PLAIN, UPSERT, 0, 10) == (
        "MERGE INTO t AS target USING (SELECT k0, row FROM s WHERE row >= 0 AND row < 10) AS source "
        "ON (target.k0 = source.k0) "
        "WHEN MATCHED THEN UPDATE SET source_row = source.row, action = 0 "
        "WHEN NOT MATCHED THEN INSERT (k0, source_row) VALUES (source.k0, source.row) "
        "RETURNING merge_action"
    )


OLDER, ELSEWHERE = "source.q0 < target.q0", "(target.p0 IS DISTINCT FROM source.p0)"
CLAUSES: dict[str, list[str]] = {
    "insert": [
        "WHEN NOT MATCHED AND NOT source.d THEN INSERT (k0, source_row) VALUES (source.k0, source.row)",
        "RETURNING merge_action",
    ],
    "update": [
        f"WHEN MATCHED AND {OLDER} AND {ELSEWHERE} THEN UPDATE SET source_row = source.row, action = 4",
        f"WHEN MATCHED AND {OLDER} THEN UPDATE SET source_row = source.row, action = 3",
        "WHEN MATCHED AND source.d THEN DELETE",
        f"WHEN MATCHED AND {ELSEWHERE} THEN UPDATE SET source_row = source.row, action = 2",
        "WHEN MATCHED THEN UPDATE SET source_row = source.row, action = 0",
        "RETURNING merge_action, action, k0, file_no, row_group, row_no",
    ],
    "delete": [
        f"WHEN MATCHED AND {OLDER} AND {ELSEWHERE} THEN UPDATE SET source_row = source.row, action = 4",
        f"WHEN MATCHED AND {OLDER} THEN UPDATE SET source_row = source.row, action = 3",
        "WHEN MATCHED THEN DELETE",
        "RETURNING merge_action, action, k0, file_no, row_group, row_no",
    ],
}


@pytest.mark.parametrize("strategy", CLAUSES)
def test_the_first_clause_that_holds_decides(strategy: str) -> None:
    assert clauses(FEED, strategy) == CLAUSES[strategy]


def test_a_delete_without_sequence_returns_positions_only() -> None:
    assert clauses(PLAIN, "delete") == [
        "WHEN MATCHED THEN DELETE",
        "RETURNING merge_action, k0, file_no, row_group, row_no",
    ]


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "delete"])
def test_every_action_of_a_strategy_is_one_of_a_hit(strategy: str) -> None:
    """The last decision has no condition: every hit has an action."""
    for columns in (PLAIN, FEED, replace(FEED, sequence=()), replace(FEED, deletes=False)):
        decided = sql.decisions(columns, PRESETS[strategy])
        assert [condition for condition, _ in decided if condition is None] == [None]
        assert decided[-1][0] is None
        assert len({action for _, action in decided}) == len(decided)


def test_what_is_not_merged_is_joined_with_the_same_decisions() -> None:
    query = sql.union_query("t", "s", FEED, UPSERT)
    whens = [f"WHEN {condition or 'true'} THEN {action:d}" for condition, action in sql.decisions(FEED, UPSERT)]
    assert f"CASE {' '.join(whens)} END" in query
    assert "WHERE NOT source.d AND NOT EXISTS" in query


@pytest.mark.parametrize(
    ("source", "target", "older"),
    [
        ((5, 5), (5, 5), False),
        ((5, 5), (5, 6), True),
        ((5, 5), (6, 1), True),
        ((5, 5), (4, 9), False),
        ((5, 5), (None, 9), False),
        ((5, 5), (5, None), False),
        ((5, 5), (6, None), True),
    ],
)
def test_older(source: tuple[Any, ...], target: tuple[Any, ...], older: bool) -> None:
    columns, con = sql.Columns(("k0",), sequence=("q0", "q1")), duckdb.connect()
    for name, values in (("source", source), ("target", target)):
        con.register(name, pa.table({f"q{i}": pa.array([value], pa.int64()) for i, value in enumerate(values)}))
    found = con.execute(f"SELECT CASE WHEN {columns.older} THEN true ELSE false END FROM source, target").fetchone()
    assert found == (older,)


@native_only
def test_merge_decides_a_change_feed(tmp_path: Path) -> None:
    """From the caller's side: DuckDB's MERGE deletes, skips and counts, and nothing is joined instead."""
    target = pa.table({"id": [1, 2, 3, 4], "x": ["old"] * 4, "ts": [1, 1, 9, 9]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": target})
    feed = pa.table({"id": [1, 2, 3, 4, 5, 6], "x": list("abcdef"), "ts": [5] * 6, "op": list("UDUDID")})
    record = Recording()
    result = DuckDBDatasetIO(record, use_merge=True).merge(
        feed, lake, "upsert", ["id"], delete_column="op", delete_values=["D"], sequence_by=["ts"]
    )
    (statement,) = record.having("MERGE INTO")
    assert "WHEN MATCHED AND source.d THEN DELETE" in statement
    assert not record.having("NOT EXISTS")
    assert (result.updated, result.deleted, result.skipped, result.inserted) == (1, 1, 2, 1)
    assert sorted((row["id"], row["x"]) for row in rows(lake)) == [(1, "a"), (3, "old"), (4, "old"), (5, "e")]


def test_actions_are_those_of_the_core() -> None:
    """SQL has their numbers."""
    assert [action.value for action in HitAction] == list(range(6))
