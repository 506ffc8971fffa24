"""Finish or remove what dead writers left on a disk.

| in the data set | beside it | meaning | recovery |
|---|---|---|---|
| marker | its journal | a commit is recorded | is finished if every file is as the journal expects; else refuses |
| marker | no journal | moved, copied or mounted elsewhere | refuses: the journal is where the folder was |
| no marker | journal, not begun | the writer died before the commit point | is removed |
| no marker | journal, all applied | the writer died during its clean-up | is removed |
| no marker | journal, half applied | of another folder, which was moved or deleted | is kept, with a warning |
| no marker | staging without a journal | a writer died, or its folder was moved | is removed if the writer is dead |
"""

from __future__ import annotations

import contextlib
import posixpath
import shlex
import warnings
from collections.abc import Sequence

from fsspeckit.core.commit import journal, staging, undo_records
from fsspeckit.core.commit.apply import ApplyJournal, ConflictError
from fsspeckit.core.commit.shared import HOME, Resolution, has_conflicts
from fsspeckit.core.dataset.listing import listing_errors
from fsspeckit.core.errors import CommitUnfinishedError, os_reason
from fsspeckit.core.storage import DiskLocation


def recover_locked(
    location: DiskLocation, lock_timeout: float, resolution: Resolution | None = None, is_new: bool = False
) -> list[str]:
    """Finish or remove what dead writers left, and return what was done. The caller holds the lock.

    `resolution` applies to commits that conflict with the data set. `is_new`: the caller has just made the folder.
    """
    commits, folders_inside = journal.commits_within(location)
    _refuse_nested(location, folders_inside)
    folders = list(staging.leftovers(location))
    undo_records.remove_incomplete(location)
    if not commits and not folders:
        staging.remove_homes(location)
        return []
    try:
        with _applying(location, lock_timeout):
            staging.remove_stray_probes(location)
            done = [_resolve(location, commit, resolution) for commit in commits]
            rest = [folder for folder in folders if location.storage.is_dir(folder)]
            done += [text for folder in rest if (text := _remove_staging(location, folder, resolution, is_new))]
            staging.remove_homes(location)
    except OSError as error:
        raise CommitUnfinishedError(
            f"A dead writer left work for {location.shown} that cannot be finished or removed: {os_reason(error)}. "
            "Remove the cause (it may belong to another user), then run `fsspeckit recover`, or write again. "
            f"`fsspeckit recover --discard {location.quoted}` gives a recorded commit up.",
            operation="recover",
        ) from error
    return done


def _applying(location: DiskLocation, lock_timeout: float) -> contextlib.AbstractContextManager[object]:
    """Wait for the readers of snapshots, and hold off new ones."""
    locks = location.storage.locks
    return contextlib.nullcontext() if locks is None else locks.applying(location.root, lock_timeout)


def unfinished(location: DiskLocation) -> list[str]:
    """The unfinished commits, as paths to show. Journals of format 1 have no marker."""
    if not location.storage.is_dir(location.root):
        return []
    with listing_errors(location):
        commits, folders_inside = journal.commits_within(location)
        recorded = [journal.marker_path(location, commit) for commit in commits]
        with contextlib.suppress(PermissionError):  # the staging folder of another user's writer is private
            recorded += [folder for folder in staging.leftovers(location) if _may_be_format_1(location, folder)]
        return recorded + journal.commits_above(location) + [location.show(folder) for folder in folders_inside]


def _refuse_nested(location: DiskLocation, folders_inside: Sequence[str]) -> None:
    """A commit to a data set above or inside this one may still change the same files."""
    inside = [location.show(folder) for folder in folders_inside]
    for folder in [*journal.commits_above(location), *inside]:
        raise CommitUnfinishedError(
            f"{folder}, a data set {'inside' if folder in inside else 'above'} {location.shown}, has an unfinished "
            f"commit. Run `fsspeckit recover {shlex.quote(folder)}` first; nothing was changed.",
            operation="recover",
        )


def _resolve(location: DiskLocation, commit: str, resolution: Resolution | None) -> str:
    """Finish a recorded commit, or give it up."""
    folder = _find_staging(location, commit)
    if folder is None:
        if resolution != "discard":
            raise _journal_missing(location, commit)
        journal.remove_marker(location, commit)
        return f"gave up the commit {commit}, whose journal is not here; the files stay as they are"
    with staging.claimed(location, folder) as is_claimed:
        if not is_claimed:
            raise CommitUnfinishedError(
                f"A commit to {location.shown} is recorded, and its writer is still running. Let it finish.",
                operation="recover",
            )
        if resolution != "discard":
            return _finish(location, folder, resolution)
        try:
            text = ApplyJournal(location, folder, journal.read(location, folder)).undo()
        except CommitUnfinishedError as error:
            text = f"{error} The files of the data set stay as they are"
        _end_commit(location, folder)
        return f"gave up the commit in {folder}: {text}"


def _finish(location: DiskLocation, folder: str, resolution: Resolution | None) -> str:
    inode = journal.inode_of(location)
    applier = ApplyJournal(location, folder, journal.read(location, folder), force=resolution == "finish")
    conflicts = applier.conflicts()
    if conflicts:
        raise has_conflicts(location, conflicts, can_finish=not applier.force)
    try:
        applier.apply(inode)
    except ConflictError as error:
        raise has_conflicts(location, [str(error)]) from None
    undo_records.publish(location, folder)
    _end_commit(location, folder)
    added, removed = len(applier.journal.additions), len(applier.journal.removals)
    return f"finished the commit in {folder}: {added} file(s) put in place, {removed} removed"


def _end_commit(location: DiskLocation, folder: str) -> None:
    """Remove the marker first: without its journal it would be an error."""
    journal.remove_marker(location, staging.commit_of(folder))
    staging.discard(location, folder)
    staging.remove_home(location.storage, posixpath.dirname(folder))


def _find_staging(location: DiskLocation, commit: str) -> str | None:
    """The staging folder of a commit. If the data set was renamed, it has the old name, beside the data set."""
    storage, homes = location.storage, staging.homes(location)
    homes += [posixpath.join(location.parent, n) for n in storage.names(location.parent) if n.startswith(HOME)]
    for home in homes:
        folder = posixpath.join(home, f"{staging.PREFIX}{commit}")
        if not storage.is_link(home) and not storage.is_link(folder) and journal.exists(location, folder):
            return None if _belongs_to_original(location, folder, commit) else folder
    return None


def _belongs_to_original(location: DiskLocation, folder: str, commit: str) -> bool:
    """Is the data set a copy, beside the folder that the journal was written for and that still needs it?"""
    if folder.startswith(f"{location.root}/") or not journal.sibling_has_marker(location, commit):
        return False
    return not ApplyJournal(location, folder, journal.read(location, folder)).is_original_folder


def _journal_missing(location: DiskLocation, commit: str) -> CommitUnfinishedError:
    return CommitUnfinishedError(
        f"{location.shown} has the marker of an unfinished commit ({journal.marker_path(location, commit)}), but the "
        f"journal {staging.PREFIX}{commit} is not beside it: the folder was moved, copied or mounted here during the "
        "commit, and some of its files may be old, others new. If it was moved, move the folder "
        f"{HOME}<name> from where it was to beside it, and run `fsspeckit recover {location.quoted}`; if it is "
        "mounted, run `fsspeckit recover` where it comes from; if it is a copy, on the original of this copy, and copy "
        f"again; or run `fsspeckit recover --discard {location.quoted}` to take the files as they are. Nothing was "
        "changed.",
        operation="recover",
    )


def _remove_staging(location: DiskLocation, folder: str, resolution: Resolution | None, is_new: bool) -> str | None:
    """Remove a staging folder that no recorded commit of this data set needs."""
    with staging.claimed(location, folder) as is_claimed:
        if not is_claimed:  # its writer is running: the data set that it writes to was moved
            return None
        if journal.exists(location, folder) and resolution != "discard":
            applier = ApplyJournal(location, folder, journal.read(location, folder))
            if _is_to_finish(applier, resolution, is_new):
                return _finish(location, folder, resolution)
            if applier.journal.is_format_1 or not _is_removable(applier):
                warnings.warn(_kept_warning(applier), stacklevel=2)
                return None
        staging.discard(location, folder)
        return f"removed the unfinished work in {folder}"


def _is_to_finish(applier: ApplyJournal, resolution: Resolution | None, is_new: bool) -> bool:
    """Finish a journal without a marker if it has format 1, or if it is half applied here and the user asks for it."""
    if applier.journal.is_format_1:
        return resolution == "finish" or not is_new
    commit = staging.commit_of(applier.staging)
    is_half_applied = resolution == "finish" and not _is_removable(applier)
    return is_half_applied and not journal.sibling_has_marker(applier.location, commit)


def _is_removable(applier: ApplyJournal) -> bool:
    """Is a journal without a marker completely applied, or written for this very folder and not begun?"""
    return applier.is_done or (applier.is_original_folder and not applier.is_begun)


def _kept_warning(applier: ApplyJournal) -> str:
    location = applier.location
    if applier.is_original_folder:
        return (
            f"{applier.staging} has a commit to {location.shown} that is half done, and the data set has no marker of "
            "it: the marker was removed by hand, or `fsspeckit recover --discard` was interrupted. The commit was not "
            f"changed. Run `fsspeckit recover --discard {location.quoted}` to give it up, or `--finish` to apply it."
        )
    return (
        f"{applier.staging} has a commit for another folder than the one that is now {location.shown}: that folder was "
        f"{applier.journal.root or 'here'} and has been moved or deleted. The commit was not changed. If the folder "
        f"was moved, move {posixpath.dirname(applier.staging)} to the same parent, unless it is there already, and run "
        f"`fsspeckit recover` on it where it is now; if it was deleted, `fsspeckit recover --discard {location.quoted}`"
        " removes its remains."
    )


def _may_be_format_1(location: DiskLocation, folder: str) -> bool:
    try:
        return journal.exists(location, folder) and journal.read(location, folder).is_format_1
    except CommitUnfinishedError:  # it cannot be read, or a running writer has just removed it
        return journal.exists(location, folder)
