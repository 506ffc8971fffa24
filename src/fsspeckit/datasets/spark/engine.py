"""The Spark engine: the source is spooled by executors, who match, rewrite and insert; the driver sees counts.

Nothing that an executor holds has to last: every step leaves its outcome in the shared folder of the spool, under a
name that is the attempt's own. So executors may be lost between steps, and failing or speculative attempts leave only
litter. Work that is smaller than the start of a job is done by the driver.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import pyarrow as pa

from fsspeckit.core.dataset.footer_cache import cached_footers
from fsspeckit.core.dataset.footers import read_planned
from fsspeckit.core.engine import Source
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.match.key_index import KeySet
from fsspeckit.core.model import FileInfo, Footer, Replace
from fsspeckit.core.rows.exchange import Read, Send, Step, Task, pull
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Access, Location
from fsspeckit.datasets.spark import catalog
from fsspeckit.datasets.spark.keys import JoinedKeys, LookedUpKeys
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.session import Cluster, reaches, spark_path, spread
from fsspeckit.datasets.spark.shuffle import shuffle
from fsspeckit.datasets.spark.source import open_source

log = logging.getLogger("fsspeckit.spark")

Item = TypeVar("Item")
Result = TypeVar("Result")

# From here on executors read the footers; below, threads of the driver are faster: to be sent 2,000 of them takes as
# long as to read them.
MANY_FILES = 4096
# The same where the driver is far from the files: executors wait for more of them at once.
MANY_FAR_FILES = 256


class SparkEngine:
    """See `core.engine.Engine`. One engine serves one operation."""

    name = "spark"
    # A DataFrame planned before the merge remembers file lengths: under a new name it fails instead of losing rows.
    replace: Replace = "new_file"
    pool = None

    def __init__(self, operation: Operation, access: Access) -> None:
        self.operation, self._cluster, self._access = operation, operation.cluster, access

    @property
    def partition_timezone(self) -> str:
        """Spark reads and writes the names of folders in the session's zone."""
        return str(self._cluster.spark.conf.get("spark.sql.session.timeZone"))

    @property
    def source_timezone(self) -> str:
        """As Spark casts TIMESTAMP_NTZ to TIMESTAMP."""
        return self.partition_timezone

    @property
    def ignores_case(self) -> bool:
        return str(self._cluster.spark.conf.get("spark.sql.caseSensitive")).lower() == "false"

    @property
    def parallelism(self) -> int:
        return self._cluster.parallelism

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        yield self

    def open(self, source: object) -> Source:
        self.operation.describe("look at the source")
        return open_source(source, self.operation, self._access, self.footers)

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> Footers:
        _check_shared(location)
        infos = list(files)
        self.operation.saw_files(location, infos)
        return cached_footers(location, infos, columns, lambda missing: self._read_footers(location, missing, columns))

    def _read_footers(self, location: Location, infos: list[FileInfo], columns: Sequence[str]) -> list[Footer]:
        if self._is_near(location, len(infos)):
            return read_planned(location, infos, columns)
        self.operation.describe_footers(len(infos))
        bins = spread([1] * len(infos), self._cluster.task_count([1 << 20] * len(infos)))
        read = partial(_read_footers, location, tuple(columns))
        footers = self.operation.run("footers", read, [[infos[i] for i in sorted(members)] for members in bins])
        by_path = {footer.path: footer for members in footers for footer in members}
        return [by_path[info.path] for info in infos]

    def _is_near(self, location: Location, files: int) -> bool:
        """Does the driver read the footers of so many files?"""
        if files < min(MANY_FILES, MANY_FAR_FILES):
            return True
        return files < MANY_FILES and not location.storage.opens_by_request and self._cluster.is_little(1, files=0)

    @contextlib.contextmanager
    def keys(self, spool: Spool) -> Iterator[KeySet]:
        small = spool.key_bytes <= self._cluster.broadcast_bytes
        yield LookedUpKeys(self.operation, spool) if small else JoinedKeys(self.operation, spool)

    def map(
        self, step: Step, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        if self._cluster.does_itself(step):
            return self._cluster.here.map(step, function, items, weight)
        self.operation.describe_step(step)
        return self.operation.map(step.name, function, items, weight)

    def exchange(
        self,
        step: Step,
        spool: Spool,
        send: Send,
        receive: Callable[[Item, Read], Result],
        tasks: Sequence[Task[Item]],
    ) -> list[Result]:
        """What Spark would broadcast every task reads for itself, out of the shared folder; the rest is shuffled."""
        if spool.bytes <= self._cluster.broadcast_bytes or not any(task.buckets for task in tasks):
            pulling = partial(_pulling, spool, send, receive)
            if self._cluster.does_itself(step):
                return self._cluster.here.map(step, pulling, tasks, lambda task: task.weight)
            return self.map(step, pulling, tasks, lambda task: task.size)
        self.operation.describe_step(step)
        return shuffle(self.operation, step.name, spool, send, receive, tasks)


@contextlib.contextmanager
def operation(cluster: Cluster, access: Access, verb: str, location: Location) -> Iterator[SparkEngine]:
    """The engine of one operation. A merge or a write ends with a refresh of what Spark has cached of the path."""
    cluster.check_running()
    running = Operation(cluster, verb, location)
    with running.labelled():
        yield SparkEngine(running, access)
    if verb in ("merge", "write"):
        _refresh(cluster.spark, location)


def _refresh(spark: Any, location: Location) -> None:
    """The rows are committed, so this may not fail."""
    if not reaches(spark, location):
        return
    try:
        spark.catalog.refreshByPath(spark_path(location, ""))
        catalog.refresh_tables_at(spark, location)
    except Exception:
        log.warning("Spark could not forget what it cached of %s", location.shown, exc_info=True)


def _check_shared(location: Location) -> None:
    if location.storage.in_this_process:
        raise ArgumentError(
            f"{location.shown} is in this process's memory, where Spark's executors cannot see it. Use a path that "
            "driver and executors share, or the pyarrow engine."
        )


# -- what runs on executors


def _read_footers(location: Location, columns: tuple[str, ...], infos: list[FileInfo]) -> list[Footer]:
    """Equal schemas are one object, so that they travel once."""
    known: dict[bytes, pa.Schema] = {}
    return [
        replace(footer, schema=known.setdefault(footer.schema.serialize().to_pybytes(), footer.schema))
        for footer in read_planned(location, infos, columns)
    ]


def _pulling(spool: Spool, send: Send, receive: Callable[[Item, Read], Result], task: Task[Item]) -> Result:
    return receive(task.item, partial(pull, spool, send))
