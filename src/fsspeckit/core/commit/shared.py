"""What both commit protocols need: checks before a commit, errors, and who holds a data set."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import posixpath
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fsspeckit.core.dataset.listing import SUMMARY_FILES, is_data_file, is_utf8, list_files
from fsspeckit.core.errors import (
    CommitUnfinishedError,
    DatasetMergeError,
    FsspeckitError,
    StorageError,
    TargetChangedError,
    TargetError,
    os_reason,
)
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage import Location

HOME = ".fsspeckit-"
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a journal, a head or a record raises that fsspeckit did not write."""

Resolution = Literal["finish", "discard"]
"""How to resolve a recorded commit that conflicts with the data set: apply it anyway, or give it up."""


Waiting = Callable[[Callable[[], str]], None]
"""Called again and again while a lock is not free, with a function that says who has it."""


def ignore_waiting(owner: Callable[[], str]) -> None:
    """`Waiting` that does nothing."""


@dataclass(frozen=True)
class Writers:
    """What a reader knows of the writers when it begins: their unfinished commits, and how others will be noticed.

    `are_held_off`: no commit is applied until the reader ends. `have_committed` says at the end whether there was a
    commit; without it, the files have to be compared.
    """

    unfinished: list[str]
    are_held_off: bool = False
    have_committed: Callable[[], bool] | None = None


@dataclass(frozen=True)
class CommitNote:
    """What a commit does, for the record of an undoable one."""

    operation: str
    counts: Mapping[str, int] = field(default_factory=dict)
    at: float = field(default_factory=time.time)


def home_of(root: str) -> str:
    """The folder beside a data set that holds its staging, journal and head. Readers do not take it for data."""
    return posixpath.join(posixpath.dirname(root), f"{HOME}{posixpath.basename(root)}")


def changes_since(location: Location, expected: Sequence[FileInfo]) -> tuple[list[str], list[str]]:
    """The data files of `expected` that are gone or changed, and new data files, as texts."""
    before, now = ({f.path: f for f in files} for files in (expected, list_files(location)))
    changed = []
    for path in sorted(before):
        if path not in now:
            changed.append(f"{location.show(path)} is gone")
        elif not before[path].same_as(now[path]):
            changed.append(f"{location.show(path)} was changed")
    return changed, [f"{location.show(path)} is new" for path in sorted(now.keys() - before.keys())]


def check_unchanged(location: Location, expected: Sequence[FileInfo]) -> None:
    """Refuse if a data file was added, removed or changed since `expected` was listed."""
    changed, new = changes_since(location, expected)
    if changed or new:
        raise TargetChangedError(
            f"The target changed while the merge was running: {'; '.join([*changed, *new][:5])}. Another program "
            "is writing here without fsspeckit's lock. Nothing was changed; try again when it is done.",
            operation="commit",
        )


def refuse_pattern(location: Location) -> None:
    """Refuse a name with `*` or `?` that does not exist but matches folders that do."""
    if not any(c in location.name for c in "*?") or location.storage.is_dir(location.root):
        return
    if fnmatch.filter(location.storage.names(location.parent), location.name):
        raise TargetError(f"{location.shown} does not exist, but is a pattern. Name the data set's own folder.")


def check_not_forked(process: int) -> None:
    """Refuse to go on in a forked child: only the process that took the lock or lease may commit."""
    if os.getpid() != process:
        raise DatasetMergeError("A forked child cannot commit its parent's merge.", operation="commit")


def check_data_paths(paths: Sequence[str]) -> None:
    """Raise `ValueError` unless every path names a data file inside the data set, and each only once."""
    for path in paths:
        check_inside(path)
        if not is_data_file(posixpath.basename(path)) and path not in SUMMARY_FILES:
            raise ValueError(f"{path!r} is not a data file")
    if len(set(paths)) < len(paths):
        raise ValueError("it names a file twice")


def check_inside(path: str) -> None:
    if {"", ".", ".."} & set(path.split("/")) or "\0" in path or not is_utf8(path):
        raise ValueError(f"{path!r} is not a path inside the data set")


@contextlib.contextmanager
def storage_errors(
    failed: str, operation: str, advice: str | Mapping[int, str] = "", outcome: str = "Nothing was changed."
) -> Iterator[None]:
    """Turn an `OSError` into a `StorageError` that says what failed. `advice` may depend on the `errno`."""
    try:
        yield
    except FsspeckitError:
        raise
    except OSError as error:
        hint = advice if isinstance(advice, str) else advice.get(error.errno or 0, "")
        message = " ".join(filter(None, [f"{failed}: {os_reason(error)}.", hint, outcome]))
        raise StorageError(message, error, operation=operation) from error


def not_finished(location: Location, error: OSError) -> CommitUnfinishedError:
    """The error of a writer that recorded its commit and could not apply all of it."""
    return CommitUnfinishedError(
        f"The commit to {location.shown} is recorded; do not repeat it. It could not be finished: {os_reason(error)}. "
        f"Remove the cause and run `fsspeckit recover {location.quoted}`; the next write finishes it too. If the cause "
        f"cannot be removed, `fsspeckit recover --discard {location.quoted}` gives the commit up.",
        operation="commit",
    )


def has_conflicts(location: Location, conflicts: list[str], can_finish: bool = True) -> CommitUnfinishedError:
    """`can_finish` is false if staged files are missing: then `--finish` would not help."""
    more = f"; and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
    finish = f"`fsspeckit recover --finish {location.quoted}` to apply the commit anyway, or " if can_finish else ""
    return CommitUnfinishedError(
        f"A commit to {location.shown} is recorded, but the data set is no longer as the commit expects it. "
        f"{'; '.join(conflicts[:5])}{more}. Existing files were not overwritten. Look at these files, then run "
        f"{finish}`fsspeckit recover --discard {location.quoted}` to give it up.",
        operation="recover",
    )


def this_process(since: float) -> dict[str, Any]:
    return {"process": os.getpid(), "host": socket.gethostname(), "since": since}


def owner_text(owner: Mapping[str, Any]) -> str:
    """Process, host and age of a writer. Another version of fsspeckit may have stored them in another form."""
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner["since"]))
        age = max(0, time.time() - owner["since"])
        return f"process {owner['process']} on {owner['host']}, since {since} ({age:.0f} s ago)"
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "another process"
