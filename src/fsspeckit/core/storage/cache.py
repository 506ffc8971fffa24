"""The user's cache folder. Its files may be removed, damaged or replaced at any time, and are checked when read.

A cache file that cannot be read or written is never an error. `FSSPECKIT_CACHE` names another folder, or is `off`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import time

VARIABLE = "FSSPECKIT_CACHE"
MAX_FILE_BYTES = 64 << 20
"""The largest cache file."""
MAX_TOTAL_BYTES = 512 << 20
"""The most that all cache files take; beyond it the oldest are removed."""

_SUFFIX, _UNFINISHED = ".footers", ".unfinished"
_ABANDONED = 3600.0
_DIGEST = 16

log = logging.getLogger("fsspeckit.cache")


def folder() -> str | None:
    """The folder of cache files; `None` if the user switched the cache off, or has no home."""
    configured = os.environ.get(VARIABLE, "")
    if configured:
        return None if configured.lower() == "off" else os.path.abspath(configured)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = shared if os.path.isabs(shared) else os.path.expanduser("~/.cache")
    return os.path.join(base, "fsspeckit") if os.path.isabs(base) else None


def load(name: str) -> bytes | None:
    """The bytes that were saved under a name; `None` if they are not there, or not as they were written."""
    directory = folder()
    if directory is None:
        return None
    try:
        data = _read(os.path.join(directory, _file_name(name)))
    except OSError as error:
        log.debug("no cache: %s", error)
        return None
    head = _head(name, data[len(_head(name, b"")) :])
    return data[len(head) :] if data.startswith(head) else None


def _read(path: str) -> bytes:
    """A plain file of this user that nobody else can write; another writer could make a merge miss rows."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        unsafe = not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022
        return b"" if unsafe or status.st_size > MAX_FILE_BYTES else file.read(MAX_FILE_BYTES)


def save(name: str, data: bytes) -> None:
    """Save bytes under a name, by a rename. They are not synced: after a crash the digest shows what is damaged."""
    directory, whole = folder(), _head(name, data) + data
    if directory is None or len(whole) > MAX_FILE_BYTES:
        log.debug("not cached: %d bytes", len(whole))
        return
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        _write(directory, _file_name(name), whole)
        _tidy(directory)
    except OSError as error:
        log.debug("not cached: %s", error)


def _write(directory: str, name: str, data: bytes) -> None:
    handle, unfinished = tempfile.mkstemp(_UNFINISHED, dir=directory)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(unfinished, os.path.join(directory, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise


def _tidy(directory: str) -> None:
    """Remove what dead writers left, and the oldest files beyond `MAX_TOTAL_BYTES`."""
    with os.scandir(directory) as entries:
        files = sorted((e.stat(follow_symlinks=False).st_mtime, e.path, e.stat(follow_symlinks=False)) for e in entries)
    room = MAX_TOTAL_BYTES
    for written, path, status in reversed(files):
        room -= status.st_size * path.endswith(_SUFFIX)
        abandoned = path.endswith(_UNFINISHED) and written < time.time() - _ABANDONED
        if abandoned or (path.endswith(_SUFFIX) and room < 0):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def _file_name(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=_DIGEST).hexdigest() + _SUFFIX


def _head(name: str, data: bytes) -> bytes:
    """The digest of the bytes and their name, which is written before the bytes."""
    return hashlib.blake2b(data, digest_size=_DIGEST, key=_file_name(name).encode()[:64]).digest()
