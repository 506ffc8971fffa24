"""The session in object stores: a lease on the head object, uploads to final keys, one compare-and-swap as the commit.

1. See what dead sessions left, **then** read the head. Committed: carry that out and begin again. Leased: wait until
   it has not been renewed for the lease's time, on our own clock. Else take it, and clear away what was seen before.
2. New files are uploads to their final, unused names: nobody sees them. The lease is renewed meanwhile.
3. List once more; then the head is swapped from our lease to the journal. That is the commit.
4. Complete the uploads, and look at what came of them; swap the head to say that old files go; remove them; free the
   head. Anyone can do this (`finish`), and until that swap anyone can give the commit up by another one.

A session that lost its lease can neither commit nor harm: its swap is refused, and it only gives up uploads of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fsspeckit.core.commit.finish import Finisher, Leftovers
from fsspeckit.core.commit.head import (
    Addition,
    Journal,
    Removal,
    Seen,
    head_key,
    home_of,
    is_of_a_plan,
    new_plan_folder,
    read_head,
)
from fsspeckit.core.commit.lease import Lease, Runtime
from fsspeckit.core.commit.place import check_place, refuse_inner_heads
from fsspeckit.core.commit.shared import Resolution, check_unchanged, not_finished, owner_text
from fsspeckit.core.dataset.listing import SUMMARY_FILES, listing_errors
from fsspeckit.core.errors import (
    CommitUnfinishedError,
    DatasetLockedError,
    DatasetMergeError,
    FsspeckitError,
    StorageError,
)
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import StoreLocation
from fsspeckit.core.storage.base import locked
from fsspeckit.core.storage.objects import Upload

RUNTIME = Runtime()
# How long a reader waits for a commit that is being carried out before it warns.
_PATIENCE = (0.1, 0.2, 0.4, 0.8)
_POLL = 0.25
# After so many commits of others that were carried out on the resolution in, patience counts.
_MANY = 3


@contextlib.contextmanager
def writing(location: StoreLocation, lock_timeout: float = 60, runtime: Runtime = RUNTIME) -> Iterator[StoreSession]:
    with lock_probe(location):
        check_place(location)
        lease, _ = _Entry(location, runtime).acquire(lock_timeout)
    with contextlib.closing(StoreSession(location, lease)) as session:
        lease.start()
        try:
            yield session
        except Exception as error:
            if not session.is_recorded and not lease.is_held():  # a loser may have seen files come and go
                raise _taken_over(location) from error
            if isinstance(error, OSError) and not isinstance(error, FsspeckitError):
                message = f"Cannot write to {location.shown}: {error}. Nothing was changed."
                raise StorageError(message, error, operation="stage") from error
            raise


def recover(
    location: StoreLocation, lock_timeout: float = 60, resolution: Resolution | None = None, runtime: Runtime = RUNTIME
) -> list[str]:
    with lock_probe(location):
        objects = location.storage.objects
        home = home_of(location.root)
        entries = [e for e in objects.list_all(home) if e.key != home and not is_of_a_plan(location.root, e.key)]
        seen = read_head(objects, head_key(location.root)) if entries else None
        if not entries or (len(entries) == 1 and seen is not None and seen.head.state == "free"):
            return []
        lease, text = _Entry(location, runtime).acquire(lock_timeout, resolution)
        lease.stop()
        lease.change("free")
    return text


def unfinished(location: StoreLocation) -> list[str]:
    """A commit in the course of being carried out is waited for, for a moment."""
    with listing_errors(location):
        try:
            seen = read_head(location.storage.objects, head_key(location.root))
            for pause in _PATIENCE:
                if seen is None or seen.head.journal is None:
                    return []
                RUNTIME.sleep(pause)
                seen = read_head(location.storage.objects, head_key(location.root))
        except PermissionError:  # those who may only read the data set
            return []
    return [f"{location.storage.objects.place}/{head_key(location.root)}"] if seen and seen.head.journal else []


@contextlib.contextmanager
def lock_probe(location: StoreLocation) -> Iterator[None]:
    try:
        yield
    except FsspeckitError:
        raise
    except OSError as error:
        message = f"Cannot lock {location.shown}: {error}. Nothing was begun."
        raise StorageError(message, error, operation="lock") from error


def _taken_over(location: StoreLocation) -> DatasetLockedError:
    return DatasetLockedError(
        f"Another writer took {location.shown} over: this one was silent for longer than its lease. Nothing of it was "
        "committed; merge again, with a longer lease (storage option lease, in seconds) if it happens again.",
        operation="commit",
    )


def _without_head(location: StoreLocation, left: Leftovers) -> CommitUnfinishedError:
    """Sessions begin to write when the head is theirs; so there was one."""
    return CommitUnfinishedError(
        f"The state of {location.shown} is unknown: writers left work beside it ({left.intents[0]}), but their head "
        f"object {head_key(location.root)} was deleted. A commit of theirs may be half done, with rows missing or "
        f"standing twice. Look at the newest files; then run `fsspeckit recover --discard {location.quoted}` to clear "
        "that work away and take the files as they are. Nothing was changed.",
        operation="recover",
    )


@dataclass
class _Entry:
    """The resolution into a data set: past others' leases and unfinished commits."""

    location: StoreLocation
    runtime: Runtime
    text: list[str] = field(default_factory=list)
    _seen_since: tuple[str, float] = ("", 0.0)

    def acquire(self, timeout: float, resolution: Resolution | None = None) -> tuple[Lease, list[str]]:
        deadline = self.runtime.monotonic() + timeout
        options = self.location.storage.lease_options
        lease = Lease(
            self.location.storage.objects, head_key(self.location.root), self.runtime.token(), *options, self.runtime
        )
        finisher = Finisher(self.location, lease.objects, self.runtime)
        while True:
            left = finisher.survey()  # before the head is read: what comes later may be a living session's
            seen = read_head(lease.objects, lease.key)
            if seen is not None and seen.head.journal is not None:
                may_wait = resolution == "discard" and seen.head.state == "committed"
                if may_wait and not self._has_run_out(seen):  # its writer may be about to carry it out
                    self._wait(seen, deadline, timeout)
                    continue
                self.text.append(self._finish_commit(finisher, seen, resolution))
                if len(self.text) > _MANY:
                    self._check(seen, deadline, timeout)
                continue
            if seen is not None and seen.head.state == "leased" and not self._has_run_out(seen):
                self._wait(seen, deadline, timeout)
                continue
            if seen is None:  # later ones are refused by this head, once it is there
                refuse_inner_heads(self.location)
                if left.intents and resolution != "discard":
                    raise _without_head(self.location, left)
            lease.etag = seen.etag if seen is not None else None
            lease.given_up = seen.head.given_up if seen is not None else ()
            lease.origin = seen.head.origin if seen is not None else self.runtime.token()
            if lease.change("leased") == "ours":
                self._clear(finisher, left)
                return lease, self.text
            self._check(seen, deadline, timeout)

    def _finish_commit(self, finisher: Finisher, seen: Seen, resolution: Resolution | None) -> str:
        try:
            return finisher.finish_commit(seen, resolution).text
        except OSError as error:
            raise CommitUnfinishedError(
                f"A commit to {self.location.shown} is recorded, and could not be "
                f"{'given up' if resolution == 'discard' else 'finished'}: {error}. Remove the cause and run "
                f"`fsspeckit recover {self.location.quoted}`.",
                operation="recover",
            ) from error

    def _has_run_out(self, seen: Seen) -> bool:
        """Has the head been the same for the time of its lease, since we saw it first?"""
        now = self.runtime.monotonic()
        if self._seen_since[0] != seen.etag:
            self._seen_since = seen.etag, now
        return now - self._seen_since[1] >= seen.head.lease

    def _wait(self, seen: Seen, deadline: float, timeout: float) -> None:
        """Until the head has changed, or its lease has run out."""
        objects, key = self.location.storage.objects, head_key(self.location.root)
        there: Seen | None = seen
        while there is not None and there.etag == seen.etag and not self._has_run_out(seen):
            self._check(there, deadline, timeout)
            self.runtime.sleep(min(_POLL, max(0.01, seen.head.lease / 20)))
            there = read_head(objects, key)

    def _check(self, seen: Seen | None, deadline: float, timeout: float) -> None:
        if self.runtime.monotonic() >= deadline:
            raise locked(self.location.shown, timeout, owner_text(seen.head.owner if seen is not None else {}))

    def _clear(self, finisher: Finisher, left: Leftovers) -> None:
        finisher.clear(left)
        if left.keys:
            self.text.append(
                f"removed the unfinished work beside {self.location.shown}: {len(left.uploads)} upload(s) given up"
            )


@dataclass
class StoreSession:
    """A writer that holds the lease."""

    location: StoreLocation
    lease: Lease
    _process: int = field(default_factory=os.getpid)
    _is_staging: bool = False
    _state: Literal["open", "recording", "recorded", "done"] = "open"

    def __post_init__(self) -> None:
        """From the first moment: copies of the storage may be sent to executors before anything is staged."""
        self.location.storage.stage(self._staging, self.location.root)

    @property
    def is_recorded(self) -> bool:
        return self._state != "open"

    @property
    def _staging(self) -> str:
        return f"{home_of(self.location.root)}/{self.lease.session}"

    @property
    def _finisher(self) -> Finisher:
        return Finisher(self.location, self.lease.objects, self.lease.runtime)

    def stage(self, folders: Sequence[str]) -> str:
        if os.getpid() != self._process:
            raise DatasetMergeError("A forked child cannot commit its parent's merge.", operation="commit")
        if self.lease.is_lost:
            raise _taken_over(self.location)
        self._is_staging = True
        return self._staging

    def sync_staging(self) -> None:
        """Uploads are durable already."""

    def commit(self, staged: Sequence[Staged], removed: Sequence[FileInfo], expected: Sequence[FileInfo]) -> None:
        if not staged and not removed:
            return
        self.stage(())
        with self.location.storage.look(self.location.root):
            check_unchanged(self.location, expected)
            refuse_inner_heads(self.location)
            summaries = [f for f in self.location.storage.walk(self.location.root) if f.path in SUMMARY_FILES]
        journal = self._journal(staged, [*removed, *summaries], expected)
        self.lease.stop()
        self._record(journal)

    def _journal(self, staged: Sequence[Staged], removed: Sequence[FileInfo], expected: Sequence[FileInfo]) -> Journal:
        known = {f.path for f in expected}
        try:
            if not known.isdisjoint(s.path for s in staged):
                raise ValueError("in an object store a new file cannot take the name of an old one")
            additions = tuple(Addition.of(self.location, self._with_receipt(s)) for s in staged)
            journal = Journal(additions, tuple(Removal(f.path, f.etag) for f in removed))
            journal.check()
        except ValueError as error:
            raise DatasetMergeError(
                f"Cannot commit to {self.location.shown}: {error}. Nothing was changed.", operation="commit"
            ) from None
        return journal

    def _with_receipt(self, staged: Staged) -> Staged:
        receipt = staged.receipt or self.location.storage.receipt(f"{self._staging}/{staged.staged}")
        if receipt is None:
            raise ValueError(f"{staged.path!r} was not uploaded by this session")
        return Staged(staged.staged, staged.path, staged.rows, staged.size, staged.replaces, receipt)

    def _record(self, journal: Journal) -> None:
        """The commit point, and what comes after it: every error says that the commit is, or may be, recorded."""
        self._state = "recording"
        try:
            outcome = self.lease.change("committed", journal)
        except OSError:
            outcome = "doubtful"
        if outcome == "doubtful":
            outcome = self._resolve(journal)
        if outcome == "lost":
            self._state = "open"
            raise _taken_over(self.location)
        self._state = "recorded"
        self._apply()
        self._state = "done"

    def _resolve(self, journal: Journal) -> Literal["committed"]:
        """No answer came to the commit. If the lease can be given back, it is not recorded and never will be."""
        try:
            outcome = self.lease.change("free")
            if outcome == "ours":
                self._state = "open"
                raise StorageError(
                    f"Cannot commit to {self.location.shown}: the store did not answer. Nothing was changed.",
                    operation="commit",
                )
            if outcome == "committed" or any(self._finisher.is_placed(a) for a in journal.additions):
                return "committed"  # it may have been carried out by others
        except FsspeckitError:
            raise
        except OSError as error:
            raise self._unknown(str(error)) from error
        raise self._unknown("another writer has come since")

    def _unknown(self, why: str) -> CommitUnfinishedError:
        return CommitUnfinishedError(
            f"Whether the commit to {self.location.shown} is recorded cannot be told: {why}. Run `fsspeckit recover "
            f"{self.location.quoted}`, and look for its rows before you repeat it.",
            operation="commit",
        )

    def _apply(self) -> None:
        try:
            self._finish()
        except OSError as error:
            raise not_finished(self.location, error) from error
        except (KeyboardInterrupt, SystemExit):
            with contextlib.suppress(OSError, FsspeckitError):  # the next writer will say so
                self._finish()
            raise

    def _finish(self) -> None:
        seen, finisher = read_head(self.lease.objects, self.lease.key), self._finisher
        if seen is None or seen.head.origin != self.lease.origin:
            raise finisher.no_head(self.lease.session)
        is_ours = seen.head.session == self.lease.session and seen.head.journal is not None
        if finisher.finish_commit(seen).given_up if is_ours else self.lease.session in seen.head.given_up:
            raise DatasetMergeError(
                f"The commit to {self.location.shown} was given up meanwhile by `fsspeckit recover --discard`. None of "
                "its rows are there.",
                operation="commit",
            )

    def close(self) -> None:
        """Leave nothing of ours, unless a commit still has to be finished. What cannot be removed now is litter."""
        if os.getpid() != self._process:
            return
        self.lease.stop()
        begun = self.location.storage.end_staging(self._staging)
        with contextlib.suppress(OSError):
            if self._state == "open":
                self._give_up(begun)

    def _give_up(self, begun: Sequence[Upload]) -> None:
        """Uploads of this session only: it has not committed. Those of its executors are found by their intents."""
        try:
            if self._is_staging:
                self._finisher.clear(Leftovers((), tuple(begun)))
                self._finisher.clear(self._finisher.survey(self.lease.session))
        finally:  # whoever may not list uploads is not to keep others waiting
            self.lease.change("free")


def plan_folder(location: StoreLocation) -> str | None:
    return new_plan_folder(location.root)
