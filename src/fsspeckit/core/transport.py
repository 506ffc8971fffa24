"""Columns in a form that a foreign store keeps to the last bit, and back.

DuckDB has no `timestamp[ns, tz]`, `decimal256`, `float16` or `null`, normalises what it compares, takes field names
without regard to case and refuses a map with a key twice. So columns travel as what every store agrees on: integers,
booleans, bytes, and lists and structs of these. A float is its bits, a text its bytes, a map a list of pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

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
    lengths, values = _map_entries(array) if t.is_map(array.type) else (_lengths(array), array.flatten())
    return pa.LargeListArray.from_arrays(_offsets(lengths, np.int64), encode(values), type=wanted, mask=mask)


def _lengths(array: pa.Array) -> Any:
    return pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)


def _map_entries(array: pa.MapArray) -> tuple[Any, pa.Array]:
    """Entries per row, and all entries of the rows that are not null as one struct array."""
    valid = array.filter(array.is_valid())
    offsets = valid.offsets.to_numpy()
    lengths = np.zeros(len(array), dtype=np.int64)
    lengths[array.is_valid().to_numpy(zero_copy_only=False)] = np.diff(offsets[: len(valid) + 1])
    start, count = (int(offsets[0]), int(offsets[len(valid)] - offsets[0])) if len(valid) else (0, 0)
    pair = [valid.keys.slice(start, count), valid.items.slice(start, count)]
    return lengths, pa.StructArray.from_arrays(pair, fields=[array.type.key_field, array.type.item_field])


def _offsets(lengths: Any, kind: Any) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(kind))


def _decode_nested(array: pa.Array, kind: pa.DataType) -> pa.Array:
    mask = array.is_null()
    if t.is_struct(kind):
        children = [_filled(decode(array.field(i), field.type), field) for i, field in enumerate(kind)]
        return _struct(children, kind, mask)
    lengths, values = _lengths(array), array.flatten()
    if t.is_map(kind):
        keys, items = decode(values.field(0), kind.key_type), decode(values.field(1), kind.item_type)
        return pa.MapArray.from_arrays(_offsets(lengths, np.int32), keys, items, kind, mask=mask)
    values = decode(values, kind.value_type)
    if t.is_fixed_size_list(kind):
        values = _filled(_padded(values, mask, kind.list_size), kind.value_field)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    if t.is_large_list(kind):
        return pa.LargeListArray.from_arrays(_offsets(lengths, np.int64), values, type=kind, mask=mask)
    return pa.ListArray.from_arrays(_offsets(lengths, np.int32), values, type=kind, mask=mask)


def _struct(children: list[pa.Array], kind: pa.DataType, mask: pa.Array) -> pa.Array:
    if children:
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    return pa.array([None if null else {} for null in mask.to_pylist()], kind)


def _padded(values: pa.Array, mask: pa.Array, size: int) -> pa.Array:
    """A null list of fixed size has slots all the same."""
    if not mask.true_count:
        return values
    valid = ~mask.to_numpy(zero_copy_only=False)
    places = np.zeros((len(valid), size), dtype=np.int64)
    places[valid] = np.arange(len(values)).reshape(-1, size)
    empty = np.repeat(~valid, size)
    return values.take(pa.array(places.reshape(-1), mask=empty))


def _filled(array: pa.Array, field: pa.Field) -> pa.Array:
    """Where the parent is null a store has null for its parts too; Parquet's writer wants a value in a required one."""
    if field.nullable or not array.null_count:
        return array
    filler = decode(pa.array([_zero(field.type)], wire_type(field.type)), field.type)
    places = np.arange(len(array))
    places[array.is_null().to_numpy(zero_copy_only=False)] = len(array)
    return pa.concat_arrays([array, filler]).take(pa.array(places))


def _zero(kind: pa.DataType) -> Any:
    """Any value of the type, as Python writes it on the wire."""
    if t.is_struct(kind) and kind.num_fields:
        return {f"f{i}": _zero(field.type) for i, field in enumerate(kind)}
    if t.is_fixed_size_list(kind):
        return [_zero(kind.value_type)] * kind.list_size
    if t.is_nested(kind) and not t.is_struct(kind):
        return []
    if t.is_binary(wire_type(kind)) or t.is_large_binary(wire_type(kind)):
        fixed = not _is_bytes(kind) or t.is_fixed_size_binary(kind)
        return b"\0" * (kind.bit_width // 8) if fixed else b""
    return 0 if not t.is_boolean(kind) else False


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
