"""One writer at a time: lock, put in order what a dead writer left, stage, check, commit.

    with writing(location) as session:
        ...                        # write files into session.stage(folders)
        session.commit(staged, removed, expected)

A commit is recorded at one moment: on disks when its marker is made in the data set (`disk`), in object stores when the
head object says so (`store`). Dying, or failing, before it leaves the old data set; from then on the commit is finished
by this writer, the next one of any engine, or `fsspeckit recover`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Protocol

from fsspeckit.core.commit import disk, recovery, store
from fsspeckit.core.commit.recovery import Way
from fsspeckit.core.commit.unchanged import check_unchanged
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import Location, StoreStorage

__all__ = ["Session", "check_unchanged", "recover", "unfinished", "warn_unfinished", "writing"]


class Session(Protocol):
    """A writer that holds the data set."""

    location: Location

    @property
    def is_recorded(self) -> bool:
        """Has a commit passed its commit point, or may it have?"""

    def stage(self, folders: Sequence[str]) -> str:
        """Where new files wait for the commit; they can be put into `folders`."""

    def settle(self) -> None:
        """Nothing more is staged, and its names can go to the disk meanwhile; else the commit sees to it."""

    def commit(self, staged: Sequence[Staged], removed: Sequence[FileInfo], expected: Sequence[FileInfo]) -> None:
        """Put the staged files in place and remove the old ones, if the target is still as it was planned for."""


@contextlib.contextmanager
def writing(location: Location, lock_timeout: float = 60) -> Iterator[Session]:
    """Hold the data set for writing. What the session staged and did not commit is gone when it ends."""
    if isinstance(location.storage, StoreStorage):
        with store.writing(location, lock_timeout) as leased:
            yield leased
    else:
        with disk.writing(location, lock_timeout) as locked:
            yield locked


def recover(location: Location, lock_timeout: float = 60, way: Way | None = None) -> list[str]:
    """Finish or clear away what dead writers left in this data set; says what was done.

    What does not fit is refused, unless `way` says to `finish` it all the same or to `discard` it.
    """
    if isinstance(location.storage, StoreStorage):
        return store.recover(location, lock_timeout, way)
    return disk.recover(location, lock_timeout, way)


def unfinished(location: Location) -> list[str]:
    """Commits that are recorded and not finished, as paths to show; readers warn of them and change nothing."""
    if isinstance(location.storage, StoreStorage):
        return store.unfinished(location)
    return recovery.unfinished(location)


def warn_unfinished(location: Location) -> None:
    """Readers warn: a dead writer's commit is recorded, but maybe only half of it can be seen."""
    commits = unfinished(location)
    if commits:
        warnings.warn(
            f"{location.shown} has an unfinished commit ({commits[0]}); rows may be missing or doubled until "
            "`fsspeckit recover` or the next write finishes it.",
            stacklevel=3,
        )
