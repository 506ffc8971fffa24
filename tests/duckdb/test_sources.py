"""What a source may be: all that PyArrow takes, relations, and SQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import DatasetMergeError
from fsspeckit.api import engine_for, merge
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, source
from support import rows, write_lake

CON = duckdb.connect()
TABLE = pa.table({"id": [5, 77], "x": ["a", "b"]})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": range(10), "x": ["old"] * 10})})


def polars_frame() -> Any:
    import polars

    return polars.from_arrow(TABLE)


def directory(tmp_path: Path) -> str:
    return write_lake(tmp_path / "src", {"a.parquet": TABLE.slice(0, 1), "b.parquet": TABLE.slice(1)})


def files(tmp_path: Path) -> list[str]:
    """Two files with other columns and other types of null."""
    write_lake(tmp_path / "src", {"a.parquet": TABLE.slice(0, 1)})
    pq.write_table(pa.table({"x": ["b"], "id": [77]}), tmp_path / "src" / "b.parquet")
    return [str(tmp_path / "src" / name) for name in ("a.parquet", "b.parquet")]


SOURCES = {
    "table": lambda folder: TABLE,
    "batch": lambda folder: TABLE.to_batches()[0],
    "reader": lambda folder: TABLE.to_reader(),
    "chunks": lambda folder: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(0, 0), TABLE.slice(1)]),
    "dictionary": lambda folder: TABLE.set_column(1, "x", TABLE.column("x").dictionary_encode()),
    "polars": lambda folder: polars_frame(),
    "pandas": lambda folder: TABLE.to_pandas(),
    "file": lambda folder: str(Path(directory(folder)).joinpath("../one.parquet")),
    "path object": lambda folder: Path(directory(folder)),
    "directory": directory,
    "files": files,
    "relation": lambda folder: CON.sql("SELECT * FROM (VALUES (5, 'a'), (77, 'b')) AS t(id, x)"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_sources(kind: str, lake: str, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "one.parquet")
    source = SOURCES[kind](tmp_path)
    result = DuckDBDatasetIO().merge(source, lake, "upsert", ["id"])
    assert (result.inserted, result.updated, result.source_count) == (1, 1, 2)
    assert {r["id"]: r["x"] for r in rows(lake)} == dict.fromkeys(range(10), "old") | {5: "a", 77: "b"}


def test_sql_sees_what_the_connection_sees(lake: str) -> None:
    con = duckdb.connect()
    con.register("registered", TABLE)
    con.execute("CREATE TEMP MACRO renamed(v) AS v || '!'")
    io = DuckDBDatasetIO(con)
    sql = "SELECT id, renamed(x) AS x FROM registered;"
    assert io.plan(path=lake, strategy="upsert", key_columns=["id"], source_sql=sql).inserted == 1
    assert io.merge(path=lake, strategy="upsert", key_columns=["id"], source_sql=sql).updated == 1
    assert {r["id"]: r["x"] for r in rows(lake)}[5] == "a!"


def test_writing_from_sql(tmp_path: Path) -> None:
    io = DuckDBDatasetIO()
    io.write_dataset(path=str(tmp_path / "a"), source_sql="SELECT range AS id FROM range(1000)")
    io.write_parquet_dataset(path=str(tmp_path / "a"), source_sql="SELECT 7::BIGINT AS id")
    assert len(rows(tmp_path / "a")) == 1001
    result = io.write_parquet_dataset(
        path=str(tmp_path / "a"), strategy="full_merge", key_columns=["id"], source_sql="SELECT 5::BIGINT AS id"
    )
    assert (result.deleted, rows(tmp_path / "a")) == (1000, [{"id": 5}])


def test_a_relation_of_the_same_connection(lake: str) -> None:
    con = duckdb.connect()
    relation = con.from_arrow(TABLE).filter("id > 10")
    assert DuckDBDatasetIO(con).merge(relation, lake, "upsert", ["id"]).inserted == 1
    assert len(relation.fetchall()) == 1, "the relation is still good"


def test_a_stream_is_read_once_and_never_as_a_whole(lake: str) -> None:
    """A million rows in small batches: at no time do many of them exist."""
    most = [0]

    def batches() -> Any:
        for i in range(200):
            yield pa.record_batch({"id": pa.array(range(i * 5000, i * 5000 + 5000)), "x": pa.array(["n" * 50] * 5000)})
            most[0] = max(most[0], pa.total_allocated_bytes())

    before = pa.total_allocated_bytes()
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    result = DuckDBDatasetIO().merge(reader, lake, "update", ["id"])
    assert (result.source_count, result.updated) == (1_000_000, 10)
    assert most[0] - before < 60 << 20, "the source is 66 MB"


def test_a_relation_is_not_made_a_table(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, sizes = source.Query.batches, list[int]()

    def counting(query: source.Query) -> Iterator[pa.RecordBatch]:
        for batch in read(query):
            sizes.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(source.Query, "batches", counting)
    relation = CON.sql("SELECT range AS id, 'n' AS x FROM range(300000)")
    assert DuckDBDatasetIO().merge(relation, lake, "update", ["id"]).updated == 10
    assert sum(sizes) == 300_000 and max(sizes) <= source.BATCH_ROWS


def test_names_of_any_kind(tmp_path: Path) -> None:
    names = ['a"b', "a b", "a.b", "ü", "A", "a", "", "select", "row", "place", "c0"]
    table = pa.table({name: [i, i + 1] for i, name in enumerate(names)})
    lake = str(tmp_path / "lake")
    io = DuckDBDatasetIO()
    io.merge(table, lake, "upsert", ["A"])
    assert io.merge(table, lake, "upsert", ['a"b', ""]).updated == 2
    assert rows(lake) == table.to_pylist()


@pytest.mark.parametrize("arguments", [{}, {"data": TABLE, "source_sql": "SELECT 1"}])
def test_one_source_is_wanted(arguments: dict[str, Any], lake: str) -> None:
    with pytest.raises(ArgumentError, match="either data or source_sql"):
        DuckDBDatasetIO().merge(path=lake, strategy="upsert", key_columns=["id"], **arguments)
    with pytest.raises(ArgumentError, match="path is missing"):
        DuckDBDatasetIO().merge(TABLE, strategy="upsert", key_columns=["id"])


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (INSERT INTO t VALUES ('ü') RETURNING *) FROM x",
        "WITH x AS (/* ü */ delete FROM t RETURNING *) FROM x",
        "WITH x AS (WITH y AS (SELECT 1) INSERT INTO t FROM y RETURNING *) FROM x",
        "WITH x AS (COPY t TO 'stolen.csv') SELECT 1",
    ],
)
def test_a_query_that_changes_something_is_refused(lake: str, sql: str) -> None:
    """Older versions of DuckDB do not parse these."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 'x' AS a")
    for work in (DuckDBDatasetIO(connection).plan, DuckDBDatasetIO(connection).merge):
        with pytest.raises(
            (ArgumentError, DatasetMergeError), match=r"must be one query|A CTE needs a SELECT|Parser Error"
        ):
            work(path=lake, strategy="upsert", key_columns=["id"], source_sql=sql)
    assert connection.sql("FROM t").fetchall() == [("x",)]
    assert not Path("stolen.csv").exists()


def test_errors_of_a_source(lake: str) -> None:
    io = DuckDBDatasetIO()
    with pytest.raises(ArgumentError, match="source of type int"):
        io.merge(7, lake, "upsert", ["id"])
    for sql in ("CREATE TEMP TABLE t (a INTEGER)", "SELECT 1; DROP TABLE t", "DELETE FROM t RETURNING *", ""):
        with pytest.raises(ArgumentError, match="source_sql must be one query"):
            io.merge(path=lake, strategy="upsert", key_columns=["id"], source_sql=sql)
    with pytest.raises(ArgumentError, match="A PIVOT is one if it lists its values"):
        io.merge(path=lake, strategy="upsert", key_columns=["id"], source_sql="PIVOT range(3) ON range")
    pivot = "PIVOT (SELECT 5::BIGINT AS id, 'x' AS name, 'p' AS v) ON name IN ('x') USING first(v)"
    assert io.plan(path=lake, strategy="upsert", key_columns=["id"], source_sql=pivot).updated == 1
    with pytest.raises(DatasetMergeError, match=r"MERGE operation failed: .*no_such_table") as caught:
        io.merge(path=lake, strategy="upsert", key_columns=["id"], source_sql="SELECT * FROM no_such_table")
    assert isinstance(caught.value.__cause__, duckdb.Error)
    assert caught.value.context["strategy"] == "upsert"
    with pytest.raises(SchemaMismatchError, match=r"'id' is double .* 2\.5"):
        io.merge(path=lake, strategy="upsert", key_columns=["id"], source_sql="SELECT 2.5::DOUBLE AS id, 'x' AS x")
    with pytest.raises(DatasetMergeError, match="WRITE operation failed"):
        io.write_dataset(path=lake, source_sql="SELEC")


def test_a_relation_chooses_the_engine(lake: str) -> None:
    relation = CON.sql("SELECT 5::BIGINT AS id, 'rel' AS x")
    assert engine_for(relation) == "duckdb"
    assert merge(relation, lake, "update", ["id"]).updated == 1


def test_nothing_is_spilled_into_the_working_directory(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = set(os.listdir())
    io = DuckDBDatasetIO()
    io._connection().execute("SET memory_limit = '60MB'")
    sql = "SELECT range AS id, repeat('y', 2000) AS x FROM range(50000)"
    assert io.merge(path=lake, strategy="upsert", key_columns=["id"], source_sql=sql).updated == 10
    spill = io._connection().execute("SELECT current_setting('temp_directory')").fetchone()[0]
    assert set(os.listdir()) == here
    io.close()
    assert not os.path.exists(spill)
