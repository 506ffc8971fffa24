"""Spark: a merge against read-join-overwrite in plain PySpark, as ratios of wall time in one warm session.

    python benchmarks/spark_ratio.py [--files 50] [--rows 200000]

The lake has 50 files of 200,000 rows and 9 columns. 50,000 source rows have their keys in 5 files, then in all 50.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.datasets.spark import SparkDatasetIO, start_session

SOURCE_ROWS = 50_000
WANTED = {5: 5.0, 50: 1.8}
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


def columns(ids: Any, chance: Any) -> pa.Table:
    """Nine columns: a key, numbers, texts, a time and a flag."""
    count = len(ids)
    return pa.table(
        {
            "id": pa.array(ids),
            "amount": chance.random(count),
            "price": np.round(chance.random(count) * 100, 2),
            "quantity": chance.integers(0, 1000, count, dtype=np.int32),
            "customer": [f"customer-{n:06d}" for n in chance.integers(0, 100_000, count)],
            "city": pa.array([f"city{n}" for n in range(50)]).take(pa.array(chance.integers(0, 50, count))),
            "note": [f"note {n:x}" for n in chance.integers(0, 1 << 40, count)],
            "at": pa.array(chance.integers(0, 1 << 50, count), pa.timestamp("us", "UTC")),
            "flag": pa.array(chance.random(count) < 0.5),
        }
    )


def make_lake(root: Path, files: int, rows: int) -> None:
    root.mkdir(parents=True)
    chance = np.random.default_rng(1)
    for number in range(files):
        table = columns(np.arange(number * rows, (number + 1) * rows), chance)
        pq.write_table(table, root / f"part-{number:03d}.parquet", row_group_size=50_000)


def make_source(root: Path, files: int, touched: int, rows: int) -> None:
    """Keys spread evenly over the touched files, which lie spread over the lake."""
    chance = np.random.default_rng(2)
    each = SOURCE_ROWS // touched
    starts = np.arange(touched) * (files // touched) * rows
    ids = np.concatenate([start + np.sort(chance.choice(rows, each, replace=False)) for start in starts])
    root.mkdir(parents=True)
    pq.write_table(columns(ids, chance), root / "source.parquet")


def overwrite(spark: Any, lake: Path, source: Path) -> None:
    """What one writes without a MERGE: what the source does not have, and the source, into a new folder; then swap."""
    target, changes = spark.read.parquet(str(lake)), spark.read.parquet(str(source))
    kept = target.join(changes.select("id"), "id", "left_anti").select(target.columns)
    fresh = lake.with_name(lake.name + ".new")
    kept.unionByName(changes).write.mode("overwrite").parquet(str(fresh))
    shutil.rmtree(lake)
    fresh.rename(lake)


def merge(spark: Any, lake: Path, source: Path) -> None:
    SparkDatasetIO(spark).merge(spark.read.parquet(str(source)), str(lake), "upsert", ["id"])


def seconds(work: Callable[[Any, Path, Path], None], spark: Any, pristine: Path, source: Path) -> float:
    lake = pristine.with_name("work")
    shutil.copytree(pristine, lake)
    os.sync()
    started = time.perf_counter()
    work(spark, lake, source)
    taken = time.perf_counter() - started
    shutil.rmtree(lake)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-") as folder:
        return compare(Path(folder), given.files, given.rows, given.rounds)


def compare(root: Path, files: int, rows: int, rounds: int) -> int:
    spark = start_session("local[*]", CONF)
    make_lake(root / "lake", files, rows)
    good = True
    for touched in (files // 10, files):
        source = root / f"source-{touched}"
        make_source(source, files, touched, rows)
        merge_in_few(spark, root, source, files, rows)
        ours = min(seconds(merge, spark, root / "lake", source) for _ in range(rounds))
        theirs = min(seconds(overwrite, spark, root / "lake", source) for _ in range(rounds))
        wanted = WANTED[5] if touched < files else WANTED[50]
        print(f"keys in {touched:3d} of {files} files: merge {ours:6.2f} s, overwrite {theirs:6.2f} s, "
              f"ratio {theirs / ours:5.1f} (wanted {wanted})", flush=True)  # fmt: skip
        good &= theirs / ours >= wanted
    spark.stop()
    return 0 if good else 1


def merge_in_few(spark: Any, root: Path, source: Path, files: int, rows: int) -> None:
    """Warm both ways up, on a few files."""
    few = root / "few"
    few.mkdir()
    for path in sorted((root / "lake").iterdir())[:4]:
        shutil.copy(path, few)
    for work in (merge, overwrite):
        seconds(work, spark, few, source)
    shutil.rmtree(few)


if __name__ == "__main__":
    sys.exit(main())
