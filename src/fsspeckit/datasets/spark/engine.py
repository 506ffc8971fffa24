"""The Spark engine: executors spool the source, match keys, rewrite files and insert rows; the driver gets counts.

No executor holds state between steps: every step writes its results to the shared folder of the spool, under names that
are unique per task attempt. So executors may be lost between steps, and failed or speculative attempts leave only files
that nobody reads. Steps that are smaller than starting a job run on the driver.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import pyarrow as pa

from fsspeckit.core import defaults
from fsspeckit.core.actions import Actions
from fsspeckit.core.dataset.footer_cache import cached_footers
from fsspeckit.core.dataset.footers import read_planned
from fsspeckit.core.engine import Source
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.match.key_index import KeySet
from fsspeckit.core.model import FileInfo, Footer, Replace
from fsspeckit.core.progress import SILENT, Progress
from fsspeckit.core.rows.exchange import Read, Send, Step, Task, pull
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Access, Location
from fsspeckit.datasets.spark import catalog
from fsspeckit.datasets.spark.keys import BroadcastKeys, JoinedKeys
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.session import Cluster, spark_can_read, spark_path
from fsspeckit.datasets.spark.shuffle import shuffle
from fsspeckit.datasets.spark.source import open_source
from fsspeckit.datasets.spark.tasks import spread

log = logging.getLogger("fsspeckit.spark")

Item = TypeVar("Item")
Result = TypeVar("Result")

# Executors read the footers of at least this many files. For fewer, the driver's threads are faster: receiving 2,000
# footers from executors takes as long as reading them.
MANY_FILES = 4096
# The same in object stores, and for a driver that should do little: executors wait for more requests at once.
MANY_REMOTE_FILES = 256


class SparkEngine:
    """See `core.engine.Engine`. One engine serves one operation."""

    name = "spark"
    # A DataFrame planned before the merge remembers file lengths: under a new name it fails instead of losing rows.
    replace: Replace = "new_file"
    pool = None
    progress: Progress = SILENT

    def __init__(self, operation: Operation, access: Access) -> None:
        self.operation, self._cluster, self._access = operation, operation.cluster, access

    @property
    def application_id(self) -> str | None:
        application: str | None = self._cluster.spark.conf.get("spark.app.id", None)
        return application

    @property
    def compression(self) -> str | None:
        """The codec with which Spark itself writes Parquet; `None` if Parquet readers do not know it (`lzo`)."""
        codec = str(self._cluster.spark.conf.get("spark.sql.parquet.compression.codec")).lower()
        codec = {"uncompressed": "none", "lz4_raw": "lz4"}.get(codec, codec)
        return codec if codec in defaults.CODECS else None

    @property
    def partition_timezone(self) -> str:
        """Spark reads and writes folder names in the session's time zone."""
        return str(self._cluster.spark.conf.get("spark.sql.session.timeZone"))

    @property
    def source_timezone(self) -> str:
        """Spark casts TIMESTAMP_NTZ to TIMESTAMP in the session's time zone."""
        return self.partition_timezone

    @property
    def ignores_case(self) -> bool:
        return str(self._cluster.spark.conf.get("spark.sql.caseSensitive")).lower() == "false"

    @property
    def parallelism(self) -> int:
        return self._cluster.parallelism

    @contextlib.contextmanager
    def running(self, progress: Progress) -> Iterator[Self]:
        self.progress = self.operation.progress = progress
        yield self

    def open(self, source: object) -> Source:
        self.operation.describe("open the source")
        return open_source(source, self.operation, self._access, self.footers)

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> Footers:
        _check_visible(location)
        infos = list(files)
        self.operation.note_files(location, infos)
        return cached_footers(location, infos, columns, lambda missing: self._read_footers(location, missing, columns))

    def _read_footers(self, location: Location, infos: list[FileInfo], columns: Sequence[str]) -> list[Footer]:
        if self._reads_footers_on_driver(location, len(infos)):
            return read_planned(location, infos, columns)
        self.operation.describe(f"read the footers of {len(infos):,} files")
        bins = spread([1] * len(infos), self._cluster.task_count([1 << 20] * len(infos)))
        read = partial(_read_footers, location, tuple(columns))
        footers = self.operation.run("footers", read, [[infos[i] for i in sorted(members)] for members in bins])
        by_path = {footer.path: footer for members in footers for footer in members}
        return [by_path[info.path] for info in infos]

    def _reads_footers_on_driver(self, location: Location, files: int) -> bool:
        if files < min(MANY_FILES, MANY_REMOTE_FILES):
            return True
        return files < MANY_FILES and not location.storage.opens_by_request and self._cluster.driver_bytes > 0

    @contextlib.contextmanager
    def keys(self, spool: Spool, actions: Actions) -> Iterator[KeySet]:
        small = spool.key_bytes <= self._cluster.broadcast_bytes
        yield (BroadcastKeys if small else JoinedKeys)(self.operation, spool, actions)

    def map(
        self, step: Step, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        if self._cluster.runs_on_driver(step):
            return self._cluster.local_engine.map(step, function, items, weight)
        self.operation.describe_step(step)
        with self.operation.counting(step):
            return self.operation.map(step.name, function, items, weight)

    def exchange(
        self,
        step: Step,
        spool: Spool,
        send: Send,
        receive: Callable[[Item, Read], Result],
        tasks: Sequence[Task[Item]],
    ) -> list[Result]:
        """Every task reads a source that Spark would broadcast from the shared folder. A larger source is shuffled."""

        def pull_rows(task: Task[Item]) -> Result:
            return receive(task.item, partial(pull, spool, send))

        if spool.bytes <= self._cluster.broadcast_bytes or not any(task.buckets for task in tasks):
            if self._cluster.runs_on_driver(step):
                return self._cluster.local_engine.map(step, pull_rows, tasks, lambda task: task.weight)
            return self.map(step, pull_rows, tasks, lambda task: task.size)
        self.operation.describe_step(step)
        with self.operation.counting(step):
            return shuffle(self.operation, step.name, spool, send, receive, tasks)


@contextlib.contextmanager
def operation(cluster: Cluster, access: Access, verb: str, location: Location) -> Iterator[SparkEngine]:
    """The engine of one operation. After a merge or a write, Spark's caches for the path are refreshed."""
    cluster.check_running()
    running = Operation(cluster, verb, location)
    with running.labelled():
        yield SparkEngine(running, access)
    if verb in ("merge", "write"):
        refresh(cluster.spark, location)


def refresh(spark: Any, location: Location) -> None:
    """Make a session forget the files of this path, and of the tables there.

    The rows are committed, so an error is only logged.
    """
    if not spark_can_read(spark, location):
        return
    try:
        spark.catalog.refreshByPath(spark_path(location, ""))
        catalog.refresh_tables_at(spark, location)
    except Exception:
        log.warning("Spark's caches of %s could not be refreshed", location.shown, exc_info=True)


def _check_visible(location: Location) -> None:
    if location.storage.in_this_process:
        raise ArgumentError(
            f"{location.shown} is in the memory of this process, which Spark's executors cannot see. Use a path that "
            "driver and executors share, or the pyarrow engine."
        )


def _read_footers(location: Location, columns: tuple[str, ...], infos: list[FileInfo]) -> list[Footer]:
    """On an executor. Equal schemas become one object, so that they are sent once."""
    schemas: dict[bytes, pa.Schema] = {}
    return [
        replace(footer, schema=schemas.setdefault(footer.schema.serialize().to_pybytes(), footer.schema))
        for footer in read_planned(location, infos, columns)
    ]
