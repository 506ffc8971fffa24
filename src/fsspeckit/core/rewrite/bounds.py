"""What the footer says of a column's values, after some of them changed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.rewrite.page_bytes import NULLS, STATISTICS, Unknown
from fsspeckit.core.target import thrift
from fsspeckit.core.target.spans import COLUMN_INDEX, Chunk

# Field numbers of Statistics: those of which the order is not told come first.
_OLD_MAX, _OLD_MIN, _MAX, _MIN, _MAX_EXACT, _MIN_EXACT = 1, 2, 5, 6, 7, 8

# Longer bounds are written by nobody.
_LONGEST = 4096


def bounds_of(told: thrift.Struct) -> tuple[bytes | None, bytes | None]:
    """The lower and the upper bound. If there are only such as old readers look at, they should be made anew."""
    if not {_OLD_MAX, _OLD_MIN}.isdisjoint(told) and not {_MIN, _MAX} <= told.keys():
        raise Unknown
    low, high = (bytes(thrift.field(told, n, thrift.BINARY)) if n in told else None for n in (_MIN, _MAX))
    return low, high


def are_exact(told: thrift.Struct) -> bool:
    """Are bounds values of rows, as far as is told? Those that are cut short have the beginning of one in them."""
    return all(told.get(number, (thrift.TRUE, None))[0] == thrift.TRUE for number in (_MIN_EXACT, _MAX_EXACT))


def with_bounds(told: thrift.Struct, low: bytes | None, high: bytes | None, *, in_old_order: bool) -> thrift.Struct:
    """The statistics with these bounds, which are values of rows, where they had some; how many nulls there are stays,
    other counts do not. Old readers know numbers `in_old_order`, but not text."""
    fields = {NULLS: told[NULLS]} if NULLS in told else {}
    for bound, exact, old, value in ((_MAX, _MAX_EXACT, _OLD_MAX, high), (_MIN, _MIN_EXACT, _OLD_MIN, low)):
        if value is not None:
            fields[bound] = thrift.BINARY, value
            if exact in told:
                fields[exact] = thrift.TRUE, None
            if in_old_order and told.get(old) == told[bound]:
                fields[old] = fields[bound]
    return fields


def text_statistics(chunk: Chunk, left: pa.ChunkedArray, came: pa.ChunkedArray) -> thrift.Struct | None:
    """The statistics of a chunk in which some texts took the place of others, unless all texts have to be looked at.

    A page index is made of what the writer finds out.
    """
    if left.null_count or came.null_count or STATISTICS not in chunk.metadata or COLUMN_INDEX[0] in chunk.entry:
        return None
    told: thrift.Struct = chunk.metadata[STATISTICS][1]
    try:
        low, high = bounds_of(told)
    except (Unknown, thrift.Damaged):
        return None
    gone, new = (pc.min_max(texts.cast(pa.binary())).as_py() for texts in (left, came))
    if low is None or high is None or not are_exact(told) or not low < gone["min"] <= gone["max"] < high:
        return None
    low, high = min(low, new["min"]), max(high, new["max"])
    return with_bounds(told, low, high, in_old_order=False) if max(len(low), len(high)) <= _LONGEST else None
