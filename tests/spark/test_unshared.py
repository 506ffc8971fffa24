"""Executors that do not see the folder: one clear error, whatever the operation, and nothing is changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spark_process import result_of

pytestmark = pytest.mark.slow


def can_hide() -> bool:
    """May we give processes another view of the disks?"""
    try:
        return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_hide(), reason="needs the right to mount")
def test_executors_that_do_not_see_the_folder(tmp_path: Path) -> None:
    found = result_of("unshared", str(tmp_path))
    assert len(found) == 15
    for name, (error, unchanged) in found.items():
        assert error.startswith(f"DatasetMergeError: Spark's executors do not see {tmp_path}"), (name, error)
        assert "must share the file system" in error and "Nothing was changed" in error
        assert unchanged, name
