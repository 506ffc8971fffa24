"""Exact equality of Arrow arrays, down to the leaves of nested values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import nested

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def identical(left: Any, right: Any) -> bool:
    """Do two columns of one type have identical values? NaN is identical to NaN, -0.0 is not identical to 0.0."""
    if isinstance(left, pa.ChunkedArray) or isinstance(right, pa.ChunkedArray):
        left, right = (c if isinstance(c, pa.ChunkedArray) else pa.chunked_array([c]) for c in (left, right))
        if not nested.contains(left.type, t.is_floating):
            return bool(left.equals(right))
        return identical(*(c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in (left, right)))
    if len(left) != len(right) or left.null_count != right.null_count:
        return False
    if not nested.contains(left.type, t.is_floating):
        return bool(left.equals(right))
    return _same_float_bits(left, right) or not differing_rows(left, right).any()


def identical_rows(left: pa.Table, right: pa.Table) -> bool:
    """Are all columns of two tables of one schema `identical`?"""
    return all(identical(a, b) for a, b in zip(left.columns, right.columns, strict=True))


def same_bits(left: pa.Table, right: pa.Table) -> bool:
    """Do two tables of the same types have the same bits? If not, they may still be `identical`: NaN has many forms."""
    floats = [field.name for field in left.schema if t.is_floating(field.type)]
    others = [field.name for field in left.schema if field.name not in floats]
    if any(nested.contains(left.schema.field(name).type, t.is_floating) for name in others):
        return False
    return bool(left.select(others).equals(right.select(others))) and bool(
        _bits(left.select(floats)).equals(_bits(right.select(floats)))
    )


def _bits(floats: pa.Table) -> pa.ChunkedArray:
    """Columns of floats as integers."""
    rows = floats.to_struct_array()
    dtype = pa.struct([field.with_type(_BITS[field.type.bit_width]) for field in rows.type])
    return pa.chunked_array([chunk.view(dtype) for chunk in rows.chunks], dtype)


def _same_float_bits(left: pa.Array, right: pa.Array) -> bool:
    if t.is_nested(left.type):
        return False
    bits = _BITS[left.type.bit_width]
    return bool(left.view(bits).equals(right.view(bits)))


def differing_rows(left: Any, right: Any) -> Any:
    """The rows in which two columns of one type are not `identical`, as a NumPy mask."""
    if isinstance(left, pa.ChunkedArray):
        batches = pa.table([left, right], names=["left", "right"]).to_batches()
        return np.concatenate([np.zeros(0, dtype=bool), *(differing_rows(*batch.columns) for batch in batches)])
    if t.is_null(left.type):
        return np.zeros(len(left), dtype=bool)
    if t.is_nested(left.type):
        return _differing_nested(left, right)
    if t.is_decimal(left.type):  # as bytes: Arrow refuses to compare small decimals whose digits do not fit
        left, right = (array.view(pa.binary(array.type.byte_width)) for array in (left, right))
    unequal = _unequal_floats(left, right) if t.is_floating(left.type) else pc.not_equal(left, right)
    if left.null_count or right.null_count:
        unequal = pc.or_(unequal.fill_null(False), pc.xor(left.is_null(), right.is_null()))
    return unequal.to_numpy(zero_copy_only=False)


def _unequal_floats(left: pa.Array, right: pa.Array) -> pa.Array:
    bits = _BITS[left.type.bit_width]
    return pc.and_not(pc.not_equal(left.view(bits), right.view(bits)), pc.and_(_is_nan(left), _is_nan(right)))


def _is_nan(array: pa.Array) -> pa.Array:
    return pc.is_nan(array.cast(pa.float32()) if t.is_float16(array.type) else array)


def _differing_nested(left: pa.Array, right: pa.Array) -> Any:
    """Rows of which one is null, rows of other lengths, and rows with a value that differs."""
    nulls, other_nulls = (array.is_null().to_numpy(zero_copy_only=False) for array in (left, right))
    (lengths, children), (other_lengths, others) = nested.decompose(left), nested.decompose(right)
    differing = (nulls != other_nulls) | (lengths != other_lengths)
    if differing.any():
        comparable = pa.array(~differing)
        differing[~differing] = _differing_nested(left.filter(comparable), right.filter(comparable))
        return differing
    row_of_value = np.repeat(np.arange(len(left)), lengths)
    for child, other in zip(children, others, strict=True):
        differing[row_of_value[differing_rows(child, other)]] = True
    return differing
