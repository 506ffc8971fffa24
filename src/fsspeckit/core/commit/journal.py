"""The journal: what a commit does, written down before it is done.

A journal in a staging folder is the commit point. Its steps are idempotent, so whoever finds one can carry it out
from the start: staged files are renamed into place first, and only then are old files removed.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import Location

NAME = "journal.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Addition:
    """Rename `staged` (a name in the staging folder) to `path` (in the data set)."""

    staged: str
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Removal:
    """Remove `path` if it is still the file that was there when the journal was written."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Journal:
    additions: tuple[Addition, ...]
    removals: tuple[Removal, ...]

    @classmethod
    def of(cls, staged: Sequence[Staged], removed: Sequence[FileInfo]) -> Journal:
        return cls(
            tuple(Addition(s.staged, s.path, s.size) for s in staged),
            tuple(Removal(f.path, f.size, f.mtime_ns) for f in removed),
        )

    def to_bytes(self) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Journal:
        """Read a journal; one that is not ours, or names a path outside the data set, is refused."""
        try:
            raw = json.loads(data)
            if raw["format"] != _FORMAT:
                raise ValueError(f"unknown format {raw['format']!r}")
            journal = cls(tuple(Addition(**a) for a in raw["additions"]), tuple(Removal(**r) for r in raw["removals"]))
            for path in [a.path for a in journal.additions] + [r.path for r in journal.removals]:
                _check_inside(path)
            for addition in journal.additions:
                _check_name(addition.staged)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommitUnfinishedError(
                f"The journal {where} cannot be used: {error}. Nothing was changed; if it is not yours, move it away.",
                operation="recover",
            ) from error
        return journal


def _check_inside(path: str) -> None:
    parts = path.split("/")
    if {"", ".", ".."} & set(parts) or "\0" in path:
        raise ValueError(f"{path!r} is not a path inside the data set")


def _check_name(name: str) -> None:
    if name in ("", ".", "..") or {"/", "\0"} & set(name):
        raise ValueError(f"{name!r} is not a file name")


def write(location: Location, staging: str, journal: Journal) -> None:
    """The commit point: once the renamed journal is on disk, the commit will be finished by someone."""
    storage = location.storage
    storage.sync_folder(staging)
    draft = posixpath.join(staging, f".{NAME}")
    storage.write_bytes(draft, journal.to_bytes())
    storage.sync_file(draft)
    storage.rename(draft, posixpath.join(staging, NAME))
    storage.sync_folder(staging)
    storage.sync_folder(posixpath.dirname(staging))
    storage.sync_folder(posixpath.dirname(posixpath.dirname(staging)))


def apply(location: Location, staging: str, journal: Journal) -> None:
    """Carry out the journal, from wherever an earlier attempt stopped."""
    folders: set[str] = set()
    for addition in journal.additions:
        _add(location, staging, addition, folders)
    for removal in journal.removals:
        _remove(location, removal, folders)
    for folder in sorted(folders):
        location.storage.sync_folder(folder)


def _add(location: Location, staging: str, addition: Addition, folders: set[str]) -> None:
    storage = location.storage
    source, target = posixpath.join(staging, addition.staged), location.at(addition.path)
    folder = posixpath.dirname(target)
    if storage.stat(source) is None:
        there = storage.stat(target)
        if there is None or there.size != addition.size:
            raise CommitUnfinishedError(
                f"{location.show(addition.path)} was to be replaced by {source}, which is gone. Restore either file, "
                "then run `fsspeckit recover`.",
                operation="recover",
            )
    else:
        for made in storage.make_folder(folder):
            folders.add(posixpath.dirname(made))
        _remove_checksum(location, addition.path)
        storage.rename(source, target)
    folders.add(folder)


def _remove(location: Location, removal: Removal, folders: set[str]) -> None:
    there = location.storage.stat(location.at(removal.path))
    if there is not None and (there.size, there.mtime_ns) == (removal.size, removal.mtime_ns):
        _remove_checksum(location, removal.path)
        location.storage.remove(location.at(removal.path))
        folders.add(posixpath.dirname(location.at(removal.path)))


def _remove_checksum(location: Location, path: str) -> None:
    """Spark checks `.name.crc` against the file beside it; one that outlives its file makes the new one unreadable."""
    folder, _, name = path.rpartition("/")
    checksum = location.at(posixpath.join(folder, f".{name}.crc"))
    if location.storage.stat(checksum) is not None:
        location.storage.remove(checksum)
