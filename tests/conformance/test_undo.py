"""Undoable merges, deletes and writes on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from support import fingerprint, write_lake

pytestmark = pytest.mark.disk
SOURCE = pa.table({"id": [1, 11, 99], "x": ["new"] * 3})
OPERATIONS: dict[str, Any] = {
    "upsert": lambda io, lake: io.merge(SOURCE, lake, "upsert", ["id"], undoable=True),
    "delete": lambda io, lake: io.delete(lake, filters=[("id", "<", 5)], undoable=True),
    "append": lambda io, lake: io.write_dataset(SOURCE, lake, undoable=True),
    "overwrite": lambda io, lake: io.write_dataset(SOURCE, lake, "overwrite", undoable=True),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_undo_puts_the_files_back(io: Any, tmp_path: Path, operation: str) -> None:
    lake = tmp_path / "lake"
    files = {f"f{i}.parquet": pa.table({"id": range(10 * i, 10 * i + 10), "x": ["old"] * 10}) for i in range(3)}
    write_lake(lake, files)
    before = fingerprint(lake)
    OPERATIONS[operation](io, str(lake))
    assert fingerprint(lake) != before
    assert [commit.operation for commit in fsspeckit.history(str(lake))] == [operation]
    fsspeckit.undo(str(lake))
    assert fingerprint(lake) == before
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_undoable_must_be_a_boolean(io: Any, tmp_path: Path) -> None:
    with pytest.raises(fsspeckit.ArgumentError, match="undoable is True or False"):
        io.merge(SOURCE, str(tmp_path / "lake"), "upsert", ["id"], undoable="yes")
