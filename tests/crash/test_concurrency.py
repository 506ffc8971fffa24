"""Several writers and readers at once: writers take turns, no update is lost, readers of files never miscount."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from crash.writers import SHARED, batch, expect, go, start
from fsspeckit.core.errors import DatasetLockedError, NullKeyError
from fsspeckit.core.storage import LocalStorage
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names, rows, write_lake

KEYS = 800


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The shared keys in four files."""
    tables = [pa.table({"id": SHARED[i::4], "x": ["old"] * 10}) for i in range(4)]
    write_lake(tmp_path / "lake", {f"f{i}.parquet": table for i, table in enumerate(tables)})
    return tmp_path / "lake"


@pytest.fixture
def writer() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start writers; those that still run at the end of the test are killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: Any) -> subprocess.Popen[str]:
        started.append(start(*arguments))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def _one(key: int, x: str) -> pa.Table:
    return pa.table({"id": [key], "x": [x]})


def _values(lake: Path) -> dict[int, str]:
    found = rows(lake)
    assert max(Counter(row["id"] for row in found).values()) == 1, "a key is there twice"
    return {row["id"]: row["x"] for row in found}


def _check_no_litter(lake: Path) -> None:
    assert [p.name for p in lake.parent.iterdir()] == [lake.name]
    assert all(name.endswith(".parquet") for name in all_names(lake))


# Writers against writers


def test_processes_merging_at_once_lose_nothing(lake: Path, writer: Callable[..., Any]) -> None:
    writers, turns = range(1, 5), 5
    processes = [writer("merge", lake, w, turns) for w in writers]
    for process in processes:
        go(process)
    for w, process in zip(writers, processes, strict=True):
        for turn in range(turns):
            assert expect(process, "done") == _counts(w, turn)
        assert process.wait() == 0
    values = _values(lake)
    _check_last_values(values, writers, turns)
    assert len({values[key] for key in SHARED}) == 1, "the shared keys come from two merges"
    assert values[0] in {f"{w}:{turns - 1}" for w in writers}
    _check_no_litter(lake)


def _counts(w: int, turn: int) -> list[str]:
    """Two keys of its own are new in every turn but the first, the others and the shared ones are there."""
    size = batch(w, turn).num_rows
    return ["2", str(size - 2)]


def _check_last_values(values: dict[int, str], writers: range, turns: int) -> None:
    expected: dict[int, str] = {}
    for w in writers:
        for turn in range(turns):
            expected |= {row["id"]: row["x"] for row in batch(w, turn).to_pylist() if row["id"] not in SHARED}
    assert {key: x for key, x in values.items() if key not in SHARED} == expected


def test_threads_of_one_process_take_turns(lake: Path) -> None:
    io = PyArrowDatasetIO()

    def merge(w: int) -> int:
        return sum(io.merge(batch(w, turn), str(lake), "upsert", ["id"]).inserted for turn in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(merge, range(1, 5))) == [10, 10, 10, 10]
    values = _values(lake)
    _check_last_values(values, range(1, 5), 5)
    assert len({values[key] for key in SHARED}) == 1
    _check_no_litter(lake)


def test_a_refused_creator_does_not_pull_the_folder_from_under_another(tmp_path: Path) -> None:
    """Whoever made the folder and was refused removes it, but not while another one works in it."""
    io = PyArrowDatasetIO()

    def refused(path: str) -> None:
        with pytest.raises(NullKeyError):
            io.merge(pa.table({"id": pa.array([None], pa.int64()), "x": ["a"]}), path, "insert", ["id"])

    def create(path: str) -> int:
        return io.merge(_one(1, "a"), path, "insert", ["id"]).inserted

    with ThreadPoolExecutor(6) as pool:
        for i in range(12):
            path = str(tmp_path / f"lake{i}")
            tasks = [pool.submit(refused, path) for _ in range(5)]
            assert pool.submit(create, path).result() == 1
            assert all(task.result() is None for task in tasks)
            assert rows(path) == [{"id": 1, "x": "a"}]


def test_a_creator_that_waited_in_vain_leaves_the_folder_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made the folder, but another writer was first to lock it."""
    make_folder, locks = LocalStorage.make_folder, []

    def made_and_locked(storage: LocalStorage, path: str) -> list[str]:
        made = make_folder(storage, path)
        locks.append(os.open(path, os.O_RDONLY))
        fcntl.flock(locks[0], fcntl.LOCK_EX)
        return made

    monkeypatch.setattr(LocalStorage, "make_folder", made_and_locked)
    with pytest.raises(DatasetLockedError):
        PyArrowDatasetIO().merge(_one(1, "a"), str(tmp_path / "lake"), "insert", ["id"], lock_timeout=0)
    os.close(locks[0])
    assert all_names(tmp_path) == ["lake"]


def test_the_folder_of_a_refused_creation_goes_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_folder, free = LocalStorage.remove_folder, []

    def look(storage: LocalStorage, path: str) -> None:
        if path.endswith("/lake"):
            handle = os.open(path, os.O_RDONLY)
            free.append(_is_free(handle))
            os.close(handle)
        remove_folder(storage, path)

    monkeypatch.setattr(LocalStorage, "remove_folder", look)
    with pytest.raises(NullKeyError):
        PyArrowDatasetIO().merge(pa.table({"id": pa.nulls(1, pa.int64())}), str(tmp_path / "lake"), "insert", ["id"])
    assert free == [False]
    assert all_names(tmp_path) == []


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# The lock


@pytest.mark.parametrize("step", ["match", "rewrite"])
def test_a_writer_that_waits_too_long_is_told_who_is_at_work(lake: Path, writer: Callable[..., Any], step: str) -> None:
    owner = writer(f"hold-{step}", lake, 30_000)
    go(owner)
    expect(owner, "holding")
    who = rf"process {owner.pid} on {socket.gethostname()}, since \d{{4}}-.* UTC \(\d+ s ago\); waited 0\.2 s"
    before = time.monotonic()
    with pytest.raises(DatasetLockedError, match=who):
        PyArrowDatasetIO().merge(_one(2, "b"), str(lake), "upsert", ["id"], lock_timeout=0.2)
    assert 0.2 <= time.monotonic() - before < 5
    assert set(_values(lake).values()) == {"old"}


def test_the_lock_of_a_killed_owner_is_free_at_once(lake: Path, writer: Callable[..., Any]) -> None:
    owner = writer("hold-rewrite", lake, 30_000)
    go(owner)
    expect(owner, "holding")
    owner.kill()
    owner.wait()
    PyArrowDatasetIO().merge(_one(2, "b"), str(lake), "upsert", ["id"], lock_timeout=0)
    assert _values(lake)[1] == "old"
    assert _values(lake)[2] == "b"
    _check_no_litter(lake)


def test_a_writer_waits_for_another_to_finish(lake: Path, writer: Callable[..., Any]) -> None:
    owner = writer("hold-rewrite", lake, 500)
    go(owner)
    expect(owner, "holding")
    result = PyArrowDatasetIO().merge(_one(1, "mine"), str(lake), "upsert", ["id"], lock_timeout=30)
    expect(owner, "done")
    assert result.updated == 1
    assert _values(lake)[1] == "mine"
    _check_no_litter(lake)


def test_a_process_forked_during_a_merge_does_not_keep_the_lock(lake: Path, writer: Callable[..., Any]) -> None:
    owner = writer("fork", lake)
    go(owner)
    child = int(expect(owner, "forked")[0])
    try:
        expect(owner, "done")
        PyArrowDatasetIO().merge(_one(2, "b"), str(lake), "upsert", ["id"], lock_timeout=0)
    finally:
        os.kill(child, signal.SIGKILL)
    assert (_values(lake)[1], _values(lake)[2]) == ("held", "b")


def test_a_forked_child_that_ends_does_not_unlock_its_parents_merge(lake: Path, writer: Callable[..., Any]) -> None:
    owner = writer("fork-exit", lake)
    go(owner)
    expect(owner, "holding")
    with pytest.raises(DatasetLockedError, match=rf"process {owner.pid} on "):
        PyArrowDatasetIO().merge(_one(2, "b"), str(lake), "upsert", ["id"], lock_timeout=0)
    go(owner)
    expect(owner, "done")
    assert (_values(lake)[1], _values(lake)[2]) == ("held", "old")
    _check_no_litter(lake)


@pytest.mark.parametrize("staged", [0, 1])
def test_a_forked_child_does_not_commit_its_parents_merge(lake: Path, writer: Callable[..., Any], staged: int) -> None:
    owner = writer("fork-go-on", lake, staged)
    go(owner)
    assert expect(owner, "done") == ["7"]
    assert _values(lake)[1] == "held"
    _check_no_litter(lake)


# Data sets inside data sets


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    tables = {f"{'ab'[n]}/f0.parquet": pa.table({"id": range(10 * n, 10 * n + 4), "x": ["old"] * 4}) for n in (0, 1)}
    write_lake(tmp_path / "nested", tables)
    return tmp_path / "nested"


@pytest.mark.parametrize(("holding", "waiting"), [("", "a"), ("a", "")])
def test_writers_of_data_sets_inside_each_other_take_turns(
    nested: Path, writer: Callable[..., Any], holding: str, waiting: str
) -> None:
    owner = writer("hold-match", nested / holding, 30_000)
    go(owner)
    expect(owner, "holding")
    with pytest.raises(DatasetLockedError, match=rf"{nested} is locked by .*waited 0\.2 s"):
        PyArrowDatasetIO().merge(_one(1, "mine"), str(nested / waiting), "upsert", ["id"], lock_timeout=0.2)
    owner.kill()
    owner.wait()
    assert (
        PyArrowDatasetIO().merge(_one(1, "mine"), str(nested / waiting), "upsert", ["id"], lock_timeout=5).updated == 1
    )
    assert _values(nested / "a")[1] == "mine"


def test_writers_of_neighbours_do_not_wait_for_each_other(nested: Path, writer: Callable[..., Any]) -> None:
    owner = writer("hold-match", nested / "a", 30_000)
    go(owner)
    expect(owner, "holding")
    PyArrowDatasetIO().merge(_one(11, "mine"), str(nested / "b"), "upsert", ["id"], lock_timeout=0)
    assert _values(nested / "b")[11] == "mine"


# Readers during in-place merges


def _read_with_pyarrow(lake: Path) -> tuple[list[int], set[str]]:
    tables = [pq.ParquetFile(path).read() for path in sorted(lake.glob("*.parquet"))]
    table = pa.concat_tables(tables)
    return sorted(table["id"].to_pylist()), set(table["x"].to_pylist())


def _read_with_duckdb(lake: Path) -> tuple[list[int], set[str]]:
    """DuckDB opens a file once for its footer and again for its pages, and fails if it was replaced in between, by
    whomever. That is loud; what counts is that no answer is wrong."""
    duckdb = pytest.importorskip("duckdb")
    for _ in range(20):
        with duckdb.connect() as connection, contextlib.suppress(duckdb.Error):
            found = connection.execute(f"select id, x from read_parquet('{lake}/*.parquet')").fetchall()
            return sorted(row[0] for row in found), {row[1] for row in found}
    raise AssertionError("DuckDB failed twenty times in a row")


@pytest.mark.parametrize("read", [_read_with_pyarrow, _read_with_duckdb])
def test_readers_see_every_key_once_during_in_place_merges(
    tmp_path: Path, writer: Callable[..., Any], read: Callable[[Path], tuple[list[int], set[str]]]
) -> None:
    lake = _lake_of_eight_files(tmp_path / "lake")
    process, versions, reads = writer("update", lake, 2_500, KEYS), set(), 0
    go(process)
    while process.poll() is None:
        keys, seen = read(lake)
        assert keys == list(range(KEYS)), f"read {reads} saw {len(keys)} rows"
        versions |= seen
        reads += 1
    assert int(expect(process, "done")[0]) >= 5
    assert reads >= 10 and len(versions) >= 3, "the reader must have been at work during several merges"
    _check_no_litter(lake)


def _lake_of_eight_files(lake: Path) -> Path:
    tables = {f"f{i}.parquet": pa.table({"id": range(i, KEYS, 8), "x": ["0"] * (KEYS // 8)}) for i in range(8)}
    write_lake(lake, tables, row_group_size=25)
    return lake


def test_a_forked_child_does_not_write_its_parents_staged_files(tmp_path: Path) -> None:
    """Parent and child would write the same file, also after the parent has put it in place."""
    storage = LocalStorage()
    release = storage.claim(str(tmp_path))
    assert release is not None
    child = os.fork()
    if not child:
        with contextlib.suppress(OSError):
            storage.open_output(str(tmp_path / "file-00000"))
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not list(tmp_path.iterdir())
    release()


FORKS = """
import os, sys, threading
import pyarrow as pa, pyarrow.parquet as pq
import fsspeckit
from fsspeckit.core.parquet.splice import OldFile

def merge(folder):
    os.mkdir(folder)
    pq.write_table(pa.table({"id": range(9_000), "v": ["a", "b", "c"] * 3_000}), f"{folder}/f.parquet")
    return fsspeckit.merge(pa.table({"id": [1], "v": ["c"]}), folder, key_columns=["id"])

merge(sys.argv[1] + "/first")
within, go_on, of, parent = threading.Event(), threading.Event(), OldFile.of, os.getpid()

def waiting(*arguments):
    if os.getpid() == parent:
        within.set()
        go_on.wait()
    return of(*arguments)

OldFile.of = waiting
thread = threading.Thread(target=merge, args=(sys.argv[1] + "/parent",))
thread.start()
within.wait()
child = os.fork()
if not child:
    os._exit(merge(sys.argv[1] + "/child").updated)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
go_on.set()
thread.join()
"""


def test_a_child_that_is_forked_while_another_thread_merges_can_merge(tmp_path: Path) -> None:
    """It has no lock that the thread holds: of Python 3.11's cached properties all objects have the same."""
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr
    for name in ("parent", "child"):
        assert fsspeckit.read(str(tmp_path / name)).slice(1, 1).to_pylist() == [{"id": 1, "v": "c"}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "first", "parent"]


# A fork while a lock is taken or given back: by a signal handler after the close, by another thread after the open.
FORKS_AT_A_LOCK = """
import os, sys, threading, time
from fsspeckit.core.storage import LocalStorage

lake, moment = sys.argv[1:]
storage, real, children = LocalStorage(), getattr(os, moment), []
within, forked = threading.Event(), threading.Event()

def fork():
    child = os.fork()
    if not child:
        handles = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        folders = [os.readlink(handle) for handle in handles if os.path.isdir(handle)]
        print([folder for folder in folders if not folder.startswith("/proc")], flush=True)
        os._exit(0)
    children.append(child)
    forked.set()

def at_once(*arguments):
    done = real(*arguments)
    if not within.is_set():
        within.set()
        fork() if moment == "close" else forked.wait(1)
    return done

def hold():
    with storage.lock(lake, 60, str, lambda owner: None):
        setattr(os, moment, at_once) if moment == "close" else None

if moment == "open":
    os.open = at_once
    other = threading.Thread(target=hold)
    other.start()
    within.wait()
    fork()
    other.join()
else:
    hold()
os.waitpid(children[0], 0)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("moment", ["open", "close"])
def test_a_fork_at_any_moment_leaves_the_child_no_lock(tmp_path: Path, moment: str) -> None:
    (tmp_path / "lake").mkdir()
    command = [sys.executable, "-c", FORKS_AT_A_LOCK, str(tmp_path / "lake"), moment]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\n", "")
