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

from fsspeckit.core.footers import BoundsColumn, Footers
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


def each_might_match(column: BoundsColumn, intervals: Intervals) -> npt.NDArray[np.bool_]:
    """`bounds_might_match` of each row group. Whole numbers, which most keys are, are compared all at once."""
    try:
        lower, upper = _numbers(column[0]), _numbers(column[1])
        starts, ends = (_numbers([interval[side] for interval in intervals or ()]) for side in (0, 1))
    except (TypeError, OverflowError):  # of another type, too large, or not known
        each = zip(*column, strict=True)
        return np.array([bounds_might_match(_bounds(*values), intervals) for values in each], dtype=bool)
    if not intervals:
        return np.full(len(lower), MIGHT_MATCH if intervals is None else CANNOT_MATCH)
    after = np.searchsorted(starts, upper)
    might: npt.NDArray[np.bool_] = starts[np.minimum(after, len(starts) - 1)] == upper  # begins there
    might |= (after > 0) & (ends[after - 1] >= lower)
    return might


def _bounds(lower: Any, upper: Any, nulls: int | None) -> Bounds | None:
    return None if lower is None and nulls is None else Bounds(lower, upper, nulls)


def _numbers(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Numbers that are whole already: unlike NumPy, `array` does not round any."""
    return np.frombuffer(array("q", values), dtype=np.int64)


@record
class Pruned:
    """What is left of one file: row groups to scan, and whether its partition is one of the source's."""

    row_groups: tuple[int, ...]
    reason: str
    guard: bool = False


def prune(files: Footers, shape: Shape, profile: Profile, partitions: PartitionMap) -> list[Pruned]:
    """What is left of each file."""
    pruned = [Pruned((), "statistics exclude every source key")] * len(files)
    for number, rows in enumerate(files.rows):
        if not rows:
            pruned[number] = Pruned((), "no rows")
    for number, groups in _survivors(files, shape, profile).items():
        pruned[number] = Pruned(tuple(groups), "statistics admit source keys")
    for number, footer in enumerate(files if partitions.columns else ()):
        values = partitions.values(footer)
        if values is None or _partition_might_match(values, profile.partitions):
            continue
        if shape.partition_in_key:
            pruned[number] = Pruned((), "partition holds no source row")
        elif left := pruned[number].row_groups:
            pruned[number] = Pruned(left, "another partition: guard against moved keys", guard=True)
    return pruned


def _survivors(files: Footers, shape: Shape, profile: Profile) -> dict[int, list[int]]:
    """The row groups that may hold a source key, by the number of their file.

    A composite key cannot be in a row group if any one of its columns excludes it.
    """
    might = np.array(files.group_rows) > 0
    starts = list(accumulate(files.group_counts, initial=0))
    for name, intervals in profile.intervals.items():
        possible = each_might_match(files.bounds(name), intervals)
        for number in _silent(files, shape, name):
            possible[starts[number] : starts[number + 1]] = MIGHT_MATCH
        might &= possible
    survivors: dict[int, list[int]] = {}
    for place in np.flatnonzero(might).tolist():
        number = bisect_right(starts, place) - 1
        survivors.setdefault(number, []).append(place - starts[number])
    return survivors


def _silent(files: Footers, shape: Shape, name: str) -> list[int]:
    """The files whose bounds of a column say nothing of its values."""
    if not (name in shape.partitions or any(_tells_nothing(kind, shape, name) for kind in files.kinds)):
        return []
    return [number for number, footer in enumerate(files) if _tells_nothing(footer, shape, name)]


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
