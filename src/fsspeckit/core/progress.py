"""The progress of one operation: its phases with their times, and how far the current one is.

Every operation has a `Progress` of its own, which it passes from step to step. It calls the caller's `on_progress` with
a `ProgressEvent`, one call at a time, at most about ten times a second, and never in another process.

An exception of `on_progress` ends the operation before its commit: nothing is changed, and the caller gets the
exception. While a commit is made and afterwards, it is only logged, since the changes are or will be there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

log = logging.getLogger("fsspeckit.progress")

Phase: TypeAlias = Literal["lock", "footers", "source", "match", "compare", "write", "sync", "commit", "done", "failed"]
PHASES: tuple[Phase, ...] = get_args(Phase)

# About the share of each phase in a merge; only how the fraction of the whole moves depends on it.
_SHARES = {"footers": 5, "source": 15, "match": 20, "compare": 25, "write": 25, "sync": 5, "commit": 5}
_ENDS = {phase: sum(_SHARES.get(p, 0) for p in PHASES[: n + 1]) / 100 for n, phase in enumerate(PHASES)}
_SECONDS_BETWEEN = 0.1
_SECONDS_BETWEEN_OWNERS = 0.5


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """How far an operation is. `on_progress` gets one.

    `phase` is `lock` (waiting for another writer), `footers`, `source`, `match`, `compare` (of `plan(compare=True)`),
    `write`, `sync`, `commit`, and at the end `done` or `failed`. An operation has some of them, in this order, and with
    every engine the same; a compaction goes through them for each of its commits.

    `files` of `files_total` and `bytes` of `bytes_total` are finished in this phase, and `rows` of a source are read. A
    total is 0 if it is not known. Bytes are about those that the phase reads. `fraction` of the whole operation is
    between 0 and 1, and never decreases; it says little about time. `seconds` have passed since the operation began,
    `phase_seconds` since the phase did. While it waits, `waiting_for` says which writer has the lock.

    >>> event = ProgressEvent("write", files=3, files_total=12)
    >>> f"{event.phase}: {event.files} of {event.files_total} files"
    'write: 3 of 12 files'
    """

    phase: Phase
    files: int = 0
    files_total: int = 0
    bytes: int = 0
    bytes_total: int = 0
    rows: int = 0
    fraction: float = 0.0
    seconds: float = 0.0
    phase_seconds: float = 0.0
    waiting_for: str | None = None


OnProgress: TypeAlias = Callable[[ProgressEvent], object]
"""What `on_progress` may be. What it returns is ignored."""


class Progress:
    """The phases of an operation, one after the other; the first begins at once.

    Threads may call `advance`. A copy in another process counts nothing.

    >>> events = []
    >>> with Progress.of("upsert into orders", "footers", events.append) as progress:
    ...     progress.enter("write", files=2, bytes=100)
    ...     progress.advance(files=2, bytes=100)
    >>> [(event.phase, event.files) for event in events]
    [('footers', 0), ('write', 0), ('write', 2), ('done', 0)]
    >>> list(progress.seconds_by_phase())
    ['footers', 'write']
    """

    def __init__(self, title: str, phase: Phase, on_progress: OnProgress | None = None) -> None:
        self.started = datetime.now(UTC)
        self._title, self._on_progress, self._lock = title, on_progress, threading.RLock()
        self._entered: list[tuple[Phase, float]] = [(phase, time.perf_counter())]
        self._done, self._totals, self._rows, self._reported = (0, 0), (0, 0), 0, 0.0
        self._rows_reported = 0
        self._fraction, self._part = 0.0, (0.0, 1.0)
        self._failure: BaseException | None = None

    @classmethod
    @contextmanager
    def of(cls, title: str, phase: Phase, on_progress: OnProgress | None = None) -> Iterator[Progress]:
        """The progress of the operation within the block. At its end, the last event is `done` or `failed`."""
        progress = cls(title, phase, on_progress)
        try:
            progress._begin(phase)
            yield progress
        except BaseException:
            progress._end("failed")
            raise
        progress._end("done")

    def __reduce__(self) -> tuple[type[Progress], tuple[str, Phase]]:
        return Progress, (self._title, self._entered[-1][0])

    @property
    def is_watched(self) -> bool:
        """Is there an `on_progress`?"""
        return self._on_progress is not None

    @property
    def phase(self) -> Phase:
        return self._entered[-1][0]

    def enter(self, phase: Phase, files: int = 0, bytes: int = 0) -> None:
        """End the current phase, as far as it came, and begin another, with these totals if they are known."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._complete()
            self._entered.append((phase, time.perf_counter()))
            self._done, self._totals, self._rows = (0, 0), (files, bytes), 0
            self._begin(phase)

    def expect(self, files: int = 0, bytes: int = 0) -> None:
        """The totals of the current phase, once they are known."""
        with self._lock:
            self._done, self._totals = (0, 0), (files, bytes)

    def next_part(self, share: float) -> None:
        """The next phases, up to a commit, do this share of the work that is left."""
        with self._lock:
            self._part = self._fraction, self._fraction + share * (1 - self._fraction)

    def advance(self, files: int = 0, bytes: int = 0, rows: int = 0) -> None:
        """More files, bytes and rows are finished in the current phase."""
        if self._on_progress is None and self._failure is None:
            return
        with self._lock:
            if self._failure is not None:
                raise self._failure
            done = self._done[0] + files, self._done[1] + bytes
            finished = [min(d, total) if total else d for d, total in zip(done, self._totals)]
            self._done, self._rows = (finished[0], finished[1]), self._rows + rows
            is_complete = any(self._totals) and self._done == self._totals
            if is_complete or time.perf_counter() - self._reported >= _SECONDS_BETWEEN:
                self._report(None)

    def stop(self, error: BaseException) -> None:
        """The operation is interrupted: from now on, `advance` raises the error, so that threads end soon."""
        self._failure = error

    def waiting(self, owner: Callable[[], str]) -> None:
        """The lock is not free; `owner` says who has it."""
        if self._on_progress is not None and time.perf_counter() - self._reported >= _SECONDS_BETWEEN_OWNERS:
            with self._lock:
                self._report(owner())

    def meter(self, bytes: int) -> FileMeter:
        """Counts one file of this size."""
        return FileMeter(self, bytes)

    def seconds_by_phase(self) -> dict[str, float]:
        """The seconds of each phase until now, in order. Phases that repeat are added up."""
        ends = [*(begin for _, begin in self._entered[1:]), time.perf_counter()]
        seconds: dict[str, float] = {}
        for (phase, begin), end in zip(self._entered, ends, strict=True):
            if phase not in ("done", "failed"):
                seconds[phase] = seconds.get(phase, 0.0) + end - begin
        return seconds

    def _begin(self, phase: Phase) -> None:
        if self._title and log.isEnabledFor(logging.INFO):
            totals = [f"{total:,} {what}" for total, what in zip(self._totals, ("files", "bytes")) if total]
            log.info("%s", ", ".join([f"{self._title}: {phase}", *totals]))
        self._report(None)

    def _complete(self) -> None:
        """Report the end of a phase, unless that was done: all of its totals, and the rows of the source."""
        is_open = any(self._totals) and self._done != self._totals
        if self._on_progress is not None and (is_open or self._rows != self._rows_reported):
            self._done = self._totals
            self._report(None)

    def _end(self, phase: Literal["done", "failed"]) -> None:
        with self._lock:
            if phase == "done":
                self._complete()
            self._entered.append((phase, time.perf_counter()))
            self._done, self._totals, self._rows = (0, 0), (0, 0), 0
            self._begin(phase)

    def _report(self, waiting_for: str | None) -> None:
        if self._on_progress is None or (self._failure is not None and self.phase not in ("done", "failed")):
            return
        now = time.perf_counter()
        self._reported, self._rows_reported = now, self._rows
        (phase, began), (_, first) = self._entered[-1], self._entered[0]
        self._fraction = max(self._fraction, self._fraction_of(phase))
        (files, size), (files_total, bytes_total) = self._done, self._totals
        event = ProgressEvent(
            phase,
            files,
            files_total,
            size,
            bytes_total,
            self._rows,
            self._fraction,
            now - first,
            now - began,
            waiting_for,
        )
        try:
            self._on_progress(event)
        except BaseException as error:
            if phase in ("commit", "done", "failed") and isinstance(error, Exception):
                log.warning("on_progress failed in phase %s of %s", phase, self._title, exc_info=True)
                return
            self._failure = error
            raise

    def _fraction_of(self, phase: Phase) -> float:
        if phase == "done":
            return 1.0
        if phase == "failed":
            return self._fraction
        done = next((d / t for d, t in reversed([*zip(self._done, self._totals)]) if t), 0.0)
        begin, end = self._part
        return begin + (end - begin) * (_ENDS[phase] - _SHARES.get(phase, 0) / 100 * (1 - done))


class FileMeter:
    """Counts one file, which several steps may report to be partly done.

    >>> meter = FileMeter(Progress("", "write"), 100)
    >>> meter.reach(0.5), meter.reach(0.25), meter.bytes
    (None, None, 50)
    """

    def __init__(self, progress: Progress, size: int) -> None:
        self._progress, self._size, self.bytes = progress, size, 0

    def reach(self, share: float) -> None:
        """This share of the file is done; a smaller one than before changes nothing."""
        more = int(self._size * share) - self.bytes
        if more > 0:
            self.bytes += more
            self._progress.advance(bytes=more)

    def finish(self, files: int = 1) -> None:
        """All of it is done; `files` is 0 if it was only a part of a file."""
        self._progress.advance(files=files, bytes=self._size - self.bytes)
        self.bytes = self._size


SILENT = Progress("", "done")
"""Counts nothing, for work that nobody watches."""
