"""The columns of a query in types that Parquet can store, whatever the connection's Arrow settings are.

DuckDB exports some types to Arrow with loss and without an error: a UHUGEINT of more than 38 digits becomes negative, a
TIME WITH TIME ZONE loses its offset, a BIT becomes DuckDB's internal bytes. We cast these types in SQL or refuse them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.errors import DatasetMergeError, SchemaMismatchError
from fsspeckit.core.values import arrays
from fsspeckit.core.values.nested import contains
from fsspeckit.datasets.duckdb.version import library_version

_HUGE = ("hugeint", "uhugeint")
_DECIMAL = "DECIMAL(38, 0)"
_UNSUPPORTED = ("time with time zone", "bit", "interval", "union", "bignum", "varint", "variant")
_NESTED = ("list", "array", "struct", "tuple", "map")


def select_list(relation: Any) -> str:
    """All columns as `c0`, `c1`, …; `SchemaMismatchError` for a type that Parquet cannot store."""
    columns = enumerate(zip(relation.columns, relation.types, strict=True))
    return ", ".join(f"{_expression(i, name, dtype)} AS c{i}" for i, (name, dtype) in columns)


def _expression(number: int, name: str, dtype: Any) -> str:
    if dtype.id in _HUGE:  # DuckDB raises an error if a value is too large
        return f"CAST(#{number + 1} AS {_DECIMAL})"
    unsupported = _find_unsupported(dtype)
    if unsupported is not None:
        alternative = _DECIMAL if unsupported.id in _HUGE else "VARCHAR"
        raise SchemaMismatchError(
            f"Column {name!r} of the source is {dtype}; {unsupported} cannot be stored in Parquet as it is. "
            f"Cast it to another type in the query, such as {alternative}."
        )
    return f"#{number + 1}"


def _find_unsupported(dtype: Any) -> Any:
    """The first type within a type that Arrow or Parquet cannot represent. The fields of a struct must have names."""
    if dtype.id not in _NESTED:
        return dtype if dtype.id in (*_HUGE, *_UNSUPPORTED) else None
    names = [name for name, _ in dtype.children]
    if dtype.id == "struct" and (not names or "" in names):
        return dtype
    nested = (_find_unsupported(child) for _, child in dtype.children if not isinstance(child, int))
    return next((dtype for dtype in nested if dtype is not None), None)


def check_booleans(schema: pa.Schema) -> None:
    """DuckDB 1.2 to 1.5.3 exports uninitialised memory for 8-bit booleans within lists and structs."""
    nested = (field.type.field(i).type for field in schema for i in range(field.type.num_fields))
    if library_version() < (1, 5, 4) and any(contains(dtype, _is_bool8) for dtype in nested):
        raise DatasetMergeError(
            "With arrow_lossless_conversion this version of DuckDB returns wrong booleans within lists, structs and "
            "maps. SET arrow_lossless_conversion = false, or upgrade DuckDB to 1.5.4 or later.",
            operation="read",
        )


def parquet_field(field: pa.Field, name: str) -> pa.Field:
    """The field that `parquet_column` produces."""
    changes = contains(field.type, _depends_on_settings) or contains(field.type, _has_nullable_keys)
    return pa.field(name, parquet_type(field.type) if changes else field.type, field.nullable)


def parquet_column(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Cast a column to the type of its `parquet_field`."""
    if contains(column.type, _depends_on_settings):
        return arrays.plain(column).cast(dtype)
    return column.cast(dtype) if contains(column.type, _has_nullable_keys) else column


def _is_bool8(dtype: pa.DataType) -> bool:
    return isinstance(dtype, pa.Bool8Type)


def _depends_on_settings(dtype: pa.DataType) -> bool:
    """Views and 8-bit booleans appear only with settings such as `arrow_output_version`."""
    view = t.is_string_view(dtype) or t.is_binary_view(dtype) or t.is_list_view(dtype) or t.is_large_list_view(dtype)
    return bool(view) or _is_bool8(dtype)


def _has_nullable_keys(dtype: pa.DataType) -> bool:
    """DuckDB 1.1 declares the keys of maps nullable."""
    return bool(t.is_map(dtype)) and bool(dtype.key_field.nullable)


def parquet_type(dtype: pa.DataType) -> pa.DataType:
    """
    >>> parquet_type(pa.list_view(pa.bool8())), parquet_type(pa.string_view())
    (ListType(list<item: bool>), DataType(string))
    """

    def child(field: pa.Field) -> pa.Field:
        return field.with_type(parquet_type(field.type))

    if _is_bool8(dtype):
        return pa.bool_()
    if t.is_string_view(dtype):
        return pa.string()
    if t.is_binary_view(dtype):
        return pa.binary()
    if t.is_list_view(dtype):
        return pa.list_(child(dtype.value_field))
    return arrays.with_children(dtype, child) if t.is_nested(dtype) else arrays.plain_type(dtype)
