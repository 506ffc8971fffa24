"""Schema changes: columns and struct fields that only the source has, and wider types for values that do not fit.

Only changes that keep every stored value are made. Numbers get a wider type of the same kind: integers stay integers,
floats become doubles, decimals keep their scale. Everything else is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.values import arrays
from fsspeckit.core.values.unify import is_variant, unify

_INT64_DIGITS, _DOUBLE_DIGITS = 20, 17
ADVICE = "rewrite the data set (write_dataset, mode='overwrite')"


def evolved_type(target: pa.DataType, source: pa.DataType, *, widen: bool = True, by_spark: bool = False) -> Any:
    """The target's type with the struct fields that only the source has, and with wider numbers if `widen`.

    >>> evolved_type(pa.int32(), pa.int64())
    DataType(int64)
    >>> evolved_type(pa.struct({"a": pa.int32()}), pa.struct({"a": pa.int64(), "b": pa.string()}), widen=False)
    StructType(struct<a: int32, b: string>)
    """
    old, new = arrays.plain_type(target), arrays.plain_type(source)
    evolved = _evolved(old, new, widen, by_spark)
    return target if evolved == old else evolved


def _evolved(target: Any, source: Any, widen: bool, by_spark: bool) -> pa.DataType:
    family = arrays.family(target)
    if family != arrays.family(source) or is_variant(target):
        return target
    if family == "number":
        return _wider(target, source) if widen else target
    if family == "list":
        element = _evolved(target.value_type, source.value_type, widen, by_spark)
        return arrays.with_children(target, lambda field: field.with_type(element))
    if family == "map":
        item = target.item_field.with_type(_evolved(target.item_type, source.item_type, widen, by_spark))
        return pa.map_(target.key_field, item, target.keys_sorted)
    if family == "struct" and arrays.has_unique_names(target) and arrays.has_unique_names(source):
        types = {field.name: field.type for field in source}
        kept = [f.with_type(_evolved(f.type, types.get(f.name, f.type), widen, by_spark)) for f in target]
        known = {field.name for field in target}
        return pa.struct([*kept, *new_fields((f for f in source if f.name not in known), by_spark=by_spark)])
    return target


def _wider(target: Any, source: Any) -> pa.DataType:
    """A wider type of the same kind that holds more values of the source's type."""
    if t.is_floating(target):
        return unify(target, source)
    if t.is_integer(target):
        wide = unify(target, source if t.is_integer(source) else pa.int64())
        return wide if t.is_integer(wide) else pa.int64() if target.bit_width < 64 else target
    if t.is_decimal(source):
        digits = source.precision - source.scale
    else:
        digits = _INT64_DIGITS if t.is_integer(source) else _DOUBLE_DIGITS
    wide, most = (pa.decimal256, 76) if t.is_decimal256(target) else (pa.decimal128, 38)
    precision = min(most, digits + target.scale)
    return wide(precision, target.scale) if precision > target.precision else target


def new_fields(fields: Iterator[pa.Field], *, by_spark: bool) -> list[pa.Field]:
    """The fields as new columns of the target: nullable, plain, without metadata. Those without a type are left out."""
    types = [(field.name, new_column_type(field.type, by_spark=by_spark)) for field in fields]
    return [pa.field(name, dtype) for name, dtype in types if dtype is not None]


def new_column_type(dtype: pa.DataType, *, by_spark: bool) -> pa.DataType | None:
    """The type of a new column; `None` if the source's column has only nulls and no type.

    Half floats become floats. In a lake of Spark, which has no nanoseconds, timestamps are stored in microseconds.
    """
    dtype = arrays.plain_type(dtype)
    if t.is_null(dtype):
        return None
    if t.is_float16(dtype):
        return pa.float32()
    if t.is_timestamp(dtype) and dtype.unit == "ns" and by_spark:
        return pa.timestamp("us", dtype.tz)
    if t.is_struct(dtype):
        fields = new_fields(iter(dtype), by_spark=by_spark)
        return pa.struct(fields) if fields else None
    if not t.is_nested(dtype) or t.is_union(dtype):
        return dtype
    types = [new_column_type(dtype.field(i).type, by_spark=by_spark) for i in range(dtype.num_fields)]
    if t.is_map(dtype):
        types = [new_column_type(part, by_spark=by_spark) for part in (dtype.key_type, dtype.item_type)]
        return None if None in types else pa.map_(*types)
    return None if None in types else arrays.with_children(dtype, lambda f: pa.field(f.name, types[0]))


def without_untyped(source: pa.DataType, target: pa.DataType) -> pa.DataType:
    """The source's type without struct fields that have no type and that the target does not have."""
    source, target = arrays.plain_type(source), arrays.plain_type(target)
    if arrays.family(source) != arrays.family(target) or is_variant(target):
        return source
    if t.is_struct(source):
        known = {field.name: field.type for field in target}
        kept = (f for f in source if f.name in known or new_column_type(f.type, by_spark=False) is not None)
        return pa.struct([f.with_type(without_untyped(f.type, known.get(f.name, f.type))) for f in kept])
    if t.is_map(source):
        item = source.item_field.with_type(without_untyped(source.item_type, target.item_type))
        return pa.map_(source.key_field, item, source.keys_sorted)
    if arrays.family(source) == "list":
        element = without_untyped(source.value_type, target.value_type)
        return arrays.with_children(source, lambda field: field.with_type(element))
    return source


def added_paths(old: pa.DataType, new: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    """The struct fields that `new` has and `old` lacks, as `column.field`, with their types."""
    old, new = arrays.plain_type(old), arrays.plain_type(new)
    if arrays.family(old) != arrays.family(new):
        return
    if t.is_struct(new):
        types = {field.name: field.type for field in old}
        for field in new:
            if field.name in types:
                yield from added_paths(types[field.name], field.type, f"{path}.{field.name}")
            else:
                yield f"{path}.{field.name}", field.type
    elif t.is_map(new):
        yield from added_paths(old.item_type, new.item_type, f"{path}.value")
    elif arrays.family(new) == "list":
        yield from added_paths(old.value_type, new.value_type, f"{path}.element")


def lacks_fields(own: pa.DataType, common: pa.DataType) -> bool:
    """Does a file's type lack a struct field of the common type?"""
    return own != common and next(added_paths(own, common, ""), None) is not None


def check_fields(field: pa.Field, source: pa.DataType) -> None:
    """Refuse a source whose structs lack fields of the target, or have others."""
    missing = [path for path, _ in added_paths(source, field.type, field.name)]
    if missing:
        raise SchemaMismatchError(
            f"Struct fields missing from the source: {missing}. Source rows replace whole structs, so the values of "
            "these fields would be lost. Add them to the source."
        )
    extra = [path for path, _ in added_paths(field.type, source, field.name)]
    if extra:
        raise SchemaMismatchError(
            f"Struct fields of the source that the target does not have: {extra}. Leave them out, or let the target "
            "get them (on_schema_change='evolve')."
        )


def advice_for_value(source: pa.DataType, target: pa.DataType, *, fixed: bool, evolves: bool) -> str:
    """What to do about a value that the target's type cannot hold."""
    if fixed:
        return f"Key and partition columns never change their type. Change the value, or {ADVICE} with another type."
    if not evolves and evolved_type(target, source) != target:
        return "Change the value, or let the target's type grow (on_schema_change='evolve')."
    return f"Types are widened, but not changed in another way. Change the value, or {ADVICE} with another type."


def check_new_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse new columns that Spark and DuckDB could not distinguish from others."""
    by_lower: dict[str, str] = {}
    for name in (*known, *names):
        other = by_lower.setdefault(name.lower(), name)
        if other != name and name in names:
            raise SchemaMismatchError(
                f"The new column {name!r} differs from {other!r} only in case: Spark and DuckDB could not tell them "
                "apart. Rename it in the source."
            )


def check_not_renamed(missing: Sequence[pa.Field], added: Sequence[pa.Field], *, matches: bool) -> None:
    """Refuse what looks like a renamed column: one column is missing, and one of the same type is new.

    `matches`: source rows may replace rows of the target.
    """
    if len(missing) != 1 or len(added) != 1:
        return
    old, new = missing[0], added[0]
    if arrays.family(arrays.plain_type(old.type)) == arrays.family(arrays.plain_type(new.type)):
        otherwise = (
            "name the columns that matched rows get (update_columns)" if matches else "fill the old one with nulls"
        )
        raise SchemaMismatchError(
            f"The source has no column {old.name!r} and a new one of the same type, {new.name!r}. Columns are not "
            f"renamed: call it {old.name!r} in the source. If it is another column, {otherwise}."
        )
