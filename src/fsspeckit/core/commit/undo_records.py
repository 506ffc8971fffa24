"""What an undoable commit keeps: the files that it replaces or removes, and a record of what it did.

On disks they are in `<parent>/.fsspeckit-<data set>/undo/<commit>/`, or in `<data set>/.fsspeckit/undo/<commit>/` if
the parent is read-only. They are collected in the staging folder before the commit point, and moved to their place when
the commit is applied. So a commit that did not happen has no record, wherever its writer died. A commit that undoes
another names it in its staging folder, and drops its record when it is applied.

A record is untrusted input, like a journal.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Sequence
from dataclasses import replace

from fsspeckit.core.commit import staging as staging_folders
from fsspeckit.core.commit.journal import Journal, inode_of
from fsspeckit.core.commit.record import FileState, Record, parse
from fsspeckit.core.commit.shared import HOME, MALFORMED, CommitNote, home_of
from fsspeckit.core.errors import StorageError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import DiskLocation

FOLDER = "undo"
RECORD = "record.json"
_UNDONE = "undone.json"


def keep(
    location: DiskLocation, staging: str, journal: Journal, expected: Sequence[FileInfo], note: CommitNote
) -> None:
    """Collect the old files and the record in the staging folder: hard links where possible, otherwise copies."""
    storage, folder = location.storage, posixpath.join(staging, FOLDER)
    record_number = _next_number(location)
    storage.make_private_folder(folder, location.root)
    replaced = [(a.path, a.before) for a in journal.additions] + [(r.path, r.before) for r in journal.removals]
    kept = []
    for number, (path, state) in enumerate((path, state) for path, state in replaced if state is not None):
        kept.append(FileState(path, state.size, state.mtime_ns, name=f"file-{number:05d}"))
        storage.link_or_copy(location.at(path), posixpath.join(folder, kept[-1].name))
    changed = {path for path, _ in replaced}
    files = [FileState(f.path, f.size, f.mtime_ns) for f in expected if f.path not in changed]
    files += [FileState(a.path, a.after.size, a.after.mtime_ns, added=True) for a in journal.additions]
    if not storage.renames_atomically:  # a rename is a copy, and changes the time
        files = [replace(file, mtime_ns=0) for file in files]
    record = Record(
        commit=staging_folders.commit_of(staging),
        number=record_number,
        at=note.at,
        operation=note.operation,
        counts=note.counts,
        files=tuple(sorted(files, key=lambda file: file.path)),
        kept=tuple(kept),
        root=location.root,
        inode=inode_of(location),
    )
    path = posixpath.join(folder, RECORD)
    storage.write_bytes(path, record.to_bytes())
    storage.share_with_group(folder, [location.root])
    storage.sync_file(path)
    storage.sync_folder(folder)


def _next_number(location: DiskLocation) -> int:
    """Refuse if the folder of records is another user's: after the commit point it would be too late."""
    try:
        return max((record.number for record in records(location)), default=0) + 1
    except PermissionError as error:
        raise StorageError(
            f"Cannot keep the files that the commit to {location.shown} replaces: {error.filename} belongs to another "
            "user. Let that user drop what it keeps (`fsspeckit history --keep 0`), or leave out undoable. Nothing was "
            "changed.",
            error,
            operation="stage",
        ) from error


def mark_undone(location: DiskLocation, staging: str, record: Record) -> None:
    """Note in the staging folder that the commit undoes another one, whose record it drops."""
    path = posixpath.join(staging, _UNDONE)
    location.storage.write_bytes(path, json.dumps({"commit": record.commit}).encode())
    location.storage.sync_file(path)
    location.storage.sync_folder(staging)


def publish(location: DiskLocation, staging: str) -> None:
    """The commit is applied: move what it kept to its place, and drop the record of the commit that it undid."""
    storage, kept = location.storage, posixpath.join(staging, FOLDER)
    if storage.is_dir(kept) and not storage.is_link(kept):
        inside = posixpath.dirname(staging) == location.at(".fsspeckit")
        folder = posixpath.join(location.at(".fsspeckit") if inside else home_of(location.root), FOLDER)
        if not storage.is_dir(folder):
            storage.make_private_folder(folder, location.root)
            storage.share_with_group(folder, [location.root])
            storage.sync_folder(posixpath.dirname(folder))
        storage.rename(kept, posixpath.join(folder, staging_folders.commit_of(staging)))
        storage.sync_folder(folder)
    undone = posixpath.join(staging, _UNDONE)
    if storage.stat(undone) is not None:
        with contextlib.suppress(*MALFORMED):
            commit = json.loads(storage.read_bytes(undone))["commit"]
            # Beside the staging folder, also if the data set is a copy that was renamed: its inode and name differ.
            beside = _records_in(location, posixpath.join(posixpath.dirname(staging), FOLDER), is_own=True)
            found = {record.folder: record for record in [*records(location), *beside] if record.commit == commit}
            for record in found.values():
                drop(location, record)


def records(location: DiskLocation) -> list[Record]:
    """The kept commits of this data set, the oldest first.

    If the data set was renamed within its parent, they have its old name, and its inode shows it. A record of a folder
    that is beside this one under another name belongs to that one.
    """
    inode, own = inode_of(location), staging_folders.homes(location)
    names = [name for name in location.storage.names(location.parent) if name.startswith(HOME)] if location.name else []
    homes = [*own, *(home for name in names if (home := posixpath.join(location.parent, name)) not in own)]
    kept = []
    for home in homes:
        for record in _records_in(location, posixpath.join(home, FOLDER), is_own=home in own):
            is_ours = record.inode == inode or (home in own and not _is_beside(location, record.inode))
            kept += [record] if is_ours else []
    return sorted(kept, key=lambda record: record.number)


def _is_beside(location: DiskLocation, inode: int) -> bool:
    """Is the folder with this inode beside the data set: was it renamed, and another took its name?"""
    if not location.name or not inode:
        return False
    paths = [posixpath.join(location.parent, name) for name in location.storage.names(location.parent)]
    infos = [location.storage.stat(path) for path in paths if location.storage.is_dir(path)]
    return any(info is not None and info.inode == inode for info in infos)


def _records_in(location: DiskLocation, folder: str, *, is_own: bool) -> list[Record]:
    """The records in a folder. What is not a complete record of ours is ignored.

    Other users may have private records of other data sets.
    """
    storage, kept = location.storage, []
    if storage.is_link(folder):
        return []
    try:
        names = storage.names(folder)
    except PermissionError:
        if is_own:
            raise
        return []
    for name in names:
        path = posixpath.join(folder, name)
        try:
            if not storage.is_link(path) and storage.stat(posixpath.join(path, RECORD)) is not None:
                record = parse(storage.read_bytes(posixpath.join(path, RECORD)), path)
                kept += [record] if record.commit == name else []
        except MALFORMED:
            continue
    return kept


def put_back(location: DiskLocation, staging: str, record: Record) -> list[Staged]:
    """Stage the kept files of a commit, with their bytes, times and rights."""
    staged = []
    for file in record.kept:
        source = posixpath.join(record.folder, file.name)
        info = location.storage.stat(source)
        if info is None or info.size != file.size or not location.storage.is_plain(source):
            raise StorageError(
                f"Cannot undo the last commit to {location.shown}: the kept copy {source} of {file.path} is missing "
                "or damaged. Nothing was changed.",
                operation="undo",
            )
        location.storage.link_or_copy(source, posixpath.join(staging, file.name))
        staged.append(Staged(file.name, file.path, rows=0, size=file.size, replaces=file.path))
    return staged


def drop(location: DiskLocation, record: Record) -> None:
    """Remove a record, and then the files that it kept. What a killed process leaves is removed by the next one."""
    location.storage.remove(posixpath.join(record.folder, RECORD))
    location.storage.sync_folder(record.folder)
    _remove_folder(location, record.folder)


def remove_incomplete(location: DiskLocation) -> None:
    """Remove kept files without a record, and the folders of records if they are empty, but not those of others."""
    storage = location.storage
    for home in staging_folders.homes(location):
        folder = posixpath.join(home, FOLDER)
        if not storage.is_dir(folder) or storage.is_link(folder):
            continue
        with contextlib.suppress(PermissionError):
            for name in storage.names(folder):
                path = posixpath.join(folder, name)
                if not storage.is_link(path) and storage.stat(posixpath.join(path, RECORD)) is None:
                    staging_folders.remove(storage, path)
            if not storage.names(folder):
                storage.remove_folder(folder)


def _remove_folder(location: DiskLocation, folder: str) -> None:
    storage, parent = location.storage, posixpath.dirname(folder)
    staging_folders.remove(storage, folder)
    if not storage.names(parent):
        # The folder above may be another user's. That of a data set that was renamed may have staging folders.
        with contextlib.suppress(OSError):
            storage.remove_folder(parent)
            storage.remove_folder(posixpath.dirname(parent))
