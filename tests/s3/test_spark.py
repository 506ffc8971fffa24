"""Spark on `s3://`: executors read and write by Python, without s3a's jars, and share nothing but the bucket."""

from __future__ import annotations

import contextlib
import io as streams
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark import engine as engine_module
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.stream import BatchMerge
from s3 import servers
from s3.bucket import Bucket, counted
from s3.servers import KEY, SECRET, Moto, Request
from spark_session import settings

pytestmark = pytest.mark.skipif(
    not os.environ.get("JAVA_HOME"), reason="Spark needs Java: export JAVA_HOME=$(scripts/java-home)"
)
TARGET = {
    f"day={day}/{name}.parquet": pa.table({"id": [100 * day + n for n in numbers], "x": ["old"] * 5})
    for day in (1, 2)
    for name, numbers in (("a", range(5)), ("b", range(5, 10)))
}
OLD = [{"id": 100 * day + n, "x": "old"} for day in (1, 2) for n in range(10)]
SCHEMA = "id bigint, x string, day int"
STRATEGIES = {"insert": (0, 1), "update": (2, 0), "upsert": (2, 1)}


@pytest.fixture
def options(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Neither the driver's environment nor the executors', which began before, know of the store."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    return servers.options(moto.endpoint)


@pytest.fixture
def io(spark: Any, options: dict[str, Any]) -> SparkDatasetIO:
    return SparkDatasetIO(spark, storage_options=options)


@pytest.fixture
def lake(moto_bucket: Bucket, prefix: str) -> str:
    return moto_bucket.write(prefix, TARGET)


def changes(spark: Any) -> Any:
    return spark.createDataFrame([(101, "new", 1), (207, "new", 2), (999, "new", 2)], SCHEMA)


def expected(strategy: str) -> list[dict[str, Any]]:
    updated = {101, 207} if strategy != "insert" else set()
    merged = [{"id": row["id"], "x": "new" if row["id"] in updated else "old"} for row in OLD]
    return merged + ([{"id": 999, "x": "new"}] if strategy != "update" else [])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_merge_plan_and_read(
    io: SparkDatasetIO, spark: Any, lake: str, strategy: Any, moto_bucket: Bucket, prefix: str
) -> None:
    before = moto_bucket.etags(f"{prefix}/")
    plan = io.plan(changes(spark), lake, strategy, ["id"])
    assert (plan.updated, plan.inserted) == STRATEGIES[strategy]
    assert moto_bucket.etags(prefix.partition("/")[0]) == before, "a plan leaves nothing behind"
    result = io.merge(changes(spark), lake, strategy, ["id"])
    assert (result.updated, result.inserted) == STRATEGIES[strategy]
    assert result.target_count_after == len(expected(strategy))
    assert counted(moto_bucket.rows(prefix)) == counted(expected(strategy))
    assert moto_bucket.litter(prefix) == []
    kept = sorted(row["id"] for row in expected(strategy) if row["x"] == "new")
    assert sorted(row["id"] for row in io.read(lake, ["id"], "x = 'new'").collect()) == kept
    frame = io.read(lake)
    assert (frame.columns, frame.count()) == (["id", "x", "day"], len(expected(strategy)))
    assert {row["day"] for row in io.read(lake, ["day"]).collect()} == {1, 2}


def test_shuffled_and_joined(io: SparkDatasetIO, spark: Any, lake: str, moto_bucket: Bucket, prefix: str) -> None:
    """As if there were too many rows and keys for a broadcast: hits, rows and files all pass through executors."""
    with settings(spark, spark__sql__autoBroadcastJoinThreshold="-1"):
        result = io.merge(changes(spark), f"{lake}", "upsert", ["id"])
    assert (result.updated, result.inserted) == (2, 1)
    assert counted(moto_bucket.rows(prefix)) == counted(expected("upsert"))
    assert moto_bucket.litter(prefix) == []


def test_sources_in_the_store_and_a_new_data_set(
    io: SparkDatasetIO, lake: str, moto_bucket: Bucket, prefix: str
) -> None:
    result = io.merge(lake.replace("s3://", "s3a://"), f"{lake}-copy", "upsert", ["id"], ["day"])
    assert result.inserted == 20
    assert counted(moto_bucket.rows(f"{prefix}-copy")) == counted(OLD)
    assert {key.split("/")[-2] for key in moto_bucket.etags(f"{prefix}-copy/")} == {"day=1", "day=2"}
    assert io.write_dataset(pa.table({"id": [1], "x": ["a"], "day": [1]}), f"{lake}-copy", "overwrite").rows == 1
    assert moto_bucket.rows(f"{prefix}-copy") == [{"id": 1, "x": "a"}]


def test_refusals_leave_the_lake_as_it_was(
    io: SparkDatasetIO, spark: Any, lake: str, moto_bucket: Bucket, prefix: str
) -> None:
    before = moto_bucket.etags(f"{prefix}/")
    twice = spark.createDataFrame([(101, "new", 1), (101, "newer", 1)], SCHEMA)
    with pytest.raises(fsspeckit.DuplicateKeyError, match="101"):
        io.merge(twice, lake, "upsert", ["id"])
    with pytest.raises(fsspeckit.PartitionMoveError, match="101"):
        io.merge(spark.createDataFrame([(101, "new", 2)], SCHEMA), lake, "upsert", ["id"])
    with pytest.raises(fsspeckit.ArgumentError, match="Leave out replace='in_place'"):
        io.merge(changes(spark), lake, "upsert", ["id"], replace="in_place")
    assert moto_bucket.etags(f"{prefix}/") == before
    assert moto_bucket.litter(prefix) == []


def test_an_upload_that_fails_leaves_nothing_pending(
    io: SparkDatasetIO, spark: Any, lake: str, moto: Moto, moto_bucket: Bucket, prefix: str
) -> None:
    """An executor has begun its upload when the store refuses the parts of one file; other files were uploaded."""
    before = moto_bucket.etags(f"{prefix}/")

    def fault(asked: Request) -> str | None:
        is_part = asked.method == "PUT" and "partNumber" in asked.query and "/day=2/" in asked.path
        return "500" if is_part else None

    moto.fault = fault
    with pytest.raises(fsspeckit.FsspeckitError) as failed:
        io.merge(changes(spark), lake, "upsert", ["id"])
    moto.fault = None
    assert "InternalError" in str(failed.value) and "/day=2/" in str(failed.value)
    assert any("uploads" in asked.query and asked.method == "POST" for asked in moto.requests)
    assert SECRET not in str(failed.value) + repr(pickle.dumps(failed.value))
    assert moto_bucket.etags(f"{prefix}/") == before
    assert moto_bucket.litter(prefix) == []
    assert io.merge(changes(spark), lake, "upsert", ["id"]).updated == 2


def test_writers_leave_a_running_plan_alone(
    io: SparkDatasetIO, spark: Any, lake: str, moto_bucket: Bucket, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the plan has its rows in the store, PyArrow merges; the plan tells what it was asked, and clears up."""
    footers = engine_module.SparkEngine.keys
    during: list[list[str]] = []

    @contextlib.contextmanager
    def keys(engine: Any, spool: Any, actions: Any) -> Iterator[Any]:
        during.append(moto_bucket.litter(prefix))
        io_there = fsspeckit.PyArrowDatasetIO(storage_options=io._access.storage_options)
        io_there.write_dataset(pa.table({"id": [1], "x": ["a"], "day": [3]}), lake)
        with footers(engine, spool, actions) as found:
            yield found

    monkeypatch.setattr(engine_module.SparkEngine, "keys", keys)
    assert io.plan(changes(spark), lake, "upsert", ["id"]).inserted == 1
    assert any("/plan-" in key for key in during[0])
    assert moto_bucket.litter(prefix) == []


def test_no_secret_is_told(
    io: SparkDatasetIO,
    spark: Any,
    lake: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plans, descriptions of jobs, logs of ours and of the way to Java, reprs. Java's own log: in the test below."""
    caplog.set_level(logging.DEBUG)
    steps: list[str] = []
    describe = Operation.describe

    def overheard(operation: Operation, step: str) -> None:
        steps.append(step)
        describe(operation, step)

    monkeypatch.setattr(Operation, "describe", overheard)
    io.merge(changes(spark), lake, "upsert", ["id"])
    with contextlib.redirect_stdout(streams.StringIO()) as plan:
        io.read(lake).explain(True)
    batch = BatchMerge(lake, io._access, "app", io.request("upsert", ["id"], None, {}))
    logged = [record.getMessage() for record in caplog.records if record.name.startswith(("fsspeckit", "py4j"))]
    shown = "\n".join([*steps, *logged, plan.getvalue(), repr(batch), repr(vars(io))])
    assert "rewrite 2 of 4 files" in shown and "Parsed Logical Plan" in shown
    assert SECRET not in shown and KEY not in shown


CLUSTER = """
import os
from spark_session import SMALL, local_session
from fsspeckit.datasets.spark import SparkDatasetIO

spark = local_session("local-cluster[2,1,1024]", **SMALL)
frame = spark.createDataFrame([(101, "new", 1), (207, "new", 2), (999, "new", 2)], "id bigint, x string, day int")
spark.sparkContext.setLogLevel("INFO")
keys = {"access_key_id": os.environ["AWS_ACCESS_KEY_ID"], "secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"]}
print(SparkDatasetIO(spark, storage_options=keys).plan(frame, URL, "upsert", ["id"]).updated)
io = SparkDatasetIO(spark)
print(io.merge(frame, URL, "upsert", ["id"]).inserted)
print(io.read(URL).count())
spark.stop()
"""


@pytest.mark.slow
def test_a_cluster_whose_executors_have_credentials_of_their_own(
    moto: Moto, moto_bucket: Bucket, prefix: str, tmp_path: Path
) -> None:
    url = moto_bucket.write(prefix, TARGET)
    there = {**os.environ, **servers.environment(moto.endpoint), "PYTHONPATH": str(Path(__file__).parents[1])}
    program = CLUSTER.replace("URL", repr(url))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=there, cwd=tmp_path, timeout=600
    )
    assert done.stdout.split() == ["2", "1", "21"], done.stderr[-3000:]
    assert counted(moto_bucket.rows(prefix)) == counted(expected("upsert"))
    assert moto_bucket.litter(prefix) == []
    assert "INFO DAGScheduler" in done.stderr
    assert SECRET not in done.stdout + done.stderr and KEY not in done.stdout + done.stderr
