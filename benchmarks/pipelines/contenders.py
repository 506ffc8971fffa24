"""Who upserts a batch into a lake of one folder a day: we, and the way of Spark without MERGE."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import cpu_seconds
from pyspark.sql import functions as F

from fsspeckit.datasets.spark import SparkDatasetIO

OURS, OVERWRITE = "fsspeckit, Spark", "dynamic partition overwrite"
ABOUT = {
    OURS: "`SparkDatasetIO.merge` by id and day",
    OVERWRITE: "anti-join and union of the days of the batch, `partitionOverwriteMode=dynamic`",
}


def merge(spark: Any, changes: Any, lake: Path) -> None:
    SparkDatasetIO(spark).merge(changes, str(lake), "upsert", ["id", "day"])


def overwrite(spark: Any, changes: Any, lake: Path) -> None:
    days = [row["day"] for row in changes.select("day").distinct().collect()]
    target = spark.read.parquet(str(lake)).where(F.col("day").isin(days))
    rows = target.join(changes.select("id"), "id", "left_anti").unionByName(changes)
    rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("day").parquet(str(lake))


CONTENDERS: dict[str, Callable[[Any, Any, Path], None]] = {OURS: merge, OVERWRITE: overwrite}


def timed(spark: Any, contender: str, batch: Path, lake: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one upsert."""
    changes = spark.read.parquet(str(batch))
    wall, cpu = time.perf_counter(), cpu_seconds()
    CONTENDERS[contender](spark, changes, lake)
    return time.perf_counter() - wall, cpu_seconds() - cpu
