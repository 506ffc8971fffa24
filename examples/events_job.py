"""Raw events land as JSON lines, are cleaned in Spark, and are merged into a partitioned lake.

An event may come several times, be corrected, be withdrawn, or arrive late. The newest row of an event by `at` counts,
also if one micro-batch has several of them. As a batch, or as a stream that takes each file exactly once:

    spark-submit examples/events_job.py --raw landing --lake lake/events
    spark-submit examples/events_job.py --raw landing --lake lake/events --stream --checkpoint checkpoints/events

or all of it, with sample events, in a folder of its own:

    spark-submit examples/events_job.py --demo /tmp/events-demo

It runs under plain `python` too. Executors need fsspeckit in their Python: set PYSPARK_PYTHON accordingly, or create a
zip with `fsspeckit ship fsspeckit.zip` and add `--py-files fsspeckit.zip`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fsspeckit import MergeResult
from fsspeckit.datasets.spark import SparkDatasetIO

KEYS = ["event_id"]
RAW = "event_id string, user string, kind string, amount string, at string, withdrawn boolean"
FEED: dict[str, Any] = {
    "partition_columns": ["day"],
    "delete_column": "withdrawn",
    "sequence_by": "at",
    "on_duplicates": "latest",
}


def clean(raw: Any) -> Any:
    """Typed columns, the day to partition by, and only events that can be used."""
    return (
        raw.select(
            F.trim("event_id").alias("event_id"),
            F.lower(F.trim("user")).alias("user"),
            F.lower("kind").alias("kind"),
            F.expr("try_cast(amount as decimal(12, 2))").alias("amount"),
            F.expr("try_cast(at as timestamp)").alias("at"),
            "withdrawn",
        )
        .where("event_id <> '' and at is not null and (withdrawn or kind in ('view', 'buy', 'return'))")
        .withColumn("day", F.to_date("at"))
    )


def run_batch(spark: Any, raw: str, lake: str) -> MergeResult:
    """Everything in the landing folder, once."""
    events = clean(spark.read.schema(RAW).json(raw))
    return SparkDatasetIO(spark).merge(events, lake, "upsert", KEYS, **FEED)


def run_stream(spark: Any, raw: str, lake: str, checkpoint: str) -> None:
    """What has landed since the last run, then stop. `trigger(processingTime=...)` would continue."""
    merge = SparkDatasetIO(spark).foreach_batch(lake, KEYS, app_id="events", **FEED)
    query = (
        clean(spark.readStream.schema(RAW).json(raw))
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(merge)
        .start()
    )
    query.awaitTermination()


def land(folder: Path, name: str, start: int, count: int, seed: int, withdrawn: Sequence[int] = ()) -> None:
    """Sample events: some come twice, some correct others, some are broken, some are withdrawn."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for number in range(start, start + count):
        event = {
            "event_id": f"e{number:06d}",
            "user": f" User{number % 7} ",
            "kind": chance.choice(["view", "BUY", "return"]),
            "amount": f"{chance.randrange(10_000) / 100:.2f}",
            "at": f"2026-03-{1 + number % 5:02d}T{seed % 24:02d}:{number % 60:02d}:00Z",
        }
        lines += [event] * (2 if number % 10 == 0 else 1)
        lines += [{**event, "at": "yesterday"}] if number % 25 == 0 else []
        if number in withdrawn:
            lines.append({"event_id": event["event_id"], "at": event["at"].replace(":00Z", ":30Z"), "withdrawn": True})
    (folder / f"{name}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def demo(spark: Any, root: Path) -> dict[str, Any]:
    """A batch; a stream that corrects and withdraws events; then a file that arrives late and changes nothing."""
    lake, checkpoint, landing = str(root / "lake" / "events"), str(root / "checkpoint"), root / "stream"
    land(root / "landing", "monday", 0, 500, seed=8)
    first = run_batch(spark, str(root / "landing"), lake)
    land(landing, "tuesday", 400, 200, seed=9)
    land(landing, "wednesday", 550, 100, seed=10, withdrawn=[560, 640])  # 550 to 599 are in both files
    run_stream(spark, str(landing), lake, checkpoint)
    land(landing, "late", 400, 50, seed=7)
    run_stream(spark, str(landing), lake, checkpoint)
    events = SparkDatasetIO(spark).read(lake)
    (row,) = events.agg(F.count("*").alias("rows"), F.countDistinct("event_id").alias("keys")).collect()
    return {"batch": first.inserted, "rows": row["rows"], "keys": row["keys"], "corrected": corrected(events)}


def corrected(events: Any) -> int:
    """The events of Monday that Tuesday's file corrected."""
    return int(events.where("hour(at) > 8 and event_id < 'e000500'").count())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", help="folder in which JSON lines land")
    parser.add_argument("--lake", help="folder of the Parquet lake")
    parser.add_argument("--stream", action="store_true", help="merge new files, each exactly once")
    parser.add_argument("--checkpoint", help="folder of the stream's checkpoint")
    parser.add_argument("--demo", metavar="FOLDER", help="create sample events and run everything")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("events").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    if given.demo:
        print(json.dumps(demo(spark, Path(given.demo))))
    elif given.stream:
        run_stream(spark, given.raw, given.lake, given.checkpoint)
    else:
        print(run_batch(spark, given.raw, given.lake))
    spark.stop()


if __name__ == "__main__":
    main()
