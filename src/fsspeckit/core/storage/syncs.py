"""Open files on their way to the disk, while others are computed."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import Future, wait
from functools import cache
from typing import Self

from fsspeckit.core.parallel import Threads

# Files that wait for the disk at once.
_AT_ONCE = 4


class Syncs:
    """A few at once, and whoever adds more waits. When it ends, all are on the disk, or an error tells which is not."""

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(2 * _AT_ONCE)
        self._under_way: list[Future[None]] = []

    def add(self, handle: int) -> None:
        self._room.acquire()
        self._under_way.append(_threads().submit(self._sync, handle))

    def _sync(self, handle: int) -> None:
        try:
            sync(handle)
        finally:
            self._room.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        wait(self._under_way)
        if error_type is None:
            for done in self._under_way:
                done.result()


@cache
def _threads() -> Threads:
    """They stay: to start one takes longer than to sync a small file."""
    return Threads(_AT_ONCE, thread_name_prefix="fsspeckit-sync")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has none of them


def sync(handle: int) -> None:
    """Write an open file, or folder, to the disk, and close it."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no fsync for folders
            raise
    finally:
        os.close(handle)
