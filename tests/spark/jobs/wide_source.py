"""Run by `test_shapes`: a source larger than the driver's memory, through `format("fsspeckit")`. Prints what it saw."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from fsspeckit.datasets.spark import register
from spark_session import local_session

PAYLOAD = "repeat(sha2(cast(id as string), 256), 128)"  # eight kilobytes
ROW_BYTES, ROWS_IN_GROUP = 8192, 4096


def memory_of_python(peaks: dict[int, int]) -> None:
    """Note the peak memory of Python processes of this process session (`setsid`): one of them merges."""
    while True:
        for path in Path("/proc").glob("[0-9]*/status"):
            pid = int(path.parent.name)
            try:
                if os.getsid(pid) == os.getsid(0) and b"python" in (path.parent / "cmdline").read_bytes()[:200]:
                    lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
                    peaks[pid] = int(lines["VmHWM"].split()[0]) << 10
            except (OSError, KeyError, ValueError):
                continue
        time.sleep(0.2)


def main(folder: str, gigabytes: str) -> None:
    rows, lake = int(float(gigabytes) * (1 << 30)) // ROW_BYTES, Path(folder) / "lake"
    spark = local_session("local[2]", **{"spark.driver.memory": "1g"})
    register(spark)
    lake.mkdir()
    for number in range(4):
        ids = range(number * rows // 8, (number + 1) * rows // 8)
        table = pa.table({"id": ids, "payload": ["old"] * len(ids)})
        pq.write_table(table, lake / f"{number}.parquet", row_group_size=ROWS_IN_GROUP)
    peaks: dict[int, int] = {}
    threading.Thread(target=memory_of_python, args=(peaks,), daemon=True).start()
    frame = spark.range(0, rows, 1, 16).selectExpr("id", f"{PAYLOAD} payload")
    frame.write.format("fsspeckit").options(key="id", strategy="upsert").mode("append").save(str(lake))
    right = F.sum(F.expr(f"if(payload = {PAYLOAD}, 1, 0)"))
    found: Any = spark.read.parquet(str(lake)).agg(F.count("*"), F.countDistinct("id"), right).first()
    beside = sorted(path.name for path in Path(folder).iterdir())
    print(json.dumps({"expected": rows, "rows": list(found), "peak": max(peaks.values()), "beside": beside}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
