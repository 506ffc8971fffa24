"""Run by `test_unshared`: the lakes folder of the executors is another one. Prints the errors as JSON.

Python workers are started in a mount namespace of their own, where an empty disk lies over the folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit import FsspeckitError
from fsspeckit.datasets.spark import SparkDatasetIO, engine
from spark_frames import table_of
from spark_session import SMALL, local_session
from support import all_names, fingerprint, write_lake

TABLE = pa.table({"id": range(10), "x": ["old"] * 10})


def hide_from_workers(folder: Path, script: Path) -> None:
    inside = 'mount -t tmpfs none "$0" && exec "$@"'
    script.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{inside}' '{folder}' '{sys.executable}' \"$@\"\n")
    script.chmod(0o755)


def errors(spark: Any, lakes: Path, scratch: Path) -> dict[str, Any]:
    """By operation; a lake for each, and what was changed in it."""
    found = {}
    io, shared = SparkDatasetIO(spark), SparkDatasetIO(spark, scratch=str(scratch))
    frame = spark.range(5, 25).selectExpr("id", "'new' x")
    pq.write_table(table_of(frame), lakes / "source.parquet")
    calls = {
        "merge": lambda lake: io.merge(frame, lake, "upsert", ["id"]),
        "merge files": lambda lake: io.merge(str(lakes / "source.parquet"), lake, "upsert", ["id"]),
        "merge table": lambda lake: io.merge(TABLE, lake, "upsert", ["id"]),
        "plan": lambda lake: shared.plan(frame, lake, "upsert", ["id"]),
        "write": lambda lake: io.write_dataset(frame, lake),
    }
    for name, call in calls.items():
        for rows in ("looked up", "joined", "many files"):
            lake = write_lake(lakes / f"{name} {rows}", {"f.parquet": TABLE, "g.parquet": TABLE.slice(0, 0)})
            before = fingerprint(lake), all_names(lakes)
            spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1" if rows == "joined" else "10MB")
            with mock.patch.object(engine, "MANY_FILES", 2 if rows == "many files" else 256):
                found[f"{name} {rows}"] = [error_of(call, lake), (fingerprint(lake), all_names(lakes)) == before]
    return found


def error_of(call: Any, lake: str) -> str:
    try:
        call(lake)
    except FsspeckitError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def main(folder: str) -> None:
    root = Path(folder)
    lakes, scratch = root / "lakes", root / "scratch"
    lakes.mkdir()
    scratch.mkdir()
    hide_from_workers(lakes, root / "python")
    spark = local_session(**SMALL, **{"spark.pyspark.python": str(root / "python")})
    print(json.dumps(errors(spark, lakes, scratch)))
    spark.stop()


if __name__ == "__main__":
    os.environ.pop("PYSPARK_PYTHON", None)
    main(sys.argv[1])
