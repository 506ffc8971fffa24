"""Streams into tables of Spark's catalog: SQL sees every batch, with its new partitions."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.errors import ArgumentError, SchemaMismatchError, TargetError
from fsspeckit.datasets.spark import SparkDatasetIO, catalog
from support import write_lake

DB = "fk_stream"
COLUMNS = "id bigint, x string, day string"


@pytest.fixture
def orders(spark: Any, tmp_path: Path) -> Iterator[str]:
    """A partitioned table of two rows in one partition."""
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")
    spark.sql(f"CREATE DATABASE {DB} LOCATION '{tmp_path}/tables'")
    spark.sql(f"CREATE TABLE {DB}.orders ({COLUMNS}) USING parquet PARTITIONED BY (day)")
    spark.sql(f"INSERT INTO {DB}.orders SELECT id, 'old', 'd0' FROM range(2)")
    yield f"{DB}.orders"
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")


def seen(spark: Any, table: str) -> list[Any]:
    return sorted(map(tuple, spark.sql(f"SELECT id, x, day FROM {table}").collect()))


def partitions(spark: Any, table: str) -> list[str]:
    return [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()]


def frame(spark: Any, *found: tuple[int, str, str]) -> Any:
    return spark.createDataFrame(list(found), COLUMNS)


def run_query(spark: Any, write: Any, raw: Path, checkpoint: Path) -> None:
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(raw))
    query = source.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    query.trigger(availableNow=True).start().awaitTermination()


def add_file(raw: Path, name: str, *found: tuple[int, str, str]) -> None:
    raw.mkdir(exist_ok=True)
    lines = [json.dumps(dict(zip(("id", "x", "day"), row, strict=True))) for row in found]
    (raw / f"{name}.json").write_text("\n".join(lines))


def test_sql_sees_every_batch_with_its_new_partitions(
    spark: Any, io: SparkDatasetIO, orders: str, tmp_path: Path
) -> None:
    """A query runs in a copy of the session. The session that started it must see the rows too."""
    raw = tmp_path / "raw"
    add_file(raw, "0", (1, "new", "d0"), (2, "new", "d:1"))
    add_file(raw, "1", (3, "new", "d2"))
    assert seen(spark, orders) == [(0, "old", "d0"), (1, "old", "d0")]
    write = io.foreach_batch(table=orders, key_columns=["id", "day"], app_id="orders")
    run_query(spark, write, raw, tmp_path / "checkpoint")
    rows = [(0, "old", "d0"), (1, "new", "d0"), (2, "new", "d:1"), (3, "new", "d2")]
    assert seen(spark, orders) == rows
    assert partitions(spark, orders) == ["day=d%3A1", "day=d0", "day=d2"]


def test_a_stream_by_path_refreshes_the_tables_of_the_session(
    spark: Any, io: SparkDatasetIO, orders: str, tmp_path: Path
) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [0], "x": ["old"], "day": ["d0"]})})
    spark.sql(f"USE {DB}")
    try:
        spark.sql(f"CREATE TABLE flat USING parquet LOCATION '{lake}'")
        assert seen(spark, "flat") == [(0, "old", "d0")]
        add_file(tmp_path / "raw", "0", (1, "new", "d0"))
        run_query(spark, io.foreach_batch(lake, "id", app_id="flat"), tmp_path / "raw", tmp_path / "checkpoint")
        assert seen(spark, "flat") == [(0, "old", "d0"), (1, "new", "d0")]
    finally:
        spark.sql("USE default")


def test_a_batch_given_again_adds_the_partitions_that_the_first_attempt_did_not(
    spark: Any, io: SparkDatasetIO, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt dies between its commit and the change of the catalog."""
    write = io.foreach_batch(table=orders, key_columns=["id", "day"], app_id="orders")
    batch = frame(spark, (7, "new", "d7"))
    with monkeypatch.context() as patched:

        def die(*_: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(catalog, "refresh_table", die)
        with pytest.raises(KeyboardInterrupt):
            write(batch, 0)
    assert "day=d7" not in partitions(spark, orders)
    write(batch, 0)
    assert "day=d7" in partitions(spark, orders)
    assert (7, "new", "d7") in seen(spark, orders)


def test_a_batch_without_effect_leaves_the_catalog_alone(
    spark: Any, io: SparkDatasetIO, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[Any] = []
    monkeypatch.setattr(catalog, "refresh_table", lambda *arguments: refreshed.append(arguments))
    write = io.foreach_batch(table=orders, key_columns=["id", "day"], app_id="orders")
    write(frame(spark, (1, "old", "d0")), 0)
    assert not refreshed
    write(frame(spark, (1, "new", "d0")), 1)
    assert len(refreshed) == 1


def test_the_name_means_the_table_of_the_database_at_the_start(spark: Any, io: SparkDatasetIO, orders: str) -> None:
    spark.sql(f"USE {DB}")
    try:
        write = io.foreach_batch(table="orders", key_columns=["id", "day"], app_id="orders")
    finally:
        spark.sql("USE default")
    write(frame(spark, (5, "new", "d0")), 0)
    assert (5, "new", "d0") in seen(spark, orders)


def test_spark_connect_can_send_it(io: SparkDatasetIO, orders: str) -> None:
    write = io.foreach_batch(table=orders, key_columns=["id"], app_id="orders")
    assert write.session is io.spark
    assert pickle.loads(pickle.dumps(write)) == write


def test_what_is_refused_is_refused_before_the_stream_starts(spark: Any, io: SparkDatasetIO, orders: str) -> None:
    with pytest.raises(ArgumentError, match="either the path of the data set or the name of its table"):
        io.foreach_batch("/lake", ["id"], app_id="a", table=orders)
    with pytest.raises(ArgumentError, match="either the path of the data set or the name of its table"):
        io.foreach_batch(key_columns=["id"], app_id="a")
    spark.sql(f"CREATE VIEW {DB}.v AS SELECT * FROM {orders}")
    with pytest.raises(TargetError, match="is a view"):
        io.foreach_batch(table=f"{DB}.v", key_columns=["id"], app_id="a")
    spark.sql(f"CREATE TABLE {DB}.chars (id char(5), x string) USING parquet")
    with pytest.raises(SchemaMismatchError, match="pads with blanks"):
        io.foreach_batch(table=f"{DB}.chars", key_columns=["id"], app_id="a")


def test_the_first_batch_of_a_new_table_has_its_types(spark: Any, io: SparkDatasetIO, orders: str) -> None:
    spark.sql(f"CREATE TABLE {DB}.new (id int, x string, day string) USING parquet PARTITIONED BY (day)")
    write = io.foreach_batch(table=f"{DB}.new", key_columns=["id"], app_id="orders")
    with pytest.raises(SchemaMismatchError, match="has no files yet"):
        write(frame(spark, (1, "x", "d")), 0)
    write(frame(spark, (1, "x", "d")).selectExpr("cast(id as int) id", "x", "day"), 0)
    assert seen(spark, f"{DB}.new") == [(1, "x", "d")]
    assert partitions(spark, f"{DB}.new") == ["day=d"]
