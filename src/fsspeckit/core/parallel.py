"""Threads that do not run away: a few items ahead of the one being used, and no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_HANDFUL = 32


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


def in_handfuls(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """`map` by threads for many small items: handing over each of them would take as long as the work itself.

    >>> in_handfuls(str, range(100), 2)[98:]
    ['98', '99']
    """
    handfuls = [items[start : start + _HANDFUL] for start in range(0, len(items), _HANDFUL)]
    if len(handfuls) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return [result for results in pool.map(lambda few: [function(i) for i in few], handfuls) for result in results]
