"""The journal and the marker of a commit on a disk.

The journal lists every file that the commit adds or removes, with the state that the commit expects to find. It is a
file in the staging folder. The marker is an empty, hidden folder in the data set, named after the commit. Making the
marker is the commit point.

Every process that holds the lock of the data set sees the marker, whichever path led it to the folder. The marker moves
and is copied with the folder. Readers do not take it for data. It is removed when the commit is finished.

A journal is untrusted input: anyone who can write beside a data set could have written it.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fsspeckit.core.commit.shared import MALFORMED, check_data_paths, check_inside
from fsspeckit.core.commit.staging import JOURNAL, missing_folders
from fsspeckit.core.errors import CommitUnfinishedError, DatasetMergeError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import DiskLocation

_FORMAT = 2
_MARKER = ".fsspeckit-commit-"
_MARKER_NAME = re.compile(r"\.fsspeckit-commit-([0-9a-f]{32})")
# The most unchanged files that the journal of a commit without additions names.
_MAX_UNCHANGED = 8


@dataclass(frozen=True, slots=True)
class State:
    """A file as the commit saw it. All values are hints: a copy has other inodes and often other times."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, info: FileInfo) -> State:
        return cls(info.size, info.mtime_ns, info.inode)


ANYTHING = State(-1, 0, 0)
"""The expected state in journals of format 1, which did not record it."""


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
class Unchanged:
    path: str
    state: State


@dataclass(frozen=True, slots=True)
class Journal:
    """`root` and `inode` are those of the data set's folder; `folders` did not exist when the journal was written.

    A commit that only removes files has no files of its own by which a copy of the data set could be recognised. Its
    journal names some files that it leaves `unchanged` instead.
    """

    root: str
    inode: int
    additions: tuple[Addition, ...]
    removals: tuple[Removal, ...]
    folders: tuple[str, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()

    @property
    def paths(self) -> list[str]:
        return [a.path for a in self.additions] + [r.path for r in self.removals]

    @property
    def is_format_1(self) -> bool:
        return not self.root

    def to_bytes(self) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode()


def plan(
    location: DiskLocation,
    staging: str,
    staged: Sequence[Staged],
    removed: Sequence[FileInfo],
    expected: Sequence[FileInfo],
) -> Journal:
    """The journal of a commit to a data set with the files `expected`."""
    before = {info.path: State.of(info) for info in expected}
    additions = []
    for file in staged:
        path = posixpath.join(staging, file.staged)
        info = location.storage.stat(path)
        if info is None:
            raise FileNotFoundError(2, "a staged file is gone", path)
        additions.append(Addition(file.staged, file.path, State.of(info), before.get(file.path)))
    # New files first: a row that moves to another file must be there before its old file is replaced.
    additions.sort(key=lambda addition: addition.before is not None)
    removals = tuple(Removal(f.path, State.of(f)) for f in removed)
    folders = tuple(missing_folders(location, [s.path for s in staged]))
    removed_paths = {f.path for f in removed}
    kept = [] if staged else [Unchanged(path, state) for path, state in before.items() if path not in removed_paths]
    unchanged = tuple(kept[:_MAX_UNCHANGED])
    journal = Journal(location.root, inode_of(location), tuple(additions), removals, folders, unchanged)
    try:
        _check(location, journal)
    except ValueError as error:
        message = f"Cannot commit to {location.shown}: {error}. Nothing was changed."
        raise DatasetMergeError(message, operation="commit") from None
    return journal


def inode_of(location: DiskLocation) -> int:
    info = location.storage.stat(location.root)
    return info.inode if info is not None else 0


def write(location: DiskLocation, staging: str, journal: Journal) -> None:
    """Write the journal durably; its folder is durable already. Nothing is committed yet."""
    storage = location.storage
    draft = posixpath.join(staging, f".{JOURNAL}")
    storage.write_bytes(draft, journal.to_bytes())
    storage.sync_file(draft)
    storage.rename(draft, posixpath.join(staging, JOURNAL))
    storage.sync_folder(staging)


def exists(location: DiskLocation, staging: str) -> bool:
    """Is there a journal, or a link under its name?"""
    path = posixpath.join(staging, JOURNAL)
    return location.storage.stat(path) is not None or location.storage.is_link(path)


def read(location: DiskLocation, staging: str) -> Journal:
    """Read a journal. Refuse one that is not ours, or that names anything but data files of this data set."""
    path = posixpath.join(staging, JOURNAL)
    try:
        journal = _parse(json.loads(location.storage.read_bytes(path)))
        _check(location, journal)
        for addition in journal.additions:
            staged = posixpath.join(staging, addition.staged)
            if not location.storage.is_plain(staged) and location.storage.stat(staged) is not None:
                raise ValueError(f"{addition.staged!r} is not a plain file")
    except (*MALFORMED, OSError) as error:
        raise CommitUnfinishedError(
            f"The journal {path} cannot be used: {error}. Nothing was changed; if it is not yours, move it away.",
            operation="recover",
        ) from error
    return journal


def _parse(raw: Mapping[str, Any]) -> Journal:
    if raw["format"] == 1:
        # Version 0.1 recorded neither the data set's identity nor what a new file replaces, and made no marker.
        additions = [Addition(a["staged"], a["path"], State(int(a["size"]), 0, 0), ANYTHING) for a in raw["additions"]]
        removals = [Removal(r["path"], State(int(r["size"]), int(r["mtime_ns"]), 0)) for r in raw["removals"]]
        return Journal("", 0, tuple(additions), tuple(removals))
    if raw["format"] != _FORMAT:
        raise ValueError(f"unknown format {raw['format']!r}")
    additions = [
        Addition(a["staged"], a["path"], _state(a["after"]), None if a["before"] is None else _state(a["before"]))
        for a in raw["additions"]
    ]
    removals = [Removal(r["path"], _state(r["before"])) for r in raw["removals"]]
    folders = tuple(map(str, raw.get("folders", ())))  # the first journals of format 2 had neither of these
    unchanged = tuple(Unchanged(u["path"], _state(u["state"])) for u in raw.get("unchanged", ()))
    return Journal(str(raw["root"]), int(raw["inode"]), tuple(additions), tuple(removals), folders, unchanged)


def _state(raw: Mapping[str, Any]) -> State:
    return State(int(raw["size"]), int(raw["mtime_ns"]), int(raw["inode"]))


def _check(location: DiskLocation, journal: Journal) -> None:
    """Raise `ValueError` unless every path is inside the data set, also after links are resolved."""
    check_data_paths([*journal.paths, *(file.path for file in journal.unchanged)])
    for folder in journal.folders:
        check_inside(folder)
    for name in (addition.staged for addition in journal.additions):
        if "/" in name:
            raise ValueError(f"{name!r} is not a file name")
        check_inside(name)
    root = location.storage.resolve(location.root)
    of_files = {posixpath.dirname(path): path for path in journal.paths}
    for folder, path in {**{folder: folder for folder in journal.folders}, **of_files}.items():
        target = location.storage.resolve(location.at(folder))
        if target != root and not target.startswith(root.rstrip("/") + "/"):
            raise ValueError(f"{path!r} lies behind a link that leads out of the data set")


def marker_path(location: DiskLocation, commit: str) -> str:
    return location.at(f"{_MARKER}{commit}")


def make_marker(location: DiskLocation, commit: str) -> None:
    """The commit point: from here on the commit will be finished."""
    location.storage.make_folder(marker_path(location, commit))
    location.storage.sync_folder(location.root)


def remove_marker(location: DiskLocation, commit: str) -> None:
    """The commit is finished, or given up."""
    with contextlib.suppress(FileNotFoundError):
        location.storage.remove_folder(marker_path(location, commit))
    location.storage.sync_folder(location.root)


def has_marker(location: DiskLocation, commit: str) -> bool:
    return location.storage.stat(marker_path(location, commit)) is not None


def sibling_has_marker(location: DiskLocation, commit: str) -> bool:
    """Does a folder beside the data set have the marker: the original, a copy, or the folder under its new name?"""
    storage, parent = location.storage, location.parent
    siblings = [posixpath.join(parent, name) for name in storage.names(parent) if name != location.name]
    return any(commit in _commits_in(location, folder) for folder in siblings if not storage.is_link(folder))


def commits_above(location: DiskLocation) -> list[str]:
    """The folders above with an unfinished commit, which may still change files here."""
    locks = location.storage.locks
    if locks is None or not location.storage.is_dir(location.root):
        return []
    return [folder for folder in locks.above(location.root) if _commits_in(location, folder)]


def commits_within(location: DiskLocation) -> tuple[list[str], list[str]]:
    """The unfinished commits of this data set, and the folders inside it that have unfinished commits of their own."""
    commits, folders_inside = [], set()
    for path in location.storage.folders(location.root):
        folder, _, name = path.rpartition("/")
        match = _MARKER_NAME.fullmatch(name)
        if match and folder:
            folders_inside.add(folder)
        elif match:
            commits.append(match[1])
    return commits, sorted(folders_inside)


def _commits_in(location: DiskLocation, folder: str) -> list[str]:
    try:
        matches = [_MARKER_NAME.fullmatch(name) for name in location.storage.names(folder)]
    except PermissionError:  # a folder above that this user cannot read
        return []
    return [m[1] for m in matches if m and location.storage.is_dir(posixpath.join(folder, m[0]))]
