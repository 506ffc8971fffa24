"""`--engine spark`, its master and its settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from fsspeckit.cli import options
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import rows

MERGE = ("merge", "new.parquet", "lake", "-k", "id", "--engine", "spark")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A Spark engine that is PyArrow's and remembers the sessions it was asked for."""
    calls: list[tuple[Any, ...]] = []

    def start_session(*args: Any) -> str:
        calls.append(args)
        return "session"

    def spark_io(filesystem: Any = None, storage_options: Any = None, spark: Any = None) -> PyArrowDatasetIO:
        calls.append(("io", spark))
        return PyArrowDatasetIO(filesystem, storage_options)

    module = SimpleNamespace(SparkDatasetIO=spark_io, start_session=start_session)
    monkeypatch.setitem(sys.modules, "fsspeckit.datasets.spark", module)
    monkeypatch.setattr(options, "check_java", lambda: None)
    return calls


def test_master_and_settings_reach_the_session(call: Callable[..., Result], started: list[Any]) -> None:
    settings = ("--conf", "spark.a=1", "--conf", "spark.b=x=y")
    assert call(*MERGE, "--master", "local[3]", *settings).exit_code == 0
    assert ("local[3]", {"spark.a": "1", "spark.b": "x=y"}) in started
    assert started[-1] == ("io", "session")
    assert len(rows("lake")) == 601


def test_without_them_the_engine_finds_its_own_session(call: Callable[..., Result], started: list[Any]) -> None:
    assert call(*MERGE).exit_code == 0
    assert started == [("io", None)]


def test_without_java_it_is_refused_in_a_line(call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    result = call(*MERGE)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "needs Java 17" in result.stderr


@pytest.mark.slow
def test_a_real_session(shell: Callable[..., Any]) -> None:
    pytest.importorskip("fsspeckit.datasets.spark")
    args = (*MERGE, "--master", "local[2]", "--conf", "spark.ui.enabled=false", "--json")
    done = shell(*args, timeout=180)
    assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["updated"], len(rows("lake"))) == (2, 601)


@pytest.mark.slow
def test_a_master_that_does_not_exist_is_refused_in_a_line(shell: Callable[..., Any]) -> None:
    pytest.importorskip("fsspeckit.datasets.spark")
    done = shell(*MERGE, "--master", "local[nonsense]", timeout=180)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert any(line.startswith("Error: Spark failed: ") for line in done.stderr.splitlines())
