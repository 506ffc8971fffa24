"""What both commit protocols need: checks before a commit, the texts of its errors, and who holds a data set."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fsspeckit.core.dataset.listing import SUMMARY_FILES, is_data_file, is_utf8, list_files
from fsspeckit.core.errors import CommitUnfinishedError, TargetChangedError, TargetError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage import Location

HOME = ".fsspeckit-"
"""The folder of a data set's commits is beside it, named after it. No reader takes it for data."""

Resolution = Literal["finish", "discard"]
"""What to do with a recorded commit that the data set does not fit: finish it all the same, or give it up."""


def home_beside(location: Location) -> str:
    return posixpath.join(location.parent, f"{HOME}{location.name}")


def check_unchanged(location: Location, expected: Sequence[FileInfo]) -> None:
    """Refuse if a data file appeared, vanished or changed since `expected` was listed."""
    before, now = ({f.path: f for f in files} for files in (expected, list_files(location)))
    changed = sorted(p for p in before.keys() | now.keys() if not _same(before.get(p), now.get(p)))
    if changed:
        what = "; ".join(f"{location.show(p)} {_change(before.get(p), now.get(p))}" for p in changed[:5])
        raise TargetChangedError(
            f"The target changed while the merge was under way: {what}. Another program writes here without our lock; "
            "nothing was changed, try again when it is done.",
            operation="commit",
        )


def _same(before: FileInfo | None, now: FileInfo | None) -> bool:
    return before is not None and now is not None and before.same_as(now)


def _change(before: FileInfo | None, now: FileInfo | None) -> str:
    if before is None:
        return "is new"
    return "is gone" if now is None else "was changed"


def refuse_pattern(location: Location) -> None:
    """Refuse a name with `*` or `?` that does not exist and matches folders that do."""
    if not any(c in location.name for c in "*?") or location.storage.is_dir(location.root):
        return
    if fnmatch.filter(location.storage.names(location.parent), location.name):
        raise TargetError(f"{location.shown} does not exist, but is a pattern. Name the data set's own folder.")


def check_data_path(path: str) -> None:
    check_inside(path)
    if not is_data_file(posixpath.basename(path)) and path not in SUMMARY_FILES:
        raise ValueError(f"{path!r} is not a data file")


def check_inside(path: str) -> None:
    if {"", ".", ".."} & set(path.split("/")) or "\0" in path or not is_utf8(path):
        raise ValueError(f"{path!r} is not a path inside the data set")


def check_file_name(name: str) -> None:
    if name in ("", ".", "..") or {"/", "\0"} & set(name) or not is_utf8(name):
        raise ValueError(f"{name!r} is not a file name")


def not_finished(location: Location, error: OSError) -> CommitUnfinishedError:
    """The error of a writer whose commit is recorded, when the rest of it fails."""
    return CommitUnfinishedError(
        f"The commit to {location.shown} is recorded; do not repeat it. It could not be finished: {error}. Remove the "
        f"cause and run `fsspeckit recover {location.quoted}`; the next write finishes it too. If the cause cannot be "
        f"removed, `fsspeckit recover --discard {location.quoted}` gives the commit up.",
        operation="commit",
    )


def has_conflicts(location: Location, conflicts: list[str], lost: bool = False) -> CommitUnfinishedError:
    """`lost`: not even `--finish` can help, for staged files are gone."""
    more = f"; and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
    finish = f"`fsspeckit recover --finish {location.quoted}` to carry the commit out all the same, or "
    return CommitUnfinishedError(
        f"A commit to {location.shown} is recorded, but the data set is no longer as the commit expects it. "
        f"{'; '.join(conflicts[:5])}{more}. What is there was not overwritten. Look at these files, then run "
        f"{'' if lost else finish}`fsspeckit recover --discard {location.quoted}` to give it up.",
        operation="recover",
    )


def this_process(since: float) -> dict[str, Any]:
    return {"process": os.getpid(), "host": socket.gethostname(), "since": since}


def owner_text(owner: Mapping[str, Any]) -> str:
    """Process, host and age of an owner; another version may have written them in another form."""
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner["since"]))
        age = max(0, time.time() - owner["since"])
        return f"process {owner['process']} on {owner['host']}, since {since} ({age:.0f} s ago)"
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "another process"
