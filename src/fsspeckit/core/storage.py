"""The only way to list, open, write, rename, sync and lock.

A `Location` is a data set: a `Storage` and the folder in it. Local disks are read and written with PyArrow's native
files; everything else is reached through fsspec. Paths handed to a `Storage` are absolute; data files are named
relative to the data set, with `/`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posixpath
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from urllib.parse import unquote, urlsplit

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.core.errors import ArgumentError, DatasetLockedError
from fsspeckit.core.model import FileInfo


class Storage(Protocol):
    """The calls a file system has to answer. `renames_atomically` tells whether a rename replaces in one step."""

    renames_atomically: bool

    def walk(self, root: str) -> Iterator[FileInfo]: ...
    def stat(self, path: str) -> FileInfo | None: ...
    def is_dir(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool: ...
    def is_link(self, path: str) -> bool: ...
    def names(self, folder: str) -> list[str]: ...
    def open_input(self, path: str) -> Any: ...
    def open_output(self, path: str) -> Any: ...
    def read_bytes(self, path: str) -> bytes: ...
    def write_bytes(self, path: str, data: bytes) -> None: ...
    def make_folder(self, path: str) -> list[str]: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None: ...
    def sync_file(self, path: str) -> None: ...
    def sync_folder(self, path: str) -> None: ...
    def copy_mode(self, source: str, target: str) -> None: ...
    def lock(self, root: str, timeout: float, owner: Callable[[], str]) -> contextlib.AbstractContextManager[None]: ...


@dataclass(frozen=True)
class Location:
    """A data set: its storage, its resolved folder, and the path as the user wrote it."""

    storage: Storage
    root: str
    shown: str

    def at(self, path: str) -> str:
        return posixpath.join(self.root, path) if path else self.root

    def show(self, path: str) -> str:
        return f"{self.shown.rstrip('/')}/{path}"

    @property
    def parent(self) -> str:
        return posixpath.dirname(self.root)

    @property
    def name(self) -> str:
        return posixpath.basename(self.root)


def locate(path: str | os.PathLike[str], filesystem: Any = None) -> Location:
    """Find the data set that `path` names: a local path, a `file://` or other fsspec URL, or a path in `filesystem`.

    >>> locate("memory://lake/events").root
    '/lake/events'
    """
    shown = os.fspath(path)
    if not isinstance(shown, str) or not shown:
        raise ArgumentError(f"A data set path must be a non-empty string, not {path!r}.")
    if filesystem is None and "://" not in shown:
        return Location(LocalStorage(), os.path.realpath(shown), shown)
    fs, root = _filesystem_of(shown, filesystem)
    if isinstance(fs, LocalFileSystem):
        return Location(LocalStorage(), os.path.realpath(root), root)
    return Location(FsspecStorage(fs), root.rstrip("/") or "/", shown)


def _filesystem_of(shown: str, filesystem: Any) -> tuple[Any, str]:
    if filesystem is None and shown.startswith("file://"):
        return LocalFileSystem(), unquote(urlsplit(shown).path)
    if filesystem is None:
        return fsspec.core.url_to_fs(shown)  # type: ignore[no-any-return]
    if isinstance(filesystem, pa.fs.FileSystem):
        if isinstance(filesystem, pa.fs.LocalFileSystem):
            return LocalFileSystem(), shown
        return fsspec.implementations.arrow.ArrowFSWrapper(filesystem), shown
    return filesystem, filesystem._strip_protocol(shown)


def skipped_folder(name: str) -> bool:
    """Hidden folders and `_temporary` and its kin hold no data; `_column=value` does."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


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

    @contextlib.contextmanager
    def lock(self, root: str, timeout: float, owner: Callable[[], str]) -> Iterator[None]:
        """`flock` on the folder itself: no file to trip over, and a dead owner's lock is gone."""
        deadline = time.monotonic() + timeout
        while True:
            handle = _open_folder(root)
            try:
                while not _try_flock(handle):
                    if time.monotonic() >= deadline:
                        raise _locked(root, timeout, owner())
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


def _locked(root: str, timeout: float, owner: str) -> DatasetLockedError:
    return DatasetLockedError(
        f"{root} is locked by {owner}; waited {timeout:g} s. Let it finish, or raise lock_timeout.", operation="lock"
    )


@dataclass
class FsspecStorage:
    """Anything fsspec reaches. Renames are copies there, so readers may see a commit half applied."""

    fs: Any
    renames_atomically: bool = False
    _locks: ClassVar[dict[tuple[int, str], threading.Lock]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()
    _made: set[str] = field(default_factory=set)

    def walk(self, root: str) -> Iterator[FileInfo]:
        found = self.fs.find(root, detail=True)
        for path in sorted(found):
            relative = path[len(root) :].lstrip("/")
            if not any(skipped_folder(part) for part in relative.split("/")[:-1]):
                yield self._info(relative, found[path])

    def stat(self, path: str) -> FileInfo | None:
        try:
            detail = self.fs.info(path)
        except FileNotFoundError:
            return None
        return self._info(path, detail)

    def _info(self, path: str, detail: dict[str, Any]) -> FileInfo:
        stamp = detail.get("mtime") or detail.get("LastModified") or detail.get("created") or 0
        seconds = stamp.timestamp() if hasattr(stamp, "timestamp") else float(stamp)
        return FileInfo(path, int(detail.get("size") or 0), int(seconds * 1e9))

    def is_dir(self, path: str) -> bool:
        return bool(self.fs.isdir(path))

    def is_file(self, path: str) -> bool:
        return bool(self.fs.isfile(path))

    def is_link(self, path: str) -> bool:
        return False

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(posixpath.basename(p.rstrip("/")) for p in self.fs.ls(folder, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def open_input(self, path: str) -> Any:
        return pa.PythonFile(self.fs.open(path, "rb"), mode="r")

    def open_output(self, path: str) -> Any:
        return self.fs.open(path, "wb")

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.fs.cat_file(path))

    def write_bytes(self, path: str, data: bytes) -> None:
        self.fs.pipe_file(path, data)

    def make_folder(self, path: str) -> list[str]:
        if self.fs.isdir(path):
            return []
        self.fs.makedirs(path, exist_ok=True)
        return [path]

    def rename(self, source: str, target: str) -> None:
        self.fs.mv(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(path)

    def remove_folder(self, path: str) -> None:
        if self.fs.ls(path, detail=False):
            raise OSError(errno.ENOTEMPTY, "folder is not empty", path)
        self.fs.rmdir(path)

    def sync_file(self, path: str) -> None:
        """Nothing to do: a closed object is stored."""

    def sync_folder(self, path: str) -> None:
        """Nothing to do: there are no folders to sync."""

    def copy_mode(self, source: str, target: str) -> None:
        """Nothing to do: objects have no mode."""

    @contextlib.contextmanager
    def lock(self, root: str, timeout: float, owner: Callable[[], str]) -> Iterator[None]:
        """Within this process. Stores that other processes write to are refused until they have a real lock."""
        if not isinstance(self.fs, MemoryFileSystem):
            raise DatasetLockedError(
                f"Writing to {type(self.fs).__name__} is not supported yet: two writers could not be kept apart. "
                "Merge into a local folder, or copy the data set there first.",
                operation="lock",
            )
        with self._guard:
            lock = self._locks.setdefault((id(type(self.fs)), root), threading.Lock())
        if not lock.acquire(timeout=timeout):
            raise _locked(root, timeout, owner())
        try:
            yield
        finally:
            lock.release()
