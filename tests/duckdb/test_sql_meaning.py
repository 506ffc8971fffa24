"""Every statement that `fsspeckit.sql` accepts does in DuckDB, on tables, what it does in a data set."""

from __future__ import annotations

import datetime
import itertools
import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import fsspeckit
from fsspeckit.datasets.duckdb.version import library_version
from fsspeckit.datasets.sql_text import MergeStatement, parse_statement

pytestmark = pytest.mark.skipif(library_version() < (1, 4, 0), reason="this DuckDB has no MERGE")

COLUMNS = ["id", "x", "ts", "n"]
_names = itertools.count()

IS_DELETE = ["s.op = 'D'", "s.op IN ('D', 'X')", "(s.op = 'X' OR 'D' = s.op)", "s.op IS NOT DISTINCT FROM 'D'"]
STAYS = [
    "s.op IS DISTINCT FROM 'D'",
    "(s.op IS NULL OR s.op NOT IN ('D', 'X'))",
    "(s.op <> 'D' OR s.op IS NULL)",
    "(s.op IS DISTINCT FROM 'D' AND s.op IS DISTINCT FROM 'X')",
    "s.op <> 'D'",
    "s.op IN ('U', 'I')",
    "s.op IS NOT NULL",
]
NEWER = [
    "(t.ts IS NULL OR s.ts >= t.ts)",
    "(s.ts >= t.ts OR t.ts IS NULL)",
    "(t.ts IS NULL OR NOT t.ts > s.ts)",
    "(t.ts IS NULL OR s.ts > t.ts OR (s.ts = t.ts AND (t.n IS NULL OR s.n >= t.n)))",
    "(t.ts IS NULL OR s.ts > t.ts OR s.ts = t.ts AND s.n >= t.n)",
    "s.ts >= t.ts",
    "s.ts > t.ts",
    "s.ts IS DISTINCT FROM t.ts",
    "NOT (s.ts < t.ts)",
]
OLDER = ["s.ts < t.ts", "t.ts > s.ts", "s.ts <= t.ts"]


def conditions(*choices: list[str]) -> st.SearchStrategy[str]:
    """Up to one of each list, joined by AND; sometimes in a NOT or an OR."""
    parts = st.tuples(*[st.one_of(st.none(), st.sampled_from(choice)) for choice in choices])
    joined = parts.map(lambda some: " AND ".join(part for part in some if part))
    return st.one_of(joined, joined, joined.map(lambda text: f"NOT ({text})" if text else text))


def when(kind: str, condition: str, action: str) -> str:
    return f"WHEN {kind}{' AND ' if condition else ''}{condition} THEN {action}"


UPDATES = ["UPDATE SET *"] * 3 + [
    "UPDATE SET x = s.x, ts = s.ts",
    "UPDATE SET t.x = s.x, ts = s.ts, n = s.n, id = s.id",
]
INSERTS = ["INSERT *"] * 3 + ["INSERT (n, id, ts, x) VALUES (s.n, s.id, s.ts, s.x)"]


@st.composite
def anything(draw: Any) -> str:
    """Clauses in any order: most of these statements are refused."""
    matched = st.builds(
        when,
        st.just("MATCHED"),
        conditions(IS_DELETE + STAYS, NEWER + OLDER),
        st.sampled_from([*UPDATES, "DELETE", "DO NOTHING"]),
    )
    new = st.builds(
        when, st.just("NOT MATCHED"), conditions(STAYS + IS_DELETE), st.sampled_from([*INSERTS, "DO NOTHING"])
    )
    clauses = draw(st.lists(st.one_of(matched, new), min_size=1, max_size=4))
    return " ".join(clauses + draw(st.sampled_from([[], [], ["WHEN NOT MATCHED BY SOURCE THEN DELETE"]])))


@st.composite
def sensible(draw: Any) -> str:
    """The forms of the documentation, with conditions that are right or slightly wrong: many are accepted."""
    newer = draw(st.sampled_from(["", *NEWER[:4], *NEWER]))
    clauses = []
    is_delete, stays = draw(st.sampled_from([("", ""), *zip(IS_DELETE, STAYS), ("s.op = 'D'", "")]))
    if is_delete:
        clauses.append(when("MATCHED", " AND ".join(filter(None, [is_delete, newer])), "DELETE"))
    strategy = draw(st.sampled_from(["update", "insert", "upsert", "upsert", "delete"]))
    if strategy == "delete":
        return when("MATCHED", newer, "DELETE")
    if strategy in ("update", "upsert"):
        again = draw(st.sampled_from([newer, newer, newer, ""]))
        clauses.append(when("MATCHED", again, draw(st.sampled_from(UPDATES))))
    if strategy in ("insert", "upsert"):
        clauses.insert(draw(st.integers(0, len(clauses))), when("NOT MATCHED", stays, draw(st.sampled_from(INSERTS))))
    if draw(st.integers(0, 4)) == 0:
        clauses.append("WHEN NOT MATCHED BY SOURCE THEN DELETE")
    return " ".join(clauses)


def rows(values: list[Any], *, source: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    some = st.sampled_from(values)
    maybe = some if source else st.one_of(st.none(), some)
    row = st.fixed_dictionaries(
        {
            "id": maybe,
            "x": st.one_of(st.none(), st.integers(0, 3)),
            "ts": maybe,
            "n": maybe,
            **({"op": st.sampled_from(["D", "X", "U", "d", None])} if source else {}),
        }
    )
    return st.lists(
        row,
        min_size=1,
        max_size=8,
        unique_by=(lambda row: row["id"] + 0.0 if row["id"] == row["id"] else "nan") if source else None,
    )


VALUES: dict[str, tuple[list[Any], pa.DataType]] = {
    "integers": ([0, 1, 2, 3], pa.int64()),
    "floats": ([0.0, -0.0, 1.5, math.inf, math.nan], pa.float64()),
}


def table(some: list[dict[str, Any]], dtype: pa.DataType) -> pa.Table:
    types = {"id": dtype, "x": pa.int64(), "ts": dtype, "n": dtype, "op": pa.string()}
    return pa.table({name: pa.array([row[name] for row in some], types[name]) for name in some[0]})


def normalized(some: pa.Table) -> list[str]:
    return sorted(
        repr([value + 0 if isinstance(value, float) else value for value in row.values()])
        for row in some.select(COLUMNS).to_pylist()
    )


def with_lists(statement: str) -> str:
    """`*` means all columns of the target. DuckDB takes all columns of the source, by their position."""
    named = ", ".join(f"{name} = s.{name}" for name in COLUMNS)
    listed = f"({', '.join(COLUMNS)}) VALUES ({', '.join(f's.{name}' for name in COLUMNS)})"
    statement = statement.replace("SET t.x", "SET x")  # DuckDB has no table here, Spark does
    return statement.replace("SET *", f"SET {named}").replace("INSERT *", f"INSERT {listed}")


def in_duckdb(connection: Any, statement: str, target: pa.Table, source: pa.Table) -> pa.Table:
    connection.execute("CREATE OR REPLACE TABLE lake AS FROM target")
    connection.execute("CREATE OR REPLACE TABLE changes AS FROM source")
    connection.execute(with_lists(statement))
    return connection.sql("FROM lake").to_arrow_table()


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("clauses", [sensible, anything], ids=["sensible", "anything"])
def test_duckdb_does_the_same(clauses: Any, kind: str, request: pytest.FixtureRequest) -> None:
    values, dtype = VALUES[kind]
    examples = request.config.getoption("--examples") or 60
    accepted = 0

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(clauses(), rows(values, source=False), rows(values, source=True))
    def check(text: str, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
        nonlocal accepted
        path = f"memory://sql/{next(_names)}"
        statement = f"MERGE INTO '{path}' t USING changes s ON t.id = s.id {text}"
        try:
            read = parse_statement(statement)
        except fsspeckit.ArgumentError:
            event("refused")
            return
        assert isinstance(read, MergeStatement)
        event("accepted")
        target, source = table(old, dtype), table(new, dtype)
        if "delete_column" not in read.call.options:
            source = source.drop_columns("op")
        fsspeckit.write_dataset(target, path)
        try:
            fsspeckit.sql(statement, changes=source)
        except fsspeckit.MergeValidationError as error:
            assume("delete_missing" not in str(error))  # the source has no row that stays
            raise
        accepted += 1
        assert normalized(fsspeckit.read(path)) == normalized(
            in_duckdb(connection, statement.replace(f"'{path}'", "lake"), target, source)
        )

    with duckdb.connect() as connection:
        check()
    assert accepted > 0 or clauses is anything


DELETES = [
    "i < 2",
    "2 >= i",
    "i <> 1 AND f >= 1",
    "i IN (1, 3) OR x NOT IN ('b', 'it''s')",
    "NOT (i IN (1, 2)) AND b = TRUE",
    "b <> FALSE",
    "f > 1",
    "f <= 1 OR f NOT IN (2)",
    "x >= 'b' AND (i = 1 OR i = 2 OR d < DATE '2026-01-02')",
    "d BETWEEN DATE '2026-01-02' AND CAST('2026-01-03' AS DATE)",
    "lake.at < TIMESTAMP '2026-01-02 00:00:00' AND x != 'a'",
    "i = -1 OR -1 = i",
]


@pytest.mark.parametrize("where", DELETES)
def test_duckdb_deletes_the_same_rows(where: str) -> None:
    days = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), datetime.date(2026, 1, 3), None]
    columns: dict[str, list[Any]] = {
        "i": [-1, 1, 2, 3, None],
        "f": [-0.0, 1.0, 2.0, math.inf, -math.inf, math.nan, None],
        "x": ["a", "b", "it's", "B", None],
        "b": [True, False, None],
        "d": days,
        "at": [None if day is None else datetime.datetime.combine(day, datetime.time()) for day in days],
    }
    target = pa.table({name: [values[row * 11 % len(values)] for row in range(60)] for name, values in columns.items()})
    target = target.append_column("row", pa.array(range(60)))
    path = f"memory://sql/delete{DELETES.index(where)}"
    fsspeckit.write_dataset(target, path, "overwrite")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE lake AS FROM target")
        connection.execute(f"DELETE FROM lake WHERE {where}")
        expected = connection.sql("SELECT row FROM lake ORDER BY row").fetchall()
    result = fsspeckit.sql(f"DELETE FROM '{path}' AS lake WHERE {where}")
    assert 0 < result.deleted == 60 - len(expected) < 60
    assert sorted(fsspeckit.read(path)["row"].to_pylist()) == [row for (row,) in expected]
