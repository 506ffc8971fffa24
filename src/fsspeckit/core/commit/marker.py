"""The marker: an empty, hidden folder in the data set, named after a commit. To make it is to commit.

It is there for whoever holds the data set's lock, under every path to the folder, and travels with the folder when
that is moved or copied. No reader takes it for data, and it is gone when the commit is finished.
"""

from __future__ import annotations

import contextlib
import posixpath
import re

from fsspeckit.core.storage import DiskLocation

_PREFIX = ".fsspeckit-commit-"
_NAME = re.compile(r"\.fsspeckit-commit-([0-9a-f]{32})")


def path(location: DiskLocation, commit: str) -> str:
    return location.at(f"{_PREFIX}{commit}")


def make(location: DiskLocation, commit: str) -> None:
    """The commit point: from here on someone will finish the commit."""
    location.storage.make_folder(path(location, commit))
    location.storage.sync_folder(location.root)


def remove(location: DiskLocation, commit: str) -> None:
    """The commit is finished, or given up."""
    with contextlib.suppress(FileNotFoundError):
        location.storage.remove_folder(path(location, commit))
    location.storage.sync_folder(location.root)


def is_made(location: DiskLocation, commit: str) -> bool:
    return location.storage.stat(path(location, commit)) is not None


def is_beside(location: DiskLocation, commit: str) -> bool:
    """Is the commit recorded in a folder beside the data set: its original, a copy, or where it was moved to?"""
    storage, parent = location.storage, location.parent
    others = [posixpath.join(parent, name) for name in storage.names(parent) if name != location.name]
    return any(commit in _commits_in(location, folder) for folder in others if not storage.is_link(folder))


def commits_above(location: DiskLocation) -> list[str]:
    """The folders above with an unfinished commit: it may be about to change files here."""
    locks = location.storage.locks
    if locks is None or not location.storage.is_dir(location.root):
        return []
    return [folder for folder in locks.above(location.root) if _commits_in(location, folder)]


def commits_within(location: DiskLocation) -> tuple[list[str], list[str]]:
    """The commits that are recorded here and not finished, and the folders inside that have some of their own."""
    here, inside = [], set()
    for path in location.storage.folders(location.root):
        folder, name = posixpath.split(path) if "/" in path else ("", path)
        match = _NAME.fullmatch(name) if name.startswith(_PREFIX) else None
        if match and folder:
            inside.add(folder)
        elif match:
            here.append(match[1])
    return here, sorted(inside)


def _commits_in(location: DiskLocation, folder: str) -> list[str]:
    try:
        matches = [_NAME.fullmatch(name) for name in location.storage.names(folder) if name.startswith(_PREFIX)]
    except PermissionError:  # a folder above that we may not read
        return []
    commits = [match[1] for match in matches if match]
    return [c for c in commits if location.storage.is_dir(posixpath.join(folder, f"{_PREFIX}{c}"))]
