"""New columns of a row group: values replaced by position, and rows deleted."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import arrays

# Below one new value in this many, `replace_with_mask` is faster than `take`, above it up to eight times slower.
_MASK_RATIO = 16


def patched(old: pa.ChunkedArray, positions: Any, new: pa.ChunkedArray) -> pa.ChunkedArray:
    """`old` with the values `new`, of the same type, at ascending positions."""
    if len(positions) == len(old):
        return new
    if not len(positions):
        return old
    assert len(positions) == len(new)
    if old.num_chunks == 1 and len(positions) < len(old) // _MASK_RATIO and _has_fixed_width(old.type):
        mask = _mask(len(old), positions)
        return pa.chunked_array([pc.replace_with_mask(old.chunk(0), mask, arrays.one_array(new))])
    order = np.arange(len(old), dtype=np.int64)
    order[positions] = len(old) + np.arange(len(positions))
    both = pa.chunked_array([*old.chunks, *new.chunks], old.type)
    return pc.take(both, pa.array(order), boundscheck=False)


def _has_fixed_width(dtype: pa.DataType) -> bool:
    """Has each value the same number of bits? Arrow cannot replace decimals of 32 and 64 bits, nor durations."""
    is_decimal = t.is_decimal128(dtype) or t.is_decimal256(dtype)
    is_primitive = t.is_primitive(dtype) and not t.is_duration(dtype)
    return bool(is_primitive or is_decimal or t.is_fixed_size_binary(dtype))


def _mask(rows: int, positions: Any) -> pa.BooleanArray:
    """A mask of `rows` values that is true at the positions. PyArrow takes ten times as long to pack the bits."""
    mask = np.zeros(rows, dtype=bool)
    mask[positions] = True
    packed = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), rows, [None, packed])


def without_rows(column: pa.ChunkedArray, deleted: Any) -> pa.ChunkedArray:
    """A column without the values at the `deleted` positions."""
    if not len(deleted):
        return column
    return column.filter(pc.invert(_mask(len(column), np.asarray(deleted, dtype=np.int64))))


def is_dictionary(column: pa.ChunkedArray | None, dtype: pa.DataType) -> TypeGuard[pa.ChunkedArray]:
    """Was a column of this type read as dictionary indices?"""
    return column is not None and column.type == pa.dictionary(pa.int32(), dtype)


def patched_dictionary(
    old: pa.ChunkedArray, positions: Any, new: pa.ChunkedArray, deleted: Any = ()
) -> pa.ChunkedArray:
    """`old` with the values `new` at ascending positions, without the `deleted` rows.

    The new dictionary has only values that a row has: replaced and deleted values must not stay in the file.
    """
    old, new = old.chunk(0), arrays.one_array(new)
    dictionary = old.dictionary
    indices = pc.index_in(new, dictionary)
    if indices.null_count > new.null_count:
        missing = new.filter(pc.and_(new.is_valid(), indices.is_null())).unique()
        dictionary = pa.concat_arrays([dictionary, missing])
        indices = pc.index_in(new, dictionary)
    column = patched(pa.chunked_array([old.indices]), positions, pa.chunked_array([indices]))
    rows = arrays.one_array(without_rows(column, deleted))
    used = np.bincount(rows.drop_null().to_numpy(), minlength=len(dictionary)) > 0
    if not used.all():
        new_indices = pa.array(np.cumsum(used) - 1, pa.int32())
        rows, dictionary = new_indices.take(rows), dictionary.filter(pa.array(used))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(rows, dictionary)])
