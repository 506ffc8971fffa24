"""Pruning: prove from partition values and footer statistics that no source key is in a row group.

Conservative throughout: `MIGHT_MATCH` unless proven `CANNOT_MATCH`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.core.model import Bounds, Footer, Profile, RowGroup, Shape
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


def row_group_might_match(group: RowGroup, intervals: Mapping[str, Intervals]) -> bool:
    """A composite key cannot be in a row group if any one of its columns excludes it."""
    for name, of_column in intervals.items():
        if not bounds_might_match(group.bounds.get(name), of_column):
            return CANNOT_MATCH
    return group.rows > 0


@record
class Pruned:
    """What is left of one file: row groups to scan, and whether its partition is one of the source's."""

    footer: Footer
    row_groups: tuple[int, ...]
    reason: str
    guard: bool


def prune(files: Iterable[Footer], shape: Shape, profile: Profile, partitions: PartitionMap) -> list[Pruned]:
    telling: dict[tuple[int, frozenset[str]], Mapping[str, Intervals]] = {}  # once for all files of a schema
    pruned = []
    for footer in files:
        alike = id(footer.schema), frozenset(footer.partition)
        if alike not in telling:
            telling[alike] = {n: i for n, i in profile.intervals.items() if not _tells_nothing(footer, shape, n)}
        values = partitions.values(footer)
        elsewhere = values is not None and not _partition_might_match(values, profile.partitions)
        pruned.append(_prune_file(footer, telling[alike], elsewhere, shape.partition_in_key))
    return pruned


def _prune_file(footer: Footer, intervals: Mapping[str, Intervals], elsewhere: bool, partition_in_key: bool) -> Pruned:
    if elsewhere and partition_in_key:
        return Pruned(footer, (), "partition holds no source row", guard=False)
    survivors = tuple([i for i, group in enumerate(footer.row_groups) if row_group_might_match(group, intervals)])
    if not survivors:
        reason = "no rows" if footer.rows == 0 else "statistics exclude every source key"
        return Pruned(footer, (), reason, guard=False)
    reason = "another partition: guard against moved keys" if elsewhere else "statistics admit source keys"
    return Pruned(footer, survivors, reason, guard=elsewhere)


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
