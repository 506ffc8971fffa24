"""The calls that a file system has to answer."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow.fs

from fsspeckit.core.errors import DatasetLockedError
from fsspeckit.core.model import FileInfo

RECORD_LIMIT = 256 << 20
"""The most that `read_bytes` reads. Records of ours are small; what is larger is not ours."""
_PIECE = 8 << 20


class Storage(Protocol):
    """The calls a file system has to answer. `renames_atomically` tells whether a rename replaces in one step."""

    renames_atomically: bool

    def look(self, root: str) -> contextlib.AbstractContextManager[None]:
        """Ask several things about one folder; a store lists it once for all of them."""

    def walk(self, root: str) -> Iterator[FileInfo]: ...
    def folders(self, root: str) -> Iterator[str]: ...
    def above(self, root: str) -> list[str]: ...
    def stat(self, path: str) -> FileInfo | None: ...
    def resolve(self, path: str) -> str: ...
    def is_dir(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool: ...
    def is_link(self, path: str) -> bool: ...
    def is_plain(self, path: str) -> bool: ...
    def names(self, folder: str) -> list[str]: ...
    def present(self, folder: str, names: Sequence[str]) -> list[str]:
        """Those of the names that something in the folder has."""

    def open_input(self, path: str) -> Any: ...
    def open_input_end(self, path: str) -> Any:
        """Open a file of which no more than the footer is asked for."""

    def will_read(self, source: Any, ranges: Iterable[tuple[int, int]]) -> None:
        """These bytes of an open file are asked for next; a store is asked for them together."""

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Is what was read of an open file of the very file that a listing told of?"""

    def identity(self, root: str) -> str | None:
        """What tells this folder from all others, in every process of this user; `None` if nothing does."""

    def copy_range(self, source: Any, sink: Any, offset: int, length: int) -> None: ...
    def open_output(self, path: str, final: str = "") -> Any:
        """Open a file in staging, or a scratch file. A store has to know `final`, its place in the data set."""

    def receipt(self, path: str) -> str | None:
        """What the commit needs to know of a staged file that was closed, beyond its name."""

    def filesystem(self) -> pyarrow.fs.FileSystem:
        """For PyArrow's scan of a data set."""

    def read_bytes(self, path: str) -> bytes: ...
    def write_bytes(self, path: str, data: bytes) -> None: ...
    def make_folder(self, path: str) -> list[str]: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None: ...
    def sync_file(self, path: str) -> None: ...
    def syncing(self) -> contextlib.AbstractContextManager[None]:
        """Within it, nothing that is synced has to wait for the disk; when it ends, all of it is there."""

    def sync_folder(self, path: str) -> None: ...
    def copy_mode(self, source: str, target: str) -> None: ...
    def check_lockable(self, root: str) -> None: ...
    def lock(
        self, root: str, timeout: float, owner: Callable[[str], str]
    ) -> contextlib.AbstractContextManager[Callable[[], bool]]: ...
    def claim(self, folder: str) -> Callable[[], None] | None: ...


def copy_bytes(source: Any, sink: Any, offset: int, length: int) -> None:
    """Write a range of an open file into a sink, a little at a time."""
    for start in range(offset, offset + length, _PIECE):
        piece = source.read_at(min(_PIECE, offset + length - start), start)
        if len(piece) < min(_PIECE, offset + length - start):
            raise OSError(errno.EIO, "the file ends before the bytes that its footer names")
        sink.write(piece)


def skipped_folder(name: str) -> bool:
    """Hidden folders and `_temporary` and its kin hold no data; `_column=value` does."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def locked(root: str, timeout: float, owner: str) -> DatasetLockedError:
    return DatasetLockedError(
        f"{root} is locked by {owner}; waited {timeout:g} s. Let it finish, or raise lock_timeout.", operation="lock"
    )
