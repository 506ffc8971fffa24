"""Readers hold off the application of commits, by locks of open file descriptions (OFD) on bytes of the folder.

`flock` keeps writers apart for a whole merge; this second lock is taken by writers for the commit only. A folder can be
opened for reading only, so every lock is a read lock, and both sides look for the other's byte:

| byte | is set by |
|---|---|
| 0 | readers of the data set in this folder |
| 1 | a writer that applies a commit to it, or waits to do so |
| 2 | readers of a data set inside this folder |
| 3 | a writer of a data set inside this folder |

A reader sets its bytes and looks for writers. If there is one, the reader clears them and waits: a waiting writer goes
before later readers. A writer sets its bytes and waits for the readers that are there. Readers need only the right to
list the folder, nothing is left behind, and the lock of a dead process is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fsspeckit.core.errors import DatasetLockedError
from fsspeckit.core.storage.folder_locks import Handle, above

# Python's `fcntl` has them on Linux only.
_SUPPORTED = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")
# `struct flock`: type, whence, start, length, process.
_FLOCK = "hhqqi"
_POLL_SECONDS = 0.001
_SLOW_POLL_SECONDS = 0.02
# How long to look often.
_OFTEN_SECONDS = 1.0


@dataclass(frozen=True)
class _Side:
    """The bytes of readers, or of writers: on the folder of their data set, and on the folders above it."""

    own: int
    inside: int


_READERS, _WRITERS = _Side(0, 2), _Side(1, 3)


@contextlib.contextmanager
def snapshot(root: str, timeout: float) -> Iterator[bool]:
    """Hold off commits to a folder. Yields false if the system has no such locks."""
    reader = threading.get_ident()
    is_nested = has_own_snapshot(root)
    deadline = time.monotonic() + timeout
    while True:
        with _opened(root, reader) as folders:
            is_locked = _lock_snapshot(folders, timeout, deadline, is_nested)
            if folders[-1].is_at(root):
                yield is_locked
                return


def _lock_snapshot(folders: list[Handle], timeout: float, deadline: float, is_nested: bool) -> bool:
    """A writer that waits for a snapshot of this thread must not hold off a second one: both would wait forever."""
    for pause in _pauses():
        if not _set(folders, _READERS, fcntl.F_RDLCK):
            return False
        if is_nested or not _is_there(folders, _WRITERS):
            return True
        if time.monotonic() >= deadline:
            root = folders[-1].folder
            raise DatasetLockedError(
                f"A commit to {root} is being applied, or waits for readers, by {_holders(root, _WRITERS)}; waited "
                f"{timeout:g} s. Let it finish, or raise timeout.",
                operation="snapshot",
            )
        _set(folders, _READERS, fcntl.F_UNLCK)
        time.sleep(pause)
    raise AssertionError  # the pauses have no end


@contextlib.contextmanager
def applying(root: str, timeout: float) -> Iterator[bool]:
    """Wait for readers, and hold off new ones while a commit is applied. Yields whether there were any readers."""
    deadline, waited = time.monotonic() + timeout, False
    with _opened(root, None) as folders:
        if _set(folders, _WRITERS, fcntl.F_RDLCK):
            for pause in _pauses():
                if not _is_there(folders, _READERS):
                    break
                if time.monotonic() >= deadline:
                    raise DatasetLockedError(
                        f"{root} is held by a snapshot of {_holders(root, _READERS)}; waited {timeout:g} s for the "
                        "reader to end. Nothing was changed. End the reader, or raise lock_timeout.",
                        operation="commit",
                    )
                waited = True
                time.sleep(pause)
        yield waited


def has_own_snapshot(root: str) -> bool:
    """Does this thread hold a snapshot of the folder, of one above it or of one inside it?"""
    own = [handle for handle in list(Handle.open_handles) if handle.reader == threading.get_ident()]
    if not own or not os.path.isdir(root):
        return False
    at_root = [handle for handle in own if handle.is_at(root)]  # also those of snapshots inside it
    return bool(at_root) or any(h.folder == h.snapshot and h.is_at(folder) for h in own for folder in above(root))


@contextlib.contextmanager
def _opened(root: str, reader: int | None) -> Iterator[list[Handle]]:
    """The folders above, as far as they can be opened, and the folder itself, which comes last."""
    folders: list[Handle] = []
    try:
        for folder in [*above(root), root]:
            try:
                folders.append(Handle(folder, reader, root))
            except PermissionError:
                if folder == root:
                    raise
        yield folders
    finally:
        for handle in reversed(folders):
            if handle.fileno() >= 0:
                with contextlib.suppress(OSError):  # a child forked by C code has the handle too: unlock before closing
                    for byte in range(4):
                        _lock_byte(handle, byte, fcntl.F_UNLCK)
            handle.close()


def _set(folders: list[Handle], side: _Side, lock_type: int) -> bool:
    """Set or clear the bytes of a side. False if the folder of the data set cannot be locked in this way."""
    if not _SUPPORTED:
        return False
    for handle in folders[:-1]:
        with contextlib.suppress(OSError):
            _lock_byte(handle, side.inside, lock_type)
    try:
        _lock_byte(folders[-1], side.own, lock_type)
    except OSError:
        return False
    return True


def _is_there(folders: list[Handle], side: _Side) -> bool:
    """Is another process or thread of this side at the data set, at one inside it or at one above it?"""
    root = folders[-1]
    if _is_locked(root, side.own) or _is_locked(root, side.inside):
        return True
    return any(_is_locked(handle, side.own) for handle in folders[:-1])


def _lock_byte(handle: Handle, byte: int, lock_type: int) -> None:
    fcntl.fcntl(handle.fileno(), fcntl.F_OFD_SETLK, struct.pack(_FLOCK, lock_type, os.SEEK_SET, byte, 1, 0))


def _is_locked(handle: Handle, byte: int) -> bool:
    """Has another open file description a lock on the byte?"""
    question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        answer = fcntl.fcntl(handle.fileno(), fcntl.F_OFD_GETLK, question)
    except OSError:
        return False
    return bool(struct.unpack_from(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _pauses() -> Iterator[float]:
    start = time.monotonic()
    while True:
        yield _POLL_SECONDS if time.monotonic() - start < _OFTEN_SECONDS else _SLOW_POLL_SECONDS


def _holders(root: str, side: _Side) -> str:
    """The processes that hold the lock, as far as the system shows them: for an OFD lock it names no process.

    `/proc/<process>/fdinfo` shows the locks of open files, to their owner and to root.
    """
    own = _processes(root, lambda byte: byte in (side.own, side.inside))
    for folder in above(root):
        own |= _processes(folder, lambda byte: byte == side.own)
    names = [f"process {process} ({_command(process)})" for process in sorted(own)]
    return ", ".join(names) or "a process of another user"


def _processes(folder: str, is_ours: Callable[[int], bool]) -> set[int]:
    processes = set()
    for descriptor in glob.iglob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if os.readlink(descriptor) != folder:
                continue
            with open(descriptor.replace("/fd/", "/fdinfo/"), encoding="utf-8", errors="replace") as lines:
                locks = [line.split() for line in lines if line.startswith("lock:") and "OFDLCK" in line]
            if any(is_ours(int(words[-2])) for words in locks):
                processes.add(int(descriptor.split("/")[2]))
    return processes


def _command(process: int) -> str:
    try:
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "ended"
