"""Reports that cannot be written: a merge that is done is not reported as failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import rows

full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


def _run(command: str) -> subprocess.CompletedProcess[str]:
    line = f"set -o pipefail; {sys.executable} -m fsspeckit {command}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300)


def _is_merged() -> bool:
    return len(rows("lake")) == 601 and {row["id"]: row["name"] for row in rows("lake")}[201] == "A"


@full
@pytest.mark.parametrize("options", ["", "--json", "--engine duckdb"])
def test_standard_output_is_full(here: Path, options: str) -> None:
    done = _run(f"merge new.parquet lake -k id {options} >/dev/full")
    assert _is_merged()
    assert done.returncode == 0
    assert done.stderr == (
        "Note: The merge into lake is done, but the report could not be written: No space left on device.\n"
    )


def test_the_reader_of_standard_output_has_hung_up(here: Path) -> None:
    """The reader is gone before anything is written."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "fsspeckit", "merge", "new.parquet", "lake", "-k", "id"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(write)
    assert _is_merged()
    assert (done.returncode, done.stderr) == (
        0,
        "Note: The merge into lake is done, but the report could not be written: Broken pipe.\n",
    )


def test_standard_output_is_closed(here: Path) -> None:
    done = _run("merge new.parquet lake -k id >&-")
    assert _is_merged()
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@full
def test_standard_error_is_full_too(here: Path) -> None:
    done = _run("merge new.parquet lake -k id >/dev/full 2>/dev/full")
    assert _is_merged()
    assert done.returncode == 0


@full
def test_a_note_that_cannot_be_written(here: Path) -> None:
    """`new` did not exist, which is noted on standard error."""
    done = _run("merge new.parquet new -k id 2>/dev/full")
    assert len(rows("new")) == 3
    assert done.returncode == 0


@full
def test_a_web_page_that_cannot_be_written(here: Path) -> None:
    done = _run("merge new.parquet lake -k id --html /dev/full")
    assert _is_merged()
    assert done.returncode == 0
    assert "The merge into lake is done, but the report could not be written: No space left" in done.stderr
    assert "600 → 601 rows" in done.stdout


@full
def test_a_recovery_whose_report_cannot_be_written(here: Path) -> None:
    done = _run("recover lake >/dev/full")
    assert (done.returncode, done.stderr) == (
        0,
        "Note: The recovery of lake is done, but the report could not be written: No space left on device.\n",
    )


@full
def test_a_plan_that_cannot_be_written_has_failed(here: Path) -> None:
    done = _run("plan new.parquet lake -k id >/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: No space left on device")


@full
def test_dropped_copies_that_cannot_be_reported(here: Path) -> None:
    """`history` changes something with `--keep` or `--older-than` only."""
    _run("merge new.parquet lake -k id --undoable")
    assert _run("history lake >/dev/full").returncode == 1
    done = _run("history lake --keep 0 >/dev/full")
    assert (done.returncode, done.stderr) == (
        0,
        "Note: Old commits to lake are dropped, but the report could not be written: No space left on device.\n",
    )
    assert "no commit that can be undone" in _run("history lake").stdout


@full
@pytest.mark.parametrize("arguments", ["--help", "--version", "merge --help"])
def test_help_that_cannot_be_printed(here: Path, arguments: str) -> None:
    done = _run(f"{arguments} >/dev/full")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr
