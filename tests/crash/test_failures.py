"""A merge that fails half-way: an error at any storage call, Ctrl-C at any of them, a full disk."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crash import lakes
from crash.dying import Killer
from crash.restricted import merge_restricted
from fsspeckit.core.errors import CommitUnfinishedError, FsspeckitError, StorageError
from fsspeckit.core.storage import LocalStorage


class Failure(Killer):
    """Raises at its point instead of dying there."""

    def __init__(self, point: int | None, error: BaseException) -> None:
        super().__init__(point)
        self.error = error

    def arrive(self, label: str) -> bool:
        if super().arrive(label):
            raise self.error
        return False


def _merge_failing(lake: Path, point: int | None, error: BaseException) -> tuple[list[str], BaseException | None]:
    """Merge with an error at a point; returns the points passed, and what came out."""
    methods = {n: m for n, m in vars(LocalStorage).items() if callable(m) and not n.startswith("_")}
    failure = Failure(point, error)
    failure.install()
    try:
        lakes.merge(lake)
    except BaseException as raised:
        return failure.trace, raised
    finally:
        for name, method in methods.items():
            setattr(LocalStorage, name, method)
    return failure.trace, None


@pytest.mark.parametrize("make", [lambda: OSError(errno.EIO, "broken disk"), KeyboardInterrupt], ids=["EIO", "Ctrl-C"])
def test_failing_at_every_storage_call(ground: Path, make: Callable[[], BaseException]) -> None:
    """Before the commit point nothing is changed and nothing left; after it the commit is finished, now or next."""
    labels, _ = _merge_failing(lakes.make(ground / "rehearsal/lake"), None, make())
    commit = next(i for i, label in enumerate(labels) if label.startswith("make_folder") and "-commit-" in label)
    assert len(labels) >= 40
    outcomes = {
        _check_failure(ground / str(point), point, labels[point], point <= commit, make())
        for point in range(len(labels))
    }
    assert outcomes >= {"refused", "finished"}


def _check_failure(parent: Path, point: int, label: str, before_commit: bool, error: BaseException) -> str:
    lake = lakes.make(parent / "lake")
    before = lakes.snapshot(parent)
    _, raised = _merge_failing(lake, point, error)
    assert raised is None or isinstance(raised, (FsspeckitError, KeyboardInterrupt)), f"{label} raised {raised!r}"
    if raised is None:
        lakes.merge(lake, lakes.SOURCE.slice(0, 0))  # clears what could not be cleared
        assert lakes.holds(lake, lakes.NEW) and not lakes.litter(parent), label
        return "succeeded"
    if before_commit:
        assert lakes.snapshot(parent) == before, f"{label} failed with {raised!r}"
        return "refused"
    return _check_after_commit(lake, label, raised)


def _check_after_commit(lake: Path, label: str, raised: BaseException) -> str:
    """Old or new, and never for long anything between."""
    if isinstance(raised, KeyboardInterrupt):
        assert not lakes.litter(lake.parent), label
    else:
        assert isinstance(raised, CommitUnfinishedError) and "recorded; do not repeat it" in str(raised), label
        lakes.merge(lake, lakes.SOURCE.slice(0, 0))
    assert not lakes.litter(lake.parent), label
    assert lakes.holds(lake, lakes.NEW) or lakes.holds(lake, lakes.OLD), label
    return "finished" if lakes.holds(lake, lakes.NEW) else "undone"


def test_an_unfinished_commit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, rename = lakes.make(tmp_path / "lake"), LocalStorage.rename

    def fail(storage: LocalStorage, source: str, target: str) -> None:
        if target.endswith("f1.parquet"):
            raise OSError(errno.EIO, "broken disk")
        rename(storage, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "rename", fail)
        with pytest.raises(CommitUnfinishedError, match=r"recorded; do not repeat it.*broken disk.*recover"):
            lakes.merge(lake)
        with pytest.raises(CommitUnfinishedError, match=r"cannot be finished or removed.*broken disk"):
            lakes.merge(lake)
    assert lakes.merge(lake, lakes.SOURCE.slice(0, 0)).target_count_before == 21
    assert lakes.holds(lake, lakes.NEW)
    assert not lakes.litter(tmp_path)


@pytest.mark.parametrize("step", lakes.STEPS)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_engine_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    lake = lakes.make(tmp_path / "lake")
    before = lakes.snapshot(tmp_path)

    def fail() -> None:
        raise error("half-way")

    lakes.after(monkeypatch, step, fail)
    with pytest.raises(error, match="Nothing was changed" if error is KeyboardInterrupt else "half-way"):
        lakes.merge(lake)
    assert lakes.snapshot(tmp_path) == before


def test_a_file_that_cannot_be_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three files are staged already when the third fails."""
    lake, done = lakes.make(tmp_path / "lake"), []
    before, copy_mode = lakes.snapshot(tmp_path), LocalStorage.copy_mode

    def third_fails(storage: LocalStorage, source: str, target: str) -> Any:
        done.append(target)
        if len([t for t in done if "file-" in t]) == 3:
            raise OSError(errno.EIO, "broken disk")
        return copy_mode(storage, source, target)

    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(LocalStorage, "copy_mode", third_fails)
    with pytest.raises(OSError, match="broken disk"):
        lakes.merge(lake)
    assert lakes.snapshot(tmp_path) == before


@pytest.mark.parametrize("limit", [0, 1, 100, 600])
def test_a_full_disk(tmp_path: Path, limit: int) -> None:
    """A limit on the size of a file stands for the disk: staged files, or the journal, do not fit."""
    lake = lakes.make(tmp_path / "lake")
    before = lakes.snapshot(tmp_path)
    answer = merge_restricted(lake, file_size=limit)
    assert answer.error == "StorageError"
    assert "File too large" in answer.message and "make room" in answer.message
    assert lakes.snapshot(tmp_path) == before


def _named(handle: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{handle}")).name


def test_a_staged_file_that_does_not_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk tells of it when others are written already."""
    lake, fsync = lakes.make(tmp_path / "lake"), os.fsync
    before = lakes.snapshot(tmp_path)

    def fail(handle: int) -> None:
        if _named(handle) == "file-00001":
            raise OSError(errno.EIO, "broken disk")
        fsync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StorageError, match=r"Cannot write to .*lake: .*broken disk.* Nothing was changed"):
            lakes.merge(lake)
    assert lakes.snapshot(tmp_path) == before
    lakes.merge(lake)
    assert lakes.holds(lake, lakes.NEW)


def test_staged_files_are_on_disk_before_the_journal_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, fsync = lakes.make(tmp_path / "lake"), os.fsync
    synced: list[str] = []

    def slow(handle: int) -> None:
        name = _named(handle)
        time.sleep(0.2 if name.startswith(("file-", "part-")) else 0)
        fsync(handle)
        synced.append(name)

    monkeypatch.setattr(os, "fsync", slow)
    lakes.merge(lake)
    journal = next(i for i, name in enumerate(synced) if "journal" in name)
    data = [name for name in synced[:journal] if name.startswith(("file-", "part-"))]
    assert len(data) == 4 and {"file-00000", "file-00001", "file-00002"} < set(data)


def test_files_that_wait_for_the_disk_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may not open more than some thousand files."""
    storage, fsync, most = LocalStorage(), os.fsync, 0
    before = len(os.listdir("/proc/self/fd"))

    def counting(handle: int) -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")) - before)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", counting)
    with storage.syncing():
        for number in range(100):
            (tmp_path / str(number)).write_bytes(b"x")
            storage.sync_file(str(tmp_path / str(number)))
    assert 0 < most < 30
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_forked_child_syncs_by_threads_of_its_own(tmp_path: Path) -> None:
    """No child inherits threads: it would wait for the disk forever."""
    lakes.merge(lakes.make(tmp_path / "before"))
    child = multiprocessing.get_context("fork").Process(target=lakes.merge, args=(lakes.make(tmp_path / "lake"),))
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
    assert child.exitcode == 0
    assert lakes.holds(tmp_path / "lake", lakes.NEW)


def test_a_child_forked_between_two_syncs_does_not_wait_for_its_parents_threads(tmp_path: Path) -> None:
    storage, file = LocalStorage(), tmp_path / "file"
    file.touch()
    with storage.syncing():
        for _ in range(20):
            storage.sync_file(str(file))
        child = os.fork()
        if not child:
            signal.alarm(10)
            for _ in range(20):
                storage.sync_file(str(file))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_error_of_the_disk_is_raised_when_all_files_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, tried = LocalStorage(), []

    def fail(handle: int) -> None:
        tried.append(_named(handle))
        if tried[-1] in ("0", "folder"):
            raise OSError(errno.EIO, tried[-1])

    monkeypatch.setattr(os, "fsync", fail)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="0"), storage.syncing():
        for number in range(6):
            (tmp_path / str(number)).touch()
            storage.sync_file(str(tmp_path / str(number)))
        storage.sync_folder(str(tmp_path / "folder"))
    assert sorted(tried) == ["0", "1", "2", "3", "4", "5", "folder"]
    with pytest.raises(OSError, match="folder"):
        storage.sync_folder(str(tmp_path / "folder"))
