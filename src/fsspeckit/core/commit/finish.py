"""Finish a commit that the head of a store records, give it up, or remove what dead sessions left.

One compare-and-swap of the head decides between the first two, before any object is deleted:

    committed ─▶ removing      all uploads are completed, and their objects checked: old files are removed
    committed ─▶ discarding    the uploads in the journal are aborted, then the new files that exist are removed

Several processes may do this, at once or late: an upload can be completed or aborted once only, and names are never
used again. An object that another program put under a name in the journal is not the commit's, and is kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from fsspeckit.core.commit import store_undo
from fsspeckit.core.commit.head import (
    Addition,
    Head,
    HeadVersion,
    Journal,
    Removal,
    State,
    head_key,
    is_of_a_plan,
    read_head,
)
from fsspeckit.core.commit.lease import Runtime
from fsspeckit.core.commit.shared import Resolution, has_conflicts, home_of, this_process
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.parallel import prefetch_map
from fsspeckit.core.storage import StoreLocation
from fsspeckit.core.storage.object_files import INTENT
from fsspeckit.core.storage.objects import Entry, Objects, UnansweredError, Upload

Item = TypeVar("Item")
Result = TypeVar("Result")
_PAUSES = (0.1, 0.3, 1.0)
_DAY = 86_400
# How many sessions whose commits were given up the head remembers.
_MAX_GIVEN_UP = 20
# Up to this number, files are looked up one by one. For more, the data set is listed.
_MAX_LOOKUPS = 8


@dataclass(frozen=True)
class Leftovers:
    """Objects of sessions beside a data set, and the uploads that their intents name."""

    keys: tuple[str, ...] = ()
    uploads: tuple[Upload, ...] = ()

    @property
    def intents(self) -> list[str]:
        return [key for key in self.keys if key.endswith(INTENT)]


@dataclass(frozen=True)
class FinishedCommit:
    """What was done with a commit, as a text, and whether it was given up."""

    text: str
    given_up: bool = False


@dataclass(frozen=True)
class Finisher:
    """Finishes or gives up the commits to one data set."""

    location: StoreLocation
    objects: Objects
    runtime: Runtime

    @property
    def _head_key(self) -> str:
        return head_key(self.location.root)

    def finish_commit(self, version: HeadVersion, resolution: Resolution | None = None) -> FinishedCommit:
        """Finish or give up the commit that the head records, from wherever an earlier attempt stopped."""
        decided: HeadVersion | None = version
        if version.head.state == "committed" and resolution == "discard":
            decided = self._decide(version, "discarding", version.journal)
        elif version.head.state == "committed":
            decided = self._complete_uploads(version, force=resolution == "finish")
        if decided is None:
            return self._finished_by_others(version)
        if decided.head.state == "discarding":
            return self._discard(decided)
        finished = self._remove_old_files(decided)
        if resolution == "discard" and not decided.journal.additions:
            return FinishedCommit(f"{finished.text}; files had been removed already, so it was not given up")
        if resolution == "discard":
            return FinishedCommit(f"{finished.text}; its new files were all in place, and could not be taken back")
        return finished

    def _complete_uploads(self, version: HeadVersion, *, force: bool) -> HeadVersion | None:
        """Complete the uploads, check the new objects, and decide that old files are removed."""
        journal = version.journal
        answers = dict(self.map(self._complete, journal.additions))
        entries = self._stat_files(journal.paths)
        missing = [a for a in journal.additions if a.path not in entries]
        wrong = []
        for a in journal.additions:
            entry, answer = entries.get(a.path), answers[a]
            if entry is not None and not a.matches(entry, answer if isinstance(answer, str) else ""):
                wrong.append(f"{a.path}: {entry.size} bytes (ETag {entry.etag}) of {a.size}")
        if missing or wrong:
            if not self._is_current(version):
                return None
            unanswered = [answer for a in missing if isinstance(answer := answers[a], UnansweredError)]
            raise unanswered[0] if unanswered else self._uploads_failed(missing, wrong)
        changed = [r for r in journal.removals if r.path in entries and r.etag != entries[r.path].etag]
        if changed and not force:
            raise has_conflicts(self.location, [f"{r.path}: to be removed, is another file now" for r in changed])
        removals = tuple(Removal(r.path, entries[r.path].etag) for r in journal.removals if r.path in entries)
        return self._decide(version, "removing", replace(journal, removals=removals))

    def _remove_old_files(self, version: HeadVersion) -> FinishedCommit:
        """Remove the old files that are still those that the decision saw. All new files are in place."""
        journal = version.journal
        entries = self._stat_files([r.path for r in journal.removals])
        kept = [r.path for r in journal.removals if r.path in entries and entries[r.path].etag != r.etag]
        store_undo.publish(self.location, self.objects, version.head.session, journal)
        self.remove(self._leftovers_of(version, [path for path in entries if path not in kept]))
        self._free(version)
        added, removed = len(journal.additions), len(journal.removals) - len(kept)
        text = f"finished the commit {version.head.session}: {added} file(s) put in place, {removed} removed"
        return FinishedCommit(text + self._kept_text(kept))

    def _discard(self, version: HeadVersion) -> FinishedCommit:
        """Abort the uploads first, so that nobody can complete them any more. Then remove the new files."""
        additions = version.journal.additions
        self.map(self.objects.abort, [a.upload(self.location) for a in additions])
        entries = self._stat_files([a.path for a in additions])
        # An empty object is not another program's file: some stores make one of two completions at once.
        placed = [a.path for a in additions if (e := entries.get(a.path)) and (a.matches(e) or not e.size)]
        leftovers = self._leftovers_of(version, placed)
        if not self._is_current(version):
            return self._finished_by_others(version)
        self.remove(leftovers)
        if version.journal.keeps:
            store_undo.remove_kept(self.location, self.objects, version.head.session)
        self._free(version, given_up=True)
        session, count = version.head.session, len(placed)
        text = f"gave up the commit {session}: {count} new file(s) removed again, no other file was changed"
        return FinishedCommit(text + self._kept_text([path for path in entries if path not in placed]), given_up=True)

    def _kept_text(self, paths: list[str]) -> str:
        """Names the files that are not those of the commit."""
        if not paths:
            return ""
        names = ", ".join(self.location.show(path) for path in paths[:5])
        return f"; {len(paths)} file(s) of other programs were kept, look at them: {names}"

    def _decide(self, version: HeadVersion, state: State, journal: Journal) -> HeadVersion | None:
        """Swap the head to a decision. Returns it, or the decision of another process; `None` if all is done."""
        for pause in _PAUSES:
            owner = this_process(self.runtime.time())
            head = replace(version.head, state=state, nonce=self.runtime.token(), owner=owner, journal=journal)
            try:
                etag = self.objects.put_if(self._head_key, head.to_bytes(), version.etag)
            except UnansweredError:
                etag = None
            if etag is not None:
                return HeadVersion(head, etag)
            current = self._current(version)
            if current.etag != version.etag:
                is_decided = current.head.session == version.head.session and current.head.journal is not None
                return current if is_decided else None
            self.runtime.sleep(pause)
        raise UnansweredError(f"{self.objects.place}/{self._head_key} cannot be written; the store did not answer")

    def leftovers(self, session: str | None = None) -> Leftovers:
        """What sessions left, or one of them. To remove leftovers safely, list them before the head is read."""
        home = home_of(self.location.root)
        entries = self.objects.list_all(f"{home}/{session}" if session else home)
        excluded = (home, self._head_key)  # some programs make an object `home/` for a folder
        keys = [e.key for e in entries if e.key not in excluded and not self._is_of_running_plan(e)]
        leftovers = Leftovers(store_undo.without_records(self.location, keys, {*keys}.__contains__))
        targets = {key for _, key in self.map(self._key_of_intent, leftovers.intents) if key is not None}
        uploads = [upload for _, of_key in self.map(self.objects.list_uploads, sorted(targets)) for upload in of_key]
        return replace(leftovers, uploads=tuple(uploads))

    def _is_of_running_plan(self, entry: Entry) -> bool:
        """A plan has no lease. It removes its objects when it ends, so one that is a day old is dead."""
        return time.time() - entry.mtime_ns / 1e9 < _DAY and is_of_a_plan(self.location.root, entry.key)

    def _leftovers_of(self, version: HeadVersion, paths: Iterable[str]) -> Leftovers:
        """What to remove once the uploads of a commit are completed or aborted: `paths`, and the session's objects.

        If there are more intents than files, tasks were repeated, and uploads of failed attempts are still open.
        """
        session = version.head.session
        keys = [e.key for e in self.objects.list_all(f"{home_of(self.location.root)}/{session}")]
        has_repeated_tasks = sum(key.endswith(INTENT) for key in keys) > len(version.journal.additions)
        uploads = self.leftovers(session).uploads if has_repeated_tasks else ()
        return Leftovers((*map(self.location.at, paths), *keys), uploads)

    def remove_dead(self, leftovers: Leftovers) -> None:
        """Remove what dead sessions left. The caller has the lease: a commit that was not finished before is now."""
        has = lambda key: self.objects.stat(key) is not None  # noqa: E731
        self.remove(replace(leftovers, keys=store_undo.without_records(self.location, leftovers.keys, has)))

    def remove(self, leftovers: Leftovers) -> None:
        self.map(self.objects.abort, leftovers.uploads)
        if leftovers.keys:
            self.objects.delete(leftovers.keys)

    def _key_of_intent(self, intent: str) -> str | None:
        """The key that an intent names, if the intent exists and the key is in this data set."""
        answer = self.objects.get(intent)
        try:
            key = json.loads(answer[0])["key"] if answer is not None else None
        except (ValueError, KeyError, TypeError):
            return None
        return key if isinstance(key, str) and key.startswith(f"{self.location.root}/") else None

    def _complete(self, addition: Addition) -> str | UnansweredError | None:
        """The store's answer. It proves nothing, and some stores fail if the upload is gone."""
        try:
            return self.objects.complete(addition.upload(self.location))
        except UnansweredError as error:
            return error

    def is_placed(self, addition: Addition) -> bool:
        entry = self._stat_files([addition.path]).get(addition.path)
        return entry is not None and addition.matches(entry)

    def _stat_files(self, paths: list[str]) -> dict[str, Entry]:
        """The files among `paths` that exist."""
        if len(paths) > _MAX_LOOKUPS:
            start = len(self.location.root) + 1
            entries = {e.key[start:]: e for e in self.objects.list_all(self.location.root)}
            return {path: entries[path] for path in paths if path in entries}
        return {path: e for path, e in self.map(lambda path: self.objects.stat(self.location.at(path)), paths) if e}

    def _current(self, version: HeadVersion) -> HeadVersion:
        """The head as it is now. It exists as long as the data set does; without it the state is unknown."""
        current = read_head(self.objects, self._head_key)
        if current is None or current.head.origin != version.head.origin:
            raise self.head_missing(version.head.session)
        return current

    def head_missing(self, session: str) -> CommitUnfinishedError:
        return CommitUnfinishedError(
            f"The state of the commit {session} to {self.location.shown} is unknown: its head object "
            f"{self.objects.place}/{self._head_key} was deleted or replaced. Rows may be missing or doubled: run "
            f"`fsspeckit recover {self.location.quoted}`, and look for its rows before you repeat it.",
            operation="commit",
        )

    def _is_current(self, version: HeadVersion) -> bool:
        return self._current(version).etag == version.etag

    def _finished_by_others(self, version: HeadVersion) -> FinishedCommit:
        """The head no longer has the commit: another process finished it or gave it up."""
        session = version.head.session
        if session in self._current(version).head.given_up:
            return FinishedCommit(f"the commit {session} was given up by another", given_up=True)
        return FinishedCommit(f"the commit {session} was finished by another writer")

    def _free(self, version: HeadVersion, *, given_up: bool = False) -> None:
        """The last step. If it fails, the next writer repeats the whole commit, which changes nothing."""
        old = version.head
        sessions = (*old.given_up, old.session)[-_MAX_GIVEN_UP:] if given_up else old.given_up
        for pause in _PAUSES:
            free = Head("free", old.session, self.runtime.token(), 0, {}, None, sessions, old.origin, old.commit)
            try:
                self.objects.put_if(self._head_key, free.to_bytes(), version.etag)
                return
            except UnansweredError:
                self.runtime.sleep(pause)
            if not self._is_current(version):
                return

    def _uploads_failed(self, missing: list[Addition], wrong: list[str]) -> CommitUnfinishedError:
        names = [self.location.show(a.path) for a in missing]
        cause = (
            f"{len(missing)} of its uploads are gone: {', '.join(names[:5])}. Another program, a lifecycle rule or the "
            "store itself aborted them (give such rules more days than a commit may wait)"
            if missing
            else f"the store turned its uploads into different objects: {'; '.join(wrong[:5])}"
        )
        return CommitUnfinishedError(
            f"A commit to {self.location.shown} is recorded, but {cause}. No file was removed. Run `fsspeckit recover "
            f"{self.location.quoted}` to try again, or with `--discard` to give it up; then merge again.",
            operation="recover",
        )

    def map(self, step: Callable[[Item], Result], items: Iterable[Item]) -> list[tuple[Item, Result]]:
        """Every item with the result of a step, several steps at a time."""
        todo = list(items)
        if self.runtime.workers == 1 or len(todo) < 2:
            return [(item, step(item)) for item in todo]
        return list(zip(todo, prefetch_map(step, todo, self.runtime.workers), strict=True))
