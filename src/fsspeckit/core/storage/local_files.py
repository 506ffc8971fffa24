"""Files and folders of a disk by calls of the system, which are faster than PyArrow's: list, read a footer, sync."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from typing import Self

from fsspeckit.core.model import FileInfo
from fsspeckit.core.parallel import Threads
from fsspeckit.core.storage.base import skipped_folder

# Threads that sync files.
_SYNC_THREADS = 4
_Folder = tuple[str, list["os.DirEntry[str]"]]


def files_below(root: str) -> Iterator[FileInfo]:
    """The files below a folder, without those in skipped folders."""
    for prefix, entries in _folders(root):
        for entry in entries:
            if entry.is_file():
                try:
                    yield file_info(prefix + entry.name, entry.stat())
                except FileNotFoundError:  # removed since the folder was read
                    continue


def folders_below(root: str) -> Iterator[str]:
    """The folders below a folder. Skipped folders are listed, but not what is in them."""
    for prefix, entries in _folders(root):
        yield from sorted([prefix + entry.name for entry in entries if entry.is_dir()])


def file_info(path: str, stat: os.stat_result) -> FileInfo:
    return FileInfo(path, stat.st_size, stat.st_mtime_ns, stat.st_ino, "", stat.st_ctime_ns, stat.st_dev)


def _folders(folder: str, prefix: str = "", above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[_Folder]:
    """A folder and those below it that are not skipped: the prefix of the paths in it, and its entries.

    The folder stays open while its entries are used, so that the system resolves names instead of whole paths.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # removed since the folder above was read
        return
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) in above:  # a link to a folder above
            return
        with os.scandir(descriptor) as scan:
            entries = list(scan)
        yield prefix, entries
        below = sorted([e.name for e in entries if e.is_dir() and not skipped_folder(e.name)])
    finally:
        os.close(descriptor)
    for name in below:
        yield from _folders(f"{folder}/{name}", f"{prefix}{name}/", above | {(status.st_dev, status.st_ino)})


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Bytes of an open file, fewer at its end. One call of the system may return only some of them."""
    data = os.pread(descriptor, length, offset)
    while 0 < len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
        data += more
    return data


class FileEnd:
    """An open file of which only the footer is read. PyArrow's file takes twice as long to open and close."""

    at_once = 8 << 10
    """How much to read first. Few footers are longer, and a second read is cheap."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._position = 0

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def seek(self, position: int) -> None:
        self._position = position

    def read(self, count: int) -> bytes:
        return read_at(self._descriptor, self._position, count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class Syncs:
    """Syncs open files in threads while the next files are computed.

    `add` waits while too many files are open. At the end all files are durable, or the first error is raised.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._room = threading.BoundedSemaphore(2 * _SYNC_THREADS)
        self._threads = Threads(_SYNC_THREADS, thread_name_prefix="fsspeckit-sync")
        self._futures: list[Future[None]] = []

    def add(self, handle: int) -> None:
        if os.getpid() != self._process:  # a forked child does not have the threads
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
    """Sync an open file or folder, and close it."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no fsync for folders
            raise
    finally:
        os.close(handle)
