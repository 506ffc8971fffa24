"""Undo the last commit of a data set that kept what it replaced, list such commits, and drop old ones."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.session import records, warn_unfinished, writing
from fsspeckit.core.commit.shared import home_of
from fsspeckit.core.dataset.listing import check_plain, list_files, no_dataset
from fsspeckit.core.errors import ArgumentError, FsspeckitError, StorageError
from fsspeckit.core.progress import OnProgress, Progress
from fsspeckit.core.reports import KeptCommit, UndoResult
from fsspeckit.core.storage import Location

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def undo(location: Location, lock_timeout: float = 60, on_progress: OnProgress | None = None) -> UndoResult:
    """Put back what the last kept commit replaced and removed, in one commit, if nothing has changed since."""
    with (
        Progress.of(f"undo in {location.shown}", "lock", on_progress) as progress,
        writing(location, lock_timeout, progress.waiting) as session,
    ):
        progress.enter("footers")
        kept, infos = session.records(), list_files(location)
        if not kept and not infos:
            raise no_dataset(location)
        if not kept:
            raise FsspeckitError(
                f"{location.shown} has no commit that can be undone. Pass undoable=True to the merge, delete, write or "
                "compaction that you may want to undo. Nothing was changed."
            )
        last = kept[-1]
        changes = last.changes(infos)
        if changes:
            more = f"; and {len(changes) - 5} more" if len(changes) > 5 else ""
            raise FsspeckitError(
                f"{location.shown} is not as the {last.operation} of {_time(last):%Y-%m-%d %H:%M:%S} UTC left it: "
                f"{'; '.join(changes[:5])}{more}. Its kept files are in {_folder(location, last)}. Nothing was changed."
            )
        progress.enter("write", len(last.kept), sum(file.size for file in last.kept))
        staged = session.put_back(last)
        added, put_back = {file.path for file in last.files if file.added}, {file.path for file in staged}
        removed = [info for info in infos if info.path in added - put_back]
        progress.enter("commit")
        session.commit(staged, removed, infos, undoes=last)
    restored, removed_paths = sorted(put_back), [info.path for info in removed]
    return UndoResult(
        last.operation,
        _time(last),
        dict(last.counts),
        [location.show(path) for path in restored],
        [location.show(path) for path in removed_paths],
    )


def history(
    location: Location,
    keep: int | None = None,
    older_than: str | float | timedelta | None = None,
    lock_timeout: float = 60,
) -> list[KeptCommit]:
    """The commits that can be undone, one after the other, the last one first. With limits, others are dropped."""
    check_plain(location)
    age = None if older_than is None else _seconds(older_than)
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 0):
        raise ArgumentError(f"keep must be a number of commits, 0 or more, not {keep!r}.")
    if keep is not None or age is not None:
        with writing(location, lock_timeout) as session:
            kept = session.records()
            old = [r for n, r in enumerate(reversed(kept)) if _is_old(r, n, keep, age)]
            session.drop(old)
    else:
        warn_unfinished(location)
    kept = records(location)
    changes = kept[-1].changes(list_files(location)) if kept else []
    return [_described(location, record, changes if record is kept[-1] else None) for record in reversed(kept)]


def kept_copies(location: Location) -> list[str]:
    """The folders with files of earlier commits, which may have rows that were deleted since.

    The delete is committed: an error here must not look as if it had failed. Records that cannot be read, such as those
    of another user, are named by the folder above them.
    """
    try:
        return [_folder(location, record) for record in records(location) if record.kept]
    except StorageError:
        folder = f"{home_of(location.root)}/undo"
        return [location.storage.local_path(folder) or location.storage.url(folder)]


def _is_old(record: Record, newer: int, keep: int | None, age: float | None) -> bool:
    """Is a record beyond one of the limits? `newer` is the number of newer records."""
    return (keep is not None and newer >= keep) or (age is not None and time.time() - record.at > age)


def _described(location: Location, record: Record, changes: Sequence[str] | None) -> KeptCommit:
    return KeptCommit(
        id=record.commit,
        operation=record.operation,
        committed_at=_time(record),
        counts=dict(record.counts),
        kept_files=tuple(location.show(file.path) for file in record.kept),
        bytes=sum(file.size for file in record.kept),
        folder=_folder(location, record),
        is_next=changes is not None,
        changes=tuple(changes or ()),
    )


def _folder(location: Location, record: Record) -> str:
    return location.storage.local_path(record.folder) or location.storage.url(record.folder)


def _time(record: Record) -> datetime:
    return datetime.fromtimestamp(record.at, UTC)


def _seconds(age: str | float | timedelta) -> float:
    if isinstance(age, timedelta):
        return age.total_seconds()
    if isinstance(age, (int, float)) and not isinstance(age, bool) and age >= 0:
        return float(age)
    match = _AGE.fullmatch(age.strip()) if isinstance(age, str) else None
    if match is None:
        raise ArgumentError(f"older_than must be an age such as '7d', '12h' or '30m', or a timedelta, not {age!r}.")
    return float(match[1]) * _SECONDS[match[2]]
