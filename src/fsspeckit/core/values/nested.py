"""Decompose nested arrays into lengths and children, and compose them again.

Children have only visible values, none under a null or outside of a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t


def fields_of(dtype: pa.DataType) -> list[pa.Field]:
    """The fields of the children that `decompose` returns. Those of a map are key and item."""
    return [dtype.key_field, dtype.item_field] if t.is_map(dtype) else [dtype.field(i) for i in range(dtype.num_fields)]


def contains(dtype: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Does the type, or a type nested in it, pass the test?"""
    return bool(test(dtype)) or any(contains(dtype.field(i).type, test) for i in range(dtype.num_fields))


def decompose(array: pa.Array) -> tuple[Any, list[pa.Array]]:
    """The number of values in each row of a list or map, and the children. A null struct has null children."""
    if t.is_struct(array.type):
        return np.ones(len(array), dtype=np.int64), array.flatten()
    if t.is_map(array.type):
        valid = array.filter(array.is_valid())
        offsets = valid.offsets.to_numpy()
        lengths = np.zeros(len(array), dtype=np.int64)
        lengths[array.is_valid().to_numpy(zero_copy_only=False)] = np.diff(offsets[: len(valid) + 1])
        start, count = (int(offsets[0]), int(offsets[len(valid)] - offsets[0])) if len(valid) else (0, 0)
        return lengths, [valid.keys.slice(start, count), valid.items.slice(start, count)]
    return pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False), [array.flatten()]


def compose(dtype: pa.DataType, lengths: Any, values: Sequence[pa.Array], mask: pa.Array) -> pa.Array:
    """An array of `dtype` from its lengths and children. Rows where `mask` is true are null.

    Nulls in required fields are taken to be under a null. They are filled, since the Parquet writer needs a value.
    """
    if t.is_struct(dtype):
        children = [_fill_required(child, field) for child, field in zip(values, dtype, strict=True)]
        if not children:
            return pa.array([None if null else {} for null in mask.to_pylist()], dtype)
        return pa.StructArray.from_arrays(children, fields=list(dtype), mask=mask)
    if t.is_map(dtype):
        return pa.MapArray.from_arrays(_offsets(lengths, np.int32), *values, dtype, mask=mask)
    if t.is_fixed_size_list(dtype):
        padded = _fill_required(_pad_null_lists(values[0], mask, dtype.list_size), dtype.value_field)
        return pa.FixedSizeListArray.from_arrays(padded, type=dtype, mask=mask)
    wide = t.is_large_list(dtype)
    offsets = _offsets(lengths, np.int64 if wide else np.int32)
    return (pa.LargeListArray if wide else pa.ListArray).from_arrays(offsets, values[0], type=dtype, mask=mask)


def _offsets(lengths: Any, dtype: Any) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(dtype))


def _pad_null_lists(values: pa.Array, mask: pa.Array, size: int) -> pa.Array:
    """Add the slots of null lists: a list of fixed size has slots even if it is null."""
    if not mask.true_count:
        return values
    valid = ~mask.to_numpy(zero_copy_only=False)
    places = np.zeros((len(valid), size), dtype=np.int64)
    places[valid] = np.arange(len(values)).reshape(-1, size)
    return values.take(pa.array(places.reshape(-1), mask=np.repeat(~valid, size)))


def _fill_required(array: pa.Array, field: pa.Field) -> pa.Array:
    if field.nullable or not array.null_count or t.is_null(array.type):
        return array
    places = np.arange(len(array))
    places[array.is_null().to_numpy(zero_copy_only=False)] = len(array)
    return pa.concat_arrays([array, _any_value(field.type)]).take(pa.array(places))


def _any_value(dtype: pa.DataType) -> pa.Array:
    """An array with one arbitrary value of the type."""
    if t.is_struct(dtype) and dtype.num_fields:
        return pa.StructArray.from_arrays([_any_value(field.type) for field in dtype], fields=list(dtype))
    if t.is_fixed_size_list(dtype):
        values = pa.concat_arrays([_any_value(dtype.value_type)] * dtype.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=dtype)
    if t.is_nested(dtype):
        return pa.array([{} if t.is_struct(dtype) else []], dtype)
    if t.is_primitive(dtype) or t.is_decimal(dtype) or t.is_fixed_size_binary(dtype):
        return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(bytes(max(1, dtype.bit_width // 8)))])
    return pa.array([b""], pa.binary()).cast(dtype)


def has_null_in_required_field(column: Any) -> bool:
    """Has a nested value a null in a field that is not nullable?"""
    if isinstance(column, pa.ChunkedArray):
        return any(has_null_in_required_field(chunk) for chunk in column.chunks)
    if not t.is_nested(column.type) or t.is_union(column.type):  # Parquet cannot hold unions
        return False
    _, children = decompose(column.filter(column.is_valid()))
    return any(
        (not field.nullable and child.null_count) or has_null_in_required_field(child)
        for field, child in zip(fields_of(column.type), children, strict=True)
    )
