"""A writer is killed at every storage call, one run per call: the data set is the old or the new one, and no litter.

The lake beside it, `lake-2`, is itself in mid-commit all the while and must not be touched by anyone.
"""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crash import row_changes
from crash.dying import NEXT, SOURCE, Server
from fsspeckit.api import recover
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names, fingerprint, multiset, rows, write_lake

SHARDS = 4
UNTOUCHED = "p=2/f2.parquet"
Rows = dict[int, tuple[str, int]]
PLAIN_WRITES = ("overwrite", "overwrite_partitions", "overwrite_one_partition")


@dataclass(frozen=True)
class Scene:
    """A folder with a lake and its neighbour, to be copied for every run."""

    server: Server
    template: Path
    scratch: Path

    def fresh(self) -> Path:
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.template, self.scratch)
        return self.scratch / "lake"

    def points(self, operation: str) -> list[str]:
        return self.server.points(operation, self.fresh())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def scene(server: Server, ground: Path) -> Scene:
    template = ground / "template"
    for name in ("lake", "lake-2"):
        write_lake(template / name, {f"p={p}/f{f}.parquet": _table(p, f) for p in (1, 2) for f in range(3)})
    _kill_in_mid_commit(server, template / "lake-2")
    return Scene(server, template, ground / "scratch")


def _table(p: int, f: int) -> pa.Table:
    ids = [100 * p + 10 * f + i for i in range(4)]
    return pa.table({"id": ids, "x": [f"old{i}" for i in ids]})


def _kill_in_mid_commit(server: Server, lake: Path) -> None:
    shutil.copytree(lake, lake.with_name("rehearsal"))
    labels = server.points("merge", lake.with_name("rehearsal"))
    shutil.rmtree(lake.with_name("rehearsal"))
    assert server.run("merge", lake, _index(labels, "rename", "file-00002"))
    assert _markers(lake), "the neighbour must be in mid-commit"


def _index(labels: list[str], method: str, name: str) -> int:
    return next(i for i, label in enumerate(labels) if label.startswith(method + " ") and name in label)


def _markers(lake: Path) -> list[Path]:
    return list(lake.glob(".fsspeckit-commit-*"))


# What should be there, in plain Python

OLD: Rows = {
    100 * p + 10 * f + i: (f"old{100 * p + 10 * f + i}", p) for p in (1, 2) for f in range(3) for i in range(4)
}


def _as_rows(table: pa.Table) -> Rows:
    return {row["id"]: (row["x"], row["p"]) for row in table.to_pylist()}


NEW: dict[str, Rows] = {
    "merge": OLD | _as_rows(SOURCE),
    "new_file": OLD | _as_rows(SOURCE),
    "overwrite": _as_rows(SOURCE),
    "overwrite_partitions": {key: row for key, row in _as_rows(SOURCE).items() if row[1] == 1},
    "overwrite_one_partition": {
        **{key: row for key, row in _as_rows(SOURCE).items() if row[1] == 1},
        **{key: row for key, row in OLD.items() if row[1] == 2},
    },
    "full_merge": _as_rows(SOURCE),
    "remove": {key: row for key, row in OLD.items() if row[1] == 2 and not 210 <= key < 220},
    **{name: {key: (x, int(p)) for key, x, p in new} for name, new in row_changes.NEW.items()},
}


def _multiset(expected: Rows) -> Any:
    return multiset([{"id": key, "x": x, "p": str(p)} for key, (x, p) in expected.items()])


def _found(lake: Path) -> Any:
    return multiset([{**row, "p": str(row["p"])} for row in rows(lake)])


# What is checked after every death


def check_after_death(scene: Scene, old: Rows, new: Rows, where: str) -> str:
    """Readers change nothing, the next write puts things right; says which of both the dead writer left."""
    lake = scene.scratch / "lake"
    committed = bool(_markers(lake))
    check_readers(lake, committed, where)
    missing = (old.keys() & new.keys()) - {row["id"] for row in rows(lake)}
    assert not missing, f"killed at {where}: old files were removed before the new ones stood"
    PyArrowDatasetIO().merge(NEXT, str(lake), "upsert", ["id"], ["p"])
    found = _found(lake)
    outcomes = {"new": _multiset(new | _as_rows(NEXT)), "old": _multiset(old | _as_rows(NEXT))}
    outcome = next((name for name, expected in outcomes.items() if found == expected), None)
    assert outcome is not None, f"killed at {where}: neither the old nor the new data set, but {found}"
    assert outcome == "new" or not committed, f"killed at {where}: a recorded commit was lost"
    check_litter(scene, where)
    return outcome


def check_readers(lake: Path, committed: bool, where: str) -> None:
    if not list(lake.rglob("*.parquet")):
        return
    before = fingerprint(lake.parent), all_names(lake.parent)
    for reader in (lambda: PyArrowDatasetIO().plan(NEXT, str(lake), "upsert", ["id"]), lambda: _read(lake)):
        assert _warnings_of(reader) == (1 if committed else 0), f"killed at {where}"
    assert (fingerprint(lake.parent), all_names(lake.parent)) == before, (
        f"killed at {where}: a reader changed something"
    )


def _read(lake: Path) -> pa.Table:
    return PyArrowDatasetIO().read(str(lake))


def _warnings_of(reader: Callable[[], object]) -> int:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader()
    return sum("has an unfinished commit" in str(w.message) for w in caught)


def check_litter(scene: Scene, where: str) -> None:
    """Nothing of ours is left, and the neighbour is as it was, byte for byte."""
    assert sorted(p.name for p in scene.scratch.iterdir()) == [".fsspeckit-lake-2", "lake", "lake-2"], where
    lake = scene.scratch / "lake"
    strays = [name for name in all_names(lake) if "/." in f"/{name}" or not name.endswith((".parquet", "p=1", "p=2"))]
    assert not strays, f"killed at {where}: {strays}"
    for name in (".fsspeckit-lake-2", "lake-2"):
        assert fingerprint(scene.scratch / name) == fingerprint(scene.template / name), f"killed at {where}: {name}"
        assert all_names(scene.scratch / name) == all_names(scene.template / name), f"killed at {where}: {name}"


def check_untouched(scene: Scene, where: str) -> None:
    now, before = (fingerprint(root / "lake")[UNTOUCHED] for root in (scene.scratch, scene.template))
    assert now == before, f"killed at {where}: {UNTOUCHED} changed"


# The tests


@pytest.mark.parametrize("shard", range(SHARDS))
def test_merge_killed_at_every_storage_call(
    scene: Scene, shard: int, capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    labels = scene.points("merge")
    assert _rewritten_and_inserted(scene.scratch / "lake") == (5, 2)
    assert len(labels) >= 40
    record_property("kill_points", len(labels))
    with capsys.disabled():  # stderr: workers of pytest-xdist have no other way to the terminal
        print(f"\n{len(labels)} points to kill a merge at, {_in_mid_write(labels)} in mid-write", file=sys.stderr)
    outcomes = set()
    for point in range(shard, len(labels), SHARDS):
        where = f"point {point}, {labels[point]}"
        assert scene.server.run("merge", scene.fresh(), point), f"was not killed at {where}"
        outcomes.add(check_after_death(scene, OLD, NEW["merge"], where))
        check_untouched(scene, where)
    assert outcomes == {"old", "new"}


def _in_mid_write(labels: list[str]) -> int:
    return sum(label.startswith("half of") for label in labels)


def _rewritten_and_inserted(lake: Path) -> tuple[int, int]:
    changed = [name for name in fingerprint(lake) if any(r["x"].startswith("new") for r in rows_of(lake / name))]
    inserted = [name for name in changed if "part-" in name]
    return len(changed) - len(inserted), len(inserted)


def rows_of(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.parquet.ParquetFile(file).read().to_pylist()
    return found


@pytest.mark.parametrize("operation", ["new_file", *PLAIN_WRITES, "full_merge", "remove", *row_changes.CASES])
def test_other_writes_killed(scene: Scene, operation: str) -> None:
    labels, outcomes = scene.points(operation), set()
    for point in _sample(labels):
        where = f"point {point}, {labels[point]}"
        assert scene.server.run(operation, scene.fresh(), point), f"was not killed at {where}"
        outcomes.add(check_after_death(scene, OLD, NEW[operation], where))
    assert outcomes == {"old", "new"}


def _changing(labels: list[str]) -> list[int]:
    """The points that change something; to die before a mere look is to die before the next change."""
    looks = ("stat", "names", "is_", "walk", "open_input", "read_bytes", "sync_", "lock")
    return [i for i, label in enumerate(labels) if not label.startswith(looks)]


def _sample(labels: list[str]) -> list[int]:
    """A few points of the preparation, and every one from the journal on."""
    journal = _index(labels, "write_bytes", ".journal.json")
    changing = _changing(labels)
    return [p for p in changing if p < journal][::6] + [p for p in changing if p >= journal]


def test_creation_killed(scene: Scene) -> None:
    shutil.rmtree(scene.template / "lake")
    labels, outcomes = scene.points("create"), set()
    for point in _sample(labels):
        where = f"point {point}, {labels[point]}"
        assert scene.server.run("create", scene.fresh(), point), f"was not killed at {where}"
        outcomes.add(check_after_death(scene, {}, _as_rows(SOURCE), where))
    assert outcomes == {"old", "new"}


# A way to die: the operation, and the call before which it dies
DEATHS = {
    "probe left": ("merge", "remove", ".fsspeckit-probe-"),
    "staged files half written": ("merge", "sync_file", "file-00002"),
    "recorded, nothing done": ("merge", "rename", "file-00000"),
    "half applied": ("merge", "rename", "file-00003"),
    "old files half removed": ("new_file", "remove", "p=1/f1.parquet"),
    "applied, staging left": ("merge", "remove", "/journal.json"),
    "files removed, the folder left": ("remove", "remove_folder", "p=1"),
    "a partition half replaced": ("overwrite_one_partition", "remove", "p=1/f1.parquet"),
}
DEATHS_OF_ROW_CHANGES = {
    "a partition emptied, its folder left": ("delete", "remove_folder", "p=1"),
    "deletes half applied": ("delete", "remove", "p=1/f1.parquet"),
    "a feed half applied": ("feed", "rename", "file-00000"),
    "moved rows in both places": ("move", "rename", "file-00000"),
    "rows moved, their old file left": ("move", "remove", "p=1/f1.parquet"),
}


@pytest.mark.parametrize("death", [*DEATHS, *DEATHS_OF_ROW_CHANGES])
def test_recovery_killed_at_every_call(scene: Scene, death: str) -> None:
    """Recovery may die as well, and the recovery of that, until one gets through."""
    operation, method, name = (DEATHS | DEATHS_OF_ROW_CHANGES)[death]
    dead = _dead(scene, operation, method, name)
    labels = dead.points("recover")
    for point in _changing(labels):
        where = f"{death}, then in recovery before {labels[point]}"
        assert scene.server.run("recover", dead.fresh(), point), f"was not killed at {where}"
        scene.server.run("recover", scene.scratch / "lake", point // 2)
        outcome = check_after_death(dead, OLD, NEW[operation], where)
        assert outcome == ("old" if death in ("probe left", "staged files half written") else "new"), where
        check_untouched(dead, where)


def _dead(scene: Scene, operation: str, method: str, name: str) -> Scene:
    """The scene after a death, to be copied for every recovery."""
    point = _index(scene.points(operation), method, name)
    assert scene.server.run(operation, scene.fresh(), point)
    template = scene.template.with_name("dead")
    shutil.copytree(scene.scratch, template)
    return Scene(scene.server, template, scene.scratch)


def test_recover_says_what_it_did(scene: Scene) -> None:
    dead = _dead(scene, *DEATHS["half applied"])
    lake = str(dead.fresh())
    (said,) = recover(lake)
    assert said.startswith("finished the commit in ")
    assert said.endswith(": 7 file(s) put in place, 0 removed")
    assert _found(Path(lake)) == _multiset(NEW["merge"])
    assert recover(lake) == []
    check_litter(dead, "recover")


def test_a_deleted_data_set_stays_deleted(scene: Scene) -> None:
    """Its recorded commit is not carried out in the data set that takes its name, and is removed only on request."""
    dead = _dead(scene, *DEATHS["half applied"])
    lake = dead.fresh()
    shutil.rmtree(lake)
    with pytest.warns(
        UserWarning, match=r"commit for another folder.*moved or deleted.*not changed.*recover --discard"
    ):
        PyArrowDatasetIO().merge(NEXT, str(lake), "upsert", ["id"], ["p"])
    assert _found(lake) == _multiset(_as_rows(NEXT))
    assert recover(str(lake), discard=True)
    assert _found(lake) == _multiset(_as_rows(NEXT))
    check_litter(dead, "deletion")
