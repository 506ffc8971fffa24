"""The user's connection: used, and left exactly as it was found."""

from __future__ import annotations

import gc
import os
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit import DatasetMergeError
from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from recording import in_transaction, snapshot
from support import fingerprint, rows, write_lake


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"p={i}/f.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(3)}
    return write_lake(tmp_path / "lake", files)


@pytest.fixture
def con() -> Any:
    """A connection with a life of its own: a table, temporary things, views, and settings far from the defaults."""
    con = duckdb.connect()
    con.execute("CREATE TABLE orders AS SELECT range AS id, 'x' AS x, 0 AS p FROM range(5)")
    con.execute("CREATE TEMP TABLE draft AS SELECT 5::BIGINT AS id, 'draft' AS x, 0::BIGINT AS p")
    con.execute("CREATE VIEW seen AS SELECT * FROM orders")
    con.execute("CREATE INDEX fast ON orders (id)")
    con.execute("CREATE SEQUENCE numbers")
    con.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    con.execute("CREATE MACRO twice(a) AS a * 2")
    con.register("mine", pa.table({"a": [1]}))
    con.execute("SET default_null_order = 'nulls_first'")
    con.execute("SET default_order = 'DESC'")
    con.execute("SET preserve_insertion_order = false")
    con.execute("SET arrow_large_buffer_size = true")
    con.execute("SET memory_limit = '500MB'")
    return con


GOOD = {
    "table": {"data": pa.table({"id": [5, 77], "x": ["a", "b"], "p": [0, 2]})},
    "sql": {"source_sql": "SELECT id, x, p FROM draft"},
    "nothing": {"data": pa.table({"id": [5], "x": ["a"], "p": [0]}).slice(0, 0)},
}
BAD = {
    "a null key": {"data": pa.table({"id": [None, 1], "x": ["a", "b"], "p": [0, 0]})},
    "a key twice": {"data": pa.table({"id": [1, 1], "x": ["a", "b"], "p": [0, 0]})},
    "a moved key": {"data": pa.table({"id": [1], "x": ["a"], "p": [2]})},
    "a missing column": {"source_sql": "SELECT id, x FROM draft"},
    "a value that does not fit": {"source_sql": "SELECT range / 2 AS id, 'x' AS x, 0 AS p FROM range(100000)"},
    "a syntax error": {"source_sql": "SELEC 1"},
    "an error half way": {
        "source_sql": "SELECT CASE WHEN range = 90000 THEN error('bang')::BIGINT ELSE range END AS id, "
        "'x' AS x, 0 AS p FROM range(100000)"
    },
    "not a query": {"source_sql": "CREATE TEMP TABLE IF NOT EXISTS draft (a INTEGER)"},
    "a pivot that makes a type": {"source_sql": "PIVOT orders ON x USING first(id)"},
    "such a pivot within": {"source_sql": "SELECT * FROM (PIVOT orders ON x USING first(id)) AS t"},
}


@pytest.mark.parametrize("use_merge", [None, False])
@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
@pytest.mark.parametrize("source", GOOD)
def test_same_after_success(con: Any, lake: str, source: str, strategy: Any, use_merge: bool | None) -> None:
    before = snapshot(con)
    DuckDBDatasetIO(con, use_merge=use_merge).merge(
        path=lake,
        strategy=strategy,
        key_columns=["id"],
        **GOOD[source],
    )
    assert snapshot(con) == before
    assert not in_transaction(con)


@pytest.mark.parametrize("source", BAD)
def test_same_after_failure(con: Any, lake: str, source: str) -> None:
    before, files = snapshot(con), fingerprint(lake)
    with pytest.raises((ValueError, DatasetMergeError)):
        DuckDBDatasetIO(con).merge(path=lake, strategy="upsert", key_columns=["id"], **BAD[source])
    assert snapshot(con) == before
    assert fingerprint(lake) == files
    assert not in_transaction(con)
    assert con.execute("SELECT count(*) FROM orders").fetchone() == (5,)


def test_other_calls_leave_it_too(con: Any, lake: str, tmp_path: Path) -> None:
    before = snapshot(con)
    io, source = DuckDBDatasetIO(con), pa.table({"id": [5, 5], "x": ["a", "b"], "p": [0, 0]})
    io.plan(source.slice(1), lake, "upsert", ["id"])
    io.write_parquet_dataset(source, lake, "deduplicate", ["id"], dedup_order_by=["x"])
    io.write_dataset(source, str(tmp_path / "new"))
    io.read(lake)
    assert snapshot(con) == before


def test_an_open_transaction_goes_on(con: Any, lake: str) -> None:
    con.begin()
    con.execute("INSERT INTO orders VALUES (7, 'uncommitted', 0)")
    io = DuckDBDatasetIO(con)
    assert io.merge(path=lake, strategy="update", key_columns=["id"], source_sql="FROM orders").updated == 6
    assert in_transaction(con)
    with pytest.raises(ValueError, match="NULL"):
        io.merge(pa.table({"id": [None], "x": ["a"], "p": [0]}), lake, "update", ["id"])
    assert con.execute("SELECT count(*) FROM orders").fetchone() == (6,)
    con.rollback()
    assert con.execute("SELECT count(*) FROM orders").fetchone() == (5,)
    assert {row["id"]: row["x"] for row in rows(lake)}[7] == "uncommitted"


def test_a_failed_transaction_does_not_disturb(con: Any, lake: str) -> None:
    con.begin()
    with pytest.raises(duckdb.Error):
        con.execute("SELECT error('x')").fetchall()
    assert DuckDBDatasetIO(con).merge(GOOD["table"]["data"], lake, "upsert", ["id"]).inserted == 1
    con.rollback()


def test_a_result_that_is_being_read(con: Any, lake: str) -> None:
    result = con.execute("SELECT * FROM range(100000)")
    first = result.fetchmany(10)
    DuckDBDatasetIO(con).merge(GOOD["table"]["data"], lake, "upsert", ["id"])
    assert len(first) + len(result.fetchall()) == 100_000


def test_a_read_only_database(tmp_path: Path, lake: str) -> None:
    with duckdb.connect(str(tmp_path / "db")) as con:
        con.execute("CREATE TABLE t AS SELECT 5::BIGINT AS id, 'new' AS x, 0::BIGINT AS p")
    con = duckdb.connect(str(tmp_path / "db"), read_only=True)
    result = DuckDBDatasetIO(con).merge(path=lake, strategy="upsert", key_columns=["id"], source_sql="FROM t")
    assert result.updated == 1


@pytest.mark.parametrize("connection", ["db.duckdb", 7, sqlite3.connect(":memory:")], ids=["path", "int", "sqlite"])
def test_what_is_no_connection(connection: Any) -> None:
    with pytest.raises(ArgumentError, match=r"connection takes a DuckDB connection, not .*duckdb\.connect"):
        DuckDBDatasetIO(connection)


def test_a_closed_connection(lake: str) -> None:
    con = duckdb.connect()
    relation = con.sql("SELECT 5::BIGINT AS id, 'x' AS x, 0 AS p")
    con.close()
    for io, source in ((DuckDBDatasetIO(con), GOOD["table"]["data"]), (DuckDBDatasetIO(), relation)):
        with pytest.raises(DatasetMergeError, match=r"Connection .*closed"):
            io.merge(source, lake, "upsert", ["id"])


def test_a_locked_down_database(lake: str) -> None:
    con = duckdb.connect(config={"enable_external_access": "false", "lock_configuration": "true"})
    assert DuckDBDatasetIO(con).merge(GOOD["table"]["data"], lake, "upsert", ["id"]).inserted == 1


def test_tables_with_our_names(lake: str) -> None:
    """Temporary names of ours carry a token, and columns of ours are never looked up in the user's tables."""
    con = duckdb.connect()
    for name in ("target", "source", "found", "keys", "payload"):
        con.execute(f"CREATE TABLE {name} (k0 INTEGER, row INTEGER)")
    assert DuckDBDatasetIO(con).merge(GOOD["table"]["data"], lake, "upsert", ["id"]).updated == 1


def test_the_private_database_is_closed(lake: str) -> None:
    with DuckDBDatasetIO() as io:
        io.merge(GOOD["table"]["data"], lake, "upsert", ["id"])
    assert io.merge(GOOD["table"]["data"], lake, "upsert", ["id"]).updated == 2, "and opened again when needed"


@pytest.mark.parametrize("taken", ["", "open to all", "a link"])
def test_nobody_else_can_read_what_the_private_database_spills(tmp_path: Path, monkeypatch: Any, taken: str) -> None:
    """Also if somebody else has taken the name of its folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"fsspeckit-{os.getuid()}"
    if taken == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    if taken == "a link":
        (tmp_path / "elsewhere").mkdir(0o700)
        folder.symlink_to("elsewhere")
    with DuckDBDatasetIO() as io:
        con = io._connection()
        con.execute("SET memory_limit = '64MB'; SET threads = 1")
        con.execute("CREATE TEMP TABLE large AS SELECT range AS a, hash(range)::VARCHAR AS b FROM range(2_000_000)")
        (spilled,) = tmp_path.glob("*/duckdb-*")
        assert list(spilled.iterdir())
        assert spilled.parent.stat().st_mode & 0o077 == 0
        assert (spilled.parent == folder) == (not taken)
    del con
    gc.collect()
    assert not spilled.exists()


def test_a_given_connection_stays_open(lake: str) -> None:
    con = duckdb.connect()
    with DuckDBDatasetIO(con) as io:
        io.merge(GOOD["table"]["data"], lake, "upsert", ["id"])
    assert con.execute("SELECT 1").fetchone() == (1,)


def test_two_merges_at_once_on_one_connection(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    io = DuckDBDatasetIO(duckdb.connect())
    source = pa.table({"id": range(20_000), "x": ["a"] * 20_000})
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda i: io.merge(source, str(tmp_path / f"lake{i}"), "upsert", ["id"]), range(8))
    assert [r.inserted for r in results] == [20_000] * 8
