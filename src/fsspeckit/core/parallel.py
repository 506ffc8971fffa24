"""Threads that do not run away: a few items ahead of the one being used, and no more; and crews, which stay."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_HANDFUL = 64
_WAITED = 3


class Threads(ThreadPoolExecutor):
    """Threads, or nobody but the caller while the interpreter ends: then there are none to be had, though other threads
    and what is registered with `atexit` may still want to merge.

    >>> with Threads(2) as threads:
    ...     list(threads.map(str, [1, 2, 3]))
    ['1', '2', '3']
    """

    def submit(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        try:
            return super().submit(function, *args, **kwargs)
        except RuntimeError as error:
            if "cannot schedule" not in str(error):  # a thread that cannot be started leaves the work to others
                raise
        done: Future[Result] = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


def ahead(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`map` by threads, in order, with at most `workers` results waiting to be taken.

    >>> list(ahead(str, [1, 2, 3], 2))
    ['1', '2', '3']
    """
    waiting: deque[Future[Result]] = deque()
    with Threads(workers) as pool:
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
        with Threads(workers) as pool:
            for more in pool.map(function, handfuls):
                results += more
    return results


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, of: int | None = None
) -> list[Result]:
    """`map` by some `of` the threads of a crew.

    One of a crew that has more to do than one can does it with those that have nothing to do, and waits for nobody who
    has not begun: so whoever finds no more files helps with the columns of the last one.

    >>> side_by_side(str, [1, 2, 3], 2)
    ['1', '2', '3']
    """
    if workers == 1:
        return [function(item) for item in items]
    work, own = _Work(function, items), _own_crew()
    crew, others = own or _Crew.hired(of or workers), list[Future[None]]()
    try:
        with contextlib.suppress(RuntimeError):  # there are too many threads: so there is one less
            while len(others) < (workers - 1 if own else workers):
                others.append(crew.submit(work))
        if own or not others:
            work()
            others = [other for other in others if not other.cancel()]
        wait(others)
    finally:
        work.is_over = True
        wait(others)
        if not own:
            crew.dismiss()
    return work.results()


class _Work(Generic[Item, Result]):
    """Whoever calls it does one item after the other, until there are no more or one fails."""

    def __init__(self, function: Callable[[Item], Result], items: Iterable[Item]) -> None:
        self._function, self._items, self._lock = function, enumerate(items), threading.Lock()
        self._done: dict[int, Result] = {}
        self._failed: dict[int, BaseException] = {}
        self.is_over = False

    def __call__(self) -> None:
        while not self.is_over:
            number = -1  # the items themselves may fail
            try:
                with self._lock:
                    taken = next(self._items, None)
                if taken is None:
                    return
                number, item = taken
                self._done[number] = self._function(item)
            except BaseException as error:
                self._failed[number], self.is_over = error, True

    def results(self) -> list[Result]:
        """In the order of the items."""
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._done[number] for number in range(len(self._done))]


class _Crew:
    """Threads that work for one at a time. The last crew that was needed stays for whoever needs one next.

    To start threads takes a while; and memory that a thread has freed is at hand for it, where that of one that ended
    had to be taken from the system again: a merge of 36 MiB took 200.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool = Threads(size, "fsspeckit", _belong_to, (weakref.ref(self),))

    @classmethod
    def hired(cls, size: int) -> _Crew:
        with contextlib.suppress(IndexError):
            crew = _idle.pop()
            if crew._size == size:
                return crew
        return cls(size)

    def submit(self, work: Callable[[], None]) -> Future[None]:
        return self._pool.submit(work)

    def dismiss(self) -> None:
        _idle.append(self)


_idle: deque[_Crew] = deque(maxlen=1)
os.register_at_fork(after_in_child=_idle.clear)  # a forked child has no thread but its own
_mine = threading.local()


def _belong_to(crew: weakref.ref[_Crew]) -> None:
    _mine.crew = crew


def _own_crew() -> _Crew | None:
    """The crew that this thread is one of."""
    own: Callable[[], _Crew | None] = getattr(_mine, "crew", lambda: None)
    return own()
