"""Run by `test_connect`: the core cases over Spark Connect. Prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from damage import spoil_pages
from fsspeckit import FsspeckitError, MergeResult
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, register
from spark_session import CONF, HAS_DATA_SOURCE, SMALL
from support import all_names, fingerprint, multiset, rows, write_lake


def lakes(root: Path, name: str) -> list[str]:
    """The same partitioned lake twice."""
    starts = {(i, day): 100 * i + 50 * day for i in range(3) for day in range(2)}
    files = {
        f"day={day}/f{i}.parquet": pa.table({"id": range(start, start + 50), "x": ["old"] * 50})
        for (i, day), start in starts.items()
    }
    return [write_lake(root / f"{name}-{side}", files, row_group_size=20) for side in ("spark", "arrow")]


def source(spark: Any) -> tuple[Any, pa.Table]:
    frame = spark.range(0, 400, 9).withColumn("x", F.concat(F.lit("new"), F.col("id")))
    frame = frame.withColumn("day", (F.col("id") % 100 / 50).cast("int"))
    return frame, frame.toArrow()


def same(root: Path, spark: Any, name: str, *strategies: Any) -> list[bool]:
    """By Spark Connect and by PyArrow: same counts, same rows?"""
    found = []
    for strategy in strategies:
        ours, theirs = lakes(root, f"{name}-{strategy}")
        frame, table = source(spark)
        results = [
            io.write_parquet_dataset(data, path, strategy, ["id"])
            for io, data, path in zip(both(spark), (frame, table), (ours, theirs), strict=True)
        ]
        counts = [(r.inserted, r.updated, r.deleted) for r in results if isinstance(r, MergeResult)]
        found.append(counts[0] == counts[1] and multiset(rows(ours)) == multiset(rows(theirs)))
    return found


def refused(root: Path, spark: Any) -> str:
    ours, _ = lakes(root, "refused")
    frame = spark.sql("select 1L id, 'x' x, 0 day union all select 1L, 'y', 0")
    try:
        SparkDatasetIO(spark).merge(frame, ours, "upsert", ["id"])
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def too_wide(root: Path, spark: Any) -> str:
    lake = write_lake(root / "narrow", {"f.parquet": pa.table({"id": [1], "x": pa.array([1], pa.int8())})})
    try:
        SparkDatasetIO(spark).merge(spark.sql("select 1L id, 1000 x"), lake, "upsert", ["id"])
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def unreadable(root: Path, spark: Any) -> dict[str, Any]:
    """Broken files: the error by Spark Connect and by PyArrow, and what the attempt left or changed."""
    breakages: dict[str, Callable[[Path], None]] = {
        "footer": lambda path: truncate(path, 4),
        "key page": lambda path: spoil_pages(path, ["id"]),
        "other page": lambda path: spoil_pages(path, ["x"]),
    }
    found: dict[str, Any] = {}
    for name, spoil in breakages.items():
        frame, table = source(spark)
        paths = lakes(root / name, "lake")
        for path in paths:
            spoil(Path(path, "day=1", "f1.parquet"))
        before = all_names(root / name), fingerprint(root / name)
        errors = [error_of(io, data, path) for io, data, path in zip(both(spark), (frame, table), paths, strict=True)]
        found[name] = [*errors, (all_names(root / name), fingerprint(root / name)) == before]
    return found


def truncate(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def both(spark: Any) -> tuple[DatasetIO[Any], DatasetIO[Any]]:
    return SparkDatasetIO(spark), PyArrowDatasetIO()


def error_of(io: DatasetIO[Any], data: Any, path: str) -> str:
    """The error of an upsert; the data set's own path, which the two have not in common, is left out."""
    try:
        io.merge(data, path, "upsert", ["id"])
    except FsspeckitError as error:
        return f"{type(error).__name__}: {error}".replace(path, "lake")
    return "accepted"


def streamed(root: Path, spark: Any) -> list[int]:
    """Three files through a stream, twice: the second run finds nothing new."""
    lake = root / "streamed"
    write = SparkDatasetIO(spark).foreach_batch(str(lake), ["id"], app_id="connect")
    return run_stream(root, spark, lake, lambda writer: writer.foreachBatch(write).start())


def sourced_stream(root: Path, spark: Any) -> list[int]:
    """The same by the data source."""
    lake = root / "sourced stream"
    options = {"key": "id", "strategy": "upsert", "stream": "connect"}
    return run_stream(root, spark, lake, lambda writer: writer.format("fsspeckit").options(**options).start(str(lake)))


def run_stream(root: Path, spark: Any, lake: Path, start: Callable[[Any], Any]) -> list[int]:
    raw, counts = root / "raw", []
    raw.mkdir(exist_ok=True)
    for i in range(3):
        (raw / f"{i}.json").write_text("".join(json.dumps({"id": i * 10 + n, "x": f"v{n}"}) + "\n" for n in range(10)))
    for _ in range(2):
        frame = spark.readStream.schema("id bigint, x string").option("maxFilesPerTrigger", 1).json(str(raw))
        writer = frame.writeStream.option("checkpointLocation", f"{lake} checkpoint").trigger(availableNow=True)
        patiently(lambda writer=writer: start(writer).awaitTermination())  # type: ignore[misc]
        counts.append(pq.read_table(lake).num_rows)
    return counts


def patiently(work: Callable[[], Any]) -> Any:
    """Spark gives a Python worker ten seconds to come up, which on a busy machine it may not do at once."""
    for _ in range(5):
        try:
            return work()
        except Exception as error:
            if "Python worker" not in str(error):
                raise
    return work()


def sourced(root: Path, spark: Any) -> Any:
    """The data source: a merge, a refusal, and what is read back."""
    (lake, _), frame = lakes(root, "sourced"), source(spark)[0]
    register(spark)
    write = frame.write.format("fsspeckit").mode("append").option("strategy", "upsert")
    patiently(lambda: write.option("key", "id").save(lake))
    found = spark.read.format("fsspeckit").load(lake)
    rows = [found.count(), found.where("x like 'new%'").count()]
    try:
        write.option("key", "day").save(lake)
    except Exception as error:
        return [*rows, str(error).splitlines()[0]]
    return "accepted"


def cataloged(root: Path, spark: Any) -> Any:
    """A table by name, what it shows then, and the tags of the jobs."""
    (lake, _), frame = lakes(root, "cataloged"), source(spark)[0]
    spark.sql(
        f"CREATE TABLE connected (id bigint, x string, day int) USING parquet PARTITIONED BY (day) LOCATION '{lake}'"
    )
    spark.sql("ALTER TABLE connected RECOVER PARTITIONS")
    before, tags = spark.table("connected").count(), []
    add = spark.addTag
    with mock.patch.object(type(spark), "addTag", lambda session, tag: [tags.append(tag), add(tag)]):
        SparkDatasetIO(spark).merge(frame, table="connected", strategy="upsert", key_columns=["id"])
    matching = [tag for tag in tags if tag == "fsspeckit merge cataloged-spark: match 6 of 6 files"]
    return [before, spark.table("connected").count(), matching, sorted(spark.getTags())]


def main(folder: str) -> None:
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**CONF, **SMALL}.items():
        builder = builder.config(name, value)
    spark, root = builder.getOrCreate(), Path(folder)
    found: dict[str, Any] = {
        "session": type(spark).__module__,
        "small": same(root, spark, "small", "upsert", "full_merge"),
    }
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    found["large"] = same(root, spark, "large", "upsert", "deduplicate")
    found["unreadable"] = unreadable(root / "unreadable", spark)
    found |= {"refused": refused(root, spark), "too_wide": too_wide(root, spark), "streamed": streamed(root, spark)}
    steps = (sourced, sourced_stream, cataloged) if HAS_DATA_SOURCE else (cataloged,)
    found |= {step.__name__: step(root, spark) for step in steps}
    frame = SparkDatasetIO(spark).read(lakes(root, "read")[0])
    found["read"] = [frame.count(), sorted(frame.columns)]
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
