"""A recorded commit, and what may happen to the folder before it is finished: failing calls, moves, copies, mounts,
foreign programs. Recovery carries out what fits, and where something does not fit it changes nothing and says so."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crash import lakes
from fsspeckit.api import recover
from fsspeckit.core.errors import ArgumentError, CommitUnfinishedError, StorageError, TargetError
from fsspeckit.core.storage import LocalStorage
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.report.inspection import inspect
from support import rows

ONE = pa.table({"id": [1000], "x": ["later"]})
ALL_NEW = {0: "new", 10: "new", 20: "new", 99: "new"}


def _into_data(source: str, target: str) -> bool:
    return target.endswith(".parquet")


def fail(
    patched: pytest.MonkeyPatch, method: str, when: Callable[..., bool], after: int = 0, code: int = errno.EIO
) -> None:
    """Let a call of the storage fail where `when` says so, but for the first few times."""
    original, seen = getattr(LocalStorage, method), [0]

    def call(storage: LocalStorage, *arguments: Any) -> Any:
        if when(*arguments):
            seen[0] += 1
            if seen[0] > after:
                raise OSError(code, os.strerror(code), arguments[0])
        return original(storage, *arguments)

    patched.setattr(LocalStorage, method, call)


def record(lake: Path, done: int = 0, **options: Any) -> None:
    """Merge, and stop once the commit is recorded and some of its files are in place."""
    with pytest.MonkeyPatch.context() as patched:
        fail(patched, "rename", _into_data, after=done)
        with pytest.raises(CommitUnfinishedError, match=r"recorded; do not repeat it.*Input/output error"):
            lakes.merge(lake, **options)
    assert list(lake.glob(".fsspeckit-commit-*"))


def overwrite(file: Path) -> None:
    pq.write_table(pa.table({"id": [7777], "x": ["foreign"]}), file)


def check_refused(lake: Path, message: str) -> None:
    """Neither a merge nor a recovery does anything, and both say the same."""
    before = lakes.snapshot(lake.parent)
    for write in (lambda: lakes.merge(lake, ONE), lambda: recover(str(lake))):
        with pytest.raises(CommitUnfinishedError, match=message):
            write()
    assert lakes.snapshot(lake.parent) == before


def check_whole(lake: Path, expected: dict[int, str]) -> None:
    assert lakes.holds(lake, expected)
    assert not lakes.litter(lake.parent)


# The first commit


@pytest.mark.parametrize("finish", [lambda lake: recover(str(lake)), lambda lake: lakes.merge(lake, ONE.slice(0, 0))])
def test_the_first_commit_to_a_new_data_set_is_kept(tmp_path: Path, finish: Callable[[Path], object]) -> None:
    record(tmp_path / "lake")
    assert rows(tmp_path / "lake") == []
    finish(tmp_path / "lake")
    check_whole(tmp_path / "lake", ALL_NEW)


# Moves


def test_another_data_set_under_the_old_name(tmp_path: Path) -> None:
    lake, moved = lakes.make(tmp_path / "lake"), tmp_path / "lake_old"
    record(lake, done=1)
    lake.rename(moved)
    lake.mkdir()
    with pytest.warns(
        UserWarning, match=r"commit for another folder.*not changed.*run `fsspeckit recover` on it where"
    ):
        lakes.merge(lake, ONE)
    assert lakes.holds(lake, {1000: "later"})
    lakes.merge(moved, ONE)  # the marker went with it, and its journal is found
    check_whole(moved, lakes.NEW | {1000: "later"})
    assert lakes.holds(lake, {1000: "later"})


def test_a_folder_that_was_renamed(tmp_path: Path) -> None:
    record(lakes.make(tmp_path / "lake"), done=2, replace="new_file")
    (tmp_path / "lake").rename(tmp_path / "renamed")
    assert len(recover(str(tmp_path / "renamed"))) == 1
    check_whole(tmp_path / "renamed", lakes.NEW)


def test_a_folder_that_was_moved_away_from_its_journal(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    record(lakes.make(tmp_path / "here/lake"), done=1)
    shutil.move(tmp_path / "here/lake", tmp_path / "there/lake")
    check_refused(tmp_path / "there/lake", r"marker of an unfinished commit.*was moved, copied or mounted.*--discard")
    with pytest.warns(UserWarning, match="unfinished commit"):
        PyArrowDatasetIO().read(str(tmp_path / "there/lake"))
    with pytest.warns(UserWarning, match=r"move .*here/\.fsspeckit-lake to the same parent"):
        lakes.merge(tmp_path / "here/lake", ONE)  # another one
    shutil.move(tmp_path / "here/.fsspeckit-lake", tmp_path / "there/.fsspeckit-lake")
    lakes.merge(tmp_path / "there/lake", ONE)
    check_whole(tmp_path / "there/lake", lakes.NEW | {1000: "later"})


def test_a_folder_that_was_moved_back(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    record(lakes.make(tmp_path / "lake"), done=1)
    shutil.move(tmp_path / "lake", tmp_path / "there/lake")
    shutil.move(tmp_path / "there/lake", tmp_path / "lake")
    lakes.merge(tmp_path / "lake", ONE)
    check_whole(tmp_path / "lake", lakes.NEW | {1000: "later"})


def test_a_folder_that_is_replaced_while_a_merge_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()

    def swap() -> None:
        lake.rename(tmp_path / "lake_old")
        lake.mkdir()

    lakes.after(monkeypatch, "insert", swap)
    with pytest.raises(Exception, match=r"was moved or replaced while the merge was running; nothing was changed"):
        lakes.merge(lake)
    assert rows(lake) == rows(tmp_path / "lake_old") == []


def test_staging_of_a_living_writer_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder was moved, and another writer works on the one that took its name."""
    lake = lakes.make(tmp_path / "lake")

    def swap() -> None:
        monkeypatch.undo()
        lake.rename(tmp_path / "moved")
        lakes.merge(lakes.make(lake), ONE)
        assert list(tmp_path.glob(".fsspeckit-lake/.staging_*/file-*"))
        shutil.rmtree(lake)
        (tmp_path / "moved").rename(lake)

    lakes.after(monkeypatch, "rewrite", swap)
    lakes.merge(lake)
    check_whole(lake, lakes.NEW)


def test_removals_that_are_due_in_a_folder_that_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All new files are in place, no old one is gone, and another data set has the name: the journal is not litter."""
    lake, moved = lakes.make(tmp_path / "lake"), tmp_path / "lake_old"
    with monkeypatch.context() as patched:
        fail(patched, "remove", lambda path: path.endswith(".parquet"))
        with pytest.raises(CommitUnfinishedError):
            lakes.merge(lake, replace="new_file")
    lake.rename(moved)
    lake.mkdir()
    with pytest.warns(UserWarning, match="commit for another folder"):
        lakes.merge(lake, ONE)
    assert recover(str(moved))
    check_whole(moved, lakes.NEW)


def test_a_commit_is_not_finished_in_another_folder(tmp_path: Path) -> None:
    lake, moved = lakes.make(tmp_path / "lake"), tmp_path / "lake_old"
    record(lake)
    lake.rename(moved)
    lake.mkdir()
    with pytest.warns(UserWarning, match="commit for another folder"):
        assert recover(str(lake), finish=True) == []
    assert rows(lake) == []
    recover(str(moved))
    check_whole(moved, lakes.NEW)


@pytest.mark.parametrize("copied", ["copy", "lake"])
def test_a_copy_beside_a_folder_that_was_renamed(tmp_path: Path, copied: str) -> None:
    """The journal belongs to the folder it was written for; the copy could only take it away."""
    lake, moved, copy = lakes.make(tmp_path / "lake"), tmp_path / "lake_old", tmp_path / copied
    record(lake, done=1)
    lake.rename(moved)
    subprocess.run(["cp", "-a", moved, copy], check=True)
    check_refused(copy, "on the original of this copy")
    recover(str(moved))
    assert lakes.holds(moved, lakes.NEW)
    recover(str(copy), discard=True)
    check_whole(copy, lakes.OLD | {99: "new"})


def test_a_marker_that_was_removed_by_hand(tmp_path: Path) -> None:
    lake = lakes.make(tmp_path / "lake")
    record(lake, done=1)
    next(lake.glob(".fsspeckit-commit-*")).rmdir()
    with pytest.warns(UserWarning, match=r"half done, and the data set has no marker.*--discard .*--finish"):
        assert recover(str(lake)) == []
    assert recover(str(lake), finish=True)
    check_whole(lake, lakes.NEW)


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("step", ["journal", "marker", "first", "last"])
def test_a_folder_that_is_moved_while_a_commit_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, mode: Any, replaced: bool
) -> None:
    """Its files neither go to the folder that took its name nor make a new one."""
    lake, moved = lakes.make(tmp_path / "lake"), tmp_path / "moved"
    call = LocalStorage.make_folder if step == "marker" else LocalStorage.rename
    last = {"journal": "journal.json", "marker": "-commit-", "first": "-00000.parquet", "last": "-00003.parquet"}[step]

    def move(storage: LocalStorage, *paths: str) -> Any:
        result = call(storage, *paths)
        if last in paths[-1] and not moved.exists():
            lake.rename(moved)
            if replaced:
                lake.mkdir()
        return result

    rows_of = {1000 + i: "later" for i in range(10)}
    source = pa.table({"id": list(rows_of), "x": list(rows_of.values())})
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, call.__name__, move)
        with pytest.raises(
            Exception, match=r"was moved or replaced (while|in the meantime)|recorded; do not repeat it"
        ):
            PyArrowDatasetIO().write_dataset(source, str(lake), mode=mode, max_rows_per_file=3)
    assert not lake.exists() or not list(lake.iterdir())
    recover(str(moved))
    done = rows_of | (lakes.OLD if mode == "append" else {})
    check_whole(moved, lakes.OLD if step == "journal" else done)


# Copies


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
@pytest.mark.parametrize("done", [0, 2, 3])
def test_a_copy_of_the_whole_tree_that_keeps_times(tmp_path: Path, replace: Any, done: int) -> None:
    record(lakes.make(tmp_path / "a/lake"), done, replace=replace)
    subprocess.run(["cp", "-a", tmp_path / "a", tmp_path / "b"], check=True)
    for parent in ("a", "b"):
        assert recover(str(tmp_path / parent / "lake"))
        check_whole(tmp_path / parent / "lake", lakes.NEW)


@pytest.mark.parametrize("done", [0, 2])
@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_a_copy_of_the_whole_tree_with_new_times(tmp_path: Path, replace: Any, done: int) -> None:
    """Nobody knows whether the files are what the commit expects. Nothing is done until the user decides."""
    record(lakes.make(tmp_path / "a/lake"), done, replace=replace)
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    copy = tmp_path / "b/lake"
    check_refused(copy, r"f2\.parquet: to be .*Existing files were not overwritten.*--finish.*recover --discard")
    assert recover(str(copy), finish=True)
    check_whole(copy, lakes.NEW)
    recover(str(tmp_path / "a/lake"))
    check_whole(tmp_path / "a/lake", lakes.NEW)


def test_a_copy_of_the_folder_alone(tmp_path: Path) -> None:
    record(lakes.make(tmp_path / "lake"), done=1)
    (tmp_path / "backup").mkdir()
    for copy in (tmp_path / "backup/lake", tmp_path / "copy"):
        shutil.copytree(tmp_path / "lake", copy)
        check_refused(copy, r"if it is a copy, on the original of this copy, and copy again")
        (said,) = recover(str(copy), discard=True)
        assert "the files stay as they are" in said
        assert lakes.holds(copy, lakes.OLD | {99: "new"})
        lakes.merge(copy, ONE)
    recover(str(tmp_path / "lake"))
    assert lakes.holds(tmp_path / "lake", lakes.NEW)


# One folder under two paths


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """The lake's folder a second time, under another parent."""
    lakes.make(tmp_path / "host/lake")
    (tmp_path / "container/data").mkdir(parents=True)
    command = ["mount", "--bind", str(tmp_path / "host/lake"), str(tmp_path / "container/data")]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a bind mount needs root and a kernel that lets it")
    yield tmp_path / "container/data"
    subprocess.run(["umount", str(tmp_path / "container/data")], check=True)


def test_a_folder_that_is_mounted_twice(tmp_path: Path, mounted: Path) -> None:
    lake = tmp_path / "host/lake"
    record(lake, done=1)
    check_refused(mounted, r"marker of an unfinished commit.*mounted here")
    lakes.merge(lake, ONE)
    check_whole(lake, lakes.NEW | {1000: "later"})
    lakes.merge(mounted, pa.table({"id": [0], "x": ["container"]}))
    check_whole(lake, lakes.NEW | {1000: "later", 0: "container"})
    record(mounted)  # staged inside, where both see it
    lakes.merge(lake, ONE)
    check_whole(lake, lakes.NEW | {1000: "later"})


# Foreign programs


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_what_is_newer_is_not_overwritten(tmp_path: Path, replace: Any) -> None:
    lake = lakes.make(tmp_path / "lake")
    record(lake, replace=replace)
    overwrite(lake / "f1.parquet")
    check_refused(lake, r"f1\.parquet: to be .* bytes of .*, is [\d,]+ bytes of .*recover --finish")
    foreign = {k: x for k, x in lakes.OLD.items() if k not in range(10, 14)} | {7777: "foreign"}
    (said,) = recover(str(lake), discard=True)
    assert said.endswith("no file was touched")
    check_whole(lake, foreign)


def test_a_file_of_the_same_size_and_time_is_another(tmp_path: Path) -> None:
    """As a program leaves it that copies times: only the inode tells."""
    lake = lakes.make(tmp_path / "lake")
    record(lake)
    subprocess.run(["cp", "-p", lake / "f1.parquet", tmp_path / "copy"], check=True)
    (tmp_path / "copy").rename(lake / "f1.parquet")
    check_refused(lake, r"f1\.parquet: to be written over .*, is [\d,]+ bytes")


def test_to_finish_all_the_same(tmp_path: Path) -> None:
    lake = lakes.make(tmp_path / "lake")
    record(lake, done=1)
    overwrite(lake / "f1.parquet")
    (lake / "f2.parquet").unlink()
    assert recover(str(lake), finish=True)[0].endswith(": 4 file(s) put in place, 0 removed")
    check_whole(lake, lakes.NEW)


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
@pytest.mark.parametrize("name", ["f0.parquet", "f1.parquet"])
def test_a_file_that_changes_between_the_check_and_its_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, replace: Any
) -> None:
    """The window is as small as one file's own step."""
    lake, make_folder = lakes.make(tmp_path / "lake"), LocalStorage.make_folder

    def change(storage: LocalStorage, path: str) -> list[str]:
        if "-commit-" in path:
            overwrite(lake / name)
        return make_folder(storage, path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "make_folder", change)
        with pytest.raises(
            CommitUnfinishedError, match=rf"recorded, but .*{name}: to be (written|removed).*, is .* by"
        ):
            lakes.merge(lake, replace=replace)
    assert {"id": 7777, "x": "foreign"} in rows(lake)


def test_staged_files_that_are_gone(tmp_path: Path) -> None:
    """Only one way out is left, and only that one is named; the shell can take it as it stands."""
    lake = lakes.make(tmp_path / "a lake")
    record(lake)
    next(tmp_path.glob(".fsspeckit-a lake/.staging_*/file-00001")).unlink()
    check_refused(lake, rf"f1\.parquet: expected the .*--finish '{lake}'.*--discard '{lake}'")
    with pytest.raises(CommitUnfinishedError, match=r"which is gone.*files, then run `fsspeckit recover --discard"):
        recover(str(lake), finish=True)
    recover(str(lake), discard=True)
    check_whole(lake, lakes.OLD)


def test_half_of_it_stays(tmp_path: Path) -> None:
    lake = lakes.make(tmp_path / "lake")
    record(lake, done=2)
    (said,) = recover(str(lake), discard=True)
    words = r"half of it stays: new are part-\S+, f0\.parquet; removed are none; as before are f1\.parquet, f2\.parquet"
    assert re.search(words, said)
    check_whole(lake, lakes.OLD | {99: "new", 0: "new"})


def test_new_files_are_taken_back(tmp_path: Path) -> None:
    """No old file is gone yet: the data set is as it was."""
    lake = lakes.make(tmp_path / "lake")
    before = lakes.snapshot(tmp_path)
    record(lake, done=2, replace="new_file")
    (said,) = recover(str(lake), discard=True)
    assert said.endswith("2 new file(s) removed again, no other file was changed")
    assert lakes.snapshot(tmp_path) == before


def test_new_files_are_taken_back_in_a_copy_with_new_times(tmp_path: Path) -> None:
    """Their names are theirs alone, and their size fits; else each key would stand twice."""
    record(lakes.make(tmp_path / "a/lake"), done=2, replace="new_file")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    (said,) = recover(str(tmp_path / "b/lake"), discard=True)
    assert said.endswith("2 new file(s) removed again, no other file was changed")
    check_whole(tmp_path / "b/lake", lakes.OLD)


def test_keys_that_stand_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some old files are gone already, others are not: the message says so."""
    lake = lakes.make(tmp_path / "lake")
    with monkeypatch.context() as patched:
        fail(patched, "remove", lambda path: path.endswith(".parquet"), after=1)
        with pytest.raises(CommitUnfinishedError):
            lakes.merge(lake, replace="new_file")
    (said,) = recover(str(lake), discard=True)
    assert "removed are f0.parquet; as before are f1.parquet, f2.parquet, whose rows may also be in new files" in said


def test_one_way_or_the_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="finished or discarded, not both"):
        recover(str(tmp_path), finish=True, discard=True)


# Data sets inside data sets


def test_no_writer_inside_while_a_commit_above_is_unfinished(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lakes.make(lake / "p=1")
    lakes.merge(lake, pa.table({"id": [5000], "x": ["other"], "p": [2]}))
    with pytest.MonkeyPatch.context() as patched:
        fail(patched, "rename", _into_data)
        with pytest.raises(CommitUnfinishedError):
            lakes.merge(lake, pa.table({"id": [0], "x": ["outer"], "p": [1]}))
    before = lakes.snapshot(tmp_path)
    for inner in (lake / "p=1", lake / "p=2"):
        with pytest.raises(CommitUnfinishedError, match=rf"{lake}, a data set above .*Run `fsspeckit recover {lake}`"):
            lakes.merge(inner, ONE)
    assert lakes.snapshot(tmp_path) == before
    recover(str(lake))
    lakes.merge(lake / "p=1", ONE)
    assert lakes.holds(lake / "p=1", lakes.OLD | {0: "outer", 1000: "later"})


def test_no_writer_outside_while_a_commit_inside_is_unfinished(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    record(lakes.make(lake / "p=1"), done=1)
    before = lakes.snapshot(tmp_path)
    with pytest.raises(CommitUnfinishedError, match=r"lake/p=1, a data set inside .*Run `fsspeckit recover .*p=1`"):
        lakes.merge(lake, pa.table({"id": [0], "x": ["outer"], "p": [1]}))
    with pytest.warns(UserWarning, match=r"unfinished commit.*p=1"):
        PyArrowDatasetIO().read(str(lake))
    assert lakes.snapshot(tmp_path) == before
    recover(str(lake / "p=1"))
    assert lakes.merge(lake, pa.table({"id": [0], "x": ["outer"], "p": [1]})).updated == 1


# Calls that fail


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_failed_append_is_not_applied_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    """The journal's folder cannot be synced and nothing can be cleared away; the caller tries again."""
    lake = lakes.make(tmp_path / "lake")

    def append() -> object:
        return PyArrowDatasetIO().write_dataset(ONE, str(lake), mode=mode)

    with monkeypatch.context() as patched:
        fail(patched, "sync_folder", lambda path: path.endswith(".fsspeckit-lake"))
        fail(patched, "remove", lambda path: "probe" not in path)
        with pytest.raises(StorageError, match=r"Input/output error.*Nothing was changed") as raised:
            append()
    assert raised.value.errno == errno.EIO
    append()
    check_whole(lake, {1000: "later"} | (lakes.OLD if mode == "append" else {}))


def test_an_append_that_is_recorded_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lakes.make(tmp_path / "lake")
    with monkeypatch.context() as patched:
        fail(patched, "sync_folder", lambda path: path.endswith("/lake"))
        with pytest.raises(CommitUnfinishedError, match="recorded; do not repeat it"):
            PyArrowDatasetIO().write_dataset(ONE, str(lake), mode="append")
    recover(str(lake))
    check_whole(lake, lakes.OLD | {1000: "later"})


def test_a_marker_that_cannot_be_made_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lakes.make(tmp_path / "lake")
    before = lakes.snapshot(tmp_path)
    with monkeypatch.context() as patched:
        fail(patched, "make_folder", lambda path: "-commit-" in path, code=errno.ENOSPC)
        with pytest.raises(StorageError, match=r"No space left.*make room.*Nothing was changed"):
            lakes.merge(lake)
    assert lakes.snapshot(tmp_path) == before


CALLS = ["walk", "stat", "names", "open_output", "make_folder", "rename", "sync_file", "sync_folder", "lock", "claim"]


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE, errno.EACCES, errno.ENOSPC, errno.ELOOP])
@pytest.mark.parametrize("method", CALLS)
def test_errors_of_the_file_system_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, code: int
) -> None:
    """Even when nothing can be cleared away, and with the number of the system's own error."""
    lake = lakes.make(tmp_path / "lake")
    before = lakes.fingerprint(lake)
    with monkeypatch.context() as patched:
        fail(patched, method, lambda *arguments: True, code=code)
        fail(patched, "remove", lambda path: "probe" not in path, code=errno.EPERM)
        with pytest.raises(StorageError, match=r"[Nn]othing was (started|changed)") as raised:
            lakes.merge(lake)
    assert os.strerror(code) in str(raised.value) and raised.value.errno == code
    assert lakes.fingerprint(lake) == before
    lakes.merge(lake)
    check_whole(lake, lakes.NEW)


LOOKS: dict[str, Callable[[str], object]] = {
    "read": lambda lake: PyArrowDatasetIO().read(lake),
    "plan": lambda lake: PyArrowDatasetIO().plan(ONE, lake, "upsert", ["id"]),
    "inspect": inspect,
    "recover": recover,
}


@pytest.mark.parametrize("method", ["present", "folders"])
@pytest.mark.parametrize("look", LOOKS)
def test_errors_of_the_file_system_for_those_who_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str, method: str
) -> None:
    lake = lakes.make(tmp_path / "lake")
    fail(monkeypatch, method, lambda *_: True, code=errno.EACCES)
    with pytest.raises(StorageError, match=rf"{lake}: .*Permission denied.* Nothing was (started|changed)") as raised:
        LOOKS[look](str(lake))
    assert raised.value.errno == errno.EACCES


@pytest.mark.parametrize("look", ["read", "plan", "inspect"])
def test_readers_need_not_see_the_staging_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """A merge under way may keep its folder to itself; the marker tells what there is to tell."""
    lake = lakes.make(tmp_path / "lake")
    record(lake)
    fail(monkeypatch, "names", lambda path: path.endswith(".fsspeckit-lake"), code=errno.EACCES)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        LOOKS[look](str(lake))
    assert look == "inspect" or "unfinished commit" in str(warned[0].message)


@pytest.mark.parametrize("look", LOOKS)
def test_paths_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str) -> None:
    with pytest.raises(ArgumentError, match="null"):
        LOOKS[look](f"{tmp_path}/a\0b")
    (tmp_path / "file").write_text("x")
    with pytest.raises(TargetError, match="is a file"):
        LOOKS[look](f"{tmp_path}/file")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ArgumentError, match=r"The working directory .*No such file or directory"):
        LOOKS[look]("lake")
    monkeypatch.chdir(tmp_path)


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "lake").symlink_to(tmp_path / "lake")
    with pytest.raises(StorageError, match="Too many levels of symbolic links"):
        lakes.merge(tmp_path / "lake")


def test_a_partition_behind_a_link_that_leads_out(tmp_path: Path) -> None:
    """A recovery could not tell it from one that someone planted, so that it is not begun."""
    lakes.make(tmp_path / "elsewhere")
    lakes.make(tmp_path / "lake/p=1")
    (tmp_path / "lake/p=2").symlink_to(tmp_path / "elsewhere")
    before = lakes.snapshot(tmp_path)
    with pytest.raises(Exception, match=r"'p=2/.*' lies behind a link that leads out of the data set\. Nothing was ch"):
        lakes.merge(tmp_path / "lake", pa.table({"id": [5000], "x": ["new"], "p": [2]}))
    assert lakes.snapshot(tmp_path) == before
