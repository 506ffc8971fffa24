"""Pruning: prove by partition values and footer statistics that a row group has no source key.

Pruning is conservative: `MIGHT_MATCH` unless `CANNOT_MATCH` is proven.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.core.dataset.partitions import PartitionMap, Unreadable
from fsspeckit.core.footer_columns import BoundsColumn, Footers
from fsspeckit.core.model import Bounds, Footer, Profile, Shape
from fsspeckit.core.values import arrays

MIGHT_MATCH = True
CANNOT_MATCH = False

Intervals = Sequence[tuple[Any, Any]] | None


def bounds_might_match(bounds: Bounds | None, intervals: Intervals) -> bool:
    """Could a value within `bounds` be in one of the sorted, disjoint intervals?"""
    if bounds is None or intervals is None:
        return MIGHT_MATCH
    if bounds.lower is None:  # nothing but nulls, and nulls match nothing
        return CANNOT_MATCH
    try:
        after = bisect_left(intervals, (bounds.upper,))  # intervals before it start below the upper bound
        starts_at_upper = after < len(intervals) and intervals[after][0] == bounds.upper
        return bool(starts_at_upper or (after and intervals[after - 1][1] >= bounds.lower))
    except TypeError:  # types that do not compare prove nothing
        return MIGHT_MATCH


def each_might_match(column: BoundsColumn, intervals: Intervals) -> npt.NDArray[np.bool_]:
    """`bounds_might_match` for each row group. Integers, the most common keys, are compared in one NumPy operation."""
    try:
        lower, upper = _numbers(column[0]), _numbers(column[1])
        starts, ends = (_numbers([interval[side] for interval in intervals or ()]) for side in (0, 1))
    except (TypeError, OverflowError):  # another type, too large, or unknown bounds
        each = zip(*column, strict=True)
        return np.array([bounds_might_match(_bounds(*values), intervals) for values in each], dtype=bool)
    if not intervals:
        return np.full(len(lower), MIGHT_MATCH if intervals is None else CANNOT_MATCH)
    after = np.searchsorted(starts, upper)
    might: npt.NDArray[np.bool_] = starts[np.minimum(after, len(starts) - 1)] == upper  # starts at the upper bound
    might |= (after > 0) & (ends[after - 1] >= lower)
    return might


def _bounds(lower: Any, upper: Any, nulls: int | None) -> Bounds | None:
    return None if lower is None and nulls is None else Bounds(lower, upper, nulls)


def _numbers(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Integers as an array. `array` refuses floats, which NumPy would round."""
    return np.frombuffer(array("q", values), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The row groups of one file that must be scanned. `guard`: the file is in a partition without source rows, and is
    scanned for moved keys only."""

    row_groups: tuple[int, ...]
    reason: str
    guard: bool = False


def prune(
    files: Footers, shape: Shape, profile: Profile, partitions: PartitionMap, whole: Iterable[int] = ()
) -> list[Pruned]:
    """Decide for each file which row groups are scanned.

    Files that are scanned as a `whole`, by number, lose rows without a source key: no row is deleted because of its
    statistics, which may be wrong.
    """
    pruned = [Pruned((), "no source key is in its range of keys")] * len(files)
    for number, rows in enumerate(files.rows):
        if not rows:
            pruned[number] = Pruned((), "no rows")
    for number, groups in _survivors(files, shape, profile).items():
        pruned[number] = Pruned(tuple(groups), "source keys may be in its range of keys")
    for number in whole:
        if groups := [group for group, rows in enumerate(files[number].row_groups) if rows.rows]:
            pruned[number] = Pruned(tuple(groups), "rows that the source does not have are deleted")
    if not shape.source_has_partitions:
        return pruned
    source_partitions = profile.partitions | profile.delete_partitions
    for number, footer in enumerate(files if partitions.columns else ()):
        values = partitions.values(footer)
        if values is None or _partition_might_match(values, source_partitions):
            continue
        if shape.partition_in_key:
            pruned[number] = Pruned((), "its partition gets no source row")
        elif groups_left := pruned[number].row_groups:
            pruned[number] = Pruned(
                groups_left, "in another partition; keys read to find rows that would move", guard=True
            )
    return pruned


def _survivors(files: Footers, shape: Shape, profile: Profile) -> dict[int, list[int]]:
    """The row groups that might have a source key, by file number.

    One column of a composite key is enough to exclude a row group.
    """
    might = np.array(files.group_rows) > 0
    starts = list(accumulate(files.group_counts, initial=0))
    for name, intervals in profile.intervals.items():
        possible = each_might_match(files.bounds(name), intervals)
        for number in _without_bounds(files, shape, name):
            possible[starts[number] : starts[number + 1]] = MIGHT_MATCH
        might &= possible
    survivors: dict[int, list[int]] = {}
    for place in np.flatnonzero(might).tolist():
        number = bisect_right(starts, place) - 1
        survivors.setdefault(number, []).append(place - starts[number])
    return survivors


def _without_bounds(files: Footers, shape: Shape, name: str) -> list[int]:
    """The files whose bounds of a column cannot be used."""
    if not (name in shape.partitions or any(_has_no_bounds(footer, shape, name) for footer in files.templates)):
        return []
    return [number for number, footer in enumerate(files) if _has_no_bounds(footer, shape, name)]


def _has_no_bounds(footer: Footer, shape: Shape, name: str) -> bool:
    """Are the bounds of a column unusable?

    The path gives the value of a partition column, whatever the file stores. Decimals of a file are rounded if the
    target's type is a float: 0.10 becomes 0.1, which is slightly above the bound.
    """
    if name in shape.partitions and name in footer.partition:
        return True
    if name not in footer.schema.names:
        return False
    own, common = (arrays.plain_type(s.field(name).type) for s in (footer.schema, shape.schema))
    return bool(pa.types.is_decimal(own) and pa.types.is_floating(common))


def _partition_might_match(values: tuple[Any, ...], source_partitions: frozenset[tuple[Any, ...]]) -> bool:
    """`Unreadable` values equal no value and prove nothing."""
    return any(isinstance(v, Unreadable) for v in values) or values in source_partitions
