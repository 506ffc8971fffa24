"""Anything that fsspec reaches."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.fs
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.core.errors import DatasetLockedError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import copy_bytes, locked, skipped_folder


@dataclass
class FsspecStorage:
    """Anything fsspec reaches. Renames are copies there, so readers may see a commit half applied."""

    fs: Any
    renames_atomically: bool = False
    _locks: ClassVar[dict[tuple[int, str], threading.Lock]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()
    _made: set[str] = field(default_factory=set)

    def look(self, root: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def walk(self, root: str) -> Iterator[FileInfo]:
        found = self.fs.find(root, detail=True)
        for path in sorted(found):
            relative = path[len(root) :].lstrip("/")
            if not any(skipped_folder(part) for part in relative.split("/")[:-1]):
                yield self._info(relative, found[path])

    def folders(self, root: str) -> Iterator[str]:
        for folder, below, _ in self.fs.walk(root):
            inside = folder[len(root) :].strip("/")
            below[:] = sorted(below)
            yield from (posixpath.join(inside, name) for name in below)
            below[:] = [name for name in below if not skipped_folder(name)]

    def above(self, root: str) -> list[str]:
        """None: the lock of this process goes by the data set's name."""
        return []

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

    def is_plain(self, path: str) -> bool:
        return self.is_file(path)

    def resolve(self, path: str) -> str:
        return path

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(posixpath.basename(p.rstrip("/")) for p in self.fs.ls(folder, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def present(self, folder: str, names: Sequence[str]) -> list[str]:
        there = set(self.names(folder))
        return [name for name in names if name in there]

    def will_read(self, source: Any, ranges: Iterable[tuple[int, int]]) -> None:
        """Nothing to do: fsspec reads ahead."""

    def open_input(self, path: str) -> Any:
        return pa.PythonFile(self.fs.open(path, "rb"), mode="r")

    def open_input_end(self, path: str) -> Any:
        return self.open_input(path)

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Nobody can tell: these file systems say no more of a file than its size and, maybe, a time."""
        return False

    def identity(self, root: str) -> str | None:
        return None

    def open_output(self, path: str, final: str = "") -> Any:
        return self.fs.open(path, "wb")

    def copy_range(self, source: Any, sink: Any, offset: int, length: int) -> None:
        copy_bytes(source, sink, offset, length)

    def receipt(self, path: str) -> str | None:
        return None

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

    def syncing(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def sync_folder(self, path: str) -> None:
        """Nothing to do: there are no folders to sync."""

    def copy_mode(self, source: str, target: str) -> None:
        """Nothing to do: objects have no mode."""

    def check_lockable(self, root: str) -> None:
        """Stores that other processes write to are refused until they have a real lock."""
        if not isinstance(self.fs, MemoryFileSystem):
            raise DatasetLockedError(
                f"Writing to {root} on {type(self.fs).__name__} is not supported yet: two writers could not be kept "
                "apart. Merge into a local folder or an s3:// path, or copy the data set there first.",
                operation="lock",
            )

    @contextlib.contextmanager
    def lock(self, root: str, timeout: float, owner: Callable[[str], str]) -> Iterator[Callable[[], bool]]:
        """Within this process."""
        with self._guard:
            lock = self._locks.setdefault((id(type(self.fs)), root), threading.Lock())
        if not lock.acquire(timeout=timeout):
            raise locked(root, timeout, owner(root))
        try:
            yield lambda: True
        finally:
            lock.release()

    def claim(self, folder: str) -> Callable[[], None] | None:
        return lambda: None
