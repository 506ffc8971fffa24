"""The machine's own disks: PyArrow's native files, `os` for the rest, `flock` on the folder itself."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.fs

from fsspeckit.core.errors import DatasetLockedError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import RECORD_LIMIT, copy_bytes, locked
from fsspeckit.core.storage.end import FileEnd
from fsspeckit.core.storage.syncs import Syncs, sync
from fsspeckit.core.storage.walk import file_info, files_below, folders_below

# What is gathered before it is written: columns come in pieces of some ten kilobytes.
_BUFFER = 1 << 18


class LocalStorage:
    """The machine's own disks."""

    renames_atomically = True
    _syncs: Syncs | None = None

    def look(self, root: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def walk(self, root: str) -> Iterator[FileInfo]:
        return files_below(root)

    def folders(self, root: str) -> Iterator[str]:
        return folders_below(root)

    def above(self, root: str) -> list[str]:
        """The folders above one, the outermost first, up to where its file system is mounted."""
        device, found = os.stat(root).st_dev, []
        while (parent := os.path.dirname(root)) != root and os.stat(parent).st_dev == device:
            found.append(parent)
            root = parent
        return found[::-1]

    def stat(self, path: str) -> FileInfo | None:
        try:
            return file_info(path, os.stat(path))
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

    def is_plain(self, path: str) -> bool:
        """Is there a file that is neither a link nor a pipe nor a device?"""
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise

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
        """Each is asked for: the folder may have thousands of others."""
        return [name for name in names if _is_there(f"{folder}/{name}")]

    def open_input(self, path: str) -> Any:
        return pa.OSFile(path, "rb")

    def open_input_end(self, path: str) -> Any:
        return FileEnd(path)

    def will_read(self, source: Any, ranges: Iterable[tuple[int, int]]) -> None:
        """Nothing to do: the system reads ahead."""

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Whoever writes to a file, or puts another into its place, cannot but change one of these."""
        now = file_info(info.path, os.fstat(source.fileno()))
        return now == info and now.ctime_ns == info.ctime_ns

    def identity(self, root: str) -> str | None:
        return root

    def open_output(self, path: str, final: str = "") -> Any:
        if os.path.dirname(path) in _Handle.inherited:  # both would write the same file
            raise OSError(errno.EPERM, "a forked child cannot commit its parent's merge", path)
        return open(path, "wb", buffering=_BUFFER)

    def copy_range(self, source: Any, sink: Any, offset: int, length: int) -> None:
        """Within the kernel, where the file system can; some share the blocks instead of copying them."""
        sink.flush()
        copied = 1 if hasattr(os, "copy_file_range") else 0
        while length and copied:
            try:
                copied = os.copy_file_range(source.fileno(), sink.fileno(), length, offset_src=offset)
            except OSError as error:
                if error.errno not in _NO_COPY:
                    raise
                copied = 0  # as at the end of the file, of which `copy_bytes` tells
            offset, length = offset + copied, length - copied
        copy_bytes(source, sink, offset, length)

    def receipt(self, path: str) -> str | None:
        return None

    def filesystem(self) -> pyarrow.fs.FileSystem:
        return pyarrow.fs.LocalFileSystem()

    def read_bytes(self, path: str) -> bytes:
        """A record of ours. A pipe, a device or a link in its place is refused: it may lead anywhere, or never end."""
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            there = os.fstat(file.fileno())
            if not stat.S_ISREG(there.st_mode) or there.st_size > RECORD_LIMIT:
                raise OSError(errno.EINVAL, "not a plain file, or too large to be one of ours", path)
            return file.read(RECORD_LIMIT)

    def write_bytes(self, path: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(path, flags, 0o666), "wb") as file:
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
        self._sync(os.open(path, os.O_RDONLY))

    def _sync(self, handle: int) -> None:
        if self._syncs is None:
            sync(handle)
        else:
            self._syncs.add(handle)

    @contextlib.contextmanager
    def syncing(self) -> Iterator[None]:
        """Files and folders go to the disk while the next ones are computed."""
        with Syncs() as self._syncs:
            try:
                yield
            finally:
                self._syncs = None

    def __getstate__(self) -> None:
        """In another process, nothing waits for the disk but the caller."""

    def sync_folder(self, path: str) -> None:
        self._sync(os.open(path, os.O_RDONLY | os.O_DIRECTORY))

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
    def lock(self, root: str, timeout: float, owner: Callable[[str], str]) -> Iterator[Callable[[], bool]]:
        """`flock` on the folder itself: no file to trip over, and a dead owner's lock is gone.

        The folders above are locked for sharing, as far as they can be: whoever writes to one of them writes here too.
        Yields a function that tells whether the path still names the locked folder.
        """
        deadline, held = time.monotonic() + timeout, None
        while held is None:
            held = self._take(root, deadline, lambda folder: locked(folder, timeout, owner(folder)))
        try:
            yield lambda: held[-1].is_at(root)
        finally:
            _close(held)

    def _take(self, root: str, deadline: float, error: Callable[[str], DatasetLockedError]) -> list[_Handle] | None:
        """Lock the folders above, then the folder, making it if need be; `None` if it was replaced meanwhile."""
        held: list[_Handle] = []
        try:
            os.makedirs(root, exist_ok=True)  # a writer that was refused removes the folder it made, at any time
            for folder in self.above(root):
                _share(folder, held, deadline, error)
            held.append(_Handle(root))
            _wait(held[-1], fcntl.LOCK_EX, root, deadline, error)
            if held[-1].is_at(root):
                return held
        except (FileNotFoundError, FileExistsError):
            if os.path.isfile(root):
                raise
        except BaseException:
            _close(held)
            raise
        _close(held)
        return None

    def claim(self, folder: str) -> Callable[[], None] | None:
        """Take a folder for this process; `None` if a living process has it."""
        handle = _Handle(folder)
        try:
            if handle.try_lock(fcntl.LOCK_EX):
                return handle.close
        except OSError:
            handle.close()
            raise
        handle.close()
        return None


# What systems say that do not copy from one file to another: between file systems, on old kernels, in sandboxes.
_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)
# A path that cannot be there: nothing at it, a file above it, a name too long for any file.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise
    return True


class _Handle:
    """An open folder, for locking. A forked child has none of it: else it could unlock, or keep, its parent's lock."""

    open_ones: ClassVar[set[_Handle]] = set()
    inherited: ClassVar[set[str]] = set()

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._descriptor: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self.open_ones.add(self)

    def try_lock(self, mode: int) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_at(self, path: str) -> bool:
        """Does the path name this folder? It may have been removed, moved or replaced."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a child forked by C code has the handle too: unlock before closing
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._forget()

    def _forget(self) -> None:
        assert self._descriptor is not None
        os.close(self._descriptor)
        self._descriptor = None
        self.open_ones.discard(self)

    @classmethod
    def close_inherited(cls) -> None:
        for handle in list(cls.open_ones):
            cls.inherited.add(handle._folder)
            handle._forget()


os.register_at_fork(after_in_child=_Handle.close_inherited)


def _share(folder: str, held: list[_Handle], deadline: float, error: Callable[[str], DatasetLockedError]) -> None:
    """Share the lock of a folder above, if it can be opened and locked at all."""
    with contextlib.suppress(PermissionError):
        held.append(_Handle(folder))
        with contextlib.suppress(OSError):  # a file system without locks
            _wait(held[-1], fcntl.LOCK_SH, folder, deadline, error)


def _wait(handle: _Handle, mode: int, folder: str, deadline: float, error: Callable[[str], DatasetLockedError]) -> None:
    while not handle.try_lock(mode):
        if time.monotonic() >= deadline:
            raise error(folder)
        time.sleep(0.05)


def _close(handles: list[_Handle]) -> None:
    for handle in reversed(handles):
        handle.close()
