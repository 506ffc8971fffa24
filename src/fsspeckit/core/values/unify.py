"""Types that hold the values of two others: of two files, or of the target and the source."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.values import arrays

_VARIANT = {"metadata", "value", "typed_value"}
_UNITS = ("s", "ms", "us", "ns")


class CannotUnify(Exception):
    """Two types have no common one."""


def unify(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The smallest type that holds the values of both.

    >>> unify(pa.int32(), pa.int64())
    DataType(int64)
    """
    if a == b:
        return a
    a, b = arrays.plain_type(a), arrays.plain_type(b)
    if a == b or t.is_null(b):
        return a
    if t.is_null(a):
        return b
    dtype = arrays.family(a)
    if dtype != arrays.family(b):
        raise CannotUnify
    if dtype == "number":
        return _unify_numbers(a, b)
    if dtype == "text":
        return pa.large_string()
    if dtype == "binary":
        return pa.large_binary() if t.is_large_binary(a) or t.is_large_binary(b) else pa.binary()
    if dtype == "date":
        return pa.date32()
    if dtype in ("zoned timestamp", "naive timestamp"):
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)
    if dtype == "time":
        return pa.time64(max(a.unit, b.unit, "us", key=_UNITS.index))
    if dtype == "duration":
        return pa.duration(max(a.unit, b.unit, key=_UNITS.index))
    return _unify_nested(dtype, a, b)


def _unify_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if t.is_floating(a) or t.is_floating(b):
        return max(a, b, key=lambda k: k.bit_width) if t.is_floating(a) and t.is_floating(b) else pa.float64()
    if t.is_decimal(a) or t.is_decimal(b):
        return _unify_decimals(*(k if t.is_decimal(k) else pa.decimal128(20, 0) for k in (a, b)))
    for candidate in (pa.int16(), pa.int32(), pa.int64()):
        if all(k.bit_width + t.is_unsigned_integer(k) <= candidate.bit_width for k in (a, b)):
            return candidate
    return pa.uint64() if t.is_unsigned_integer(a) and t.is_unsigned_integer(b) else pa.decimal128(20, 0)


def _unify_decimals(a: Any, b: Any) -> pa.DataType:
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    if precision > 76:
        raise CannotUnify
    wide = precision > 38 or t.is_decimal256(a) or t.is_decimal256(b)
    return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)


def _unify_nested(dtype: str, a: Any, b: Any) -> pa.DataType:
    if dtype == "list":
        element = _both(a.value_field, b.value_field)
        return pa.large_list(element) if t.is_large_list(a) or t.is_large_list(b) else pa.list_(element)
    if dtype == "map":
        return pa.map_(unify(a.key_type, b.key_type), _both(a.item_field, b.item_field))
    if is_variant(a) and is_variant(b):
        return unshredded(a)
    if dtype == "struct" and arrays.has_names(a) and arrays.has_names(b):
        ours, theirs = ({f.name: f for f in k} for k in (a, b))
        shared = {name: _both(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()}
        return pa.struct([shared.get(name, field.with_nullable(True)) for name, field in {**ours, **theirs}.items()])
    raise CannotUnify


def is_variant(dtype: pa.DataType) -> bool:
    """Spark's VARIANT, as Arrow shows it: bytes, and maybe some values shredded into a type."""
    if not t.is_struct(dtype) or not {"metadata", "value"} <= {f.name for f in dtype} <= _VARIANT:
        return False
    return all(t.is_binary(dtype.field(name).type) for name in ("metadata", "value"))


def unshredded(dtype: pa.DataType) -> pa.DataType:
    """The form that fits into every file of a VARIANT: a row need not be shredded."""
    if is_variant(dtype):
        return pa.struct([dtype.field("metadata"), dtype.field("value").with_nullable(True)])
    return arrays.with_children(dtype, lambda field: field.with_type(unshredded(field.type)))


def _both(a: pa.Field, b: pa.Field) -> pa.Field:
    return a.with_type(unify(a.type, b.type)).with_nullable(a.nullable or b.nullable)


def merge_type(dtype: pa.DataType, source: pa.DataType) -> pa.DataType:
    """The target's type, unless it has none, or is shredded in a way that the source is not."""
    dtype = _typed(dtype, source)
    loose = unshredded(dtype)
    return loose if loose != dtype and arrays.castable(arrays.plain_type(source), loose) else dtype


def _typed(dtype: pa.DataType, source: pa.DataType) -> pa.DataType:
    """The target's type, where it is null the source's: nulls without a type agree with any."""
    if not _holds_null(dtype):
        return dtype
    dtype, source = arrays.plain_type(dtype), arrays.plain_type(source)
    if t.is_null(dtype) or arrays.family(dtype) != arrays.family(source):
        return source if t.is_null(dtype) else dtype
    if t.is_map(dtype):
        item = dtype.item_field
        return pa.map_(dtype.key_field, item.with_type(_typed(item.type, source.item_type)), dtype.keys_sorted)
    if t.is_struct(dtype):
        known = {f.name: f.type for f in source}
        return pa.struct([f.with_type(_typed(f.type, known.get(f.name, f.type))) for f in dtype])
    return arrays.with_children(dtype, lambda field: field.with_type(_typed(field.type, source.value_type)))


def _holds_null(dtype: pa.DataType) -> bool:
    return bool(t.is_null(dtype)) or any(_holds_null(dtype.field(i).type) for i in range(dtype.num_fields))
