"""Values of Arrow arrays: their plain form, and casts that lose nothing.

PyArrow's "safe" cast is not a lossless one: it takes float64 0.1 to float32, '1' to 1 and naive times to zoned
ones. Here a value must come back unchanged, and may only change its type within a family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import nested
from fsspeckit.core.values.equality import identical


class ValueDoesNotFit(Exception):
    """A value did not survive the cast; `args[0]` is an example."""


class NullWithin(ValueDoesNotFit):
    """A nested value has a null where the type requires a value."""


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """The type of the values: without dictionary encoding, views and extension names."""
    if t.is_primitive(dtype):  # most are, and files have thousands of columns
        return dtype
    if isinstance(dtype, pa.BaseExtensionType):
        return plain_type(dtype.storage_type)
    if t.is_dictionary(dtype) or t.is_run_end_encoded(dtype):
        return plain_type(dtype.value_type)
    if t.is_string_view(dtype):
        return pa.large_string()
    if t.is_binary_view(dtype):
        return pa.large_binary()
    return with_children(dtype, plain_field)


def plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def zoneless_type(dtype: pa.DataType) -> pa.DataType:
    """A plain type with naive timestamps in place of zoned ones."""
    if t.is_timestamp(dtype):
        return pa.timestamp(dtype.unit)
    return with_children(dtype, lambda field: field.with_type(zoneless_type(field.type)))


def with_children(dtype: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A nested type with its fields changed; any other as it is."""
    if t.is_struct(dtype):
        return pa.struct([change(dtype.field(i)) for i in range(dtype.num_fields)])
    if t.is_map(dtype):
        return pa.map_(change(dtype.key_field).with_nullable(False), change(dtype.item_field), dtype.keys_sorted)
    if t.is_fixed_size_list(dtype):
        return pa.list_(change(dtype.value_field), dtype.list_size)
    if t.is_list(dtype):
        return pa.list_(change(dtype.value_field))
    if t.is_large_list(dtype) or t.is_large_list_view(dtype) or t.is_list_view(dtype):
        return pa.large_list(change(dtype.value_field))
    return dtype


def plain(column: pa.Array | pa.ChunkedArray) -> Any:
    """The same values in their plain type."""
    dtype = plain_type(column.type)
    if dtype == column.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([plain(chunk) for chunk in column.chunks], dtype)
    return _plain_array(column, dtype)


def _plain_array(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return plain(array.dictionary).take(array.indices)
    if t.is_run_end_encoded(array.type):
        return plain(pc.run_end_decode(array))
    if t.is_nested(array.type):
        return _plain_nested(array, dtype)
    return array.cast(dtype)


def _plain_nested(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    array = pa.concat_arrays([array]) if array.offset else array
    mask = array.is_null()
    if t.is_struct(dtype):
        return pa.StructArray.from_arrays(
            [plain(array.field(i)) for i in range(dtype.num_fields)], fields=list(dtype), mask=mask
        )
    if t.is_map(dtype):
        return pa.MapArray.from_arrays(array.offsets, plain(array.keys), plain(array.items), dtype, mask=mask)
    if t.is_fixed_size_list(dtype):
        values = array.values.slice(0, len(array) * dtype.list_size)
        return pa.FixedSizeListArray.from_arrays(plain(values), type=dtype, mask=mask)
    if t.is_list(array.type) or t.is_large_list(array.type):
        return type(array).from_arrays(array.offsets, plain(array.values), type=dtype, mask=mask)
    # List views by hand: PyArrow's cast of them loses values (seen).
    lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    inside = np.arange(lengths.sum()) + np.repeat(array.offsets.to_numpy() - ends + lengths, lengths)
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, plain(array.values).take(pa.array(inside)), type=dtype, mask=mask)


def family(dtype: pa.DataType) -> str:
    """Types of one family hold comparable values; a value may change its type within it."""
    if t.is_integer(dtype) or t.is_floating(dtype) or t.is_decimal(dtype):
        return "number"
    if t.is_string(dtype) or t.is_large_string(dtype):
        return "text"
    if t.is_binary(dtype) or t.is_large_binary(dtype) or t.is_fixed_size_binary(dtype):
        return "binary"
    if t.is_date(dtype):
        return "date"
    if t.is_timestamp(dtype):
        return "zoned timestamp" if dtype.tz else "naive timestamp"
    if t.is_time(dtype):
        return "time"
    if t.is_map(dtype):
        return "map"
    if t.is_list(dtype) or t.is_large_list(dtype) or t.is_fixed_size_list(dtype):
        return "list"
    if t.is_struct(dtype):
        return "struct"
    return str(dtype).split("[")[0]


def castable(source: pa.DataType, dtype: pa.DataType) -> bool:
    """May values of one plain type become the other, family by family down to the leaves?"""
    if source == dtype or t.is_null(source):
        return True
    if family(source) != family(dtype):
        return False
    if t.is_struct(dtype):
        ours, theirs = {f.name: f.type for f in dtype}, {f.name: f.type for f in source}
        return ours.keys() == theirs.keys() and all(castable(theirs[name], ours[name]) for name in ours)
    if t.is_map(dtype):
        return castable(source.key_type, dtype.key_type) and castable(source.item_type, dtype.item_type)
    if family(dtype) == "list":
        return castable(source.value_type, dtype.value_type)
    return True


def cast(array: Any, dtype: pa.DataType) -> Any:
    """Cast a plain array or chunked array to another plain type; `ValueDoesNotFit` unless every value survives.

    A struct's field that the type lacks is dropped if it holds nothing but nulls, and one that it adds is null.
    """
    try:
        return _cast(array, dtype)
    except NullWithin:
        raise NullWithin(_example(array, dtype)) from None
    except (ValueDoesNotFit, pa.ArrowInvalid):
        raise ValueDoesNotFit(_example(array, dtype)) from None


def _cast(array: Any, dtype: pa.DataType) -> Any:
    if array.type == dtype:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, dtype) for chunk in array.chunks], dtype)
    if t.is_null(array.type):
        return nothing(len(array), dtype)
    if t.is_null(dtype) and array.null_count == len(array):
        return pa.nulls(len(array))
    if family(array.type) != family(dtype):
        raise ValueDoesNotFit
    if t.is_nested(dtype) and not t.is_union(dtype):
        return _cast_nested(array, dtype)
    result = _convert(array, dtype)
    if identical(_convert(result, array.type), array):
        return result
    raise ValueDoesNotFit


def nothing(length: int, dtype: pa.DataType) -> pa.Array:
    """Nulls of a type; beneath them are values where the type requires some, for the Parquet writer to pass over."""
    if not t.is_struct(dtype) and not t.is_fixed_size_list(dtype):
        return pa.nulls(length, dtype)
    slots = length if t.is_struct(dtype) else 0
    children = [nothing(slots, field.type) for field in nested.fields_of(dtype)]
    return nested.put_together(dtype, None, children, pa.repeat(pa.scalar(True), length))


def _cast_nested(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    lengths, values = nested.parts(array)
    mask, fields = array.is_null(), nested.fields_of(dtype)
    if t.is_struct(dtype):
        values = _by_name(values, array.type, dtype)
    if t.is_fixed_size_list(dtype) and (lengths[~mask.to_numpy(zero_copy_only=False)] != dtype.list_size).any():
        raise ValueDoesNotFit
    values = [_cast(value, field.type) for value, field in zip(values, fields, strict=True)]
    missing = mask.true_count if t.is_struct(dtype) else 0
    if any(not field.nullable and value.null_count > missing for value, field in zip(values, fields, strict=True)):
        raise NullWithin
    return nested.put_together(dtype, lengths, values, mask)


def filled_beneath_nulls(array: Any) -> Any:
    """The same values, with some beneath every null struct whose fields require one."""
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([filled_beneath_nulls(chunk) for chunk in array.chunks], array.type)
    if not _requires(array.type):
        return array
    lengths, values = nested.parts(array)
    return nested.put_together(array.type, lengths, [filled_beneath_nulls(value) for value in values], array.is_null())


def _requires(dtype: pa.DataType) -> bool:
    """Is there a struct with a required field within?"""
    if not t.is_nested(dtype) or t.is_union(dtype):
        return False
    fields = nested.fields_of(dtype)
    own = not (t.is_map(dtype) or t.is_list(dtype) or t.is_large_list(dtype)) and any(not f.nullable for f in fields)
    return own or any(_requires(f.type) for f in fields)


def _by_name(values: list[pa.Array], source_type: pa.DataType, dtype: pa.DataType) -> list[pa.Array]:
    """A struct's children in another one's order."""
    if not has_names(source_type) or not has_names(dtype):
        raise ValueDoesNotFit
    own = dict(zip((f.name for f in source_type), values, strict=True))
    if any(own[name].null_count < len(own[name]) for name in own.keys() - {f.name for f in dtype}):
        raise ValueDoesNotFit
    length = len(values[0]) if values else 0
    return [own.get(f.name, pa.nulls(length)) for f in dtype]


def has_names(dtype: pa.DataType) -> bool:
    """Can a struct's fields be told by their names?"""
    return bool(len({f.name for f in dtype}) == dtype.num_fields)


def _convert(array: Any, dtype: pa.DataType) -> Any:
    if t.is_integer(array.type) and t.is_decimal(dtype):
        # Arrow asks for the precision of the integer type, not of the values.
        whole = pa.decimal256(min(76, 20 + max(dtype.scale, 0)), dtype.scale)
        return array.cast(whole).cast(dtype)
    if t.is_decimal32(array.type) and t.is_integer(dtype):  # Arrow finds these out of bounds (seen)
        array = array.cast(pa.decimal128(9, array.type.scale))
    if t.is_decimal(array.type) and t.is_decimal(dtype) and array.type.scale > dtype.scale:
        return array.cast(dtype)  # raises on a loss
    if t.is_float16(dtype) or t.is_float16(array.type):  # no way to and from decimals
        return array.cast(pa.float64()).cast(dtype)
    if t.is_date64(dtype) or t.is_date64(array.type):
        return array.cast(pa.date32()).cast(dtype)
    return array.cast(dtype)


def _example(array: Any, dtype: pa.DataType) -> Any:
    """One value that does not survive, found by halving."""
    while len(array) > 1:
        half = len(array) // 2
        left, right = array.slice(0, half), array.slice(half)
        array = left if not _survives(left, dtype) else right
    return shown(array[0])


def _survives(array: Any, dtype: pa.DataType) -> bool:
    try:
        _cast(array, dtype)
    except (ValueDoesNotFit, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def shown(value: pa.Scalar) -> Any:
    """A value for a message: as Python has it, else as Arrow spells it. It must not fail, for the message's sake."""
    if pa.types.is_temporal(value.type) and getattr(value.type, "unit", None) == "ns":
        return _spelled(value)
    try:
        return value.as_py()
    except (ArithmeticError, LookupError, NotImplementedError, ValueError):  # far years, unknown zones, nanoseconds
        return _spelled(value)


def _spelled(value: pa.Scalar) -> str:
    try:
        if t.is_timestamp(value.type):  # without its zone, which may be an unknown one
            value = value.cast(pa.timestamp(value.type.unit))
        return str(value.cast(pa.string()).as_py())
    except pa.ArrowException:
        return f"a value of type {value.type}"


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as a single array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
