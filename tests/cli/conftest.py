"""A small lake, a change to it, and the command line in this process or in one of its own."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fsspeckit.cli.commands import cli
from support import write_lake

if "mix_stderr" in inspect.signature(CliRunner).parameters:  # click 8.1: what later versions do always
    CliRunner.__init__ = functools.partialmethod(CliRunner.__init__, mix_stderr=False)  # type: ignore


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with `lake/`, three months of two files each, and `new.parquet`: two updates and an insert."""
    monkeypatch.chdir(tmp_path)
    files = {}
    for number in range(6):
        ids = list(range(100 * number, 100 * number + 100))
        table = pa.table({"id": ids, "name": [f"name {i}" for i in ids]})
        files[f"month={number // 2 + 1:02d}/part-{number % 2}.parquet"] = table
    write_lake(tmp_path / "lake", files, row_group_size=50)
    new = pa.table({"id": [201, 202, 900], "name": ["A", "B", "C"], "month": ["02", "02", "02"]})
    pq.write_table(new, tmp_path / "new.parquet")
    return tmp_path


@pytest.fixture
def call(here: Path) -> Callable[..., Result]:
    """Run a command in this process; an exception that is not a refusal fails the test."""

    def run(*args: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> Result:
        return CliRunner(env={"COLUMNS": None, **(env or {})}).invoke(
            cli, list(args), input=stdin, catch_exceptions=False, prog_name="fsspeckit"
        )

    return run


@pytest.fixture
def shell(here: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a process of its own, its output in a pipe."""

    def run(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | options.pop("env", {})
        command = [sys.executable, "-m", "fsspeckit", *args]
        options.setdefault("timeout", 300)
        return subprocess.run(command, capture_output=True, text=True, env=env, **options)

    return run
