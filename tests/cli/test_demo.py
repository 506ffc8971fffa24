"""The demo tells a true story, cleans up, and runs with PyArrow alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsspeckit.cli import demo
from fsspeckit.cli.commands import cli
from fsspeckit.core.errors import DatasetMergeError


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_with_pyarrow_alone(tmp_path: Path) -> None:
    started = time.perf_counter()
    result = CliRunner(env={"COLUMNS": None}).invoke(cli, ["demo", "--engine", "pyarrow"], catch_exceptions=False)
    assert result.exit_code == 0
    assert time.perf_counter() - started < 20
    assert "60 updated, 16 inserted; 14,544 → 14,560 rows" in result.stdout
    assert "35 of 37 files: as before" in result.stdout
    assert "all rows as expected" in result.stdout
    assert "Error: Partition columns ['month'] cannot change for existing keys" in result.stdout
    assert all(
        f"  {mark}  {action} " in result.stdout
        for mark, action in zip("█▓▒░", ("rewrite", "keys read", "keys checked", "not read"))
    )
    assert os.listdir(tmp_path) == []


def test_engines_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsspeckit.api._ENGINES", {"pyarrow": "PyArrowDatasetIO", "duckdb": "X", "spark": "X"})
    monkeypatch.setitem(__import__("sys").modules, "fsspeckit.datasets.duckdb", None)
    monkeypatch.setitem(__import__("sys").modules, "fsspeckit.datasets.spark", None)
    result = CliRunner(env={"COLUMNS": None}).invoke(cli, ["demo"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Spark is skipped." in result.stdout
    assert "pip install 'duckdb>=" in result.stdout
    assert CliRunner().invoke(cli, ["demo", "--engine", "duckdb"]).exit_code == 1


def test_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    args = ["demo", "--engine", "pyarrow", "--keep", str(kept)]
    done = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert (done.exit_code, "plan.html and merge.html" in done.stdout) == (0, True)
    assert sorted(os.listdir(kept)) == ["changes.parquet", "lake", "merge.html", "plan.html"]
    assert "60 updated, 16 inserted" in (kept / "plan.html").read_text()
    assert "seconds, by phase" in (kept / "merge.html").read_text()
    again = CliRunner().invoke(cli, args)
    assert (again.exit_code, "not empty" in again.stderr) == (1, True)


def test_a_demo_that_is_not_true_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_expected", list)
    with pytest.raises(DatasetMergeError, match="gave other rows"):
        demo.run(["pyarrow"])


def test_the_sample_is_what_the_demo_says() -> None:
    changes = demo.changes()
    assert changes.num_rows == 76
    assert changes.column("status").to_pylist().count("returned") == 60
