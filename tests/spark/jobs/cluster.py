"""Run by `test_cluster`: merges on two executor processes, with tasks that fail and die. Prints what it saw as JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import functions as F

from fsspeckit.core import merge
from fsspeckit.core.rows.spool import Spool
from fsspeckit.datasets.spark import SparkDatasetIO
from spark_faults import ROWS, Struck, contents, executor_of, fail, failing_source, lose_executor, make_lake, ones
from spark_session import SMALL, local_session

FILES = 50


class Reports(logging.Handler):
    """Keeps what tasks report of themselves, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, list[Any]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.steps[str(record.args[0])] = list(getattr(record, "tasks", []))  # type: ignore[index]


def balanced(io: SparkDatasetIO, lake: str, reports: Reports) -> dict[str, Any]:
    """A key in every file: how many files did each executor rewrite?"""
    source = io.spark.range(0, FILES * ROWS, ROWS).withColumn("x", F.lit(1.0))
    result = io.merge(source, lake, "upsert", ["id"])
    shares: Counter[str] = Counter()
    for report in reports.steps["rewrite"]:
        shares[report.executor] += report.items
    return {"updated": result.updated, "shares": sorted(shares.values())}


def executor_process(spark: Any) -> int:
    """The process id of one executor: the parent of its Python daemon."""

    def tell(batches: Any) -> Any:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

    return executor_of(spark.range(0, 1, 1, 1).mapInArrow(tell, "pid bigint").collect()[0]["pid"])


def survives(io: SparkDatasetIO, lake: str) -> dict[str, Any]:
    """A random source, and an executor killed after the pin: is what was merged what was pinned?"""
    seen: dict[int, float] = {}
    profile = merge.profile_of  # type: ignore[attr-defined]

    def kill_then_profile(spool: Spool, keys: Any) -> Any:
        for part in range(len(spool.parts)):
            for table in spool.read(part):
                seen.update(zip(table["id"].to_pylist(), table["x"].to_pylist(), strict=True))
        os.kill(executor_process(io.spark), signal.SIGKILL)
        return profile(spool, keys)

    random_value = F.udf(lambda: __import__("random").random(), "double").asNondeterministic()
    keys = io.spark.range(0, 2 * FILES * ROWS, 7, 4).where(F.rand() < 0.5)
    with mock.patch.object(merge, "profile_of", kill_then_profile):
        result = io.merge(keys.withColumn("x", random_value()), lake, "upsert", ["id"])
    rows = contents(lake)
    return {
        "pinned": len(seen),
        "merged": result.inserted + result.updated,
        "as_pinned": sum(rows[key] == value for key, value in seen.items()),
        "rows": len(rows),
        "expected": len(set(range(FILES * ROWS)) | seen.keys()),
    }


def retried(io: SparkDatasetIO, folder: Path) -> dict[str, Any]:
    """Every step fails once: of a merge that looks keys up, and of one that joins them."""
    small, large = Struck(io, folder / "small"), Struck(io, folder / "large")
    source = failing_source(ones(io, 100_000, 1), small.marks)
    found = {"looked_up": small.merge(fail, ["match", "rewrite", "insert"], source)}
    files = make_lake(folder / "source", 8, 1.0)
    io.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    found["joined"] = large.merge(fail, ["spool", "join", "send", "rewrite", "insert"], files)
    io.spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    return found


def main(folder: str) -> None:
    root = Path(folder)
    spark = local_session("local-cluster[2,1,1024]", **SMALL)
    reports = Reports()
    log = logging.getLogger("fsspeckit.spark")
    log.setLevel(logging.INFO)
    log.addHandler(reports)
    io = SparkDatasetIO(spark)
    lake = make_lake(root / "lake", FILES)
    found = {"balanced": balanced(io, lake, reports), "survives": survives(io, lake)}
    found |= retried(io, root / "retried")  # long enough for another executor to come up
    found["killed"] = Struck(io, root / "killed").merge(lose_executor, ["rewrite"], ones(io, 5 * ROWS))
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    found["shuffled"] = Struck(io, root / "shuffled").merge(lose_executor, ["rewrite"], ones(io, 5 * ROWS))
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
