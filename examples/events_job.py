"""Raw events land as JSON lines, are cleaned and deduplicated in Spark, and are upserted into a partitioned lake.

As a batch, or as a stream that takes each file exactly once:

    spark-submit examples/events_job.py --raw landing --lake lake/events
    spark-submit examples/events_job.py --raw landing --lake lake/events --stream --checkpoint checkpoints/events

or all of it, with events made up for the purpose, in a folder of its own:

    spark-submit examples/events_job.py --demo /tmp/events-demo

It runs under plain `python` too. Executors need fsspeckit in their Python: set PYSPARK_PYTHON accordingly, or make a
zip by `fsspeckit ship fsspeckit.zip` and add `--py-files fsspeckit.zip`.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fsspeckit import MergeResult
from fsspeckit.datasets.spark import SparkDatasetIO

KEYS = ["event_id"]
RAW = "event_id string, user string, kind string, amount string, at string"


def clean(raw: Any) -> Any:
    """Typed columns, the day to partition by, and only events that can be used."""
    return (
        raw.select(
            F.trim("event_id").alias("event_id"),
            F.lower(F.trim("user")).alias("user"),
            F.lower("kind").alias("kind"),
            F.expr("try_cast(amount as decimal(12, 2))").alias("amount"),
            F.expr("try_cast(at as timestamp)").alias("at"),
        )
        .where("event_id <> '' and at is not null and kind in ('view', 'buy', 'return')")
        .withColumn("day", F.to_date("at"))
    )


def latest(events: Any) -> Any:
    """One row per event: the last one said of it. A merge refuses two rows for one key rather than pick one."""
    others = [F.col(name) for name in events.columns if name not in ("event_id", "at")]
    last = F.max(F.struct("at", *others)).alias("last")
    return events.groupBy("event_id").agg(last).select("event_id", "last.*").select(events.columns)


def run_batch(spark: Any, raw: str, lake: str) -> MergeResult:
    """Everything that lies in the landing folder, once."""
    events = latest(clean(spark.read.schema(RAW).json(raw)))
    return SparkDatasetIO(spark).merge(events, lake, "upsert", KEYS, partition_columns=["day"])


def run_stream(spark: Any, raw: str, lake: str, checkpoint: str) -> None:
    """What has landed since the last time, file by file, then stop; `trigger(processingTime=...)` would go on."""
    merge = SparkDatasetIO(spark).foreach_batch(lake, KEYS, app_id="events", partition_columns=["day"])
    query = (
        clean(spark.readStream.schema(RAW).option("maxFilesPerTrigger", 1).json(raw))
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, number: merge(latest(frame), number))
        .start()
    )
    query.awaitTermination()


def land(folder: Path, name: str, start: int, count: int, seed: int) -> None:
    """Made-up events: some come twice, some are corrected, some are broken."""
    chance, folder = random.Random(seed), folder
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
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
    (folder / f"{name}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def demo(spark: Any, root: Path) -> dict[str, Any]:
    """A batch, a stream over new files that correct some events, and the same stream again, which finds nothing."""
    lake, checkpoint = str(root / "lake" / "events"), str(root / "checkpoint")
    land(root / "landing", "monday", 0, 500, seed=8)
    first = run_batch(spark, str(root / "landing"), lake)
    land(root / "stream", "tuesday", 400, 200, seed=9)
    land(root / "stream", "wednesday", 550, 100, seed=10)
    run_stream(spark, str(root / "stream"), lake, checkpoint)
    run_stream(spark, str(root / "stream"), lake, checkpoint)
    events = SparkDatasetIO(spark).read(lake)
    (row,) = events.agg(F.count("*").alias("rows"), F.countDistinct("event_id").alias("keys")).collect()
    return {"batch": first.inserted, "rows": row["rows"], "keys": row["keys"], "corrected": corrected(events)}


def corrected(events: Any) -> int:
    return int(events.where("hour(at) > 8 and event_id < 'e000500'").count())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", help="folder in which JSON lines land")
    parser.add_argument("--lake", help="folder of the Parquet lake")
    parser.add_argument("--stream", action="store_true", help="take what is new, exactly once")
    parser.add_argument("--checkpoint", help="where the stream remembers how far it came")
    parser.add_argument("--demo", metavar="FOLDER", help="make up events and show it all")
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
