"""`on_progress` follows the tasks of Spark's jobs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from fsspeckit.core.progress import Progress, ProgressEvent
from fsspeckit.core.rows.exchange import Step
from fsspeckit.datasets.spark.task_progress import counting


def slow_job(spark: Any, tasks: int) -> None:
    def work(batches: Any) -> Any:
        time.sleep(0.6)
        yield from batches

    spark.range(0, tasks, 1, tasks).mapInArrow(work, "id bigint").collect()


def test_files_are_counted_as_tasks_finish(spark: Any) -> None:
    events: list[ProgressEvent] = []
    other = threading.Thread(target=slow_job, args=(spark, 3))  # a job of another operation is not counted
    with Progress.of("", "write", events.append) as progress:
        progress.enter("write", files=8, bytes=800)
        other.start()
        with counting(spark, progress, Step("rewrite", 8, 800)):
            slow_job(spark, 8)
    other.join()
    seen = [event.files for event in events if event.phase == "write"]
    assert seen == sorted(seen) and seen[-1] == 8
    assert set(seen) & set(range(1, 8)), "before the job ended"
    assert not any(t.name == "fsspeckit-progress" for t in threading.enumerate())


def test_an_error_of_the_callback_stops_the_next_step(spark: Any) -> None:
    def fail(event: ProgressEvent) -> None:
        if event.files:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"), Progress.of("", "write", fail) as progress:
        progress.enter("write", files=4, bytes=400)
        with counting(spark, progress, Step("rewrite", 4, 400)):
            slow_job(spark, 4)


def test_a_job_that_fails_is_not_counted_as_done(spark: Any) -> None:
    events: list[ProgressEvent] = []
    with pytest.raises(ZeroDivisionError), Progress.of("", "write", events.append) as progress:
        progress.enter("write", files=4, bytes=400)
        with counting(spark, progress, Step("rewrite", 4, 400)):
            raise ZeroDivisionError
    assert [event.phase for event in events][-1] == "failed"
    assert max(event.files for event in events) == 0
