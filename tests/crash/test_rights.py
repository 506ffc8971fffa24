"""Who may read what a merge wrote: mode, owner, group, ACLs and xattrs, while it is staged and afterwards."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fsspeckit
from crash import lakes
from crash.restricted import NOBODY, merge_restricted
from fsspeckit.core.commit.apply import ApplyJournal
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.storage import LocalStorage
from support import rows, write_lake

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
GROUP, EVERYONE = 4242, 0xFFFFFFFF
USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 1, 2, 4, 16, 32


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An ACL as the kernel takes it: tag, rights, and the user or group that is named."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def for_nobody(rights: int) -> bytes:
    """The user `nobody` has these rights, all others may read."""
    named = (USER, rights, NOBODY)
    return acl((USER_OBJ, 6, EVERYONE), named, (GROUP_OBJ, 4, EVERYONE), (MASK, 6, EVERYONE), (OTHER, 4, EVERYONE))


def set_acl(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except (OSError, AttributeError) as error:
        pytest.skip(f"no ACLs here: {error}")


def rights(path: Path | str) -> tuple[Any, ...]:
    found = os.stat(path)
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return found.st_mode & 0o7777, found.st_uid, found.st_gid, attributes


def may_read(path: Path | str, user: int) -> bool:
    code = f"import os; os.setgroups([]); os.setgid({user}); os.setuid({user}); open({str(path)!r}, 'rb')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.fixture
def lake(ground: Path) -> Path:
    return lakes.make(ground / "lake")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


# While it is staged


def test_staging_is_private_from_the_first_byte(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lake / "f0.parquet").chmod(0o600)
    open_output, seen = LocalStorage.open_output, list[tuple[int, int]]()

    def watched(storage: LocalStorage, path: str, final: str = "") -> Any:
        sink = open_output(storage, path, final)
        modes = os.fstat(sink.fileno()).st_mode & 0o777, os.stat(os.path.dirname(path)).st_mode & 0o777
        seen.append(modes)
        return sink

    monkeypatch.setattr(LocalStorage, "open_output", watched)
    lakes.merge(lake)
    assert len(seen) == 4
    assert set(seen) == {(0o600, 0o700)}


def test_staging_is_private_below_a_default_acl(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder beside the data set lets everyone in; staging is made there, and closed all the same."""
    set_acl(lake.parent, DEFAULT_ACL, for_nobody(6))
    seen: list[int] = []
    lakes.after(
        monkeypatch, "insert", lambda: seen.extend(os.stat(p).st_mode & 0o077 for p in lake.parent.rglob(".st*"))
    )
    before = rights(lake / "f0.parquet")
    (new,) = lakes.merge(lake).inserted_files
    assert seen == [0]
    assert rights(lake / "f0.parquet") == before
    assert ACL not in os.listxattr(new)
    assert os.stat(new).st_mode & 0o777 == 0o644


@as_root
@pytest.mark.parametrize(
    ("mode", "partition", "staging"),
    [(0o2775, 0o2775, 0o2770), (0o2770, 0o2770, 0o2770), (0o2775, 0o2700, 0o2700), (0o755, 0o755, 0o700)],
)
def test_a_recorded_commit_is_open_to_the_group_that_may_finish_it(
    ground: Path, monkeypatch: pytest.MonkeyPatch, mode: int, partition: int, staging: int
) -> None:
    """If the group may write to every folder concerned, and to nobody else."""
    write_lake(ground / "lake", {"p=1/f0.parquet": pa.table({"id": [0], "x": ["old"]})})
    for folder, rights in ((ground / "lake/p=1", partition), (ground / "lake", mode)):
        os.chown(folder, -1, GROUP)
        folder.chmod(rights)

    def fails(steps: ApplyJournal, here: int) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(ApplyJournal, "apply", fails)
    with pytest.raises(CommitUnfinishedError):
        lakes.merge(ground / "lake", pa.table({"id": [0], "x": ["new"], "p": [1]}))
    (folder,) = ground.glob(".fsspeckit-lake/.staging_*")
    assert folder.stat().st_mode & 0o7777 == staging


# Afterwards


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_a_rewritten_file_keeps_its_acl_and_its_xattrs(lake: Path, replace: Any) -> None:
    set_acl(lake / "f0.parquet", ACL, for_nobody(0))
    os.setxattr(lake / "f0.parquet", "user.origin", b"crm \x00\xff")
    before = rights(lake / "f0.parquet")
    plain = rights(lake / "f1.parquet")
    files = sorted(lakes.merge(lake, replace=replace).rewritten_files)
    assert rights(files[0]) == before
    assert rights(files[1]) == plain
    assert lakes.holds(lake, lakes.NEW)


@as_root
def test_who_was_denied_may_not_read_afterwards(lake: Path) -> None:
    """The group bits of the mode are the ACL's mask: as a mode alone, they would let the group in."""
    set_acl(lake / "f0.parquet", ACL, for_nobody(0))
    assert not may_read(lake / "f0.parquet", NOBODY)
    lakes.merge(lake)
    assert not may_read(lake / "f0.parquet", NOBODY)
    assert may_read(lake / "f1.parquet", NOBODY)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_files_of_a_new_data_set_are_as_the_umask_says(ground: Path, umask: int) -> None:
    os.umask(umask)
    (new,) = lakes.merge(ground / "new").inserted_files
    (ground / "new" / "plain").touch()
    assert rights(new) == rights(ground / "new" / "plain")
    assert os.stat(new).st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_new_files_are_as_their_neighbours(lake: Path, mode: int) -> None:
    """Those of a lake for one group would be for all otherwise, or the other way round."""
    for path in lake.iterdir():
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, GROUP)
    (new,) = lakes.merge(lake).inserted_files
    found = os.stat(new)
    assert found.st_mode & 0o7777 == mode and found.st_uid == os.geteuid()
    assert found.st_gid == os.stat(lake / "f0.parquet").st_gid


def test_new_files_of_a_new_partition_are_as_the_others(ground: Path) -> None:
    lake, umask = ground / "lake", os.umask(0o022)
    write_lake(lake, {f"p={p}/f0.parquet": pa.table({"id": [p], "x": ["old"]}) for p in (1, 2)})
    (lake / "p=1/f0.parquet").chmod(0o640)
    (lake / "p=2/f0.parquet").chmod(0o600)
    os.umask(umask)
    found = lakes.merge(lake, pa.table({"id": [7, 8, 9], "x": ["new"] * 3, "p": [1, 2, 3]})).inserted_files
    modes = {Path(path).parent.name: os.stat(path).st_mode & 0o777 for path in found}
    assert modes == {"p=1": 0o640, "p=2": 0o600, "p=3": 0o600}


def test_new_files_have_the_acl_of_their_neighbours(lake: Path) -> None:
    for path in lake.iterdir():
        set_acl(path, ACL, for_nobody(4))
    (new,) = lakes.merge(lake).inserted_files
    assert rights(new) == rights(lake / "f4.parquet")


@pytest.mark.parametrize("partition", [1, 2])
def test_new_files_are_as_the_default_acl_of_their_folder_says(ground: Path, partition: int) -> None:
    """Also in a partition folder that is yet to be made."""
    lake = ground / "lake"
    write_lake(lake, {"p=1/f0.parquet": pa.table({"id": [0], "x": ["old"]})})
    for folder in (lake, lake / "p=1"):
        set_acl(folder, DEFAULT_ACL, for_nobody(6))
    (new,) = lakes.merge(lake, pa.table({"id": [9], "x": ["new"], "p": [partition]})).inserted_files
    (lake / f"p={partition}/plain").touch()
    assert ACL in os.listxattr(new)
    assert rights(new) == rights(lake / f"p={partition}/plain")
    (lake / f"p={partition}/plain").unlink()
    assert len(rows(lake)) == 2 and not lakes.litter(ground)


@as_root
def test_a_group_that_cannot_be_kept_gets_no_more_than_all(lake: Path) -> None:
    """Files of a group that the writer is not in: the writer's own group would get its rights."""
    for path in (lake, *lake.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    os.chown(lake / "f0.parquet", 0, GROUP)
    (lake / "f0.parquet").chmod(0o664)
    assert merge_restricted(lake, NOBODY).error is None
    assert rights(lake / "f0.parquet")[:3] == (0o644, NOBODY, NOBODY)
    assert lakes.holds(lake, lakes.NEW)


@as_root
def test_an_acl_that_cannot_be_kept_is_refused(lake: Path) -> None:
    for path in (lake, *lake.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    os.chown(lake / "f0.parquet", 0, GROUP)
    set_acl(lake / "f0.parquet", ACL, for_nobody(6))
    before = lakes.snapshot(lake.parent)
    answer = merge_restricted(lake, NOBODY)
    assert answer.error == "StorageError"
    assert f"Cannot keep the ACL of {lake}/f0.parquet" in answer.message
    assert "setfacl -b" in answer.message and "Nothing was changed" in answer.message
    assert lakes.snapshot(lake.parent) == before


@as_root
@pytest.mark.parametrize(("mode", "expected"), [(0o640, 0o600), (0o664, 0o644), (0o604, 0o604)])
def test_new_files_of_a_group_that_cannot_be_kept_are_for_no_more_than_all(
    ground: Path, mode: int, expected: int
) -> None:
    """As the umask says, all could read the new rows of a lake that is for its group."""
    lake = Path(write_lake(ground / "lake", {"f0.parquet": pa.table({"id": [0], "x": ["old"], "p": [1]})}))
    os.chown(lake, NOBODY, NOBODY)
    os.chown(lake / "f0.parquet", NOBODY, GROUP)
    (lake / "f0.parquet").chmod(mode)
    assert merge_restricted(lake, NOBODY, partition=1).error is None
    (new,) = lake.glob("part-*")
    assert rights(new)[:3] == (expected, NOBODY, NOBODY)
    new.unlink()
    set_acl(lake / "f0.parquet", ACL, for_nobody(6))
    answer = merge_restricted(lake, NOBODY, partition=1)
    assert answer.error == "StorageError" and f"Cannot keep the ACL of {lake}/f0.parquet" in answer.message


# Compaction


def test_a_joined_file_may_be_read_by_those_who_may_read_all_of_its_files(ground: Path) -> None:
    lake = ground / "lake"
    write_lake(lake, {f"p={p}/f{n}.parquet": pa.table({"id": [10 * p + n]}) for p in (1, 2, 3) for n in range(2)})
    for name, mode in {"p=1/f0": 0o600, "p=1/f1": 0o600, "p=2/f0": 0o640, "p=2/f1": 0o604}.items():
        (lake / f"{name}.parquet").chmod(mode)
    for n in range(2):
        os.setxattr(lake / f"p=3/f{n}.parquet", "user.same", b"1")
        os.setxattr(lake / f"p=3/f{n}.parquet", "user.differs", str(n).encode())
    fsspeckit.compact(str(lake))
    modes = {str(file.relative_to(lake))[:3]: rights(file)[0] for file in lake.rglob("*.parquet")}
    assert modes == {"p=1": 0o600, "p=2": 0o600, "p=3": 0o644}
    (third,) = (lake / "p=3").iterdir()
    assert rights(third)[3] == {"user.same": b"1"}


def test_a_small_file_that_takes_new_rows_stays_private(ground: Path) -> None:
    lake = ground / "lake"
    write_lake(lake, {"f.parquet": pa.table({"id": [1]})})
    (lake / "f.parquet").chmod(0o600)
    fsspeckit.merge(pa.table({"id": [2]}), str(lake), key_columns=["id"], small_files="append")
    (file,) = lake.iterdir()
    assert rights(file)[0] == 0o600


@as_root
def test_files_of_several_owners_are_not_joined(ground: Path) -> None:
    lake = ground / "lake"
    write_lake(lake, {f"f{n}.parquet": pa.table({"id": [n]}) for n in range(6)})
    for n in (0, 1):
        os.chown(lake / f"f{n}.parquet", NOBODY, GROUP)
        (lake / f"f{n}.parquet").chmod(0o600)
        set_acl(lake / f"f{n + 2}.parquet", ACL, for_nobody(4))
    owned, shared = rights(lake / "f0.parquet"), rights(lake / "f2.parquet")
    assert fsspeckit.plan_compact(str(lake)).files_after == 3
    assert fsspeckit.compact(str(lake)).files_after == 3
    found = {file.name[:2]: rights(file) for file in lake.iterdir()}
    assert (found["f0"], found["f2"], found["f4"][:3]) == (owned, shared, (0o644, 0, 0))
    assert fsspeckit.compact(str(lake)).commits == 0


# Undo


AS_USER = """
import os, sys, tempfile, pyarrow as pa, fsspeckit as fk
def add(n, lake, **options): return fk.merge(pa.table({"id": [n]}), lake, key_columns=["id"], **options)
def run(lake):
    fk.history(lake) and print(fk.undo(lake).operation)
with tempfile.TemporaryDirectory() as folder:  # imports all that is needed
    warm = folder + "/lake"
    add(0, warm), add(1, warm), add(2, warm, undoable=True), fk.compact(warm), fk.delete(warm, filters=[("id", "=", 1)])
    fk.history(warm, keep=0), add(3, warm, undoable=True), run(warm)
os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[2])), os.umask(0o002)
lake = sys.argv[3]
try:
    print(eval(sys.argv[4]))
except fk.FsspeckitError as error:
    print(error)
"""


def as_user(user: int, group: int, lake: Path, expression: str) -> str:
    """What another user sees."""
    command = [sys.executable, "-c", AS_USER, str(group), str(user), str(lake), expression]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.splitlines()[-1]


@as_root
def test_kept_files_of_one_user_do_not_stop_others(ground: Path) -> None:
    lake = ground / "lake"
    write_lake(lake, {f"f{n}.parquet": pa.table({"id": [n]}) for n in range(3)})
    ground.chmod(0o777)
    lake.chmod(0o777)
    for file in lake.iterdir():
        file.chmod(0o666)
    fsspeckit.delete(str(lake), keys=[0], key_columns=["id"], undoable=True)
    undo = ground / ".fsspeckit-lake" / "undo"
    assert as_user(NOBODY, NOBODY, lake, "add(9, lake).inserted") == "1"
    said = as_user(NOBODY, NOBODY, lake, "add(8, lake, undoable=True)")
    assert f"{undo} belongs to another user" in said
    assert as_user(NOBODY, NOBODY, lake, "fk.delete(lake, filters=[('id', '=', 1)]).kept_copies") == f"['{undo}']"
    assert "Permission denied" in as_user(NOBODY, NOBODY, lake, "fk.history(lake)")
    assert as_user(NOBODY, NOBODY, lake, "fk.compact(lake).rows") == "2"
    assert as_user(NOBODY, NOBODY, ground / "other", "add(1, lake, undoable=True).inserted") == "1"
    assert sorted(row["id"] for row in rows(lake)) == [2, 9]
    assert len(fsspeckit.history(str(lake), keep=0)) == 0 and not (ground / ".fsspeckit-lake").exists()


@as_root
def test_a_group_that_shares_a_data_set_shares_its_undo(ground: Path) -> None:
    lake = ground / "shared" / "lake"
    write_lake(lake, {"f.parquet": pa.table({"id": [1]})})
    for path in (lake.parent, lake, lake / "f.parquet"):
        os.chown(path, 1001, GROUP)
        path.chmod(0o2770 if path.is_dir() else 0o660)
    before = rows(lake)
    assert as_user(1001, GROUP, lake, "add(2, lake, undoable=True).inserted") == "1"
    assert as_user(1002, GROUP, lake, "add(3, lake, undoable=True).inserted") == "1"
    assert as_user(1002, GROUP, lake, "fk.undo(lake).operation, fk.undo(lake).operation") == "('upsert', 'upsert')"
    assert rows(lake) == before
