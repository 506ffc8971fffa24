"""What Spark's UI says of our jobs, asked of Spark's own list of jobs."""

from __future__ import annotations

import importlib
import os
import random
import sys
import zipimport
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import MergeValidationError
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.local_engine import LocalEngine
from fsspeckit.core.rows.exchange import Step
from fsspeckit.datasets.spark import SparkDatasetIO, engine
from fsspeckit.datasets.spark.session import DRIVER_BYTES, FILE_BYTES
from fsspeckit.datasets.spark.tasks import map_in_arrow
from spark_session import settings
from support import rows, write_lake

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(4)}
    return write_lake(tmp_path / "orders", files)


@pytest.fixture
def described(spark: Any) -> Any:
    """The descriptions of all jobs since the last call."""
    seen = {job.jobId() for job in jobs(spark)}

    def since() -> list[str | None]:
        found = [job for job in jobs(spark) if job.jobId() not in seen]
        seen.update(job.jobId() for job in found)
        return [text(job.description()) for job in sorted(found, key=lambda job: job.jobId())]

    return since


def jobs(spark: Any) -> list[Any]:
    """Spark's UI is off in tests; this is the store that it shows."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(30_000)
    found = context._jsc.sc().statusStore().jobsList(None)
    return [found.apply(i) for i in range(found.size())]


def text(description: Any) -> str | None:
    return description.get() if description.isDefined() else None


def test_every_job_of_a_merge_says_what_it_does(spark: Any, io: SparkDatasetIO, lake: str, described: Any) -> None:
    spark.sparkContext.setJobDescription("the user's own")
    frame = spark.range(5, 25, 10).selectExpr("id", "'new' x").union(spark.sql("select 99L, 'new'"))
    described()
    io.merge(frame, lake, "upsert", ["id"])
    found = described()
    assert found and all(one.startswith("fsspeckit merge orders: ") for one in found)
    for step in ("read the source", "match 2 of 4 files", "rewrite 2 of 4 files", "write 1 new row"):
        assert f"fsspeckit merge orders: {step}" in found
    io.plan(frame, lake, "upsert", ["id"])
    assert "fsspeckit plan orders: match 3 of 5 files" in described()
    spark.range(3).collect()
    assert set(described()) == {"the user's own"}


@pytest.fixture
def by_default(spark: Any) -> Iterator[None]:
    """The driver does what is little, as it does unless the tests' session says otherwise."""
    before = spark.conf.get(DRIVER_BYTES)
    spark.conf.set(DRIVER_BYTES, "8m")
    yield
    spark.conf.set(DRIVER_BYTES, before)


def test_a_tiny_merge_runs_one_job(
    spark: Any, io: SparkDatasetIO, lake: str, described: Any, by_default: None, tmp_path: Path
) -> None:
    """Which evaluates the frame: neither its schema nor the number of cores costs one."""
    frame = spark.createDataFrame([(5, "new"), (15, "new"), (99, "new")], "id long, x string")
    described()
    assert len(SparkDatasetIO(spark).plan(frame, lake, "upsert", ["id"]).files) == 4
    assert described() == ["fsspeckit plan orders: read the source"]
    result = SparkDatasetIO(spark).merge(frame, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 2)
    assert described() == ["fsspeckit merge orders: read the source"]
    assert {row["id"] for row in rows(lake) if row["x"] == "new"} == {5, 15, 99}
    pq.write_table(pa.table({"id": [7], "x": ["newer"]}), tmp_path / "source.parquet")
    assert io.merge(str(tmp_path / "source.parquet"), lake, "upsert", ["id"]).updated == 1
    assert io.merge(pa.table({"id": [8], "x": ["newer"]}), lake, "upsert", ["id"]).updated == 1
    assert described() == []
    assert {row["id"] for row in rows(lake) if row["x"] == "newer"} == {7, 8}


@pytest.mark.parametrize("many", [engine.MANY_FILES, 256])
def test_one_touched_file_of_many_runs_two_jobs(
    spark: Any, tmp_path: Path, described: Any, by_default: None, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """Of many files executors read the footers; the rest is little again."""
    monkeypatch.setattr(engine, "MANY_FILES", many)
    files = {f"f{i}.parquet": pa.table({"id": [2 * i], "x": ["old"]}) for i in range(257)}
    lake = write_lake(tmp_path / "many", files)
    frame = spark.createDataFrame([(20, "new"), (21, "new")], "id long, x string")
    described()
    result = SparkDatasetIO(spark).merge(frame, lake, "upsert", ["id"])
    assert (result.inserted, result.updated, len(result.rewritten_files)) == (1, 1, 1)
    footers = ["fsspeckit merge many: read the footers of 257 files"] if many < 257 else []
    assert described() == [*footers, "fsspeckit merge many: read the source"]
    assert {row["id"] for row in rows(lake) if row["x"] == "new"} == {20, 21}


def test_what_is_not_little_is_for_executors(spark: Any, io: SparkDatasetIO, lake: str, described: Any) -> None:
    frame = spark.createDataFrame([(5, "new"), (99, "new")], "id long, x string")
    before = spark.conf.get(DRIVER_BYTES)
    spark.conf.set(DRIVER_BYTES, str(FILE_BYTES + 600))  # the keys of a file and a new row, but no whole file
    described()
    io.merge(frame, lake, "upsert", ["id"])
    spark.conf.set(DRIVER_BYTES, before)
    steps = [description.removeprefix("fsspeckit merge orders: ") for description in described()]
    assert steps == ["read the source", "rewrite 1 of 4 files"]


@pytest.mark.parametrize("broadcast", ["10m", "0"], ids=["read by every task", "shuffled"])
def test_a_rewrite_is_divided_by_the_bytes_of_its_files(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, caplog: pytest.LogCaptureFixture, broadcast: str
) -> None:
    """Not by what a task has in memory at once: 50 files of small row groups were three tasks for two cores."""
    folder = tmp_path / "large"
    folder.mkdir()
    for number in range(8):
        ids = range(number * 1000, number * 1000 + 1000)
        noise = [random.Random(i).randbytes(9000) for i in ids]
        pq.write_table(pa.table({"id": ids, "x": noise}), folder / f"{number}.parquet", row_group_size=10)
    frame = spark.range(0, 8000, 500).selectExpr("id", "cast('new' as binary) x")
    with caplog.at_level("INFO", "fsspeckit.spark"), settings(spark, **{BROADCAST: broadcast}):
        assert io.merge(frame, str(folder), "upsert", ["id"]).updated == 16
    (record,) = [record for record in caplog.records if record.getMessage().startswith("rewrite")]
    assert len(vars(record)["tasks"]) == 3  # 72 MB
    label = (
        f"rewrite: fsspeckit merge {folder.name}: rewrite 8 of 8 files; 3 task(s) on 1 executor(s), the longest took "
    )
    assert record.getMessage().startswith(label)


def test_what_the_driver_does_is_within_its_memory(
    spark: Any, io: SparkDatasetIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_default: None
) -> None:
    """Files of a few bytes may hold row groups of many: these count, since threads share the driver's memory."""
    folder = tmp_path / "dense"
    folder.mkdir()
    weights: list[int] = []
    for number in range(2):
        ids = range(number * 100_000, number * 100_000 + 100_000)
        pq.write_table(pa.table({"id": ids, "x": ["the same" * 100] * 100_000}), folder / f"{number}.parquet")
    largest = max(pq.read_metadata(path).row_group(0).total_byte_size for path in folder.iterdir())

    def observed(self: LocalEngine, step: Step, function: Any, items: Any, weight: Any) -> Any:
        weights.extend(weight(item) for item in items if step.name == "rewrite")
        return original(self, step, function, items, weight)

    original = LocalEngine.map
    monkeypatch.setattr(LocalEngine, "map", observed)
    frame = spark.createDataFrame([(5, "new"), (100_005, "new")], "id long, x string")
    assert io.merge(frame, str(folder), "upsert", ["id"]).updated == 2
    assert max(weights) == 3 * largest


def test_small_partitions_are_pinned_together(spark: Any, io: SparkDatasetIO, lake: str) -> None:
    """A task for each of 2,000 partitions of two rows took a minute."""
    frame = spark.range(0, 400, 1, 200).selectExpr("id", "cast(spark_partition_id() as string) x")
    jobs_before = len(jobs(spark))
    result = io.merge(frame, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (360, 40)
    pinned = sorted(jobs(spark), key=lambda job: job.jobId())[jobs_before]
    assert pinned.numTasks() == 64
    assert {row["id"]: row["x"] for row in rows(lake)} == {i: str(i // 2) for i in range(400)}


def test_the_users_description_is_back_after_an_error(
    spark: Any, io: SparkDatasetIO, lake: str, described: Any
) -> None:
    for own in ("mine", None):
        spark.sparkContext.setJobDescription(own)
        with pytest.raises(MergeValidationError, match="duplicate"):
            io.merge(spark.sql("select 1L id, 'a' x union all select 1L, 'b'"), lake, "upsert", ["id"])
        assert spark.sparkContext.getLocalProperty("spark.job.description") == own
        described()
        spark.range(3).collect()
        assert not any("fsspeckit" in str(one) for one in described())


def test_a_batch_of_a_stream_is_told_too(spark: Any, io: SparkDatasetIO, lake: str, described: Any) -> None:
    spark.sparkContext.setJobDescription("stream")
    io.foreach_batch(lake, ["id"], app_id="events")(spark.range(5, 6).selectExpr("id", "'new' x"), 0)
    assert "fsspeckit merge orders: match 1 of 4 files" in described()
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "stream"
    spark.sparkContext.setJobDescription(None)


def test_a_session_that_was_stopped_is_told(spark: Any, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    io = SparkDatasetIO(spark)
    with monkeypatch.context() as stopped:
        stopped.setattr(spark.sparkContext, "_jsc", None)  # what `stop` leaves; others still need this one
        targets: list[Any] = [{"path": lake}, {"table": "orders"}]
        for target in targets:
            with pytest.raises(ArgumentError, match="The Spark session was stopped"):
                io.merge(pa.table({"id": [1], "x": ["new"]}), strategy="upsert", key_columns=["id"], **target)
    assert io.merge(pa.table({"id": [1], "x": ["new"]}), lake, "upsert", ["id"]).updated == 1


def test_a_worker_keeps_no_importers_of_archives(spark: Any) -> None:
    """Before its next task Python would read the directories of their archives again, which took longer than to merge
    a few rows. Whoever imports makes them anew."""

    def importers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        archives = sum(
            isinstance(importer, zipimport.zipimporter) and "py" in os.path.basename(importer.archive)
            for importer in sys.path_importer_cache.values()
        )
        for _ in batches:
            importlib.import_module("pyspark.cloudpickle.cloudpickle_fast")
            yield pa.RecordBatch.from_pydict({"worker": [os.getpid()], "archives": [archives]})

    for _ in range(3):
        rows = map_in_arrow(spark.range(0, 2, 1, 2), importers, "worker long, archives long").collect()
    # A worker of its own may be started for a task; one that had a task of ours before has none.
    seen = dict.fromkeys((row["worker"] for row in rows), 0)
    for _ in range(5):
        again = map_in_arrow(spark.range(0, 2, 1, 2), importers, "worker long, archives long").collect()
        seen.update((row["worker"], row["archives"]) for row in again if row["worker"] in seen)
    assert set(seen.values()) == {0}


def executions(store: Any) -> list[Any]:
    """The queries that Spark still knows: it forgets old ones."""
    listed = store.executionsList()
    return [listed.apply(i) for i in range(listed.size())]


def test_listeners_see_the_source_and_not_the_target(spark: Any, io: SparkDatasetIO, lake: str, tmp_path: Path) -> None:
    """OpenLineage reads inputs from the plans of our jobs. No plan writes the target, since tasks write its files."""
    store = spark._jsparkSession.sharedState().statusStore()
    source = write_lake(tmp_path / "changes", {"f.parquet": pa.table({"id": [5, 99], "x": ["new", "new"]})})
    earlier = {execution.executionId() for execution in executions(store)}
    io.merge(spark.read.parquet(source).repartition(2), lake, "upsert", ["id"])
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(30_000)
    new = [execution for execution in executions(store) if execution.executionId() not in earlier]
    plans = {execution.description(): execution.physicalPlanDescription() for execution in new}
    assert f"file:{source}" in plans["fsspeckit merge orders: read the source"]
    assert not any(f"file:{lake}" in plan for plan in plans.values())
