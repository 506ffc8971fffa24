"""The head of a data set in an object store: one small object beside it that says who writes, or what is committed.

    free        nobody writes
    leased      a session writes; it renews its lease by writing the head anew
    committed   a journal is recorded: uploads to complete, files to remove. Whoever sees it may carry it out
    removing    all uploads are completed and in place: old files go. There is no way back
    discarding  the commit is given up: uploads are aborted, new files taken back. There is no way forward

Every change is a compare-and-swap on the head's ETag, and every body has a nonce: an ETag is a hash of the content, so
that equal bodies would let a stale one pass. The head stays when all is done, for some stores ignore conditions on
DELETE. It is read with suspicion, as a journal on disks is.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from fsspeckit.core.commit.shared import HOME, check_data_path
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.model import Staged
from fsspeckit.core.storage import Location
from fsspeckit.core.storage.objects import Entry, Objects, Upload
from fsspeckit.core.storage.store import upload_of

_FORMAT = 1
_PLAN = "plan-"
State = Literal["free", "leased", "committed", "removing", "discarding"]
_STATES = get_args(State)


@dataclass(frozen=True, slots=True)
class Addition:
    """Complete an upload to `path` (in the data set), a name that no file had.

    `etag` is that of the object then, or empty where it cannot be told before.
    """

    path: str
    upload_id: str
    parts: tuple[str, ...]
    size: int
    etag: str = ""

    @classmethod
    def of(cls, location: Location, staged: Staged) -> Addition:
        upload = upload_of(staged.receipt or "")
        if upload.key != location.at(staged.path):
            raise ValueError(f"{staged.path!r} was uploaded as {upload.key!r}")
        return cls(staged.path, upload.upload_id, upload.parts, upload.size, upload.etag)

    def upload(self, location: Location) -> Upload:
        return Upload(location.at(self.path), self.upload_id, self.parts, self.size)

    def is_made(self, there: Entry, answered: str = "") -> bool:
        """Is an object the one of this upload? `answered` is the ETag that the store gave it, as far as it said."""
        known = {etag.strip('"') for etag in (self.etag, answered) if etag}
        return there.size == self.size and (not known or there.etag.strip('"') in known)


@dataclass(frozen=True, slots=True)
class Removal:
    path: str
    etag: str


@dataclass(frozen=True, slots=True)
class Journal:
    additions: tuple[Addition, ...]
    removals: tuple[Removal, ...]

    def check(self) -> None:
        """Every path is a data file inside the data set, and none is named twice."""
        paths = [a.path for a in self.additions] + [r.path for r in self.removals]
        for path in paths:
            check_data_path(path)
        if len(set(paths)) < len(paths):
            raise ValueError("it names a file twice")


@dataclass(frozen=True, slots=True)
class Head:
    """`given_up` are sessions whose commits were discarded last: one that was paused meanwhile has to know.

    `origin` is drawn when the head is made, and stays: a head of another origin was made after this one was deleted.
    """

    state: State
    session: str
    nonce: str
    lease: float = 0
    owner: Mapping[str, Any] = field(default_factory=dict)
    journal: Journal | None = None
    given_up: tuple[str, ...] = ()
    origin: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(self)}).encode()


@dataclass(frozen=True, slots=True)
class Seen:
    """The head as it was read, by its ETag."""

    head: Head
    etag: str


def home_of(root: str) -> str:
    """The folder beside a data set in which the head and the intents of sessions are. No reader takes it for data."""
    return posixpath.join(posixpath.dirname(root), f"{HOME}{posixpath.basename(root)}")


def new_plan_folder(root: str) -> str:
    """Where a plan that several processes work on leaves what they share, for as long as it runs."""
    return f"{home_of(root)}/{_PLAN}{uuid.uuid4().hex}"


def is_of_a_plan(root: str, key: str) -> bool:
    return key.startswith(f"{home_of(root)}/{_PLAN}")


def head_key(root: str) -> str:
    return f"{home_of(root)}/head"


def read_head(objects: Objects, key: str) -> Seen | None:
    answer = objects.get(key)
    if answer is None:
        return None
    try:
        return Seen(_parse(json.loads(answer[0])), answer[1])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CommitUnfinishedError(
            f"The head object {objects.place}/{key} cannot be used: {error}. Nothing was changed. If it is of no "
            "version of fsspeckit, or no commit is under resolution, delete it.",
            operation="recover",
        ) from error


def _parse(raw: Mapping[str, Any]) -> Head:
    if raw["format"] != _FORMAT:
        raise ValueError(f"unknown format {raw['format']!r}, maybe of a newer version of fsspeckit")
    if raw["state"] not in _STATES:
        raise ValueError(f"unknown state {raw['state']!r}")
    journal = _journal(raw["journal"]) if raw["state"] not in ("free", "leased") else None
    lease = min(max(0.0, float(raw["lease"])), 3600.0)  # in this order what is no number is 0
    session = str(raw["session"])
    if not session.isalnum():  # it names a folder, whose objects go with it
        raise ValueError(f"{session!r} is no session")
    given_up = tuple(map(str, raw.get("given_up", ())))
    origin = str(raw.get("origin", ""))
    return Head(raw["state"], session, str(raw["nonce"]), lease, dict(raw["owner"]), journal, given_up, origin)


def _journal(raw: Mapping[str, Sequence[Mapping[str, Any]]]) -> Journal:
    additions = [
        Addition(a["path"], str(a["upload_id"]), tuple(map(str, a["parts"])), int(a["size"]), str(a.get("etag", "")))
        for a in raw["additions"]
    ]
    journal = Journal(tuple(additions), tuple(Removal(r["path"], str(r["etag"])) for r in raw["removals"]))
    journal.check()
    return journal
