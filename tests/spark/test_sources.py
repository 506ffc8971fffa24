"""What Spark sources are: frames of every type, evaluated once, from anywhere; and large ones, joined and routed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from fsspeckit import DatasetMergeError, MergeValidationError
from fsspeckit.core.errors import SchemaMismatchError, UnreadableFileError
from fsspeckit.core.rewrite import files, inserts
from fsspeckit.core.rows import deduplicate as dedup
from fsspeckit.core.rows import spool as parts
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, engine
from spark_frames import frame_of
from support import fingerprint, multiset, rows, write_lake


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(4)}
    return write_lake(tmp_path / "lake", files, row_group_size=4)


@pytest.fixture
def large(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every source counts as large: keys are joined by Spark, rows are shuffled, parts and labels are tiny."""
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    for module in (parts, inserts):
        monkeypatch.setattr(module, "PART_BYTES", 400)
    for module in (dedup, files, inserts):
        monkeypatch.setattr(module, "BUCKET_BYTES", 200)
    monkeypatch.setattr(parts, "BATCH_ROWS", 7)
    monkeypatch.setattr(engine, "MANY_FILES", 2)
    yield spark
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)


def test_a_random_source_gives_one_consistent_result(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    draw = F.udf(lambda: __import__("random").randrange(10**9), "bigint").asNondeterministic()
    frame = spark.range(0, 60).where(F.rand() < 0.7).select("id", draw().cast("string").alias("x"))
    result = io.merge(frame, lake, "upsert", ["id"])
    found = {row["id"]: row["x"] for row in rows(lake)}
    assert len(found) == len(rows(lake)) == result.target_count_after
    assert sum(value != "old" for value in found.values()) == result.inserted + result.updated == result.source_count


def test_a_source_derived_from_the_target(io: SparkDatasetIO, lake: str) -> None:
    doubled = io.read(lake).where("id % 2 = 0").withColumn("x", F.concat(F.col("x"), F.lit("er")))
    result = io.merge(doubled, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (0, 20)
    assert {row["id"]: row["x"] for row in rows(lake)} == {i: "older" if i % 2 == 0 else "old" for i in range(40)}


def test_a_path_is_read_by_executors(io: SparkDatasetIO, lake: str, tmp_path: Path) -> None:
    files = {f"p={p}/s[{p}].parquet": pa.table({"id": pa.array([p, 100 + p], pa.uint32())}) for p in range(3)}
    source = write_lake(tmp_path / "source", files)
    target = write_lake(tmp_path / "target", {"t.parquet": pa.table({"id": [1, 2], "p": pa.array([9, 9], pa.int64())})})
    result = io.merge(source, target, "upsert", ["id"])
    assert (result.inserted, result.updated) == (4, 2)
    assert {row["id"]: row["p"] for row in rows(target)} == {0: 0, 1: 1, 2: 2, 100: 0, 101: 1, 102: 2}


def steps(caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    """How many tasks executors took in each step."""
    logged: list[Any] = [r.args for r in caplog.records if r.name == "fsspeckit.spark" and r.args]
    return {str(step): int(tasks) for step, _, tasks, *_ in logged}


@pytest.mark.parametrize("several", [False, True], ids=["one file", "a list"])
def test_files_are_read_by_executors(
    io: SparkDatasetIO, lake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, several: bool
) -> None:
    files = {"s1.parquet": pa.table({"id": [3, 103], "x": ["n", "n"]}), "d=1/s2.parquet": pa.table({"id": [4]})}
    source = Path(write_lake(tmp_path / "source", files))
    more = write_lake(tmp_path / "x=m", {"s3.parquet": pa.table({"x": ["m"], "id": pa.array([5], pa.int8())})})
    given: Any = [source / "s1.parquet", more] if several else source / "s1.parquet"
    with caplog.at_level("INFO", "fsspeckit.spark"):
        result = io.merge(given, lake, "upsert", ["id"])
    assert steps(caplog)["spool"] == (2 if several else 1)
    assert (result.inserted, result.updated) == (1, 2 if several else 1)
    found = {row["id"]: row["x"] for row in rows(lake)}
    assert (found[3], found[103], found[4], found[5]) == ("n", "n", "old", "m" if several else "old")


def test_a_reader_passes_through_batch_by_batch(io: SparkDatasetIO, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "BATCH_ROWS", 10)
    written: list[int] = []
    waiting: list[int] = []
    write = parts.PartWriter.write

    def note(writer: Any, table: pa.Table) -> None:
        written.append(table.num_rows)
        write(writer, table)

    def batches() -> Any:
        for start in range(0, 60, 10):
            waiting.append(start - sum(written))
            yield pa.record_batch({"id": range(start, start + 10), "x": ["n"] * 10})

    monkeypatch.setattr(parts.PartWriter, "write", note)
    schema = pa.schema([("id", pa.int64()), ("x", pa.string())])
    result = io.merge(pa.RecordBatchReader.from_batches(schema, batches()), lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (20, 40)
    assert max(waiting) <= 10
    assert len(written) == 6


@pytest.mark.parametrize("given", ["nowhere.parquet", "empty"])
def test_a_path_without_data_is_refused(io: SparkDatasetIO, lake: str, tmp_path: Path, given: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(MergeValidationError, match=r"nowhere\.parquet does not exist|empty has no Parquet files"):
        io.merge(str(tmp_path / given), lake, "upsert", ["id"])


def test_a_session_that_is_gone_after_the_commit(
    io: SparkDatasetIO, lake: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows are in: whatever Spark says of its caches may not look like a failed merge."""

    def fail(catalog: Any, path: str) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(type(io.spark.catalog), "refreshByPath", fail)
    assert io.merge(pa.table({"id": [1], "x": ["n"]}), lake, "upsert", ["id"]).updated == 1
    assert any("could not be refreshed" in record.getMessage() for record in caplog.records)


def test_types_of_a_new_data_set(spark: Any, io: SparkDatasetIO, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    frame = spark.sql(
        "select 1L id, timestamp'2024-01-01 09:00:00' t, timestamp_ntz'2024-01-01 09:00:00' n, 1.5BD d, "
        "array(named_struct('a', 1)) s, map('k', X'00') m, date'2024-02-29' day, cast('c' as char(3)) c"
    )
    io.merge(frame, str(tmp_path / "lake"), "upsert", ["id"])
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert rows(tmp_path / "lake") == [
        {
            "id": 1,
            "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            "n": dt.datetime(2024, 1, 1, 9),
            "d": Decimal("1.5"),
            "s": [{"a": 1}],
            "m": [("k", b"\0")],
            "day": dt.date(2024, 2, 29),
            "c": "c",
        }
    ]


KINDS = {
    "uint64": pa.array([1, 2**63 - 1], pa.uint64()),
    "timestamp[ns]": pa.array([0, 1_700_000_000_000_000_000], pa.timestamp("ns", "UTC")),
    "timestamp[ms]": pa.array([0, 1_700_000_000_000], pa.timestamp("ms", "UTC")),
    "ntz": pa.array([0, 1_700_000_000_000_000], pa.timestamp("us")),
    "decimal": pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal128(20, 2)),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "binary": pa.array([b"\xff\0", b"b"], pa.binary()),
    "date": pa.array([0, 19000], pa.date32()),
    "float": pa.array([float("nan"), -0.0], pa.float32()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_type_match_by_value(spark: Any, io: SparkDatasetIO, tmp_path: Path, kind: str) -> None:
    keys = KINDS[kind]
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"k": keys, "x": ["old", "old"]})})
    wider = {
        "uint64": pa.int64(),
        "timestamp[ns]": pa.timestamp("us", "UTC"),
        "timestamp[s]": pa.timestamp("us", "UTC"),
    }
    given = keys.cast(wider.get(kind, keys.type if kind != "dictionary" else pa.string()))
    frame = frame_of(spark, pa.table({"k": given, "x": ["new", "new"]}))
    frame = frame.withColumn("k", F.col("k").cast("timestamp_ntz")) if kind == "ntz" else frame
    result = io.merge(frame, lake, "upsert", ["k"])
    assert (result.inserted, result.updated) == (0, 2)
    assert pa.parquet.read_schema(result.rewritten_files[0]).field("k").type == keys.type
    assert [row["x"] for row in rows(lake)] == ["new", "new"]


@pytest.mark.parametrize("names", [("a.b", "A.b"), ("a`b", "*"), ("x", "X"), ("k0", "")], ids=str)
def test_frames_with_names_that_spark_cannot_look_up(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, names: tuple[str, str]
) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table([[1, 2], ["o", "o"], ["o", "o"]], ["id", *names])})
    frame = spark.range(2, 4).select("id", F.lit("n"), F.lit("m")).toDF("id", *names)
    result = io.merge(frame, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 1)
    first, second = names
    assert sorted((row["id"], row[first], row[second]) for row in rows(lake)) == [
        (1, "o", "o"),
        (2, "n", "m"),
        (3, "n", "m"),
    ]


def test_errors_of_executors_are_the_callers(spark: Any, io: SparkDatasetIO, lake: str, tmp_path: Path) -> None:
    before = fingerprint(lake)
    wide = spark.sql("select 1L id, 'x' x union all select 2L, null")
    narrow = write_lake(
        tmp_path / "narrow",
        {"f.parquet": pa.table({"id": [1], "x": ["a"]}, pa.schema([("id", pa.int8()), ("x", pa.string())]))},
    )
    with pytest.raises(SchemaMismatchError, match=r"'id' is int64 in the source and int8.*the value 300 would not"):
        io.merge(spark.sql("select 300L id, 'x' x"), narrow, "upsert", ["id"])
    assert io.merge(wide, lake, "update", ["id"]).updated == 2
    assert fingerprint(lake) != before


@pytest.mark.parametrize("threshold", ["10MB", "-1"])
def test_an_unreadable_file_is_named(spark: Any, io: SparkDatasetIO, lake: str, threshold: str) -> None:
    victim = Path(lake) / "f2.parquet"
    content = bytearray(victim.read_bytes())
    content[4:40] = b"\xff" * 36
    victim.write_bytes(content)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
    with pytest.raises(UnreadableFileError, match=r"f2\.parquet"):
        io.merge(spark.range(0, 40).withColumn("x", F.lit("n")), lake, "upsert", ["id"])
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "10485760b")


def test_executors_without_the_package_are_told_of(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    def fail(batches: Any) -> Any:
        raise ModuleNotFoundError("No module named 'fsspeckit'")
        yield  # type: ignore[unreachable]

    broken = spark.range(3).mapInArrow(fail, "id bigint, x string")
    with pytest.raises(DatasetMergeError, match=r"cannot import fsspeckit.*Install fsspeckit there, ship it"):
        io.merge(broken, lake, "upsert", ["id"])


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "full_merge", "deduplicate"])
def test_a_large_source_does_what_a_small_one_does(large: Any, tmp_path: Path, strategy: Any) -> None:
    files = {
        f"part={p}/f{i}.parquet": pa.table({"id": range(100 * i + 10 * p, 100 * i + 10 * p + 10), "x": [f"{p}"] * 10})
        for i in range(3)
        for p in range(3)
    }
    ids = [*range(0, 30, 2), *range(105, 130, 3), *range(300, 340)]
    source = pa.table({"id": ids, "x": [f"n{i}" for i in ids], "part": [i % 100 // 10 % 3 for i in ids]})
    if strategy == "deduplicate":
        source = pa.concat_tables([source, source.set_column(1, "x", pa.array([f"z{i}" for i in ids]))])
    results, lakes = [], [write_lake(tmp_path / name, files) for name in ("spark", "arrow")]
    for io, path in zip((SparkDatasetIO(large), PyArrowDatasetIO()), lakes, strict=True):
        order: Any = {"dedup_order_by": ["x"]} if strategy == "deduplicate" else {}
        results.append(io.write_parquet_dataset(source, path, strategy, ["id"], **order))
    counts = [(r.inserted, r.updated, r.deleted, r.target_count_after) for r in results]
    assert counts[0] == counts[1]
    assert multiset(rows(lakes[0])) == multiset(rows(lakes[1]))


ROW_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "feed": ("upsert", {"delete_column": "op", "delete_values": ["D"], "sequence_by": ["ts"], "on_move": "move"}),
    "some columns": ("update", {"update_columns": ["x"], "sequence_by": ["ts"]}),
    "missing rows": ("upsert", {"delete_missing": "partitions", "sequence_by": ["ts"], "on_move": "move"}),
    "delete": ("delete", {"sequence_by": ["ts"]}),
}


@pytest.mark.parametrize("case", ROW_OPTIONS)
def test_options_about_rows_with_a_large_source(large: Any, tmp_path: Path, case: str) -> None:
    """Several changes of each key; rows that are newer, older, in another partition, or nowhere; null keys."""
    strategy, options = ROW_OPTIONS[case]
    files = {}
    for i, p in ((i, p) for i in range(3) for p in range(3)):
        ids = [*range(100 * i + 10 * p, 100 * i + 10 * p + 9), None]
        times = [None if n == 5 else 50 + n for n in range(10)]
        files[f"part={p}/f{i}.parquet"] = pa.table({"id": ids, "x": [f"{p}"] * 10, "ts": times})
    ids = [*range(0, 30, 2), *range(105, 130, 3), *range(300, 340)]
    home = [i % 100 // 10 % 3 for i in ids]
    source = pa.table({"id": ids, "x": [f"n{i}" for i in ids], "ts": [49 + i % 12 for i in ids], "part": home})
    moved = pa.array([(p + (i % 6 == 0)) % 3 for i, p in zip(ids, home, strict=True)]) if "on_move" in options else home
    source = source.set_column(3, "part", pa.array(moved))
    older = source.set_column(1, "x", pa.array(["older"] * len(ids)))
    source = pa.concat_tables([older.set_column(2, "ts", pa.array([0] * len(ids))), source])
    if "delete_column" in options:
        source = source.append_column("op", pa.array(["D" if n % 4 == 3 else "U" for n in range(source.num_rows)]))
    results, lakes = [], [write_lake(tmp_path / name, files) for name in ("spark", "arrow")]
    for io, path in zip((SparkDatasetIO(large), PyArrowDatasetIO()), lakes, strict=True):
        results.append(io.merge(source, path, strategy, ["id"], on_duplicates="latest", **options))  # type: ignore[arg-type]
    counts = [(r.inserted, r.updated, r.deleted, r.skipped, r.moved, r.changed) for r in results]
    assert counts[0] == counts[1]
    assert results[0].skipped and (results[0].moved > 0) == ("on_move" in options)
    assert multiset(rows(lakes[0])) == multiset(rows(lakes[1]))


def test_refusals_of_a_large_source(large: Any, tmp_path: Path) -> None:
    files = {f"part={p}/f.parquet": pa.table({"id": range(10 * p, 10 * p + 10), "x": ["o"] * 10}) for p in range(3)}
    lake = write_lake(tmp_path / "lake", files)
    before = fingerprint(lake)
    ids = [*range(40), 3, 7]
    twice = pa.table({"id": ids, "x": ["n"] * 42, "part": [i // 10 for i in ids]})
    with pytest.raises(MergeValidationError, match=r"2 key\(s\) of \['id'\] occur more than once, e.g. 3, 7\."):
        SparkDatasetIO(large).merge(twice, lake, "upsert", ["id"])
    tied = pa.table({"id": [*range(100)] * 2, "x": [*["a"] * 100, *["b"] * 100], "part": [5] * 200})
    with pytest.raises(MergeValidationError, match=r"has 100 key\(s\) of \['id'\] with differing rows"):
        SparkDatasetIO(large).write_parquet_dataset(tied, lake, "deduplicate", ["id"])
    moved = pa.table({"id": range(30), "x": ["n"] * 30, "part": [2 if i in (4, 5) else i // 10 for i in range(30)]})
    with pytest.raises(MergeValidationError, match=r"2 key\(s\) lie in another partition of the target, e.g. 4, 5\."):
        SparkDatasetIO(large).merge(moved, lake, "upsert", ["id"])
    assert fingerprint(lake) == before


def test_many_rows_become_few_files_per_partition(large: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    table = pa.table({"id": range(200), "part": [i % 4 for i in range(200)]})
    result = SparkDatasetIO(large).merge(table, str(lake), "upsert", ["id"], partition_columns=["part"])
    assert result.inserted == 200
    assert {row["part"] for row in rows(lake)} == {"0", "1", "2", "3"}
    assert len(rows(lake)) == 200
    limited = SparkDatasetIO(large).write_dataset(table, str(tmp_path / "plain"), max_rows_per_file=30)
    assert max(f.row_count for f in limited.files) <= 30
    assert sorted(row["id"] for row in rows(tmp_path / "plain")) == list(range(200))
