"""A store that a writer dies at: from the chosen request on, nothing of it reaches the store any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fsspeckit.core.storage.objects import UnansweredError


class Killed(BaseException):
    """The process is gone: nothing in it is cleared up."""


class Faulty:
    """Stands for `Objects`. `plan(number, name)` tells what becomes of the request with that number.

    `die before`, `die after`, `lost, done`, `lost, not done` or nothing.
    """

    def __init__(self, objects: Any, plan: Callable[[int, str], str | None] = lambda number, name: None) -> None:
        self._objects, self._plan = objects, plan
        self._guard = threading.Lock()
        self.asked: list[str] = []
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._objects, name)
        return request if not callable(request) else lambda *given: self._ask(name, request, given)

    def _ask(self, name: str, request: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        with self._guard:
            self._check_alive()
            if threading.current_thread().name == "fsspeckit-lease":
                return request(*given)
            self.asked.append(name)
            fault = self._plan(len(self.asked), name)
            if fault == "die before":
                self.is_dead = True
            self._check_alive()
            if fault == "lost, not done":
                raise UnansweredError("no answer, the test wants it so")
        answer = request(*given)
        if fault == "die after":
            self.is_dead = True
            self._check_alive()
        if fault == "lost, done":
            raise UnansweredError("no answer, the test wants it so")
        return answer

    def _check_alive(self) -> None:
        if self.is_dead and threading.current_thread().name == "fsspeckit-lease":
            raise UnansweredError("dead")
        if self.is_dead:
            raise Killed
