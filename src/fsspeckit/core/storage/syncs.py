"""Files are written to the disk by threads while the next ones are computed."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import Future, wait
from typing import Self

from fsspeckit.core.parallel import Threads

# Files that wait for the disk at once.
_AT_ONCE = 4


class Syncs:
    """Syncs open files, a few at once; `add` waits while there are more. At the end all files are durable, or the
    first error is raised."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._room = threading.BoundedSemaphore(2 * _AT_ONCE)
        self._threads = Threads(_AT_ONCE, thread_name_prefix="fsspeckit-sync")
        self._futures: list[Future[None]] = []

    def add(self, handle: int) -> None:
        if os.getpid() != self._process:  # a forked child has none of the threads
            sync(handle)
            return
        self._room.acquire()
        self._futures.append(self._threads.submit(self._sync, handle))

    def _sync(self, handle: int) -> None:
        try:
            sync(handle)
        finally:
            self._room.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if os.getpid() != self._process:
            return
        wait(self._futures)
        self._threads.shutdown(wait=False)
        if error_type is None:
            for future in self._futures:
                future.result()


def sync(handle: int) -> None:
    """Write an open file, or folder, to the disk, and close it."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no fsync for folders
            raise
    finally:
        os.close(handle)
