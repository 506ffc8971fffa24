"""What callers ask of a storage, by what they need: read and stage (`Storage`), publish (`Disk`), lock (`Locks`).

The base classes answer what is the same wherever a file system has no links, modes or write cache. A storage overrides
what it knows better, and does not have what it cannot do.
"""

# ruff: noqa: B027 (what a file system without links, modes and a write cache has to do)

from __future__ import annotations

import abc
import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol

import pyarrow.fs

from fsspeckit.core.errors import DatasetLockedError
from fsspeckit.core.model import FileInfo

RECORD_LIMIT = 256 << 20
"""The most that `read_bytes` reads. Records of ours are small; what is larger is not ours."""
_COPY_BYTES = 8 << 20


class Storage(abc.ABC):
    """Read the files of data sets, and stage new ones. Paths are absolute."""

    commits_by: Literal["rename", "upload"]
    """The commit protocol: staged files are renamed into place, or are uploads that the commit completes."""
    renames_atomically: bool = False
    """A rename replaces a file in one step, so that readers never miss it."""
    opens_by_request: bool = True
    """To open or read a file is a request to a server: several at a time, and as few as possible."""
    in_this_process: bool = False
    """The files are in the memory of this process, and no other process can open them."""

    # Read

    def look(self, root: str) -> contextlib.AbstractContextManager[None]:
        """Ask several things about one folder; a store lists it once for all of them."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def walk(self, root: str) -> Iterator[FileInfo]:
        """The files below a folder, those in skipped folders left out."""

    @abc.abstractmethod
    def folders(self, root: str) -> Iterator[str]:
        """The folders below a folder. Skipped ones are named, but not looked into."""

    @abc.abstractmethod
    def stat(self, path: str) -> FileInfo | None: ...
    @abc.abstractmethod
    def is_dir(self, path: str) -> bool: ...
    @abc.abstractmethod
    def is_file(self, path: str) -> bool: ...
    def is_link(self, path: str) -> bool:
        return False

    def is_plain(self, path: str) -> bool:
        """Is there a file that is neither a link nor a pipe nor a device?"""
        return self.is_file(path)

    @abc.abstractmethod
    def names(self, folder: str) -> list[str]: ...
    def present(self, folder: str, names: Sequence[str]) -> list[str]:
        """Those of the names that are in the folder."""
        there = set(self.names(folder))
        return [name for name in names if name in there]

    @abc.abstractmethod
    def open_input(self, path: str) -> Any: ...
    def open_input_end(self, path: str) -> Any:
        """Open a file of which only the footer is read."""
        return self.open_input(path)

    def will_read(self, source: Any, ranges: Iterable[tuple[int, int]]) -> None:
        """These bytes of an open file are read next. A storage that gains by it asks for them together."""

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Is the open file certainly the one that `info` describes? Without inodes or ETags it is not certain."""
        return False

    def expect(self, path: str, info: FileInfo) -> None:
        """What is read of this file from now on must be of the version that `info` describes, if versions are known."""

    def identity(self, root: str) -> str | None:
        """A name that no other folder has, in every process of this user; `None` if there is none."""
        return None

    @abc.abstractmethod
    def url(self, path: str) -> str: ...
    def local_path(self, path: str) -> str | None:
        """The path by which other processes of this machine open the file; `None` if there is none."""
        return None

    @abc.abstractmethod
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """For PyArrow's scan of a data set."""

    # Stage

    @abc.abstractmethod
    def open_output(self, path: str, final: str = "") -> Any:
        """Open a staged file that the commit puts at `final` in the data set; without `final`, a scratch file."""

    def copy_range(self, source: Any, sink: Any, offset: int, length: int) -> None:
        copy_bytes(source, sink, offset, length)

    def receipt(self, path: str) -> str | None:
        """What the commit has to know of a closed staged file beyond its name. It can be sent to another process."""
        return None

    def sync_file(self, path: str) -> None:
        """Make a closed file durable, where closing it is not enough."""

    def syncing(self) -> contextlib.AbstractContextManager[None]:
        """Within the block, `sync_file` need not wait for the disk. When it ends, every file is durable."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is passed over."""

    @abc.abstractmethod
    def remove_all(self, folder: str) -> None:
        """Remove a scratch folder and what is in it."""


class Disk(Storage):
    """Publish staged files by renames. `None` for `locks`: two writers could not be kept apart, so nobody commits."""

    commits_by = "rename"

    @property
    @abc.abstractmethod
    def locks(self) -> Locks | None: ...

    @abc.abstractmethod
    def read_bytes(self, path: str) -> bytes: ...
    @abc.abstractmethod
    def write_bytes(self, path: str, data: bytes) -> None: ...
    @abc.abstractmethod
    def rename(self, source: str, target: str) -> None: ...
    @abc.abstractmethod
    def make_folder(self, path: str) -> list[str]:
        """Make a folder and what is missing above it; returns what was made, outermost first."""

    @abc.abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""

    def resolve(self, path: str) -> str:
        """The path without links."""
        return path

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable, where they are not at once."""

    def make_private_folder(self, path: str, like: str) -> None:
        """Make a folder that only this user may open; files in it get the group that files in `like` get."""
        self.make_folder(path)

    def share_with_group(self, path: str, folders: Sequence[str]) -> None:
        """Open a private folder to those who may write to all of `folders` as their group."""

    def copy_mode(self, source: str, target: str) -> None:
        """Give a staged file mode, owner, group, ACL and user xattrs of another; `StorageError` if that cannot be."""

    def check_replaceable(self, paths: Iterable[str]) -> None:
        """Raise an `OSError` that names a path at which no file can be put, or whose file cannot be replaced."""


class Locks(Protocol):
    """Keep writers of one data set apart."""

    def above(self, root: str) -> list[str]:
        """The folders above one whose locks are shared with it, the outermost first."""

    def lock(
        self, root: str, timeout: float, owner: Callable[[str], str]
    ) -> contextlib.AbstractContextManager[Callable[[], bool]]:
        """Lock a folder; yields a function that tells whether the path still names the locked folder."""

    def claim(self, folder: str) -> Callable[[], None] | None:
        """Take a folder for this process; `None` if a living process has it."""


def copy_bytes(source: Any, sink: Any, offset: int, length: int) -> None:
    """Write a range of an open file into a sink, a little at a time."""
    for start in range(offset, offset + length, _COPY_BYTES):
        piece = source.read_at(min(_COPY_BYTES, offset + length - start), start)
        if len(piece) < min(_COPY_BYTES, offset + length - start):
            raise OSError(errno.EIO, "the file ends before the bytes that its footer names")
        sink.write(piece)


def skipped_folder(name: str) -> bool:
    """Hidden folders, `_temporary` and the like hold no data; `_column=value` does."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def locked(root: str, timeout: float, owner: str) -> DatasetLockedError:
    return DatasetLockedError(
        f"{root} is locked by {owner}; waited {timeout:g} s. Let it finish, or raise lock_timeout.", operation="lock"
    )
