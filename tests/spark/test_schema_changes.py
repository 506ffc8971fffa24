"""Spark and schema changes: lakes of Spark, tables of its catalog, streams, and the data source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import nothing_changes
from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, register
from spark_frames import table_of
from spark_session import HAS_DATA_SOURCE
from support import data_files, rows, write_lake

DATA = Path(__file__).parent.parent / "data"
EVOLVE: dict[str, Any] = {"on_schema_change": "evolve"}
DB = "fk_evolve"
SPARK_ROW = b"org.apache.spark.sql.parquet.row.metadata"
NEW = {
    "new_text": (pa.array(["x"]), "string"),
    "new_flag": (pa.array([True]), "boolean"),
    "new_instant": (pa.array([10**15], pa.timestamp("us", "UTC")), "timestamp"),
    "new_nanos": (pa.array([10**18], pa.timestamp("ns")), "timestamp_ntz"),
    "new_half": (pa.array([0.5], pa.float16()), "float"),
    "new_day": (pa.array([19000], pa.date32()), "date"),
    "new_price": (pa.array([Decimal("1.50")], pa.decimal128(20, 2)), "decimal(20,2)"),
    "new_list": (pa.array([[1, None]]), "array<bigint>"),
    "new_struct": (pa.array([{"a": 1, "b": ["x"]}]), "struct<a:bigint,b:array<string>>"),
    "new_map": (pa.array([[("k", 0.5)]], pa.map_("string", "double")), "map<string,double>"),
    "new_bytes": (pa.array([b"x"]), "binary"),
}


@pytest.mark.parametrize("name", ["spark", "spark_legacy"])
def test_lakes_of_spark(spark: Any, io: SparkDatasetIO, tmp_path: Path, name: str) -> None:
    """Spark sees every new column with its default options, and all old values."""
    lake = str(tmp_path / "lake")
    shutil.copytree(DATA / name, lake)
    before = table_of(io.read(lake).orderBy("id"))
    columns = {"id": pa.array([3], pa.int64()), **{column: values for column, (values, _) in NEW.items()}}
    result = PyArrowDatasetIO().merge(pa.table(columns), lake, "update", ["id"], **EVOLVE)
    assert set(result.added_columns) == set(NEW) and result.updated == 1
    frame = spark.read.parquet(lake)
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert {column: types[column] for column in NEW} == {column: dtype for column, (_, dtype) in NEW.items()}
    after = table_of(io.read(lake).orderBy("id"))
    assert after.select(before.column_names).to_pylist() == before.to_pylist()
    (row,) = frame.where("new_text is not null").select("id", "new_struct", "new_list").collect()
    assert row.asDict(recursive=True) == {"id": 3, "new_struct": {"a": 1, "b": ["x"]}, "new_list": [1, None]}
    for file in data_files(lake):
        described = json.loads(pq.read_metadata(f"{lake}/{file}").metadata[SPARK_ROW])
        assert [field["name"] for field in described["fields"]][-len(NEW) :] == list(NEW)


def test_wider_types_and_nested_fields(spark: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    frame = spark.range(20).selectExpr(
        "id", "cast(id as int) n", "named_struct('a', cast(id as int), 't', timestamp'2024-01-01') s"
    )
    frame.repartition(3).write.option("parquet.field.id.write.enabled", "true").parquet(lake)
    zone = pa.timestamp("us", "UTC")
    struct = pa.struct({"a": pa.int32(), "t": zone, "b": pa.string()})
    data = pa.table({"id": [3], "n": [2**40], "s": pa.array([{"a": 1, "t": None, "b": "x"}], struct)})
    result = PyArrowDatasetIO().merge(data, lake, "upsert", ["id"], source_timezone="UTC", **EVOLVE)
    assert result.added_columns == {"s.b": "string"} and set(result.retyped_columns) == {"n", "s"}
    read = spark.read.parquet(lake)
    assert {f.name: f.dataType.simpleString() for f in read.schema} == {
        "id": "bigint",
        "n": "bigint",
        "s": "struct<a:int,t:timestamp,b:string>",
    }
    found = {row["id"]: row.asDict(recursive=True) for row in read.collect()}
    old = {row["id"]: row.asDict(recursive=True) for row in frame.collect()}
    assert found.pop(3) == {"id": 3, "n": 2**40, "s": {"a": 1, "t": None, "b": "x"}}
    assert found == {i: {**row, "s": {**row["s"], "b": None}} for i, row in old.items() if i != 3}


def test_touched_files_need_merge_schema(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"f{n}.parquet": pa.table({"id": [n]}) for n in range(3)})
    io.merge(pa.table({"id": [1], "new": ["x"]}), lake, "upsert", ["id"], evolve_files="touched", **EVOLVE)
    merged = spark.read.option("mergeSchema", "true").parquet(lake)
    assert sorted((row["id"], row["new"]) for row in merged.collect()) == [(0, None), (1, "x"), (2, None)]


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")
    spark.sql(f"CREATE DATABASE {DB} LOCATION '{tmp_path}/tables'")
    spark.sql(f"CREATE TABLE {DB}.t (id bigint, n int, day string) USING parquet PARTITIONED BY (day)")
    spark.sql(f"INSERT INTO {DB}.t SELECT id, id, concat('d', id % 2) FROM range(10)")
    yield f"{DB}.t"
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")


def test_tables_get_the_column(spark: Any, io: SparkDatasetIO, table: str) -> None:
    source = spark.range(9, 12).selectExpr("id", "1 n", "concat('d', id % 2) day", "'x' `odd ``name`", "array(id) l")
    result = io.merge(source, table=table, strategy="upsert", key_columns="id", **EVOLVE)
    assert set(result.added_columns) == {"odd `name", "l"}
    frame = spark.table(table)
    assert frame.columns == ["id", "n", "odd `name", "l", "day"]
    assert dict(frame.dtypes)["l"] == "array<bigint>"
    found = {row["id"]: (row["odd `name"], row["l"]) for row in frame.collect()}
    assert found == dict.fromkeys(range(9), (None, None)) | {i: ("x", [i]) for i in (9, 10, 11)}
    again = io.merge(source, table=table, strategy="upsert", key_columns="id", **EVOLVE)
    assert again.added_columns == {} and spark.table(table).count() == 12


def test_types_of_tables_do_not_change(spark: Any, io: SparkDatasetIO, table: str, tmp_path: Path) -> None:
    source = spark.range(1).selectExpr("id", "5000000000 n", "'d0' day")
    for call in (io.merge, io.plan):
        with nothing_changes(f"{tmp_path}/tables/t"), pytest.raises(SchemaMismatchError, match=r"\['n'\] would change"):
            call(source, table=table, strategy="upsert", key_columns="id", **EVOLVE)


def test_batches_of_a_stream(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"f{n}.parquet": pa.table({"id": [n], "n": [n]}) for n in range(3)})
    merge = io.foreach_batch(lake, ["id"], app_id="feed", **EVOLVE)
    merge(spark.sql("SELECT 1L id, 'x' new"), 0)
    merge(spark.sql("SELECT 1L id, 'x' new"), 0)
    merge(spark.sql("SELECT 7L id, 7L n, 'y' new, 0.5D other"), 1)
    found = {row["id"]: (row["n"], row["new"], row["other"]) for row in rows(lake)}
    assert found == {0: (0, None, None), 1: (1, "x", None), 2: (2, None, None), 7: (7, "y", 0.5)}


def test_the_data_source(spark: Any, tmp_path: Path) -> None:
    if not HAS_DATA_SOURCE:
        pytest.skip("the data source needs Spark 4.1")
    register(spark)
    lake = write_lake(tmp_path / "lake", {f"f{n}.parquet": pa.table({"id": [n], "n": [n]}) for n in range(3)})
    frame = spark.sql("SELECT 1L id, 10L n, 'x' new")
    writer = frame.write.format("fsspeckit").mode("append").option("on_schema_change", "evolve")
    writer.option("key", "id").option("strategy", "upsert").save(lake)
    assert {row["id"]: row["new"] for row in rows(lake)} == {0: None, 1: "x", 2: None}
    spark.sql("SELECT 8L id, 5 more").write.format("fsspeckit").mode("append").option(
        "on_schema_change", "evolve"
    ).save(lake)
    assert {row["id"]: row["more"] for row in rows(lake)} == {0: None, 1: None, 2: None, 8: 5}
