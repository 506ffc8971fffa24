"""Exact equality of Arrow arrays, and nulls where none may be, down to the leaves of nested values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def identical(left: Any, right: Any) -> bool:
    """Are two columns of one type the same value by value: NaN is NaN, -0.0 is not 0.0?"""
    if isinstance(left, pa.ChunkedArray) or isinstance(right, pa.ChunkedArray):
        left, right = (c if isinstance(c, pa.ChunkedArray) else pa.chunked_array([c]) for c in (left, right))
        if not _holds_float(left.type):
            return bool(left.equals(right))
        return identical(*(c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in (left, right)))
    if len(left) != len(right) or left.null_count != right.null_count:
        return False
    if not _holds_float(left.type):
        return bool(left.equals(right))
    return _identical_nested(left, right) if t.is_nested(left.type) else _identical_floats(left, right)


def identical_rows(left: pa.Table, right: pa.Table) -> bool:
    """Are two tables of one schema `identical`, column by column?"""
    return all(identical(a, b) for a, b in zip(left.columns, right.columns, strict=True))


def same_bits(left: pa.Table, right: pa.Table) -> bool:
    """Are two tables of the same types the same, bit for bit? Others may still be `identical`: NaN has many bits."""
    floats = [field.name for field in left.schema if t.is_floating(field.type)]
    others = [field.name for field in left.schema if field.name not in floats]
    if any(_holds_float(left.schema.field(name).type) for name in others):
        return False
    return bool(left.select(others).equals(right.select(others))) and bool(
        _bits(left.select(floats)).equals(_bits(right.select(floats)))
    )


def _bits(floats: pa.Table) -> pa.ChunkedArray:
    """Columns of floats as whole numbers."""
    rows = floats.to_struct_array()
    dtype = pa.struct([field.with_type(_BITS[field.type.bit_width]) for field in rows.type])
    return pa.chunked_array([chunk.view(dtype) for chunk in rows.chunks], dtype)


def _identical_floats(left: pa.Array, right: pa.Array) -> bool:
    bits = _BITS[left.type.bit_width]
    if left.view(bits).equals(right.view(bits)):
        return True
    nan = pc.and_(_is_nan(left), _is_nan(right))
    same: bool = pc.all(pc.or_(pc.equal(left.view(bits), right.view(bits)), nan)).as_py() is not False
    return same and bool(left.is_null().equals(right.is_null()))


def _is_nan(array: pa.Array) -> pa.Array:
    return pc.is_nan(array.cast(pa.float32()) if t.is_float16(array.type) else array)


def _identical_nested(left: pa.Array, right: pa.Array) -> bool:
    if not left.is_null().equals(right.is_null()):
        return False
    valid = left.is_valid()
    left, right = left.filter(valid), right.filter(valid)
    if t.is_struct(left.type):
        pairs = zip(left.flatten(), right.flatten(), strict=True)
        return all(identical(a, b) for a, b in pairs)
    if t.is_map(left.type):
        return bool(_lengths(left).equals(_lengths(right))) and all(
            identical(a, b) for a, b in zip(_entries(left), _entries(right), strict=True)
        )
    return bool(pc.list_value_length(left).equals(pc.list_value_length(right))) and identical(
        left.flatten(), right.flatten()
    )


def lacks_required(column: Any) -> bool:
    """Is there a null within a nested value where its type says that there is none?"""
    if isinstance(column, pa.ChunkedArray):
        return any(lacks_required(chunk) for chunk in column.chunks)
    if not t.is_nested(column.type) or t.is_union(column.type):  # a union does not get into Parquet anyway
        return False
    column = column.filter(column.is_valid())
    if t.is_struct(column.type):
        parts = list(zip(column.type, column.flatten(), strict=True))
    elif t.is_map(column.type):
        parts = list(zip((column.type.key_field, column.type.item_field), _entries(column), strict=True))
    else:
        parts = [(column.type.value_field, column.flatten())]
    return any((not field.nullable and part.null_count) or lacks_required(part) for field, part in parts)


def _lengths(array: pa.MapArray) -> pa.Array:
    return pc.subtract(array.offsets.slice(1), array.offsets.slice(0, len(array)))


def _entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Keys and items of the slots that the array really covers."""
    start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return array.keys.slice(start, stop - start), array.items.slice(start, stop - start)


def _holds_float(dtype: pa.DataType) -> bool:
    if t.is_nested(dtype):
        return any(_holds_float(dtype.field(i).type) for i in range(dtype.num_fields))
    return bool(t.is_floating(dtype))
