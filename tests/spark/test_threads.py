"""Merges in several threads of one session do not know of each other, and leave the session as it was."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyspark
import pytest

from fsspeckit.datasets.spark.session import start_session
from spark_process import result_of


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_merges_in_four_threads(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Thirteen times in each of them; fifty times in `make torture`."""
    if kind == "connect" and pyspark.__version__ < "4":
        pytest.skip("PySpark 3.5 comes without the server of Spark Connect")
    rounds = request.config.getoption("--rounds")
    found = result_of("threads", kind, str(tmp_path), str(rounds), seconds=900 + 60 * rounds)
    assert found["merges"] == 4 * rounds
    assert found["wrong"] == []
    assert found["changed"] == []
    assert found["stdout"]
    assert sorted(map(tuple, found["labels"])) == sorted(
        (f"thread {n}", title) for n in range(4) for title in (f"fsspeckit merge lake{n}", f"thread {n}")
    )


def test_a_session_that_another_thread_started_is_taken_as_it_is(spark: Any) -> None:
    """A new thread has no active session; the process's own is not configured anew for it."""
    before, found = spark.sql("SET").collect(), list[Any]()
    thread = threading.Thread(target=lambda: found.append(start_session()))
    thread.start()
    thread.join()
    assert found[0].sparkContext is spark.sparkContext
    assert spark.sql("SET").collect() == before
