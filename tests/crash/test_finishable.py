"""What would keep a commit from being finished is found before it is recorded; and there is a clean way back."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crash import lakes
from crash.restricted import NOBODY, merge_restricted
from fsspeckit.api import recover
from fsspeckit.core.errors import CommitUnfinishedError, StorageError
from fsspeckit.core.storage import LocalStorage
from support import rows, write_lake

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
GET_FLAGS, SET_FLAGS, IMMUTABLE, APPEND_ONLY = 0x80086601, 0x40086602, 0x10, 0x20


def check_refused(lake: Path, message: str, **options: Any) -> None:
    before = lakes.snapshot(lake.parent)
    with pytest.raises(StorageError, match=message) as refused:
        lakes.merge(lake, **options)
    assert "othing was changed" in str(refused.value)
    assert lakes.snapshot(lake.parent) == before


# Names and paths


@pytest.mark.parametrize("length", [244, 245, 255])
def test_a_new_name_that_is_too_long(tmp_path: Path, length: int) -> None:
    """`.fk…` makes a name 11 bytes longer."""
    lake = lakes.make(tmp_path / "lake")
    (lake / "f0.parquet").rename(lake / f"{'ü' * ((length - 8) // 2)}{'n' * (length % 2)}.parquet")
    if length == 244:
        lakes.merge(lake, replace="new_file")
    else:
        check_refused(lake, r"Cannot make the file .*name too long.*replace='in_place'", replace="new_file")
        lakes.merge(lake, replace="in_place")
    assert lakes.holds(lake, lakes.NEW)
    assert not lakes.litter(tmp_path)


def test_a_new_path_that_is_too_long(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    folder = "d"
    while (missing := 3990 - len(f"{lake}/{folder}/")) > 0:
        folder += "/" + "d" * min(200, missing)
    name = f"{folder}/{'f' * 90}.parquet"
    write_lake(lake, {name: pa.table({"id": [0, 1], "x": ["old"] * 2})})
    assert 4085 < len(f"{lake}/{name}") < 4096
    check_refused(lake, r"Cannot make the file .*name too long.*replace='in_place'", replace="new_file")
    lakes.merge(lake, replace="in_place")
    assert {row["x"] for row in rows(lake) if row["id"] == 0} == {"new"}


# Rights


@as_root
@pytest.mark.parametrize("companion", ["", ".f0.parquet.crc", "_metadata"])
def test_another_users_file_in_a_sticky_folder(ground: Path, companion: str) -> None:
    lake = lakes.make(ground / "lake")
    lake.chmod(0o1777)
    if companion:
        (lake / companion).write_bytes(b"crc")
        for path in lake.glob("*.parquet"):
            os.chown(path, NOBODY, NOBODY)
    before = lakes.snapshot(ground)
    answer = merge_restricted(lake, NOBODY)
    assert answer.error == "StorageError"
    assert f"{lake}/{companion or 'f0.parquet'}" in answer.message
    assert "sticky bit, and it belongs to another user" in answer.message
    assert "Merge as its owner" in answer.message and "Nothing was changed" in answer.message
    assert lakes.snapshot(ground) == before


@as_root
def test_ones_own_files_in_a_sticky_folder(ground: Path) -> None:
    lake = lakes.make(ground / "lake")
    lake.chmod(0o1777)
    for number in range(3):
        os.chown(lake / f"f{number}.parquet", NOBODY, NOBODY)
    assert merge_restricted(lake, NOBODY).error is None
    assert lakes.holds(lake, lakes.NEW)
    os.chown(lake, NOBODY, NOBODY)
    os.chown(lake / "f0.parquet", 4241, 4241)
    lakes.merge(lake, pa.table({"id": [0], "x": ["newer"]}))  # root may act for every owner
    assert lakes.holds(lake, lakes.NEW | {0: "newer"})


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[Any]:
    """Set the attributes that `chattr` sets; they are taken away at the end."""
    done: list[Path] = []

    def protect(path: Path, attribute: int) -> None:
        done.append(path)
        try:
            change(path, attribute)
        except OSError as error:
            pytest.skip(f"no attributes here: {error}")

    def change(path: Path, attribute: int) -> None:
        handle, flags = os.open(path, os.O_RDONLY), array.array("l", [0])
        try:
            fcntl.ioctl(handle, GET_FLAGS, flags)
            flags[0] = flags[0] & ~(IMMUTABLE | APPEND_ONLY) | attribute
            fcntl.ioctl(handle, SET_FLAGS, flags)
        finally:
            os.close(handle)

    yield protect
    for path in done:
        change(path, 0)


@as_root
@pytest.mark.parametrize("attribute", [IMMUTABLE, APPEND_ONLY])
@pytest.mark.parametrize("replace", ["in_place", "new_file"])
@pytest.mark.parametrize("name", ["f2.parquet", ".f2.parquet.crc", ""])
def test_what_the_disk_protects(tmp_path: Path, protected: Any, name: str, replace: str, attribute: int) -> None:
    """A file, its checksum, or the folder; others of the merge's files could be replaced."""
    lake = lakes.make(tmp_path / "lake")
    (lake / ".f2.parquet.crc").write_bytes(b"crc")
    protected(lake / name, attribute)
    check_refused(lake, "it is (immutable|append-only)", replace=replace)


@as_root
def test_a_file_that_is_a_mount_point(tmp_path: Path) -> None:
    lake = lakes.make(tmp_path / "lake")
    (tmp_path / "outside").write_bytes((lake / "f1.parquet").read_bytes())
    if subprocess.run(["mount", "--bind", tmp_path / "outside", lake / "f1.parquet"], capture_output=True).returncode:
        pytest.skip("no right to mount")
    try:
        check_refused(lake, r"it is a mount point.*f1\.parquet")
    finally:
        subprocess.run(["umount", lake / "f1.parquet"], check=True)
    lakes.merge(lake)
    assert lakes.holds(lake, lakes.NEW)


# The way back


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_commit_that_cannot_be_finished_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """No old file is gone: new files and the folders that were made for them go, and all is as it was."""
    lake = tmp_path / "lake"
    write_lake(lake, {"p=1/f0.parquet": pa.table({"id": [0], "x": ["old"]})})
    before, rename, placed = lakes.snapshot(tmp_path), LocalStorage.rename, list[str]()

    def fails(storage: LocalStorage, source: str, target: str) -> None:
        if target.endswith(".parquet"):
            if len(placed) == done:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM), target)
            placed.append(target)
        rename(storage, source, target)

    source = pa.table({"id": [0, 8, 9], "x": ["new"] * 3, "p": [1, 2, 3]})
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "rename", fails)
        with pytest.raises(
            CommitUnfinishedError, match=rf"recorded; do not repeat.*recover --discard {lake}` gives the"
        ):
            lakes.merge(lake, source, replace="new_file")
        with pytest.raises(CommitUnfinishedError, match=r"cannot be finished.*recover --discard"):
            recover(str(lake))
    assert "no other file was changed" in recover(str(lake), discard=True)[0] or not done
    assert lakes.snapshot(tmp_path) == before
    lakes.merge(lake, source, replace="new_file")
    assert len(rows(lake)) == 3
