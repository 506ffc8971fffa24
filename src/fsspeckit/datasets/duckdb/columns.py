"""The columns of a query: written so that Arrow carries their values, and free of the connection's Arrow settings.

DuckDB hands some types over in a form that says less than they do, and says nothing of it: a UHUGEINT above 38 digits
comes out negative, a TIME WITH TIME ZONE without its offset, a BIT as DuckDB's own bytes (all seen).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.errors import DatasetMergeError, SchemaMismatchError
from fsspeckit.core.values import arrays
from fsspeckit.datasets.duckdb.version import library_version

_HUGE = ("hugeint", "uhugeint")
_DECIMAL = "DECIMAL(38, 0)"
_NOT_CARRIED = ("time with time zone", "bit", "interval", "union", "bignum", "varint", "variant")
_NESTED = ("list", "array", "struct", "tuple", "map")


def select_list(relation: Any) -> str:
    """All columns under names of our own; `SchemaMismatchError` for a type that does not get into a Parquet file."""
    columns = enumerate(zip(relation.columns, relation.types, strict=True))
    return ", ".join(f"{_written(i, name, dtype)} AS c{i}" for i, (name, dtype) in columns)


def _written(number: int, name: str, dtype: Any) -> str:
    if dtype.id in _HUGE:  # a value that is too large is an error of DuckDB's
        return f"CAST(#{number + 1} AS {_DECIMAL})"
    wrong = _not_carried(dtype)
    if wrong is not None:
        other = _DECIMAL if wrong.id in _HUGE else "VARCHAR"
        raise SchemaMismatchError(
            f"Column {name!r} of the source is {dtype}; {wrong} cannot be stored in Parquet as it is. "
            f"Cast it to another type in the query, such as {other}."
        )
    return f"#{number + 1}"


def _not_carried(dtype: Any) -> Any:
    """The first type within a type that Arrow or Parquet does not carry; a struct needs fields with names."""
    if dtype.id not in _NESTED:
        return dtype if dtype.id in (*_HUGE, *_NOT_CARRIED) else None
    names = [name for name, _ in dtype.children]
    if dtype.id == "struct" and (not names or "" in names):
        return dtype
    within = (_not_carried(child) for _, child in dtype.children if not isinstance(child, int))
    return next((wrong for wrong in within if wrong is not None), None)


def check_booleans(schema: pa.Schema) -> None:
    """DuckDB 1.2 to 1.5.3 hands over whatever lies in memory for a boolean of eight bits within a list or struct."""
    within = (dtype for field in schema for dtype in _children(field.type))
    if library_version() < (1, 5, 4) and any(_any(_is_bool8, dtype) for dtype in within):
        raise DatasetMergeError(
            "With arrow_lossless_conversion this version of DuckDB returns wrong booleans within lists, structs and "
            "maps. SET arrow_lossless_conversion = false, or upgrade DuckDB to 1.5.4 or later.",
            operation="read",
        )


def carried_field(field: pa.Field, name: str) -> pa.Field:
    """The field of a column once it is `carried`."""
    odd = _any(_set_by_user, field.type) or _any(_loose_map, field.type)
    return pa.field(name, carried_type(field.type) if odd else field.type, field.nullable)


def carried(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """A column in the type of its `carried_field`."""
    if _any(_set_by_user, column.type):
        return arrays.plain(column).cast(dtype)
    return column.cast(dtype) if _any(_loose_map, column.type) else column


def _any(odd: Callable[[pa.DataType], bool], dtype: pa.DataType) -> bool:
    return odd(dtype) or any(_any(odd, child) for child in _children(dtype))


def _children(dtype: pa.DataType) -> list[pa.DataType]:
    return [dtype.field(i).type for i in range(dtype.num_fields)]


def _is_bool8(dtype: pa.DataType) -> bool:
    return isinstance(dtype, pa.Bool8Type)


def _set_by_user(dtype: pa.DataType) -> bool:
    """A view, or a boolean of eight bits: only settings such as `arrow_output_version` bring these."""
    view = t.is_string_view(dtype) or t.is_binary_view(dtype) or t.is_list_view(dtype) or t.is_large_list_view(dtype)
    return bool(view) or _is_bool8(dtype)


def _loose_map(dtype: pa.DataType) -> bool:
    """DuckDB 1.1 says that the keys of a map may be null."""
    return bool(t.is_map(dtype)) and bool(dtype.key_field.nullable)


def carried_type(dtype: pa.DataType) -> pa.DataType:
    """
    >>> carried_type(pa.list_view(pa.bool8())), carried_type(pa.string_view())
    (ListType(list<item: bool>), DataType(string))
    """
    if _is_bool8(dtype):
        return pa.bool_()
    if t.is_string_view(dtype):
        return pa.string()
    if t.is_binary_view(dtype):
        return pa.binary()
    if t.is_list_view(dtype):
        return pa.list_(_carried(dtype.value_field))
    return arrays.with_children(dtype, _carried) if t.is_nested(dtype) else arrays.plain_type(dtype)


def _carried(field: pa.Field) -> pa.Field:
    return field.with_type(carried_type(field.type))
