"""Some rows of a column replaced, without touching the others more than once.

Concatenating old and new values and taking them in order costs several times as much: a copy with some places
overwritten took 0.13 ms where that took 0.6, slices laid end to end 1 ms where that took 2 (200,000 rows).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.values import arrays

# From so many rows in a slice on, on average, slices are quicker than `take` (measured on text).
_LONG_SLICES = 200
_OFFSETS_END = 2**31 - 1


def patched(old: pa.ChunkedArray, positions: Any, new: pa.ChunkedArray) -> pa.ChunkedArray:
    """`old` with the values `new`, of the same type, at ascending positions."""
    if len(positions) == len(old):
        return new
    if not len(positions):
        return old
    if old.num_chunks == 1 and _has_fixed_width(old.type):
        return pa.chunked_array([_overwritten(old.chunk(0), positions, arrays.one_array(new))])
    if old.num_chunks == 1 and old.nbytes + new.nbytes < _OFFSETS_END:
        cuts = np.flatnonzero(np.diff(positions) != 1) + 1
        if _LONG_SLICES * 2 * len(cuts) < len(old):
            return pa.chunked_array([_in_slices(old.chunk(0), positions, cuts, arrays.one_array(new))])
    order = np.arange(len(old), dtype=np.int64)
    order[positions] = len(old) + np.arange(len(positions))
    return pa.chunked_array([*old.chunks, *new.chunks], old.type).take(pa.array(order))


def _has_fixed_width(dtype: pa.DataType) -> bool:
    """Whole bytes per value in one buffer: not bits, not extensions."""
    flat = t.is_primitive(dtype) or t.is_decimal(dtype) or t.is_fixed_size_binary(dtype)
    return bool(flat) and not t.is_boolean(dtype) and not t.is_null(dtype) and dtype.bit_width > 0


def _overwritten(old: pa.Array, positions: Any, new: pa.Array) -> pa.Array:
    width = old.type.bit_width // 8
    data = pa.allocate_buffer(len(old) * width)  # of Arrow's pool, which has it at hand
    values = _as_numbers(np.frombuffer(data, dtype=np.uint8), width)
    values[:] = _values(old, width)
    values[positions] = _values(new, width)
    mask = None
    if old.null_count or new.null_count:
        valid = _is_valid(old)
        valid[positions] = _is_valid(new)
        mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(old.type, len(old), [mask, data])


def _values(array: pa.Array, width: int) -> Any:
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return _as_numbers(data[array.offset * width : (array.offset + len(array)) * width], width)


def _as_numbers(data: Any, width: int) -> Any:
    return data.view(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")


def _is_valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False).copy()


def _in_slices(old: pa.Array, positions: Any, cuts: Any, new: pa.Array) -> pa.Array:
    """Runs of new values, and what stands between them."""
    pieces, at = [], 0
    starts, ends = np.concatenate([[0], cuts]).tolist(), np.concatenate([cuts, [len(positions)]]).tolist()
    for start, end in zip(starts, ends, strict=True):
        place = int(positions[start])
        pieces += [old.slice(at, place - at), new.slice(start, end - start)]
        at = place + end - start
    return pa.concat_arrays([*pieces, old.slice(at)])
