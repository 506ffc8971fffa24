"""Carry out a commit that a store's head records, give it up, or clear away what dead sessions left.

Which of the two it is, is decided by one compare-and-swap of the head, before any object is deleted:

    committed ─▶ removing      all uploads are completed, and what came of them was looked at: old files go
    committed ─▶ discarding    uploads are aborted by the ids in the journal; then the new files that are there go

Anyone may carry out either, at once or late: an upload is completed or aborted once and cannot come back, and names are
not used again. What another program put under a name in the journal is not what the commit wrote, and stays.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from fsspeckit.core.commit.head import (
    Addition,
    Head,
    Journal,
    Removal,
    Seen,
    State,
    head_key,
    home_of,
    is_of_a_plan,
    read_head,
)
from fsspeckit.core.commit.lease import Runtime
from fsspeckit.core.commit.shared import Resolution, has_conflicts, this_process
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.parallel import prefetch_map
from fsspeckit.core.storage import StoreLocation
from fsspeckit.core.storage.objects import Entry, Objects, UnansweredError, Upload
from fsspeckit.core.storage.uploading import INTENT

Item = TypeVar("Item")
Result = TypeVar("Result")
_PAUSES = (0.1, 0.3, 1.0)
_A_DAY = 86_400
_REMEMBERED = 20
# So many files are looked at one by one, more by listing all of the data set.
_FEW = 8


@dataclass(frozen=True)
class Leftovers:
    """What sessions have beside a data set: objects of theirs, and uploads that their intents name."""

    keys: tuple[str, ...] = ()
    uploads: tuple[Upload, ...] = ()

    @property
    def intents(self) -> list[str]:
        return [key for key in self.keys if key.endswith(INTENT)]


@dataclass(frozen=True)
class FinishedCommit:
    """What became of a commit, as a text, and whether it was given up."""

    text: str
    given_up: bool = False


@dataclass(frozen=True)
class Finisher:
    """Finishes, or gives up, the commits to one data set."""

    location: StoreLocation
    objects: Objects
    runtime: Runtime

    def finish_commit(self, seen: Seen, resolution: Resolution | None = None) -> FinishedCommit:
        """Carry out or give up the commit that the head records, from wherever an earlier attempt stopped."""
        decided: Seen | None = seen
        if seen.head.state == "committed" and resolution == "discard":
            decided = self._decide(seen, "discarding", _journal_of(seen))
        elif seen.head.state == "committed":
            decided = self._place(seen, force=resolution == "finish")
        if decided is None:
            return self.finished_by_others(seen)
        if decided.head.state == "discarding":
            return self._take_back(decided)
        finished = self._remove(decided)
        if resolution == "discard":
            return FinishedCommit(f"{finished.text}; its new files were all in place, and could not be taken back")
        return finished

    def _place(self, seen: Seen, *, force: bool) -> Seen | None:
        """Complete the uploads, look at what came of them, and decide that old files go."""
        journal = _journal_of(seen)
        answers = dict(self._each(self._complete, journal.additions))
        there = self._there([*(a.path for a in journal.additions), *(r.path for r in journal.removals)])
        absent = [a for a in journal.additions if a.path not in there]
        wrong = [
            f"{a.path}: {there[a.path].size} bytes (ETag {there[a.path].etag}) of {a.size}"
            for a in journal.additions
            if a.path in there and not a.is_made(there[a.path], _etag_of(answers[a]))
        ]
        if absent or wrong:
            if not self._is_current(seen):
                return None
            failures = [answer for a in absent if isinstance(answer := answers[a], UnansweredError)]
            raise failures[0] if failures else self._not_made(absent, wrong)
        changed = [r for r in journal.removals if r.path in there and r.etag != there[r.path].etag]
        if changed and not force:
            raise has_conflicts(self.location, [f"{r.path}: to be removed, is another file now" for r in changed])
        removals = tuple(Removal(r.path, there[r.path].etag) for r in journal.removals if r.path in there)
        return self._decide(seen, "removing", Journal(journal.additions, removals))

    def _remove(self, seen: Seen) -> FinishedCommit:
        """All new files are in place, and old ones go: those that are still the ones that the decision saw."""
        journal = _journal_of(seen)
        there = self._there([r.path for r in journal.removals])
        kept = [r.path for r in journal.removals if r.path in there and there[r.path].etag != r.etag]
        self.clear(self.left_by(seen, [path for path in there if path not in kept]))
        self._free(seen)
        put, gone = len(journal.additions), len(journal.removals) - len(kept)
        text = f"finished the commit {seen.head.session}: {put} file(s) put in place, {gone} removed"
        return FinishedCommit(text + self._left_alone(kept))

    def _take_back(self, seen: Seen) -> FinishedCommit:
        """Uploads are aborted first, so that nobody can complete them any more."""
        journal = _journal_of(seen)
        for _ in self._each(self.objects.abort, [a.upload(self.location) for a in journal.additions]):
            pass
        there = self._there([a.path for a in journal.additions])
        # What has no bytes is no file of others, but what some stores make of two completions at once.
        placed = [
            a.path for a in journal.additions if a.path in there and (a.is_made(e := there[a.path]) or not e.size)
        ]
        left = self.left_by(seen, placed)
        if not self._is_current(seen):
            return self.finished_by_others(seen)
        self.clear(left)
        self._free(seen, given_up=True)
        text = (
            f"gave up the commit {seen.head.session}: {len(placed)} new file(s) taken back, no other file was touched"
        )
        return FinishedCommit(text + self._left_alone([path for path in there if path not in placed]), given_up=True)

    def _left_alone(self, paths: list[str]) -> str:
        """Told of files that are not, or no longer, those that the commit knew."""
        if not paths:
            return ""
        names = ", ".join(self.location.show(path) for path in paths[:5])
        return f"; {len(paths)} file(s) of others were left alone, look at them: {names}"

    def _decide(self, seen: Seen, state: State, journal: Journal) -> Seen | None:
        """Swap the head to a decision. The head with it, or with another's; `None`: all is done already."""
        for pause in _PAUSES:
            who = this_process(self.runtime.time())
            head = replace(seen.head, state=state, nonce=self.runtime.token(), owner=who, journal=journal)
            try:
                etag = self.objects.put_if(head_key(self.location.root), head.to_bytes(), seen.etag)
            except UnansweredError:
                etag = None
            if etag is not None:
                return Seen(head, etag)
            now = self.head_of(seen)
            if now.etag != seen.etag:
                is_decided = now.head.session == seen.head.session and now.head.journal is not None
                return now if is_decided else None
            self.runtime.sleep(pause)
        raise UnansweredError(f"{self.objects.place}/{head_key(self.location.root)} cannot be written; no answer came")

    def survey(self, session: str | None = None) -> Leftovers:
        """What sessions left, or one of them. Whoever means to clear it away looks before it reads the head."""
        home = home_of(self.location.root)
        entries = self.objects.list_all(f"{home}/{session}" if session else home)
        spared = (home, head_key(self.location.root))  # `home/` is some program's mark of a folder
        left = Leftovers(tuple(e.key for e in entries if e.key not in spared and not self._is_planning(e)))
        meant = {key for _, key in self._each(self._intended, left.intents) if key is not None}
        found = self._each(self.objects.list_uploads, sorted(meant))
        return replace(left, uploads=tuple(upload for _, uploads in found for upload in uploads))

    def _is_planning(self, entry: Entry) -> bool:
        """Plans hold no lease, and their objects go with them: what is a day old is a dead one's."""
        is_young = time.time() - entry.mtime_ns / 1e9 < _A_DAY
        return is_young and is_of_a_plan(self.location.root, entry.key)

    def left_by(self, seen: Seen, paths: Iterable[str]) -> Leftovers:
        """What is to go when a commit's uploads are completed or aborted: `paths` in the data set, and its own objects.

        More intents than files: tasks were tried more than once, and an upload of an attempt that did not count waits.
        """
        keys = [e.key for e in self.objects.list_all(f"{home_of(self.location.root)}/{seen.head.session}")]
        again = sum(key.endswith(INTENT) for key in keys) > len(_journal_of(seen).additions)
        uploads = self.survey(seen.head.session).uploads if again else ()
        return Leftovers((*map(self.location.at, paths), *keys), uploads)

    def clear(self, left: Leftovers) -> None:
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

    def _complete(self, addition: Addition) -> str | UnansweredError | None:
        """What the store answers; what it says proves nothing, and some fail if there is no such upload."""
        try:
            return self.objects.complete(addition.upload(self.location))
        except UnansweredError as error:
            return error

    def is_placed(self, addition: Addition) -> bool:
        there = self._there([addition.path])
        return addition.path in there and addition.is_made(there[addition.path])

    def _there(self, paths: list[str]) -> dict[str, Entry]:
        """Those of some files that are there, as they are now."""
        if len(paths) > _FEW:
            start = len(self.location.root) + 1
            listed = {e.key[start:]: e for e in self.objects.list_all(self.location.root)}
            return {path: listed[path] for path in paths if path in listed}
        return {path: e for path, e in self._each(lambda path: self.objects.stat(self.location.at(path)), paths) if e}

    def head_of(self, seen: Seen) -> Seen:
        """The head as it is now. It is there for as long as the data set is: without it nothing is known."""
        now = read_head(self.objects, head_key(self.location.root))
        if now is None or now.head.origin != seen.head.origin:
            raise self.no_head(seen.head.session)
        return now

    def no_head(self, session: str) -> CommitUnfinishedError:
        return CommitUnfinishedError(
            f"What became of the commit {session} to {self.location.shown} is unknown: its head object "
            f"{self.objects.place}/{head_key(self.location.root)} is not there, or is another one. Rows may be missing "
            f"or stand twice: run `fsspeckit recover {self.location.quoted}`, and look for its rows before you repeat "
            "it.",
            operation="commit",
        )

    def _is_current(self, seen: Seen) -> bool:
        return self.head_of(seen).etag == seen.etag

    def finished_by_others(self, seen: Seen) -> FinishedCommit:
        """A commit that is gone from the head: carried out by others, or given up."""
        if seen.head.session in self.head_of(seen).head.given_up:
            return FinishedCommit(f"the commit {seen.head.session} was given up by another", given_up=True)
        return FinishedCommit(f"the commit {seen.head.session} was finished by another writer")

    def _free(self, seen: Seen, *, given_up: bool = False) -> None:
        """The last step; if it fails the next one who looks does all of it again, which changes nothing."""
        known = (*seen.head.given_up, seen.head.session)[-_REMEMBERED:] if given_up else seen.head.given_up
        for pause in _PAUSES:
            free = Head("free", seen.head.session, self.runtime.token(), given_up=known, origin=seen.head.origin)
            try:
                self.objects.put_if(head_key(self.location.root), free.to_bytes(), seen.etag)
                return
            except UnansweredError:
                self.runtime.sleep(pause)
            if not self._is_current(seen):
                return

    def _not_made(self, absent: list[Addition], wrong: list[str]) -> CommitUnfinishedError:
        names = [self.location.show(a.path) for a in absent]
        cause = (
            f"{len(absent)} of its uploads are gone: {', '.join(names[:5])}. Another program, a lifecycle rule or the "
            "store itself aborted them (give such rules more days than a commit may wait)"
            if absent
            else f"the store made other objects of its uploads: {'; '.join(wrong[:5])}"
        )
        return CommitUnfinishedError(
            f"A commit to {self.location.shown} is recorded, but {cause}. No file was removed. Run `fsspeckit recover "
            f"{self.location.quoted}` to try again, or with `--discard` to give it up; then merge again.",
            operation="recover",
        )

    def _each(self, step: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """A step for every item, some at a time."""
        todo = list(items)
        if self.runtime.workers == 1 or len(todo) < 2:
            return iter([(item, step(item)) for item in todo])
        return iter(list(zip(todo, prefetch_map(step, todo, self.runtime.workers), strict=True)))


def _journal_of(seen: Seen) -> Journal:
    assert seen.head.journal is not None
    return seen.head.journal


def _etag_of(answer: str | UnansweredError | None) -> str:
    return answer if isinstance(answer, str) else ""
