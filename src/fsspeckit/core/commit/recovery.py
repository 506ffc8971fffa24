"""Finish, or clear away, what dead writers left.

| in the data set | beside it | what it means | what is done |
|---|---|---|---|
| marker | its journal | a commit is recorded | finished, if every file is as the journal expects; else refused |
| marker | no journal | moved, copied or mounted elsewhere | refused: the journal is where the folder was |
| no marker | journal, nothing of it done | the writer died before it could commit | cleared away |
| no marker | journal, all of it done | the writer died while it cleared up | cleared away |
| no marker | journal, half of it done | of another folder, that was moved away or deleted | left alone, and named |
| no marker | staging without a journal | a writer died, or its folder was moved | cleared away if it is dead |
"""

from __future__ import annotations

import contextlib
import posixpath
import shlex
import warnings
from collections.abc import Sequence

from fsspeckit.core.commit import journal, marker, staging
from fsspeckit.core.commit.apply import ApplyJournal, ConflictError
from fsspeckit.core.commit.shared import HOME, Resolution, has_conflicts
from fsspeckit.core.dataset.listing import listing_errors
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.storage import DiskLocation


def recover_locked(location: DiskLocation, resolution: Resolution | None = None, new: bool = False) -> list[str]:
    """Put in order what dead writers left here, and say what was done. We hold the lock.

    `resolution` is for commits that the data set does not fit: `finish` or `discard` them. `new`: the folder was not
    there before.
    """
    commits, inside = marker.commits_within(location)
    _refuse_neighbours(location, inside)
    folders = list(staging.leftovers(location))
    if not commits and not folders:
        staging.remove_homes(location)
        return []
    try:
        staging.remove_stray_probes(location)
        done = [_finish_or_give_up(location, commit, resolution) for commit in commits]
        left = [folder for folder in folders if location.storage.is_dir(folder)]
        done += [text for folder in left if (text := _clear(location, folder, resolution, new))]
        staging.remove_homes(location)
    except OSError as error:
        raise CommitUnfinishedError(
            f"A dead writer left work for {location.shown} that cannot be finished or removed: {error}. Remove the "
            "cause (it may belong to another user), then run `fsspeckit recover`, or write again. A recorded commit is "
            f"given up by `fsspeckit recover --discard {location.quoted}`.",
            operation="recover",
        ) from error
    return done


def unfinished(location: DiskLocation) -> list[str]:
    """Commits that are recorded and not finished, as paths to show; readers warn of them and change nothing."""
    if not location.storage.is_dir(location.root):
        return []
    with listing_errors(location):
        commits, inside = marker.commits_within(location)
        recorded = [marker.path(location, commit) for commit in commits]
        with contextlib.suppress(PermissionError):  # a writer of another user keeps its staging to itself
            recorded += [folder for folder in staging.leftovers(location) if _is_of_first_form(location, folder)]
        return recorded + marker.commits_above(location) + [location.show(folder) for folder in inside]


def _refuse_neighbours(location: DiskLocation, below: Sequence[str]) -> None:
    """A commit to a data set above or inside this one may be about to change the same files."""
    inside = [location.show(folder) for folder in below]
    for folder in [*marker.commits_above(location), *inside]:
        raise CommitUnfinishedError(
            f"{folder}, a data set {'inside' if folder in inside else 'above'} {location.shown}, has an unfinished "
            f"commit. Run `fsspeckit recover {shlex.quote(folder)}` first; nothing was changed.",
            operation="recover",
        )


def _finish_or_give_up(location: DiskLocation, commit: str, resolution: Resolution | None) -> str:
    """Finish a recorded commit, or give it up."""
    folder = _find_staging(location, commit)
    if folder is None:
        if resolution != "discard":
            raise _without_journal(location, commit)
        marker.remove(location, commit)
        return f"gave up the commit {commit}, whose journal is not here; the files stay as they are"
    with staging.claimed(location, folder) as ours:
        if not ours:
            raise CommitUnfinishedError(
                f"A commit to {location.shown} is recorded, and its writer still lives. Let it finish.",
                operation="recover",
            )
        if resolution == "discard":
            return _give_up(location, folder, commit)
        return _finish(location, folder, commit, resolution)


def _finish(location: DiskLocation, folder: str, commit: str, resolution: Resolution | None) -> str:
    here = journal.inode_of(location)
    steps = ApplyJournal(location, folder, journal.read(location, folder), force=resolution == "finish")
    conflicts = steps.conflicts()
    if conflicts:
        raise has_conflicts(location, conflicts, lost=steps.force)
    try:
        steps.apply(here)
    except ConflictError as error:
        raise has_conflicts(location, [str(error)]) from None
    marker.remove(location, commit)
    staging.discard(location, folder)
    staging.remove_home(location.storage, posixpath.dirname(folder))
    put, gone = len(steps.journal.additions), len(steps.journal.removals)
    return f"finished the commit in {folder}: {put} file(s) put in place, {gone} removed"


def _give_up(location: DiskLocation, folder: str, commit: str) -> str:
    try:
        text = ApplyJournal(location, folder, journal.read(location, folder)).undo()
    except CommitUnfinishedError as error:
        text = f"{error} The files of the data set stay as they are"
    marker.remove(location, commit)
    staging.discard(location, folder)
    staging.remove_home(location.storage, posixpath.dirname(folder))
    return f"gave up the commit in {folder}: {text}"


def _find_staging(location: DiskLocation, commit: str) -> str | None:
    """The staging of a commit: in this data set's own place, or beside it, where it was before a `mv` of the folder."""
    storage, own = location.storage, staging.homes(location)
    beside = [posixpath.join(location.parent, n) for n in storage.names(location.parent) if n.startswith(HOME)]
    folders = [posixpath.join(home, f"{staging.PREFIX}{commit}") for home in [*own, *beside]]
    plain = [f for f in folders if not storage.is_link(posixpath.dirname(f)) and not storage.is_link(f)]
    folder = next((folder for folder in plain if journal.exists(location, folder)), None)
    return None if folder is None or _belongs_to_original(location, folder, commit) else folder


def _belongs_to_original(location: DiskLocation, folder: str, commit: str) -> bool:
    """Is the data set a copy, beside the folder that the journal was written for? That one needs it."""
    if folder.startswith(f"{location.root}/") or not marker.is_beside(location, commit):
        return False
    return not ApplyJournal(location, folder, journal.read(location, folder)).in_its_place


def _without_journal(location: DiskLocation, commit: str) -> CommitUnfinishedError:
    return CommitUnfinishedError(
        f"{location.shown} has the marker of an unfinished commit ({marker.path(location, commit)}), but the journal "
        f"{staging.PREFIX}{commit} is not beside it: the folder was moved, copied or mounted here while the commit was "
        "under resolution, and some of its files may be old, others new. If it was moved, move the folder "
        f"{HOME}<name> from where it was to beside it, and run `fsspeckit recover {location.quoted}`; if it is "
        "mounted, run `fsspeckit recover` where it comes from; if it is a copy, on the original of this copy, and copy "
        f"again; or run `fsspeckit recover --discard {location.quoted}` to take the files as they are. Nothing was "
        "changed.",
        operation="recover",
    )


def _clear(location: DiskLocation, folder: str, resolution: Resolution | None, new: bool) -> str | None:
    """Clear staging away that no commit of this data set needs."""
    with staging.claimed(location, folder) as ours:
        if not ours:  # its writer lives: the data set that it works on was moved away
            return None
        if journal.exists(location, folder) and resolution != "discard":
            steps = ApplyJournal(location, folder, journal.read(location, folder))
            if _is_to_finish(steps, staging.commit_of(folder), resolution, new):
                return _finish(location, folder, staging.commit_of(folder), resolution)
            if steps.journal.is_first_form or not _is_litter(steps):
                warnings.warn(_left_alone(steps), stacklevel=2)
                return None
        staging.discard(location, folder)
        return f"removed the unfinished work in {folder}"


def _is_to_finish(steps: ApplyJournal, commit: str, resolution: Resolution | None, new: bool) -> bool:
    """A journal without a marker is finished if it is of the first form, or half done here and that is asked for."""
    if steps.journal.is_first_form:
        return resolution == "finish" or not new
    return resolution == "finish" and not _is_litter(steps) and not marker.is_beside(steps.location, commit)


def _is_litter(steps: ApplyJournal) -> bool:
    """A journal without a marker: is all of it done, or was it never begun, and written for this very folder?"""
    return steps.is_done or (steps.in_its_place and not steps.is_begun)


def _left_alone(steps: ApplyJournal) -> str:
    location, record = steps.location, steps.journal
    if steps.in_its_place:
        return (
            f"{steps.staging} holds a commit to {location.shown} that is half done, and the data set has no marker of "
            "it: that was removed by hand, or `fsspeckit recover --discard` was interrupted. The commit is left alone. "
            f"Run `fsspeckit recover --discard {location.quoted}` to give it up, or `--finish` to carry it out."
        )
    return (
        f"{steps.staging} holds a commit for another folder than the one that is now {location.shown}: that one was "
        f"{record.root or 'here'} and has been moved or deleted. The commit is left alone. If the folder was moved, "
        f"move {posixpath.dirname(steps.staging)} to beside it, unless they still have one parent, and run `fsspeckit "
        f"recover` on it where it is now; if it was deleted, `fsspeckit recover --discard {location.quoted}` removes "
        "what is left of it."
    )


def _is_of_first_form(location: DiskLocation, folder: str) -> bool:
    try:
        return journal.exists(location, folder) and journal.read(location, folder).is_first_form
    except CommitUnfinishedError:  # it cannot be read, so that it may be one
        return True
