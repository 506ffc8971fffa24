"""One writer at a time: lock, recover, stage, check, commit.

    with writing(location) as session:
        ...                        # write files into session.stage(folders)
        session.commit(staged, removed, expected)

A commit is recorded at one moment: on disks when its marker is made in the data set (`disk`), in object stores when the
head object says so (`store`). If the writer dies or fails before, the data set is as it was. From then on the commit is
finished by this writer, the next one of any engine, or `fsspeckit recover`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from fsspeckit.core.commit import disk, store
from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.shared import CommitNote, Resolution, Waiting, Writers, check_unchanged, ignore_waiting
from fsspeckit.core.dataset.listing import listing_errors
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import Location

__all__ = [
    "CommitNote",
    "Session",
    "check_unchanged",
    "plan_folder",
    "reading",
    "records",
    "recover",
    "unfinished",
    "unfinished_warning",
    "warn_unfinished",
    "writing",
]


class Session(Protocol):
    """A writer that holds the data set."""

    @property
    def location(self) -> Location: ...

    @property
    def is_recorded(self) -> bool:
        """Has a commit passed its commit point, or may it have?"""

    def stage(self, folders: Sequence[str]) -> str:
        """Where new files wait for the commit; they can be put into `folders`."""

    def sync_staging(self) -> None:
        """Nothing more is staged: make its names durable while other work goes on. Else the commit does it."""

    def commit(
        self,
        staged: Sequence[Staged],
        removed: Sequence[FileInfo],
        expected: Sequence[FileInfo],
        keep: CommitNote | None = None,
        undoes: Record | None = None,
    ) -> None:
        """Put the staged files in place and remove the old ones, if the target is still as it was planned for.

        With `keep` the commit can be undone: the files that it replaces or removes are kept. `undoes` is the record of
        a kept commit, which is dropped.
        """

    def records(self) -> list[Record]:
        """The kept commits, the oldest first."""

    def put_back(self, record: Record) -> list[Staged]:
        """Stage the files that a commit replaced or removed."""

    def drop(self, records: Sequence[Record]) -> None:
        """Remove what commits kept; they can no longer be undone."""


class CommitProtocol(Protocol):
    """How a data set is held and changed. `location` is of the storage that the protocol is for."""

    def writing(
        self, location: Any, lock_timeout: float = 60, *, waiting: Waiting = ignore_waiting
    ) -> contextlib.AbstractContextManager[Session]: ...
    def recover(self, location: Any, lock_timeout: float = 60, resolution: Resolution | None = None) -> list[str]: ...
    def unfinished(self, location: Any) -> list[str]: ...
    def reading(self, location: Any, timeout: float | None) -> contextlib.AbstractContextManager[Writers]: ...
    def records(self, location: Any) -> list[Record]: ...
    def plan_folder(self, location: Any) -> str | None: ...


_PROTOCOLS: Mapping[str, CommitProtocol] = {"rename": disk, "upload": store}


@contextlib.contextmanager
def writing(location: Location, lock_timeout: float = 60, waiting: Waiting = ignore_waiting) -> Iterator[Session]:
    """Hold the data set for writing. What the session staged and did not commit is gone when it ends.

    While another writer holds it, `waiting` is called with a function that says which one. After Ctrl-C, the
    KeyboardInterrupt says whether anything was changed.
    """
    held: Session | None = None
    try:
        protocol = _PROTOCOLS[location.storage.commits_by]
        with protocol.writing(location, lock_timeout, waiting=waiting) as session:
            held = session
            yield session
    except KeyboardInterrupt as error:
        error.args = (_outcome(location, held),)
        raise


def _outcome(location: Location, session: Session | None) -> str:
    """What an interrupted writer changed."""
    if session is not None and not session.is_recorded:
        return "Nothing was changed."
    try:
        is_unfinished = bool(unfinished(location))
    except Exception:
        is_unfinished = True
    if is_unfinished:
        commit = "The commit" if session is not None else "A commit of an earlier writer"
        advice = f"run `fsspeckit recover {location.quoted}` to finish it; the next write does so too"
        return f"{commit} is recorded: {advice}."
    return "Nothing was changed." if session is None else "The commit is complete."


def recover(location: Location, lock_timeout: float = 60, resolution: Resolution | None = None) -> list[str]:
    """Finish or remove what dead writers left in this data set. Returns texts about what was done.

    A commit that the data set does not fit is refused, unless `resolution` says to `finish` or to `discard` it.
    """
    try:
        return _PROTOCOLS[location.storage.commits_by].recover(location, lock_timeout, resolution)
    except KeyboardInterrupt as error:
        error.args = ("Run `fsspeckit recover` again: it goes on where it was.",)
        raise


def unfinished(location: Location) -> list[str]:
    """Commits that are recorded and not finished, as paths to show; readers warn of them and change nothing."""
    return _PROTOCOLS[location.storage.commits_by].unfinished(location)


def reading(location: Location, timeout: float | None) -> contextlib.AbstractContextManager[Writers]:
    """Hold off the application of commits where that is possible, or notice them.

    The timeout is that for a commit that is being applied. Readers that only warn of it give none.
    """
    return _PROTOCOLS[location.storage.commits_by].reading(location, timeout)


def records(location: Location) -> list[Record]:
    """The commits that can be undone, one after the other, the oldest first."""
    with listing_errors(location):
        return _PROTOCOLS[location.storage.commits_by].records(location)


def plan_folder(location: Location) -> str | None:
    """A folder in the data set's own storage that the processes of one plan may share; `None` if there is none."""
    return _PROTOCOLS[location.storage.commits_by].plan_folder(location)


def warn_unfinished(location: Location) -> None:
    """Readers warn: a dead writer's commit is recorded, but maybe only half of it can be seen."""
    commits = unfinished(location)
    if commits:
        warnings.warn(unfinished_warning(location, commits), stacklevel=3)


def unfinished_warning(location: Location, commits: Sequence[str]) -> str:
    return (
        f"{location.shown} has an unfinished commit ({commits[0]}); rows may be missing or doubled until "
        "`fsspeckit recover` or the next write finishes it."
    )
