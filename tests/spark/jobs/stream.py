"""Run by `test_stream`, and killed by it: a stream of JSON files into a lake, under random keys.

A batch that was committed twice would be in the lake twice, since its keys are drawn anew each time it is computed.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F

from fsspeckit.datasets.spark import SparkDatasetIO
from spark_session import local_session


def main(raw: str, lake: str, checkpoint: str) -> None:
    spark = local_session(**{"spark.driver.memory": "512m"})
    frame = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).json(raw)
    frame = frame.withColumn("key", F.expr("uuid()"))
    write = SparkDatasetIO(spark).foreach_batch(lake, ["key"], "insert", app_id="events")
    print("started", flush=True)
    query = (
        frame.writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
