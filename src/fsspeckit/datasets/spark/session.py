"""The Spark session, and functions run on its executors. DataFrame API only: classic Spark and Spark Connect alike.

A step is a function over a list of items (files, parts), run by a few tasks that are balanced by the items' weight.
Each task is one row of a `range` and gives back one row: its pickled results, or the error of ours that it met. An
error that is data is not retried by Spark, and the caller sees the same class and message as with any other engine.
"""

from __future__ import annotations

import base64
import contextlib
import heapq
import logging
import os
import pickle
import re
import socket
import sys
import time
import zipimport
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from fsspeckit.core.errors import ArgumentError, DatasetMergeError, FsspeckitError
from fsspeckit.core.local_engine import LocalEngine
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.rows.exchange import Step
from fsspeckit.core.storage import Location
from fsspeckit.datasets.spark.shared import Shared, Unseen, carried

log = logging.getLogger("fsspeckit.spark")

Item = TypeVar("Item")
Result = TypeVar("Result")
Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# No line of DDL, which Java would be asked to read.
OUTCOME = T.StructType().add("task", T.LongType()).add("outcome", T.BinaryType())
# Work that makes one more task worth its start.
TASK_BYTES = 32 << 20
TASKS_PER_CORE = 4
DRIVER_BYTES = "spark.fsspeckit.driverBytes"
# To open a file takes as long as to read so many bytes.
FILE_BYTES = 256 << 10
_CARRIED = re.compile(r"fsspeckit-error:([A-Za-z0-9+/=]+):")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


def start_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> Any:
    """The active session, or a new one: on `master`, else where Spark's own configuration says, else local.

    Python workers of a new local session run in this interpreter's environment.
    """
    if master is None and not conf:
        found = SparkSession.getActiveSession()
        if found is None and SparkContext._active_spark_context is not None:
            found = SparkSession.builder.getOrCreate()  # of another thread, with the settings that it has
        if found is not None:
            return found
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("fsspeckit").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@dataclass(frozen=True, slots=True)
class Report:
    """What one task says of itself: which worker daemon (one per executor) ran it, on how many items, how long."""

    executor: str
    items: int
    seconds: float


class Cluster:
    """The executors of a session. Operations and threads share it; it changes nothing in the session."""

    def __init__(self, spark: Any, scratch: str | None = None) -> None:
        self.spark, self.scratch = spark, scratch
        self.here = LocalEngine()

    def check_running(self) -> None:
        """Of a session that was stopped Spark says that None has no attribute."""
        context = getattr(self.spark, "sparkContext", None)
        if context is not None and context._jsc is None:
            raise ArgumentError("The Spark session was stopped. Start another and make a SparkDatasetIO with it.")

    @cached_property
    def parallelism(self) -> int:
        """How many tasks Spark would run by default: the number of cores. Asking runs no job."""
        context = getattr(self.spark, "sparkContext", None)
        if context is not None:
            return int(context.defaultParallelism)
        plan = self.spark.sql("EXPLAIN SELECT * FROM range(0, 16384)").collect()[0][0]  # Spark Connect's only answer
        splits = re.search(r"splits=(?:Some\()?(\d+)", plan)
        return int(splits[1] if splits else self.spark.conf.get("spark.sql.shuffle.partitions"))

    @property
    def grows(self) -> bool:
        """May there be more executors when they are needed? Then today's number of cores says little."""
        return str(self.spark.conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"

    @property
    def broadcast_bytes(self) -> int:
        """Spark's own bound for what is sent to every task."""
        return _bytes(self.spark.conf.get("spark.sql.autoBroadcastJoinThreshold"))

    def does_itself(self, step: Step) -> bool:
        """Is it less work than to start a job? Then the driver does it."""
        return self.is_little(step.bytes, step.count if step.name in ("match", "rewrite") else 0)

    def is_little(self, size: int, files: int) -> bool:
        return size + FILE_BYTES * files <= self.driver_bytes

    @property
    def driver_bytes(self) -> int:
        """What the driver reads and holds itself."""
        return _bytes(self.spark.conf.get(DRIVER_BYTES, "8m"))

    def map(
        self,
        step: str,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        weight: Callable[[Item], int],
        shared: Shared,
    ) -> list[Result]:
        """`function` over items, on executors; results in the items' order."""
        weights = [weight(item) for item in items]
        bins = spread(weights, self.task_count(weights))
        tasks = [[items[i] for i in members] for members in bins]
        outcomes = self.run(step, partial(_each, function), tasks, shared)
        by_item = {i: result for members, results in zip(bins, outcomes) for i, result in zip(members, results)}
        return [by_item[i] for i in range(len(items))]

    def rows(
        self,
        read: Callable[[int, list[int]], Iterator[pa.RecordBatch]],
        weights: Sequence[int],
        types: Any,
        shared: Shared,
    ) -> Any:
        """A DataFrame of the rows that tasks read: each is given its number and the numbers of some items."""
        bins = spread(weights, self.task_count(weights))

        def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with carrying_errors(shared):
                for batch in batches:
                    for task in batch.column(0).to_pylist():
                        yield from read(task, bins[task])

        return mapped(self.spark.range(0, len(bins), 1, len(bins)), remote, types)

    def run(self, step: str, function: Callable[[Item], Result], tasks: Sequence[Item], shared: Shared) -> list[Result]:
        """`function` over every item, each a task of its own; results in the tasks' order."""
        if not tasks:
            return []
        remote = _remote(function, [pickle.dumps(task) for task in tasks], shared)
        return collect(step, mapped(self.spark.range(0, len(tasks), 1, len(tasks)), remote, OUTCOME))

    def task_count(self, weights: Sequence[int]) -> int:
        """As many tasks as there are cores; more where there is much to do; never more than items."""
        if len(weights) < 2:
            return len(weights)
        wanted = max(self.parallelism, -(-sum(weights) // TASK_BYTES))
        return min(len(weights), wanted, TASKS_PER_CORE * self.parallelism)


def spread(weights: Sequence[int], count: int) -> list[list[int]]:
    """Items over `count` bins of about equal weight, the heaviest first; every bin gets at least one.

    >>> spread([5, 1, 1, 3], 2)
    [[0], [3, 1, 2]]
    """
    bins: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, 0, number) for number in range(count)]
    for item in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        load, members, number = heapq.heappop(loads)
        bins[number].append(item)
        heapq.heappush(loads, (load + weights[item], members + 1, number))
    return bins


def mapped(frame: Any, function: Batches, types: Any) -> Any:
    """`mapInArrow`, by workers that start their next task sooner.

    A worker has Python look again for what there is to import before each task, and Python then reads the directory of
    every archive it imports from: a quarter of a second for Spark's own (seen with Spark 4.1). It does so for archives
    that it has an importer of; those of Spark's can be forgotten, and are made anew out of what is known of them.
    """

    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        finally:
            importers = sys.path_importer_cache
            for path, importer in list(importers.items()):
                archive = importer.archive if isinstance(importer, zipimport.zipimporter) else ""
                if os.path.basename(archive).startswith(("pyspark", "py4j")):
                    del importers[path]

    return frame.mapInArrow(remote, types)


def collect(step: str, frame: Any) -> list[Any]:
    """Run a frame of outcomes; results in the order of tasks. The first error of ours that a task met is raised."""
    with carried_errors():
        rows = sorted(frame.collect(), key=lambda row: row["task"])
    outcomes = [pickle.loads(row["outcome"]) for row in rows]
    for result, _ in outcomes:
        if isinstance(result, Unseen):
            raise result.on_driver()
        if isinstance(result, FsspeckitError):
            raise result
    _tell(step, [report for _, report in outcomes])
    return [result for result, _ in outcomes]


def _tell(step: str, reports: list[Report]) -> None:
    items, executors = sum(r.items for r in reports), len({r.executor for r in reports})
    log.info(
        "%s: %d item(s) by %d task(s) on %d executor(s)", step, items, len(reports), executors, extra={"tasks": reports}
    )


def _each(function: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    return [function(item) for item in items]


def _remote(function: Callable[[Any], Any], packed: Sequence[bytes], shared: Shared) -> Any:
    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield outcome(task, partial(_call, function, packed[task]), shared)

    return remote


def _call(function: Callable[[Any], Any], packed: bytes) -> Any:
    return function(pickle.loads(packed))


def outcome(task: int, work: Callable[[], Any], shared: Shared) -> pa.RecordBatch:
    """On an executor: do the work and wrap what came of it, for `collect`."""
    started = time.monotonic()
    result: Any
    try:
        result = work()
    except (FsspeckitError, OSError) as error:
        result = shared.explain(error)
    executor = f"{socket.gethostname()}:{os.getppid()}"
    report = Report(executor, _items(result), time.monotonic() - started)
    return pa.RecordBatch.from_pydict({"task": [task], "outcome": [pickle.dumps((result, report))]})


def _items(result: Any) -> int:
    """How many items a result is of: work on several gives a list, or tells each by its number."""
    results = list(result.values()) if isinstance(result, dict) else result
    return sum(map(_items, results)) if isinstance(results, list) else 1


@contextlib.contextmanager
def carrying_errors(shared: Shared) -> Iterator[None]:
    """On an executor, where rows are expected and no outcome can be given: the message carries our error."""
    try:
        yield
    except (FsspeckitError, OSError) as error:
        raise carried(shared.explain(error)) from error


@contextlib.contextmanager
def carried_errors() -> Iterator[None]:
    """On the driver: an error of ours that an executor met is raised as itself."""
    try:
        yield
    except PySparkException as error:
        message = str(error)
        found = _CARRIED.search(message)
        if found:
            ours = pickle.loads(base64.b64decode(found[1]))
            raise ours.on_driver() if isinstance(ours, Unseen) else ours from error
        if re.search(r"No module named '(fsspeckit|pyarrow|numpy|fsspec|obstore|botocore)", message):
            raise DatasetMergeError(
                "The Python of Spark's executors cannot import fsspeckit and what it needs: "
                f"{message.strip().splitlines()[-1]}. Install fsspeckit there, ship it (`fsspeckit ship`), or set "
                "PYSPARK_PYTHON to an environment that has it before the session starts; nothing was changed.",
                operation="spark",
            ) from error
        raise


def spark_path(location: Location, path: str) -> str:
    """A path as Spark takes it."""
    return re.sub("^s3://", "s3a://", location.storage.url(location.at(path)))


def reaches(spark: Any, location: Location) -> bool:
    """Can Spark's own readers look at the place?

    At a store they can where s3a's jars are, if its settings lead to the same endpoint; of keys that we were given they
    know nothing.
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
    """Of an endpoint; none means AWS's.

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
