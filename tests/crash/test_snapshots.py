"""Snapshots: readers hold off the application of commits, waiting writers go first, and nothing waits forever."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from crash import lakes
from crash.dying import with_tests_on_path
from crash.restricted import NOBODY
from fsspeckit.core.commit.apply import ApplyJournal
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.storage import LocalStorage, snapshot_locks
from fsspeckit.core.storage.remote import ProcessLocks
from fsspeckit.datasets import scan

ROWS, FILES = 800, 4
READERS: dict[str, Callable[[list[str]], list[int]]] = {
    "pyarrow": lambda files: [n for file in files for n in pq.read_table(file)["n"].to_pylist()],
    "duckdb": lambda files: _duckdb_numbers(files),
    "polars": lambda files: polars.read_parquet(files)["n"].to_list(),
}


def _duckdb_numbers(files: list[str]) -> list[int]:
    with duckdb.connect() as connection:
        return [row[0] for row in connection.execute("select n from read_parquet(?)", [files]).fetchall()]


HOLDER = """
import sys, fsspeckit
with fsspeckit.snapshot(sys.argv[1]) as files:
    print(len(files), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return lakes.make(tmp_path / "lake")


@pytest.fixture
def holder(lake: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a snapshot until it is told to end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lake)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "5\n"
        yield process
        process.kill()


def waiting_writer(lake: Path | str, **options: Any) -> tuple[threading.Thread, list[Exception]]:
    """A merge in a thread that has come to its commit and waits for readers there."""
    arrived, errors = threading.Event(), list[Exception]()
    plain = snapshot_locks._is_there

    def is_there(folders: Any, side: Any) -> bool:
        found = plain(folders, side)
        if found and side == snapshot_locks._READERS:
            arrived.set()
        return found

    def merge() -> None:
        try:
            lakes.merge(lake, **options)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=merge)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(snapshot_locks, "_is_there", is_there)
        thread.start()
        assert arrived.wait(60)
    return thread, errors


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
@pytest.mark.parametrize("reader", READERS)
def test_every_read_is_of_one_version(tmp_path: Path, reader: str, replace: Any) -> None:
    lake, merges = tmp_path / "lake", 20
    lake.mkdir()
    for i in range(FILES):
        pq.write_table(pa.table({"id": range(i, ROWS, FILES), "n": [0] * (ROWS // FILES)}), lake / f"f{i}.parquet")
    done = threading.Event()

    def write() -> None:
        try:
            for n in range(1, merges + 1):
                source = pa.table({"id": range(ROWS), "n": [n] * ROWS})
                fsspeckit.merge(source, str(lake), "update", ["id"], replace=replace)
        finally:
            done.set()

    def read() -> list[int]:
        seen = []
        while not done.is_set():
            with fsspeckit.snapshot(str(lake)) as files:
                numbers = READERS[reader](files)
            assert len(numbers) == ROWS and len(set(numbers)) == 1
            seen.append(numbers[0])
        return seen

    with ThreadPoolExecutor(3) as pool:
        writer, readers = pool.submit(write), [pool.submit(read) for _ in range(2)]
        writer.result()
        for seen in (future.result() for future in readers):
            assert seen == sorted(seen)
    assert set(fsspeckit.read(str(lake))["n"].to_pylist()) == {merges}


def test_a_writer_prepares_its_files_and_waits_with_the_commit(lake: Path) -> None:
    with fsspeckit.snapshot(str(lake)) as files:
        assert files == [str(lake / f"f{i}.parquet") for i in range(5)]
        thread, errors = waiting_writer(lake)
        assert lakes.holds(lake, lakes.OLD)
        assert lakes.litter(lake.parent)  # the staged files
    thread.join()
    assert not errors and lakes.holds(lake, lakes.NEW) and not lakes.litter(lake.parent)


def test_a_waiting_writer_goes_before_later_readers(lake: Path) -> None:
    first = fsspeckit.snapshot(str(lake))
    first.__enter__()
    thread, errors = waiting_writer(lake)
    with ThreadPoolExecutor(1) as pool, pytest.raises(fsspeckit.DatasetLockedError, match="waits for readers"):
        pool.submit(fsspeckit.snapshot(str(lake), timeout=0.1).__enter__).result()
    first.__exit__(None, None, None)
    thread.join()
    assert not errors and lakes.holds(lake, lakes.NEW)


def test_a_thread_that_holds_a_snapshot_reads_again_before_the_writer(lake: Path) -> None:
    with fsspeckit.snapshot(str(lake)):
        thread, errors = waiting_writer(lake)
        with fsspeckit.snapshot(str(lake), timeout=0) as files:
            assert len(files) == 5
        assert fsspeckit.read(str(lake)).num_rows == len(lakes.OLD)
    thread.join()
    assert not errors and lakes.holds(lake, lakes.NEW)


@pytest.mark.parametrize("inside", ["", "part=1"])
@pytest.mark.parametrize("write", [lakes.merge, lambda lake: fsspeckit.recover(str(lake))], ids=["merge", "recover"])
def test_a_write_inside_ones_own_snapshot_fails_at_once(tmp_path: Path, inside: str, write: Any) -> None:
    lake = lakes.make(tmp_path / "lake")
    lakes.make(lake / inside)
    before = lakes.snapshot(tmp_path)
    for held, written in ((lake, lake / inside), (lake / inside, lake)):
        with fsspeckit.snapshot(str(held)):
            started = time.monotonic()
            with pytest.raises(fsspeckit.DatasetLockedError, match="This thread reads a snapshot of"):
                write(written)
            assert time.monotonic() - started < 30  # and not the lock timeout
    assert lakes.snapshot(tmp_path) == before


def test_a_snapshot_that_is_held_for_ever(lake: Path, holder: subprocess.Popen[str]) -> None:
    before = lakes.snapshot(lake.parent)
    message = rf"held by a snapshot of process {holder.pid} \(python.*\); waited 0.2 s .* Nothing was changed"
    with pytest.raises(fsspeckit.DatasetLockedError, match=message):
        lakes.merge(lake, lock_timeout=0.2)
    assert lakes.snapshot(lake.parent) == before


def test_the_snapshot_of_a_killed_process_is_free(lake: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    lakes.merge(lake, lock_timeout=10)
    assert lakes.holds(lake, lakes.NEW)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_neither_keeps_nor_frees_the_snapshot(lake: Path) -> None:
    reader, writer = os.pipe()
    with fsspeckit.snapshot(str(lake)):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # lives until the parent has merged
            os._exit(0)
        os.close(reader)
        thread, errors = waiting_writer(lake, lock_timeout=0.2)
        thread.join()
        assert len(errors) == 1  # the child's copy is closed, and the parent's snapshot is still held
    lakes.merge(lake, lock_timeout=5)
    os.close(writer)
    os.waitpid(child, 0)
    assert lakes.holds(lake, lakes.NEW)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can act as another user")
def test_the_right_to_read_is_enough(ground: Path) -> None:
    lake = lakes.make(ground / "lake")
    code = (
        f"import os, fsspeckit, fsspeckit.api; os.setuid({NOBODY})\n"
        f"with fsspeckit.snapshot({str(lake)!r}) as files: print(len(files), os.access({str(lake)!r}, os.W_OK))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=with_tests_on_path(), capture_output=True, text=True)
    assert done.stdout == "5 False\n", done.stderr


def test_an_unfinished_commit_is_refused(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patched, pytest.raises(fsspeckit.CommitUnfinishedError):
        patched.setattr(ApplyJournal, "apply", fail)
        lakes.merge(lake)
    before = lakes.snapshot(lake.parent)
    with pytest.raises(fsspeckit.CommitUnfinishedError, match="fsspeckit recover"), fsspeckit.snapshot(str(lake)):
        pass
    with pytest.warns(UserWarning, match="unfinished commit"):
        fsspeckit.read(str(lake))
    assert lakes.snapshot(lake.parent) == before


def test_recovery_waits_for_readers(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of 0.1 seconds ago may have listed the files before the writer died."""

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patched, pytest.raises(fsspeckit.CommitUnfinishedError):
        patched.setattr(ApplyJournal, "apply", fail)
        lakes.merge(lake)
    held = LocalStorage().snapshot(str(lake), 0)
    with ThreadPoolExecutor(1) as pool, held, pytest.raises(fsspeckit.DatasetLockedError, match="held by a snapshot"):
        pool.submit(fsspeckit.recover, str(lake), lock_timeout=0.1).result()
    fsspeckit.recover(str(lake))
    assert lakes.holds(lake, lakes.NEW)


def _without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(snapshot_locks, "_lock_byte", refuse)


def test_without_locks_it_warns_and_compares_the_files(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_locks(monkeypatch)
    with pytest.warns(UserWarning, match="No lock can hold off"), fsspeckit.snapshot(str(lake)) as files:
        assert len(files) == 5
    with (
        pytest.warns(UserWarning, match="No lock can hold off"),
        pytest.raises(fsspeckit.TargetChangedError, match=r"f0\.parquet was changed; .*read again"),
        fsspeckit.snapshot(str(lake)),
        ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(lakes.merge, lake).result()


def test_a_reader_that_failed_because_of_a_commit_is_told_so(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_locks(monkeypatch)
    with (
        pytest.warns(UserWarning, match="No lock"),
        pytest.raises(fsspeckit.TargetChangedError, match="is gone") as raised,
        fsspeckit.snapshot(str(lake)) as files,
    ):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lakes.merge, lake, replace="new_file").result()
        pq.read_table(files[0])
    assert isinstance(raised.value.__cause__, FileNotFoundError)


def test_other_errors_of_a_reader_are_its_own(lake: Path) -> None:
    with pytest.raises(ZeroDivisionError), fsspeckit.snapshot(str(lake)):
        1 / 0  # noqa: B018
    lakes.merge(lake, lock_timeout=0)


def test_read_reads_again_if_files_change_meanwhile(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no locks, or another program does not use them."""
    _without_locks(monkeypatch)
    plain, merged = read_footers, list[int]()

    def footers(*arguments: Any, **options: Any) -> Any:
        found = plain(*arguments, **options)
        if not merged:
            merged.append(1)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(lakes.merge, lake, replace="new_file").result()
        return found

    monkeypatch.setattr(scan, "read_footers", footers)
    assert fsspeckit.read(str(lake)).num_rows == len(lakes.NEW)


def test_new_files_of_others_do_not_disturb(lake: Path) -> None:
    with fsspeckit.snapshot(str(lake)) as files:
        pq.write_table(pa.table({"id": [1000], "x": ["other"]}), lake / "other.parquet")
        assert len(files) == 5


def test_in_memory() -> None:
    path = "memory://snapshots/lake"
    fsspeckit.merge(pa.table({"id": [1]}), path, key_columns=["id"])
    with fsspeckit.snapshot(path, timeout=0) as files, fsspeckit.snapshot(path, timeout=0):
        assert [file.startswith("memory://") for file in files] == [True]
        with pytest.raises(fsspeckit.DatasetLockedError, match="This thread reads a snapshot"):
            fsspeckit.merge(pa.table({"id": [2]}), path, key_columns=["id"])
        with ThreadPoolExecutor(1) as pool, pytest.raises(fsspeckit.DatasetLockedError, match="snapshot that another"):
            pool.submit(fsspeckit.merge, pa.table({"id": [2]}), path, key_columns=["id"], lock_timeout=0.1).result()
    assert not ProcessLocks._readers and not ProcessLocks._writers
    assert fsspeckit.merge(pa.table({"id": [2]}), path, key_columns=["id"]).inserted == 1


def test_a_path_without_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(fsspeckit.ArgumentError, match="has no Parquet files"), fsspeckit.snapshot(str(path)):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_waited_looks_at_the_files_again(lake: Path) -> None:
    with fsspeckit.snapshot(str(lake)):
        thread, errors = waiting_writer(lake)
        pq.write_table(pa.table({"id": [0], "x": ["other"]}), lake / "f9.parquet")
    thread.join()
    assert isinstance(errors[0], fsspeckit.TargetChangedError)
    assert not lakes.litter(lake.parent)


def test_readers_inside_and_beside(tmp_path: Path) -> None:
    """A writer waits for readers above and inside its folder, and not for those of a folder beside it."""
    lake, beside = lakes.make(tmp_path / "all" / "lake"), lakes.make(tmp_path / "all" / "other")
    with ThreadPoolExecutor(1) as pool, fsspeckit.snapshot(str(lake)):
        pool.submit(lakes.merge, beside, lock_timeout=0).result()
        with pytest.raises(fsspeckit.DatasetLockedError, match="held by a snapshot"):
            pool.submit(lakes.merge, tmp_path / "all", lock_timeout=0.1).result()
    held = fsspeckit.snapshot(str(tmp_path / "all"))
    with ThreadPoolExecutor(1) as pool, held, pytest.raises(fsspeckit.DatasetLockedError, match="held by a snapshot"):
        pool.submit(lakes.merge, lake, lock_timeout=0.1).result()
