"""What a merge means, in plain Python: the model that every engine is compared with."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

Row = dict[str, Any]


def key_of(row: Row, keys: list[str]) -> tuple[Any, ...] | None:
    """A row's key as a value that equals itself; `None` if part of it is null, which matches nothing."""
    values = tuple(row[k] for k in keys)
    if any(v is None for v in values):
        return None
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in values)


def merge(target: list[Row], source: list[Row], keys: list[str], strategy: str) -> tuple[list[Row], Counter[str]]:
    """The rows after the merge, and the counts. The source has one row per key and no null key."""
    new = {key_of(row, keys): row for row in source}
    existing = {key_of(row, keys) for row in target} - {None}
    matched = existing & new.keys()
    added = [row for row in source if key_of(row, keys) not in existing]
    if strategy == "full_merge":
        counts = Counter(inserted=len(added), updated=len(matched), deleted=len(target) - len(matched))
        return list(source), counts
    rows, counts = list(target), Counter(inserted=0, updated=0, deleted=0)
    if strategy != "insert":
        rows = [new.get(key_of(row, keys), row) for row in target]
        counts["updated"] = sum(key_of(row, keys) in matched for row in target)
    if strategy != "update":
        rows += added
        counts["inserted"] = len(added)
    return rows, counts


def moved(target: list[Row], source: list[Row], keys: list[str], partitions: list[str]) -> bool:
    """Does a source row lie in another partition than a target row with its key?"""
    new = {key_of(row, keys): row for row in source}
    pairs = [(row, new[key_of(row, keys)]) for row in target if key_of(row, keys) in new]
    return any(old[p] != row[p] for old, row in pairs for p in partitions)
