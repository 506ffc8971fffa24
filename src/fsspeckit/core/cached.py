"""Properties that are computed once, as `functools` has them from Python 3.12 on: without a lock.

Before, one lock serves a property of all objects, so that threads wait for each other though each has a file of its
own. And a process that is forked meanwhile has the lock and not the thread that holds it: it would wait for ever.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:
    Value = TypeVar("Value")

    class cached_property(functools.cached_property[Value]):
        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
