"""The head of a data set in an object store: one small object beside it that says who writes, or what is committed.

    free        nobody writes
    leased      a session writes; it renews its lease by writing the head again
    committed   a journal is recorded: uploads to complete, files to remove. Anyone may carry it out
    removing    all uploads are completed and checked: old files are removed. It can no longer be given up
    discarding  the commit is given up: uploads are aborted, new files removed. It can no longer be finished

Every change is a compare-and-swap on the head's ETag. Every body has a nonce: an ETag is a hash of the content, so an
outdated swap would succeed if two bodies were equal. The head is never deleted, because some stores ignore conditions
on DELETE. It is untrusted input, like a journal on a disk.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from fsspeckit.core.commit.shared import HOME, MALFORMED, Writers, check_data_paths, home_of, refuse_pattern
from fsspeckit.core.dataset.listing import listing_errors
from fsspeckit.core.errors import CommitUnfinishedError, StorageError, TargetError
from fsspeckit.core.storage import Location, StoreLocation
from fsspeckit.core.storage.objects import Entry, Objects, UnansweredError, Upload

CHECKED_BUCKETS: weakref.WeakSet[Objects] = weakref.WeakSet()
"""Buckets that were seen to refuse conditional writes that they must refuse.

The set is per process, since every merge makes a storage of its own and the check takes four requests. An entry lives
as long as its connection. A store that stops to check conditions while a process is connected is not noticed.
"""
_FORMAT = 1
_PLAN = "plan-"
# Pauses between attempts of the check of conditional writes, in seconds.
_PAUSES = (0.1, 0.2, 0.4, 0.8)
# How long readers that only warn wait for a commit to be finished.
_SHORT_WAIT_SECONDS = 1.5
State = Literal["free", "leased", "committed", "removing", "discarding"]


@dataclass(frozen=True, slots=True)
class Addition:
    """Complete an upload to `path` (in the data set), a new name.

    `etag` is the ETag that the object will have, or empty if it is not known in advance.
    """

    path: str
    upload_id: str
    parts: tuple[str, ...]
    size: int
    etag: str = ""

    def upload(self, location: Location) -> Upload:
        return Upload(location.at(self.path), self.upload_id, self.parts, self.size)

    def matches(self, entry: Entry, completed_etag: str = "") -> bool:
        """Is an object the one of this upload? `completed_etag` is what the store answered to the completion."""
        etags = {etag.strip('"') for etag in (self.etag, completed_etag) if etag}
        return entry.size == self.size and (not etags or entry.etag.strip('"') in etags)


@dataclass(frozen=True, slots=True)
class Removal:
    path: str
    etag: str


@dataclass(frozen=True, slots=True)
class Journal:
    """`keeps`: the session has copied what it removes. `undoes` is the kept commit whose record is dropped."""

    additions: tuple[Addition, ...]
    removals: tuple[Removal, ...]
    keeps: bool = False
    undoes: str = ""

    @property
    def paths(self) -> list[str]:
        return [a.path for a in self.additions] + [r.path for r in self.removals]


@dataclass(frozen=True, slots=True)
class Head:
    """`given_up` are the sessions whose commits were discarded last, so that a session that was paused learns of it.

    `origin` is chosen when the head is created and never changes. Another origin: the head was deleted and created
    again. `commit` is the session of the last commit, finished or not; readers compare it.
    """

    state: State
    session: str
    nonce: str
    lease: float = 0
    owner: Mapping[str, Any] = field(default_factory=dict)
    journal: Journal | None = None
    given_up: tuple[str, ...] = ()
    origin: str = ""
    commit: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(self)}).encode()


@dataclass(frozen=True, slots=True)
class HeadVersion:
    """The head as it was read, with its ETag."""

    head: Head
    etag: str

    @property
    def journal(self) -> Journal:
        """The journal of a recorded commit."""
        assert self.head.journal is not None
        return self.head.journal


def new_plan_folder(root: str) -> str:
    """A folder for what the processes of one plan share while it runs."""
    return f"{home_of(root)}/{_PLAN}{uuid.uuid4().hex}"


def is_of_a_plan(root: str, key: str) -> bool:
    return key.startswith(f"{home_of(root)}/{_PLAN}")


def head_key(root: str) -> str:
    return f"{home_of(root)}/head"


def read_head(objects: Objects, key: str) -> HeadVersion | None:
    answer = objects.get(key)
    if answer is None:
        return None
    try:
        return HeadVersion(_parse(json.loads(answer[0])), answer[1])
    except MALFORMED as error:
        raise CommitUnfinishedError(
            f"The head object {objects.place}/{key} cannot be used: {error}. Nothing was changed. If fsspeckit did not "
            "write it, or no commit is running, delete it.",
            operation="recover",
        ) from error


def unfinished(location: StoreLocation) -> list[str]:
    """The head, if its commit is not finished within a moment."""
    with reading(location, None) as writers:
        return writers.unfinished


@contextlib.contextmanager
def reading(location: StoreLocation, timeout: float | None) -> Iterator[Writers]:
    """Commits cannot be held off in a store. The head says at the end whether there was one."""
    objects, key = location.storage.objects, head_key(location.root)
    with listing_errors(location):
        try:
            before = _settled_head(objects, key, _SHORT_WAIT_SECONDS if timeout is None else timeout)
            commits = [f"{objects.place}/{key}"] if before is not None and before.journal is not None else []
            last = _last_commit(before)
            writers = Writers(commits, have_committed=lambda: _last_commit(_settled_head(objects, key, 0)) != last)
        except PermissionError:  # users who may only read the data set
            writers = Writers([])
    yield writers


def _settled_head(objects: Objects, key: str, seconds: float) -> Head | None:
    """The head. If it records a commit, wait until the commit is finished or the time is over."""
    deadline, pause = time.monotonic() + seconds, 0.1
    while True:
        version = read_head(objects, key)
        left = deadline - time.monotonic()
        if version is None or version.head.journal is None or left <= 0:
            return version.head if version is not None else None
        time.sleep(min(pause, left))
        pause = min(2 * pause, 0.8)


def _last_commit(head: Head | None) -> tuple[str, str] | None:
    return (head.origin, head.commit) if head is not None and head.commit else None


def _parse(raw: Mapping[str, Any]) -> Head:
    if raw["format"] != _FORMAT:
        raise ValueError(f"unknown format {raw['format']!r}, perhaps written by a newer version of fsspeckit")
    if raw["state"] not in get_args(State):
        raise ValueError(f"unknown state {raw['state']!r}")
    journal = _journal(raw["journal"]) if raw["state"] not in ("free", "leased") else None
    lease = min(max(0.0, float(raw["lease"])), 3600.0)  # in this order NaN becomes 0
    session = str(raw["session"])
    if not session.isalnum():  # it names a folder, whose objects are deleted
        raise ValueError(f"{session!r} is no session")
    given_up = tuple(map(str, raw.get("given_up", ())))
    origin = str(raw.get("origin", ""))
    owner, commit = dict(raw["owner"]), str(raw.get("commit", ""))
    return Head(raw["state"], session, str(raw["nonce"]), lease, owner, journal, given_up, origin, commit)


def _journal(raw: Mapping[str, Any]) -> Journal:
    additions = [
        Addition(a["path"], str(a["upload_id"]), tuple(map(str, a["parts"])), int(a["size"]), str(a.get("etag", "")))
        for a in raw["additions"]
    ]
    removals = tuple(Removal(r["path"], str(r["etag"])) for r in raw["removals"])
    undoes = str(raw.get("undoes", ""))
    if undoes and not undoes.isalnum():  # it names a folder, whose objects are deleted
        raise ValueError(f"{undoes!r} is no commit")
    journal = Journal(tuple(additions), removals, bool(raw.get("keeps", False)), undoes)
    check_data_paths(journal.paths)
    return journal


def check_location(location: StoreLocation) -> None:
    """Refuse a pattern, a data set inside another one, and a store that ignores conditions."""
    objects = location.storage.objects
    refuse_pattern(location)
    parts = location.root.split("/")
    for folder in ("/".join(parts[:depth]) for depth in range(1, len(parts))):
        if _is_visible(objects, head_key(folder)):
            raise TargetError(
                f"{location.shown} lies inside {objects.place}/{folder}, which is a data set with a head of its own "
                f"({head_key(folder)}). Merge into that one; or, if it is no longer one, delete that object."
            )
    if objects not in CHECKED_BUCKETS:
        _check_conditional_writes(objects, location)
        CHECKED_BUCKETS.add(objects)


def _is_visible(objects: Objects, key: str) -> bool:
    """A user may have no right to look above the folders that were granted."""
    try:
        return objects.stat(key) is not None
    except PermissionError:
        return False


def refuse_nested_heads(location: StoreLocation) -> None:
    for folder in location.storage.folders(location.root):
        if posixpath.basename(folder).startswith(HOME):
            raise TargetError(
                f"{location.shown} holds {folder}, the head of a data set inside it. Merge into that one; or, if it is "
                "no longer one, delete that folder. Nothing was changed."
            )


def _check_conditional_writes(objects: Objects, location: StoreLocation) -> None:
    """Refuse a store that carries out a write whose condition does not hold: two writers could both commit.

    If a request fails, its error is raised. The next writer removes the object that may be left.
    """
    key = f"{home_of(location.root)}/probe-{uuid.uuid4().hex}"
    _retry(lambda: objects.put_if(key, b"1", None))
    created = _retry(lambda: objects.put_if(key, b"2", None))
    swapped = _retry(lambda: objects.put_if(key, b"3", '"0"'))
    objects.delete([key])
    if created or swapped:
        raise StorageError(
            f"{objects.place} ignores conditions on writes (If-None-Match, If-Match), so that two writers could not be "
            "kept apart. Nothing was written. Use a store that has conditional writes, as S3 itself does.",
            operation="lock",
        )


def _retry(request: Callable[[], str | None]) -> str | None:
    for pause in _PAUSES:
        try:
            return request()
        except UnansweredError:
            time.sleep(pause)
    return request()
