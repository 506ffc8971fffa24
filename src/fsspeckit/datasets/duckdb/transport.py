"""Columns in a form that a foreign store keeps to the last bit, and back.

DuckDB has no `timestamp[ns, tz]`, `decimal256`, `float16` or `null`, normalises what it compares, takes field names
without regard to case and refuses a map with a key twice. So columns travel as what every store agrees on: integers,
booleans, bytes, and lists and structs of these. A float is its bits, a text its bytes, a map a list of pairs.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import nested

_INTEGERS = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def wire_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of a plain type travel.

    >>> wire_type(pa.timestamp("ns", "UTC")), wire_type(pa.string())
    (DataType(int64), DataType(binary))
    """
    if t.is_struct(kind) and kind.num_fields:
        return pa.struct([(f"f{i}", wire_type(kind.field(i).type)) for i in range(kind.num_fields)])
    if t.is_map(kind):
        return pa.large_list(wire_type(pa.struct([kind.key_field, kind.item_field])))
    if _is_list(kind):
        return pa.large_list(wire_type(kind.value_type))
    if t.is_boolean(kind) or t.is_integer(kind):
        return kind
    if _is_bytes(kind):
        return pa.large_binary() if t.is_large_string(kind) or t.is_large_binary(kind) else pa.binary()
    if t.is_null(kind) or t.is_struct(kind):
        return pa.int8()
    return _INTEGERS.get(kind.bit_width // 8, pa.binary())


def encode(array: pa.Array) -> pa.Array:
    """A plain array in its wire type."""
    kind = array.type
    wanted = wire_type(kind)
    if kind == wanted:
        return array
    if t.is_nested(kind):
        return _encode_nested(array, wanted)
    if t.is_null(kind):
        return pa.nulls(len(array), wanted)
    if _is_bytes(kind) or t.is_integer(wanted):
        return array.cast(wanted) if t.is_fixed_size_binary(kind) else array.view(wanted)
    return array.view(pa.binary(kind.bit_width // 8)).cast(wanted)


def decode(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """What `encode` was given, out of any array that holds the wire type's values."""
    if t.is_nested(kind):
        return _decode_nested(array, kind)
    if t.is_null(kind):
        return pa.nulls(len(array))
    wanted = wire_type(kind)
    array = array if array.type == wanted else array.cast(wanted)
    if array.type == kind:
        return array
    if t.is_fixed_size_binary(kind):
        return array.cast(kind)
    if _is_bytes(kind) or t.is_integer(wanted):
        return array.view(kind)
    return array.cast(pa.binary(kind.bit_width // 8)).view(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    text = t.is_string(kind) or t.is_large_string(kind)
    return bool(text or t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind))


def _encode_nested(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    mask = array.is_null()
    if t.is_integer(wanted):  # a struct without fields: null or not is all it says
        return pc.if_else(mask, pa.scalar(None, wanted), pa.scalar(0, wanted))
    if t.is_struct(array.type):
        children = [encode(array.field(i)) for i in range(wanted.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    lengths, values = nested.parts(array)
    if t.is_map(array.type):
        values = [pa.StructArray.from_arrays(values, fields=nested.fields_of(array.type))]
    return nested.put_together(wanted, lengths, [encode(values[0])], mask)


def _decode_nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    mask = array.is_null()
    if t.is_struct(kind):
        children = [decode(array.field(i), field.type) for i, field in enumerate(kind)]
        return nested.put_together(kind, None, children, mask)
    lengths, values = nested.parts(array)
    if t.is_map(kind):
        values = [values[0].field(0), values[0].field(1)]
    decoded = [decode(v, field.type) for v, field in zip(values, nested.fields_of(kind), strict=True)]
    return nested.put_together(kind, lengths, decoded, mask)


def encode_table(table: pa.Table) -> pa.Table:
    """A plain table on the wire: columns `c0`, `c1`, … whatever their names."""
    columns = [encode(_one(column)) for column in table.columns]
    return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


def decode_table(wire: pa.Table, schema: pa.Schema) -> pa.Table:
    """The plain table again, of wire columns in the schema's order."""
    columns = [decode(_one(column), field.type) for column, field in zip(wire.columns, schema, strict=True)]
    return pa.table(columns, schema=schema) if columns else schema.empty_table()


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def wire_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(f"c{i}", wire_type(field.type)) for i, field in enumerate(schema)])
