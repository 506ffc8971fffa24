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


class DoesNotFit(Exception):
    """A value did not survive the cast; `args[0]` is an example."""


class NullWithin(DoesNotFit):
    """A nested value has a null where the type requires a value."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values: without dictionary encoding, views and extension names."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if t.is_string_view(kind):
        return pa.large_string()
    if t.is_binary_view(kind):
        return pa.large_binary()
    return with_children(kind, plain_field)


def plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def zoneless_type(kind: pa.DataType) -> pa.DataType:
    """A plain type with naive timestamps in place of zoned ones."""
    if t.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    return with_children(kind, lambda field: field.with_type(zoneless_type(field.type)))


def with_children(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A nested type with its fields changed; any other as it is."""
    if t.is_struct(kind):
        return pa.struct([change(kind.field(i)) for i in range(kind.num_fields)])
    if t.is_map(kind):
        return pa.map_(change(kind.key_field).with_nullable(False), change(kind.item_field), kind.keys_sorted)
    if t.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    if t.is_list(kind):
        return pa.list_(change(kind.value_field))
    if t.is_large_list(kind) or t.is_large_list_view(kind) or t.is_list_view(kind):
        return pa.large_list(change(kind.value_field))
    return kind


def plain(column: pa.Array | pa.ChunkedArray) -> Any:
    """The same values in their plain type."""
    wanted = plain_type(column.type)
    if wanted == column.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([plain(chunk) for chunk in column.chunks], wanted)
    return _plain_array(column, wanted)


def _plain_array(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return plain(array.dictionary).take(array.indices)
    if t.is_run_end_encoded(array.type):
        return plain(pc.run_end_decode(array))
    if t.is_nested(array.type):
        return _plain_nested(array, wanted)
    return array.cast(wanted)


def _plain_nested(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    array = pa.concat_arrays([array]) if array.offset else array
    mask = array.is_null()
    if t.is_struct(wanted):
        return pa.StructArray.from_arrays(
            [plain(array.field(i)) for i in range(wanted.num_fields)], fields=list(wanted), mask=mask
        )
    if t.is_map(wanted):
        return pa.MapArray.from_arrays(array.offsets, plain(array.keys), plain(array.items), wanted, mask=mask)
    if t.is_fixed_size_list(wanted):
        values = array.values.slice(0, len(array) * wanted.list_size)
        return pa.FixedSizeListArray.from_arrays(plain(values), type=wanted, mask=mask)
    if t.is_list(array.type) or t.is_large_list(array.type):
        return type(array).from_arrays(array.offsets, plain(array.values), type=wanted, mask=mask)
    # List views by hand: PyArrow's cast of them loses values (seen).
    lengths = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    inside = np.arange(lengths.sum()) + np.repeat(array.offsets.to_numpy() - ends + lengths, lengths)
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, plain(array.values).take(pa.array(inside)), type=wanted, mask=mask)


def family(kind: pa.DataType) -> str:
    """Types of one family hold comparable values; a value may change its type within it."""
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        return "number"
    if t.is_string(kind) or t.is_large_string(kind):
        return "text"
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return "binary"
    if t.is_date(kind):
        return "date"
    if t.is_timestamp(kind):
        return "zoned timestamp" if kind.tz else "naive timestamp"
    if t.is_time(kind):
        return "time"
    if t.is_map(kind):
        return "map"
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return "list"
    if t.is_struct(kind):
        return "struct"
    return str(kind).split("[")[0]


def castable(source: pa.DataType, wanted: pa.DataType) -> bool:
    """May values of one plain type become the other, family by family down to the leaves?"""
    if source == wanted or t.is_null(source):
        return True
    if family(source) != family(wanted):
        return False
    if t.is_struct(wanted):
        ours, theirs = {f.name: f.type for f in wanted}, {f.name: f.type for f in source}
        return ours.keys() == theirs.keys() and all(castable(theirs[name], ours[name]) for name in ours)
    if t.is_map(wanted):
        return castable(source.key_type, wanted.key_type) and castable(source.item_type, wanted.item_type)
    if family(wanted) == "list":
        return castable(source.value_type, wanted.value_type)
    return True


def cast(array: Any, wanted: pa.DataType) -> Any:
    """Cast a plain array or chunked array to another plain type; `DoesNotFit` unless every value survives.

    A struct's field that the type lacks is dropped if it holds nothing but nulls, and one that it adds is null.
    """
    try:
        return _cast(array, wanted)
    except NullWithin:
        raise NullWithin(_example(array, wanted)) from None
    except (DoesNotFit, pa.ArrowInvalid):
        raise DoesNotFit(_example(array, wanted)) from None


def _cast(array: Any, wanted: pa.DataType) -> Any:
    if array.type == wanted:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, wanted) for chunk in array.chunks], wanted)
    if t.is_null(array.type):
        return nothing(len(array), wanted)
    if t.is_null(wanted) and array.null_count == len(array):
        return pa.nulls(len(array))
    if family(array.type) != family(wanted):
        raise DoesNotFit
    if t.is_nested(wanted) and not t.is_union(wanted):
        return _cast_nested(array, wanted)
    result = _convert(array, wanted)
    if identical(_convert(result, array.type), array):
        return result
    raise DoesNotFit


def nothing(length: int, wanted: pa.DataType) -> pa.Array:
    """Nulls of a type; beneath them are values where the type requires some, for the Parquet writer to pass over."""
    if not t.is_struct(wanted) and not t.is_fixed_size_list(wanted):
        return pa.nulls(length, wanted)
    slots = length if t.is_struct(wanted) else 0
    children = [nothing(slots, field.type) for field in nested.fields_of(wanted)]
    return nested.put_together(wanted, None, children, pa.repeat(pa.scalar(True), length))


def _cast_nested(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    lengths, values = nested.parts(array)
    mask, fields = array.is_null(), nested.fields_of(wanted)
    if t.is_struct(wanted):
        values = _by_name(values, array.type, wanted)
    if t.is_fixed_size_list(wanted) and (lengths[~mask.to_numpy(zero_copy_only=False)] != wanted.list_size).any():
        raise DoesNotFit
    values = [_cast(value, field.type) for value, field in zip(values, fields, strict=True)]
    missing = mask.true_count if t.is_struct(wanted) else 0
    if any(not field.nullable and value.null_count > missing for value, field in zip(values, fields, strict=True)):
        raise NullWithin
    return nested.put_together(wanted, lengths, values, mask)


def settled(array: Any) -> Any:
    """The same values, with some beneath every null struct whose fields require one."""
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([settled(chunk) for chunk in array.chunks], array.type)
    if not _requires(array.type):
        return array
    lengths, values = nested.parts(array)
    return nested.put_together(array.type, lengths, [settled(value) for value in values], array.is_null())


def _requires(kind: pa.DataType) -> bool:
    """Is there a struct with a required field within?"""
    if not t.is_nested(kind) or t.is_union(kind):
        return False
    fields = nested.fields_of(kind)
    own = not (t.is_map(kind) or t.is_list(kind) or t.is_large_list(kind)) and any(not f.nullable for f in fields)
    return own or any(_requires(f.type) for f in fields)


def _by_name(values: list[pa.Array], kind: pa.DataType, wanted: pa.DataType) -> list[pa.Array]:
    """A struct's children in another one's order."""
    if not has_names(kind) or not has_names(wanted):
        raise DoesNotFit
    own = dict(zip((f.name for f in kind), values, strict=True))
    if any(own[name].null_count < len(own[name]) for name in own.keys() - {f.name for f in wanted}):
        raise DoesNotFit
    length = len(values[0]) if values else 0
    return [own.get(f.name, pa.nulls(length)) for f in wanted]


def has_names(kind: pa.DataType) -> bool:
    """Can a struct's fields be told by their names?"""
    return bool(len({f.name for f in kind}) == kind.num_fields)


def _convert(array: Any, wanted: pa.DataType) -> Any:
    if t.is_integer(array.type) and t.is_decimal(wanted):
        # Arrow asks for the precision of the integer type, not of the values.
        whole = pa.decimal256(min(76, 20 + max(wanted.scale, 0)), wanted.scale)
        return array.cast(whole).cast(wanted)
    if t.is_decimal32(array.type) and t.is_integer(wanted):  # Arrow finds these out of bounds (seen)
        array = array.cast(pa.decimal128(9, array.type.scale))
    if t.is_decimal(array.type) and t.is_decimal(wanted) and array.type.scale > wanted.scale:
        return array.cast(wanted)  # raises on a loss
    if t.is_float16(wanted) or t.is_float16(array.type):  # no way to and from decimals
        return array.cast(pa.float64()).cast(wanted)
    if t.is_date64(wanted) or t.is_date64(array.type):
        return array.cast(pa.date32()).cast(wanted)
    return array.cast(wanted)


def _example(array: Any, wanted: pa.DataType) -> Any:
    """One value that does not survive, found by halving."""
    while len(array) > 1:
        half = len(array) // 2
        left, right = array.slice(0, half), array.slice(half)
        array = left if not _survives(left, wanted) else right
    return shown(array[0])


def _survives(array: Any, wanted: pa.DataType) -> bool:
    try:
        _cast(array, wanted)
    except (DoesNotFit, pa.ArrowInvalid, pa.ArrowNotImplementedError):
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
