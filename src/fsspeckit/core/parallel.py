"""Maps with a bounded number of threads (`prefetch_map`, `chunked_map`, `parallel_map`), and the pool of one merge."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

__all__ = ["Pool", "Threads", "cached_property", "chunked_map", "parallel_map", "prefetch_map"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_CHUNK = 64
_WAITED = 3

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property[Result]):
        """`functools.cached_property` without its lock, as in Python 3.12.

        In Python 3.11 all objects share one lock for a property, so threads wait for each other. A process that is
        forked while a thread holds the lock would wait forever.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


class Threads(ThreadPoolExecutor):
    """Threads, or only the caller while the interpreter ends: then Python starts no threads, but other threads and
    `atexit` functions may still merge.

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


def prefetch_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """`map` by threads, in order, with at most `workers` results waiting to be taken.

    >>> list(prefetch_map(str, [1, 2, 3], 2))
    ['1', '2', '3']
    """
    waiting: deque[Future[Result]] = deque()
    with Threads(workers) as threads:
        try:
            for item in items:
                if len(waiting) >= workers:
                    yield waiting.popleft().result()
                waiting.append(threads.submit(function, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def chunked_map(
    function: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item], workers: int
) -> list[Result]:
    """Results of a function that takes a chunk of small items at once.

    Threads slow each other down if they only compute: with eight of them, footers from the page cache took almost twice
    as long as with one. So threads start only after a chunk that took three times as long as its CPU time.

    >>> chunked_map(lambda chunk: [str(i) for i in chunk], range(100), 2)[98:]
    ['98', '99']
    """
    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    results: list[Result] = []
    while chunks:
        began, computed = time.perf_counter(), time.thread_time()
        results += function(chunks.pop(0))
        if time.perf_counter() - began > _WAITED * (time.thread_time() - computed):
            break
    for more in parallel_map(function, chunks, workers):
        results += more
    return results


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """`map` by threads that end with it.

    >>> parallel_map(str, [1, 2, 3], 2)
    ['1', '2', '3']
    """
    with Pool.of(min(workers, len(items))) as pool:
        return pool.map(function, items)


@dataclass(frozen=True, slots=True)
class Pool:
    """The threads of one merge. `workers` of them take part in a `map`; without threads the caller does all the work.

    A function that runs in the pool may call `map` itself. Its thread then does the work together with idle threads,
    and does not wait for busy ones. So threads that find no more files help with the columns of the last one, and there
    are never more threads at work than the pool has.

    >>> with Pool.of(2) as pool:
    ...     pool.map(lambda n: pool.map(str, range(n)), [1, 2])
    [['0'], ['0', '1']]
    """

    workers: int = 1
    _threads: Threads | None = None
    _members: frozenset[int] | set[int] = field(default=frozenset())
    _interrupted: Callable[[BaseException], None] | None = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, workers: int, interrupted: Callable[[BaseException], None] | None = None) -> Iterator[Pool]:
        """A pool whose threads start when they are needed, and end with the context.

        `interrupted` is called when Ctrl-C ends a `map` early, and may make its functions end early too.
        """
        if workers <= 1:
            yield cls()
            return
        members: set[int] = set()
        with Threads(workers, "fsspeckit", _add_this_thread, (members,)) as threads:
            yield cls(workers, threads, members, interrupted)

    def part(self, workers: int) -> Pool:
        """The same threads, of which at most `workers` take part in one `map`."""
        return Pool(min(workers, self.workers), self._threads, self._members, self._interrupted)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Results in the order of the items; after the first error no more items are begun."""
        if self.workers <= 1 or self._threads is None:
            return [function(item) for item in items]
        work, is_member = _Work(function, items), threading.get_ident() in self._members
        helpers: list[Future[None]] = []
        try:
            with contextlib.suppress(RuntimeError):  # no more threads can be started: so there are fewer
                while len(helpers) < (self.workers - 1 if is_member else self.workers):
                    helpers.append(self._threads.submit(work))
            if is_member or not helpers:
                work()
                helpers = [helper for helper in helpers if not helper.cancel()]
            wait(helpers)
        except KeyboardInterrupt as error:
            if self._interrupted is not None:
                self._interrupted(error)
            raise
        finally:
            work.is_over = True
            wait(helpers)
        return work.results()


def _add_this_thread(members: set[int]) -> None:
    members.add(threading.get_ident())


class _Work(Generic[Item, Result]):
    """Every thread that calls it does one item after the other, until there are no more or one fails."""

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
        """In the order of the items. They are taken out: a queue may keep this object for long."""
        if self._failed:
            raise self._failed[min(self._failed)]
        done, self._done = self._done, {}
        return [done[number] for number in range(len(done))]
