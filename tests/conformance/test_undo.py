"""Undoable merges, deletes, writes and compactions on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.core import compact as compaction
from support import fingerprint, write_lake

pytestmark = pytest.mark.disk
SOURCE = pa.table({"id": [1, 11, 99], "x": ["new"] * 3})
OPERATIONS: dict[str, Any] = {
    "upsert": lambda io, lake: io.merge(SOURCE, lake, "upsert", ["id"], undoable=True),
    "delete": lambda io, lake: io.delete(lake, filters=[("id", "<", 5)], undoable=True),
    "append": lambda io, lake: io.write_dataset(SOURCE, lake, undoable=True),
    "overwrite": lambda io, lake: io.write_dataset(SOURCE, lake, "overwrite", undoable=True),
    "compact": lambda io, lake: io.compact(lake, sort_by=["x", "id"], undoable=True),
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


def test_an_undoable_compaction_is_one_commit(io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_COMMIT_BYTES", 1)
    monkeypatch.setattr(compaction, "_FILES_PER_TASK", 0)
    lake = write_lake(tmp_path / "lake", {f"p={n % 3}/f{n}.parquet": pa.table({"id": [n]}) for n in range(9)})
    before = fingerprint(Path(lake))
    result = io.compact(lake, undoable=True)
    assert (result.commits, result.files_before, result.files_after, result.rows) == (1, 9, 3, 9)
    assert sorted(result.new_files) == sorted(str(path) for path in Path(lake).rglob("*.parquet"))
    (commit,) = fsspeckit.history(lake)
    assert (commit.operation, commit.counts) == ("compact", {"files_before": 9, "files_after": 3, "rows": 9})
    assert len(commit.kept_files) == 9 and commit.is_next
    assert io.compact(lake, undoable=True).commits == 0 and len(fsspeckit.history(lake)) == 1
    undone = fsspeckit.undo(lake)
    assert (len(undone.restored_files), len(undone.removed_files)) == (9, 3)
    assert fingerprint(Path(lake)) == before


def test_undoable_must_be_a_boolean(io: Any, tmp_path: Path) -> None:
    with pytest.raises(fsspeckit.ArgumentError, match="undoable must be True or False"):
        io.merge(SOURCE, str(tmp_path / "lake"), "upsert", ["id"], undoable="yes")
    with pytest.raises(fsspeckit.ArgumentError, match="undoable must be True or False"):
        io.compact(str(tmp_path / "lake"), undoable="yes")
