"""Order without a library's own idea of it: sort keys that every engine sorts alike, and covers of intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.values import arrays, keys

Intervals = list[tuple[Any, Any]]
_SIGN = np.int64(-(1 << 63))


def order_key(column: Any) -> pa.Array:
    """A plain column as `int64` or `large_binary` that sort as the values do; NaN is greatest, null stays null."""
    array = arrays.one_array(column)
    if t.is_floating(array.type):
        return _mapped(keys.canonical(array), lambda bits: np.where(bits < 0, bits ^ ~_SIGN, bits))
    if array.type == pa.uint64():
        return _mapped(keys.canonical(array), lambda bits: bits ^ _SIGN)
    if t.is_decimal(array.type):
        return _big_endian(array)
    return keys.canonical(array)


def keeps_order(dtype: pa.DataType) -> bool:
    """Do the canonical keys of this type sort as its values do already?"""
    return not (t.is_floating(dtype) or dtype == pa.uint64() or t.is_decimal(dtype))


def _mapped(bits: pa.Array, change: Any) -> pa.Array:
    values = bits.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(change(values), mask=bits.is_null().to_numpy(zero_copy_only=False))


def _big_endian(array: pa.Array) -> pa.Array:
    """Decimals lie in memory with the least byte first, in two's complement."""
    width = array.type.byte_width
    raw = array.view(pa.binary(width)).fill_null(b"\0" * width)
    data = np.frombuffer(raw.buffers()[1], dtype=np.uint8)[raw.offset * width : (raw.offset + len(raw)) * width]
    flipped = data.reshape(-1, width)[:, ::-1].copy()
    flipped[:, 0] ^= 0x80
    ordered = pa.Array.from_buffers(pa.binary(width), len(raw), [None, pa.py_buffer(flipped.tobytes())])
    masked = ordered.cast(pa.binary()).cast(pa.large_binary())
    return pa.compute.if_else(array.is_valid(), masked, pa.scalar(None, masked.type)) if array.null_count else masked


def merged(covers: Iterable[Sequence[tuple[Any, Any]] | None], limit: int = keys.MAX_INTERVALS) -> Intervals | None:
    """At most `limit` sorted, disjoint intervals over all covers, which are such; `None` if one of them is unknown.

    >>> merged([[(1, 2), (9, 9)], [(2, 4)]])
    [(1, 4), (9, 9)]
    >>> merged([[(1, 2), (4, 4), (90, 90)]], limit=2)
    [(1, 4), (90, 90)]
    """
    pieces: Intervals = []
    for cover in covers:
        if cover is None:
            return None
        both = _joined(sorted([*pieces, *cover], key=lambda piece: piece[0])) if pieces else list(cover)
        pieces = _condensed(both, limit)
    return pieces


def _joined(ordered: Intervals) -> Intervals:
    joined: Intervals = []
    for lower, upper in ordered:
        if joined and lower <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], upper))
        else:
            joined.append((lower, upper))
    return joined


def _condensed(pieces: Intervals, limit: int) -> Intervals:
    """Keep the widest gaps."""
    if len(pieces) <= limit:
        return pieces
    place = _byte_place(pieces) if isinstance(pieces[0][0], bytes) else lambda value: value
    gaps = [place(right[0]) - place(left[1]) for left, right in pairwise(pieces)]
    widest = sorted(sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: limit - 1])
    starts, ends = [0, *(i + 1 for i in widest)], [*widest, len(pieces) - 1]
    return [(pieces[a][0], pieces[b][1]) for a, b in zip(starts, ends, strict=True)]


def _byte_place(pieces: Intervals) -> Any:
    """Distance by the eight bytes after the common prefix: good enough to choose gaps."""
    first, last = pieces[0][0], pieces[-1][1]
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return lambda value: int.from_bytes(value[shared : shared + 8].ljust(8, b"\0"), "big")
