"""Functions in Spark tasks, and how their results and errors reach the driver.

A task returns one row: its pickled result, or the error of fsspeckit that it raised. Spark does not retry an error that
is returned as a value, and the caller gets the same class and message as with any other engine.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from fsspeckit.core.errors import DatasetMergeError, FsspeckitError, StorageError
from fsspeckit.core.storage import Storage

log = logging.getLogger("fsspeckit.spark")

MapFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# Not a DDL string: Spark would call Java to parse it.
RESULT_TYPES = T.StructType().add("task", T.LongType()).add("result", T.BinaryType())
_ERROR_IN_MESSAGE = re.compile(r"fsspeckit-error:([A-Za-z0-9+/=]+):")


def spread(weights: Sequence[int], count: int) -> list[list[int]]:
    """Assign items to `count` bins of about equal weight, the heaviest first. Every bin gets at least one item.

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


def map_in_arrow(frame: Any, function: MapFunction, types: Any) -> Any:
    """`frame.mapInArrow`, with workers that start their next task faster.

    Before each task, a worker invalidates Python's import caches. Python then reads the directory of every zip archive
    that it has an importer for: 0.25 s for Spark's own archives (Spark 4.1). So the importers of these archives are
    removed when a task ends; Python creates them again on demand.
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


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Which worker daemon (one per executor) ran a task, on how many items, and for how long."""

    executor: str
    items: int
    seconds: float


def partition_result(work: Callable[[Iterable[pa.RecordBatch]], Any], paths: SharedPaths) -> MapFunction:
    """A function for `map_in_arrow` that calls `work` with the rows of a partition and returns its result."""

    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield task_result(context.partitionId(), partial(work, batches), paths)
        for _ in batches:  # an error ends the reading early, but Spark expects that all rows are consumed
            pass

    return remote


def task_result(task: int, work: Callable[[], Any], paths: SharedPaths) -> pa.RecordBatch:
    """On an executor: do the work and return its result or error as a row of `RESULT_TYPES`."""
    started = time.monotonic()
    result: Any
    try:
        result = work()
    except (FsspeckitError, OSError) as error:
        result = paths.error_for_driver(error)
    executor = f"{socket.gethostname()}:{os.getppid()}"
    report = TaskReport(executor, _item_count(result), time.monotonic() - started)
    return pa.RecordBatch.from_pydict({"task": [task], "result": [pickle.dumps((result, report))]})


def _item_count(result: Any) -> int:
    """Work on several items returns a list, or a dict by item number."""
    results = list(result.values()) if isinstance(result, dict) else result
    return sum(map(_item_count, results)) if isinstance(results, list) else 1


def collect_results(step: str, frame: Any, label: str) -> list[Any]:
    """Run a frame of task results and return them in the order of tasks, or raise the first error of a task.

    The log shows `label`, the description of the job, with the data set and what is done with how many files or rows.
    """
    with errors_from_executors():
        rows = sorted(frame.collect(), key=lambda row: row["task"])
    results, reports = [], []
    for row in rows:
        result, report = pickle.loads(row["result"])
        if isinstance(result, MissingPaths):
            raise result.error_on_driver()
        if isinstance(result, FsspeckitError):
            raise result
        results.append(result)
        reports.append(report)
    executors, seconds = len({r.executor for r in reports}), max((r.seconds for r in reports), default=0)
    log.info(
        "%s: %s; %d task(s) on %d executor(s), the longest took %.2f s",
        step,
        label,
        len(reports),
        executors,
        seconds,
        extra={"tasks": reports},
    )
    return results


# -- errors


@dataclass(frozen=True, slots=True)
class SharedPaths:
    """Paths that driver and executors must both see: the scratch folder, and the target with one of its files.

    They are checked only after a task failed, so the check costs nothing.
    """

    scratch: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    store: str = ""
    """The target, if it is in an object store."""

    def error_for_driver(self, error: FsspeckitError | OSError) -> FsspeckitError | MissingPaths:
        """On an executor, after an error: what to return to the driver. Errors of other libraries are raised again."""
        missing = _missing((*self.scratch, *self.target))
        if missing:
            return MissingPaths(tuple(missing), socket.gethostname(), error)
        if isinstance(error, FsspeckitError):
            return error
        if self.store:  # raised, so that Spark tries again: another executor may reach the store
            message = f"Spark's executors cannot work on {self.store}: {error}. Nothing was changed."
            raise _with_error_in_message(StorageError(message, error, operation="spark")) from error
        raise error


@dataclass(frozen=True, slots=True)
class MissingPaths:
    """The executor on `host` did not see `paths`, and raised `error`."""

    paths: tuple[str, ...]
    host: str
    error: FsspeckitError | OSError

    def error_on_driver(self) -> Exception:
        """The original error if the driver does not see the paths either."""
        missing_here = _missing(self.paths)
        only_there = [path for path in self.paths if path not in missing_here]
        if not only_there:
            return self.error
        return DatasetMergeError(
            f"Spark's executors do not see {only_there[0]}: it exists on the driver, but not on {self.host}. Driver "
            "and executors must share the file system of the data set, under the same path; a local disk of the driver "
            "works only with a local master. For `plan`, pass a shared folder as scratch=. Nothing was changed.",
            operation="spark",
        )


def local_paths(storage: Storage, path: str) -> tuple[str, ...]:
    """The path as the operating system knows it, if the storage is a disk."""
    local = storage.local_path(path)
    return () if local is None else (local,)


def _missing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not os.path.exists(path)]


def _with_error_in_message(error: FsspeckitError | MissingPaths) -> RuntimeError:
    """Spark passes only the message of an error to the driver, so the message contains the pickled error."""
    text = base64.b64encode(pickle.dumps(error)).decode()
    return RuntimeError(f"fsspeckit-error:{text}: {error}")


@contextlib.contextmanager
def errors_in_messages(paths: SharedPaths) -> Iterator[None]:
    """On an executor, in a task that returns rows and so cannot return an error as a value."""
    try:
        yield
    except (FsspeckitError, OSError) as error:
        raise _with_error_in_message(paths.error_for_driver(error)) from error


@contextlib.contextmanager
def errors_from_executors() -> Iterator[None]:
    """On the driver: raise the error of fsspeckit that a task raised."""
    try:
        yield
    except PySparkException as error:
        message = str(error)
        match = _ERROR_IN_MESSAGE.search(message)
        if match:
            original = pickle.loads(base64.b64decode(match[1]))
            raise original.error_on_driver() if isinstance(original, MissingPaths) else original from error
        if re.search(r"No module named '(fsspeckit|pyarrow|numpy|fsspec|obstore|botocore)", message):
            raise DatasetMergeError(
                "The Python of Spark's executors cannot import fsspeckit and the libraries it needs: "
                f"{message.strip().splitlines()[-1]}. Install fsspeckit there, ship it (`fsspeckit ship`), or set "
                "PYSPARK_PYTHON to an environment that has it before the session starts. Nothing was changed.",
                operation="spark",
            ) from error
        raise
