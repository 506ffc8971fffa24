"""Hold the head of a data set in an object store for a session, and change it by compare-and-swap alone.

The answer to a conditional PUT can be lost, whether or not it was carried out. So after anything but a clear yes the
head is read again: a body of this session in it is a yes after all.
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
    """Clock, chance and threads of a session, for tests to put others in their place."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    token: Callable[[], str] = lambda: uuid.uuid4().hex
    workers: int = 8
    beats: bool = True
    time: Callable[[], float] = time.time


Outcome = Literal["ours", "lost", "doubtful", "committed"]


@dataclass
class Lease:
    """A session's hold on the head; `etag` is that of the body that it wrote or saw last."""

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
    _sent: set[str] = field(default_factory=set)
    _changing: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._since = self.runtime.time()

    def change(self, state: State, journal: Journal | None = None) -> Outcome:
        """Write the head anew.

        `ours`: it was written. `lost`: the head belongs to others. `doubtful`: so it does now, but an answer was lost,
        and the head may have been ours in between. `committed`: it holds this session's commit already.
        Raises `OSError` if the store cannot be asked.
        """
        with self._changing:
            return self._change(state, journal)

    def _change(self, state: State, journal: Journal | None = None) -> Outcome:
        doubtful = False
        for pause in _PAUSES:
            if pause:
                self.runtime.sleep(pause * random.uniform(0.5, 1))
            try:
                etag = self.objects.put_if(self.key, self._body(state, journal), self.etag)
            except UnansweredError:
                etag, doubtful = None, True
            if etag is not None:
                self.etag = etag
                self._sent.clear()
                return "ours"
            outcome = self._look(state)
            if outcome is not None:
                return "doubtful" if doubtful and outcome == "lost" else outcome
        raise UnansweredError(f"{self.objects.place}/{self.key} cannot be written; no answer came")

    def _look(self, state: State) -> Outcome | None:
        """What became of a PUT that was refused or not answered; `None`: to be sent again."""
        seen = read_head(self.objects, self.key)
        if seen is None:
            return None if self.etag is None else "lost"
        if seen.etag == self.etag:
            return None
        if seen.head.session != self.session:
            return "lost"
        if seen.head.nonce in self._sent:  # a body that came through, or a heartbeat whose answer was lost
            self.etag = seen.etag
            if seen.head.state in (state, "leased"):
                return "ours" if seen.head.state == state else None
        return "lost" if seen.head.journal is None else "committed"  # written by those who carry this commit out

    def _body(self, state: State, journal: Journal | None) -> bytes:
        nonce, who = self.runtime.token(), this_process(self._since) if state != "free" else {}
        self._sent.add(nonce)
        return Head(state, self.session, nonce, self.seconds, who, journal, self.given_up, self.origin).to_bytes()

    def is_held(self) -> bool:
        """Is the lease still this session's? Where that cannot be told, it is."""
        if self.is_lost:
            return False
        try:
            seen = read_head(self.objects, self.key)
        except (OSError, CommitUnfinishedError):
            return True
        return seen is not None and seen.head.session == self.session

    def start(self) -> None:
        """Renew the lease from time to time, until `stop`."""
        if self.runtime.beats:
            threading.Thread(target=self._beat, name="fsspeckit-lease", daemon=True).start()

    def stop(self) -> None:
        """Renew no more: from here on the head is written by `change` alone."""
        self._ended.set()

    def _beat(self) -> None:
        while not self._ended.wait(self.heartbeat) and not self.is_lost:
            try:
                self.is_lost = not self._renew()
            except (OSError, CommitUnfinishedError):  # no store, or no head, now; if that lasts, no commit will pass
                continue

    def _renew(self) -> bool:
        with self._changing:  # a commit may have come first: what it wrote is not to be written over
            return self._ended.is_set() or self._change("leased") == "ours"
