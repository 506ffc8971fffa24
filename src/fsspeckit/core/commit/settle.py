"""Carry out a commit that a store's head records, give it up, or clear away what dead sessions left.

Uploads are completed first, and only when all of them are there are old files removed. Anyone may do it, at once or
late: an upload is completed or aborted once and cannot come back, and names are not used again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from fsspeckit.core.commit.head import (
    Addition,
    Head,
    Journal,
    Removal,
    Seen,
    head_key,
    home_of,
    is_of_a_plan,
    read_head,
)
from fsspeckit.core.commit.lease import Runtime
from fsspeckit.core.commit.recovery import Way, does_not_fit
from fsspeckit.core.errors import CommitUnfinishedError, DatasetMergeError
from fsspeckit.core.parallel import ahead
from fsspeckit.core.storage import Location
from fsspeckit.core.storage.objects import Entry, Objects, UnansweredError, Upload
from fsspeckit.core.storage.uploading import INTENT

Item = TypeVar("Item")
Result = TypeVar("Result")
_PAUSES = (0.1, 0.3, 1.0)
_A_DAY = 86_400
_REMEMBERED = 20


@dataclass(frozen=True)
class Left:
    """What sessions have beside a data set: objects of theirs, and uploads that their intents name."""

    keys: tuple[str, ...] = ()
    uploads: tuple[Upload, ...] = ()


@dataclass(frozen=True)
class Settlement:
    """Of one data set."""

    location: Location
    objects: Objects
    runtime: Runtime

    def finish(self, seen: Seen, *, force: bool = False) -> str:
        """Carry out the commit that the head records, from wherever an earlier attempt stopped."""
        journal = _journal_of(seen)
        try:
            lost = [step for step, there in self._each(self._complete, journal.additions) if not there]
        except UnansweredError:
            self.check_not_given_up(seen.head.session)
            raise
        if not self._is_current(seen):
            self.check_not_given_up(seen.head.session)
            return f"the commit {seen.head.session} was finished by another writer"
        if lost:
            raise self._is_lost(lost)
        present = {step.path: etag for step, etag in self._each(self._etag, journal.removals) if etag is not None}
        changed = [r for r in journal.removals if r.path in present and r.etag != present[r.path]]
        if changed and not force:
            raise does_not_fit(self.location, [f"{r.path}: to be removed, is another file now" for r in changed])
        self.clear(self.left_by(seen, present))
        self._free(seen)
        put, gone = len(journal.additions), len(journal.removals)
        return f"finished the commit {seen.head.session}: {put} file(s) put in place, {gone} removed"

    def undo(self, seen: Seen) -> str:
        """Give a commit up: possible as long as one of its new files is not there, for until then no old one goes.

        Uploads are aborted first, so that nobody can complete them any more.
        """
        journal = _journal_of(seen)
        pending = {u.upload_id for u in self.objects.list_uploads(self.location.root)}
        doomed = [a for a in journal.additions if a.upload_id in pending]
        for addition in doomed:
            self.objects.abort(addition.upload(self.location))
        placed = [a for a, there in self._each(self.is_placed, journal.additions) if there]
        if journal.additions and len(placed) == len(journal.additions):
            return f"{self.finish(seen, force=True)}; its new files were all in place, and could not be taken back"
        self.clear(self.left_by(seen, [a.path for a in placed]))
        self._free(seen, given_up=True)
        return (
            f"gave up the commit {seen.head.session}: {len(placed)} new file(s) taken back, no other file was touched"
        )

    def survey(self, session: str | None = None) -> Left:
        """What sessions left, or one of them. Whoever means to clear it away looks before it reads the head."""
        home = home_of(self.location.root)
        entries = self.objects.list_all(f"{home}/{session}" if session else home)
        spared = (home, head_key(self.location.root))  # `home/` is some program's mark of a folder
        keys = [e.key for e in entries if e.key not in spared and not self._is_planning(e)]
        intents = [key for key in keys if key.endswith(INTENT)]
        meant = {key for _, key in self._each(self._intended, intents) if key is not None}
        pending = self.objects.list_uploads(self.location.root) if meant else []
        return Left(tuple(keys), tuple(upload for upload in pending if upload.key in meant))

    def _is_planning(self, entry: Entry) -> bool:
        """Plans hold no lease, and their objects go with them: what is a day old is a dead one's."""
        is_young = time.time() - entry.mtime_ns / 1e9 < _A_DAY
        return is_young and is_of_a_plan(self.location.root, entry.key)

    def left_by(self, seen: Seen, paths: Iterable[str]) -> Left:
        """What is to go when a commit's uploads are completed or aborted: `paths` in the data set, and its own objects.

        More intents than files: tasks were tried more than once, and an upload of an attempt that did not count waits.
        """
        keys = [e.key for e in self.objects.list_all(f"{home_of(self.location.root)}/{seen.head.session}")]
        again = sum(key.endswith(INTENT) for key in keys) > len(_journal_of(seen).additions)
        uploads = self.survey(seen.head.session).uploads if again else ()
        return Left((*map(self.location.at, paths), *keys), uploads)

    def clear(self, left: Left) -> None:
        for _ in self._each(self.objects.abort, left.uploads):
            pass
        if left.keys:
            self.objects.delete(left.keys)

    def _intended(self, intent: str) -> str | None:
        """The key that an intent names, if it is there and names one in this data set."""
        answer = self.objects.get(intent)
        try:
            key = json.loads(answer[0])["key"] if answer is not None else None
        except (ValueError, KeyError, TypeError):
            return None
        return key if isinstance(key, str) and key.startswith(f"{self.location.root}/") else None

    def _complete(self, addition: Addition) -> bool:
        """Is the new file in its place, now or from an earlier attempt?"""
        upload = addition.upload(self.location)
        try:
            if self.objects.complete(upload):
                return True
        except UnansweredError:  # some stores fail so if there is no such upload
            if not self.is_placed(addition):
                raise
            return True
        return self.is_placed(addition)

    def is_placed(self, addition: Addition) -> bool:
        there = self.objects.stat(self.location.at(addition.path))
        return there is not None and there.size == addition.size

    def _etag(self, removal: Removal) -> str | None:
        there = self.objects.stat(self.location.at(removal.path))
        return there.etag if there is not None else None

    def _is_current(self, seen: Seen) -> bool:
        now = read_head(self.objects, head_key(self.location.root))
        return now is not None and now.etag == seen.etag

    def check_not_given_up(self, session: str) -> None:
        """A writer that was paused may find its commit gone from the head: carried out by others, or given up."""
        now = read_head(self.objects, head_key(self.location.root))
        if now is not None and session in now.head.given_up:
            raise DatasetMergeError(
                f"The commit to {self.location.shown} was given up meanwhile by `fsspeckit recover --discard`. None of "
                "its rows are there.",
                operation="commit",
            )

    def _free(self, seen: Seen, *, given_up: bool = False) -> None:
        """The last step; if it fails the next one who looks does all of it again, which changes nothing."""
        known = (*seen.head.given_up, seen.head.session)[-_REMEMBERED:] if given_up else seen.head.given_up
        for pause in _PAUSES:
            body = Head("free", seen.head.session, self.runtime.token(), given_up=known).to_bytes()
            try:
                self.objects.put_if(head_key(self.location.root), body, seen.etag)
                return
            except UnansweredError:
                self.runtime.sleep(pause)
            if not self._is_current(seen):
                return

    def _is_lost(self, lost: list[Addition]) -> CommitUnfinishedError:
        names = ", ".join(self.location.show(a.path) for a in lost[:5])
        return CommitUnfinishedError(
            f"A commit to {self.location.shown} is recorded, but {len(lost)} of its uploads are gone: {names}. Another "
            "program or a lifecycle rule aborted them (give such rules more days than a commit may wait). No file was "
            f"removed. Run `fsspeckit recover --discard {self.location.quoted}` to give it up, and merge again.",
            operation="recover",
        )

    def _each(self, step: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """A step for every item, some at a time."""
        todo = list(items)
        if self.runtime.workers == 1 or len(todo) < 2:
            return iter([(item, step(item)) for item in todo])
        return iter(list(zip(todo, ahead(step, todo, self.runtime.workers), strict=True)))


def _journal_of(seen: Seen) -> Journal:
    assert seen.head.journal is not None
    return seen.head.journal


def settle(settlement: Settlement, seen: Seen, way: Way | None) -> str:
    return settlement.undo(seen) if way == "discard" else settlement.finish(seen, force=way == "finish")
