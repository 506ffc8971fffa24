"""Run by `test_datasource`, and killed: a stream of JSON files through `writeStream.format("fsspeckit")`.

Keys are drawn anew each time a batch is computed, so a batch that was committed twice would be in the lake twice.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from fsspeckit.datasets.spark.datasource import FsspeckitSource, StreamWriter
from spark_session import SMALL, local_session


class DyingWriter(StreamWriter):
    """Dies with the whole job when a batch is committed, before Spark hears of it, if a file says so."""

    def commit(self, messages: Any, batchId: int) -> None:
        super().commit(messages, batchId)
        order = Path(self._target.options.path + ".die")
        if order.exists() and order.read_text().split()[0] == str(batchId):
            os.killpg(int(order.read_text().split()[1]), signal.SIGKILL)


class DyingSource(FsspeckitSource):
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        writer = super().streamWriter(schema, overwrite)
        return DyingWriter(writer._target)


def main(raw: str, lake: str, checkpoint: str, last: str = "") -> None:
    """With `last`, die when that batch is committed."""
    Path(lake + ".die").unlink(missing_ok=True)
    if last:
        Path(lake + ".die").write_text(f"{last} {os.getpgid(0)}")
    spark = local_session(**SMALL)
    spark.dataSource.register(DyingSource)
    frame = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).json(raw)
    writer = frame.withColumn("key", F.expr("uuid()")).writeStream.format("fsspeckit")
    for name, value in {"key": "key", "strategy": "insert", "stream": "events"}.items():
        writer = writer.option(name, value)
    print("started", flush=True)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(lake)
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
