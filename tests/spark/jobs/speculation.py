"""Run by `test_cluster`: a merge with a slow task and a copy of it that is faster. Prints what it saw as JSON.

The cluster is a master and two workers within the driver's Java, under two host names: Spark starts no speculative
copy of a task on the host that is slow with it, and all workers of a `local-cluster` are on one host.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from fsspeckit.datasets.spark import SparkDatasetIO
from spark_faults import LATE, ROWS, Struck, linger, ones, wait_until
from spark_session import CONF, SMALL, local_session

CLUSTER = {
    **SMALL,
    "spark.cores.max": "2",
    "spark.speculation": "true",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.speculation.quantile": "0.5",
}


def start_cluster(folder: Path) -> Any:
    """A session on a master and two workers, whose executors work in `folder`."""
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list({**CONF, **CLUSTER}.items())))
    jvm: Any = SparkContext._jvm
    deploy, conf, none = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf(False), jvm.scala.Option.empty()
    masters = deploy.LocalSparkCluster.apply(0, 1, 1024, conf).start()
    start_worker = deploy.worker.Worker.startRpcEnvAndEndpoint
    for host in ("localhost", "127.0.0.1"):
        start_worker(host, 0, 0, 1, 1024, masters, str(folder / host), none, conf, none)
    return local_session(masters[0], **CLUSTER)


def outrun(io: SparkDatasetIO, folder: Path) -> dict[str, Any]:
    """What does the slow task do after the commit?"""
    struck = Struck(io, folder)
    found = struck.merge(linger, ["rewrite"], ones(io, 4 * ROWS))
    late = [struck.marks.wait(moment) for moment in LATE]
    slow = Path(f"/proc/{struck.marks.wait('slow')}")
    wait_until(lambda: not slow.exists())
    return {**found, "late": late, "later": struck.traces()}


def main(folder: str) -> None:
    spark = start_cluster(Path(folder) / "work")
    print(json.dumps(outrun(SparkDatasetIO(spark), Path(folder) / "outrun")))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
