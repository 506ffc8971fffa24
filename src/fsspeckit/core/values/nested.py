"""Nested arrays taken apart and put together again: only what they show, nothing from beneath a null or a slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t


def fields_of(dtype: pa.DataType) -> list[pa.Field]:
    """The fields that `parts` speaks of: of a map key and item, not the pair."""
    return [dtype.key_field, dtype.item_field] if t.is_map(dtype) else [dtype.field(i) for i in range(dtype.num_fields)]


def parts(array: pa.Array) -> tuple[Any, list[pa.Array]]:
    """How many values each row of a list or map has, and the values. Those of a struct are null where it is."""
    if t.is_struct(array.type):
        return np.ones(len(array), dtype=np.int64), array.flatten()
    if t.is_map(array.type):
        return _map_parts(array)
    return pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False), [array.flatten()]


def _map_parts(array: pa.MapArray) -> tuple[Any, list[pa.Array]]:
    valid = array.filter(array.is_valid())
    offsets = valid.offsets.to_numpy()
    lengths = np.zeros(len(array), dtype=np.int64)
    lengths[array.is_valid().to_numpy(zero_copy_only=False)] = np.diff(offsets[: len(valid) + 1])
    start, count = (int(offsets[0]), int(offsets[len(valid)] - offsets[0])) if len(valid) else (0, 0)
    return lengths, [valid.keys.slice(start, count), valid.items.slice(start, count)]


def put_together(dtype: pa.DataType, lengths: Any, values: Sequence[pa.Array], mask: pa.Array) -> pa.Array:
    """An array of `dtype` out of its parts; rows where `mask` is true are null.

    A null in a required field is taken for one beneath a null, where the Parquet writer wants a value all the same.
    """
    if t.is_struct(dtype):
        children = [_filled(child, field) for child, field in zip(values, dtype, strict=True)]
        if not children:
            return pa.array([None if null else {} for null in mask.to_pylist()], dtype)
        return pa.StructArray.from_arrays(children, fields=list(dtype), mask=mask)
    if t.is_map(dtype):
        return pa.MapArray.from_arrays(_offsets(lengths, np.int32), *values, dtype, mask=mask)
    if t.is_fixed_size_list(dtype):
        padded = _filled(_padded(values[0], mask, dtype.list_size), dtype.value_field)
        return pa.FixedSizeListArray.from_arrays(padded, type=dtype, mask=mask)
    wide = t.is_large_list(dtype)
    offsets = _offsets(lengths, np.int64 if wide else np.int32)
    return (pa.LargeListArray if wide else pa.ListArray).from_arrays(offsets, values[0], type=dtype, mask=mask)


def _offsets(lengths: Any, dtype: Any) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(dtype))


def _padded(values: pa.Array, mask: pa.Array, size: int) -> pa.Array:
    """A null list of fixed size has slots all the same."""
    if not mask.true_count:
        return values
    valid = ~mask.to_numpy(zero_copy_only=False)
    places = np.zeros((len(valid), size), dtype=np.int64)
    places[valid] = np.arange(len(values)).reshape(-1, size)
    empty = np.repeat(~valid, size)
    return values.take(pa.array(places.reshape(-1), mask=empty))


def _filled(array: pa.Array, field: pa.Field) -> pa.Array:
    if field.nullable or not array.null_count or t.is_null(array.type):
        return array
    places = np.arange(len(array))
    places[array.is_null().to_numpy(zero_copy_only=False)] = len(array)
    return pa.concat_arrays([array, _any_value(field.type)]).take(pa.array(places))


def _any_value(dtype: pa.DataType) -> pa.Array:
    """One value of the type, whichever."""
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
