"""Disks that do not tell `a` from `A`, and disks that give new inodes with each mount."""

from __future__ import annotations

import json
import os
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crash import lakes
from fsspeckit.api import recover
from fsspeckit.core.commit.apply import ApplyJournal
from fsspeckit.core.errors import CommitUnfinishedError, TargetError
from fsspeckit.core.storage import LocalStorage
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import rows, write_lake

LONG = "Die große Straße am Fluss hinter den sieben Bergen"
COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "ü"), unicodedata.normalize("NFD", "ü")


def _as_found(path: str, root: str) -> str:
    """The path as such a disk finds it: each name as it is spelled there, whatever the case that is asked for."""
    if not path.startswith(f"{root}/"):
        return path
    found = root
    for name in path[len(root) + 1 :].split("/"):
        same = [n for n in (os.listdir(found) if os.path.isdir(found) else ()) if _folded(n) == _folded(name)]
        found = f"{found}/{same[0] if same else name}"
    return found


def _folded(name: str) -> str:
    return unicodedata.normalize("NFD", name).casefold()


@pytest.fixture
def folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on a disk that does not tell case or Unicode forms apart, as storage sees it."""
    for name, method in list(vars(LocalStorage).items()):
        if name.startswith("_") or not callable(method):
            continue

        def folded(storage: LocalStorage, *paths: Any, method: Any = method, **named: Any) -> Any:
            found = [_as_found(p, str(tmp_path)) if isinstance(p, str) else p for p in paths]
            return method(storage, *found, **named)

        monkeypatch.setattr(LocalStorage, name, folded)
    return tmp_path


@pytest.fixture
def folding_disk(tmp_path: Path) -> Iterator[Path]:
    """A real one: the disk of the tests, or one in memory, if this system has any."""
    (tmp_path / "Probe").touch()
    if (tmp_path / "probe").exists():
        yield tmp_path
        return
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "casefold,size=64m", "tmpfs", str(tmp_path / "disk")]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no disk here folds case, and none can be mounted")
    try:
        (tmp_path / "disk/folding").mkdir()
        if subprocess.run(["chattr", "+F", tmp_path / "disk/folding"], capture_output=True).returncode:
            pytest.skip("no disk here folds case, and none can be mounted")
        yield tmp_path / "disk/folding"
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)


def partitioned(lake: Path, *values: str) -> Path:
    for number, value in enumerate(values):
        write_lake(lake, {f"p={value}/f0.parquet": pa.table({"id": [number], "x": ["old"]})})
    return lake


def source(*values: str) -> pa.Table:
    return pa.table({"id": range(100, 100 + len(values)), "x": ["new"] * len(values), "p": list(values)})


def check_refused(lake: Path, table: pa.Table, *names: str, **options: Any) -> None:
    before = lakes.snapshot(lake.parent)
    with pytest.raises(TargetError, match=r"does not tell .* apart.*Nothing was changed") as refused:
        lakes.merge(lake, table, **options)
    assert all(f"{lake}/{name} " in str(refused.value) for name in names)
    assert lakes.snapshot(lake.parent) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("a", "A"), ("Straße", "STRASSE"), (LONG, LONG.upper()), (COMPOSED, DECOMPOSED), (COMPOSED * 40, DECOMPOSED * 40)],
)
def test_a_partition_value_that_the_disk_takes_for_an_existing_one(folding: Path, old: str, new: str) -> None:
    lake = partitioned(folding / "lake", old, "b")
    check_refused(lake, source(new), f"p={old}", f"p={new}")
    lakes.merge(lake, source(old, "c"))
    assert sorted(row["p"] for row in rows(lake)) == sorted([old, old, "b", "c"])


def test_two_new_partition_values_that_the_disk_takes_for_one(folding: Path) -> None:
    check_refused(partitioned(folding / "lake", "b"), source("x", "X"), "p=x", "p=X")


def test_a_new_data_set_with_such_values(folding: Path) -> None:
    with pytest.raises(TargetError, match="does not tell"):
        PyArrowDatasetIO().merge(source("x", "X"), str(folding / "lake"), "upsert", ["id"], ["p"])
    assert not (folding / "lake").exists()


def test_an_empty_folder_counts(folding: Path) -> None:
    lake = partitioned(folding / "lake", "b")
    (lake / "p=A").mkdir()
    check_refused(lake, source("a"), "p=A", "p=a")


def test_a_real_disk_that_folds_case(folding_disk: Path) -> None:
    lake = partitioned(folding_disk / "lake", "a")
    check_refused(lake, source("A"), "p=a", "p=A")
    check_refused(lake, source("x", "X"), "p=x", "p=X")


def test_a_disk_that_tells_them_apart(tmp_path: Path) -> None:
    lake = partitioned(tmp_path / "lake", "a", COMPOSED)
    lakes.merge(lake, source("A", DECOMPOSED, "a.", "x", "X", "a"))
    assert sorted(row["p"] for row in rows(lake)) == sorted(["a", "a", "A", "a.", "x", "X", COMPOSED, DECOMPOSED])
    assert not lakes.litter(tmp_path)


def test_a_disk_that_changes_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HFS+ decomposes them, FAT drops dots at the end: the value in the name would be another."""
    lake = partitioned(tmp_path / "lake", "b")
    for name in ("make_folder", "remove_folder"):
        method = getattr(LocalStorage, name)
        monkeypatch.setattr(LocalStorage, name, lambda storage, path, method=method: method(storage, path.rstrip(".")))
    before = lakes.snapshot(tmp_path)
    with pytest.raises(OSError, match=r"Cannot make the folder .*p=a\.: .*the disk changes its name to \['p=a'\]"):
        lakes.merge(lake, source("a."))
    assert lakes.snapshot(tmp_path) == before


# Inodes


@pytest.mark.parametrize("folder_too", [True, False])
def test_inodes_that_a_mount_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder_too: bool) -> None:
    """All files have other numbers than the journal tells, the commit's own too; the folder's may be the same."""
    lake = lakes.make(tmp_path / "lake")

    def fails(steps: ApplyJournal, here: int) -> None:
        raise OSError("unplugged")

    with monkeypatch.context() as patched:
        patched.setattr(ApplyJournal, "apply", fails)
        with pytest.raises(CommitUnfinishedError):
            lakes.merge(lake, replace="new_file")
    (path,) = tmp_path.glob(".fsspeckit-lake/.staging_*/journal.json")
    journal = json.loads(path.read_text())
    journal["inode"] += 1_000_000 * folder_too
    for step in [*journal["additions"], *journal["removals"]]:
        for state in filter(None, (step["before"], step.get("after"))):
            state["inode"] += 1_000_000
    path.write_text(json.dumps(journal))
    assert "finished the commit" in recover(str(lake))[0]
    assert lakes.holds(lake, lakes.NEW)
    assert not lakes.litter(tmp_path)
