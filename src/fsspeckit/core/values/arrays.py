"""The plain form of Arrow arrays, and lossless casts.

PyArrow's "safe" cast is not lossless: it casts float64 0.1 to float32, '1' to 1 and naive timestamps to zoned ones.
Here a value may only change its type within a family, and the cast back must return the same value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import nested
from fsspeckit.core.values.equality import identical

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
NANOS = {unit: 10**9 // units for unit, units in PER_SECOND.items()}
"""The nanoseconds of each unit."""


class ValueDoesNotFit(Exception):
    """A value did not survive the cast; `args[0]` is an example."""


class NullInRequiredField(ValueDoesNotFit):
    """A nested value has a null in a field that is not nullable."""


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """The type without dictionary encoding, views and extension types."""
    if t.is_primitive(dtype):  # the common case: files may have thousands of columns
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
    """The plain type without the zones of timestamps."""
    if t.is_timestamp(dtype):
        return pa.timestamp(dtype.unit)
    return with_children(dtype, lambda field: field.with_type(zoneless_type(field.type)))


def with_children(dtype: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A nested type with `change` applied to its fields; other types are returned unchanged."""
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
    """The same values in the plain type."""
    dtype = plain_type(column.type)
    if dtype == column.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([plain(chunk) for chunk in column.chunks], dtype)
    return _plain_array(column, dtype)


def plain_table(table: pa.Table) -> pa.Table:
    return pa.table([plain(column) for column in table.columns], names=table.column_names)


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
    # PyArrow's cast of list views loses values (seen).
    lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    indices = np.arange(lengths.sum()) + np.repeat(array.offsets.to_numpy() - ends + lengths, lengths)
    values = plain(array.values).take(pa.array(indices))
    return nested.compose(dtype, lengths, [values], mask)


def family(dtype: pa.DataType) -> str:
    """The family of a type. Values of one family are comparable, and may change their type within it."""
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
    """Are the families of two plain types the same, down to the leaves?"""
    if source == dtype or t.is_null(source):
        return True
    if family(source) != family(dtype):
        return False
    if t.is_struct(dtype):
        types, source_types = ({f.name: f.type for f in struct} for struct in (dtype, source))
        return types.keys() == source_types.keys() and all(castable(source_types[n], types[n]) for n in types)
    if t.is_map(dtype):
        return castable(source.key_type, dtype.key_type) and castable(source.item_type, dtype.item_type)
    if family(dtype) == "list":
        return castable(source.value_type, dtype.value_type)
    return True


def cast(array: Any, dtype: pa.DataType) -> Any:
    """Cast a plain array or chunked array to another plain type. `ValueDoesNotFit` if the cast changes a value.

    A struct field that the new type lacks is dropped if all its values are null. A field that it adds is null.
    """
    try:
        return _cast(array, dtype)
    except NullInRequiredField:
        raise NullInRequiredField(_example(array, dtype)) from None
    except (ValueDoesNotFit, pa.ArrowInvalid):
        raise ValueDoesNotFit(_example(array, dtype)) from None


def _cast(array: Any, dtype: pa.DataType) -> Any:
    if array.type == dtype:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, dtype) for chunk in array.chunks], dtype)
    if t.is_null(array.type):
        return null_array(len(array), dtype)
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


def null_array(length: int, dtype: pa.DataType) -> pa.Array:
    """An array of nulls. Required fields under them have values, since the Parquet writer needs some."""
    if not t.is_struct(dtype) and not t.is_fixed_size_list(dtype):
        return pa.nulls(length, dtype)
    slots = length if t.is_struct(dtype) else 0
    children = [null_array(slots, field.type) for field in nested.fields_of(dtype)]
    return nested.compose(dtype, None, children, pa.repeat(pa.scalar(True), length))


def _cast_nested(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    lengths, values = nested.decompose(array)
    mask, fields = array.is_null(), nested.fields_of(dtype)
    if t.is_struct(dtype):
        values = _reorder_children(values, array.type, dtype)
    if t.is_fixed_size_list(dtype) and (lengths[~mask.to_numpy(zero_copy_only=False)] != dtype.list_size).any():
        raise ValueDoesNotFit
    values = [_cast(value, field.type) for value, field in zip(values, fields, strict=True)]
    missing = mask.true_count if t.is_struct(dtype) else 0
    if any(not field.nullable and value.null_count > missing for value, field in zip(values, fields, strict=True)):
        raise NullInRequiredField
    return nested.compose(dtype, lengths, values, mask)


def fill_under_nulls(array: Any) -> Any:
    """The same values, with values under null structs whose fields are required."""
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([fill_under_nulls(chunk) for chunk in array.chunks], array.type)
    if not _has_required_fields(array.type):
        return array
    lengths, values = nested.decompose(array)
    return nested.compose(array.type, lengths, [fill_under_nulls(value) for value in values], array.is_null())


def _has_required_fields(dtype: pa.DataType) -> bool:
    """Does a type contain a struct, or a list of fixed size, with a required field?"""
    if not t.is_nested(dtype) or t.is_union(dtype):
        return False
    fields = nested.fields_of(dtype)
    has_slots = t.is_struct(dtype) or t.is_fixed_size_list(dtype)
    return any((has_slots and not field.nullable) or _has_required_fields(field.type) for field in fields)


def _reorder_children(values: list[pa.Array], source_type: pa.DataType, dtype: pa.DataType) -> list[pa.Array]:
    """The children of a struct in the order of another struct type."""
    if not has_unique_names(source_type) or not has_unique_names(dtype):
        raise ValueDoesNotFit
    by_name = dict(zip((f.name for f in source_type), values, strict=True))
    if any(by_name[name].null_count < len(by_name[name]) for name in by_name.keys() - {f.name for f in dtype}):
        raise ValueDoesNotFit
    length = len(values[0]) if values else 0
    return [by_name.get(f.name, pa.nulls(length)) for f in dtype]


def has_unique_names(dtype: pa.DataType) -> bool:
    """Has each field of a struct another name?"""
    return bool(len({f.name for f in dtype}) == dtype.num_fields)


def _convert(array: Any, dtype: pa.DataType) -> Any:
    if t.is_integer(array.type) and t.is_decimal(dtype):
        # Arrow demands the precision of the integer type, even if the values need less.
        wide = pa.decimal256(min(76, 20 + max(dtype.scale, 0)), dtype.scale)
        return array.cast(wide).cast(dtype)
    if t.is_decimal32(array.type) and t.is_integer(dtype):  # else Arrow raises "out of bounds" (seen)
        array = array.cast(pa.decimal128(9, array.type.scale))
    if t.is_decimal(array.type) and t.is_decimal(dtype) and array.type.scale > dtype.scale:
        return array.cast(dtype)  # raises if digits are lost
    if t.is_float16(dtype) or t.is_float16(array.type):  # Arrow cannot cast it to and from decimals
        return array.cast(pa.float64()).cast(dtype)
    if t.is_decimal(array.type) and t.is_floating(dtype):  # Arrow's own cast makes 0.35000000000000003 of 0.35
        return array.cast(pa.string()).cast(dtype)
    if t.is_date64(dtype) or t.is_date64(array.type):
        return array.cast(pa.date32()).cast(dtype)
    return array.cast(dtype)


def _example(array: Any, dtype: pa.DataType) -> Any:
    """One value that does not fit, by binary search."""
    while len(array) > 1:
        half = len(array) // 2
        left, right = array.slice(0, half), array.slice(half)
        array = right if fits(left, dtype) else left
    return display_value(array[0])


def fits(array: Any, dtype: pa.DataType) -> bool:
    """Can all values of a plain array be cast without a loss?"""
    try:
        _cast(array, dtype)
    except (ValueDoesNotFit, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def in_range(integers: Any, dtype: pa.DataType) -> npt.NDArray[np.bool_]:
    """Which integers, or nulls, are in the range of another integer type?"""
    own, other = (np.iinfo(one.to_pandas_dtype()) for one in (integers.type, dtype))
    low, high = (pa.scalar(bound, integers.type) for bound in (max(own.min, other.min), min(own.max, other.max)))
    inside = pc.and_(pc.greater_equal(integers, low), pc.less_equal(integers, high)).fill_null(True)
    return np.asarray(one_array(inside).to_numpy(zero_copy_only=False))


def display_value(value: pa.Scalar) -> Any:
    """A value for a message: a Python value, or Arrow's text where Python has no such value. Never raises."""
    if t.is_temporal(value.type) and getattr(value.type, "unit", None) == "ns":
        return _arrow_text(value)
    try:
        return value.as_py()
    except (ArithmeticError, LookupError, NotImplementedError, ValueError):  # distant years, unknown zones
        return _arrow_text(value)


def _arrow_text(value: pa.Scalar) -> str:
    try:
        if t.is_timestamp(value.type):  # without its zone, which may be unknown
            value = value.cast(pa.timestamp(value.type.unit))
        return str(value.cast(pa.string()).as_py())
    except pa.ArrowException:
        return f"a value of type {value.type}"


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as a single array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
