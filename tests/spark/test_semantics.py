"""Where Spark has semantics of its own: every engine merges into Spark's files, and Spark reads them back."""

from __future__ import annotations

import datetime as dt
import glob
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import functions as F

from damage import nothing_changes
from fsspeckit.api import dataset_io
from fsspeckit.core.errors import SchemaMismatchError, TargetError
from fsspeckit.datasets.spark import SparkDatasetIO
from spark_frames import table_of
from spark_session import settings
from support import write_lake

ENGINES = ("pyarrow", "duckdb", "spark")
REBASE = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")


def io_of(engine: str, spark: Any) -> Any:
    return dataset_io(engine, **({"spark": spark} if engine == "spark" else {}))


def texts(spark: Any, lake: str, *columns: str) -> list[tuple[str, ...]]:
    """What Spark reads, spelled by Spark itself: Python's datetime has a calendar and a zone of its own."""
    frame = spark.read.parquet(lake)
    return sorted(tuple(row) for row in frame.select([F.col(c).cast("string") for c in columns]).collect())


# Calendars


@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "INT96"])
@pytest.mark.parametrize("by", ENGINES)
def test_legacy_calendars(spark: Any, tmp_path: Path, by: str, kind: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    names = {name.replace(".", "__"): "LEGACY" for name in REBASE}
    with settings(spark, **names, spark__sql__parquet__outputTimestampType=kind):
        frame = spark.sql(
            "SELECT * FROM VALUES (date'0001-01-01', timestamp'1850-01-01 00:00:00', 'a'),"
            "(date'1500-03-01', timestamp'2024-01-01 00:00:00', 'b') AS t(d, t, x)"
        )
        frame.coalesce(1).write.parquet(lake)
    moment = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    dates = [dt.date(1500, 3, 1), dt.date(1, 1, 2)]
    source = pa.table({"d": dates, "t": pa.array([moment] * 2, pa.timestamp("us", "UTC")), "x": ["B", "c"]})
    result = io.merge(source, lake, "upsert", ["d"])
    assert (result.inserted, result.updated) == (1, 1)
    assert texts(spark, lake, "d", "t", "x") == [
        ("0001-01-01", "1850-01-01 00:00:00", "a"),
        ("0001-01-02", "2024-05-01 00:00:00", "c"),
        ("1500-03-01", "2024-05-01 00:00:00", "B"),
    ]
    old = pa.array([dt.datetime(1850, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    for key in ("d", "t"):
        with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"'t': 1850-01-01.*legacy calendar"):
            io.merge(pa.table({"d": [dt.date(1, 1, 1)], "t": old, "x": ["!"]}), lake, "upsert", [key])


LOCAL_TIMES = [
    "2024-01-01 12:00:00",
    "2024-03-10 01:59:59.999999",
    "2024-03-10 02:00:00",  # the clocks leave this hour out
    "2024-03-10 02:30:00.123456",
    "2024-03-10 03:00:00",
    "2024-11-03 01:30:00",  # comes twice
    "2024-11-03 02:00:00",
    "1850-01-01 00:00:00",
    "1945-08-14 19:00:00",
    "2050-07-01 12:00:00",
    "2050-03-13 02:30:00",
    "9999-07-01 12:00:00",
]


@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "INT96"])
@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "GMT+9"])
def test_timestamp_ntz_becomes_what_sparks_own_cast_makes_of_it(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, kind: str, zone: str
) -> None:
    lake = str(tmp_path / "lake")
    values = ", ".join(f"({i}L, timestamp_ntz'{time}')" for i, time in enumerate(LOCAL_TIMES))
    with settings(spark, spark__sql__session__timeZone=zone, spark__sql__parquet__outputTimestampType=kind):
        spark.sql("SELECT 0L id, timestamp'2000-01-01 00:00:00' t").coalesce(1).write.parquet(lake)
        frame = spark.sql(f"SELECT * FROM VALUES {values} AS v(id, t)")
        result = io.merge(frame, lake, "upsert", ["id"])
        assert (result.inserted, result.updated) == (len(LOCAL_TIMES) - 1, 1)
        cast = sorted(map(tuple, frame.selectExpr("id", "unix_micros(CAST(t AS timestamp))").collect()))
        merged = sorted(map(tuple, spark.read.parquet(lake).selectExpr("id", "unix_micros(t)").collect()))
        assert merged == cast
        assert io.merge(frame.limit(1), lake, "upsert", ["id"], source_timezone="UTC").updated == 1
        (first,) = spark.read.parquet(lake).where("id = 0").selectExpr("unix_micros(t)").first()
        assert first == 1_704_110_400_000_000
        io.foreach_batch(lake, ["id"], app_id="times")(frame.limit(1), 0)
        (first,) = spark.read.parquet(lake).where("id = 0").selectExpr("unix_micros(t)").first()
        assert first == cast[0][1]


# Partitions


@pytest.mark.parametrize("by", ENGINES)
def test_instants_in_folders_in_tokyo(spark: Any, tmp_path: Path, by: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    with settings(spark, spark__sql__session__timeZone="Asia/Tokyo"):
        spark.sql("SELECT 1L id, 'a' x, timestamp'2024-01-01 12:00:00' t").write.partitionBy("t").parquet(lake)
        noon, later = (dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in (3, 5))
        source = pa.table({"id": [1, 2], "x": ["A", "b"], "t": pa.array([noon, later], pa.timestamp("us", "UTC"))})
        options = {} if by == "spark" else {"partition_timezone": "Asia/Tokyo"}
        result = io.merge(source, lake, "upsert", ["id"], **options)
        assert (result.inserted, result.updated) == (1, 1)
        expected = [("1", "A", "2024-01-01 12:00:00"), ("2", "b", "2024-01-01 14:00:00")]
        assert texts(spark, lake, "id", "x", "t") == expected
        with nothing_changes(lake), pytest.raises(ValueError, match="cannot change for existing keys"):
            io.merge(source, lake, "upsert", ["id"], partition_timezone="UTC")


@pytest.mark.parametrize("by", ENGINES)
def test_empty_partition_values(spark: Any, tmp_path: Path, by: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    io.merge(pa.table({"id": [1, 2], "p": ["", "a"]}), lake, "upsert", ["id"], ["p"])
    assert sorted(map(tuple, spark.read.parquet(lake).select("id", "p").collect())) == [(1, None), (2, "a")]


def test_files_in_folders_that_are_no_partitions(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    files = {name: pa.table({"id": [i]}) for i, name in enumerate(("a.parquet", "sub/b.parquet", "sub/deep/c.parquet"))}
    lake = write_lake(tmp_path / "lake", files)
    assert sorted(row["id"] for row in io.read(lake).collect()) == [0, 1, 2]


def test_a_lake_with_mixed_layouts_is_not_read_in_part(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    files = {"a.parquet": pa.table({"id": [1], "p": [1]}), "p=1/b.parquet": pa.table({"id": [2]})}
    lake = write_lake(tmp_path / "lake", files)
    assert spark.read.parquet(lake).count() == 1  # which is what it is about
    with pytest.raises(TargetError, match=r"outside of partition folders, such as .*a\.parquet.*pyarrow engine"):
        io.read(lake)


# Values


@pytest.mark.parametrize("by", ENGINES)
def test_null_structs(spark: Any, tmp_path: Path, by: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    frame = spark.range(4).withColumn(
        "s", F.when(F.col("id") > 1, F.struct(F.lit(1).alias("a"), F.col("id").alias("b")))
    )
    frame.coalesce(1).write.parquet(lake)
    rows = frame.withColumn("id", F.col("id") + 2)
    rows.coalesce(1).write.parquet(str(tmp_path / "source"))  # Spark's own `toArrow` fails on these (seen)
    result = io.merge(rows if by == "spark" else str(tmp_path / "source"), lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (2, 2)
    expected = [("0", None), ("1", None), ("2", None), ("3", None), ("4", "{1, 2}"), ("5", "{1, 3}")]
    assert texts(spark, lake, "id", "s") == expected
    own = [pq.ParquetFile(f).read() for f in glob.glob(f"{lake}/*.parquet")]
    assert sum(io.merge(table, lake, "upsert", ["id"]).updated for table in own) == 6
    assert texts(spark, lake, "id", "s") == expected


@pytest.mark.parametrize("by", ENGINES)
def test_nulls_where_spark_wrote_literals(spark: Any, tmp_path: Path, by: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    literals = "1 x, named_struct('a', 1, 'b', array('u')) s, array(named_struct('a', 1)) l, map('k', struct(1 a)) m"
    spark.sql(f"SELECT id, {literals} FROM range(3)").coalesce(1).write.parquet(lake)
    (path,) = glob.glob(f"{lake}/*.parquet")
    nulls = "if(id = 1, null, 2) x, named_struct('a', if(id = 1, null, 3), 'b', array(null, 'v')) s"
    nulls += ", array(null, named_struct('a', int(null))) l, map('k', if(id = 1, null, struct(4 a))) m"
    frame = spark.sql(f"SELECT id, {nulls} FROM range(1, 3) UNION ALL SELECT id + 8, {nulls} FROM range(1, 2)")
    assert pq.read_schema(path).field("x").nullable is False
    frame.coalesce(1).write.parquet(str(tmp_path / "source"))
    result = io.merge(frame if by == "spark" else str(tmp_path / "source"), lake, "upsert", ["id"], replace="in_place")
    assert (result.inserted, result.updated) == (1, 2)
    assert texts(spark, lake, "id", "x", "s", "l", "m") == [
        ("0", "1", "{1, [u]}", "[{1}]", "{k -> {1}}"),
        ("1", None, "{null, [null, v]}", "[null, {null}]", "{k -> null}"),
        ("2", "2", "{3, [null, v]}", "[null, {null}]", "{k -> {4}}"),
        ("9", None, "{null, [null, v]}", "[null, {null}]", "{k -> null}"),
    ]
    assert spark.read.parquet(lake).where("x IS NULL").count() == 2  # nobody takes REQUIRED for granted
    words = pq.read_metadata(path).metadata[b"org.apache.spark.sql.parquet.row.metadata"]
    assert b'"nullable":true' in words and b"false" not in words
    again = spark.read.parquet(lake).where("id = 0").withColumn("x", F.lit(7))
    assert io.merge(again if by == "spark" else table_of(again), lake, "upsert", ["id"]).updated == 1
    assert texts(spark, lake, "id", "x")[0] == ("0", "7")


@pytest.mark.parametrize("by", ENGINES)
def test_a_file_without_nulls_keeps_what_it_requires(spark: Any, tmp_path: Path, by: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    spark.sql("SELECT id, 1 x, named_struct('a', 1) s FROM range(3)").coalesce(1).write.parquet(lake)
    (path,) = glob.glob(f"{lake}/*.parquet")
    before = pq.ParquetFile(path).schema
    data = pa.table({"id": [1], "x": pa.array([5], pa.int32()), "s": [{"a": 6}]})
    assert io.merge(data, lake, "upsert", ["id"], replace="in_place").updated == 1
    assert pq.ParquetFile(path).schema.equals(before)
    assert texts(spark, lake, "id", "x", "s") == [("0", "1", "{1}"), ("1", "5", "{6}"), ("2", "1", "{1}")]


@pytest.mark.parametrize("by", ENGINES)
def test_fields_added_by_merge_schema(spark: Any, tmp_path: Path, by: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    for number, fields in enumerate(("1 a", "2 a, 'x' b", "3 a, array(struct(7 n)) c")):
        frame = spark.sql(
            f"SELECT {number}L id, named_struct({_pairs(fields)}) s, array(named_struct({_pairs(fields)})) l"
        )
        frame.coalesce(1).write.mode("append").parquet(lake)
    wide = spark.read.option("mergeSchema", True).parquet(lake)
    before = {row["id"]: row for row in wide.collect()}
    assert set(before[0]["s"].asDict()) == {"a", "b", "c"}
    source = wide.where("id = 2").withColumn("id", F.lit(0).cast("long"))
    result = io.merge(source if by == "spark" else table_of(source), lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (0, 1)
    after = {
        row["id"]: row for row in spark.read.option("mergeSchema", True).parquet(lake).select(wide.columns).collect()
    }
    assert [after[i]["s"].asDict() for i in (1, 2)] == [before[i]["s"].asDict() for i in (1, 2)]
    assert after[0]["s"].asDict(True) == before[2]["s"].asDict(True)
    assert after[0]["l"][0].asDict(True) == before[2]["l"][0].asDict(True)


def _pairs(fields: str) -> str:
    pairs = [field.strip().rsplit(" ", 1) for field in fields.split(", ")]
    return ", ".join(f"'{name}', {value}" for value, name in pairs)


@pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 has no VARIANT")
@pytest.mark.parametrize("by", ["spark"])
def test_variants(spark: Any, tmp_path: Path, by: str) -> None:
    lake, io = str(tmp_path / "lake"), io_of(by, spark)
    for number, text in enumerate(('{"a": 1}', '{"a": "x"}')):  # shredded by what is there
        spark.sql(f"SELECT {number}L id, parse_json('{text}') v").coalesce(1).write.mode("append").parquet(lake)
    source = spark.sql("SELECT * FROM VALUES (0L, parse_json('{\"a\": [2]}')), (5L, parse_json('true')) AS t(id, v)")
    result = io.merge(source, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 1)
    found = spark.read.parquet(lake).selectExpr("id", "to_json(v) v").collect()
    assert sorted(map(tuple, found)) == [(0, '{"a":[2]}'), (1, '{"a":"x"}'), (5, "true")]


@pytest.mark.skipif(pyspark.__version__ < "4", reason="Spark 3.5 has no collations")
def test_collated_keys_are_refused(spark: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    spark.sql("SELECT 'A' COLLATE UTF8_LCASE k, 1 v").write.parquet(lake)
    for by in ENGINES:
        with (
            nothing_changes(lake),
            pytest.raises(SchemaMismatchError, match=r"'k' has the collation UTF8_LCASE in part-"),
        ):
            io_of(by, spark).merge(pa.table({"k": ["a"], "v": [2]}), lake, "upsert", ["k"])
    source = spark.sql("SELECT 'a' COLLATE UNICODE_CI k, 1 v")
    with pytest.raises(SchemaMismatchError, match="'k' has the collation UNICODE_CI in the source"):
        io_of("spark", spark).merge(source, str(tmp_path / "new"), "upsert", ["k"])
    assert io_of("spark", spark).merge(source, lake, "upsert", ["v"]).updated == 1
    assert [tuple(row) for row in spark.read.parquet(lake).collect()] == [("a", 1)]


# Names and types


def test_names_without_regard_to_case(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "Name": ["a", "b"]})})
    frame = spark.sql("SELECT 2L ID, 'B' name")
    (file,) = io.plan(spark.sql("SELECT 9L ID, 'B' name"), lake, "upsert", ["ID"]).files
    assert file.action == "prune"  # by the bounds of `id`
    assert io.merge(frame, lake, "upsert", ["Id"]).updated == 1
    assert io.merge(pa.table({"ID": [3], "NAME": ["c"]}), lake, "upsert", ["id"]).inserted == 1
    pq.write_table(pa.table({"Id": [4], "nAme": ["d"]}), tmp_path / "s.parquet")
    assert io.merge(str(tmp_path / "s.parquet"), lake, "upsert", ["id"]).inserted == 1
    io.write_dataset(pa.table({"ID": [5], "NAME": ["e"]}), lake)
    assert spark.read.parquet(lake).columns == ["id", "Name"]
    assert texts(spark, lake, "id", "Name") == [("1", "a"), ("2", "B"), ("3", "c"), ("4", "d"), ("5", "e")]
    with (
        settings(spark, spark__sql__caseSensitive="true"),
        pytest.raises(ValueError, match=r"\['id'\] not found in the source"),
    ):
        io.merge(frame, lake, "upsert", ["id"])


def test_partition_columns_without_regard_to_case(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    spark.sql("SELECT 1L id, 'a' x, 5 Day").write.partitionBy("Day").parquet(lake)
    result = io.merge(spark.sql("SELECT 1L id, 'b' X, 5 day UNION ALL SELECT 2L, 'c', 6"), lake, "upsert", "id", "day")
    assert (result.inserted, result.updated) == (1, 1)
    assert texts(spark, lake, "id", "x", "Day") == [("1", "b", "5"), ("2", "c", "6")]
    assert sorted(name for name in os.listdir(lake) if "=" in name) == ["Day=5", "Day=6"]
    with (
        settings(spark, spark__sql__caseSensitive="true"),
        pytest.raises(ValueError, match=r"by \['Day'\]"),
    ):
        io.merge(pa.table({"id": [1], "x": ["b"], "Day": [5]}), lake, "upsert", ["id"], ["day"])


def test_a_new_lake_has_no_names_that_only_case_tells_apart(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    """Spark would not read it: COLUMN_ALREADY_EXISTS."""
    lake, source = str(tmp_path / "lake"), pa.table({"id": [1], "x": ["a"], "X": ["b"]})
    for call in (lambda: io.merge(source, lake, "upsert", ["id"]), lambda: io.write_dataset(source, lake, "overwrite")):
        with pytest.raises(SchemaMismatchError, match=r"differ only in case, \['x', 'X'\].*Rename"):
            call()
    assert os.listdir(tmp_path) == []
    with settings(spark, spark__sql__caseSensitive="true"):
        assert io.merge(source, lake, "upsert", ["id"]).inserted == 1
        assert texts(spark, lake, "id", "x", "X") == [("1", "a", "b")]


INTERVALS = ("interval '1' month", "interval '1' day", "make_interval(1)", "array(interval '2' year)")


@pytest.mark.parametrize("sql", [*INTERVALS, "map()"])
def test_types_that_do_not_get_into_parquet(spark: Any, io: SparkDatasetIO, tmp_path: Path, sql: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"[Cc]olumn ('x' )?of the source .*Cast it"):
        io.merge(spark.sql(f"SELECT 1L id, {sql} x"), str(tmp_path / "lake"), "upsert", ["id"])
    assert os.listdir(tmp_path) == []


def test_an_array_of_nothing(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": [["a"], ["b"]]})})
    assert io.merge(spark.sql("SELECT 2L id, array() x"), lake, "upsert", ["id"]).updated == 1
    fresh = str(tmp_path / "fresh")
    assert io.merge(spark.sql("SELECT 2L id, array() x, struct(null n) s"), fresh, "upsert", ["id"]).inserted == 1
    assert texts(spark, lake, "id", "x") == [("1", "[a]"), ("2", "[]")]
    assert texts(spark, fresh, "id", "x") == [("2", "[]")]
