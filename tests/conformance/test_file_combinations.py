"""Compaction, schema changes, small files, partition overwrites, undo, snapshots and streams, one after the other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from conformance.test_common_types import READERS, who_reads
from fsspeckit.core.dataset.ledger import Batch
from support import data_files, fingerprint, multiset, rows, write_lake

pytestmark = pytest.mark.disk
EVOLVE: dict[str, Any] = {"on_schema_change": "evolve"}
INT = pa.int32()


def file(number: int) -> pa.Table:
    return pa.table({"id": [number], "n": pa.array([number], INT)})


def partitioned(folder: Path) -> str:
    return write_lake(folder, {f"p={n % 2}/f{n}.parquet": file(n) for n in range(4)})


def names(lake: str) -> list[list[str]]:
    """The columns of each file."""
    return [pq.read_schema(f"{lake}/{name}").names for name in data_files(lake)]


UNDOABLE: dict[str, Any] = {
    "append to small files": lambda io, lake: io.merge(
        pa.table({"id": [8, 9], "n": [8, 9], "p": [0, 1]}),
        lake,
        "upsert",
        ["id"],
        undoable=True,
        small_files="append",
    ),
    "touched": lambda io, lake: io.merge(
        pa.table({"id": [0], "n": [1], "p": [0], "new": ["x"]}),
        lake,
        "upsert",
        ["id"],
        undoable=True,
        evolve_files="touched",
        **EVOLVE,
    ),
    "evolve": lambda io, lake: io.merge(
        pa.table({"id": [0, 9], "n": [2**40, 9], "p": [0, 1], "new": ["x", None]}),
        lake,
        "upsert",
        ["id"],
        undoable=True,
        **EVOLVE,
    ),
    "sort": lambda io, lake: io.compact(lake, sort_by="n", partitions=[{"p": 1}], undoable=True),
    "overwrite_partitions and evolve": lambda io, lake: io.write_dataset(
        pa.table({"id": [7], "n": [2**40], "p": [1], "new": ["x"]}),
        lake,
        "overwrite_partitions",
        undoable=True,
        **EVOLVE,
    ),
}


@pytest.mark.parametrize("operation", UNDOABLE)
def test_undo_of_all_that_may_be_undone(io: Any, tmp_path: Path, operation: str) -> None:
    lake = partitioned(tmp_path / "lake")
    before = fingerprint(lake)
    UNDOABLE[operation](io, lake)
    assert fingerprint(lake) != before
    fsspeckit.undo(lake)
    assert fingerprint(lake) == before
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_one_after_the_other(io: Any, tmp_path: Path) -> None:
    lake = partitioned(tmp_path / "lake")
    states = []
    for operation in UNDOABLE.values():
        states.append(fingerprint(lake))
        operation(io, lake)
    last = fingerprint(lake)
    deleted = io.delete(lake, filters=[("id", "=", 0)], undoable=True)
    kept = [commit.folder for commit in fsspeckit.history(lake)]
    assert sorted(deleted.kept_copies) == sorted(kept) and len(kept) == len(UNDOABLE) + 1
    for state in [last, *reversed(states)]:
        fsspeckit.undo(lake)
        assert fingerprint(lake) == state
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_a_compaction_without_undo_ends_it(io: Any, tmp_path: Path) -> None:
    lake = partitioned(tmp_path / "lake")
    UNDOABLE["append to small files"](io, lake)
    io.compact(lake)
    before = fingerprint(lake)
    with pytest.raises(fsspeckit.FsspeckitError, match=r"is not as the upsert of .* left it: .* is (new|gone)"):
        fsspeckit.undo(lake)
    assert fingerprint(lake) == before
    assert fsspeckit.history(lake, keep=0) == []


def test_a_lake_with_columns_in_some_files_only(io: Any, tmp_path: Path) -> None:
    """Files with and without the column stay apart, until a later change brings all of them along."""
    lake = write_lake(tmp_path / "lake", {f"f{n}.parquet": file(n) for n in range(6)})
    new = pa.table({"id": [0, 3, 9], "n": [0, 3, 9], "new": ["a", "b", "c"]})
    io.merge(new, lake, "upsert", ["id"], evolve_files="touched", **EVOLVE)
    before = multiset(io_rows(lake))
    result = io.compact(lake)
    assert (result.files_after, sorted(names(lake))) == (2, [["id", "n"], ["id", "n", "new"]])
    assert multiset(io_rows(lake)) == before and io.compact(lake).commits == 0
    io.merge(pa.table({"id": [3], "n": [4], "new": ["d"], "more": [1]}), lake, "upsert", ["id"], **EVOLVE)
    assert io.compact(lake).files_after == 1
    assert names(lake) == [["id", "n", "new", "more"]]
    assert who_reads(lake) == dict.fromkeys(READERS, 7)


def io_rows(lake: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fsspeckit.read(lake).to_pylist()
    return found


def test_a_stream_that_appends_evolves_and_compacts(io: Any, tmp_path: Path) -> None:
    """Each batch is committed once; an undone compaction forgets none, and an undone batch may come again."""
    lake = str(tmp_path / "lake")

    def batch(number: int, **options: Any) -> bool:
        more = {"new": ["x"]} if number > 2 else {}
        data = pa.table({"id": [number], "n": [number], **more})
        how = {"small_files": "append", **EVOLVE, **options}
        return bool(io.merge(data, lake, "upsert", ["id"], batch=Batch("app", number), **how).replayed)

    assert not any(batch(number) for number in range(5))
    io.write_dataset(pa.table({"id": [99], "n": [99], "new": [None]}), lake)
    before = fingerprint(lake)
    assert io.compact(lake, undoable=True).files_after == 1
    assert batch(4)
    fsspeckit.undo(lake)
    assert fingerprint(lake) == before and batch(4)
    assert not batch(5, undoable=True)
    fsspeckit.undo(lake)
    assert not batch(5)
    assert sorted(row["id"] for row in rows(lake)) == [*range(6), 99]


def test_a_compaction_waits_for_a_snapshot(io: Any, tmp_path: Path) -> None:
    lake = partitioned(tmp_path / "lake")
    done: list[int] = []
    with fsspeckit.snapshot(lake) as files:
        thread = threading.Thread(target=lambda: done.append(io.compact(lake).files_after))
        thread.start()
        thread.join(0.5)
        assert done == [] and len(data_files(lake)) == 4
        assert sum(pq.read_metadata(file).num_rows for file in files) == 4
        with pytest.raises(fsspeckit.DatasetLockedError, match="This thread reads a snapshot"):
            io.compact(lake)
    thread.join(60)
    assert done == [2]


@pytest.mark.parametrize("option", [{"small_files": "append"}, EVOLVE, {"undoable": True}])
def test_must_exist(io: Any, tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(fsspeckit.FsspeckitError, match="There is no data set at"):
        io.merge(file(1), str(tmp_path / "lake"), "upsert", ["id"], must_exist=True, **option)
    assert list(tmp_path.iterdir()) == []
