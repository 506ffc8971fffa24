"""Tables of Spark's catalog: merged by name or by path, they show the new rows at once; what is no plain table is
refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.core.commit.session import writing
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError, TargetError
from fsspeckit.core.storage import locate
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.catalog import Table, find_table, refresh_table
from support import all_names, fingerprint, write_lake

DB = "fk_catalog"


@pytest.fixture
def db(spark: Any, tmp_path: Path) -> Iterator[str]:
    """A database whose tables lie in a folder with a blank and a percent sign."""
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")
    spark.sql(f"CREATE DATABASE {DB} LOCATION '{tmp_path}/my %20 tables'")
    yield DB
    spark.sql(f"DROP DATABASE IF EXISTS {DB} CASCADE")


@pytest.fixture
def orders(spark: Any, db: str) -> str:
    """A partitioned table of 40 rows, with columns that are named like details of a table."""
    columns = "id bigint, Location string, Provider string, day string"
    spark.sql(f"CREATE TABLE {db}.orders ({columns}) USING parquet PARTITIONED BY (day)")
    spark.sql(f"INSERT INTO {db}.orders SELECT id, 'old', 'p', concat('d', id % 2) FROM range(40)")
    return f"{db}.orders"


def frame(spark: Any, start: int, end: int, day: str) -> Any:
    return spark.range(start, end).selectExpr("id", "'new' Location", "'q' Provider", f"{day} day")


def seen(spark: Any, table: str) -> list[Any]:
    return sorted((row["id"], row["Location"], row["day"]) for row in spark.table(table).collect())


def old(*ids: int) -> list[Any]:
    return [(i, "old", f"d{i % 2}") for i in ids]


def test_a_merge_by_name_is_seen_at_once_with_its_new_partitions(spark: Any, io: SparkDatasetIO, orders: str) -> None:
    assert seen(spark, orders) == old(*range(40))
    result = io.merge(
        frame(spark, 39, 50, "if(id = 39, 'd1', 'd:9')"), table=orders, strategy="upsert", key_columns="id"
    )
    assert (result.inserted, result.updated) == (10, 1)
    new = [(i, "new", "d1" if i == 39 else "d:9") for i in range(39, 50)]
    assert seen(spark, orders) == old(*range(39)) + new
    assert [row[0] for row in spark.sql(f"SHOW PARTITIONS {orders}").collect()] == ["day=d%3A9", "day=d0", "day=d1"]
    assert io.plan(frame(spark, 0, 5, "concat('d', id % 2)"), None, "update", ["id"], table=orders).updated == 5


def emptied(table: Table, day: str) -> None:
    """Remove the files of a partition, as a merge that deletes all of its rows does."""
    location = locate(table.path)
    with writing(location) as session:
        infos = list_files(location)
        session.commit([], [info for info in infos if info.path.startswith(f"day={day}/")], infos)
    assert not Path(location.at(f"day={day}")).exists()


def partitions(spark: Any, table: str) -> list[str]:
    return [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()]


@pytest.fixture(params=["managed", "external"])
def kept(request: pytest.FixtureRequest, spark: Any, orders: str, tmp_path: Path) -> str:
    """The table of orders, or one like it whose folder is not Spark's."""
    if request.param == "managed":
        return orders
    spark.sql(f"CREATE TABLE {DB}.far LIKE {orders} USING parquet LOCATION '{tmp_path}/far'")
    spark.sql(f"INSERT INTO {DB}.far SELECT * FROM {orders}")
    return f"{DB}.far"


def test_a_partition_without_files_leaves_the_catalog(spark: Any, io: SparkDatasetIO, kept: str) -> None:
    """Else the next merge by name is refused: the catalog has a partition that is not in the table's folder."""
    table = find_table(spark, kept)
    emptied(table, "d1")
    refresh_table(spark, table)
    assert partitions(spark, kept) == ["day=d0"]
    assert seen(spark, kept) == old(*range(0, 40, 2))
    result = io.merge(frame(spark, 1, 3, "concat('d', id % 2)"), table=kept, strategy="upsert", key_columns="id")
    assert (result.inserted, result.updated) == (1, 1)
    assert partitions(spark, kept) == ["day=d0", "day=d1"]


def test_files_of_another_writer_stay(spark: Any, kept: str) -> None:
    """Another program writes to the partition again, between our commit and the refresh."""
    table = find_table(spark, kept)
    emptied(table, "d1")
    file = Path(locate(table.path).at("day=d1"), "theirs.parquet")
    write_lake(table.path, {"day=d1/theirs.parquet": pa.table({"id": [99], "Location": ["x"], "Provider": ["y"]})})
    refresh_table(spark, table)
    assert partitions(spark, kept) == ["day=d0", "day=d1"]
    assert (99, "x", "d1") in seen(spark, kept)
    assert file.exists()


def test_a_partition_that_lies_elsewhere_stays_in_the_catalog(spark: Any, kept: str, tmp_path: Path) -> None:
    table = find_table(spark, kept)
    spark.sql(f"ALTER TABLE {kept} ADD PARTITION (day = 'far') LOCATION '{tmp_path}/elsewhere'")
    spark.sql(f"INSERT INTO {kept} PARTITION (day = 'far') VALUES (99, 'x', 'y')")
    refresh_table(spark, table)
    assert partitions(spark, kept) == ["day=d0", "day=d1", "day=far"]
    assert (99, "x", "far") in seen(spark, kept)


def test_a_merge_that_deletes_all_rows_of_a_partition(spark: Any, io: SparkDatasetIO, kept: str) -> None:
    keys: Any = spark.range(1, 40, 2)
    merge: Any = io.merge
    assert merge(keys, table=kept, strategy="delete", key_columns="id").deleted == 20
    assert partitions(spark, kept) == ["day=d0"]
    assert seen(spark, kept) == old(*range(0, 40, 2))
    assert merge(keys, table=kept, strategy="delete", key_columns="id").deleted == 0


def test_the_function_of_the_package_takes_a_table_too(spark: Any, orders: str) -> None:
    result = fsspeckit.merge(frame(spark, 0, 2, "concat('d', id)"), table=orders, strategy="update", key_columns=["id"])
    assert result.updated == 2
    assert seen(spark, orders)[:3] == [(0, "new", "d0"), (1, "new", "d1"), (2, "old", "d0")]


def test_a_merge_by_path_refreshes_the_tables_there(spark: Any, io: SparkDatasetIO, db: str, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "flat", {"f.parquet": pa.table({"id": range(40), "x": ["a"] * 40})})
    before = spark.catalog.currentDatabase()
    spark.sql(f"USE {db}")
    try:
        spark.sql(f"CREATE TABLE fk_flat USING parquet LOCATION '{lake}'")
        assert spark.table("fk_flat").count() == 40
        io.merge(pa.table({"id": range(35, 50), "x": ["b"] * 15}), lake, "upsert", ["id"])
        assert spark.table("fk_flat").count() == 50
        assert spark.table("fk_flat").where("x = 'b'").count() == 15
    finally:
        spark.sql(f"USE {before}")


def test_keys_that_spark_fills_up_with_blanks_are_refused(spark: Any, io: SparkDatasetIO, db: str) -> None:
    spark.sql(f"CREATE TABLE {db}.codes (id bigint, Code char(5), x string) USING parquet")
    spark.sql(f"INSERT INTO {db}.codes VALUES (1, 'ab', 'old')")  # stored as `ab   `
    source = spark.sql("SELECT 1L id, 'ab' code, 'new' x")
    with pytest.raises(SchemaMismatchError, match=r"'code' of .*codes is char\(5\), which Spark pads with blanks"):
        io.merge(source, table=f"{db}.codes", strategy="upsert", key_columns="code")
    assert io.merge(source, table=f"{db}.codes", strategy="upsert", key_columns=["id"]).updated == 1
    assert [tuple(row) for row in spark.table(f"{db}.codes").collect()] == [(1, "ab   ", "new")]


def test_a_new_table_is_filled(spark: Any, io: SparkDatasetIO, db: str) -> None:
    spark.sql(f"CREATE TABLE {db}.new (id bigint, x int, day date) USING parquet PARTITIONED BY (day)")
    wrong = spark.sql("select 1L id, 1L x, date'2026-01-01' day, 5 more")
    with pytest.raises(SchemaMismatchError, match=r"'x': 'bigint', 'more': 'int'.*missing: \[\]"):
        io.merge(wrong, table=f"{db}.new", strategy="upsert", key_columns=["id"])
    right = wrong.selectExpr("id", "cast(x as int) x", "day")
    assert io.merge(right, table=f"{db}.new", strategy="upsert", key_columns=["id"]).inserted == 1
    assert [tuple(map(str, row)) for row in spark.table(f"{db}.new").collect()] == [("1", "1", "2026-01-01")]


def test_a_delete_from_a_new_table_needs_only_keys(spark: Any, io: SparkDatasetIO, db: str) -> None:
    spark.sql(f"CREATE TABLE {db}.new (id bigint, x string) USING parquet")
    assert io.merge(spark.range(3), table=f"{db}.new", strategy="delete", key_columns="id").deleted == 0
    assert spark.table(f"{db}.new").count() == 0


def test_a_change_feed_into_a_new_table(spark: Any, io: SparkDatasetIO, db: str) -> None:
    """The column that marks deletes is not a column of the table."""
    spark.sql(f"CREATE TABLE {db}.fed (id bigint, x string) USING parquet")
    feed = spark.createDataFrame([(1, "a", "I"), (2, "b", "D")], "id bigint, x string, op string")
    merged = io.merge(feed, table=f"{db}.fed", key_columns="id", delete_column="op", delete_values=["D"])
    assert (merged.inserted, merged.deleted) == (1, 0)
    assert [tuple(row) for row in spark.table(f"{db}.fed").collect()] == [(1, "a")]


def test_what_is_no_table_of_plain_files_is_refused(spark: Any, io: SparkDatasetIO, orders: str, db: str) -> None:
    spark.sql(f"CREATE VIEW {db}.v AS SELECT * FROM {orders}")
    spark.table(orders).createOrReplaceTempView("fk_temporary")
    spark.sql(f"CREATE TABLE {db}.text (id bigint, x string) USING json")
    cases = {
        f"{db}.v": (TargetError, "is a view"),
        "fk_temporary": (TargetError, "is a view"),
        f"{db}.text": (TargetError, "is a table of json, not of plain Parquet"),
        f"{db}.nothing": (ArgumentError, "has no table"),
        "a b; drop": (ArgumentError, "is not the name of a table"),
        "": (ArgumentError, "is not the name of a table"),
    }
    for table, (kind, words) in cases.items():
        with pytest.raises(kind, match=words):
            io.merge(frame(spark, 0, 1, "'d0'"), table=table, strategy="upsert", key_columns=["id"])
    spark.catalog.dropTempView("fk_temporary")
    with pytest.raises(ArgumentError, match="not both"):
        io.merge(frame(spark, 0, 1, "'d0'"), "lake", "upsert", ["id"], table=orders)
    with pytest.raises(ArgumentError, match="Pass either the path of the data set or the name of its table"):
        io.merge(frame(spark, 0, 1, "'d0'"), strategy="upsert", key_columns=["id"])


@pytest.mark.parametrize("filled", [True, False], ids=["with rows", "empty"])
def test_a_partition_that_lies_elsewhere_is_refused(
    spark: Any, io: SparkDatasetIO, orders: str, tmp_path: Path, filled: bool
) -> None:
    spark.sql(f"ALTER TABLE {orders} ADD PARTITION (day = 'far') LOCATION '{tmp_path}/far'")
    if filled:
        spark.sql(f"INSERT INTO {orders} PARTITION (day = 'far') VALUES (99, 'x', 'y')")
    with pytest.raises(TargetError, match="are not in its folder"):
        io.merge(frame(spark, 99, 100, "'far'"), table=orders, strategy="upsert", key_columns=["id"])


def test_a_bucketed_table_is_refused_by_name_and_by_path(spark: Any, io: SparkDatasetIO, db: str) -> None:
    """Else a join fails: INVALID_BUCKET_FILE."""
    spark.sql(f"CREATE TABLE {db}.buckets (id bigint, x string) USING parquet CLUSTERED BY (id) INTO 4 BUCKETS")
    spark.sql(f"INSERT INTO {db}.buckets SELECT id, 'old' FROM range(100)")
    (row,) = spark.sql(f"DESCRIBE TABLE EXTENDED {db}.buckets").where("col_name = 'Location'").collect()
    path = row["data_type"].removeprefix("file:")
    before, names = fingerprint(path), all_names(path)
    source = pa.table({"id": [1, 200], "x": ["a", "b"]})
    with pytest.raises(TargetError, match=r"is bucketed by \[`id`\]. Spark finds the bucket.*without CLUSTERED BY"):
        io.merge(source, table=f"{db}.buckets", strategy="upsert", key_columns=["id"])
    for engine in (io, PyArrowDatasetIO()):
        for call in (
            lambda by=engine: by.merge(source, path, "upsert", ["id"]),
            lambda by=engine: by.plan(source, path, "update", ["id"]),
            lambda by=engine: by.write_dataset(source, path),
            lambda by=engine: by.write_dataset(source, path, "overwrite"),
            lambda by=engine: by.write_parquet_dataset(source, path, "full_merge", ["id"]),
        ):
            with pytest.raises(TargetError, match=r"holds files of a bucketed Spark table, e.g. part-0"):
                call()
    assert (fingerprint(path), all_names(path)) == (before, names)
    joined = spark.table(f"{db}.buckets").join(spark.table(f"{db}.buckets").hint("merge"), "id")
    assert joined.count() == 100
