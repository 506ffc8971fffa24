"""One merge, plan, write or read under Spark: its name in Spark's UI, and the paths that executors must see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from fsspeckit.core.model import FileInfo
from fsspeckit.core.rows.exchange import Step
from fsspeckit.core.rows.store import SharedFolder
from fsspeckit.core.storage import Location
from fsspeckit.datasets.spark.session import Cluster
from fsspeckit.datasets.spark.shared import Shared, local_paths
from fsspeckit.datasets.spark.store import DriverStore

Item = TypeVar("Item")
Result = TypeVar("Result")

_DESCRIPTION = "spark.job.description"


class Operation:
    """What belongs to one operation and to no other of the same session.

    It is used by the thread that runs it: Spark keeps descriptions and tags of jobs per thread. Classic Spark shows
    `fsspeckit merge orders: match 12 of 400 files` as the description of a job. Spark Connect has no descriptions,
    so it is a tag there, by which jobs can be interrupted.
    """

    def __init__(self, cluster: Cluster, verb: str, target: Location) -> None:
        self.cluster, self.target = cluster, target
        in_store = target.in_store() is not None
        self.shared = Shared((), local_paths(target.storage, target.root), target.shown * in_store)
        self._title = f"fsspeckit {verb} {target.name}"
        self._context = getattr(cluster.spark, "sparkContext", None)
        self._files, self._tag = 0, ""
        self._store: DriverStore | None = None

    @contextlib.contextmanager
    def labelled(self) -> Iterator[None]:
        """Jobs within the block are labelled; afterwards the user's own description is back."""
        own = None if self._context is None else self._context.getLocalProperty(_DESCRIPTION)
        try:
            yield
        finally:
            if self._context is not None:
                self._context.setJobDescription(own)
            else:
                self._tag_as("")

    def describe(self, step: str) -> None:
        """Label the jobs that come next in this thread."""
        label = f"{self._title}: {step}"
        if self._context is not None:
            self._context.setJobDescription(label)
        else:
            self._tag_as(label.replace(",", ""))

    def _tag_as(self, tag: str) -> None:
        if self._tag:
            self.cluster.spark.removeTag(self._tag)
        if tag:
            self.cluster.spark.addTag(tag)
        self._tag = tag

    def describe_footers(self, count: int) -> None:
        self.describe(f"read the footers of {_files(count)}")

    def describe_step(self, step: Step) -> None:
        """`match 12 of 400 files`, `write 1 new row`"""
        if step.name == "insert":
            self.describe(f"write {step.count:,} new row{'' if step.count == 1 else 's'}")
        elif step.name == "deduplicate":
            self.describe(f"reduce {step.count:,} rows to one per key")
        else:
            count = f"{step.count:,} of {_files(self._files)}" if self._files else _files(step.count)
            self.describe(f"{step.name} {count}")

    def saw_files(self, location: Location, infos: Sequence[FileInfo]) -> None:
        """The driver listed these files. If they are the target's, labels give their number and executors must see the
        first."""
        if location.root != self.target.root:
            return
        self._files = len(infos)
        if infos and self.shared.target:
            self.shared = replace(self.shared, target=(location.root, location.at(infos[0].path)))

    def share(self, store: DriverStore) -> SharedFolder:
        """Let executors see a store, from now on before every job."""
        self._store, folder = store, store.share()
        self.shared = replace(self.shared, scratch=local_paths(folder.storage, folder.folder))
        return folder

    def spooled(self, store: DriverStore) -> None:
        """The rows are in this store; they are shared when a job needs them."""
        self._store = store

    def _share(self) -> None:
        if self._store is not None:
            self.share(self._store)

    def run(self, step: str, function: Callable[[Item], Result], tasks: Sequence[Item]) -> list[Result]:
        self._share()
        return self.cluster.run(step, function, tasks, self.shared)

    def map(
        self, step: str, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        self._share()
        return self.cluster.map(step, function, items, weight, self.shared)

    def rows(
        self, read: Callable[[int, list[int]], Iterator[pa.RecordBatch]], weights: Sequence[int], types: Any
    ) -> Any:
        self._share()
        return self.cluster.rows(read, weights, types, self.shared)


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"
