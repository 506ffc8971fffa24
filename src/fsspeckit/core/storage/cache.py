"""The user's cache folder: files that may go at any time, and are read with suspicion.

A cache that cannot be read or written is no cache, never an error. `FSSPECKIT_CACHE` names another folder, or says
`off`.
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
LARGEST = 64 << 20
"""No cache file has more bytes."""
ALL_TOGETHER = 512 << 20
"""Beyond that many bytes of all files, those that were written first are removed."""

_SUFFIX, _UNFINISHED = ".footers", ".unfinished"
_ABANDONED = 3600.0
_DIGEST = 16

log = logging.getLogger("fsspeckit.cache")


def folder() -> str | None:
    """Where cache files lie; `None` if the user wants none, or has no home."""
    told = os.environ.get(VARIABLE, "")
    if told:
        return None if told.lower() == "off" else os.path.abspath(told)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = shared if os.path.isabs(shared) else os.path.expanduser("~/.cache")
    return os.path.join(base, "fsspeckit") if os.path.isabs(base) else None


def load(name: str) -> bytes | None:
    """What was saved under a name, whole and unchanged; else `None`."""
    place = folder()
    if place is None:
        return None
    try:
        data = _read(os.path.join(place, _file_name(name)))
    except OSError as error:
        log.debug("no cache: %s", error)
        return None
    head = _head(name, data[len(_head(name, b"")) :])
    return data[len(head) :] if data.startswith(head) else None


def _read(path: str) -> bytes:
    """A plain file of this user's own, which nobody else may write: whoever can, could make a merge miss rows."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        there = os.fstat(file.fileno())
        strange = not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o022
        return b"" if strange or there.st_size > LARGEST else file.read(LARGEST)


def save(name: str, data: bytes) -> None:
    """Keep bytes under a name, in one step. They are not synced: what a crash leaves of them does not add up."""
    place, whole = folder(), _head(name, data) + data
    if place is None or len(whole) > LARGEST:
        log.debug("not cached: %d bytes", len(whole))
        return
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        _write(place, _file_name(name), whole)
        _tidy(place)
    except OSError as error:
        log.debug("not cached: %s", error)


def _write(place: str, name: str, data: bytes) -> None:
    handle, unfinished = tempfile.mkstemp(_UNFINISHED, dir=place)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(unfinished, os.path.join(place, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise


def _tidy(place: str) -> None:
    """Remove what dead writers left, and the oldest files beyond the bound."""
    with os.scandir(place) as entries:
        there = sorted((e.stat(follow_symlinks=False).st_mtime, e.path, e.stat(follow_symlinks=False)) for e in entries)
    room = ALL_TOGETHER
    for written, path, about in reversed(there):
        room -= about.st_size * path.endswith(_SUFFIX)
        abandoned = path.endswith(_UNFINISHED) and written < time.time() - _ABANDONED
        if abandoned or (path.endswith(_SUFFIX) and room < 0):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def _file_name(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=_DIGEST).hexdigest() + _SUFFIX


def _head(name: str, data: bytes) -> bytes:
    """Before the bytes stands a digest of them, and of what they are called."""
    return hashlib.blake2b(data, digest_size=_DIGEST, key=_file_name(name).encode()[:64]).digest()
