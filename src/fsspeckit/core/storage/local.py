"""The machine's own disks: PyArrow's native files, `os` for the rest, `flock` on the folder itself."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs

from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage import folder_locks, rights, snapshot_locks
from fsspeckit.core.storage.base import RECORD_LIMIT, Disk, Locks, copy_bytes
from fsspeckit.core.storage.local_files import FileEnd, Syncs, file_info, files_below, folders_below, sync

# The buffer of a file that is written: pages have some ten kilobytes.
_BUFFER = 1 << 18
# Errors of systems that cannot copy from file to file: between file systems, on old kernels, in sandboxes.
_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)
# Errors of hard links where a copy is possible.
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)
# Errors that mean that nothing exists at a path: nothing there, a file above it, a name too long for any file.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


class LocalStorage(Disk):
    """The machine's own disks."""

    renames_atomically = True
    opens_by_request = False
    _syncs: Syncs | None = None

    @property
    def locks(self) -> Locks:
        return self

    def walk(self, root: str) -> Iterator[FileInfo]:
        return files_below(root)

    def folders(self, root: str) -> Iterator[str]:
        return folders_below(root)

    def above(self, root: str) -> list[str]:
        return folder_locks.above(root)

    def stat(self, path: str) -> FileInfo | None:
        status = _stat(path)
        return None if status is None else file_info(path, status)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        """Is there anything but a folder?"""
        try:
            return not stat.S_ISDIR(os.stat(path).st_mode)
        except OSError:
            return False

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def is_plain(self, path: str) -> bool:
        status = _stat(path, follow_symlinks=False)
        return status is not None and stat.S_ISREG(status.st_mode)

    def free_bytes(self, folder: str) -> int | None:
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise

    def present(self, folder: str, names: Sequence[str]) -> list[str]:
        """Look up each name: the folder may have thousands of others."""
        return [name for name in names if _stat(f"{folder}/{name}", follow_symlinks=False) is not None]

    def open_input(self, path: str) -> Any:
        return pa.OSFile(path, "rb")

    def open_input_end(self, path: str) -> Any:
        return FileEnd(path)

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Every write and every replacement changes the inode, a time or the size."""
        now = file_info(info.path, os.fstat(source.fileno()))
        return now == info and now.ctime_ns == info.ctime_ns

    def identity(self, root: str) -> str | None:
        return root

    def url(self, path: str) -> str:
        return f"file:{path}"

    def local_path(self, path: str) -> str | None:
        return path

    def open_output(self, path: str, final: str = "") -> Any:
        if folder_locks.is_inherited(os.path.dirname(path)):  # both would write the same file
            raise OSError(errno.EPERM, "a forked child cannot commit its parent's merge", path)
        return open(path, "wb", buffering=_BUFFER, opener=_private)

    def copy_range(self, source: Any, sink: Any, offset: int, length: int) -> None:
        """Copy within the kernel if possible. Some file systems share the blocks instead of copying them."""
        sink.flush()
        copied = 1 if hasattr(os, "copy_file_range") else 0
        while length and copied:
            try:
                copied = os.copy_file_range(source.fileno(), sink.fileno(), length, offset_src=offset)
            except OSError as error:
                if error.errno not in _NO_COPY:
                    raise
                copied = 0  # as at the end of the file, which `copy_bytes` reports
            offset, length = offset + copied, length - copied
        copy_bytes(source, sink, offset, length)

    def filesystem(self) -> pyarrow.fs.FileSystem:
        return pyarrow.fs.LocalFileSystem()

    def read_bytes(self, path: str) -> bytes:
        """Read a record. Links, pipes and devices are refused: they may point anywhere, or never end."""
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > RECORD_LIMIT:
                raise OSError(errno.EINVAL, "not a plain file, or too large to be one of ours", path)
            return file.read(RECORD_LIMIT)

    def write_bytes(self, path: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(path, flags, 0o666), "wb") as file:
            file.write(data)

    def make_folder(self, path: str) -> list[str]:
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
        return missing[::-1]

    def make_private_folder(self, path: str, like: str) -> None:
        self.make_folder(os.path.dirname(path))
        rights.make_private_folder(path, like)

    def share_with_group(self, path: str, folders: Sequence[str]) -> None:
        rights.share_with_group(path, folders)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link_or_copy(self, source: str, target: str) -> None:
        """Links are refused between file systems, for files of other users, or because a file has too many."""
        source = os.path.realpath(source)  # the file itself, not a link to it
        try:
            os.link(source, target)
            return
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        with self.open_input(source) as file, self.open_output(target) as sink:
            self.copy_range(file, sink, 0, file.size())
        self.copy_mode(source, target)
        times = os.stat(source)
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.sync_file(target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def remove_all(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def sync_file(self, path: str) -> None:
        self._sync(os.open(path, os.O_RDONLY))

    def _sync(self, handle: int) -> None:
        if self._syncs is None:
            sync(handle)
        else:
            self._syncs.add(handle)

    @contextlib.contextmanager
    def syncing(self) -> Iterator[None]:
        """Files and folders are synced while the next ones are computed."""
        with Syncs() as self._syncs:
            try:
                yield
            finally:
                self._syncs = None

    def __getstate__(self) -> None:
        """A copy in another process syncs without threads."""

    def sync_folder(self, path: str) -> None:
        self._sync(os.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def copy_mode(self, source: str, target: str) -> None:
        rights.copy_rights(source, target)

    def take_rights(self, neighbour: str, target: str, folder: str) -> bool:
        return rights.take_rights(neighbour, target, folder)

    def owner_of(self, path: str) -> str:
        return rights.owner_of(path)

    def copy_common_mode(self, sources: Sequence[str], target: str) -> None:
        rights.copy_common_rights(sources, target)

    def check_replaceable(self, paths: Iterable[str]) -> None:
        rights.check_replaceable(paths)

    def lock(
        self,
        root: str,
        timeout: float,
        owner: Callable[[str], str],
        waiting: Callable[[Callable[[], str]], None],
    ) -> contextlib.AbstractContextManager[Callable[[], bool]]:
        return folder_locks.lock(root, timeout, owner, waiting)

    def claim(self, folder: str) -> Callable[[], None] | None:
        return folder_locks.claim(folder)

    def snapshot(self, root: str, timeout: float) -> contextlib.AbstractContextManager[bool]:
        return snapshot_locks.snapshot(root, timeout)

    def applying(self, root: str, timeout: float) -> contextlib.AbstractContextManager[bool]:
        return snapshot_locks.applying(root, timeout)

    def has_own_snapshot(self, root: str) -> bool:
        return snapshot_locks.has_own_snapshot(root)


def _private(path: str, flags: int) -> int:
    """Nobody else may read a staged file before it has the rights of the file that it replaces."""
    return os.open(path, flags, 0o600)


def _stat(path: str, *, follow_symlinks: bool = True) -> os.stat_result | None:
    """The status of what is at a path; `None` if there is nothing."""
    try:
        return os.stat(path, follow_symlinks=follow_symlinks)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
