"""Run by `test_shapes` under spark-submit, on executors that have nothing of ours but the zip. Prints what it saw."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fsspeckit import MergeResult
from fsspeckit.datasets.spark import SparkDatasetIO

WIDE_ROWS = 300_000
PAYLOAD = "repeat(sha2(cast({} as string), 256), 32)"  # two kilobytes


def where_executors_import_from(spark: Any) -> list[str]:
    def tell(batches: Any) -> Any:
        import fsspec

        import fsspeckit

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [str(fsspeckit.__file__), str(fsspec.__file__)]})

    return sorted({row["file"] for row in spark.range(0, 4, 1, 4).mapInArrow(tell, "file string").collect()})


def counts(result: MergeResult) -> list[int]:
    return [result.inserted, result.updated, result.target_count_after]


def write(lake: Path, number: int, table: pa.Table) -> None:
    lake.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, lake / f"f{number:02d}.parquet")


def same(spark: Any, lake: Path, model: dict[Any, Any], keys: list[str]) -> bool:
    found = [(tuple(row[k] for k in keys), row["x"]) for row in spark.read.parquet(str(lake)).collect()]
    return len(found) == len(model) and dict(found) == model


def composite(io: SparkDatasetIO, lake: Path) -> dict[str, Any]:
    """A key of three columns; each alone is in many rows, and so is each pair."""
    model: dict[Any, Any] = {}
    for number in range(8):
        keys = [(f"r{n % 3}", n // 3, n % 5 == 0) for n in range(number * 300, number * 300 + 300)]
        region, count, flag = (list(column) for column in zip(*keys, strict=True))
        write(lake, number, pa.table({"region": region, "n": count, "flag": flag, "x": ["old"] * 300}))
        model |= dict.fromkeys(keys, "old")
    flag_column = "if(id % 2 = 0, id % 5 = 0, id % 5 <> 0) flag"
    frame = io.spark.range(1, 4000, 7, 4).selectExpr(
        "concat('r', id % 3) region", "id div 3 n", flag_column, "concat('new', id) x"
    )
    result = io.merge(frame, str(lake), "upsert", ["region", "n", "flag"])
    for n in range(1, 4000, 7):
        model[(f"r{n % 3}", n // 3, n % 5 == 0 if n % 2 == 0 else n % 5 != 0)] = f"new{n}"
    return {"counts": counts(result), "same": same(io.spark, lake, model, ["region", "n", "flag"])}


def skewed(io: SparkDatasetIO, lake: Path) -> dict[str, Any]:
    """Nine of ten rows of the source lie in the range of one file of twenty, and keys are joined."""
    model: dict[Any, Any] = {}
    for number in range(20):
        ids = range(number * 5000, number * 5000 + 5000)
        write(lake, number, pa.table({"id": ids, "x": ["old"] * 5000}))
        model |= dict.fromkeys([(i,) for i in ids], "old")
    hot = io.spark.range(35_000, 39_500)
    frame = hot.union(io.spark.range(7, 125_000, 250)).selectExpr("id", "concat('new', id) x").dropDuplicates(["id"])
    io.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    result = io.merge(frame, str(lake), "upsert", ["id"])
    io.spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    model |= {(i,): f"new{i}" for i in [*range(35_000, 39_500), *range(7, 125_000, 250)]}
    return {"counts": counts(result), "same": same(io.spark, lake, model, ["id"])}


def wide(io: SparkDatasetIO, lake: Path) -> dict[str, Any]:
    """A source of 600 MB, to a driver of 512 MB: every second row is new, and every row is as it should be."""
    ids = list(range(0, WIDE_ROWS, 2))
    for number in range(6):
        part = ids[number::6]
        write(lake, number, pa.table({"id": part, "payload": ["old"] * len(part)}))
    frame = io.spark.range(0, WIDE_ROWS, 1, 8).selectExpr("id", f"{PAYLOAD.format('id')} payload")
    result = io.merge(frame, str(lake), "upsert", ["id"])
    read = io.spark.read.parquet(str(lake))
    right = F.sum(F.expr(f"if(payload = {PAYLOAD.format('id')}, 1, 0)")).alias("right")
    (row,) = read.agg(F.count("*").alias("rows"), F.countDistinct("id").alias("keys"), right).collect()
    (size,) = frame.agg(F.sum(F.length("payload"))).collect()[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"counts": counts(result), "rows": [row["rows"], row["keys"], row["right"]], "bytes": size, "peak": peak}


def main(folder: str, *shapes: str) -> None:
    spark = SparkSession.builder.appName("shapes").getOrCreate()
    io, root = SparkDatasetIO(spark), Path(folder)
    found: dict[str, Any] = {"modules": where_executors_import_from(spark)}
    found |= {name: globals()[name](io, root / name) for name in shapes}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
