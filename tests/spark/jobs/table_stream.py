"""Run by `change_stream`, and killed: a stream of changes into a table of Hive's.

The catalog is Derby's, in a folder, so that a later process finds the table and its partitions. Every batch has two
changes of each of its keys and, every few batches, a new partition. `drawn` is computed anew in each attempt: rows of
a batch that was committed twice would change it. Prints the number of every batch, then what SQL sees as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from fsspeckit.datasets.spark import SparkDatasetIO
from spark_session import SMALL, local_session

TABLE = "lake.events"
COLUMNS = "id bigint, seq bigint, x string, day string"


def session(root: Path) -> Any:
    """With Hive's catalog in Derby."""
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={root}/metastore;create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={root} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
    }
    return local_session(**SMALL | conf)


def main(folder: str, compact_every: str, last: str = "") -> None:
    """With `last`, die when that many batches are committed, before Spark hears of the last of them."""
    root, seen = Path(folder), list[int]()
    spark = session(root)
    spark.sql("CREATE DATABASE IF NOT EXISTS lake")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} ({COLUMNS}, drawn string) USING parquet PARTITIONED BY (day)")
    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(root / "raw"))
    write = SparkDatasetIO(spark).foreach_batch(
        table=TABLE,
        key_columns=["id", "day"],
        app_id="events",
        sequence_by="seq",
        on_duplicates="latest",
        compact_every=int(compact_every),
        commit_log=str(root / "commits.jsonl"),
    )

    def write_and_report(batch: Any, number: int) -> None:
        write(batch, number)
        seen.append(number)
        print(number, flush=True)
        if str(len(seen)) == last:
            os.killpg(0, signal.SIGKILL)

    print("started", flush=True)
    query = frame.withColumn("drawn", F.expr("uuid()")).writeStream
    query = query.option("checkpointLocation", str(root / "checkpoint")).trigger(availableNow=True)
    query.foreachBatch(write_and_report).start().awaitTermination()
    rows = spark.sql(f"SELECT id, x, day, drawn FROM {TABLE}").collect()
    partitions = [row[0] for row in spark.sql(f"SHOW PARTITIONS {TABLE}").collect()]
    print(json.dumps({"rows": [list(row) for row in rows], "partitions": partitions}))


if __name__ == "__main__":
    main(*sys.argv[1:])
