"""Run by `test_cluster`: merges on two executor processes, one of which is killed. Prints what it saw as JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark import parts as pinned
from fsspeckit.datasets.spark.engine import SparkEngine
from spark_session import local_session

FILES, ROWS = 50, 400


class Reports(logging.Handler):
    """Keeps what tasks report of themselves, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, list[Any]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.steps[str(record.args[0])] = list(getattr(record, "tasks", []))  # type: ignore[index]


def make_lake(root: Path) -> str:
    root.mkdir(parents=True)
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"id": list(ids), "x": [0.0] * ROWS}), root / f"f{number:02d}.parquet")
    return str(root)


def balanced(io: SparkDatasetIO, lake: str, reports: Reports) -> dict[str, Any]:
    """A key in every file: how many files did each executor rewrite?"""
    source = io.spark.range(0, FILES * ROWS, ROWS).withColumn("x", F.lit(1.0))
    result = io.merge(source, lake, "upsert", ["id"])
    shares: Counter[str] = Counter()
    for report in reports.steps["rewrite"]:
        shares[report.executor] += report.items
    return {"updated": result.updated, "shares": sorted(shares.values())}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_process(spark: Any) -> int:
    """The process id of one executor: the parent of its Python daemon."""

    def tell(batches: Any) -> Any:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

    return parent(spark.range(0, 1, 1, 1).mapInArrow(tell, "pid bigint").collect()[0]["pid"])


def survives(io: SparkDatasetIO, lake: str) -> dict[str, Any]:
    """A random source, and an executor killed after the pin: is what was merged what was pinned?"""
    seen: dict[int, float] = {}
    profile = SparkEngine.profile

    def kill_then_profile(engine: SparkEngine, source: Any) -> Any:
        for part in source.source.parts:
            for table in pinned.read_rows(source.source.scratch, part):
                seen.update(zip(table["id"].to_pylist(), table["x"].to_pylist(), strict=True))
        os.kill(executor_process(source.cluster.spark), signal.SIGKILL)
        return profile(engine, source)

    SparkEngine.profile = kill_then_profile  # type: ignore[method-assign]
    random_value = F.udf(lambda: __import__("random").random(), "double").asNondeterministic()
    keys = io.spark.range(0, 2 * FILES * ROWS, 7, 4).where(F.rand() < 0.5)
    result = io.merge(keys.withColumn("x", random_value()), lake, "upsert", ["id"])
    SparkEngine.profile = profile  # type: ignore[method-assign]
    rows = dict(zip(*(pq.read_table(lake)[name].to_pylist() for name in ("id", "x")), strict=True))
    return {
        "pinned": len(seen),
        "merged": result.inserted + result.updated,
        "as_pinned": sum(rows[key] == value for key, value in seen.items()),
        "rows": len(rows),
        "expected": len(set(range(FILES * ROWS)) | seen.keys()),
    }


def main(folder: str) -> None:
    spark = local_session("local-cluster[2,1,1024]", **{"spark.executor.memory": "512m", "spark.driver.memory": "512m"})
    reports = Reports()
    log = logging.getLogger("fsspeckit.spark")
    log.setLevel(logging.INFO)
    log.addHandler(reports)
    io = SparkDatasetIO(spark)
    lake = make_lake(Path(folder) / "lake")
    found = {"balanced": balanced(io, lake, reports), "survives": survives(io, lake)}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
