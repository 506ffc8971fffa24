"""Types that hold the values of two others, and columns whose type differs between files.

Readers take the schema of the first file for that of all files, and most cast the others to it. So a column may be
int32 in one file and int64 in another as long as every value fits both. A value that does not fit makes readers refuse
the data set, whichever file it is in. A missing struct field or another width of offsets does not matter to readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.values import arrays, nested

MixedTypes = Mapping[str, tuple[pa.DataType, ...]]
"""The columns whose type differs between files, with the types that are not the common one."""

_VARIANT = {"metadata", "value", "typed_value"}
_UNITS = ("s", "ms", "us", "ns")


class CannotUnify(Exception):
    """Two types have no common type."""


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
    family = arrays.family(a)
    if family != arrays.family(b):
        raise CannotUnify
    if family == "number":
        return _unify_numbers(a, b)
    if family == "text":
        return pa.large_string()
    if family == "binary":
        return pa.large_binary() if t.is_large_binary(a) or t.is_large_binary(b) else pa.binary()
    if family == "date":
        return pa.date32()
    if family in ("zoned timestamp", "naive timestamp"):
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)
    if family == "time":
        return pa.time64(max(a.unit, b.unit, "us", key=_UNITS.index))
    if family == "duration":
        return pa.duration(max(a.unit, b.unit, key=_UNITS.index))
    return _unify_nested(family, a, b)


def _unify_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if t.is_floating(a) and t.is_floating(b):
        return max(a, b, key=lambda dtype: dtype.bit_width)
    if t.is_floating(a) or t.is_floating(b):
        return pa.float64()
    if t.is_decimal(a) or t.is_decimal(b):
        return _unify_decimals(*(dtype if t.is_decimal(dtype) else pa.decimal128(20, 0) for dtype in (a, b)))
    for signed in (pa.int16(), pa.int32(), pa.int64()):
        if all(dtype.bit_width + t.is_unsigned_integer(dtype) <= signed.bit_width for dtype in (a, b)):
            return signed
    return pa.uint64() if t.is_unsigned_integer(a) and t.is_unsigned_integer(b) else pa.decimal128(20, 0)


def _unify_decimals(a: Any, b: Any) -> pa.DataType:
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    if precision > 76:
        raise CannotUnify
    wide = precision > 38 or t.is_decimal256(a) or t.is_decimal256(b)
    return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)


def _unify_nested(family: str, a: Any, b: Any) -> pa.DataType:
    if family == "list":
        element = _unify_fields(a.value_field, b.value_field)
        return pa.large_list(element) if t.is_large_list(a) or t.is_large_list(b) else pa.list_(element)
    if family == "map":
        return pa.map_(unify(a.key_type, b.key_type), _unify_fields(a.item_field, b.item_field))
    if is_variant(a) and is_variant(b):
        return unshredded(a)
    if family == "struct" and arrays.has_unique_names(a) and arrays.has_unique_names(b):
        left, right = ({field.name: field for field in dtype} for dtype in (a, b))
        both = {name: _unify_fields(left[name], right[name]) for name in left.keys() & right.keys()}
        return pa.struct([both.get(name, field.with_nullable(True)) for name, field in {**left, **right}.items()])
    raise CannotUnify


def _unify_fields(a: pa.Field, b: pa.Field) -> pa.Field:
    return a.with_type(unify(a.type, b.type)).with_nullable(a.nullable or b.nullable)


def is_variant(dtype: pa.DataType) -> bool:
    """Is it Spark's VARIANT, as Arrow reads it: a struct of binary values, and perhaps of shredded values?"""
    if not t.is_struct(dtype) or not {"metadata", "value"} <= {f.name for f in dtype} <= _VARIANT:
        return False
    return all(t.is_binary(dtype.field(name).type) for name in ("metadata", "value"))


def unshredded(dtype: pa.DataType) -> pa.DataType:
    """The type with every VARIANT unshredded. Any file of a VARIANT can hold unshredded rows."""
    if is_variant(dtype):
        return pa.struct([dtype.field("metadata"), dtype.field("value").with_nullable(True)])
    return arrays.with_children(dtype, lambda field: field.with_type(unshredded(field.type)))


def merge_type(target: pa.DataType, source: pa.DataType) -> pa.DataType:
    """The type of a column after the merge: the target's, with types of the source in place of null types.

    A VARIANT is unshredded if the source can only be cast to that.
    """
    target = _fill_null_types(target, source)
    loose = unshredded(target)
    return loose if loose != target and arrays.castable(arrays.plain_type(source), loose) else target


def _fill_null_types(target: pa.DataType, source: pa.DataType) -> pa.DataType:
    if not nested.contains(target, t.is_null):
        return target
    target, source = arrays.plain_type(target), arrays.plain_type(source)
    if t.is_null(target):
        return source
    if arrays.family(target) != arrays.family(source):
        return target
    if t.is_map(target):
        item = target.item_field
        return pa.map_(
            target.key_field, item.with_type(_fill_null_types(item.type, source.item_type)), target.keys_sorted
        )
    if t.is_struct(target):
        types = {f.name: f.type for f in source}
        return pa.struct([f.with_type(_fill_null_types(f.type, types.get(f.name, f.type))) for f in target])
    return arrays.with_children(target, lambda f: f.with_type(_fill_null_types(f.type, source.value_type)))


def mixed_types(schemas: Iterable[pa.Schema], common: pa.Schema) -> dict[str, tuple[pa.DataType, ...]]:
    """The columns that have another type than the `common` schema in one of the files.

    >>> files = [pa.schema({"n": pa.int32()}), pa.schema({"n": pa.int64()})]
    >>> mixed_types(files, files[1])
    {'n': (DataType(int32),)}
    """
    mixed: dict[str, list[pa.DataType]] = {}
    types = {field.name: field.type for field in common}
    for file in schemas:
        for field in file:
            if field.type == types.get(field.name, field.type):
                continue
            dtype = arrays.plain_type(types[field.name])
            own = _with_all_fields(arrays.plain_type(field.type), dtype)
            if _with_short_offsets(own) != _with_short_offsets(dtype) and own not in mixed.setdefault(field.name, []):
                mixed[field.name].append(own)
    return {name: tuple(types) for name, types in mixed.items()}


def types_differ(own: pa.DataType, common: pa.DataType) -> bool:
    """May a file's type hold other values than the common one? To Polars, text and categories are two types."""
    if own == common:
        return False
    if t.is_dictionary(own) != t.is_dictionary(common) and not t.is_null(own):
        return True
    own, common = arrays.plain_type(own), arrays.plain_type(common)
    return bool(_with_short_offsets(_with_all_fields(own, common)) != _with_short_offsets(common))


def columns_to_retype(rows: pa.Table, mixed: MixedTypes) -> set[str]:
    """The columns with a value that the type of one of the files cannot hold."""
    return {name for name, types in mixed.items() if not all(arrays.fits(rows.column(name), dtype) for dtype in types)}


def _with_all_fields(own: pa.DataType, common: pa.DataType) -> pa.DataType:
    """A file's type with all struct fields of the common type, in their order and nullability."""
    if own == common or is_variant(common) or arrays.family(own) != arrays.family(common):
        return common if is_variant(own) and is_variant(common) else own
    if t.is_struct(common) and arrays.has_unique_names(own) and arrays.has_unique_names(common):
        types = {field.name: field.type for field in own}
        return pa.struct([f.with_type(_with_all_fields(types.get(f.name, f.type), f.type)) for f in common])
    if t.is_map(common):
        item = common.item_field.with_type(_with_all_fields(own.item_type, common.item_type))
        return pa.map_(_with_all_fields(own.key_type, common.key_type), item)
    if arrays.family(common) == "list":
        element = common.value_field.with_type(_with_all_fields(own.value_type, common.value_type))
        return arrays.with_children(own, lambda _: element)
    return own


def _with_short_offsets(dtype: pa.DataType) -> pa.DataType:
    """The type with 32-bit offsets. Parquet stores no width of offsets."""
    if t.is_large_string(dtype):
        return pa.string()
    if t.is_large_binary(dtype):
        return pa.binary()
    if t.is_large_list(dtype):
        dtype = pa.list_(dtype.value_field)
    return arrays.with_children(dtype, lambda field: field.with_type(_with_short_offsets(field.type)))
