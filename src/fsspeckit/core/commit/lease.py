"""Hold the head of a data set in an object store for a session, and change it by compare-and-swap only.

The answer to a conditional PUT can be lost, whether or not it was carried out. So after anything but a clear success
the head is read again. If it has a body of this session, the PUT was carried out.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from fsspeckit.core.commit.head import Head, Journal, State, read_head
from fsspeckit.core.commit.shared import this_process
from fsspeckit.core.errors import CommitUnfinishedError
from fsspeckit.core.storage.objects import Objects, UnansweredError

_PAUSES = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Runtime:
    """Clocks, random ids and threads of a session; tests replace them."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    token: Callable[[], str] = lambda: uuid.uuid4().hex
    workers: int = 8
    renews_leases: bool = True
    time: Callable[[], float] = time.time


Outcome = Literal["written", "lost", "unknown", "committed"]


@dataclass
class Lease:
    """A session's lease on the head; `etag` is that of the body that it wrote or read last."""

    objects: Objects
    key: str
    session: str
    seconds: float
    heartbeat: float
    runtime: Runtime
    etag: str | None = None
    is_lost: bool = False
    given_up: tuple[str, ...] = ()
    origin: str = ""
    last_commit: str = ""
    _sent: set[str] = field(default_factory=set)
    _changing: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._since = self.runtime.time()

    def change(self, state: State, journal: Journal | None = None) -> Outcome:
        """Write the head.

        `written`: it was written. `lost`: the head belongs to another session. `unknown`: it belongs to another session
        now, but an answer was lost, so the body may have been written in between. `committed`: it has this session's
        commit already. Raises `OSError` if the store cannot be reached.
        """
        with self._changing:
            return self._change(state, journal)

    def _change(self, state: State, journal: Journal | None = None) -> Outcome:
        answer_lost = False
        for pause in _PAUSES:
            if pause:
                self.runtime.sleep(pause * random.uniform(0.5, 1))
            try:
                etag = self.objects.put_if(self.key, self._body(state, journal), self.etag)
            except UnansweredError:
                etag, answer_lost = None, True
            if etag is not None:
                self.etag = etag
                self._sent.clear()
                return "written"
            outcome = self._read_outcome(state)
            if outcome is not None:
                return "unknown" if answer_lost and outcome == "lost" else outcome
        raise UnansweredError(f"{self.objects.place}/{self.key} cannot be written; the store did not answer")

    def _read_outcome(self, state: State) -> Outcome | None:
        """The outcome of a PUT that was refused or not answered, read from the head. `None`: send it again."""
        version = read_head(self.objects, self.key)
        if version is None:
            return None if self.etag is None else "lost"
        if version.etag == self.etag:
            return None
        if version.head.session != self.session:
            return "lost"
        if version.head.nonce in self._sent:  # this PUT, or a renewal whose answer was lost
            self.etag = version.etag
            if version.head.state in (state, "leased"):
                return "written" if version.head.state == state else None
        return "lost" if version.head.journal is None else "committed"  # written by one who finishes this commit

    def _body(self, state: State, journal: Journal | None) -> bytes:
        nonce, owner = self.runtime.token(), this_process(self._since) if state != "free" else {}
        self._sent.add(nonce)
        commit = self.last_commit if journal is None else self.session
        head = Head(state, self.session, nonce, self.seconds, owner, journal, self.given_up, self.origin, commit)
        return head.to_bytes()

    def is_held(self) -> bool:
        """Does the head still belong to this session? True if it cannot be read."""
        if self.is_lost:
            return False
        try:
            version = read_head(self.objects, self.key)
        except (OSError, CommitUnfinishedError):
            return True
        return version is not None and version.head.session == self.session

    def start(self) -> None:
        """Renew the lease in a thread, until `stop`."""
        if self.runtime.renews_leases:
            threading.Thread(target=self._renew_until_stopped, name="fsspeckit-lease", daemon=True).start()

    def stop(self) -> None:
        """Stop renewing: from here on only `change` writes the head."""
        self._ended.set()

    def _renew_until_stopped(self) -> None:
        while not self._ended.wait(self.heartbeat) and not self.is_lost:
            try:
                with self._changing:  # a commit may have come first, and must not be overwritten
                    self.is_lost = not self._ended.is_set() and self._change("leased") != "written"
            except (OSError, CommitUnfinishedError):  # no store or no head now; if that lasts, the commit will fail
                continue
