"""Crews: threads that stay, help each other, and wait for nobody who has not begun."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fsspeckit.core.parallel import side_by_side


def ident(_: Any) -> int:
    return threading.get_ident()


def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Does it come true? On a busy machine that takes a while."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_results_come_in_the_order_of_the_items() -> None:
    assert side_by_side(lambda n: n * n, iter(range(1000)), 3) == [n * n for n in range(1000)]
    assert side_by_side(str, [], 3) == []


def test_threads_stay_for_the_next_time() -> None:
    together = threading.Barrier(2)

    def both(_: int) -> int:
        together.wait(30)
        return threading.get_ident()

    first = set(side_by_side(both, range(2), 2))
    assert len(first) == 2
    assert first == set(side_by_side(both, range(2), 2))
    assert threading.get_ident() not in first


def test_one_of_a_crew_is_helped_by_who_has_nothing_to_do() -> None:
    """The second file is done at once; its thread then takes part in the columns of the first."""
    columns = threading.Barrier(2)

    def column(_: int) -> int:
        columns.wait(30)
        return threading.get_ident()

    def file(number: int) -> list[int]:
        return side_by_side(column, range(2), 2) if number == 0 else []

    threads, nothing = side_by_side(file, range(2), 2)
    assert len(set(threads)) == 2
    assert nothing == []


def test_nobody_waits_for_who_has_not_begun() -> None:
    """All threads are busy with files, each of which has columns: whoever has a file does its columns."""
    busy = threading.Barrier(3)

    def file(number: int) -> list[int]:
        busy.wait(30)
        return side_by_side(lambda n: n + number, range(5), 3)

    assert side_by_side(file, range(3), 3) == [[n + number for n in range(5)] for number in range(3)]


def test_no_more_threads_than_the_crew_has() -> None:
    at_work, most, lock = set[int](), [0], threading.Lock()

    def column(_: int) -> None:
        with lock:
            at_work.add(threading.get_ident())
            most[0] = max(most[0], len(at_work))
        time.sleep(0.001)
        with lock:
            at_work.discard(threading.get_ident())

    side_by_side(lambda _: side_by_side(column, range(20), 2), range(6), 2)
    assert most[0] <= 2


def test_the_first_error_counts_and_no_more_is_begun() -> None:
    begun: list[int] = []

    def fail(number: int) -> None:
        begun.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        side_by_side(fail, range(1000), 2)
    assert len(begun) <= 2
    assert side_by_side(str, range(3), 2) == ["0", "1", "2"]


def test_items_that_fail_are_an_error() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        side_by_side(str, items(), 2)


def test_where_no_thread_is_to_be_had_one_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def in_new_thread() -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        told.append(side_by_side(ident, range(4), 5))

    told: list[list[int]] = []
    thread = threading.Thread(target=in_new_thread)
    thread.start()
    thread.join()
    assert told == [[thread.ident] * 4]


def test_an_error_in_a_column_ends_its_file() -> None:
    def column(number: int) -> int:
        return 1 // number

    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda _: side_by_side(column, [2, 1, 0, 1], 2), range(4), 2)


def test_nobody_waits_for_the_crew_of_another_and_one_crew_stays() -> None:
    """A small merge does not wait for a large one of another thread; afterwards, there are no more threads than one
    crew has."""
    begun, go = threading.Event(), threading.Event()
    seen: list[set[int]] = []

    def hold(_: int) -> int:
        begun.set()
        assert go.wait(60)
        return threading.get_ident()

    def in_thread() -> None:
        seen.append(set(side_by_side(hold, range(2), 2)))

    others = [threading.Thread(target=in_thread) for _ in range(3)]
    for other in others:
        other.start()
    assert begun.wait(30)
    mine = set(side_by_side(ident, range(20), 2))
    go.set()
    for other in others:
        other.join()
    everyone = mine.union(*seen)
    assert all(mine.isdisjoint(some) for some in seen)
    gc.collect()
    assert until(lambda: len(everyone.intersection(thread.ident for thread in threading.enumerate())) <= 2)


def _in_child(results: Any) -> None:
    results.put(side_by_side(str, range(4), 2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_crew_of_its_own() -> None:
    side_by_side(ident, range(4), 2)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_child, args=(results,))
    child.start()
    assert results.get(timeout=60) == ["0", "1", "2", "3"]
    child.join()
