"""The journal: what a commit is for and what it does, written down before it is done.

For every file that comes or goes it tells the state that the commit expects to find. It lies in the staging folder and
counts once the data set has its marker (`commit.marker`). It is read with suspicion: whoever can write beside a data
set could have written it.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fsspeckit.core.commit.shared import check_data_path, check_file_name, check_inside
from fsspeckit.core.commit.staging import JOURNAL
from fsspeckit.core.errors import CommitUnfinishedError, DatasetMergeError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import DiskLocation

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class State:
    """A file as the commit saw it. All are hints: a copy has other inodes and often other times."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, info: FileInfo) -> State:
        return cls(info.size, info.mtime_ns, info.inode)


@dataclass(frozen=True, slots=True)
class Addition:
    """Rename `staged` (a name in the staging folder) to `path` (in the data set), where `before` is now."""

    staged: str
    path: str
    after: State
    before: State | None


@dataclass(frozen=True, slots=True)
class Removal:
    path: str
    before: State


@dataclass(frozen=True, slots=True)
class Journal:
    """`root` and `inode` are the data set's folder when the journal was written; `folders` were not there then."""

    root: str
    inode: int
    additions: tuple[Addition, ...]
    removals: tuple[Removal, ...]
    folders: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        return [a.path for a in self.additions] + [r.path for r in self.removals]

    @property
    def is_first_form(self) -> bool:
        return not self.root

    def to_bytes(self) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode()


def plan(
    location: DiskLocation,
    staging: str,
    staged: Sequence[Staged],
    removed: Sequence[FileInfo],
    known: Sequence[FileInfo],
) -> Journal:
    """The journal of a commit to a data set whose files are `known`."""
    before = {info.path: State.of(info) for info in known}
    journal = Journal(
        location.root,
        inode_of(location),
        tuple(
            Addition(s.staged, s.path, _stat(location, posixpath.join(staging, s.staged)), before.get(s.path))
            for s in staged
        ),
        tuple(Removal(f.path, State.of(f)) for f in removed),
        tuple(_missing_folders(location, [s.path for s in staged])),
    )
    try:
        _check(location, journal)
    except ValueError as error:
        raise DatasetMergeError(
            f"Cannot commit to {location.shown}: {error}. Nothing was changed.", operation="commit"
        ) from None
    return journal


def _missing_folders(location: DiskLocation, paths: Sequence[str]) -> list[str]:
    """The folders that have to be made for these files, a folder before those in it."""
    missing: set[str] = set()
    for folder in {posixpath.dirname(path) for path in paths}:
        while folder and folder not in missing and not location.storage.is_dir(location.at(folder)):
            missing.add(folder)
            folder = posixpath.dirname(folder)
    return sorted(missing)


def _stat(location: DiskLocation, path: str) -> State:
    info = location.storage.stat(path)
    if info is None:
        raise FileNotFoundError(2, "a staged file is gone", path)
    return State.of(info)


def inode_of(location: DiskLocation) -> int:
    info = location.storage.stat(location.root)
    return info.inode if info is not None else 0


def sync_staging(location: DiskLocation, staging: str) -> None:
    """Make the names of staged files durable, and those of the folders above them."""
    home = posixpath.dirname(staging)
    for folder in (staging, home, posixpath.dirname(home)):
        location.storage.sync_folder(folder)


def write(location: DiskLocation, staging: str, journal: Journal) -> None:
    """Make the journal durable, in a folder that is. Nothing is committed yet."""
    storage = location.storage
    draft = posixpath.join(staging, f".{JOURNAL}")
    storage.write_bytes(draft, journal.to_bytes())
    storage.sync_file(draft)
    storage.rename(draft, posixpath.join(staging, JOURNAL))
    storage.sync_folder(staging)


def exists(location: DiskLocation, staging: str) -> bool:
    """Is there a journal, or something in its place?"""
    path = posixpath.join(staging, JOURNAL)
    return location.storage.stat(path) is not None or location.storage.is_link(path)


def read(location: DiskLocation, staging: str) -> Journal:
    """Read a journal; one that is not ours, or reaches for anything but data files of the data set, is refused."""
    path = posixpath.join(staging, JOURNAL)
    try:
        journal = _parse(location.storage.read_bytes(path))
        _check(location, journal)
        for addition in journal.additions:
            staged = posixpath.join(staging, addition.staged)
            if not location.storage.is_plain(staged) and location.storage.stat(staged) is not None:
                raise ValueError(f"{addition.staged!r} is not a plain file")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError) as error:
        raise CommitUnfinishedError(
            f"The journal {path} cannot be used: {error}. Nothing was changed; if it is not yours, move it away.",
            operation="recover",
        ) from error
    return journal


def _parse(data: bytes) -> Journal:
    raw = json.loads(data)
    if raw["format"] not in (1, _FORMAT):
        raise ValueError(f"unknown format {raw['format']!r}")
    return _first_form(raw) if raw["format"] == 1 else _second_form(raw)


def _second_form(raw: Mapping[str, Any]) -> Journal:
    additions = [
        Addition(a["staged"], a["path"], _state(a["after"]), None if a["before"] is None else _state(a["before"]))
        for a in raw["additions"]
    ]
    removals = [Removal(r["path"], _state(r["before"])) for r in raw["removals"]]
    folders = tuple(map(str, raw.get("folders", ())))  # the first journals of this form had none
    return Journal(str(raw["root"]), int(raw["inode"]), tuple(additions), tuple(removals), folders)


ANYTHING = State(-1, 0, 0)


def _first_form(raw: Mapping[str, Any]) -> Journal:
    """Version 0.1 wrote neither the data set's identity nor what a new file replaces, and knew no marker."""
    additions = [Addition(a["staged"], a["path"], State(int(a["size"]), 0, 0), ANYTHING) for a in raw["additions"]]
    removals = [Removal(r["path"], State(int(r["size"]), int(r["mtime_ns"]), 0)) for r in raw["removals"]]
    return Journal("", 0, tuple(additions), tuple(removals))


def _state(raw: Mapping[str, Any]) -> State:
    return State(int(raw["size"]), int(raw["mtime_ns"]), int(raw["inode"]))


def _check(location: DiskLocation, journal: Journal) -> None:
    """Every path is a data file inside the data set, also after links, and none is named twice."""
    for path in journal.paths:
        check_data_path(path)
    for folder in journal.folders:
        check_inside(folder)
    for addition in journal.additions:
        check_file_name(addition.staged)
    if len(set(journal.paths)) < len(journal.paths):
        raise ValueError("it names a file twice")
    root = location.storage.resolve(location.root)
    of_files = {posixpath.dirname(path): path for path in journal.paths}
    for folder, path in {**{folder: folder for folder in journal.folders}, **of_files}.items():
        target = location.storage.resolve(location.at(folder))
        if target != root and not target.startswith(root.rstrip("/") + "/"):
            raise ValueError(f"{path!r} lies behind a link that leads out of the data set")
