"""Pruning: prove from partition values and footer statistics that no source key is in a row group.

Conservative throughout: `MIGHT_MATCH` unless proven `CANNOT_MATCH`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.core.model import Bounds, Footer, Profile, Shape
from fsspeckit.core.record import record
from fsspeckit.core.target.partitions import PartitionMap, Unreadable
from fsspeckit.core.values import arrays

MIGHT_MATCH = True
CANNOT_MATCH = False

Intervals = Sequence[tuple[Any, Any]] | None


def bounds_might_match(bounds: Bounds | None, intervals: Intervals) -> bool:
    """Could a value within `bounds` lie in one of the (sorted, disjoint) intervals?"""
    if bounds is None or intervals is None:
        return MIGHT_MATCH
    if bounds.lower is None:  # nothing but nulls, and nulls match nothing
        return CANNOT_MATCH
    try:
        after = bisect_left(intervals, (bounds.upper,))  # those before it begin below the upper bound
        begins_there = after < len(intervals) and intervals[after][0] == bounds.upper
        return bool(begins_there or (after and intervals[after - 1][1] >= bounds.lower))
    except TypeError:  # types that do not compare prove nothing
        return MIGHT_MATCH


def each_might_match(bounds: Sequence[Bounds | None], intervals: Intervals) -> npt.NDArray[np.bool_]:
    """`bounds_might_match` of each. Whole numbers, which most keys are, are compared all at once."""
    try:
        lower, upper = _numbers([b.lower for b in bounds]), _numbers([b.upper for b in bounds])  # type: ignore[union-attr]
        starts, ends = (_numbers([interval[side] for interval in intervals or ()]) for side in (0, 1))
    except (TypeError, OverflowError, AttributeError):  # of another type, or not there
        return np.array([bounds_might_match(b, intervals) for b in bounds], dtype=bool)
    if intervals is None:
        return np.full(len(bounds), MIGHT_MATCH)
    if not intervals:
        return np.full(len(bounds), CANNOT_MATCH)
    after = np.searchsorted(starts, upper)
    might: npt.NDArray[np.bool_] = starts[np.minimum(after, len(starts) - 1)] == upper  # begins there
    might |= (after > 0) & (ends[after - 1] >= lower)
    return might


def _numbers(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Numbers that are whole already: unlike NumPy, `array` does not round any."""
    return np.frombuffer(array("q", values), dtype=np.int64)


@record
class Pruned:
    """What is left of one file: row groups to scan, and whether its partition is one of the source's."""

    footer: Footer
    row_groups: tuple[int, ...]
    reason: str
    guard: bool


def prune(files: Sequence[Footer], shape: Shape, profile: Profile, partitions: PartitionMap) -> list[Pruned]:
    survivors, pruned = _survivors(files, shape, profile), []
    for number, footer in enumerate(files):
        values = partitions.values(footer) if partitions.columns else None
        elsewhere = values is not None and not _partition_might_match(values, profile.partitions)
        if elsewhere and shape.partition_in_key:
            pruned.append(Pruned(footer, (), "partition holds no source row", False))
        elif number in survivors:
            reason = "another partition: guard against moved keys" if elsewhere else "statistics admit source keys"
            pruned.append(Pruned(footer, tuple(survivors[number]), reason, elsewhere))
        else:
            reason = "statistics exclude every source key" if footer.rows else "no rows"
            pruned.append(Pruned(footer, (), reason, False))
    return pruned


def _survivors(files: Sequence[Footer], shape: Shape, profile: Profile) -> dict[int, list[int]]:
    """The row groups that may hold a source key, by the number of their file.

    A composite key cannot be in a row group if any one of its columns excludes it.
    """
    groups = [group for footer in files for group in footer.row_groups]
    might = np.array([group.rows > 0 for group in groups], dtype=bool)
    for name, intervals in profile.intervals.items():
        silent = _tell_nothing(files, shape, name)
        bounds = [group.bounds.get(name) for group in groups]
        if silent:
            owners = [footer for footer in files for _ in footer.row_groups]
            bounds = [None if _kind(f) in silent else b for f, b in zip(owners, bounds, strict=True)]
        might &= each_might_match(bounds, intervals)
    starts = list(accumulate([len(footer.row_groups) for footer in files], initial=0))
    survivors: dict[int, list[int]] = {}
    for place in np.flatnonzero(might).tolist():
        number = bisect_right(starts, place) - 1
        survivors.setdefault(number, []).append(place - starts[number])
    return survivors


_Kind = tuple[int, tuple[str, ...]]


def _kind(footer: Footer) -> _Kind:
    return id(footer.schema), tuple(footer.partition)


def _tell_nothing(files: Sequence[Footer], shape: Shape, name: str) -> set[_Kind]:
    """The kinds of files whose bounds of a column say nothing of its values."""
    kinds = {_kind(footer): footer for footer in files}
    return {kind for kind, footer in kinds.items() if _tells_nothing(footer, shape, name)}


def _tells_nothing(footer: Footer, shape: Shape, name: str) -> bool:
    """Do a column's bounds say nothing of its values?

    The path's word counts for a partition column, whatever the file stores. Decimals of a file whose target is a
    float are rounded: 0.10 becomes 0.1, which is a little more than the bound says.
    """
    if name in shape.partitions and name in footer.partition:
        return True
    if name not in footer.schema.names:
        return False
    own, common = (arrays.plain_type(s.field(name).type) for s in (footer.schema, shape.schema))
    return bool(pa.types.is_decimal(own) and pa.types.is_floating(common))


def _partition_might_match(values: tuple[Any, ...], source_partitions: frozenset[tuple[Any, ...]]) -> bool:
    """`Unreadable` values equal nothing but prove nothing either."""
    return any(isinstance(v, Unreadable) for v in values) or values in source_partitions
