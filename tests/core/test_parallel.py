"""The pool of one merge: its threads help each other, wait for nobody who is busy, and end with it."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.local_engine import LocalEngine
from fsspeckit.core.parallel import Pool, chunked_map, parallel_map, prefetch_map


def ident(_: Any) -> int:
    return threading.get_ident()


def test_results_come_in_the_order_of_the_items() -> None:
    squares = [n * n for n in range(1000)]
    with Pool.of(3) as pool:
        assert pool.map(lambda n: n * n, iter(range(1000))) == squares
        assert pool.map(str, []) == []
    assert parallel_map(lambda n: n * n, range(1000), 3) == squares
    assert list(prefetch_map(lambda n: n * n, range(1000), 3)) == squares
    assert chunked_map(lambda chunk: [n * n for n in chunk], range(1000), 3) == squares


def test_threads_stay_while_the_pool_is_open_and_end_with_it() -> None:
    together = threading.Barrier(2)

    def both(_: int) -> int:
        together.wait(30)
        return threading.get_ident()

    with Pool.of(2) as pool:
        first = set(pool.map(both, range(2)))
        assert len(first) == 2
        assert first == set(pool.map(both, range(2)))
        assert threading.get_ident() not in first
        assert first <= {thread.ident for thread in threading.enumerate()}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fsspeckit_")]


def test_an_idle_thread_helps_a_busy_one() -> None:
    """The second file is done at once; its thread then takes part in the columns of the first."""
    columns = threading.Barrier(2)

    def column(_: int) -> int:
        columns.wait(30)
        return threading.get_ident()

    with Pool.of(2) as pool:
        threads, nothing = pool.map(lambda number: pool.map(column, range(2)) if number == 0 else [], range(2))
    assert len(set(threads)) == 2
    assert nothing == []


def test_nobody_waits_for_threads_that_are_busy() -> None:
    """All threads are busy with files, each of which has columns: each thread does the columns of its file."""
    busy = threading.Barrier(3)

    with Pool.of(3) as pool:

        def file(number: int) -> list[int]:
            busy.wait(30)
            return pool.map(lambda n: n + number, range(5))

        assert pool.map(file, range(3)) == [[n + number for n in range(5)] for number in range(3)]


@pytest.mark.parametrize("part", [1, 2, 3])
def test_no_more_threads_than_the_pool_or_the_part_of_it_has(part: int) -> None:
    at_work, most, lock = set[int](), [0], threading.Lock()

    def column(_: int) -> None:
        with lock:
            at_work.add(threading.get_ident())
            most[0] = max(most[0], len(at_work))
        time.sleep(0.001)
        with lock:
            at_work.discard(threading.get_ident())

    with Pool.of(2) as pool:
        assert pool.part(part).workers == min(part, 2)
        pool.part(part).map(lambda _: pool.part(part).map(column, range(20)), range(6))
    assert most[0] <= min(part, 2)


def test_the_first_error_counts_and_no_more_is_begun() -> None:
    begun: list[int] = []

    def fail(number: int) -> None:
        begun.append(number)
        raise ValueError(number)

    with Pool.of(2) as pool:
        with pytest.raises(ValueError, match="0"):
            pool.map(fail, range(1000))
        assert len(begun) <= 2
        assert pool.map(str, range(3)) == ["0", "1", "2"]


def test_items_that_fail_are_an_error() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    with Pool.of(2) as pool, pytest.raises(OSError, match="no more"):
        pool.map(str, items())


def test_an_error_in_a_column_ends_its_file() -> None:
    with Pool.of(2) as pool, pytest.raises(ZeroDivisionError):
        pool.map(lambda _: pool.map(lambda number: 1 // number, [2, 1, 0, 1]), range(4))


@pytest.mark.parametrize("started", [0, 1])
def test_threads_that_cannot_be_started_are_done_without(monkeypatch: pytest.MonkeyPatch, started: int) -> None:
    start, left = threading.Thread.start, [started]

    def limited(self: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with Pool.of(5) as pool:
        threads = pool.map(ident, range(4))
        assert (set(threads) == {threading.get_ident()}) is (started == 0)
        assert pool.map(lambda n: pool.map(str, range(n)), range(3)) == [[], ["0"], ["0", "1"]]
    left[0] = started
    assert parallel_map(str, range(4), 5) == ["0", "1", "2", "3"]


def test_a_small_merge_does_not_wait_for_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each merge has threads of its own: the first holds all of its threads until the second is done."""
    lakes = [tmp_path / name for name in ("large", "small")]
    for lake in lakes:
        lake.mkdir()
        for n in range(4):
            pq.write_table(pa.table({"id": [n], "v": [0]}), lake / f"{n}.parquet")
    original, begun, done = LocalEngine.map, threading.Event(), threading.Event()
    large = threading.Thread(target=lambda: merge(lakes[0]))

    def merge(lake: Path) -> None:
        fsspeckit.merge(pa.table({"id": range(4), "v": [1] * 4}), str(lake), key_columns=["id"])

    def holding(self: Any, step: Any, function: Any, items: Any, weight: Any) -> Any:
        def held(item: Any) -> Any:
            begun.set()
            assert done.wait(60)
            return function(item)

        return original(self, step, held if threading.current_thread() is large else function, items, weight)

    monkeypatch.setattr(LocalEngine, "map", holding)
    large.start()
    assert begun.wait(60)
    merge(lakes[1])
    done.set()
    large.join()
    for lake in lakes:
        assert fsspeckit.read(str(lake)).column("v").to_pylist() == [1] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_while_a_pool_is_open_has_threads_of_its_own() -> None:
    with Pool.of(2) as pool:
        pool.map(ident, range(4))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # instead of waiting forever
            try:
                os.write(write, "".join(parallel_map(str, range(4), 2)).encode())
            finally:
                os._exit(0)
        os.close(write)
        assert os.waitpid(child, 0) == (child, 0)
        with os.fdopen(read, "rb") as answer:
            assert answer.read() == b"0123"


class Value:
    """Something that can be referred to weakly."""


def test_results_are_freed_while_the_threads_of_the_pool_are_busy() -> None:
    """Two files that are compacted at the same time held every row group until one of them was finished."""
    held: list[weakref.ref[Value]] = []
    both = threading.Barrier(2, timeout=60)

    def inner(_: int) -> Value:
        value = Value()
        held.append(weakref.ref(value))
        return value

    def outer(_: int) -> int:
        both.wait()
        assert len(pool.map(inner, range(3))) == 3
        both.wait()  # the other thread is still busy, and has not taken the work that waits for it
        return sum(value() is not None for value in held)

    with Pool.of(2) as pool:
        assert pool.map(outer, range(2)) == [0, 0]
