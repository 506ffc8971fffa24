"""Spark, big: 20 million source rows of which 1 million are matched, into a target of 20 million rows.

    python benchmarks/big_spark.py [--millions 20]

On two executor processes, with a driver of 1 GB that may receive 16 MB in all: what reaches it is counts. Prints the
time and what the driver's Python needed at its peak, and looks at every row.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from fsspeckit.datasets.spark import SparkDatasetIO, start_session

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.maxResultSize": "16m",
    "spark.executor.memory": "2g",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
FILES = 40


def make_target(root: Path, rows: int) -> None:
    """Even keys, in files of half a million rows."""
    root.mkdir(parents=True)
    each = rows // FILES
    for number in range(FILES):
        ids = np.arange(number * each, (number + 1) * each) * 2
        table = pa.table({"id": ids, "value": ids * 0.5, "name": np.char.add("old", (ids % 1000).astype(str))})
        pq.write_table(table, root / f"part-{number:03d}.parquet", row_group_size=100_000)


def make_source(spark: Any, rows: int, matched: int) -> Any:
    """`matched` even keys of the target and odd ones beside them, in no order."""
    step = rows // matched
    key = F.when(F.col("id") % step == 0, F.col("id") * 2).otherwise(F.col("id") * 2 + 1)
    return spark.range(0, rows, 1, 16).select(key.alias("id"), (key * 0.25).alias("value"), F.lit("new").alias("name"))


def is_right(lake: Path, rows: int, matched: int) -> bool:
    """Is every key there once, with the source's values if the source has it, else with the old ones?"""
    seen = np.zeros(2 * rows, dtype=bool)
    for path in lake.rglob("*.parquet"):
        for batch in pq.ParquetFile(path).iter_batches(1 << 20):
            ids, values = (batch.column(name).to_numpy() for name in ("id", "value"))
            new = (ids % 2 == 1) | (ids // 2 % (rows // matched) == 0)
            named_new = pc.equal(batch.column("name"), "new").to_numpy(zero_copy_only=False)
            once = len(np.unique(ids)) == len(ids) and not seen[ids].any()
            if not once or (values != ids * np.where(new, 0.25, 0.5)).any() or (named_new != new).any():
                return False
            seen[ids] = True
    return int(seen.sum()) == 2 * rows - matched


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=20)
    rows = parser.parse_args().millions * 1_000_000
    matched = rows // 20
    with tempfile.TemporaryDirectory(prefix="fsspeckit-big-") as folder:
        lake = Path(folder) / "lake"
        make_target(lake, rows)
        spark = start_session("local-cluster[2,1,2048]", CONF)
        started = time.perf_counter()
        result = SparkDatasetIO(spark).merge(make_source(spark, rows, matched), str(lake), "upsert", ["id"])
        taken = time.perf_counter() - started
        spark.stop()
        right = is_right(lake, rows, matched)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{result.inserted:,} inserted, {result.updated:,} updated in {taken:.0f} s; driver's Python: {peak} MB; "
        f"every row {'as it should be' if right else 'was looked at, and some are WRONG'}"
    )
    return 0 if right and (result.inserted, result.updated) == (rows - matched, matched) else 1


if __name__ == "__main__":
    sys.exit(main())
