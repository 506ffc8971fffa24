"""Merges while the interpreter ends: Python has no more threads for us then, and a merge does without. (Modules that
Python no longer loads then have to be there: `fsspeckit.merge` was asked for before.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fsspeckit

LAKE = """
import atexit, sys, threading
import pyarrow as pa, pyarrow.parquet as pq
from fsspeckit import merge as merge_rows

folder, engine, files = sys.argv[1], sys.argv[2], 5

def rows(version, ids):
    return pa.table({"id": ids, "version": pa.array([version] * len(ids), pa.int64()), "name": ["name"] * len(ids)})

def merge(version, ids):
    result = merge_rows(rows(version, ids), folder, key_columns=["id"], engine=engine)
    print(result.updated, result.inserted)
"""
EXITS = {
    "atexit": "atexit.register(merge, 1, range(9_000, 71_000, 10))",
    "after a merge": "merge(7, range(60_000)); atexit.register(merge, 1, range(9_000, 71_000, 10))",
    "a thread": """
def later():
    threading.main_thread().join()
    merge(7, range(60_000))
    merge(1, range(9_000, 71_000, 10))
threading.Thread(target=later).start()
""",
    "a thread from before": """
def meanwhile():
    for version in range(20, 0, -1):
        merge(version, range(9_000, 71_000, 10))
threading.Thread(target=meanwhile).start()
""",
}


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("when", EXITS)
def test_a_merge_while_the_interpreter_ends(tmp_path: Path, when: str, name: str) -> None:
    lake = tmp_path / "lake"
    makes = (
        "import os; os.mkdir(folder)\n"
        "for n in range(files):\n"
        "    pq.write_table(rows(0, range(n * 12_000, (n + 1) * 12_000)), f'{folder}/{n}.parquet')\n"
    )
    program = LAKE + makes + EXITS[when]
    ended = subprocess.run(
        [sys.executable, "-c", program, str(lake), name], capture_output=True, text=True, timeout=300
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] in ("5100 1100", "6200 0")
    assert ended.stdout.split().count("1100") == 1
    table = fsspeckit.read(str(lake)).sort_by("id")
    expected = [*range(60_000), *range(60_000, 71_000, 10)]
    assert table.column("id").to_pylist() == expected
    before = 7 if "merge(7" in EXITS[when] else 0
    versions = [1 if n >= 9_000 and n % 10 == 0 else before for n in expected]
    assert table.column("version").to_pylist() == versions
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]
