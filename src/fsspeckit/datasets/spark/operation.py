"""One merge, plan, write or read under Spark: its jobs, their labels in Spark's UI, and its store on the driver."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from fsspeckit.core.model import FileInfo
from fsspeckit.core.progress import SILENT, Progress
from fsspeckit.core.rows.exchange import Step
from fsspeckit.core.rows.store import SharedFolder
from fsspeckit.core.storage import Location
from fsspeckit.datasets.spark.session import Cluster
from fsspeckit.datasets.spark.store import DriverStore
from fsspeckit.datasets.spark.task_progress import counting
from fsspeckit.datasets.spark.tasks import (
    RESULT_TYPES,
    SharedPaths,
    collect_results,
    errors_in_messages,
    local_paths,
    map_in_arrow,
    spread,
    task_result,
)

Item = TypeVar("Item")
Result = TypeVar("Result")

_DESCRIPTION = "spark.job.description"


class Operation:
    """All state of one operation. Operations of the same session share none of it.

    An operation belongs to the thread that runs it, since Spark keeps job descriptions and tags per thread. Classic
    Spark shows `fsspeckit merge orders: match 12 of 400 files` as the description of a job. Spark Connect has no
    descriptions, so the text is a tag there, by which jobs can be interrupted.
    """

    def __init__(self, cluster: Cluster, verb: str, target: Location) -> None:
        self.cluster, self.target = cluster, target
        in_store = target.in_store() is not None
        self.paths = SharedPaths((), local_paths(target.storage, target.root), target.shown * in_store)
        self._title = self.label = f"fsspeckit {verb} {target.name}"
        self._context = getattr(cluster.spark, "sparkContext", None)
        self._target_files, self._tag = 0, ""
        self._store: DriverStore | None = None
        self.progress: Progress = SILENT

    def counting(self, step: Step) -> contextlib.AbstractContextManager[None]:
        """Count the step, which the jobs within the block do."""
        return counting(self.cluster.spark, self.progress, step)

    # -- labels

    @contextlib.contextmanager
    def labelled(self) -> Iterator[None]:
        """Label the jobs within the block; restore the user's own description afterwards."""
        own = None if self._context is None else self._context.getLocalProperty(_DESCRIPTION)
        try:
            yield
        finally:
            if self._context is not None:
                self._context.setJobDescription(own)
            else:
                self._set_tag("")

    def describe(self, step: str) -> None:
        """Label the next jobs of this thread."""
        self.label = f"{self._title}: {step}"
        if self._context is not None:
            self._context.setJobDescription(self.label)
        else:
            self._set_tag(self.label.replace(",", ""))

    def _set_tag(self, tag: str) -> None:
        if self._tag:
            self.cluster.spark.removeTag(self._tag)
        if tag:
            self.cluster.spark.addTag(tag)
        self._tag = tag

    def describe_step(self, step: Step) -> None:
        """`match 12 of 400 files`, `write 1 new row`"""
        if step.name == "insert":
            self.describe(f"write {step.count:,} new row{'' if step.count == 1 else 's'}")
        elif step.name == "deduplicate":
            self.describe(f"reduce {step.count:,} rows to one per key")
        else:
            total = self._target_files or step.count
            files = f"{total:,} file{'' if total == 1 else 's'}"
            self.describe(f"{step.name} {step.count:,} of {files}" if self._target_files else f"{step.name} {files}")

    # -- what executors must see

    def note_files(self, location: Location, infos: Sequence[FileInfo]) -> None:
        """The driver listed these files. If they are the target's, labels show their number, and executors must see the
        first one."""
        if location.root != self.target.root:
            return
        self._target_files = len(infos)
        if infos and self.paths.target:
            self.paths = replace(self.paths, target=(location.root, location.at(infos[0].path)))

    def open_store(self, folder: Callable[[], SharedFolder]) -> DriverStore:
        """The store for the rows of the source. `folder` makes the shared folder when a job first needs it."""
        self._store = DriverStore(folder)
        return self._store

    def share_store(self) -> SharedFolder:
        """Copy what the driver holds in memory to the shared folder, where executors read it."""
        assert self._store is not None
        folder = self._store.share()
        self.paths = replace(self.paths, scratch=local_paths(folder.storage, folder.folder))
        return folder

    # -- jobs. Closures hold `paths`, not the operation, which cannot be pickled.

    def run(self, step: str, function: Callable[[Item], Result], tasks: Sequence[Item]) -> list[Result]:
        """Apply `function` to each item in a task of its own; results are in order."""
        if not tasks:
            return []
        if self._store is not None:
            self.share_store()
        paths, pickled = self.paths, [pickle.dumps(task) for task in tasks]

        def call(task: int) -> Result:
            return function(pickle.loads(pickled[task]))

        def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield task_result(task, partial(call, task), paths)

        frame = self.cluster.spark.range(0, len(tasks), 1, len(tasks))
        return collect_results(step, map_in_arrow(frame, remote, RESULT_TYPES), self.label)

    def map(
        self, step: str, function: Callable[[Item], Result], items: Sequence[Item], weight: Callable[[Item], int]
    ) -> list[Result]:
        """Apply `function` to each item, in tasks of about equal weight; results are in order."""
        weights = [weight(item) for item in items]
        bins = spread(weights, self.cluster.task_count(weights))
        tasks = [[items[i] for i in members] for members in bins]
        by_task = self.run(step, lambda members: [function(item) for item in members], tasks)
        by_item = {i: result for members, results in zip(bins, by_task) for i, result in zip(members, results)}
        return [by_item[i] for i in range(len(items))]

    def rows(
        self, read: Callable[[int, list[int]], Iterator[pa.RecordBatch]], weights: Sequence[int], types: Any
    ) -> Any:
        """A DataFrame of the rows that tasks read. `read` gets the number of the task and the numbers of its items."""
        if self._store is not None:
            self.share_store()
        bins, paths = spread(weights, self.cluster.task_count(weights)), self.paths

        def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with errors_in_messages(paths):
                for batch in batches:
                    for task in batch.column(0).to_pylist():
                        yield from read(task, bins[task])

        return map_in_arrow(self.cluster.spark.range(0, len(bins), 1, len(bins)), remote, types)
