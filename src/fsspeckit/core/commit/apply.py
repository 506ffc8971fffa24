"""Carry out a journal, from wherever an earlier attempt stopped, or give it up.

Staged files are renamed into place first, and only then are old files removed. Every step looks at the file it is
about to replace or remove, at the last moment: what is not as the journal expects is neither overwritten nor skipped.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fsspeckit.core.commit.journal import ANYTHING, Addition, Journal, Removal, State, inode_of
from fsspeckit.core.model import FileInfo
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.storage import DiskLocation

Progress = Literal["due", "done", "conflict", "lost"]


class ConflictError(Exception):
    """A file is not as the journal expects it; says which, what was expected and what is there."""


@dataclass(frozen=True)
class ApplyJournal:
    """The steps of a journal in a data set. `force` takes what is there as it is."""

    location: DiskLocation
    staging: str
    journal: Journal
    force: bool = False

    def apply(self, here: int) -> None:
        """Do what is due, and make it durable, as long as the data set is the folder with the inode `here`."""
        folders: set[str] = set()
        for step in self._steps():
            self._check_place(here)
            self._add(step, folders) if isinstance(step, Addition) else self._remove(step, folders)
        self._check_place(here)
        for folder in sorted(folders):
            self.location.storage.sync_folder(folder)

    def _check_place(self, inode: int) -> None:
        """Files may not go to another folder that took the data set's path, nor make a new one there."""
        if inode_of(self.location) != inode:
            raise moved(self.location)

    def conflicts(self) -> list[str]:
        """The files that are not as the journal expects them; nothing is changed."""
        blocking = ("lost",) if self.force else ("conflict", "lost")
        return [self._text(step) for step in self._steps() if self.progress(step) in blocking]

    def progress(self, step: Addition | Removal) -> Progress:
        """How far is this step? `lost`: a staged file is gone and not in its place either."""
        there = self._stat(step.path)
        if isinstance(step, Removal):
            return "done" if there is None else "due" if self._fits(there, step.before) else "conflict"
        if self._is_staged(step):
            return "due" if self._fits(there, step.before) else "conflict"
        if there is None or (step.before != ANYTHING and self._fits(there, step.before)):
            return "lost"
        return "done" if there.size == step.after.size else "conflict"

    @cached_property
    def in_its_place(self) -> bool:
        """Is the data set the very folder that the journal was written for? In a copy, inodes mean nothing."""
        return self.journal.inode != 0 and self.journal.inode == inode_of(self.location)

    @cached_property
    def _inodes_hold(self) -> bool:
        """Do files have the inodes that they had? Not in a copy, nor where each mount gives new ones (exfat-fuse).

        The commit's own files tell: a staged file, and one that was put in place and has its size and time.
        """
        if not self.in_its_place:
            return False
        for addition in self.journal.additions:
            staged = self.location.storage.stat(self._staged(addition))
            own = staged or self._stat(addition.path)
            as_written = own and (own.size, own.mtime_ns) == (addition.after.size, addition.after.mtime_ns)
            if own is not None and as_written and own.inode != addition.after.inode:
                return False
        return True

    @property
    def is_begun(self) -> bool:
        """Has a staged file left its place?"""
        return not all(map(self._is_staged, self.journal.additions))

    @property
    def is_done(self) -> bool:
        """Is all of it in place? Removals alone do not tell: files are missing in any other folder too."""
        return bool(self.journal.additions) and all(self.progress(step) == "done" for step in self._steps())

    def undo(self) -> str:
        """Give the commit up. New files go if no old one is gone or replaced yet, else all stays as it is; says so."""
        placed = [a for a in self.journal.additions if not self._is_staged(a)]
        removed = [r for r in self.journal.removals if self.progress(r) == "done"]
        if not placed and not removed:
            self._remove_folders()
            return "no file was touched"
        if not removed and all(a.before is None and self._is_as_put(a) for a in placed):
            for path in (self.location.at(a.path) for a in placed):
                self.location.storage.remove(path)
                self.location.storage.sync_folder(posixpath.dirname(path))
            self._remove_folders()
            return f"{len(placed)} new file(s) taken back, no other file was touched"
        replaced = [a.path for a in self.journal.additions if a not in placed and a.before is not None]
        doubled = [r.path for r in self.journal.removals if r not in removed]
        return (
            f"half of it stays: new are {_names(a.path for a in placed)}; removed are "
            f"{_names(r.path for r in removed)}; as before are {_names(iter([*replaced, *doubled]))}"
            f"{', whose rows may stand in new files too' if doubled else ''}"
        )

    def _remove_folders(self) -> None:
        """Remove the folders that were made for new files, if nobody put anything there."""
        for folder in map(self.location.at, reversed(self.journal.folders)):
            with contextlib.suppress(OSError):
                self.location.storage.remove_folder(folder)

    def _is_as_put(self, addition: Addition) -> bool:
        there = self._stat(addition.path)
        if there is None or self.in_its_place:
            return there is None or self._fits(there, addition.after)
        return there.size == addition.after.size  # a copy has other times; the name is the commit's own

    def _steps(self) -> Iterator[Addition | Removal]:
        yield from self.journal.additions
        yield from self.journal.removals

    def _add(self, addition: Addition, folders: set[str]) -> None:
        progress, target = self.progress(addition), self.location.at(addition.path)
        folder = posixpath.dirname(target)
        if progress == "due" or (progress == "conflict" and self.force and self._is_staged(addition)):
            for made in self.location.storage.make_folder(folder):
                folders.add(posixpath.dirname(made))
            self._remove_checksum(addition.path)
            self.location.storage.rename(self._staged(addition), target)
        elif progress == "lost" or (progress == "conflict" and not self.force):
            raise ConflictError(self._text(addition))
        folders.add(folder)

    def _remove(self, removal: Removal, folders: set[str]) -> None:
        progress, target = self.progress(removal), self.location.at(removal.path)
        if progress == "conflict" and not self.force:
            raise ConflictError(self._text(removal))
        if progress != "done":
            self._remove_checksum(removal.path)
            self.location.storage.remove(target)
        if self.location.storage.is_dir(posixpath.dirname(target)):
            folders.add(posixpath.dirname(target))

    def _remove_checksum(self, path: str) -> None:
        """Spark checks `.name.crc` against the file beside it; one that outlives its file makes the new unreadable."""
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

    def _fits(self, there: FileInfo | None, expected: State | None) -> bool:
        if expected == ANYTHING:
            return True
        if there is None or expected is None:
            return there is None and expected is None
        same = (there.size, there.mtime_ns) == (expected.size, expected.mtime_ns)
        return same and (there.inode == expected.inode or not self._inodes_hold)

    def _text(self, step: Addition | Removal) -> str:
        there = self._stat(step.path)
        if isinstance(step, Removal):
            return f"{step.path}: to be removed, expected {_state(step.before)}, is {_state(there)}"
        if self._is_staged(step):
            return f"{step.path}: to be written over {_state(step.before)}, is {_state(there)}"
        staged = self._staged(step)
        return f"{step.path}: expected the {step.after.size:,} bytes of {staged}, which is gone, is {_state(there)}"


def moved(location: DiskLocation) -> OSError:
    return OSError(errno.ESTALE, "the folder was moved or replaced meanwhile", location.root)


def _state(state: State | FileInfo | None) -> str:
    if state is None:
        return "not there"
    if state == ANYTHING:
        return "whatever is there"
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(state.mtime_ns // 10**9))
    return f"{state.size:,} bytes of {stamp}.{state.mtime_ns % 10**9 // 1000:06d} UTC (inode {state.inode})"


def _names(paths: Iterator[str]) -> str:
    return ", ".join(paths) or "none"
