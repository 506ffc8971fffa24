"""The interface of storages: read and stage files (`Storage`), publish them by renames (`Disk`), lock (`Locks`).

The defaults suit a file system without links, modes and a write cache. A storage overrides the rest.
"""

# ruff: noqa: B027 (methods with nothing to do in a file system without links, modes and a write cache)

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
"""The most that `read_bytes` reads. Our own files are smaller."""
_COPY_BYTES = 8 << 20


class Storage(abc.ABC):
    """Read the files of data sets, and stage new ones. Paths are absolute."""

    commits_by: Literal["rename", "upload"]
    """The commit protocol: staged files are renamed into place, or are uploads that the commit completes."""
    renames_atomically: bool = False
    """A rename replaces a file in one step, so readers always find the file."""
    opens_by_request: bool = True
    """Opening or reading a file is a request to a server: make few, and several at a time."""
    in_this_process: bool = False
    """The files are in the memory of this process. No other process can open them."""

    # Read

    def one_listing(self, root: str) -> contextlib.AbstractContextManager[None]:
        """Within the block, a store answers all questions about one folder from one listing."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def walk(self, root: str) -> Iterator[FileInfo]:
        """The files below a folder, without those in skipped folders."""

    @abc.abstractmethod
    def folders(self, root: str) -> Iterator[str]:
        """The folders below a folder. Skipped folders are listed, but not what is in them."""

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
        """The names among `names` that are in the folder."""
        existing = set(self.names(folder))
        return [name for name in names if name in existing]

    @abc.abstractmethod
    def open_input(self, path: str) -> Any: ...
    def open_input_end(self, path: str) -> Any:
        """Open a file of which only the footer is read."""
        return self.open_input(path)

    def will_read(self, source: Any, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce the ranges that are read next. A store reads neighbouring ones in one request."""

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Is the open file certainly the version that `info` describes? False where versions are unknown."""
        return False

    def expect(self, path: str, info: FileInfo) -> None:
        """From now on, read only the version of this file that `info` describes, if the storage knows versions."""

    def identity(self, root: str) -> str | None:
        """A name that identifies the folder in all processes of this user; `None` if there is none."""
        return None

    @abc.abstractmethod
    def url(self, path: str) -> str: ...
    def local_path(self, path: str) -> str | None:
        """The path for other processes of this machine; `None` if they cannot open the file."""
        return None

    @abc.abstractmethod
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """For PyArrow's scan of a data set."""

    # Stage

    @abc.abstractmethod
    def open_output(self, path: str, final: str = "") -> Any:
        """Open a staged file that the commit puts at `final` in the data set; without `final`, a scratch file."""

    def free_bytes(self, folder: str) -> int | None:
        """How many bytes can be staged in a folder; `None` if that is unknown."""
        return None

    def copy_range(self, source: Any, sink: Any, offset: int, length: int) -> None:
        copy_bytes(source, sink, offset, length)

    def receipt(self, path: str) -> str | None:
        """What the commit needs to know about a closed staged file besides its name. Other processes may use it."""
        return None

    def sync_file(self, path: str) -> None:
        """Make a closed file durable, where closing it is not enough."""

    def syncing(self) -> contextlib.AbstractContextManager[None]:
        """Within the block, `sync_file` need not wait for the disk. At its end every file is durable."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    @abc.abstractmethod
    def remove_all(self, folder: str) -> None:
        """Remove a scratch folder with its files."""


class Disk(Storage):
    """Publish staged files by renames. If `locks` is `None`, nobody can commit: writers could not be kept apart."""

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
        """Make a folder and the missing ones above it. Returns the new folders, the outermost first."""

    @abc.abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""

    def resolve(self, path: str) -> str:
        """The path without links."""
        return path

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""

    def make_private_folder(self, path: str, like: str) -> None:
        """Make a folder that only this user may open; files in it get the group that files in `like` get."""
        self.make_folder(path)

    def share_with_group(self, path: str, folders: Sequence[str]) -> None:
        """Let the group into a private folder if the group may write to all of `folders`."""

    def link_or_copy(self, source: str, target: str) -> None:
        """Make a second name of a file, or if that is not possible a durable copy with the same time and rights."""
        with self.open_input(source) as file, self.open_output(target) as sink:
            copy_bytes(file, sink, 0, file.size())

    def take_rights(self, neighbour: str, target: str, folder: str) -> bool:
        """Give a new file the rights of one in its folder; false if the folder's default ACL decides."""
        return False

    def copy_mode(self, source: str, target: str) -> None:
        """Give a staged file mode, owner, group, ACL and user xattrs of another, or raise `StorageError`."""

    def owner_of(self, path: str) -> str:
        """Owner, group and ACL of a file as a text, where there are such."""
        return ""

    def copy_common_mode(self, sources: Sequence[str], target: str) -> None:
        """Like `copy_mode`, for a staged file with the rows of several files of one owner, group and ACL."""

    def check_replaceable(self, paths: Iterable[str]) -> None:
        """Raise an `OSError` if a file cannot be put at one of these paths, or cannot be replaced there."""


class Locks(Protocol):
    """Keep writers of one data set apart."""

    def above(self, root: str) -> list[str]:
        """The folders above, the outermost first, up to the mount point."""

    def lock(
        self,
        root: str,
        timeout: float,
        owner: Callable[[str], str],
        waiting: Callable[[Callable[[], str]], None],
    ) -> contextlib.AbstractContextManager[Callable[[], bool]]:
        """Lock a folder; yields a function that checks whether the path still names it.

        While it is not free, `waiting` is called with a function that says who has it.
        """

    def claim(self, folder: str) -> Callable[[], None] | None:
        """Take a folder for this process; `None` if a living process has it."""

    def snapshot(self, root: str, timeout: float) -> contextlib.AbstractContextManager[bool]:
        """Hold off the application of commits to a folder; yields false if that is not possible."""

    def applying(self, root: str, timeout: float) -> contextlib.AbstractContextManager[bool]:
        """Hold off new snapshots while a commit is applied; yields whether there were snapshots to wait for."""

    def has_own_snapshot(self, root: str) -> bool:
        """Does this thread hold a snapshot that a commit to the folder would wait for?"""


def copy_bytes(source: Any, sink: Any, offset: int, length: int) -> None:
    """Copy a range of an open file to a sink, in pieces."""
    for start in range(offset, offset + length, _COPY_BYTES):
        piece = source.read_at(min(_COPY_BYTES, offset + length - start), start)
        if len(piece) < min(_COPY_BYTES, offset + length - start):
            raise OSError(errno.EIO, "the file ends before the bytes that its footer names")
        sink.write(piece)


def skipped_folder(name: str) -> bool:
    """Hidden folders and those such as `_temporary` hold no data; `_column=value` does."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def locked(root: str, timeout: float, owner: str) -> DatasetLockedError:
    return DatasetLockedError(
        f"{root} is locked by {owner}; waited {timeout:g} s. Let it finish, or raise lock_timeout.", operation="lock"
    )
