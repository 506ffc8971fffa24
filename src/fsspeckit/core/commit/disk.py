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

from fsspeckit.core.commit import journal, staging, undo_records
from fsspeckit.core.commit.apply import ApplyJournal, ConflictError, folder_moved
from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.recovery import recover_locked, unfinished
from fsspeckit.core.commit.shared import (
    CommitNote,
    Resolution,
    Waiting,
    Writers,
    check_not_forked,
    check_unchanged,
    has_conflicts,
    ignore_waiting,
    not_finished,
    refuse_pattern,
    storage_errors,
)
from fsspeckit.core.commit.undo_records import records
from fsspeckit.core.dataset.listing import check_plain, listing_errors, summary_files
from fsspeckit.core.defaults import LOCK_TIMEOUT
from fsspeckit.core.errors import DatasetLockedError, StorageError, TargetChangedError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import DiskLocation
from fsspeckit.core.storage.base import Locks
from fsspeckit.core.storage.location import not_utf8_advice

__all__ = ["plan_folder", "reading", "records", "recover", "unfinished", "writing"]

_NO_SPACE = "New files are staged beside the data set before they replace old ones; make room for them."
_NO_LOCKS = (
    "The file system cannot lock folders, so two writers could not be kept apart. Mount it with locks (NFS: "
    "version 4, or without nolock), or merge on the machine that has the disk."
)
_STALE = "The server has forgotten the folder or file (a stale NFS handle): try again, or remount it."
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _NO_SPACE),
    **dict.fromkeys((errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS), _NO_LOCKS),
    errno.ESTALE: _STALE,
}


@contextlib.contextmanager
def writing(
    location: DiskLocation, lock_timeout: float = 60, *, waiting: Waiting = ignore_waiting
) -> Iterator[DiskSession]:
    failed = f"Cannot write to {location.shown}"
    with _locked(location, lock_timeout, waiting) as (is_same_folder, made), storage_errors(failed, "stage", _ADVICE):
        try:
            recover_locked(location, lock_timeout, is_new=bool(made))
            with contextlib.closing(DiskSession(location, is_same_folder, lock_timeout)) as session:
                session.announce()
                yield session
        except UnicodeEncodeError as error:  # a partition value that the locale cannot encode
            message = f"{failed}: {error}. {not_utf8_advice()} Nothing was changed."
            raise StorageError(message, operation="stage") from error


def recover(location: DiskLocation, lock_timeout: float = 60, resolution: Resolution | None = None) -> list[str]:
    with listing_errors(location):
        check_plain(location)
        if not location.storage.is_dir(location.root) and not list(staging.leftovers(location)):
            return []
        with _locked(location, lock_timeout) as (_, made):
            return recover_locked(location, lock_timeout, resolution, is_new=bool(made))


@contextlib.contextmanager
def reading(location: DiskLocation, timeout: float | None) -> Iterator[Writers]:
    """Hold off the application of commits by locks, where there are any."""
    locks, are_held_off = location.storage.locks, False
    with contextlib.ExitStack() as stack:
        with listing_errors(location):
            if locks is not None and location.storage.is_dir(location.root):
                held = locks.snapshot(location.root, LOCK_TIMEOUT if timeout is None else timeout)
                are_held_off = stack.enter_context(held)
        yield Writers(unfinished(location), are_held_off)


def plan_folder(location: DiskLocation) -> str | None:
    """A plan writes nothing beside a data set on a disk."""
    return None


@contextlib.contextmanager
def _locked(
    location: DiskLocation, lock_timeout: float, waiting: Waiting = ignore_waiting
) -> Iterator[tuple[Callable[[], bool], list[str]]]:
    """Make the data set's folder if it does not exist, and lock it.

    Yields a function that checks whether the path still names the locked folder, and the folders that were made. Those
    that are empty in the end are removed before the lock is released, since others may wait for it.
    """
    made: list[str] = []
    process = os.getpid()
    with contextlib.ExitStack() as stack:
        try:
            with storage_errors(f"Cannot lock {location.shown}", "lock", _ADVICE, "Nothing was started."):
                locks = _locks(location)
                check_plain(location)
                _refuse_own_snapshot(location, locks)
                made += _make_root(location)
                lock = locks.lock(location.root, lock_timeout, lambda folder: _owner(location, folder), waiting)
                is_same_folder = stack.enter_context(lock)
        except OSError:
            _remove_empty(location, made)
            raise
        try:
            yield is_same_folder, made
        finally:
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


def _refuse_own_snapshot(location: DiskLocation, locks: Locks) -> None:
    if locks.has_own_snapshot(location.root):
        raise DatasetLockedError(
            f"This thread reads a snapshot of {location.shown}, and a commit would wait for its end forever. Write "
            "after the `with fsspeckit.snapshot(…)` block. Nothing was started.",
            operation="lock",
        )


def _remove_empty(location: DiskLocation, folders: Sequence[str]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            location.storage.remove_folder(folder)


def _make_root(location: DiskLocation) -> list[str]:
    refuse_pattern(location)
    with storage_errors(f"Cannot create {location.shown}", "stage", outcome="Nothing was started."):
        made = location.storage.make_folder(location.root)
        for folder in made:
            location.storage.sync_folder(posixpath.dirname(folder))
    return made


def _owner(location: DiskLocation, folder: str) -> str:
    return staging.owner_of(replace(location, root=folder))


@dataclass
class DiskSession:
    """A writer that holds the lock."""

    location: DiskLocation
    _is_same_folder: Callable[[], bool]
    _lock_timeout: float
    _since: float = field(default_factory=time.time)
    _process: int = field(default_factory=os.getpid)
    _staging: str | None = None
    _announced_in: str | None = None
    _release_staging: Callable[[], None] | None = None
    _probed: set[str] = field(default_factory=set)
    _is_synced: bool = False
    _state: Literal["open", "recording", "recorded", "done"] = "open"

    @property
    def is_recorded(self) -> bool:
        return self._state != "open"

    def announce(self) -> None:
        """Record which process holds the lock, for those who wait for it."""
        home = staging.homes(self.location)[0]
        if staging.announce(self.location.storage, home, self._since):
            self._announced_in = home

    def stage(self, folders: Sequence[str]) -> str:
        """The staging folder, made on first use. Renames from it into `folders` have been tried."""
        check_not_forked(self._process)
        unprobed = sorted({*folders} - self._probed)
        self._probed.update(unprobed)
        if self._staging is None:
            self._staging = staging.create(self.location, unprobed)
            self._release_staging = _locks(self.location).claim(self._staging)
            home = posixpath.dirname(self._staging)
            if home != self._announced_in:
                staging.announce(self.location.storage, home, self._since)
        else:
            staging.check_renames(self.location, self._staging, unprobed)
        return self._staging

    def sync_staging(self) -> None:
        """Make the names of the staged files durable, and those of the two folders above them."""
        folder = self.stage(())
        home = posixpath.dirname(folder)
        for path in (folder, home, posixpath.dirname(home)):
            self.location.storage.sync_folder(path)
        self._is_synced = True

    def commit(
        self,
        staged: Sequence[Staged],
        removed: Sequence[FileInfo],
        expected: Sequence[FileInfo],
        keep: CommitNote | None = None,
        undoes: Record | None = None,
    ) -> None:
        if not staged and not removed:
            return
        location, storage = self.location, self.location.storage
        folder = self.stage(self._folders_to_change([s.path for s in staged] + [f.path for f in removed]))
        if not self._is_synced:
            self.sync_staging()
        self._check_same_folder()
        check_unchanged(location, expected)
        old, new = {f.path for f in expected}, {s.path for s in staged}
        self._check_unused([s.path for s in staged if s.path not in old])
        summaries = [(name, storage.stat(location.at(name))) for name in summary_files(location)]
        removals = [f for f in removed if f.path not in new]
        removals += [replace(info, path=name) for name, info in summaries if info is not None]
        staging.check_distinct_names(location, sorted(new - old))
        staging.check_names(location, folder, (), new - old)
        staging.check_replaceable(location, sorted({f.path for f in removals} | (new & old)))
        with storage.syncing():
            new_files = [s for s in staged if not s.replaces and s.path not in old]
            staging.give_rights(location, folder, new_files, expected)
            record = journal.plan(location, folder, staged, removals, expected)
            if keep is not None:
                undo_records.keep(location, folder, record, expected, keep)
            if undoes is not None:
                undo_records.mark_undone(location, folder, undoes)
            journal.write(location, folder, record)
        storage.share_with_group(folder, self._folders_above(record.paths))
        self._check_same_folder()  # again: making all of that durable takes time
        with _locks(location).applying(location.root, self._lock_timeout) as waited:
            if waited:
                self._check_same_folder()
                check_unchanged(location, expected)
            self._record(ApplyJournal(location, folder, record))

    def records(self) -> list[Record]:
        return records(self.location)

    def put_back(self, record: Record) -> list[Staged]:
        return undo_records.put_back(self.location, self.stage(()), record)

    def drop(self, records: Sequence[Record]) -> None:
        for record in records:
            undo_records.drop(self.location, record)

    def _record(self, applier: ApplyJournal) -> None:
        """Record the commit and apply it. After the commit point every error says that the commit is recorded."""
        commit = staging.commit_of(applier.staging)
        self._state = "recording"
        try:
            journal.make_marker(self.location, commit)
            self._finish(applier, commit)
        except ConflictError as error:
            raise has_conflicts(self.location, [str(error)]) from None
        except OSError as error:
            if self._failed_before_marker(commit):
                raise
            raise not_finished(self.location, error) from error
        except (KeyboardInterrupt, SystemExit):
            if not self._failed_before_marker(commit):
                with contextlib.suppress(OSError, ConflictError):  # the next writer will report it
                    self._finish(applier, commit)
            raise

    def _failed_before_marker(self, commit: str) -> bool:
        """Is it certain that the commit failed before its marker was made?"""
        with contextlib.suppress(OSError):
            if self._state == "recording" and self._is_same_folder() and not journal.has_marker(self.location, commit):
                self._state = "open"
                return True
        return False

    def _finish(self, applier: ApplyJournal, commit: str) -> None:
        self._state = "recorded"
        applier.apply(applier.journal.inode)
        undo_records.publish(self.location, applier.staging)
        journal.remove_marker(self.location, commit)
        if not self._is_same_folder():  # the marker is in the folder that was moved, and needs the journal
            raise folder_moved(self.location)
        self._state = "done"

    def _check_same_folder(self) -> None:
        if not self._is_same_folder():
            raise TargetChangedError(
                f"{self.location.shown} was moved or replaced while the merge was running; nothing was changed.",
                operation="commit",
            )

    def _check_unused(self, paths: Sequence[str]) -> None:
        """Refuse new files whose names are in use."""
        for path in paths:
            if self.location.storage.stat(self.location.at(path)) is not None:
                raise TargetChangedError(
                    f"{self.location.show(path)} exists already; nothing was changed, try again.", operation="commit"
                )

    def _folders_to_change(self, paths: Sequence[str]) -> list[str]:
        """The existing folders in which the commit makes or removes files or folders."""
        missing = staging.missing_folders(self.location, paths)
        staging.check_names(self.location, self.stage(()), missing, ())
        folders = {posixpath.dirname(path) for path in paths}
        return sorted({staging.existing_folder(self.location, folder) for folder in folders})

    def _folders_above(self, paths: Sequence[str]) -> list[str]:
        """The existing folders of the data set on the way to these files."""
        parts = [path.split("/")[:-1] for path in paths]
        folders = {"/".join(names[:end]) for names in parts for end in range(len(names) + 1)} | {""}
        return [at for at in map(self.location.at, sorted(folders)) if self.location.storage.is_dir(at)]

    def close(self) -> None:
        """Remove the staging folder, unless the commit is not finished. Recovery removes what this cannot."""
        if os.getpid() != self._process:
            return
        try:
            self._clean_up()
        except (KeyboardInterrupt, SystemExit):
            self._clean_up()
            raise
        finally:
            if self._release_staging is not None:
                self._release_staging()

    def _clean_up(self) -> None:
        if self._state not in ("open", "done"):
            return
        with contextlib.suppress(OSError):
            if self._state == "open":
                staging.remove_probes(self.location, self._probed)
            if self._staging is not None and self.location.storage.is_dir(self._staging):
                staging.discard(self.location, self._staging)
            staging.remove_homes(self.location)
