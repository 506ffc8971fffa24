"""Two executor processes: the work is shared between them, and whatever becomes of a task or of one of them, the
merge is what it would have been, and nothing of the attempts is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_process import result_of

pytestmark = pytest.mark.slow


def test_two_executors(tmp_path: Path) -> None:
    """All merges are made by one process, since it takes longest to start."""
    found = result_of("cluster", str(tmp_path))
    check_that_executors_share_the_work(found["balanced"])
    check_that_a_lost_executor_does_not_change_a_random_source(found["survives"])
    check_that_failed_steps_are_retried(found["looked_up"], ["spool", "match", "rewrite", "insert"], 98_400)
    check_that_failed_steps_are_retried(found["joined"], ["spool", "join", "send", "rewrite", "insert"], 1600)
    check_an_executor_lost_while_files_are_rewritten(found["killed"])
    check_an_executor_lost_while_files_are_rewritten(found["shuffled"])


def check_that_executors_share_the_work(merged: Any) -> None:
    assert merged["updated"] == 50
    assert len(merged["shares"]) == 2
    assert sum(merged["shares"]) == 50
    assert min(merged["shares"]) >= 15  # each at least 30 %


def check_that_a_lost_executor_does_not_change_a_random_source(survived: Any) -> None:
    assert survived["merged"] == survived["pinned"] == survived["as_pinned"] > 1000
    assert survived["rows"] == survived["expected"]


def check_that_failed_steps_are_retried(merged: Any, steps: list[str], inserted: int) -> None:
    for step in steps:
        assert_first_task_staged_twice(merged, step)
    assert (merged["updated"], merged["inserted"]) == (1600, inserted)
    assert merged["values"] == {"1.0": 1600 + inserted}
    assert merged["strays"] == []


def check_an_executor_lost_while_files_are_rewritten(merged: Any) -> None:
    assert_first_task_staged_twice(merged, "rewrite")
    assert (merged["updated"], merged["inserted"]) == (16, 4)
    assert merged["values"] == {"1.0": 20, "0.0": 1584}
    assert merged["strays"] == []


def assert_first_task_staged_twice(merged: Any, step: str) -> None:
    staged = merged["attempts"][step]
    assert staged["0-0"] >= 1 and staged["0-1"] >= 2, (step, staged)
    if step == "rewrite":
        assert staged["end"] >= 6, staged  # each of two tasks has two of four files


def test_a_task_that_a_copy_of_it_outran(tmp_path: Path) -> None:
    merged = result_of("speculation", str(tmp_path))
    assert_first_task_staged_twice(merged, "rewrite")
    assert (merged["updated"], merged["inserted"]) == (16, 0)
    assert merged["values"] == {"1.0": 16, "0.0": 1584}
    assert merged["strays"] == []
    # What was still at work found its folder gone, and put nothing in its place.
    assert merged["late"] == ["FileNotFoundError", "FileNotFoundError"]
    assert merged["later"] == {"strays": [], "values": merged["values"]}
