"""One writer at a time: lock, recover what a dead writer left, stage, check, commit.

    with writing(location) as session:
        ...                        # write files into session.staging
        session.commit(staged, removed, expected)

Dying before the journal is written leaves the old data set; dying after it is finished by the next writer of any
engine, or by `fsspeckit recover`.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import socket
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fsspeckit.core.commit import journal, staging
from fsspeckit.core.errors import CommitUnfinishedError, DatasetMergeError, TargetChangedError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.plan.listing import check_plain, list_files, summary_files
from fsspeckit.core.storage import Location


@contextlib.contextmanager
def writing(location: Location, lock_timeout: float = 60) -> Iterator[Session]:
    """Hold the data set for writing. What the session staged and did not commit is gone when it ends."""
    check_plain(location)
    made = _make_root(location)
    try:
        owner = posixpath.join(staging.homes(location)[0], staging.OWNER)
        with location.storage.lock(location.root, lock_timeout, owner):
            recover_locked(location)
            session = Session(location)
            try:
                yield session
            finally:
                session.close()
    finally:
        for folder in reversed(made):  # a data set that did not come to be leaves no folder behind
            with contextlib.suppress(OSError):
                location.storage.remove_folder(folder)


def _make_root(location: Location) -> list[str]:
    try:
        return location.storage.make_folder(location.root)
    except OSError as error:
        raise DatasetMergeError(f"Cannot create {location.shown}: {error}.", operation="stage") from error


@dataclass
class Session:
    """A writer that holds the lock."""

    location: Location
    _staging: str | None = None
    _committed: bool = field(default=False)

    def stage(self, folders: Sequence[str]) -> str:
        """The staging folder, made on first use; a rename from it into `folders` is known to work."""
        if self._staging is None:
            self._staging = staging.create(self.location, folders)
            home = posixpath.dirname(self._staging)
            self.location.storage.write_bytes(posixpath.join(home, staging.OWNER), _owner())
        else:
            staging.check_reach(self.location, self._staging, folders)
        return self._staging

    def commit(self, staged: Sequence[Staged], removed: Sequence[FileInfo], expected: Sequence[FileInfo]) -> None:
        """Put the staged files in place and remove the old ones, if the target is still as it was planned for."""
        check_unchanged(self.location, expected)
        summaries = [self._stat(name) for name in summary_files(self.location)]
        replaced = {s.path for s in staged}
        gone = [f for f in removed if f.path not in replaced]
        record = journal.Journal.of(staged, [*gone, *summaries])
        folder = self.stage(())
        journal.write(self.location, folder, record)
        self._committed = True
        try:
            journal.apply(self.location, folder, record)
        except OSError as error:
            raise CommitUnfinishedError(
                f"The commit to {self.location.shown} is recorded but could not be finished: {error}. Remove the cause "
                "and run `fsspeckit recover`, or write again.",
                operation="commit",
            ) from error
        self._discard()

    def _stat(self, name: str) -> FileInfo:
        info = self.location.storage.stat(self.location.at(name))
        assert info is not None
        return FileInfo(name, info.size, info.mtime_ns, info.inode)

    def close(self) -> None:
        """Leave nothing of ours, unless a journal still has to be carried out."""
        if self._staging is not None and not self._committed:
            self._discard()

    def _discard(self) -> None:
        assert self._staging is not None
        _remove_staging(self.location, self._staging)
        staging.remove_homes(self.location)
        self._staging = None
        self._committed = False


def _owner() -> bytes:
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {os.getpid()} on {socket.gethostname()}, since {started}".encode()


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


def _remove_staging(location: Location, folder: str) -> None:
    """The journal goes first: without it the rest is only litter."""
    location.storage.remove(posixpath.join(folder, journal.NAME))
    staging.remove(location.storage, folder)


def recover(location: Location, lock_timeout: float = 60) -> list[str]:
    """Finish or undo what dead writers left in this data set; says what was done."""
    check_plain(location)
    if not location.storage.is_dir(location.root) and not list(staging.leftovers(location)):
        return []
    with location.storage.lock(location.root, lock_timeout, posixpath.join(staging.homes(location)[0], staging.OWNER)):
        return recover_locked(location)


def recover_locked(location: Location) -> list[str]:
    found = list(staging.leftovers(location))
    if found:
        for probe in _stray_probes(location):
            location.storage.remove(location.at(probe))
    done = [_recover_one(location, folder) for folder in found]
    staging.remove_homes(location)
    return done


def _recover_one(location: Location, folder: str) -> str:
    path = posixpath.join(folder, journal.NAME)
    if location.storage.stat(path) is None:
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
