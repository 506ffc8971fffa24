"""Threads that do not run away: a few items ahead of the one being used, and no more."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_HANDFUL = 64
_WAITED = 3


def ahead(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`map` by threads, in order, with at most `workers` results waiting to be taken.

    >>> list(ahead(str, [1, 2, 3], 2))
    ['1', '2', '3']
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                if len(waiting) >= workers:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def in_handfuls(
    function: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item], workers: int
) -> list[Result]:
    """Results of a function that takes a handful of small items at once.

    Python's threads are in each other's way where nobody waits: with eight of them footers out of the page cache took
    almost twice as long as with one (measured). So they begin when a handful took three times as long as it worked.

    >>> in_handfuls(lambda few: [str(i) for i in few], range(100), 2)[98:]
    ['98', '99']
    """
    handfuls = [items[start : start + _HANDFUL] for start in range(0, len(items), _HANDFUL)]
    results: list[Result] = []
    while handfuls:
        began, worked = time.perf_counter(), time.thread_time()
        results += function(handfuls.pop(0))
        if time.perf_counter() - began > _WAITED * (time.thread_time() - worked):
            break
    if handfuls:
        with ThreadPoolExecutor(workers) as pool:
            for more in pool.map(function, handfuls):
                results += more
    return results
