"""The cast of source rows to the shape of the merge, and of stored columns to the common type of all files."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.model import DeleteRows, Shape
from fsspeckit.core.values import arrays, calendars, nested, zones
from fsspeckit.core.values.calendars import Calendar
from fsspeckit.core.values.evolve import advice_for_value
from fsspeckit.core.values.schema import plain_schema
from fsspeckit.core.values.shape import assumed_type

_NULLABLE_ADVICE = "Fill it, or rewrite the data set with a nullable column (write_dataset, mode='overwrite')."


def conform(table: pa.Table, shape: Shape) -> pa.Table:
    """The source in the column order and plain types of the shape. `SchemaMismatchError` if a value does not fit.

    Delete rows are marked in a column of their own. Only their key and sequence are cast; other columns are null. A
    delete row is left out if its key is beyond the range of the target's integers: no row has it. Other values that do
    not fit are refused, since they may be meant for a row: 0.1 of 64 bits for 0.1 of 32 bits.
    """
    is_delete = _delete_rows(table, shape)
    table = table.select(shape.source_columns)
    if is_delete is not None:  # PyArrow cannot filter views, which Polars gives
        table = arrays.plain_table(table).replace_schema_metadata(table.schema.metadata)
        may_exist = _may_exist(table, is_delete, shape)
        if not may_exist.all():
            table, is_delete = table.filter(pa.array(may_exist)), is_delete[may_exist]
        table = _cleared(table, is_delete, {*shape.keys, *shape.sequence})
    table = calendars.from_file_calendar(table, Calendar.of(table.schema.metadata), "the source")
    for name, path in shape.old_instants.items():
        calendars.from_file_calendar(table.select([name]), Calendar(dates=True, int96=True), path)
    fields = [shape.schema.field(name) for name in shape.source_columns]
    delete_rows = 0 if is_delete is None else is_delete.sum()
    columns = [_conformed(table.column(f.name), f, shape, int(delete_rows)) for f in fields]
    for column, field in zip(columns, fields, strict=True) if shape.max_lengths else ():
        _check_length(column, field.name, shape.max_lengths.get(field.name.lower()))
    plain = pa.table(columns, schema=plain_schema(fields))
    return plain if shape.deletes is None else plain.append_column(shape.deletes.flag, pa.array(is_delete))


def to_common_type(column: Any, dtype: pa.DataType, name: str, where: str) -> Any:
    """A column of a file in the plain type that all files have in common."""
    try:
        return arrays.cast(arrays.plain(column), dtype)
    except arrays.ValueDoesNotFit as error:
        raise SchemaMismatchError(
            f"Column {name!r} of {where} holds {error.args[0]!r}, which the common type {dtype} of all files cannot "
            "hold. Bring the files to one type first."
        ) from None


def _delete_rows(table: pa.Table, shape: Shape) -> npt.NDArray[np.bool_] | None:
    """Which rows are delete rows? `None` if there are none."""
    if shape.only_keys:
        return np.ones(table.num_rows, dtype=bool)
    return None if shape.deletes is None else _is_delete(table.column(shape.deletes.column), shape.deletes)


def _may_exist(table: pa.Table, is_delete: npt.NDArray[np.bool_], shape: Shape) -> npt.NDArray[np.bool_]:
    """All rows but the delete rows whose key is beyond the range of the target's integers."""
    may_exist = np.ones(table.num_rows, dtype=bool)
    for name in shape.keys:
        values, dtype = arrays.plain(table.column(name)), arrays.plain_type(shape.schema.field(name).type)
        if values.type != dtype and t.is_integer(values.type) and t.is_integer(dtype):
            may_exist &= arrays.in_range(values, dtype) | ~is_delete
    return may_exist


def _is_delete(column: pa.ChunkedArray, deletes: DeleteRows) -> npt.NDArray[np.bool_]:
    """Which rows are delete rows? A null is not a delete."""
    values = arrays.plain(column)
    if pa.types.is_null(values.type):
        return np.zeros(len(values), dtype=bool)
    if deletes.values is not None:
        wanted = arrays.cast(pa.chunked_array([pa.array(deletes.values)]), values.type)
        values = pc.is_in(values, arrays.one_array(wanted), skip_nulls=True)
    return np.asarray(arrays.one_array(values.fill_null(False)).to_numpy(zero_copy_only=False))


def _cleared(table: pa.Table, is_delete: npt.NDArray[np.bool_], kept: Collection[str]) -> pa.Table:
    """With null in the delete rows of all columns but those `kept`."""
    if not is_delete.any():
        return table
    rows = pa.array(np.arange(len(is_delete)), mask=is_delete)
    for index, name in enumerate(table.column_names):
        if name not in kept:
            table = table.set_column(index, table.field(index).with_nullable(True), table.column(index).take(rows))
    return table


def _check_length(column: pa.ChunkedArray, name: str, most: int | None) -> None:
    """Refuse longer text, as Spark does for `varchar(n)`."""
    if most is None or not len(column):
        return
    too_long = column.filter(pc.greater(pc.utf8_length(column), most))
    if len(too_long):
        raise SchemaMismatchError(
            f"Column {name!r} holds at most {most} characters, and {len(too_long)} row(s) of the source have more, "
            f"e.g. {too_long[0].as_py()!r}. Shorten them, or change the column's type to string. Nothing was changed."
        )


def _conformed(column: pa.ChunkedArray, field: pa.Field, shape: Shape, delete_rows: int) -> pa.ChunkedArray:
    dtype, values = arrays.plain_type(field.type), arrays.plain(column)
    if field.name in shape.local_times:
        assumed = assumed_type(values.type, field, field.name in shape.int96)
        values = _as_instants(values, assumed, field, shape.local_times[field.name])
    if field.name in shape.int96:
        values = values.cast(arrays.zoneless_type(values.type))
    try:
        result = arrays.cast(values, dtype)
        has_null = nested.has_null_in_required_field(result)
    except arrays.NullInRequiredField:
        has_null = True
    except arrays.ValueDoesNotFit as error:
        fixed = field.name in (*shape.keys, *shape.partitions)
        advice = advice_for_value(column.type, field.type, fixed=fixed, evolves=shape.evolves)
        own = shape.mixed[field.name][0] if shape.evolves and field.name in shape.mixed else field.type
        raise SchemaMismatchError(
            f"Column {field.name!r} is {column.type} in the source and {own} in the target: the value "
            f"{error.args[0]!r} would not survive. {advice}"
        ) from None
    if has_null:
        raise SchemaMismatchError(
            f"Column {field.name!r} ({field.type}) has a null in a nested field that may not be null. "
            f"{_NULLABLE_ADVICE}"
        )
    if field.name in shape.partitions:
        result = _empty_is_null(result, field.name, field.name in shape.keys)
    nulls = result.null_count - (0 if field.name in (*shape.keys, *shape.sequence) else delete_rows)
    if not field.nullable and nulls and field.name in shape.stored:
        raise SchemaMismatchError(
            f"Column {field.name!r} may not be null in the target; the source has {nulls} null(s) in it. "
            f"{_NULLABLE_ADVICE}"
        )
    return arrays.fill_under_nulls(result)


def _as_instants(values: pa.ChunkedArray, dtype: pa.DataType, field: pa.Field, zone: str) -> pa.ChunkedArray:
    try:
        return zones.as_instants(values, dtype, zone)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"Column {field.name!r} has a time in {zone} that {dtype} cannot hold: {error}. Change the value."
        ) from error


def _empty_is_null(column: pa.ChunkedArray, name: str, key: bool) -> pa.ChunkedArray:
    """Replace empty partition values by null, as Hive and Spark do: no folder can have an empty value in its name."""
    if arrays.family(column.type) not in ("text", "binary"):
        return column
    empty = pc.equal(pc.binary_length(column), 0).fill_null(False)
    rows = pc.sum(empty).as_py()
    if not rows:
        return column
    if key:
        raise SchemaMismatchError(
            f"Partition column {name!r} is a key column, and its value is empty in {rows} row(s) of the source. An "
            "empty value is stored as null, and null matches nothing; give these rows another value."
        )
    return pc.if_else(empty, pa.scalar(None, column.type), column)
