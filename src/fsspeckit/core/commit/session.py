"""One writer at a time: lock, recover what a dead writer left, stage, check, commit.

    with writing(location) as session:
        ...                        # write files into session.staging
        session.commit(staged, removed, expected)

Dying before the journal is written leaves the old data set; dying after it is finished by the next writer of any
engine, or by `fsspeckit recover`.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import posixpath
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fsspeckit.core.commit import journal, owner, staging
from fsspeckit.core.errors import CommitUnfinishedError, DatasetMergeError, TargetChangedError, TargetError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.plan.listing import check_plain, list_files, summary_files
from fsspeckit.core.storage import Location

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def writing(location: Location, lock_timeout: float = 60) -> Iterator[Session]:
    """Hold the data set for writing. What the session staged and did not commit is gone when it ends."""
    with _holding(location, lock_timeout) as made:
        recover_locked(location, new=bool(made))
        session = Session(location)
        try:
            session.announce()
            yield session
        except OSError as error:
            if error.errno in _FULL:
                raise _no_room(location, error) from error
            raise
        finally:
            session.close()


@contextlib.contextmanager
def _holding(location: Location, lock_timeout: float) -> Iterator[list[str]]:
    """Make the data set's folder if need be, and lock it; yields the folders made."""
    location.storage.check_lockable(location.root)
    check_plain(location)
    made = _make_root(location)
    with location.storage.lock(location.root, lock_timeout, lambda: _owner(location)):
        try:
            yield made
        finally:  # a data set that did not come to be leaves no folder behind; others may wait for the lock on it
            for folder in reversed(made):
                with contextlib.suppress(OSError):
                    location.storage.remove_folder(folder)


def _is_pattern(location: Location) -> bool:
    """A name with `*` or `?` is a name like any other, unless it is meant for what is there already."""
    if not any(c in location.name for c in "*?") or location.storage.is_dir(location.root):
        return False
    return bool(fnmatch.filter(location.storage.names(location.parent), location.name))


def _make_root(location: Location) -> list[str]:
    if _is_pattern(location):
        raise TargetError(f"{location.shown} does not exist, but is a pattern. Name the data set's own folder.")
    try:
        made = location.storage.make_folder(location.root)
        for folder in made:
            location.storage.sync_folder(posixpath.dirname(folder))
    except OSError as error:
        raise DatasetMergeError(f"Cannot create {location.shown}: {error}.", operation="stage") from error
    return made


def _owner(location: Location) -> str:
    return owner.describe(location.storage, staging.homes(location))


def _no_room(location: Location, error: OSError) -> DatasetMergeError:
    return DatasetMergeError(
        f"Cannot write to {location.shown}: {error}. New files are staged beside the data set before they replace old "
        "ones; make room for them. Nothing was changed.",
        operation="stage",
    )


@dataclass
class Session:
    """A writer that holds the lock."""

    location: Location
    _since: float = field(default_factory=time.time)
    _staging: str | None = None
    _probed: set[str] = field(default_factory=set)
    _state: Literal["open", "recorded", "done"] = "open"

    def announce(self) -> None:
        """Tell those who wait who we are, from the first moment if the parent can be written."""
        with contextlib.suppress(OSError):
            owner.announce(self.location.storage, staging.homes(self.location)[0], self._since)

    def stage(self, folders: Sequence[str]) -> str:
        """The staging folder, made on first use; a rename from it into `folders` is known to work."""
        unknown = sorted({*folders} - self._probed)
        self._probed.update(unknown)
        if self._staging is None:
            self._staging = staging.create(self.location, unknown)
            owner.announce(self.location.storage, posixpath.dirname(self._staging), self._since)
        else:
            staging.check_reach(self.location, self._staging, unknown)
        return self._staging

    def commit(self, staged: Sequence[Staged], removed: Sequence[FileInfo], expected: Sequence[FileInfo]) -> None:
        """Put the staged files in place and remove the old ones, if the target is still as it was planned for."""
        if not staged and not removed:
            return
        folder = self.stage(self._folders([s.path for s in staged] + [f.path for f in removed]))
        check_unchanged(self.location, expected)
        self._check_free([s.path for s in staged], {f.path for f in expected})
        summaries = [info for name in summary_files(self.location) if (info := self._stat(name))]
        replaced = {s.path for s in staged}
        gone = [f for f in removed if f.path not in replaced]
        record = journal.Journal.of(staged, [*gone, *summaries])
        journal.write(self.location, folder, record)
        self._state = "recorded"
        try:
            self._finish(folder, record)
        except KeyboardInterrupt:
            self._finish(folder, record)
            raise
        except OSError as error:
            raise CommitUnfinishedError(
                f"The commit to {self.location.shown} is recorded but could not be finished: {error}. Remove the cause "
                "and run `fsspeckit recover`, or write again.",
                operation="commit",
            ) from error

    def _check_free(self, paths: Sequence[str], known: set[str]) -> None:
        """A new file may only take a name that nobody has."""
        taken = [p for p in paths if p not in known and self.location.storage.stat(self.location.at(p)) is not None]
        if taken:
            raise TargetChangedError(
                f"{self.location.show(taken[0])} exists already; nothing was changed, try again.", operation="commit"
            )

    def _folders(self, paths: Sequence[str]) -> list[str]:
        """The folders in which files will come and go; where one is yet to be made, the one to make it in."""
        found, new = set(), set()
        for folder in {posixpath.dirname(path) for path in paths}:
            while folder and not self.location.storage.is_dir(self.location.at(folder)):
                new.add(folder)
                folder = posixpath.dirname(folder)
            found.add(folder)
        staging.check_names(self.location, self.stage(()), new)
        return sorted(found)

    def _stat(self, name: str) -> FileInfo | None:
        info = self.location.storage.stat(self.location.at(name))
        return info and replace(info, path=name)

    def _finish(self, folder: str, record: journal.Journal) -> None:
        journal.apply(self.location, folder, record)
        _discard(self.location)
        self._state = "done"

    def close(self) -> None:
        """Leave nothing of ours, unless a journal still has to be carried out."""
        if self._state == "open":
            staging.remove_probes(self.location, self._probed)
            _discard(self.location)


def check_unchanged(location: Location, expected: Sequence[FileInfo]) -> None:
    """Refuse if a data file appeared, vanished or changed since `expected` was listed."""
    before, now = ({f.path: f for f in files} for files in (expected, list_files(location)))
    changed = sorted(p for p in before.keys() | now.keys() if before.get(p) != now.get(p))
    if changed:
        what = "; ".join(f"{location.show(p)} {_change(before.get(p), now.get(p))}" for p in changed[:5])
        raise TargetChangedError(
            f"The target changed while the merge was under way: {what}. Another program writes here without our lock; "
            "nothing was changed, try again when it is done.",
            operation="commit",
        )


def _change(before: FileInfo | None, now: FileInfo | None) -> str:
    if before is None:
        return "is new"
    return "is gone" if now is None else "was changed"


def _discard(location: Location) -> None:
    """Remove all staging. We hold the lock and have finished what others left: it is ours."""
    for folder in staging.leftovers(location):
        _remove_staging(location, folder)
    staging.remove_homes(location)


def _remove_staging(location: Location, folder: str) -> None:
    """The journal goes first, and for good: without it the rest is only litter."""
    if location.storage.stat(posixpath.join(folder, journal.NAME)) is not None:
        location.storage.remove(posixpath.join(folder, journal.NAME))
        location.storage.sync_folder(folder)
    staging.remove(location.storage, folder)


def recover(location: Location, lock_timeout: float = 60) -> list[str]:
    """Finish or undo what dead writers left in this data set; says what was done."""
    if not location.storage.is_dir(location.root) and not list(staging.leftovers(location)):
        return []
    with _holding(location, lock_timeout) as made:
        return recover_locked(location, new=bool(made))


def recover_locked(location: Location, new: bool = False) -> list[str]:
    """Finish or undo what dead writers left. A folder that is new and empty is not the data set they wrote to."""
    deleted = new and not location.storage.names(location.root)
    try:
        found = list(staging.leftovers(location))
        for probe in _stray_probes(location) if found else ():
            location.storage.remove(location.at(probe))
        done = [_recover_one(location, folder, deleted) for folder in found]
        staging.remove_homes(location)
    except OSError as error:
        raise CommitUnfinishedError(
            f"A dead writer left work for {location.shown} that cannot be finished or removed: {error}. Remove the "
            "cause (it may belong to another user), then run `fsspeckit recover`, or write again.",
            operation="recover",
        ) from error
    return done


def _recover_one(location: Location, folder: str, deleted: bool) -> str:
    path = posixpath.join(folder, journal.NAME)
    if deleted or location.storage.stat(path) is None:
        _remove_staging(location, folder)
        return f"removed the unfinished work in {folder}"
    record = journal.Journal.from_bytes(location.storage.read_bytes(path), path)
    journal.apply(location, folder, record)
    _remove_staging(location, folder)
    return (
        f"finished the commit in {folder}: {len(record.additions)} file(s) put in place, {len(record.removals)} removed"
    )


def _stray_probes(location: Location) -> list[str]:
    found = location.storage.walk(location.root)
    return [f.path for f in found if f.path.rsplit("/", 1)[-1].startswith(staging.PROBE) and f.size == 0]


def unfinished(location: Location) -> list[str]:
    """Journals that a dead writer left; readers warn of them and change nothing."""
    names = (posixpath.join(folder, journal.NAME) for folder in staging.leftovers(location))
    return [name for name in names if location.storage.stat(name) is not None]


def warn_unfinished(location: Location) -> None:
    """Readers warn: a dead writer's commit is recorded, but maybe only half of it can be seen."""
    found = unfinished(location)
    if found:
        warnings.warn(
            f"{location.shown} has an unfinished commit ({found[0]}); rows may be missing or doubled until "
            "`fsspeckit recover` or the next write finishes it.",
            stacklevel=3,
        )
