"""Read all files of a data set in one version.

On disks, locks hold off the application of commits while a snapshot is read (`storage.snapshot_locks`). Where there are
no such locks, and to notice programs that do not use them, the files are compared at the end. In object stores nothing
is held off: the head has the id of the last commit, which is compared at the end.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from fsspeckit.core.commit.session import reading, unfinished_warning
from fsspeckit.core.commit.shared import Writers, changes_since
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import ArgumentError, CommitUnfinishedError, FsspeckitError, TargetChangedError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage import Location


@contextlib.contextmanager
def snapshot(location: Location, timeout: float) -> Iterator[tuple[FileInfo, ...]]:
    """The data files, of which no commit is applied until the block ends; in a store, at least noticed."""
    with reading(location, timeout) as writers:
        if writers.unfinished:
            raise CommitUnfinishedError(
                f"{location.shown} has an unfinished commit ({writers.unfinished[0]}): some of its files are old, "
                f"others new. Run `fsspeckit recover {location.quoted}`, or write to it; then read.",
                operation="snapshot",
            )
        infos = _existing_files(location)
        if not writers.are_held_off and writers.have_committed is None:
            warnings.warn(
                f"No lock can hold off commits to {location.shown} while its snapshot is read. If files are replaced "
                "meanwhile, reading may fail, and the end of the snapshot raises TargetChangedError.",
                stacklevel=4,
            )
        with _noticing_changes(location, writers, infos):
            yield infos


@contextlib.contextmanager
def consistent_files(location: Location) -> Iterator[tuple[FileInfo, ...]]:
    """As `snapshot`, for readers that only warn of an unfinished commit."""
    with reading(location, None) as writers:
        if writers.unfinished:
            warnings.warn(unfinished_warning(location, writers.unfinished), stacklevel=6)
        infos = _existing_files(location)
        with _noticing_changes(location, writers, infos):
            yield infos


def _existing_files(location: Location) -> tuple[FileInfo, ...]:
    infos = list_files(location)
    if not infos:
        raise ArgumentError(f"{location.shown} has no Parquet files.")
    return infos


@contextlib.contextmanager
def _noticing_changes(location: Location, writers: Writers, infos: tuple[FileInfo, ...]) -> Iterator[None]:
    """Raise `TargetChangedError` if the files changed, also if reading failed: that may be the reason."""
    try:
        yield
    except Exception as error:
        change = None
        with contextlib.suppress(OSError, FsspeckitError):  # the error of the reader says more
            change = _change_since(location, writers, infos)
        if change is not None:
            raise _changed(location, change) from error
        raise
    change = _change_since(location, writers, infos)
    if change is not None:
        raise _changed(location, change)


def _changed(location: Location, change: str) -> TargetChangedError:
    return TargetChangedError(
        f"{location.shown} changed while it was read: {change}. The rows may come from two versions; read again.",
        operation="read",
    )


def _change_since(location: Location, writers: Writers, infos: tuple[FileInfo, ...]) -> str | None:
    """What changed of the files that a reader listed. New files are no change."""
    if writers.have_committed is not None:
        return "there was a commit in the meantime" if writers.have_committed() else None
    changed, _ = changes_since(location, infos)
    return "; ".join(changed[:5]) or None
