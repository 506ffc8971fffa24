"""Run by `test_stream`, and killed: a stream of JSON files into a lake, under random keys. Tells of every batch.

A batch that was committed twice would be in the lake twice, since its keys are drawn anew each time it is computed.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pyspark.sql import functions as F

from fsspeckit.datasets.spark import SparkDatasetIO
from spark_session import SMALL, local_session


def main(raw: str, lake: str, checkpoint: str, last: str = "") -> None:
    """With `last`, die when that many batches are committed, before Spark hears of the last of them."""
    spark = local_session(**SMALL)
    frame = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).json(raw)
    frame = frame.withColumn("key", F.expr("uuid()"))
    write = SparkDatasetIO(spark).foreach_batch(lake, ["key"], "insert", app_id="events")
    batches_seen: list[int] = []

    def write_and_tell(batch: Any, number: int) -> None:
        write(batch, number)
        batches_seen.append(number)
        print(number, flush=True)
        if str(len(batches_seen)) == last:
            os.killpg(0, signal.SIGKILL)

    print("started", flush=True)
    query = (
        frame.writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(write_and_tell)
        .start()
    )
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
