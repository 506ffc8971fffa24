"""Sources and targets that users try: streaming frames, frames of the pandas API, text that is too long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.datasets.spark import SparkDatasetIO
from spark_frames import table_of
from support import fingerprint, rows, write_lake

DB = "fk_slips"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["old", "old"]})})


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")
    spark.sql(f"CREATE DATABASE {DB} LOCATION '{tmp_path}/tables'")
    spark.sql(
        f"CREATE TABLE {DB}.t (id bigint, Code varchar(3), c char(2), day string) USING parquet PARTITIONED BY (day)"
    )
    spark.sql(f"INSERT INTO {DB}.t VALUES (1, 'abc', 'x', 'd0')")
    yield f"{DB}.t"
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")


def test_a_streaming_frame_is_refused_by_the_name_of_the_call_that_takes_it(
    spark: Any, io: SparkDatasetIO, lake: str
) -> None:
    stream, before = spark.readStream.format("rate").load().selectExpr("value id", "'new' x"), fingerprint(lake)
    for call in (io.merge, io.plan):
        with pytest.raises(ArgumentError, match=r"streaming DataFrame.*foreach_batch\(path, key_columns, app_id="):
            call(stream, lake, key_columns=["id"])
    with pytest.raises(ArgumentError, match="streaming DataFrame"):
        io.write_dataset(stream, lake)
    assert fingerprint(lake) == before


def test_a_frame_of_the_pandas_api(spark: Any, lake: str) -> None:
    if spark.version < "4.1":
        pytest.skip("the pandas API needs NumPy 1 in Spark 3.5, and refuses ANSI mode in 4.0")
    frame = spark.createDataFrame([(2, "new"), (3, "new")], "id bigint, x string").pandas_api()
    result = fsspeckit.merge(frame, lake, key_columns=["id"])
    assert (result.inserted, result.updated) == (1, 1)
    indexed = frame.set_index("id")
    with pytest.raises(ValueError, match="id"):
        fsspeckit.merge(indexed, lake, key_columns=["id"])
    assert sorted((row["id"], row["x"]) for row in rows(lake)) == [(1, "old"), (2, "new"), (3, "new")]


def source(spark: Any, code: str, c: str = "y") -> Any:
    return spark.createDataFrame(
        [(1, code, c, "d0"), (2, "é€x", "z", "d1")], "id bigint, code string, c string, day string"
    )


def test_text_longer_than_the_column_is_refused(spark: Any, io: SparkDatasetIO, table: str) -> None:
    def refused(frame: Any, call: Any, column: str, **options: Any) -> None:
        with pytest.raises(
            SchemaMismatchError, match=rf"'{column}' holds at most \d char.*1 row\(s\).*e\.g\. '.*too long'"
        ):
            call(frame, table=table, **options)

    before = [tuple(row) for row in spark.table(table).collect()]
    long_code, long_char = source(spark, "too long"), source(spark, "ok", "too long")
    for call in (io.merge, io.plan):
        refused(long_code, call, "(?i:code)", key_columns=["id"])
    refused(long_char, io.merge, "c", key_columns=["id"])
    refused(long_code, io.write_parquet_dataset, "(?i:code)")
    refused(table_of(long_code), io.write_parquet_dataset, "(?i:code)", strategy="upsert", key_columns=["id"])
    with pytest.raises(SchemaMismatchError, match="holds at most 3"):
        io.foreach_batch(table=table, key_columns=["id"], app_id="a")(long_code, 0)
    assert [tuple(row) for row in spark.table(table).collect()] == before
    assert io.merge(source(spark, "é€x"), table=table, key_columns=["id"]).inserted == 1


def test_a_write_into_a_table(spark: Any, io: SparkDatasetIO, table: str) -> None:
    io.write_parquet_dataset(source(spark, "new").where("id = 2"), table=table)
    assert [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()] == ["day=d0", "day=d1"]
    assert spark.table(table).count() == 2
    result = io.write_parquet_dataset(source(spark, "upd"), None, "upsert", ["id"], table=table)
    assert isinstance(result, fsspeckit.MergeResult) and result.updated == 2
    with pytest.raises(ArgumentError, match="either the path"):
        io.write_parquet_dataset(source(spark, "new"))
