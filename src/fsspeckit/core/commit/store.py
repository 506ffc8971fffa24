"""The session in object stores: a lease on the head object, uploads to final keys, one compare-and-swap as the commit.

1. List what dead sessions left, **then** read the head. If it has a commit, finish that and begin again. If it is
   leased, wait until the lease was not renewed for its duration, on our own clock. Otherwise take the lease, and remove
   what was listed.
2. Write new files as uploads to their final, unused names. Readers do not see them. The lease is renewed meanwhile.
3. List once more, then swap the head from the lease to the journal. This is the commit point.
4. Complete the uploads and check the new objects, swap the head to `removing`, remove old files, free the head. Anyone
   can do this (`finish`). Until the swap to `removing`, anyone can give the commit up by a swap to `discarding`.

A session that lost its lease cannot commit: its swap is refused. It only aborts its own uploads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from fsspeckit.core.commit import store_undo
from fsspeckit.core.commit.finish import Finisher, Leftovers
from fsspeckit.core.commit.head import (
    Addition,
    HeadVersion,
    Journal,
    Removal,
    check_location,
    head_key,
    is_of_a_plan,
    new_plan_folder,
    read_head,
    reading,
    refuse_nested_heads,
    unfinished,
)
from fsspeckit.core.commit.lease import Lease, Runtime
from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.shared import (
    CommitNote,
    Resolution,
    Waiting,
    check_data_paths,
    check_not_forked,
    check_unchanged,
    home_of,
    ignore_waiting,
    not_finished,
    owner_text,
    storage_errors,
)
from fsspeckit.core.commit.store_undo import records
from fsspeckit.core.dataset.listing import SUMMARY_FILES
from fsspeckit.core.errors import (
    CommitUnfinishedError,
    DatasetLockedError,
    DatasetMergeError,
    FsspeckitError,
    StorageError,
    os_reason,
)
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import StoreLocation
from fsspeckit.core.storage.base import locked
from fsspeckit.core.storage.objects import Upload
from fsspeckit.core.storage.store import upload_of

__all__ = ["plan_folder", "reading", "records", "recover", "unfinished", "writing"]

RUNTIME = Runtime()
_POLL_SECONDS = 0.25
# After this many finished commits of other writers, the lock timeout applies.
_MAX_FINISHED = 3


@contextlib.contextmanager
def writing(
    location: StoreLocation, lock_timeout: float = 60, runtime: Runtime = RUNTIME, *, waiting: Waiting = ignore_waiting
) -> Iterator[StoreSession]:
    with _lock_errors(location):
        check_location(location)
        lease = _Acquisition(location, runtime, waiting).acquire(lock_timeout)
    with contextlib.closing(StoreSession(location, lease)) as session:
        lease.start()
        try:
            with storage_errors(f"Cannot write to {location.shown}", "stage"):
                yield session
        except Exception as error:
            if not session.is_recorded and not lease.is_held():  # the error may come from files of the next writer
                raise _lease_lost(location) from error
            raise


def recover(
    location: StoreLocation, lock_timeout: float = 60, resolution: Resolution | None = None, runtime: Runtime = RUNTIME
) -> list[str]:
    with _lock_errors(location):
        objects = location.storage.objects
        home = home_of(location.root)
        entries = [e for e in objects.list_all(home) if e.key != home and not is_of_a_plan(location.root, e.key)]
        version = read_head(objects, head_key(location.root)) if entries else None
        if not entries or (len(entries) == 1 and version is not None and version.head.state == "free"):
            return []
        acquisition = _Acquisition(location, runtime)
        lease = acquisition.acquire(lock_timeout, resolution)
        lease.stop()
        lease.change("free")
    return acquisition.done


def plan_folder(location: StoreLocation) -> str | None:
    return new_plan_folder(location.root)


def _lock_errors(location: StoreLocation) -> contextlib.AbstractContextManager[None]:
    return storage_errors(f"Cannot lock {location.shown}", "lock", outcome="Nothing was started.")


def _lease_lost(location: StoreLocation) -> DatasetLockedError:
    return DatasetLockedError(
        f"Another writer took over {location.shown}: this one did not renew its lease in time. It committed nothing; "
        "merge again, with a longer lease (storage option lease, in seconds) if it happens again.",
        operation="commit",
    )


@dataclass
class _Acquisition:
    """Acquires the lease of a data set: waits for other leases, and finishes commits of others first."""

    location: StoreLocation
    runtime: Runtime
    waiting: Waiting = ignore_waiting
    done: list[str] = field(default_factory=list)
    _unchanged_since: tuple[str, float] = ("", 0.0)

    def acquire(self, timeout: float, resolution: Resolution | None = None) -> Lease:
        deadline = self.runtime.monotonic() + timeout
        storage = self.location.storage
        key, session = head_key(self.location.root), self.runtime.token()
        lease = Lease(storage.objects, key, session, *storage.lease_options, self.runtime)
        finisher = Finisher(self.location, lease.objects, self.runtime)
        while True:
            leftovers = finisher.leftovers()  # before the head is read: later ones may belong to a running session
            version = read_head(lease.objects, lease.key)
            if version is not None and version.head.journal is not None:
                may_wait = resolution == "discard" and version.head.state == "committed"
                if may_wait and not self._has_expired(version):  # its writer may be about to finish it
                    self._wait(version, deadline, timeout)
                    continue
                self.done.append(self._finish_commit(finisher, version, resolution))
                if len(self.done) > _MAX_FINISHED:
                    self._check_deadline(version, deadline, timeout)
                continue
            if version is not None and version.head.state == "leased" and not self._has_expired(version):
                self._wait(version, deadline, timeout)
                continue
            if version is None:  # once this head exists, data sets inside this one are refused
                refuse_nested_heads(self.location)
                if leftovers.intents and resolution != "discard":
                    raise self._head_deleted(leftovers)
            lease.etag = version.etag if version is not None else None
            lease.given_up = version.head.given_up if version is not None else ()
            lease.origin = version.head.origin if version is not None else self.runtime.token()
            lease.last_commit = version.head.commit if version is not None else ""
            if lease.change("leased") == "written":
                self._remove(finisher, leftovers)
                return lease
            self._check_deadline(version, deadline, timeout)

    def _finish_commit(self, finisher: Finisher, version: HeadVersion, resolution: Resolution | None) -> str:
        try:
            return finisher.finish_commit(version, resolution).text
        except OSError as error:
            raise CommitUnfinishedError(
                f"A commit to {self.location.shown} is recorded, and could not be "
                f"{'given up' if resolution == 'discard' else 'finished'}: {os_reason(error)}. Remove the cause and "
                f"run `fsspeckit recover {self.location.quoted}`.",
                operation="recover",
            ) from error

    def _has_expired(self, version: HeadVersion) -> bool:
        """Has the head not changed for the duration of its lease, since this process first saw it?"""
        now = self.runtime.monotonic()
        if self._unchanged_since[0] != version.etag:
            self._unchanged_since = version.etag, now
        return now - self._unchanged_since[1] >= version.head.lease

    def _wait(self, version: HeadVersion, deadline: float, timeout: float) -> None:
        """Wait until the head has changed or its lease has expired."""
        current: HeadVersion | None = version
        while current is not None and current.etag == version.etag and not self._has_expired(version):
            self._check_deadline(current, deadline, timeout)
            self.waiting(partial(owner_text, current.head.owner))
            self.runtime.sleep(min(_POLL_SECONDS, max(0.01, version.head.lease / 20)))
            current = read_head(self.location.storage.objects, head_key(self.location.root))

    def _check_deadline(self, version: HeadVersion | None, deadline: float, timeout: float) -> None:
        if self.runtime.monotonic() >= deadline:
            raise locked(self.location.shown, timeout, owner_text(version.head.owner if version is not None else {}))

    def _head_deleted(self, leftovers: Leftovers) -> CommitUnfinishedError:
        """Sessions write only after they took the lease. So there was a head."""
        return CommitUnfinishedError(
            f"The state of {self.location.shown} is unknown: writers left work beside it ({leftovers.intents[0]}), but "
            f"their head object {head_key(self.location.root)} was deleted. A commit of theirs may be half done, with "
            "rows missing or doubled. Look at the newest files; then run `fsspeckit recover --discard "
            f"{self.location.quoted}` to remove that work and take the files as they are. Nothing was changed.",
            operation="recover",
        )

    def _remove(self, finisher: Finisher, leftovers: Leftovers) -> None:
        finisher.remove_dead(leftovers)
        if leftovers.keys:
            self.done.append(
                f"removed the unfinished work beside {self.location.shown}: {len(leftovers.uploads)} upload(s) given up"
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
        """Copies of the storage may be sent to executors before anything is staged."""
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
        check_not_forked(self._process)
        if self.lease.is_lost:
            raise _lease_lost(self.location)
        self._is_staging = True
        return self._staging

    def sync_staging(self) -> None:
        """Uploads are durable already."""

    def commit(
        self,
        staged: Sequence[Staged],
        removed: Sequence[FileInfo],
        expected: Sequence[FileInfo],
        keep: CommitNote | None = None,
        undoes: Record | None = None,
    ) -> None:
        if not staged and not removed:
            return
        self.stage(())
        with self.location.storage.one_listing(self.location.root):
            check_unchanged(self.location, expected)
            refuse_nested_heads(self.location)
            summaries = [f for f in self.location.storage.walk(self.location.root) if f.path in SUMMARY_FILES]
        journal = self._journal(staged, [*removed, *summaries], expected)
        if keep is not None:
            journal = replace(journal, keeps=True)
            store_undo.keep(self.location, self.lease.session, journal, expected, keep, self._finisher.map)
        if undoes is not None:
            journal = replace(journal, undoes=undoes.commit)
            store_undo.mark_undone(self.location, self.lease.session, undoes, staged)
        self.lease.stop()
        self._record(journal)

    def records(self) -> list[Record]:
        return records(self.location)

    def put_back(self, record: Record) -> list[Staged]:
        return store_undo.put_back(self.location, self.stage(()), record)

    def drop(self, records: Sequence[Record]) -> None:
        store_undo.drop(self.location, records)

    def _journal(self, staged: Sequence[Staged], removed: Sequence[FileInfo], expected: Sequence[FileInfo]) -> Journal:
        try:
            if not {f.path for f in expected}.isdisjoint(s.path for s in staged):
                raise ValueError("in an object store a new file cannot take the name of an old one")
            additions = tuple(map(self._addition, staged))
            journal = Journal(additions, tuple(Removal(f.path, f.etag) for f in removed))
            check_data_paths(journal.paths)
        except ValueError as error:
            message = f"Cannot commit to {self.location.shown}: {error}. Nothing was changed."
            raise DatasetMergeError(message, operation="commit") from None
        return journal

    def _addition(self, staged: Staged) -> Addition:
        receipt = staged.receipt or self.location.storage.receipt(f"{self._staging}/{staged.staged}")
        if receipt is None:
            raise ValueError(f"{staged.path!r} was not uploaded by this session")
        upload = upload_of(receipt)
        if upload.key != self.location.at(staged.path):
            raise ValueError(f"{staged.path!r} was uploaded as {upload.key!r}")
        return Addition(staged.path, upload.upload_id, upload.parts, upload.size, upload.etag)

    def _record(self, journal: Journal) -> None:
        """Record the commit and apply it. From here on every error says that the commit is, or may be, recorded."""
        self._state = "recording"
        try:
            outcome = self.lease.change("committed", journal)
        except OSError:
            outcome = "unknown"
        if outcome == "unknown":
            outcome = self._resolve_unknown(journal)
        if outcome == "lost":
            self._state = "open"
            raise _lease_lost(self.location)
        self._state = "recorded"
        self._apply()
        self._state = "done"

    def _resolve_unknown(self, journal: Journal) -> Literal["committed"]:
        """The answer to the commit was lost. If the lease can be given back, it is not recorded and never will be."""
        try:
            outcome = self.lease.change("free")
            if outcome == "written":
                self._state = "open"
                raise StorageError(
                    f"Cannot commit to {self.location.shown}: the store did not answer. Nothing was changed.",
                    operation="commit",
                )
            if outcome == "committed" or any(self._finisher.is_placed(a) for a in journal.additions):
                return "committed"  # another process may have finished it
        except FsspeckitError:
            raise
        except OSError as error:
            raise self._commit_unknown(str(error)) from error
        raise self._commit_unknown("another writer has started since")

    def _commit_unknown(self, cause: str) -> CommitUnfinishedError:
        return CommitUnfinishedError(
            f"It is unknown whether the commit to {self.location.shown} is recorded: {cause}. Run `fsspeckit recover "
            f"{self.location.quoted}`, and look for its rows before you repeat it.",
            operation="commit",
        )

    def _apply(self) -> None:
        try:
            self._finish()
        except OSError as error:
            raise not_finished(self.location, error) from error
        except (KeyboardInterrupt, SystemExit):
            with contextlib.suppress(OSError, FsspeckitError):  # the next writer will report it
                self._finish()
            raise

    def _finish(self) -> None:
        version, finisher = read_head(self.lease.objects, self.lease.key), self._finisher
        if version is None or version.head.origin != self.lease.origin:
            raise finisher.head_missing(self.lease.session)
        is_ours = version.head.session == self.lease.session and version.head.journal is not None
        if finisher.finish_commit(version).given_up if is_ours else self.lease.session in version.head.given_up:
            raise DatasetMergeError(
                f"The commit to {self.location.shown} was discarded in the meantime by `fsspeckit recover --discard`. "
                "None of its rows are there.",
                operation="commit",
            )

    def close(self) -> None:
        """Abort the uploads of a session that did not commit. Recovery removes what this cannot."""
        if os.getpid() != self._process:
            return
        self.lease.stop()
        uploads = self.location.storage.end_staging(self._staging)
        with contextlib.suppress(OSError):
            if self._state == "open":
                self._give_up(uploads)

    def _give_up(self, uploads: Sequence[Upload]) -> None:
        """Abort the uploads of this process, and those of executors, which are found by their intents."""
        try:
            if self._is_staging:
                self._finisher.remove(Leftovers((), tuple(uploads)))
                self._finisher.remove(self._finisher.leftovers(self.lease.session))
                store_undo.remove_kept(self.location, self._finisher.objects, self.lease.session)
        finally:  # free the head even without the right to list uploads: others wait for it
            self.lease.change("free")
