"""`Did you mean …?` for names that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; case does not count.

    >>> closest("ID", ["id", "name"]), closest("custmer", ["id", "customer"]), closest("x", ["id"])
    ('id', 'customer', None)
    """
    by_lower: dict[str, str] = {}
    for other in known:
        by_lower.setdefault(other.lower(), other)
    matches = difflib.get_close_matches(str(name).lower(), by_lower, 1)
    return by_lower[matches[0]] if matches else None


def did_you_mean(names: Iterable[object], known: Iterable[str]) -> str:
    """A sentence with a blank before it, or nothing.

    >>> did_you_mean(["ID", "x"], ["id", "name"])
    " Did you mean 'id'?"
    """
    choices = list(known)
    matches = dict.fromkeys(match for name in names if (match := closest(name, choices)) is not None)
    return f" Did you mean {', '.join(map(repr, matches))}?" if matches else ""
