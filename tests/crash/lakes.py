"""The small lake of these tests: five files of four rows, and a look at it that misses nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core import merge as core
from fsspeckit.core import write_changes
from fsspeckit.core.local_engine import ArrowSource
from fsspeckit.core.match.key_index import IndexedKeys
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.datasets.pyarrow.engine import PyArrowEngine
from support import all_names, fingerprint, multiset, rows, write_lake

# Updates a row in f0, f1 and f2, and adds one
SOURCE = pa.table({"id": [0, 10, 20, 99], "x": ["new"] * 4})
OLD = {10 * f + i: "old" for f in range(5) for i in range(4)}
NEW = OLD | {0: "new", 10: "new", 20: "new", 99: "new"}

# Where the steps of a merge are called.
STEPS: dict[str, tuple[Any, str]] = {
    "footers": (PyArrowEngine, "footers"),
    "spool": (ArrowSource, "spool"),
    "profile": (core, "profile_of"),
    "match": (IndexedKeys, "match"),
    "rewrite": (write_changes, "rewrite_files"),
    "insert": (write_changes, "insert_rows"),
}


def make(lake: Path) -> Path:
    for f in range(5):
        write_lake(lake, {f"f{f}.parquet": pa.table({"id": [10 * f + i for i in range(4)], "x": ["old"] * 4})})
    return lake


def merge(lake: Path | str, source: pa.Table = SOURCE, **options: Any) -> Any:
    return PyArrowDatasetIO().merge(source, str(lake), "upsert", ["id"], **options)


def holds(lake: Path, expected: dict[int, str]) -> bool:
    return multiset(rows(lake)) == multiset([{"id": key, "x": x} for key, x in expected.items()])


def snapshot(parent: Path) -> tuple[Any, ...]:
    """Every name below a folder, and every file's bytes and mtime."""
    return all_names(parent), fingerprint(parent)


def litter(parent: Path) -> list[str]:
    """What is neither a folder of the user's nor a Parquet file."""
    return [n for n in all_names(parent) if Path(n).name.startswith((".fsspeckit", ".staging")) or ".staging" in n]


def after(monkeypatch: pytest.MonkeyPatch, step: str, action: Callable[[], object]) -> None:
    """Do something once the engine has done a step: between plan and commit."""
    place, name = STEPS[step]
    original = getattr(place, name)

    def wrapped(*arguments: Any) -> Any:
        result = original(*arguments)
        action()
        return result

    monkeypatch.setattr(place, name, wrapped)
    if step == "insert":  # plain writes insert rows too
        monkeypatch.setattr(core, name, wrapped)
