"""The columns of Spark DataFrames as Arrow columns, and those that Parquet cannot store."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException, PySparkValueError
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.values import arrays

_PLAIN_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")
# `CalendarIntervalType` does not exist before Spark 4.0.
_INTERVAL_NAMES = ("CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType")
_INTERVALS = tuple(getattr(T, name) for name in _INTERVAL_NAMES if hasattr(T, name))
# Spark has no unsigned integers.
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


def is_frame(source: Any) -> bool:
    """Is it a DataFrame of classic Spark or of Spark Connect?"""
    return type(source).__module__.startswith("pyspark.") and hasattr(source, "mapInArrow")


def spark_frame(source: Any) -> Any:
    """A frame of the pandas API on Spark as a DataFrame without its index; everything else as it is."""
    if type(source).__module__ != "pyspark.pandas.frame":
        return source
    return source.spark.frame()


def quoted(name: str) -> str:
    """A name as SQL and column expressions take it.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def collations(names: Iterable[str], schema: Any) -> dict[str, str]:
    """Text columns that Spark does not compare byte by byte, with their collation."""
    of_columns = {name: getattr(f.dataType, "collation", None) for name, f in zip(names, schema.fields, strict=True)}
    return {name: collation for name, collation in of_columns.items() if collation not in (None, "UTF8_BINARY")}


def frame_schema(frame: Any) -> pa.Schema:
    """The Arrow schema of a DataFrame, see `nullable_schema`."""
    return nullable_schema(arrow_schema(frame.schema))


def arrow_schema(schema: Any) -> pa.Schema:
    """The types in which Spark exchanges rows with Python."""
    options = {"error_on_duplicated_field_names_in_struct": True, "timezone": "UTC"}
    known = inspect.signature(to_arrow_schema).parameters  # before Spark 4.1, TIMESTAMP is always in UTC
    return to_arrow_schema(schema, **{k: v for k, v in options.items() if k in known})


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """Every column and element nullable, as Spark's writer makes them, and every zone UTC."""
    return pa.schema([pa.field(f.name, _nullable_type(f.type)) for f in schema])


def _nullable_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, "UTC")
    return arrays.with_children(data_type, lambda field: pa.field(field.name, _nullable_type(field.type)))


def spark_schema(schema: pa.Schema) -> T.StructType:
    """The Spark types of Arrow columns."""
    fields = []
    for field in schema:
        plain = arrays.plain_type(field.type)
        try:
            fields.append(T.StructField(field.name, from_arrow_type(_SIGNED.get(plain, plain)), nullable=True))
        except PySparkException as error:
            raise SchemaMismatchError(f"Spark has no type for column {field.name!r} of {field.type}.") from error
    return T.StructType(fields)


def with_plain_names(frame: Any) -> Any:
    """A frame for `mapInArrow`, which finds columns by name: names must differ and need no quotes."""
    names = frame.columns
    if all(map(_PLAIN_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names):
        return frame
    return frame.toDF(*(f"c{i}" for i in range(len(names))))


def arrow_compatible(frame: Any) -> Any:
    """A frame that `mapInArrow` accepts: elements of type void, as in `array()`, become nullable."""
    try:
        fields = list(frame.schema.fields)
    except PySparkValueError as error:  # an interval, before Spark 4.0
        raise SchemaMismatchError(
            f"A column of the source has a type that PySpark does not know: {error}. Cast it to another type, such as "
            "string."
        ) from error
    for field in fields:
        check_storable(field)
    new_types = [_with_nullable_voids(field.dataType) for field in fields]
    if new_types == [field.dataType for field in fields]:
        return frame  # `select` makes ten calls to Java for each column
    columns = [F.col(quoted(field.name)) for field in fields]
    return frame.select(
        [
            column if new_type == field.dataType else column.cast(new_type).alias(field.name)
            for column, new_type, field in zip(columns, new_types, fields, strict=True)
        ]
    )


def check_storable(field: Any) -> None:
    """Refuse intervals, which Spark would read back as numbers, and maps with keys of type void."""
    refused = next(_not_storable(field.dataType), None)
    if refused is not None:
        raise SchemaMismatchError(
            f"Column {field.name!r} of the source is {field.dataType.simpleString()}; {refused.simpleString()} "
            "cannot be stored in Parquet as it is. Cast it to another type, such as string."
        )


def _not_storable(data_type: Any) -> Iterator[Any]:
    if isinstance(data_type, _INTERVALS) or (
        isinstance(data_type, T.MapType) and isinstance(data_type.keyType, T.NullType)
    ):
        yield data_type
    children: list[Any] = []
    if isinstance(data_type, T.StructType):
        children = [field.dataType for field in data_type.fields]
    elif isinstance(data_type, T.MapType):
        children = [data_type.keyType, data_type.valueType]
    elif isinstance(data_type, T.ArrayType):
        children = [data_type.elementType]
    for child in children:
        yield from _not_storable(child)


def _with_nullable_voids(data_type: Any) -> Any:
    if isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        return T.ArrayType(_with_nullable_voids(element), data_type.containsNull or isinstance(element, T.NullType))
    if isinstance(data_type, T.MapType):
        value = data_type.valueType
        nullable = data_type.valueContainsNull or isinstance(value, T.NullType)
        return T.MapType(data_type.keyType, _with_nullable_voids(value), nullable)
    if not isinstance(data_type, T.StructType):
        return data_type
    fields = []
    for field in data_type.fields:
        nullable = field.nullable or isinstance(field.dataType, T.NullType)
        fields.append(T.StructField(field.name, _with_nullable_voids(field.dataType), nullable, field.metadata))
    return T.StructType(fields)
