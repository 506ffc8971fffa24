"""The session on disks: `flock` on the folder, staging beside it, renames, and the marker as the commit point."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fsspeckit.core.commit import journal, marker, staging
from fsspeckit.core.commit.apply import ApplyJournal, ConflictError, moved
from fsspeckit.core.commit.recovery import recover_locked, unfinished
from fsspeckit.core.commit.shared import Resolution, check_unchanged, has_conflicts, not_finished, refuse_pattern
from fsspeckit.core.dataset.listing import check_plain, listing_errors, summary_files
from fsspeckit.core.errors import (
    DatasetLockedError,
    DatasetMergeError,
    FsspeckitError,
    StorageError,
    TargetChangedError,
)
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import DiskLocation
from fsspeckit.core.storage.base import Locks
from fsspeckit.core.storage.location import not_utf8_advice

_ADVICE = {
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): (
        "New files are staged beside the data set before they replace old ones; make room for them."
    ),
    (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS): (
        "The file system does not lock folders, so that two writers could not be kept apart. Mount it with locks (NFS: "
        "version 4, or without nolock), or merge on the machine that has the disk."
    ),
    (errno.ESTALE,): "The server has forgotten the folder or file (a stale NFS handle): try again, or mount it anew.",
}


__all__ = ["plan_folder", "recover", "unfinished", "writing"]


@contextlib.contextmanager
def writing(location: DiskLocation, lock_timeout: float = 60) -> Iterator[DiskSession]:
    with _holding(location, lock_timeout) as (is_here, made):
        try:
            recover_locked(location, new=bool(made))
            with contextlib.closing(DiskSession(location, is_here)) as session:
                session.announce()
                yield session
        except OSError as error:
            message = f"Cannot write to {location.shown}: {error}.{_advice(error)} Nothing was changed."
            raise _ours(error, message, "stage") from error
        except UnicodeEncodeError as error:  # a partition value, in a locale that cannot write it
            message = f"Cannot write to {location.shown}: {error}. {not_utf8_advice()} Nothing was changed."
            raise StorageError(message, operation="stage") from error


def recover(location: DiskLocation, lock_timeout: float = 60, resolution: Resolution | None = None) -> list[str]:
    with listing_errors(location):
        check_plain(location)
        if not location.storage.is_dir(location.root) and not list(staging.leftovers(location)):
            return []
        with _holding(location, lock_timeout) as (_, made):
            return recover_locked(location, resolution, new=bool(made))


def plan_folder(location: DiskLocation) -> str | None:
    """A plan writes nothing beside a data set on a disk."""
    return None


@contextlib.contextmanager
def _holding(location: DiskLocation, lock_timeout: float) -> Iterator[tuple[Callable[[], bool], list[str]]]:
    """Make the data set's folder if need be, and lock it; yields whether it still is here, and the folders made."""
    made: list[str] = []
    with contextlib.ExitStack() as stack:
        try:
            locks = _locks(location)
            check_plain(location)
            made += _make_root(location)
            lock = locks.lock(location.root, lock_timeout, lambda folder: _owner(location, folder))
            is_here = stack.enter_context(lock)
        except OSError as error:
            _remove_empty(location, made)
            message = f"Cannot lock {location.shown}: {error}.{_advice(error)} Nothing was begun."
            raise _ours(error, message, "lock") from error
        process = os.getpid()
        try:
            yield is_here, made
        finally:  # a data set that did not come to be leaves no folder behind; others may wait for the lock on it
            if os.getpid() == process:
                _remove_empty(location, made)


def _locks(location: DiskLocation) -> Locks:
    locks = location.storage.locks
    if locks is None:
        raise DatasetLockedError(
            f"Writing to {location.storage.url(location.root)} is not supported yet: two writers could not be kept "
            "apart. Merge into a local folder or an s3:// path, or copy the data set there first.",
            operation="lock",
        )
    return locks


def _remove_empty(location: DiskLocation, folders: Sequence[str]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            location.storage.remove_folder(folder)


def _make_root(location: DiskLocation) -> list[str]:
    refuse_pattern(location)
    try:
        made = location.storage.make_folder(location.root)
        for folder in made:
            location.storage.sync_folder(posixpath.dirname(folder))
    except OSError as error:
        raise StorageError(
            f"Cannot create {location.shown}: {error}. Nothing was begun.", error, operation="stage"
        ) from error
    return made


def _owner(location: DiskLocation, folder: str) -> str:
    return staging.owner_of(replace(location, root=folder))


def _advice(error: OSError) -> str:
    return next((f" {words}" for errors, words in _ADVICE.items() if error.errno in errors), "")


def _ours(error: OSError, message: str, operation: str) -> OSError:
    """An error of the file system that came before the commit was recorded, in our words."""
    return error if isinstance(error, FsspeckitError) else StorageError(message, error, operation=operation)


@dataclass
class DiskSession:
    """A writer that holds the lock."""

    location: DiskLocation
    _is_here: Callable[[], bool]
    _since: float = field(default_factory=time.time)
    _process: int = field(default_factory=os.getpid)
    _staging: str | None = None
    _announced: str | None = None
    _release: Callable[[], None] | None = None
    _probed: set[str] = field(default_factory=set)
    _is_synced: bool = False
    _state: Literal["open", "recording", "recorded", "done"] = "open"

    @property
    def is_recorded(self) -> bool:
        """Has a commit passed its commit point, or may it have?"""
        return self._state != "open"

    def announce(self) -> None:
        """Tell those who wait who we are, from the first moment if the parent can be written."""
        home = staging.homes(self.location)[0]
        if staging.announce(self.location.storage, home, self._since):
            self._announced = home

    def stage(self, folders: Sequence[str]) -> str:
        """The staging folder, made on first use; a rename from it into `folders` is known to work."""
        if os.getpid() != self._process:  # it has no lock
            raise DatasetMergeError("A forked child cannot commit its parent's merge.", operation="commit")
        unknown = sorted({*folders} - self._probed)
        self._probed.update(unknown)
        if self._staging is None:
            self._staging = staging.create(self.location, unknown)
            self._release = _locks(self.location).claim(self._staging)
            home = posixpath.dirname(self._staging)
            if home != self._announced:
                staging.announce(self.location.storage, home, self._since)
        else:
            staging.check_reach(self.location, self._staging, unknown)
        return self._staging

    def sync_staging(self) -> None:
        """Make the names of staged files durable, and those of the folders above them."""
        journal.sync_staging(self.location, self.stage(()))
        self._is_synced = True

    def commit(self, staged: Sequence[Staged], removed: Sequence[FileInfo], expected: Sequence[FileInfo]) -> None:
        """Put the staged files in place and remove the old ones, if the target is still as it was planned for."""
        if not staged and not removed:
            return
        folder = self.stage(self._folders([s.path for s in staged] + [f.path for f in removed]))
        if not self._is_synced:
            self.sync_staging()
        self._check_place()
        check_unchanged(self.location, expected)
        known, replaced = {f.path for f in expected}, {s.path for s in staged}
        self._check_free([s.path for s in staged], known)
        summaries = [info for name in summary_files(self.location) if (info := self._stat(name))]
        gone = [*(f for f in removed if f.path not in replaced), *summaries]
        staging.check_distinct_names(self.location, sorted(replaced - known))
        staging.check_names(self.location, folder, (), replaced - known)
        staging.check_replaceable(self.location, sorted({f.path for f in gone} | (replaced & known)))
        with self.location.storage.syncing():
            staging.give_rights(self.location, folder, [s for s in staged if not s.replaces and s.path not in known])
            record = journal.plan(self.location, folder, staged, gone, expected)
            journal.write(self.location, folder, record)
        self.location.storage.share_with_group(folder, self._with_those_above(record.paths))
        self._check_place()  # once more: it takes a while to make all that durable
        self._record(ApplyJournal(self.location, folder, record))

    def _record(self, steps: ApplyJournal) -> None:
        """The commit point, and what comes after it: every error says that the commit is recorded."""
        commit = staging.commit_of(steps.staging)
        self._state = "recording"
        try:
            marker.make(self.location, commit)
            self._finish(steps, commit)
        except ConflictError as error:
            raise has_conflicts(self.location, [str(error)]) from None
        except OSError as error:
            if self._is_not_recorded(commit):
                raise
            raise not_finished(self.location, error) from error
        except (KeyboardInterrupt, SystemExit):
            if not self._is_not_recorded(commit):
                with contextlib.suppress(OSError, ConflictError):  # the next writer will say so
                    self._finish(steps, commit)
            raise

    def _is_not_recorded(self, commit: str) -> bool:
        """Did the commit fail before its marker was made? Where that cannot be told, it did not."""
        with contextlib.suppress(OSError):
            if self._state == "recording" and self._is_here() and not marker.is_made(self.location, commit):
                self._state = "open"
                return True
        return False

    def _finish(self, steps: ApplyJournal, commit: str) -> None:
        self._state = "recorded"
        steps.apply(steps.journal.inode)
        marker.remove(self.location, commit)
        if not self._is_here():  # the marker is elsewhere, and needs the journal
            raise moved(self.location)
        self._state = "done"

    def _check_place(self) -> None:
        """Refuse where the path has come to name another folder."""
        if not self._is_here():
            raise TargetChangedError(
                f"{self.location.shown} was moved or replaced while the merge was under way; nothing was changed.",
                operation="commit",
            )

    def _check_free(self, paths: Sequence[str], known: set[str]) -> None:
        """A new file may only take a name that nobody has."""
        taken = [p for p in paths if p not in known and self.location.storage.stat(self.location.at(p)) is not None]
        if taken:
            raise TargetChangedError(
                f"{self.location.show(taken[0])} exists already; nothing was changed, try again.", operation="commit"
            )

    def _folders(self, paths: Sequence[str]) -> list[str]:
        """The folders in which files will come and go; where one is yet to be made, the one to make it in."""
        present, new = set(), set()
        for folder in {posixpath.dirname(path) for path in paths}:
            while folder and not self.location.storage.is_dir(self.location.at(folder)):
                new.add(folder)
                folder = posixpath.dirname(folder)
            present.add(folder)
        staging.check_names(self.location, self.stage(()), new, ())
        return sorted(present)

    def _with_those_above(self, paths: Sequence[str]) -> list[str]:
        """The folders of the data set on the way to these files, those that are there."""
        parts = [path.split("/")[:-1] for path in paths]
        folders = {"/".join(names[:end]) for names in parts for end in range(len(names) + 1)} | {""}
        return [at for at in map(self.location.at, sorted(folders)) if self.location.storage.is_dir(at)]

    def _stat(self, name: str) -> FileInfo | None:
        info = self.location.storage.stat(self.location.at(name))
        return info and replace(info, path=name)

    def close(self) -> None:
        """Leave nothing of ours, unless a commit still has to be finished. What cannot be removed now is litter."""
        if os.getpid() != self._process:
            return
        try:
            self._clear()
        except (KeyboardInterrupt, SystemExit):
            self._clear()
            raise
        finally:
            if self._release is not None:
                self._release()

    def _clear(self) -> None:
        if self._state in ("open", "done"):
            with contextlib.suppress(OSError):
                self._remove_ours()

    def _remove_ours(self) -> None:
        if self._state == "open":
            staging.remove_probes(self.location, self._probed)
        if self._staging is not None and self.location.storage.is_dir(self._staging):
            staging.discard(self.location, self._staging)
        staging.remove_homes(self.location)
