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
from typing import Any, TypeVar

import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.core.cached import cached_property
from fsspeckit.core.engine import Source
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.footers import Footers
from fsspeckit.core.model import FileInfo, Footer, Replace
from fsspeckit.core.spool.exchange import Read, Send, Step, Task, pull
from fsspeckit.core.spool.keyset import KeySet
from fsspeckit.core.spool.parts import Spool
from fsspeckit.core.storage import Access, FsspecStorage, LocalStorage, Location, StoreStorage
from fsspeckit.core.target.footers import read_planned
from fsspeckit.core.target.remembered import remembered
from fsspeckit.datasets.spark import catalog
from fsspeckit.datasets.spark.keys import JoinedKeys, LookedUpKeys
from fsspeckit.datasets.spark.session import Cluster, reaches, spark_path, spread, start_session
from fsspeckit.datasets.spark.shared import Shared, local_paths
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
    """See `core.engine.Engine`."""

    name = "spark"
    # A DataFrame planned before the merge remembers file lengths: under a new name it fails instead of losing rows.
    replace: Replace = "new_file"

    def __init__(self, spark: Any = None, access: Access | None = None, scratch: str | None = None) -> None:
        self._spark, self._access, self._scratch = spark, access or Access(), scratch

    @property
    def partition_timezone(self) -> str:
        """Spark reads and writes the names of folders in the session's zone."""
        return str(self.cluster.spark.conf.get("spark.sql.session.timeZone"))

    @property
    def ignores_case(self) -> bool:
        return str(self.cluster.spark.conf.get("spark.sql.caseSensitive")).lower() == "false"

    @property
    def parallelism(self) -> int:
        return self.cluster.parallelism

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(self._spark or start_session(), self._scratch)

    @contextlib.contextmanager
    def operation(self, verb: str, location: Location) -> Iterator[None]:
        """What is done within is told in Spark's UI under this name."""
        self.cluster.check_running()
        in_store = isinstance(location.storage, StoreStorage)
        self.cluster.shared = Shared((), local_paths(location.storage, location.root), location.shown * in_store)
        self.cluster.target = location
        with self.cluster.jobs.operation(verb, location):
            yield

    def open(self, source: object) -> Source:
        self.cluster.jobs.describe("look at the source")
        return open_source(source, self.cluster, self._access, self.footers)

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> Footers:
        _check_shared(location)
        infos, shared = list(files), self.cluster.shared
        self.cluster.jobs.saw_files(location.root, len(infos))
        if infos and location.root in shared.target[:1]:
            self.cluster.shared = replace(shared, target=(location.root, location.at(infos[0].path)))
        return remembered(location, infos, columns, lambda missing: self._read_footers(location, missing, columns))

    def _read_footers(self, location: Location, infos: list[FileInfo], columns: Sequence[str]) -> list[Footer]:
        if self._is_near(location, len(infos)):
            return read_planned(location, infos, columns)
        self.cluster.jobs.describe_footers(len(infos))
        bins = spread([1] * len(infos), self.cluster.task_count([1 << 20] * len(infos)))
        read = partial(_read_footers, location, tuple(columns))
        footers = self.cluster.run("footers", read, [[infos[i] for i in sorted(members)] for members in bins])
        by_path = {footer.path: footer for members in footers for footer in members}
        return [by_path[info.path] for info in infos]

    def _is_near(self, location: Location, files: int) -> bool:
        """Does the driver read the footers of so many files?"""
        if files < min(MANY_FILES, MANY_FAR_FILES):
            return True
        on_disk = isinstance(location.storage, LocalStorage)
        return files < MANY_FILES and on_disk and self.cluster.is_little(1, files=0)

    @contextlib.contextmanager
    def keys(self, spool: Spool) -> Iterator[KeySet]:
        small = spool.key_bytes <= self.cluster.broadcast_bytes
        yield LookedUpKeys(self.cluster, spool) if small else JoinedKeys(self.cluster, spool)

    def map(
        self, step: Step, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        if self.cluster.does_itself(step):
            return self.cluster.here.map(step, function, items, weight)
        self.cluster.jobs.describe_step(step)
        return self.cluster.map(step.name, function, items, weight)

    def exchange(
        self,
        step: Step,
        spool: Spool,
        send: Send,
        receive: Callable[[Item, Read], Result],
        tasks: Sequence[Task[Item]],
    ) -> list[Result]:
        """What Spark would broadcast every task reads for itself, out of the shared folder; the rest is shuffled."""
        if spool.bytes <= self.cluster.broadcast_bytes or not any(task.labels for task in tasks):
            pulling = partial(_pulling, spool, send, receive)
            if self.cluster.does_itself(step):
                return self.cluster.here.map(step, pulling, tasks, lambda task: task.weight)
            return self.map(step, pulling, tasks, lambda task: task.size)
        self.cluster.jobs.describe_step(step)
        return shuffle(self.cluster, step.name, spool, send, receive, tasks)

    def refresh(self, location: Location) -> None:
        """After a commit: what Spark has cached of this path is stale. The rows are written, so this may not fail."""
        if not reaches(self.cluster.spark, location):
            return
        try:
            self.cluster.spark.catalog.refreshByPath(spark_path(location, ""))
            catalog.refresh_tables_at(self.cluster.spark, location)
        except Exception:
            log.warning("Spark could not forget what it cached of %s", location.shown, exc_info=True)


def _check_shared(location: Location) -> None:
    if isinstance(location.storage, FsspecStorage) and isinstance(location.storage.fs, MemoryFileSystem):
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
