"""Sources that are queries: one at a time on a connection, and whole or not at all.

DuckDB before version 2 ends a stream without a word when something else runs on its connection; DuckDB 2 refuses the
other statement. `NEEDS_MARKER` tells which one is under test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit import DatasetMergeError
from fsspeckit.core import local_engine as local
from fsspeckit.core.storage import Access
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, engine
from fsspeckit.datasets.duckdb import io as io_module
from fsspeckit.datasets.duckdb.source import NEEDS_MARKER, Sql, open_source
from recording import Recording, in_transaction
from support import fingerprint, rows, write_lake

ROWS = 300_000
SQL = f"SELECT range AS id, 'n' || range AS x FROM range({ROWS})"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": range(10), "x": ["old"] * 10})})


def upsert(con: Any, lake: str | Path, sql: str = SQL) -> Any:
    return DuckDBDatasetIO(con).merge(path=str(lake), strategy="upsert", key_columns=["id"], source_sql=sql)


def from_relation(con: Any, lake: str | Path) -> Any:
    return DuckDBDatasetIO().merge(con.sql(SQL), str(lake), "upsert", ["id"])


@pytest.mark.parametrize("kinds", [["sql"], ["relation"], ["sql", "relation"]], ids=" and ".join)
def test_merges_at_once_on_one_connection(kinds: list[str], tmp_path: Path) -> None:
    con = duckdb.connect()
    io, relations = DuckDBDatasetIO(con), [con.sql(SQL) for _ in range(6)]

    def merge(number: int) -> Any:
        source = {"sql": {"source_sql": SQL}, "relation": {"data": relations[number]}}[kinds[number % len(kinds)]]
        return io.merge(path=str(tmp_path / f"lake{number}"), strategy="upsert", key_columns=["id"], **source)

    with ThreadPoolExecutor(4) as pool:
        assert [result.inserted for result in pool.map(merge, range(6))] == [ROWS] * 6


def test_a_result_that_the_user_has_not_read_to_its_end(lake: str) -> None:
    """DuckDB 1 ends it when the query starts; with DuckDB 2 it stays whole and the merge is refused."""
    con, before = duckdb.connect(), fingerprint(lake)
    result = con.execute("SELECT * FROM range(100000)")
    first = result.fetchmany(10)
    if NEEDS_MARKER:
        assert upsert(con, lake).source_count == ROWS
        assert len(first) + len(result.fetchall()) < 100_000
    else:
        with pytest.raises(DatasetMergeError, match="unfinished result"):
            upsert(con, lake)
        assert fingerprint(lake) == before
        assert len(first) + len(result.fetchall()) == 100_000
    assert upsert(con, lake).source_count == ROWS


def interfere(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Any]) -> None:
    """Do something once the first portion of the source has been read, and more is to come."""
    real = local.conformed  # type: ignore[attr-defined]

    def conformed(*arguments: Any) -> Iterator[pa.Table]:
        for number, table in enumerate(real(*arguments)):
            yield table
            if number == 0:
                meanwhile()

    monkeypatch.setattr(local, "conformed", conformed)


@pytest.mark.parametrize("way", [upsert, from_relation], ids=["sql", "relation"])
def test_a_statement_of_the_user_meanwhile(way: Any, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    con, before, refused = duckdb.connect(), fingerprint(lake), []

    def meanwhile() -> None:
        try:
            con.execute("SELECT 42")
        except duckdb.Error as error:
            refused.append(error)

    interfere(monkeypatch, meanwhile)
    if NEEDS_MARKER:
        with pytest.raises(DatasetMergeError, match=r"cut short.*connection\.cursor\(\)\)\.$"):
            way(con, lake)
        assert fingerprint(lake) == before
    else:
        assert way(con, lake).source_count == ROWS
        assert len(refused) == 1
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_threads_with_cursors_of_their_own_do_not_wait(tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE shared AS {SQL}")
    query: Any = open_source(Sql(SQL), con, Access())
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(upsert, con.cursor(), tmp_path / "lake", "FROM shared").result(timeout=60)
    query.close()
    assert done.inserted == ROWS


@pytest.mark.parametrize("kind", ["sql", "relation"])
def test_others_wait_for_their_turn(kind: str, tmp_path: Path) -> None:
    """A relation does not tell its connection, so it waits whatever that is."""
    con = duckdb.connect()
    query: Any = open_source(Sql(SQL), con, Access())
    with ThreadPoolExecutor(1) as pool:
        if kind == "sql":
            waiting = pool.submit(upsert, con, tmp_path / "lake")
        else:
            waiting = pool.submit(from_relation, duckdb.connect(), tmp_path / "lake")
        time.sleep(0.3)
        assert not waiting.done()
        assert sum(batch.num_rows for batch in query.rows()) == ROWS
        query.close()
        assert waiting.result(timeout=60).inserted == ROWS


def test_one_within_the_other_is_no_deadlock(tmp_path: Path) -> None:
    con = duckdb.connect()
    outer: Any = open_source(Sql(SQL), con, Access())
    try:
        if NEEDS_MARKER:
            assert upsert(con, tmp_path / "lake").inserted == ROWS
            with pytest.raises(duckdb.Error, match="cut short"):
                list(outer.rows())
        else:
            with pytest.raises(DatasetMergeError, match="Resource In Use"):
                upsert(con, tmp_path / "lake")
            assert sum(batch.num_rows for batch in outer.rows()) == ROWS
    finally:
        outer.close()
        outer.close()


FAILING = {
    "at once": "SELECT error('bang')::BIGINT AS id, 'x' AS x",
    "half way": f"SELECT CASE WHEN range = {ROWS} - 1 THEN error('bang')::BIGINT ELSE range END AS id, 'x' AS x "
    f"FROM range({ROWS})",
    "sorted": "SELECT CASE WHEN range = 90000 THEN error('bang')::BIGINT ELSE range END AS id, 'x' AS x "
    "FROM range(100000) ORDER BY id",
}
REFUSED = {
    "a column too few": "SELECT 1 AS id",
    "a type that cannot be stored": "SELECT 1 AS id, INTERVAL 1 DAY AS x",
    "a value that does not fit": f"SELECT range / 2 AS id, 'x' AS x FROM range({ROWS})",
    "a null key": f"SELECT nullif(range, 5) AS id, 'x' AS x FROM range({ROWS})",
    "no such table": "FROM no_such_table",
    "a syntax error": "SELEC 1",
    "not a query": "DROP TABLE kept",
    "a parameter": "SELECT $1 AS id, 'x' AS x",
}


def in_the_middle() -> Any:
    """A connection with an open transaction."""
    con = duckdb.connect()
    con.execute("CREATE TABLE kept AS SELECT 1 AS a")
    con.begin()
    con.execute("INSERT INTO kept VALUES (2)")
    return con


@pytest.mark.parametrize("sql", FAILING.values(), ids=FAILING)
def test_a_query_that_fails_aborts_the_transaction(sql: str, lake: str) -> None:
    con, before = in_the_middle(), fingerprint(lake)
    with pytest.raises(DatasetMergeError, match=r"(?s)bang.*transaction.*aborted.*roll it back"):
        upsert(con, lake, sql)
    assert fingerprint(lake) == before
    with pytest.raises(duckdb.TransactionException, match="aborted"):
        con.execute("SELECT 1")
    con.rollback()
    assert con.execute("FROM kept").fetchall() == [(1,)]
    assert upsert(con, lake).updated == 10


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED)
def test_a_query_that_is_refused_does_not(sql: str, lake: str) -> None:
    con, before = in_the_middle(), fingerprint(lake)
    with pytest.raises((DatasetMergeError, ValueError)) as caught:
        upsert(con, lake, sql)
    assert "aborted" not in str(caught.value)
    assert fingerprint(lake) == before
    assert in_transaction(con)
    assert con.execute("FROM kept").fetchall() == [(1,), (2,)]
    con.rollback()


@pytest.mark.parametrize("sql", [*FAILING.values(), *REFUSED.values()], ids=[*FAILING, *REFUSED])
def test_after_a_failure_it_is_the_next_ones_turn(sql: str, lake: str) -> None:
    con = duckdb.connect()
    with pytest.raises((DatasetMergeError, ValueError)):
        upsert(con, lake, sql)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(upsert, con, lake).result(timeout=60).updated == 10


def test_all_rows_in_any_order(tmp_path: Path) -> None:
    """The user does not mind the order: many threads, and still every row."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE wide AS {SQL}")
    con.execute("SET preserve_insertion_order = false")
    con.execute("SET threads = 8")
    for number, sql in enumerate(
        ["FROM wide", "FROM wide JOIN (SELECT id FROM wide) USING (id)", "FROM wide UNION FROM wide"]
    ):
        assert upsert(con, tmp_path / f"lake{number}", sql).inserted == ROWS


def test_the_order_of_the_query_is_kept(tmp_path: Path) -> None:
    upsert(duckdb.connect(), tmp_path / "lake", f"SELECT * FROM ({SQL}) ORDER BY id % 1000, id DESC")
    ids = [row["id"] for row in rows(tmp_path / "lake")]
    assert ids == sorted(range(ROWS), key=lambda i: (i % 1000, -i))


def test_a_relation_over_a_stream_that_is_read_once(lake: str) -> None:
    con = duckdb.connect()
    table = pa.table({"id": range(ROWS), "x": ["n"] * ROWS})
    stream = con.from_arrow(table.to_reader(max_chunksize=1000))
    assert DuckDBDatasetIO(con).merge(stream, lake, "upsert", ["id"]).source_count == ROWS


def test_a_query_runs_once(lake: str) -> None:
    con = duckdb.connect()
    con.execute("CREATE SEQUENCE numbers")
    assert upsert(con, lake, "SELECT nextval('numbers') AS id, 'n' AS x FROM range(5)").updated == 5
    assert con.execute("SELECT nextval('numbers')").fetchone() == (6,)


@pytest.mark.parametrize("end", [";", " ; ;", "; -- ü", "\n-- ;", " /* ; */ ;\n-- the end\n"])
def test_what_comes_after_a_statement(end: str, lake: str) -> None:
    sql = f"-- ü;\nSELECT 5 AS id, 'ü;' || $$;$$ AS x{end}"
    assert upsert(duckdb.connect(), lake, sql).updated == 1
    assert {row["id"]: row["x"] for row in rows(lake)}[5] == "ü;;"


def test_no_rows(lake: str) -> None:
    assert upsert(duckdb.connect(), lake, f"SELECT * FROM ({SQL}) WHERE false").source_count == 0


NAMES = ["text", "connection", "source", "names", "relation", "rows", "reader", "make", "stack", "self", "duckdb", "pa"]


@pytest.mark.parametrize("name", [*NAMES, "data", "engine", "request", "Query", "select_list"])
def test_variables_of_ours_are_no_tables(name: str, lake: str) -> None:
    with pytest.raises(DatasetMergeError, match=f"{name} does not exist"):
        upsert(duckdb.connect(), lake, f'FROM "{name}"')


def test_the_private_database_is_made_once(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def slowly() -> Any:
        time.sleep(0.1)
        made.append(duckdb.connect())
        return made[-1]

    monkeypatch.setattr(io_module, "_private_database", slowly)
    io, start = DuckDBDatasetIO(), threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        found = [call.result() for call in [pool.submit(lambda: (start.wait(), io._connection())[1]) for _ in range(4)]]
    assert len(made) == 1 and all(connection is made[0] for connection in found)


def test_our_cursor_closes_even_if_the_source_does_not(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recording()
    opened = engine.open_source  # type: ignore[attr-defined]

    def stubborn(*arguments: Any) -> Any:
        source: Any = opened(*arguments)
        source.close()
        return replace(source, close=lambda: (_ for _ in ()).throw(RuntimeError("stubborn")))

    monkeypatch.setattr(engine, "open_source", stubborn)
    with pytest.raises(RuntimeError, match="stubborn"):
        DuckDBDatasetIO(record).merge(path=lake, strategy="upsert", key_columns=["id"], source_sql="SELECT 1 AS id")
    assert record.closed == record.cursors
