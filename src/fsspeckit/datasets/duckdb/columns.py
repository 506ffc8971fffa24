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
    return ", ".join(f"{_written(i, name, kind)} AS c{i}" for i, (name, kind) in columns)


def _written(number: int, name: str, kind: Any) -> str:
    if kind.id in _HUGE:  # a value that is too large is an error of DuckDB's
        return f"CAST(#{number + 1} AS {_DECIMAL})"
    wrong = _not_carried(kind)
    if wrong is not None:
        other = _DECIMAL if wrong.id in _HUGE else "VARCHAR"
        raise SchemaMismatchError(
            f"Column {name!r} of the source is {kind}; {wrong} cannot be stored in Parquet as it is. "
            f"Cast it to another type in the query, such as {other}."
        )
    return f"#{number + 1}"


def _not_carried(kind: Any) -> Any:
    """The first type within a type that Arrow or Parquet does not carry; a struct needs fields with names."""
    if kind.id not in _NESTED:
        return kind if kind.id in (*_HUGE, *_NOT_CARRIED) else None
    names = [name for name, _ in kind.children]
    if kind.id == "struct" and (not names or "" in names):
        return kind
    found = (_not_carried(child) for _, child in kind.children if not isinstance(child, int))
    return next((wrong for wrong in found if wrong is not None), None)


def check_booleans(schema: pa.Schema) -> None:
    """DuckDB 1.2 to 1.5.3 hands over whatever lies in memory for a boolean of eight bits within a list or struct."""
    within = (kind for field in schema for kind in _children(field.type))
    if library_version() < (1, 5, 4) and any(_any(_is_bool8, kind) for kind in within):
        raise DatasetMergeError(
            "With arrow_lossless_conversion this version of DuckDB returns wrong booleans within lists, structs and "
            "maps. SET arrow_lossless_conversion = false, or upgrade DuckDB to 1.5.4 or later.",
            operation="read",
        )


def settled_field(field: pa.Field, name: str) -> pa.Field:
    """The field of a column once it is `settled`."""
    odd = _any(_set_by_user, field.type) or _any(_loose_map, field.type)
    return pa.field(name, settled_type(field.type) if odd else field.type, field.nullable)


def settled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type of its `settled_field`."""
    if _any(_set_by_user, column.type):
        return arrays.plain(column).cast(kind)
    return column.cast(kind) if _any(_loose_map, column.type) else column


def _any(odd: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    return odd(kind) or any(_any(odd, child) for child in _children(kind))


def _children(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(i).type for i in range(kind.num_fields)]


def _is_bool8(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.Bool8Type)


def _set_by_user(kind: pa.DataType) -> bool:
    """A view, or a boolean of eight bits: only settings such as `arrow_output_version` bring these."""
    view = t.is_string_view(kind) or t.is_binary_view(kind) or t.is_list_view(kind) or t.is_large_list_view(kind)
    return bool(view) or _is_bool8(kind)


def _loose_map(kind: pa.DataType) -> bool:
    """DuckDB 1.1 says that the keys of a map may be null."""
    return bool(t.is_map(kind)) and bool(kind.key_field.nullable)


def settled_type(kind: pa.DataType) -> pa.DataType:
    """
    >>> settled_type(pa.list_view(pa.bool8())), settled_type(pa.string_view())
    (ListType(list<item: bool>), DataType(string))
    """
    if _is_bool8(kind):
        return pa.bool_()
    if t.is_string_view(kind):
        return pa.string()
    if t.is_binary_view(kind):
        return pa.binary()
    if t.is_list_view(kind):
        return pa.list_(_settled(kind.value_field))
    return arrays.with_children(kind, _settled) if t.is_nested(kind) else arrays.plain_type(kind)


def _settled(field: pa.Field) -> pa.Field:
    return field.with_type(settled_type(field.type))
