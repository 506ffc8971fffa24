"""`format("fsspeckit")`: what Spark's own readers and writers do through it, and that a stream commits exactly once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import datasource, register
from spark_process import kill, start
from spark_session import settings
from support import all_names, fingerprint, rows, write_lake


@pytest.fixture(autouse=True)
def registered(spark: Any) -> None:
    register(spark)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(3)}
    return write_lake(tmp_path / "lakes/orders", files)


def save(frame: Any, path: str, mode: str = "append", **options: str) -> None:
    frame.write.format("fsspeckit").options(**options).mode(mode).save(path)


def by_id(path: str) -> dict[int, str]:
    found = [(row["id"], row["x"]) for row in rows(path)]
    assert len(dict(found)) == len(found)
    return dict(found)


def new(spark: Any, start: int, end: int, x: str = "new") -> Any:
    return spark.range(start, end, 1, 3).selectExpr("id", f"'{x}' x")


@pytest.mark.parametrize("by", ["pyarrow", "duckdb"])
def test_upsert_insert_update(spark: Any, lake: str, by: str) -> None:
    before = fingerprint(lake)
    save(new(spark, 25, 35), lake, key="id", strategy="upsert", engine=by)
    model = {i: "new" if i >= 25 else "old" for i in range(35)}
    assert by_id(lake) == model
    kept = fingerprint(lake)
    assert {name: kept[name] for name in ("f0.parquet", "f1.parquet")}.items() <= before.items()
    assert "f2.parquet" not in kept, "a Spark reader remembers lengths: a new name"
    save(new(spark, 30, 40, "ins"), lake, key="id", strategy="insert", engine=by)
    save(new(spark, 38, 45, "upd"), f"file:{lake}", key="id", strategy="update", engine=by)
    model |= dict.fromkeys(range(35, 40), "ins") | {38: "upd", 39: "upd"}
    assert by_id(lake) == model
    assert os.listdir(Path(lake).parent) == ["orders"]


def test_a_plain_append_and_overwrite(spark: Any, lake: str) -> None:
    save(new(spark, 100, 110), lake)
    assert len(rows(lake)) == 40
    save(new(spark, 0, 5), lake, mode="overwrite")
    assert by_id(lake) == dict.fromkeys(range(5), "new")


def test_a_new_partitioned_data_set_is_read_back_by_all(spark: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "new/lake")
    frame = spark.range(10).selectExpr(
        "id", "id % 2 p", "timestamp'2026-01-01 12:00:00' t", "array(struct(id, 'a' b)) n"
    )
    save(frame, lake, key='["id"]', strategy="upsert", partition="p", compression="zstd", row_group_size="3")
    assert sorted({name.split("/")[0] for name in all_names(lake)}) == ["p=0", "p=1"]
    found = spark.read.format("fsspeckit").load(lake)
    assert found.schema.simpleString() == "struct<id:bigint,t:timestamp,n:array<struct<id:bigint,b:string>>,p:int>"
    expected = sorted(map(repr, frame.selectExpr("id", "t", "n", "cast(p as int) p").collect()))
    assert sorted(map(repr, found.collect())) == expected
    assert found.where("p = 1 and id > 5").count() == 2
    assert spark.read.format("fsspeckit").schema("x string, id bigint").load(
        write_lake(
            tmp_path / "more",
            {
                "a.parquet": pa.table(
                    {"id": [1], "x": pa.array(["v"]).dictionary_encode(), "n": pa.array([7], pa.uint64())}
                ),
            },
        )
    ).collect()[0].asDict() == {"x": "v", "id": 1}


def test_instants_in_folders_are_in_the_zone_of_the_session(spark: Any, tmp_path: Path) -> None:
    lake, with_zone = str(tmp_path / "lake"), str(tmp_path / "with_zone")
    rows = "VALUES (1L, timestamp'2024-01-01 12:00:00', 'a'), (2L, timestamp'2024-01-01 14:00:00', 'b') AS r(id, t, x)"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        spark.sql(f"SELECT * FROM {rows} WHERE id = 1").write.partitionBy("t").parquet(lake)
        save(spark.sql(f"SELECT id, t, upper(x) x FROM {rows}"), lake, key="id", strategy="upsert")
        save(spark.sql(f"SELECT id + 2 id, t, x FROM {rows}"), lake)
        found = spark.read.parquet(lake).selectExpr("id", "x", "cast(t as string)").collect()
        noon, later = "2024-01-01 12:00:00", "2024-01-01 14:00:00"
        assert sorted(map(tuple, found)) == [(1, "A", noon), (2, "B", later), (3, "a", noon), (4, "b", later)]
        reader = spark.read.format("fsspeckit").schema("id bigint, t timestamp")
        with pytest.raises(Exception, match="ArgumentError: Column 't' is a timestamp in your schema, but folder"):
            reader.load(lake).collect()
        read = reader.option("partition_timezone", "Asia/Tokyo").load(lake).where("id = 1")
        assert read.selectExpr("cast(t as string)").collect()[0][0] == noon
        save(spark.sql(f"SELECT * FROM {rows}"), with_zone, partition="t", partition_timezone="UTC")
        assert sorted(os.listdir(with_zone)) == ["t=2024-01-01 03%3A00%3A00", "t=2024-01-01 05%3A00%3A00"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_timestamp_ntz_is_in_the_zone_that_is_known_or_named(spark: Any, tmp_path: Path) -> None:
    """A data source has no session. Its zone comes with columns of instants, or by the option."""
    lake = str(tmp_path / "lake")
    with settings(spark, spark__sql__session__timeZone="America/New_York"):
        spark.sql("SELECT 1L id, timestamp'2020-01-01 00:00:00' a").selectExpr("*", "a b").write.parquet(lake)
        noon, instant = "timestamp_ntz'2024-01-01 12:00:00'", "timestamp'2024-01-01 12:00:00'"
        save(spark.sql(f"SELECT 1L id, {noon} a, {instant} b"), lake, key="id", strategy="upsert")
        bare = spark.sql(f"SELECT 2L id, {noon} a, {noon} b")
        with pytest.raises(Exception, match=r"SchemaMismatchError: Column '[ab]' is TIMESTAMP_NTZ.*source_timezone"):
            save(bare, lake, key="id", strategy="upsert")
        save(bare, lake, key="id", strategy="upsert", source_timezone="Asia/Tokyo")
        found = spark.read.parquet(lake).selectExpr("id", "cast(a as string)", "cast(b as string)").collect()
        noon, tokyo = "2024-01-01 12:00:00", "2023-12-31 22:00:00"
        assert sorted(map(tuple, found)) == [(1, noon, noon), (2, tokyo, tokyo)]


WRONG = {
    "key without strategy": ({"key": "id"}, "ArgumentError: A merge needs both options"),
    "strategy": ({"key": "id", "strategy": "nope"}, "ArgumentError: Unknown merge strategy 'nope'"),
    "not incremental": ({"key": "id", "strategy": "full_merge"}, "ArgumentError: "),
    "option": ({"key": "id", "strategy": "upsert", "keys": "x"}, "ArgumentError: Unknown option 'keys'"),
    "table": ({"key": "id", "strategy": "upsert", "table": "db.t"}, "ArgumentError: The option table does not exist"),
    "number": ({"key": "id", "strategy": "upsert", "row_group_size": "x"}, "row_group_size is a number, not 'x'"),
    "stream": ({"key": "id", "strategy": "upsert", "stream": "s"}, "The option stream is for writeStream"),
    "duplicates": ({"key": "x", "strategy": "upsert"}, "DuplicateKeyError: The source has duplicate keys"),
    "scratch": ({"scratch": "/no/folder"}, "ArgumentError: The option scratch is '/no/folder', which is not a folder"),
    "zone": ({"partition_timezone": "Mars"}, "partition_timezone is 'Mars', which is not a time zone"),
    "zone of the source": ({"source_timezone": "Mars"}, "source_timezone is 'Mars', which is not a time zone"),
    "column": ({"key": "no", "strategy": "upsert"}, "Key column ['no'] not found"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_say_our_words_first_and_change_nothing(spark: Any, lake: str, case: str) -> None:
    options, words = WRONG[case]
    before = fingerprint(lake)
    with pytest.raises(Exception, match="fsspeckit") as problem:
        save(new(spark, 0, 5), lake, **options)
    first = str(problem.value).splitlines()[0]
    assert "fsspeckit.core.errors." in first and words in first
    assert fingerprint(lake) == before
    assert os.listdir(Path(lake).parent) == ["orders"]


def test_collated_keys_are_refused(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 'a' COLLATE UTF8_LCASE k, 1 v")
    with pytest.raises(Exception, match="SchemaMismatchError: Key column 'k' has the collation UTF8_LCASE"):
        save(frame, str(tmp_path / "lake"), key="k", strategy="upsert")
    assert os.listdir(tmp_path) == []


def test_columns_that_cannot_be_handed_over(spark: Any, lake: str) -> None:
    for sql in ("array()", "interval '1' month", "interval '1' day"):
        with pytest.raises(Exception, match=r"SchemaMismatchError: Column 'x' of the source is .*Cast it") as problem:
            save(spark.sql(f"SELECT 1L id, {sql} x"), lake, key="id", strategy="upsert")
        assert "Traceback" not in str(problem.value)


def test_reading_what_is_not_there(spark: Any, lake: str) -> None:
    with pytest.raises(Exception, match=r"ArgumentError: .*nothing does not exist"):
        spark.read.format("fsspeckit").load(f"{lake}/nothing")
    with pytest.raises(Exception, match=r"ArgumentError: Cannot reach hdfs:/lake: hdfs: is not supported"):
        spark.read.format("fsspeckit").load("hdfs:/lake")
    with pytest.raises(Exception, match=r"ArgumentError: Unknown option 'engine': reading accepts only"):
        spark.read.format("fsspeckit").option("engine", "duckdb").load(lake)
    with pytest.raises(Exception, match=r"SchemaMismatchError: .* has no column \['y'\]"):
        spark.read.format("fsspeckit").schema("y string").load(lake).collect()


def test_keys_too_large_for_the_driver_are_sent_elsewhere(monkeypatch: pytest.MonkeyPatch, lake: str) -> None:
    """Rows are read from disk, so only keys count."""
    monkeypatch.setattr(datasource, "SMALL_BYTES", 10)
    monkeypatch.setattr(datasource, "MAX_KEY_BYTES", 10)
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    source = datasource.FsspeckitSource({"path": lake, "key": "id", "strategy": "upsert"})
    schema = StructType([StructField("id", LongType()), StructField("x", StringType())])
    writer = source.writer(schema, overwrite=False)
    message = writer.write(iter(pa.table({"id": [1], "x": ["some text"]}).to_batches()))
    writer.commit([message, None])
    assert {row["x"] for row in rows(lake) if row["id"] == 1} == {"some text"}
    writer = source.writer(schema, overwrite=False)
    message = writer.write(iter(pa.table({"id": [1, 2], "x": ["other", "text"]}).to_batches()))
    with pytest.raises(
        ValueError, match=r"of which 16 are keys, .* 10 bytes of keys on the driver. Use SparkDatasetIO"
    ):
        writer.commit([message, None])
    assert os.listdir(Path(lake).parent) == ["orders"]
    assert {row["x"] for row in rows(lake) if row["id"] == 1} == {"some text"}


def test_what_a_killed_job_left_is_removed(lake: str) -> None:
    left = [Path(lake).parent / f".fsspeckit-spool-orders-{name}" for name in ("old", "fresh")]
    for folder in left:
        folder.mkdir()
    os.utime(left[0], (0, 0))
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    source = datasource.FsspeckitSource({"path": lake, "key": "id", "strategy": "upsert"})
    schema = StructType([StructField("id", LongType()), StructField("x", StringType())])
    source.writer(schema, overwrite=False).commit([])
    assert [folder.exists() for folder in left] == [False, True]
    assert len(rows(lake)) == 30


def query(spark: Any, raw: Path, lake: str, checkpoint: Path, **options: str) -> None:
    frame = spark.readStream.schema("id bigint, x string").option("maxFilesPerTrigger", 1).json(str(raw))
    writer = frame.writeStream.format("fsspeckit").options(key="id", strategy="upsert", **options)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start(lake).awaitTermination()


def test_a_stream_needs_a_name_and_uses_the_ledger(spark: Any, lake: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "0.json").write_text('{"id": 1, "x": "a"}\n{"id": 50, "x": "a"}\n')
    with pytest.raises(Exception, match="ArgumentError: A stream needs the options key, strategy and stream"):
        query(spark, raw, lake, tmp_path / "unnamed")
    query(spark, raw, lake, tmp_path / "checkpoint", stream="events")
    assert by_id(lake) == {**dict.fromkeys(range(30), "old"), 1: "a", 50: "a"}
    PyArrowDatasetIO().merge(pa.table({"id": [1], "x": ["by hand"]}), lake, "upsert", ["id"])
    query(spark, raw, lake, tmp_path / "another checkpoint", stream="events")
    assert by_id(lake)[1] == "by hand", "batch 0 of this stream was committed before"
    query(spark, raw, lake, tmp_path / "third checkpoint", stream="other")
    assert by_id(lake)[1] == "a"
    assert os.listdir(Path(lake).parent) == ["orders"]


@pytest.mark.slow
def test_a_stream_that_is_killed_twice_commits_every_batch_once(tmp_path: Path) -> None:
    raw, lake, checkpoint = tmp_path / "raw", tmp_path / "lakes/lake", tmp_path / "checkpoint"
    raw.mkdir()
    for i in range(4):
        (raw / f"{i}.json").write_text("".join(f'{{"n": {i * 10 + k}}}\n' for k in range(10)))
    lake.parent.mkdir()
    process = start("source_stream", str(raw), str(lake), str(checkpoint), "0")
    out, problems = process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL, problems[-4000:]
    assert out == "started\n" and len(rows(lake)) == 10
    assert (checkpoint / "offsets/0").exists() and not (checkpoint / "commits/0").exists()

    process = start("source_stream", str(raw), str(lake), str(checkpoint))
    deadline = time.monotonic() + 200
    while not (checkpoint / "offsets/2").exists():  # somewhere in batch 2
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kill(process)

    process = start("source_stream", str(raw), str(lake), str(checkpoint))
    out, problems = process.communicate(timeout=200)
    assert out.splitlines()[-1:] == ["done"], problems[-4000:]
    assert sorted(row["n"] for row in rows(lake)) == list(range(40))
    assert os.listdir(lake.parent) == ["lake"]
