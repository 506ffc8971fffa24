"""Commits that only remove files, and the partition folders that removals leave empty."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crash import lakes
from crash.dying import Server, remove_files
from crash.test_recovery import fail
from fsspeckit.api import recover
from fsspeckit.core.commit.apply import ApplyJournal
from fsspeckit.core.commit.session import writing
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.storage import Access, LocalStorage
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names, rows, write_lake

# `remove_files` removes everything in y=1, and y=2/m=1/f1.parquet. Two files stay.
FILES = ("y=1/m=1/f0", "y=1/m=1/f1", "y=1/m=2/f0", "y=2/m=1/f0", "y=2/m=1/f1", "y=2/m=2/f0")
KEPT = ["y=2/m=1/f0.parquet", "y=2/m=2/f0.parquet"]
KEPT_NAMES = ["y=2", "y=2/m=1", "y=2/m=1/f0.parquet", "y=2/m=2", "y=2/m=2/f0.parquet"]
OLD = set(range(len(FILES)))
NEW = {3, 5}


def make(lake: Path) -> Path:
    write_lake(lake, {f"{name}.parquet": pa.table({"id": [i]}) for i, name in enumerate(FILES)})
    return lake


def ids(lake: Path) -> set[int]:
    found = [row["id"] for row in rows(lake)]
    assert len(set(found)) == len(found)
    return set(found)


def check_removed(lake: Path) -> None:
    assert ids(lake) == NEW
    assert all_names(lake) == KEPT_NAMES
    assert not lakes.litter(lake.parent)


def record(lake: Path, removed: int = 0) -> None:
    """Commit, and stop once some files are removed, at the latest when all are and no folder is."""
    with pytest.MonkeyPatch.context() as patched:
        fail(patched, "remove", lambda path: path.endswith(".parquet"), after=removed)
        fail(patched, "remove_folder", lambda path: "=" in path)
        with pytest.raises(CommitUnfinishedError, match=r"recorded; do not repeat it.*Input/output error"):
            remove_files(str(lake))
    assert list(lake.glob(".fsspeckit-commit-*"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make(tmp_path / "lake")


# Killed between any two steps


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_killed_at_every_storage_call(server: Server, ground: Path) -> None:
    template, lake = make(ground / "template"), ground / "lake"
    shutil.copytree(template, lake)
    labels, outcomes = server.points("remove", lake), set()
    check_removed(lake)
    assert {label for label in labels if label.startswith("remove_folder y=")} == {
        *("remove_folder y=1/m=1", "remove_folder y=1/m=2", "remove_folder y=2/m=1"),
    }
    for point, label in enumerate(labels):
        shutil.rmtree(lake)
        shutil.copytree(template, lake)
        assert server.run("remove", lake, point), f"was not killed at {label}"
        is_recorded = bool(list(lake.glob(".fsspeckit-commit-*")))
        assert ids(lake) >= NEW, f"killed at {label}"
        recover(str(lake))
        assert ids(lake) in (OLD, NEW), f"killed at {label}"
        assert ids(lake) == NEW or not is_recorded, f"killed at {label}: a recorded commit was lost"
        assert all_names(lake) == (KEPT_NAMES if ids(lake) == NEW else all_names(template)), f"killed at {label}"
        assert not lakes.litter(ground), f"killed at {label}"
        outcomes.add(len(ids(lake)))
    assert outcomes == {len(OLD), len(NEW)}


@pytest.mark.parametrize("done", [0, 2, 4])
def test_recovery_killed_at_every_storage_call(server: Server, ground: Path, done: int) -> None:
    record(make(ground / "a/lake"), removed=done)
    subprocess.run(["cp", "-a", ground / "a", ground / "template"], check=True)
    labels = server.points("recover", ground / "a/lake")
    check_removed(ground / "a/lake")
    for point, label in enumerate(labels):
        shutil.rmtree(ground / "a")
        subprocess.run(["cp", "-a", ground / "template", ground / "a"], check=True)
        assert server.run("recover", ground / "a/lake", point), f"was not killed at {label}"
        recover(str(ground / "a/lake"))
        check_removed(ground / "a/lake")


# The protocol without additions


@pytest.mark.parametrize("removed", [0, 2, 4])
@pytest.mark.parametrize("finish", [False, True])
def test_recover_says_what_it_did(lake: Path, removed: int, finish: bool) -> None:
    record(lake, removed)
    (said,) = recover(str(lake), finish=finish)
    assert said.endswith(": 0 file(s) put in place, 4 removed")
    assert recover(str(lake)) == []
    check_removed(lake)


def test_to_discard_before_anything_was_removed(lake: Path) -> None:
    before = lakes.snapshot(lake.parent)
    record(lake)
    (said,) = recover(str(lake), discard=True)
    assert said.endswith(": no file was touched")
    assert lakes.snapshot(lake.parent) == before


def test_to_discard_when_files_were_removed(lake: Path) -> None:
    """They cannot be restored. There are no new files, so the text says nothing of rows that stand twice."""
    record(lake, removed=2)
    (said,) = recover(str(lake), discard=True)
    assert said.endswith(
        ": 2 of its 4 file(s) had been removed already, and could not be restored: y=1/m=1/f0.parquet, "
        "y=1/m=1/f1.parquet; as before are y=1/m=2/f0.parquet, y=2/m=1/f1.parquet"
    )
    assert ids(lake) == OLD - {0, 1}
    assert not (lake / "y=1/m=1").exists()
    assert not lakes.litter(lake.parent)


def test_a_file_that_another_program_replaced_stays(lake: Path) -> None:
    record(lake, removed=1)
    pq.write_table(pa.table({"id": [7777, 8888]}), lake / "y=1/m=2/f0.parquet")
    with pytest.raises(CommitUnfinishedError, match=r"y=1/m=2/f0\.parquet: to be removed, expected .*--finish"):
        recover(str(lake))
    assert 7777 in ids(lake)
    recover(str(lake), finish=True)
    check_removed(lake)


def _unmarked(lake: Path) -> None:
    next(lake.glob(".fsspeckit-commit-*")).rmdir()


def test_a_journal_without_a_marker(lake: Path) -> None:
    """Half applied, it is reported; the marker was removed by hand, or `--discard` was interrupted."""
    record(lake, removed=2)
    _unmarked(lake)
    with pytest.warns(UserWarning, match=r"half done, and the data set has no marker.*--discard .*--finish"):
        assert recover(str(lake)) == []
    assert recover(str(lake), finish=True)
    check_removed(lake)


def _copy_keeping_times(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


def _copy_with_new_times(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=shutil.copyfile)


@pytest.mark.parametrize("copy", [_copy_keeping_times, _copy_with_new_times])
def test_a_finished_commit_in_a_copy_of_the_whole_tree(tmp_path: Path, copy: Callable[[Path, Path], None]) -> None:
    """Its writer died before it removed the journal. Files that are missing do not show that the copy is one."""
    lake = make(tmp_path / "a/lake")
    with pytest.MonkeyPatch.context() as patched:
        fail(patched, "remove", lambda path: path.endswith("/journal.json"))
        remove_files(str(lake))
    assert lakes.litter(tmp_path / "a")
    copy(tmp_path / "a", tmp_path / "b")
    for parent in ("a", "b"):
        assert recover(str(tmp_path / parent / "lake"))[0].startswith("removed the unfinished work in ")
        check_removed(tmp_path / parent / "lake")


@pytest.mark.parametrize("removed", [0, 2, 4])
def test_a_recorded_commit_in_a_copy_of_the_whole_tree(tmp_path: Path, removed: int) -> None:
    record(make(tmp_path / "a/lake"), removed)
    _copy_keeping_times(tmp_path / "a", tmp_path / "b")
    for parent in ("a", "b"):
        assert recover(str(tmp_path / parent / "lake"))
        check_removed(tmp_path / parent / "lake")


@pytest.mark.parametrize("removed", [0, 2, 4])
def test_another_data_set_under_the_old_name(tmp_path: Path, removed: int) -> None:
    """It has none of the files that are to be removed, which proves nothing: the moved folder needs the journal."""
    lake, moved = make(tmp_path / "lake"), tmp_path / "lake_old"
    record(lake, removed)
    lake.rename(moved)
    write_lake(lake, {"y=2/m=1/f0.parquet": pa.table({"id": [9], "other": ["column"]})})
    with pytest.warns(UserWarning, match=r"commit for another folder.*was not changed"):
        assert recover(str(lake)) == []
    assert recover(str(moved))
    assert ids(moved) == NEW and ids(lake) == {9}
    assert not lakes.litter(tmp_path)


def test_inodes_that_a_mount_made_up(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files have other inodes than the journal says. The commit has no files of its own that would show it."""

    def fails(applier: ApplyJournal, inode: int) -> None:
        raise OSError("unplugged")

    with monkeypatch.context() as patched:
        patched.setattr(ApplyJournal, "apply", fails)
        with pytest.raises(CommitUnfinishedError):
            remove_files(str(lake))
    (path,) = lake.parent.glob(".fsspeckit-lake/.staging_*/journal.json")
    journal = json.loads(path.read_text())
    assert [file["path"] for file in journal["unchanged"]] == KEPT
    for state in [entry["before"] for entry in journal["removals"]] + [f["state"] for f in journal["unchanged"]]:
        state["inode"] += 1_000_000
    path.write_text(json.dumps(journal))
    recover(str(lake))
    check_removed(lake)


# Partition folders


def _remove(lake: Path | str, *names: str, filesystem: Any = None) -> None:
    location = Access(filesystem).locate(str(lake))
    with writing(location) as session:
        infos = list_files(location)
        session.commit([], [info for info in infos if info.path in names], infos)


def test_a_commit_that_replaces_files_removes_empty_partitions_too(tmp_path: Path) -> None:
    table = pa.table({"id": [1]})
    lake = write_lake(tmp_path / "lake", {"p=1/f.parquet": table, "p=2/f.parquet": table})
    source = pa.table({"id": [5], "p": [2]})
    PyArrowDatasetIO().write_dataset(source, str(lake), mode="overwrite", partition_columns=["p"])
    assert sorted(path.name for path in Path(lake).iterdir()) == ["p=2"]


@pytest.mark.parametrize("name", ["_SUCCESS", ".hidden", ".other.parquet.crc", "notes.txt", "folder/file", "m=1"])
def test_a_folder_that_holds_anything_else_stays(tmp_path: Path, name: str) -> None:
    table = pa.table({"id": [1]})
    lake = write_lake(tmp_path / "lake", {"y=1/f.parquet": table, "y=2/f.parquet": table})
    other = Path(lake) / "y=1" / name
    other.parent.mkdir(exist_ok=True)
    if name == "m=1":
        other.mkdir()
    else:
        other.write_text("mine")
    _remove(lake, "y=1/f.parquet")
    assert other.exists() and (other.is_dir() or other.read_text() == "mine")
    assert not (Path(lake) / "y=1/f.parquet").exists()
    assert not lakes.litter(tmp_path)


def test_checksums_do_not_keep_a_folder(tmp_path: Path) -> None:
    table = pa.table({"id": [1]})
    lake = write_lake(tmp_path / "lake", {"y=1/f.parquet": table, "y=2/f.parquet": table})
    (Path(lake) / "y=1/.f.parquet.crc").write_bytes(b"crc")
    _remove(lake, "y=1/f.parquet")
    assert not (Path(lake) / "y=1").exists()


@pytest.mark.parametrize("folder", ["data", "data/y=1/part", "=1"])
def test_folders_that_are_no_partitions_stay(tmp_path: Path, folder: str) -> None:
    table = pa.table({"id": [1]})
    lake = write_lake(tmp_path / "lake", {f"{folder}/f.parquet": table, "f.parquet": table})
    _remove(lake, f"{folder}/f.parquet")
    assert (Path(lake) / folder).is_dir()


def test_the_folder_above_a_partition_stays_if_it_is_none(tmp_path: Path) -> None:
    table = pa.table({"id": [1]})
    lake = write_lake(tmp_path / "lake", {"data/y=1/m=1/f.parquet": table, "f.parquet": table})
    _remove(lake, "data/y=1/m=1/f.parquet")
    assert all_names(lake) == ["data", "f.parquet"]


def test_the_data_set_itself_stays(tmp_path: Path) -> None:
    """Its folder may be named like a partition."""
    lake = write_lake(tmp_path / "y=1", {"f.parquet": pa.table({"id": [1]})})
    _remove(lake, "f.parquet")
    assert all_names(tmp_path) == ["y=1"]


def test_a_link_stays(tmp_path: Path) -> None:
    table = pa.table({"id": [1]})
    lake = Path(write_lake(tmp_path / "lake", {"y=1/m=1/f.parquet": table, "f.parquet": table}))
    (lake / "y=1").rename(lake / ".store")
    (lake / "y=1").symlink_to(".store")
    _remove(lake, "y=1/m=1/f.parquet")
    assert (lake / "y=1").is_symlink()
    assert all_names(lake) == [".store", "f.parquet", "y=1"]


def test_a_file_that_another_program_makes_at_that_moment(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LocalStorage.remove_folder

    def late(storage: LocalStorage, path: str) -> None:
        if path.endswith("y=1/m=2"):
            Path(path, "foreign.parquet").write_bytes(b"mine")
        original(storage, path)

    monkeypatch.setattr(LocalStorage, "remove_folder", late)
    remove_files(str(lake))
    assert (lake / "y=1/m=2/foreign.parquet").read_bytes() == b"mine"
    assert not (lake / "y=1/m=1").exists()
    assert not lakes.litter(lake.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_a_folder_that_may_not_be_removed_stays(ground: Path) -> None:
    """Its files are this user's to remove, the folder above is not. The data set is right all the same."""
    table = pa.table({"id": [1]})
    lake = Path(write_lake(ground / "lake", {"y=1/m=1/f.parquet": table, "f.parquet": table}))
    for path in (ground, lake, lake / "y=1/m=1", lake / "y=1/m=1/f.parquet", lake / "f.parquet"):
        os.chown(path, 65534, 65534)
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            _remove(lake, "y=1/m=1/f.parquet")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all_names(lake) == ["f.parquet", "y=1", "y=1/m=1"]
    assert not lakes.litter(ground)


def test_an_error_of_the_disk_is_not_passed_over(lake: Path) -> None:
    """The commit is finished later, and so are the folders."""
    with pytest.MonkeyPatch.context() as patched:
        fail(patched, "remove_folder", lambda path: path.endswith("m=2"))
        with pytest.raises(CommitUnfinishedError, match="Input/output error"):
            remove_files(str(lake))
    assert (lake / "y=1/m=2").is_dir() and not (lake / "y=1/m=2/f0.parquet").exists()
    recover(str(lake))
    check_removed(lake)


def test_what_is_made_durable(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders above removed ones are synced before the marker goes."""
    calls: list[str] = []
    for name in ("sync_folder", "remove_folder"):
        original = getattr(LocalStorage, name)

        def call(storage: LocalStorage, path: str, name: str = name, original: Any = original) -> None:
            calls.append(f"{name} {Path(path).relative_to(lake.parent)}")
            original(storage, path)

        monkeypatch.setattr(LocalStorage, name, call)
    remove_files(str(lake))
    removed = len(calls) - 1 - calls[::-1].index("remove_folder lake/y=1")  # it was tried when it held m=2, too
    marker = next(i for i, call in enumerate(calls) if call.startswith("remove_folder lake/.fsspeckit-commit-"))
    assert calls.index("remove_folder lake/y=1/m=1") < calls.index("remove_folder lake/y=1/m=2") < removed
    assert sorted(calls[removed + 1 : marker]) == [
        "remove_folder lake/y=2/m=1",
        "sync_folder lake",
        "sync_folder lake/y=2/m=1",
    ]


def test_a_file_system_of_fsspec() -> None:
    memory = fsspec.filesystem("memory", skip_instance_cache=True)
    for folder in ("y=1/m=1", "y=1/m=2", "y=2/m=1"):
        memory.makedirs(f"/removals/lake/{folder}", exist_ok=True)
        with memory.open(f"/removals/lake/{folder}/f.parquet", "wb") as file:
            pq.write_table(pa.table({"id": [1]}), file)
    memory.pipe_file("/removals/lake/y=2/_SUCCESS", b"")
    try:
        _remove("/removals/lake", "y=1/m=1/f.parquet", "y=1/m=2/f.parquet", filesystem=memory)
        assert memory.find("/removals", withdirs=True) == [
            "/removals",
            *("/removals/lake", "/removals/lake/y=2", "/removals/lake/y=2/_SUCCESS"),
            *("/removals/lake/y=2/m=1", "/removals/lake/y=2/m=1/f.parquet"),
        ]
    finally:
        memory.rm("/removals", recursive=True)
