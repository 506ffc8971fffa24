"""The phases of one operation, and how long each took.

Every operation has a `Progress` of its own, which it passes from step to step.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Progress:
    """The phases of an operation, one after the other; the first begins at once.

    >>> progress = Progress("lock")
    >>> progress.enter("footers")
    >>> list(progress.seconds_by_phase())
    ['lock', 'footers']
    """

    def __init__(self, phase: str) -> None:
        self.started = datetime.now(UTC)
        self._entered = [(phase, time.perf_counter())]

    def enter(self, phase: str) -> None:
        """End the current phase and begin another."""
        self._entered.append((phase, time.perf_counter()))

    def seconds_by_phase(self) -> dict[str, float]:
        """The seconds of each phase until now, in order."""
        ends = [*(begin for _, begin in self._entered[1:]), time.perf_counter()]
        return {phase: end - begin for (phase, begin), end in zip(self._entered, ends, strict=True)}
