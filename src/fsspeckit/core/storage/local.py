"""The machine's own disks: PyArrow's native files, `os` for the rest, `flock` on the folder itself."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import locked, skipped_folder


class LocalStorage:
    """The machine's own disks."""

    renames_atomically = True

    def walk(self, root: str) -> Iterator[FileInfo]:
        return self._walk(root, "", set())

    def _walk(self, folder: str, prefix: str, above: set[tuple[int, int]]) -> Iterator[FileInfo]:
        try:
            here = os.stat(folder)
            with os.scandir(folder) as entries:
                ordered = sorted(entries, key=lambda e: e.name)
        except FileNotFoundError:  # gone since the folder above was read
            return
        if (here.st_dev, here.st_ino) in above:  # a link that leads back up
            return
        inside = above | {(here.st_dev, here.st_ino)}
        for entry in ordered:
            path = prefix + entry.name
            if entry.is_dir():
                if not skipped_folder(entry.name):
                    yield from self._walk(entry.path, path + "/", inside)
            elif entry.is_file():
                with contextlib.suppress(FileNotFoundError):  # gone since the folder was read
                    yield _info(path, entry.stat())

    def stat(self, path: str) -> FileInfo | None:
        try:
            return _info(path, os.stat(path))
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        """Is there something that is not a folder?"""
        try:
            return not stat.S_ISDIR(os.stat(path).st_mode)
        except OSError:
            return False

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise

    def open_input(self, path: str) -> Any:
        return pa.OSFile(path, "rb")

    def open_output(self, path: str) -> Any:
        return open(path, "wb")

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_bytes(self, path: str, data: bytes) -> None:
        with open(path, "wb") as file:
            file.write(data)

    def make_folder(self, path: str) -> list[str]:
        """Make a folder and what is missing above it; returns what was made, outermost first."""
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
        return missing[::-1]

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def sync_file(self, path: str) -> None:
        _fsync(path, os.O_RDONLY)

    def sync_folder(self, path: str) -> None:
        _fsync(path, os.O_RDONLY | os.O_DIRECTORY)

    def copy_mode(self, source: str, target: str) -> None:
        """A rewritten file keeps the old one's mode, and its owner and group as far as we may set them."""
        old = os.stat(source)
        with contextlib.suppress(PermissionError):
            os.chown(target, old.st_uid, old.st_gid)
        with contextlib.suppress(PermissionError):
            os.chown(target, -1, old.st_gid)
        os.chmod(target, old.st_mode & 0o7777)

    def check_lockable(self, root: str) -> None:
        """Nothing to do: a local folder can be locked."""

    @contextlib.contextmanager
    def lock(self, root: str, timeout: float, owner: Callable[[], str]) -> Iterator[None]:
        """`flock` on the folder itself: no file to trip over, and a dead owner's lock is gone."""
        deadline = time.monotonic() + timeout
        while True:
            handle = _open_folder(root)
            try:
                while not _try_flock(handle):
                    if time.monotonic() >= deadline:
                        raise locked(root, timeout, owner())
                    time.sleep(0.05)
                if _same_folder(handle, root):
                    yield
                    return
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)  # a process forked meanwhile has the handle too
                os.close(handle)


# A path that cannot be there: nothing at it, a file above it, a name too long for any file.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def _info(path: str, found: os.stat_result) -> FileInfo:
    return FileInfo(path, found.st_size, found.st_mtime_ns, found.st_ino)


def _fsync(path: str, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no fsync for folders
            raise
    finally:
        os.close(handle)


def _open_folder(root: str) -> int:
    """Open a folder, or make it: a writer that was refused removes the folder it made, at any time."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(FileExistsError):
            os.makedirs(root)


def _try_flock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same_folder(handle: int, root: str) -> bool:
    """Whoever held the lock may have removed the folder while we waited; then our lock guards nothing."""
    try:
        there = os.stat(root)
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
