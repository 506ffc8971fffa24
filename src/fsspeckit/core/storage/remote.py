"""Anything that fsspec reaches."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.fs
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import Disk, locked, skipped_folder

_POLL_SECONDS = 0.25


class ProcessLocks:
    """Locks among the threads of this process, by the data set's path: for file systems in its memory."""

    _locks: ClassVar[dict[str, threading.Lock]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()
    # Data sets with the threads that read snapshots of them, and data sets to which a commit is applied, or waits.
    _readers: ClassVar[list[tuple[str, int]]] = []
    _writers: ClassVar[list[str]] = []
    _changed: ClassVar[threading.Condition] = threading.Condition(_guard)

    def above(self, root: str) -> list[str]:
        return []

    @contextlib.contextmanager
    def lock(
        self,
        root: str,
        timeout: float,
        owner: Callable[[str], str],
        waiting: Callable[[Callable[[], str]], None],
    ) -> Iterator[Callable[[], bool]]:
        with self._guard:
            lock = self._locks.setdefault(root, threading.Lock())
        deadline = time.monotonic() + timeout
        while not lock.acquire(timeout=max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise locked(root, timeout, owner(root))
            waiting(lambda: owner(root))
        try:
            yield lambda: True
        finally:
            lock.release()

    def claim(self, folder: str) -> Callable[[], None] | None:
        return lambda: None

    @contextlib.contextmanager
    def snapshot(self, root: str, timeout: float) -> Iterator[bool]:
        reader, is_nested = (root, threading.get_ident()), self.has_own_snapshot(root)
        with self._changed:
            if not self._changed.wait_for(lambda: is_nested or root not in self._writers, timeout):
                raise locked(root, timeout, "a writer of this process that applies a commit")
            self._readers.append(reader)
        try:
            yield True
        finally:
            with self._changed:
                self._readers.remove(reader)
                self._changed.notify_all()

    @contextlib.contextmanager
    def applying(self, root: str, timeout: float) -> Iterator[bool]:
        def is_read() -> bool:
            return any(folder == root for folder, _ in self._readers)

        with self._changed:
            self._writers.append(root)
            waited = is_read()
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: not is_read(), timeout):
                    raise locked(root, timeout, "a snapshot that another thread of this process reads")
            yield waited
        finally:
            with self._changed:
                self._writers.remove(root)
                self._changed.notify_all()

    def has_own_snapshot(self, root: str) -> bool:
        with self._guard:
            return (root, threading.get_ident()) in self._readers


@dataclass
class FsspecStorage(Disk):
    """Anything fsspec reaches. Renames are copies there, so readers may see a commit half applied."""

    fs: Any

    @property
    def locks(self) -> ProcessLocks | None:
        return ProcessLocks() if self.in_this_process else None

    @property
    def in_this_process(self) -> bool:  # type: ignore[override]
        return isinstance(self.fs, MemoryFileSystem)

    def walk(self, root: str) -> Iterator[FileInfo]:
        details = self.fs.find(root, detail=True)
        for path in sorted(details):
            relative = path[len(root) :].lstrip("/")
            if not any(skipped_folder(part) for part in relative.split("/")[:-1]):
                yield self._info(relative, details[path])

    def folders(self, root: str) -> Iterator[str]:
        for folder, below, _ in self.fs.walk(root):
            inside = folder[len(root) :].strip("/")
            below[:] = sorted(below)
            yield from (posixpath.join(inside, name) for name in below)
            below[:] = [name for name in below if not skipped_folder(name)]

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

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(posixpath.basename(p.rstrip("/")) for p in self.fs.ls(folder, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def open_input(self, path: str) -> Any:
        return pa.PythonFile(self.fs.open(path, "rb"), mode="r")

    def open_output(self, path: str, final: str = "") -> Any:
        return self.fs.open(path, "wb")

    def url(self, path: str) -> str:
        return str(self.fs.unstrip_protocol(path))

    def filesystem(self) -> pyarrow.fs.FileSystem:
        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(self.fs))

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
        self.fs.mv(source, target, recursive=self.fs.isdir(source))

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(path)

    def remove_folder(self, path: str) -> None:
        if self.fs.ls(path, detail=False):
            raise OSError(errno.ENOTEMPTY, "folder is not empty", path)
        self.fs.rmdir(path)

    def remove_all(self, folder: str) -> None:
        self.fs.rm(folder, recursive=True)
