"""The Spark session: how to get one, and what a merge asks it. Nothing here changes a setting of the session.

Only the DataFrame API, SQL and `conf` are used where Spark Connect has to work too.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.local_engine import LocalEngine
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.rows.exchange import Step
from fsspeckit.core.storage import Location

# One more task is worth its start for this much work.
TASK_BYTES = 32 << 20
TASKS_PER_CORE = 4
DRIVER_BYTES = "spark.fsspeckit.driverBytes"
# Opening a file takes as long as reading this many bytes.
FILE_BYTES = 256 << 10
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def start_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> Any:
    """The active session, or a new one: on `master`, or where Spark's own configuration says, or local.

    The Python workers of a new local session use this interpreter.
    """
    if master is None and not conf:
        active = SparkSession.getActiveSession()
        if active is None and SparkContext._active_spark_context is not None:
            active = SparkSession.builder.getOrCreate()  # another thread started it; its settings stay
        if active is not None:
            return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("fsspeckit").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Cluster:
    """A session, its executors, and the bounds that its settings give. Threads and operations share it.

    It holds no state of an operation; that is in `Operation`. `parallelism` is cached because asking Spark Connect for
    it takes a request.
    """

    def __init__(self, spark: Any, scratch: str | None = None) -> None:
        self.spark, self.scratch = spark, scratch
        self.local_engine = LocalEngine()
        """Runs small steps on the driver. It has no pool, and so no state."""

    def check_running(self) -> None:
        """Spark's own error for a stopped session is that None has no attribute."""
        context = getattr(self.spark, "sparkContext", None)
        if context is not None and context._jsc is None:
            raise ArgumentError("The Spark session was stopped. Start another, and create a SparkDatasetIO with it.")

    @cached_property
    def parallelism(self) -> int:
        """How many tasks Spark runs by default: the number of cores. Asking runs no job."""
        context = getattr(self.spark, "sparkContext", None)
        if context is not None:
            return int(context.defaultParallelism)
        plan = self.spark.sql("EXPLAIN SELECT * FROM range(0, 16384)").collect()[0][0]  # Spark Connect has no other way
        splits = re.search(r"splits=(?:Some\()?(\d+)", plan)
        return int(splits[1] if splits else self.spark.conf.get("spark.sql.shuffle.partitions"))

    @property
    def has_dynamic_allocation(self) -> bool:
        """If so, Spark may add executors, and the number of cores now says little."""
        return str(self.spark.conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"

    @property
    def broadcast_bytes(self) -> int:
        """Spark's own bound for what every task gets."""
        return _bytes(self.spark.conf.get("spark.sql.autoBroadcastJoinThreshold"))

    @property
    def driver_bytes(self) -> int:
        """How much the driver reads and holds itself."""
        return _bytes(self.spark.conf.get(DRIVER_BYTES, "8m"))

    def runs_on_driver(self, step: Step) -> bool:
        """Is the step less work than starting a job?"""
        return self.is_small(step.bytes, step.count if step.name in ("match", "rewrite") else 0)

    def is_small(self, size: int, files: int) -> bool:
        return size + FILE_BYTES * files <= self.driver_bytes

    def task_count(self, weights: Sequence[int]) -> int:
        """One task per core, more if there is much to do, and never more than items."""
        if len(weights) < 2:
            return len(weights)
        wanted = max(self.parallelism, -(-sum(weights) // TASK_BYTES))
        return min(len(weights), wanted, TASKS_PER_CORE * self.parallelism)


def spark_path(location: Location, path: str) -> str:
    """A path as Spark takes it."""
    return re.sub("^s3://", "s3a://", location.storage.url(location.at(path)))


def spark_can_read(spark: Any, location: Location) -> bool:
    """Can Spark's own readers read the location?

    In an object store they can if s3a's jars are installed and its settings have the same endpoint. They do not know
    access keys and profiles that were passed to us.
    """
    store = location.in_store()
    if store is None:
        return True
    context, options = getattr(spark, "sparkContext", None), getattr(store.storage.objects, "options", None)
    if context is None or options is None or options.access_key_id is not None or options.profile is not None:
        return False
    settings = context._jsc.hadoopConfiguration()
    if settings.getClassByNameOrNull("org.apache.hadoop.fs.s3a.S3AFileSystem") is None:
        return False
    return _host(settings.get("fs.s3a.endpoint")) == _host(options.endpoint)


def _host(endpoint: str | None) -> str:
    """The host of an endpoint; without one it is AWS.

    >>> _host("http://minio:9000/"), _host(None) == _host("s3.amazonaws.com")
    ('minio:9000', True)
    """
    return re.sub("^https?://", "", endpoint or "").rstrip("/") or "s3.amazonaws.com"


def _bytes(text: str) -> int:
    """A size as Spark writes it; -1 means never.

    >>> _bytes("10485760b"), _bytes("10MB"), _bytes("-1")
    (10485760, 10485760, 0)
    """
    number, unit = re.fullmatch(r"\s*(-?\d+)\s*([a-z]*)\s*", text.lower()).groups()  # type: ignore[union-attr]
    return max(0, int(number)) * _UNITS.get(unit, 1)
