"""`flock` on the folder of a data set: there is no lock file, and the lock of a dead process is free.

Open folders are kept in one place, for `snapshot_locks` too, because a forked child must close them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import ClassVar

from fsspeckit.core.storage.base import locked


def above(root: str) -> list[str]:
    """The folders above one, the outermost first, up to where its file system is mounted."""
    device, folders = os.stat(root).st_dev, []
    while (parent := os.path.dirname(root)) != root and os.stat(parent).st_dev == device:
        folders.append(parent)
        root = parent
    return folders[::-1]


@contextlib.contextmanager
def lock(
    root: str,
    timeout: float,
    owner: Callable[[str], str],
    waiting: Callable[[Callable[[], str]], None] = lambda owner: None,
) -> Iterator[Callable[[], bool]]:
    """Lock a folder, which is made if it is not there.

    The folders above are locked for sharing, as far as they can be: a writer of one of them writes here too.
    Yields a function that checks whether the path still names the locked folder. While it is not free, `waiting` is
    called with a function that says who has it.
    """
    deadline, held = time.monotonic() + timeout, None

    def not_free(folder: str) -> None:
        if time.monotonic() >= deadline:
            raise locked(folder, timeout, owner(folder))
        waiting(lambda: owner(folder))

    while held is None:
        held = _take(root, not_free)
    try:
        yield lambda: held[-1].is_at(root)
    finally:
        _close(held)


def claim(folder: str) -> Callable[[], None] | None:
    """Take a folder for this process; `None` if a living process has it."""
    handle = Handle(folder)
    try:
        if handle.try_lock(fcntl.LOCK_EX):
            return handle.close
    except OSError:
        handle.close()
        raise
    handle.close()
    return None


def is_inherited(folder: str) -> bool:
    """Did a process that forked this one hold the folder?"""
    return folder in Handle.inherited


def _take(root: str, not_free: Callable[[str], None]) -> list[Handle] | None:
    """Lock the folders above, then the folder; `None` if it was replaced meanwhile. `not_free` is called with a folder
    that another writer has; it waits no longer if that raises an error."""
    held: list[Handle] = []
    try:
        os.makedirs(root, exist_ok=True)  # a writer that was refused removes the folder it made, at any time
        for folder in above(root):
            _share(folder, held, not_free)
        held.append(Handle(root))
        _wait(held[-1], fcntl.LOCK_EX, root, not_free)
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


class Handle:
    """An open folder, for locking. A forked child closes it, else it could unlock, or keep, its parent's lock.

    `reader` is the thread that holds a snapshot by it, of this folder or of `snapshot` inside it.
    """

    open_handles: ClassVar[set[Handle]] = set()
    inherited: ClassVar[set[str]] = set()
    # Held while a descriptor is open and not in `open_handles`, or the reverse, so that no fork happens meanwhile.
    # Reentrant, for a fork by a signal handler of the same thread.
    guard: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, folder: str, reader: int | None = None, snapshot: str | None = None) -> None:
        self.folder, self.reader, self.snapshot = folder, reader, snapshot
        with self.guard:
            self._descriptor: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            self.open_handles.add(self)

    def try_lock(self, mode: int) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def fileno(self) -> int:
        """The descriptor, or -1 once the folder is closed."""
        return -1 if self._descriptor is None else self._descriptor

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
        """Forget the descriptor before it is closed: once it is, another thread may be given its number."""
        with self.guard:
            descriptor, self._descriptor = self._descriptor, None
            self.open_handles.discard(self)
            if descriptor is not None:
                os.close(descriptor)

    @classmethod
    def close_inherited(cls) -> None:
        try:
            for handle in list(cls.open_handles):
                cls.inherited.add(handle.folder)
                with contextlib.suppress(OSError):  # the other handles must be closed too
                    handle._forget()
        finally:
            cls.guard.release()


os.register_at_fork(
    before=Handle.guard.acquire, after_in_parent=Handle.guard.release, after_in_child=Handle.close_inherited
)


def _share(folder: str, held: list[Handle], not_free: Callable[[str], None]) -> None:
    """Share the lock of a folder above, if it can be opened and locked at all."""
    with contextlib.suppress(PermissionError):
        held.append(Handle(folder))
        with contextlib.suppress(OSError):  # a file system without locks
            _wait(held[-1], fcntl.LOCK_SH, folder, not_free)


def _wait(handle: Handle, mode: int, folder: str, not_free: Callable[[str], None]) -> None:
    while not handle.try_lock(mode):
        not_free(folder)
        time.sleep(0.05)


def _close(handles: list[Handle]) -> None:
    for handle in reversed(handles):
        handle.close()
