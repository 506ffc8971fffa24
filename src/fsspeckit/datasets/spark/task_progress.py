"""The progress of a step whose work Spark's tasks do: how many tasks of its jobs are finished.

A thread asks classic Spark about the jobs of a job group. Spark Connect calls handlers of the session, in the thread
that waits for the result. Both happen only for a caller with `on_progress`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from fsspeckit.core.progress import Progress
from fsspeckit.core.rows.exchange import Step

log = logging.getLogger("fsspeckit.spark")

_POLL_SECONDS = 0.25
_GROUP = "spark.jobGroup.id"

Share = Callable[[float], None]
"""Called with the share of the tasks that are finished."""


@contextlib.contextmanager
def counting(spark: Any, progress: Progress, step: Step) -> Iterator[None]:
    """Count the step, which the jobs within the block do."""
    if not progress.is_watched or step.name == "deduplicate":
        yield
        return
    files, counted = step.count if step.name != "insert" else 0, [0, 0]

    def reach(share: float) -> None:
        more = [max(0, int(total * share) - old) for total, old in zip((files, step.bytes), counted)]
        counted[:] = [old + new for old, new in zip(counted, more)]
        if any(more):
            progress.advance(*more)

    with _watched(spark, reach):
        yield
    reach(1.0)


def _watched(spark: Any, reach: Share) -> contextlib.AbstractContextManager[None]:
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return _polled(context, reach)
    return _handled(spark, reach) if hasattr(spark, "registerProgressHandler") else contextlib.nullcontext()


@contextlib.contextmanager
def _handled(spark: Any, reach: Share) -> Iterator[None]:
    """Spark Connect calls handlers for the queries of all threads, each in the thread of its query."""
    mine = threading.get_ident()

    def handler(stages: Any, done: bool, **_: Any) -> None:
        total = sum(stage.num_tasks for stage in stages)
        if threading.get_ident() == mine and total and not done:
            reach(sum(stage.num_completed_tasks for stage in stages) / total)

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the user may have cleared all handlers
            spark.removeProgressHandler(handler)


@contextlib.contextmanager
def _polled(context: Any, reach: Share) -> Iterator[None]:
    """Ask about the new jobs of this thread's job group: the caller's own, or else one for this block."""
    own, is_over, tracker = context.getLocalProperty(_GROUP), threading.Event(), context.statusTracker()
    group = own or f"fsspeckit-{uuid.uuid4().hex}"
    earlier = set(tracker.getJobIdsForGroup(group))

    def poll() -> None:
        try:
            while not is_over.wait(_POLL_SECONDS):
                jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group) if job not in earlier]
                stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
                total = sum(stage.numTasks for stage in stages if stage is not None)
                if total and None not in stages:
                    reach(sum(stage.numCompletedTasks for stage in stages) / total)
        except Exception:  # an error of `on_progress` is raised again by the next step
            log.debug("The progress of Spark's tasks is not followed any more", exc_info=True)

    context.setLocalProperty(_GROUP, group)
    thread = threading.Thread(target=poll, name="fsspeckit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        context.setLocalProperty(_GROUP, own)
