"""Run by `test_threads`: merges in four threads of one session, classic or Connect. Prints what they left as JSON."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from fsspeckit.datasets.spark import SparkDatasetIO
from spark_session import CONF, SMALL, local_session
from support import rows, write_lake

THREADS = 4
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


def session(kind: str) -> Any:
    # Even rows of a few bytes are joined and shuffled.
    conf = {**SMALL, BROADCAST: "-1"}
    if kind == "classic":
        return local_session(**conf)
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**CONF, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def settings(spark: Any) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql("SET").collect()}


def merge_again_and_again(
    spark: Any, shared: SparkDatasetIO, root: Path, number: int, count: int, wrong: list[str]
) -> int:
    """One thread: it merges into its own lake, and after each merge looks at what is its own."""
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": [-1] * 10}) for i in range(2)}
    lake = write_lake(root / f"lake{number}", files)
    label(spark, number)
    for turn in range(count):
        # Two rows of the lake and a new one. Half of the merges share their SparkDatasetIO with other threads.
        frame = spark.sql(f"SELECT id, {turn} x FROM VALUES (5L), (15L), ({100 + turn}L) AS t(id)")
        io = shared if turn % 2 else SparkDatasetIO(spark)
        result = io.merge(frame, lake, "upsert", ["id"])
        if (result.inserted, result.updated) != (1, 2):
            wrong.append(f"{lake} {turn}: {result.inserted} inserted, {result.updated} updated")
    expected = {**dict.fromkeys(range(20), -1), **{100 + turn: turn for turn in range(count)}, 5: turn, 15: turn}
    if {row["id"]: row["x"] for row in rows(lake)} != expected:
        wrong.append(f"{lake}: other rows than were merged")
    if own_label(spark) != f"thread {number}":
        wrong.append(f"thread {number} is labelled {own_label(spark)}")
    spark.range(3).collect()
    return count


def watch(spark: Any, stdout: Any, done: threading.Event, wrong: list[str]) -> None:
    """Meanwhile, another thread has what it had."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    for turn in itertools.count():
        if sys.stdout is not stdout:
            wrong.append("a merge replaced sys.stdout")
        if turn % 50 == 0 and spark.conf.get(setting) != before:
            wrong.append(f"a merge changed {setting}")
        if done.wait(0.001):
            return


def label(spark: Any, number: int) -> None:
    """The user's own, which Spark keeps per thread."""
    if hasattr(spark, "sparkContext"):
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", f"thread {number}")
        spark.sparkContext.setJobDescription(f"thread {number}")
    else:
        spark.addTag(f"thread {number}")


def own_label(spark: Any) -> str:
    if hasattr(spark, "sparkContext"):
        return str(spark.sparkContext.getLocalProperty("spark.job.description"))
    return ", ".join(spark.getTags())


def labels_of_jobs(spark: Any) -> list[tuple[str, str]]:
    """Of every job the thread that ran it, and its description."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(30_000)
    jobs = context.statusStore().jobsList(None)
    found = [jobs.apply(i) for i in range(jobs.size())]
    return [(job.jobGroup().get(), job.description().get()) for job in found if job.jobGroup().isDefined()]


def main(kind: str, folder: str, rounds: str) -> None:
    spark, root = session(kind), Path(folder)
    sys.stdout.flush()
    before, stdout, wrong = settings(spark), sys.stdout, list[str]()
    shared, tags = SparkDatasetIO(spark), list[tuple[str, str]]()
    current = threading.local()

    def run(number: int) -> int:
        current.name = f"thread {number}"
        return merge_again_and_again(spark, shared, root, number, int(rounds), wrong)

    add = spark.addTag
    recording = mock.patch.object(
        type(spark), "addTag", lambda session, tag: [tags.append((getattr(current, "name", ""), tag)), add(tag)]
    )
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(spark, stdout, done, wrong))
    watcher.start()
    with recording, ThreadPoolExecutor(THREADS) as pool:
        merges = sum(pool.map(run, range(THREADS)))
    done.set()
    watcher.join()
    after = settings(spark)
    labels = labels_of_jobs(spark) if kind == "classic" else tags
    found = {
        "merges": merges,
        "wrong": sorted(set(wrong)),
        "changed": sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)),
        "stdout": sys.stdout is stdout,
        "labels": sorted({(thread, text.partition(":")[0]) for thread, text in labels}),
    }
    print(json.dumps(found), file=stdout)
    stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
