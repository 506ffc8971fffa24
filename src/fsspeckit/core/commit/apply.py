"""Apply a journal, from wherever an earlier attempt stopped, or undo it.

Staged files are renamed into place first, those with new names before those that replace a file. Only then are old
files removed, and after them the partition folders that have become empty. Right before a file is replaced or removed
its state is compared with the one in the journal. If they differ, the file is neither overwritten nor skipped.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from fsspeckit.core.commit.journal import ANYTHING, Addition, Journal, Removal, State, inode_of
from fsspeckit.core.model import FileInfo
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.storage import DiskLocation

# Errors of a folder that stays: another program's file is in it, it is a link, a mount point or protected.
_FOLDER_STAYS = (
    *(errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR),
    *(errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS),
)
Progress = Literal["due", "done", "conflict", "lost"]
"""How far one entry of a journal is. `lost`: the staged file is gone, and it is not in its place either."""


class ConflictError(Exception):
    """A file is not in the state that the journal expects. The message has the path and both states."""


@dataclass(frozen=True)
class ApplyJournal:
    """A journal and the data set it is applied to. With `force`, files in an unexpected state are replaced too."""

    location: DiskLocation
    staging: str
    journal: Journal
    force: bool = False

    def apply(self, inode: int) -> None:
        """Apply what is due and make it durable. Stop if the path no longer names the folder with this inode."""
        folders: set[str] = set()
        for addition in self.journal.additions:
            self._check_folder(inode)
            self._add(addition, folders)
        for removal in self.journal.removals:
            self._check_folder(inode)
            self._remove(removal, folders)
        self._check_folder(inode)
        self._remove_empty_partitions(self.journal.removals, folders)
        for folder in sorted(folders):
            self.location.storage.sync_folder(folder)

    def _check_folder(self, inode: int) -> None:
        """Nothing may be put into another folder that took the data set's path, nor create one there."""
        if inode_of(self.location) != inode:
            raise folder_moved(self.location)

    def conflicts(self) -> list[str]:
        """The files whose state prevents the commit. Changes nothing."""
        blocking = ("lost",) if self.force else ("conflict", "lost")
        return [self._describe(entry) for entry in self._entries if self.progress(entry) in blocking]

    def progress(self, entry: Addition | Removal) -> Progress:
        info = self._stat(entry.path)
        if isinstance(entry, Removal):
            return "done" if info is None else "due" if self._matches(info, entry.before) else "conflict"
        if self._is_staged(entry):
            return "due" if self._matches(info, entry.before) else "conflict"
        if info is None or (entry.before != ANYTHING and self._matches(info, entry.before)):
            return "lost"
        return "done" if info.size == entry.after.size else "conflict"

    @cached_property
    def is_original_folder(self) -> bool:
        """Is the data set the very folder that the journal was written for? In a copy, inodes mean nothing."""
        return self.journal.inode != 0 and self.journal.inode == inode_of(self.location)

    @cached_property
    def _inodes_are_stable(self) -> bool:
        """Do files have the inodes that they had? Not in a copy, nor where each mount assigns new ones (exfat-fuse).

        Files show it that have the size and time in the journal: the commit's own, staged or in place, and unchanged
        ones.
        """
        if not self.is_original_folder:
            return False
        stat = self.location.storage.stat
        added = [(stat(self._staged(a)) or self._stat(a.path), a.after) for a in self.journal.additions]
        unchanged = [(self._stat(file.path), file.state) for file in self.journal.unchanged]
        for info, state in (*added, *unchanged):
            as_written = info and (info.size, info.mtime_ns) == (state.size, state.mtime_ns)
            if info is not None and as_written and info.inode != state.inode:
                return False
        return True

    @property
    def is_begun(self) -> bool:
        """Has a staged file been renamed, or if there is none, an old file been removed?"""
        if not self.journal.additions:
            return any(self.progress(removal) == "done" for removal in self.journal.removals)
        return not all(map(self._is_staged, self.journal.additions))

    @property
    def is_done(self) -> bool:
        """Is everything applied? Removals alone prove nothing: files are missing in any other folder too."""
        is_known = bool(self.journal.additions) or self.is_original_folder or self._has_unchanged_files
        return is_known and all(self.progress(entry) == "done" for entry in self._entries)

    @property
    def _has_unchanged_files(self) -> bool:
        """Are the files that the commit leaves as they are in this folder? Copies may have other times."""
        files = [(self._stat(file.path), file.state) for file in self.journal.unchanged]
        return bool(files) and all(info is not None and info.size == state.size for info, state in files)

    def undo(self) -> str:
        """Give the commit up, and say what was done.

        New files are removed if no old file has been replaced or removed. Otherwise all files stay as they are.
        """
        placed = [a for a in self.journal.additions if not self._is_staged(a)]
        removed = [r for r in self.journal.removals if self.progress(r) == "done"]
        if not placed and not removed:
            self._remove_folders()
            return "no file was touched"
        if not removed and all(a.before is None and self._is_as_placed(a) for a in placed):
            for path in (self.location.at(a.path) for a in placed):
                self.location.storage.remove(path)
                self.location.storage.sync_folder(posixpath.dirname(path))
            self._remove_folders()
            return f"{len(placed)} new file(s) removed again, no other file was changed"
        changed = set[str]()
        self._remove_empty_partitions(removed, changed)
        for folder in sorted(changed):
            self.location.storage.sync_folder(folder)
        return self._half_text(placed, removed)

    def _half_text(self, placed: list[Addition], removed: list[Removal]) -> str:
        """What a commit that was partly applied has done, for the user who gives it up."""
        not_replaced = [a.path for a in self.journal.additions if a not in placed and a.before is not None]
        not_removed = [r.path for r in self.journal.removals if r not in removed]
        if not self.journal.additions:
            return (
                f"{len(removed)} of its {len(self.journal.removals)} file(s) had been removed already, and could not "
                f"be restored: {_names(r.path for r in removed)}; as before are {_names(not_removed)}"
            )
        return (
            f"half of it stays: new are {_names(a.path for a in placed)}; removed are "
            f"{_names(r.path for r in removed)}; as before are {_names([*not_replaced, *not_removed])}"
            f"{', whose rows may also be in new files' if not_removed else ''}"
        )

    def _remove_folders(self) -> None:
        """Remove the folders that were made for new files, if they are empty."""
        for folder in map(self.location.at, reversed(self.journal.folders)):
            with contextlib.suppress(OSError):
                self.location.storage.remove_folder(folder)

    def _is_as_placed(self, addition: Addition) -> bool:
        info = self._stat(addition.path)
        if info is None or self.is_original_folder:
            return info is None or self._matches(info, addition.after)
        return info.size == addition.after.size  # a copy has other times; the name is the commit's own

    @property
    def _entries(self) -> tuple[Addition | Removal, ...]:
        return (*self.journal.additions, *self.journal.removals)

    def _add(self, addition: Addition, folders: set[str]) -> None:
        progress, target = self.progress(addition), self.location.at(addition.path)
        folder = posixpath.dirname(target)
        if progress == "due" or (progress == "conflict" and self.force and self._is_staged(addition)):
            for made in self.location.storage.make_folder(folder):
                folders.add(posixpath.dirname(made))
            self._remove_checksum(addition.path)
            self.location.storage.rename(self._staged(addition), target)
        elif progress == "lost" or (progress == "conflict" and not self.force):
            raise ConflictError(self._describe(addition))
        folders.add(folder)

    def _remove(self, removal: Removal, folders: set[str]) -> None:
        progress, target = self.progress(removal), self.location.at(removal.path)
        if progress == "conflict" and not self.force:
            raise ConflictError(self._describe(removal))
        if progress != "done":
            self._remove_checksum(removal.path)
            self.location.storage.remove(target)
        if self.location.storage.is_dir(posixpath.dirname(target)):
            folders.add(posixpath.dirname(target))

    def _remove_empty_partitions(self, removals: Iterable[Removal], folders: set[str]) -> None:
        """Remove the partition folders that removals left empty. In `folders`, which are synced next, their parents
        take their place.

        The file system refuses to remove a folder in which anything is, so no file of another program is lost. A folder
        that does not exist was removed by an earlier attempt.
        """
        storage = self.location.storage
        for innermost in sorted({posixpath.dirname(removal.path) for removal in removals}):
            for folder in map(self.location.at, _partition_folders(innermost)):
                try:
                    storage.remove_folder(folder)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    if error.errno not in _FOLDER_STAYS:
                        raise
                    break
                folders.discard(folder)
                if storage.is_dir(posixpath.dirname(folder)):
                    folders.add(posixpath.dirname(folder))

    def _remove_checksum(self, path: str) -> None:
        """Spark checks a file against `.name.crc` beside it. An outdated one would make the new file unreadable."""
        folder, _, name = path.rpartition("/")
        checksum = self.location.at(posixpath.join(folder, f".{name}.crc"))
        if self.location.storage.stat(checksum) is not None:
            self.location.storage.remove(checksum)

    def _staged(self, addition: Addition) -> str:
        return posixpath.join(self.staging, addition.staged)

    def _is_staged(self, addition: Addition) -> bool:
        return self.location.storage.stat(self._staged(addition)) is not None

    def _stat(self, path: str) -> FileInfo | None:
        return self.location.storage.stat(self.location.at(path))

    def _matches(self, info: FileInfo | None, expected: State | None) -> bool:
        if expected == ANYTHING:
            return True
        if info is None or expected is None:
            return info is None and expected is None
        same = (info.size, info.mtime_ns) == (expected.size, expected.mtime_ns)
        return same and (info.inode == expected.inode or not self._inodes_are_stable)

    def _describe(self, entry: Addition | Removal) -> str:
        info = _state_text(self._stat(entry.path))
        if isinstance(entry, Removal):
            return f"{entry.path}: to be removed, expected {_state_text(entry.before)}, is {info}"
        if self._is_staged(entry):
            return f"{entry.path}: to be written over {_state_text(entry.before)}, is {info}"
        staged = self._staged(entry)
        return f"{entry.path}: expected the {entry.after.size:,} bytes of {staged}, which is gone, is {info}"


def _partition_folders(folder: str) -> Iterator[str]:
    """The folders `name=value` on the way up from a folder, up to one that is named otherwise."""
    while posixpath.basename(folder).find("=") > 0:
        yield folder
        folder = posixpath.dirname(folder)


def folder_moved(location: DiskLocation) -> OSError:
    return OSError(errno.ESTALE, "the folder was moved or replaced in the meantime", location.root)


def _state_text(state: State | FileInfo | None) -> str:
    if state is None:
        return "not there"
    if state == ANYTHING:
        return "whatever is there"
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(state.mtime_ns // 10**9))
    return f"{state.size:,} bytes of {stamp}.{state.mtime_ns % 10**9 // 1000:06d} UTC (inode {state.inode})"


def _names(paths: Iterable[str]) -> str:
    return ", ".join(paths) or "none"
