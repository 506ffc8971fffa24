"""Spark's names of types, as its key-value entry has them (`org.apache.spark.sql.parquet.row.metadata`)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.values import arrays

_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


def spark_type(dtype: Any, old: Any = None) -> Any:
    """A plain Arrow type as Spark writes it in JSON; `KeyError` if Spark has no such type.

    `old` is the entry of the same column before it changed. Only numbers change their type: other leaves, which may be
    INT96 timestamps, and the comments and collations of struct fields are kept.
    """
    if isinstance(old, str) and old != "void" and arrays.family(dtype) != "number":
        return old
    old = old if isinstance(old, dict) else {}
    if t.is_decimal(dtype) and dtype.precision <= 38:
        return f"decimal({dtype.precision},{dtype.scale})"
    if t.is_timestamp(dtype) and dtype.unit != "ns":
        return "timestamp" if dtype.tz else "timestamp_ntz"
    if t.is_struct(dtype):
        known = {field["name"]: field for field in old.get("fields", ())}
        return {"type": "struct", "fields": [_field(field, known.get(field.name, {})) for field in dtype]}
    if t.is_map(dtype):
        types = {
            "keyType": spark_type(dtype.key_type, old.get("keyType")),
            "valueType": spark_type(dtype.item_type, old.get("valueType")),
        }
        return {"type": "map", **types, "valueContainsNull": dtype.item_field.nullable}
    if arrays.family(dtype) == "list":
        element = spark_type(dtype.value_type, old.get("elementType"))
        return {"type": "array", "elementType": element, "containsNull": dtype.value_field.nullable}
    return _NAMES[dtype]


def _field(field: pa.Field, old: Any) -> dict[str, Any]:
    described = {"name": field.name, "type": None, "nullable": field.nullable, "metadata": {}}
    kept = {name: value for name, value in old.items() if name != "nullable"}
    return {**described, **kept, "type": spark_type(field.type, old.get("type"))}
