"""Where a data set may lie: folders that cannot be written, other file systems, links, odd names."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crash import lakes
from crash.restricted import NOBODY, merge_restricted
from fsspeckit.core.commit import staging
from fsspeckit.core.storage import LocalStorage
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names, rows

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")


def _give_to_nobody(*paths: Path) -> None:
    for path in paths:
        os.chown(path, NOBODY, NOBODY)


def _check_merged(lake: Path) -> None:
    assert lakes.holds(lake, lakes.NEW)
    assert not lakes.litter(lake.parent)


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders in which staging was made."""
    found: list[str] = []
    create = staging.create

    def watched(*arguments: Any) -> str:
        found.append(create(*arguments))
        return found[-1]

    monkeypatch.setattr(staging, "create", watched)
    return found


# Permissions


@as_root
def test_a_parent_that_cannot_be_written(ground: Path) -> None:
    lake = lakes.make(ground / "lake")
    _give_to_nobody(lake, *lake.iterdir())
    answer = merge_restricted(lake, NOBODY)
    assert (answer.error, answer.message) == (None, "")
    assert answer.staged_in is not None and answer.staged_in.startswith(f"{lake}/.fsspeckit/.staging_")
    _check_merged(lake)


@as_root
def test_a_data_set_that_cannot_be_written(ground: Path) -> None:
    parent = ground / "parent"
    lake = lakes.make(parent / "lake")
    _give_to_nobody(parent)
    before = lakes.snapshot(parent)
    answer = merge_restricted(lake, NOBODY)
    assert answer.error == "StorageError"
    assert "Permission denied" in answer.message and "nothing was changed" in answer.message
    assert str(lake) in answer.message
    assert lakes.snapshot(parent) == before


@as_root
def test_a_partition_that_cannot_be_written(ground: Path) -> None:
    """It would only receive new rows; that is found out before anything is recorded."""
    parent = ground / "parent"
    for name in ("p=1/f0.parquet", "p=2/f0.parquet"):
        lakes.write_lake(parent / "lake", {name: pa.table({"id": [int(name[2])], "x": ["old"]})})
    _give_to_nobody(parent, parent / "lake", parent / "lake/p=1")
    before = lakes.snapshot(parent)
    answer = merge_restricted(parent / "lake", NOBODY, partition=2)
    assert answer.error == "StorageError"
    assert f"Cannot move files into {parent}/lake/p=2" in answer.message and "Permission denied" in answer.message
    assert lakes.snapshot(parent) == before


@as_root
def test_a_parent_in_which_nothing_can_be_created(ground: Path) -> None:
    answer = merge_restricted(ground / "new", NOBODY)
    assert answer.error == "StorageError"
    assert f"Cannot create {ground}/new" in answer.message and "Permission denied" in answer.message
    assert all_names(ground) == []


@as_root
def test_what_another_user_left_and_we_cannot_remove(ground: Path) -> None:
    lake = lakes.make(ground / "lake")
    _give_to_nobody(lake, *lake.iterdir())
    (ground / ".fsspeckit-lake/.staging_0").mkdir(parents=True)
    (ground / ".fsspeckit-lake/.staging_0/file-00000").write_text("half")
    before = lakes.snapshot(ground)
    answer = merge_restricted(lake, NOBODY)
    assert answer.error == "CommitUnfinishedError"
    assert "it may belong to another user" in answer.message and "Permission denied" in answer.message
    assert lakes.snapshot(ground) == before


# Other file systems


def test_a_rename_from_the_parent_that_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, homes: list[str]
) -> None:
    lake, rename = lakes.make(tmp_path / "lake"), LocalStorage.rename

    def across(storage: LocalStorage, source: str, target: str) -> None:
        if (".fsspeckit-lake" in source) != (".fsspeckit-lake" in target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)
        rename(storage, source, target)

    monkeypatch.setattr(LocalStorage, "rename", across)
    lakes.merge(lake)
    assert [os.path.dirname(home) for home in homes] == [f"{lake}/.fsspeckit"]
    _check_merged(lake)


@pytest.fixture
def mounted(ground: Path) -> Iterator[Path]:
    """A data set that is a bind mount: the same device as its parent, and yet no rename works between them."""
    lake = lakes.make(ground / "elsewhere/lake")
    (ground / "lake").mkdir()
    if subprocess.run(["mount", "--bind", str(lake), str(ground / "lake")], capture_output=True).returncode:
        pytest.skip("no right to mount")
    yield ground / "lake"
    subprocess.run(["umount", str(ground / "lake")], check=True)


def test_a_mounted_data_set(mounted: Path, homes: list[str]) -> None:
    assert os.stat(mounted).st_dev == os.stat(mounted.parent).st_dev
    lakes.merge(mounted)
    assert [os.path.dirname(home) for home in homes] == [f"{mounted}/.fsspeckit"]
    _check_merged(mounted)


def test_a_rename_that_works_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lakes.make(tmp_path / "lake")
    before = lakes.snapshot(tmp_path)

    def never(storage: LocalStorage, source: str, target: str) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)

    monkeypatch.setattr(LocalStorage, "rename", never)
    with pytest.raises(Exception, match=r"Cannot write to .*lake: .*cross-device.*nothing was changed"):
        lakes.merge(lake)
    assert lakes.snapshot(tmp_path) == before


# Links and names


def test_a_link_to_a_data_set(tmp_path: Path, homes: list[str]) -> None:
    """Staging is beside the real one; the same data set under both names has one lock and one journal."""
    lake = lakes.make(tmp_path / "real/lake")
    (tmp_path / "link").symlink_to(lake)
    result = lakes.merge(tmp_path / "link")
    assert [os.path.dirname(home) for home in homes] == [f"{tmp_path}/real/.fsspeckit-lake"]
    assert sorted(result.rewritten_files) == [f"{tmp_path}/link/f{i}.parquet" for i in range(3)]
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]
    _check_merged(lake)


NAMES = [
    "with space",
    "it's",
    'say "hi"',
    "a*b",
    "f[0]",
    "100%",
    "%20",
    "ü",
    "a\\b",
    "#x?y",
    "-rf",
    "n" * 240,
    "n" * 250,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_data_set_with_an_odd_name(tmp_path: Path, name: str, homes: list[str]) -> None:
    lake = lakes.make(tmp_path / name)
    lakes.make(tmp_path / "f0")  # what a pattern would find
    before = lakes.snapshot(tmp_path / "f0")
    assert lakes.merge(lake).inserted == 1
    home = lake / ".fsspeckit" if len(name) > 244 else tmp_path / f".fsspeckit-{name}"
    assert [os.path.dirname(made) for made in homes] == [str(home)]
    assert PyArrowDatasetIO().read(str(lake)).num_rows == 21
    assert lakes.snapshot(tmp_path / "f0") == before
    _check_merged(lake)


@pytest.mark.parametrize("path", ["lake", "./lake", "lake/", "other/../lake", "lake/../lake//"])
def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    lake = lakes.make(tmp_path / "lake")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    lakes.merge(path)
    _check_merged(lake)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lake", "other"]


def test_the_working_directory_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lakes.make(tmp_path / "lake")
    monkeypatch.chdir(lake)
    lakes.merge(".")
    _check_merged(lake)


def test_a_new_data_set_below_folders_that_are_not_there(tmp_path: Path) -> None:
    lakes.merge(tmp_path / "a/b/lake")
    assert lakes.holds(tmp_path / "a/b/lake", {0: "new", 10: "new", 20: "new", 99: "new"})
    assert all_names(tmp_path)[:3] == ["a", "a/b", "a/b/lake"] and len(all_names(tmp_path)) == 4


def test_a_refused_creation_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="id"):
        lakes.merge(tmp_path / "a/b/lake", pa.table({"id": pa.array([None], pa.int64()), "x": ["a"]}))
    assert all_names(tmp_path) == []


def test_file_urls(tmp_path: Path) -> None:
    lake = lakes.make(tmp_path / "a lake")
    lakes.merge(f"file://{tmp_path}/a%20lake")
    _check_merged(lake)
    assert {row["id"] for row in rows(lake)} == set(lakes.NEW)
