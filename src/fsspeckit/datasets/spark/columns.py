"""What Spark's frames hold: their columns as Arrow has them, and what cannot be carried."""

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

_PLAIN = re.compile("[A-Za-z][A-Za-z0-9_]*")


def is_frame(source: Any) -> bool:
    """Is it a DataFrame of classic Spark or of Spark Connect?"""
    return type(source).__module__.startswith("pyspark.") and hasattr(source, "mapInArrow")


def collated(names: Iterable[str], schema: Any) -> dict[str, str]:
    """Columns whose text Spark does not compare byte by byte."""
    kinds = {name: getattr(f.dataType, "collation", None) for name, f in zip(names, schema.fields, strict=True)}
    return {name: kind for name, kind in kinds.items() if kind not in (None, "UTF8_BINARY")}


def frame_schema(frame: Any) -> pa.Schema:
    """The Arrow schema of a DataFrame: times are instants, and like Spark's writer we make every column nullable."""
    return loose_schema(arrow_schema(frame.schema))


def arrow_schema(schema: Any) -> pa.Schema:
    """The types in which Spark exchanges rows with Python."""
    options = {"error_on_duplicated_field_names_in_struct": True, "timezone": "UTC"}
    known = inspect.signature(to_arrow_schema).parameters  # before Spark 4.1 instants are in UTC anyway
    return to_arrow_schema(schema, **{k: v for k, v in options.items() if k in known})


def loose_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _loose(f.type)) for f in schema])


def relaxed(frame: Any) -> Any:
    """A frame that can become Arrow: elements of `array()`, which have no type, may be null.

    Intervals, which Spark would read back as numbers, and maps of nothing cannot.
    """
    fields = _fields(frame)
    for field in fields:
        check_carried(field)
    kinds = [_nullable_voids(field.dataType) for field in fields]
    if all(kind == field.dataType for kind, field in zip(kinds, fields, strict=True)):
        return frame  # to name a column to Java takes ten calls, so it is done only where one is cast
    return frame.select([_column(field, kind) for field, kind in zip(fields, kinds, strict=True)])


def _column(field: Any, kind: Any) -> Any:
    column = F.col("`" + field.name.replace("`", "``") + "`")
    return column if kind == field.dataType else column.cast(kind).alias(field.name)


def plainly_named(frame: Any) -> Any:
    """The frame for `mapInArrow`, which looks columns up by name: names must be told apart, and need no quotes."""
    names = frame.columns
    if all(map(_PLAIN.fullmatch, names)) and len({name.lower() for name in names}) == len(names):
        return frame
    return frame.toDF(*(f"c{i}" for i in range(len(names))))


def _fields(frame: Any) -> list[Any]:
    try:
        return list(frame.schema.fields)
    except PySparkValueError as error:  # an interval, before Spark 4.0
        raise SchemaMismatchError(
            f"A column of the source has a type that PySpark does not know: {error}. Cast it to another type, such as "
            "string."
        ) from error


def check_carried(field: Any) -> None:
    wrong = next(_not_carried(field.dataType), None)
    if wrong is not None:
        raise SchemaMismatchError(
            f"Column {field.name!r} of the source is {field.dataType.simpleString()}; {wrong.simpleString()} "
            "cannot be stored in Parquet as it is. Cast it to another type, such as string."
        )


# The first of them has no class before Spark 4.0.
_KINDS = ("CalendarIntervalType", "YearMonthIntervalType", "DayTimeIntervalType")
_INTERVALS = tuple(getattr(T, name) for name in _KINDS if hasattr(T, name))


def _not_carried(kind: Any) -> Iterator[Any]:
    if isinstance(kind, _INTERVALS) or (isinstance(kind, T.MapType) and isinstance(kind.keyType, T.NullType)):
        yield kind
    for child in _children(kind):
        yield from _not_carried(child)


def _children(kind: Any) -> list[Any]:
    if isinstance(kind, T.StructType):
        return [field.dataType for field in kind.fields]
    if isinstance(kind, T.MapType):
        return [kind.keyType, kind.valueType]
    return [kind.elementType] if isinstance(kind, T.ArrayType) else []


def _nullable_voids(kind: Any) -> Any:
    if isinstance(kind, T.ArrayType):
        void = isinstance(kind.elementType, T.NullType)
        return T.ArrayType(_nullable_voids(kind.elementType), kind.containsNull or void)
    if isinstance(kind, T.MapType):
        void = isinstance(kind.valueType, T.NullType)
        return T.MapType(kind.keyType, _nullable_voids(kind.valueType), kind.valueContainsNull or void)
    if isinstance(kind, T.StructType):
        return T.StructType(
            [
                T.StructField(
                    f.name,
                    _nullable_voids(f.dataType),
                    f.nullable or isinstance(f.dataType, T.NullType),
                    f.metadata,
                )
                for f in kind.fields
            ]
        )
    return kind


def _loose(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return arrays.with_children(kind, lambda field: pa.field(field.name, _loose(field.type)))


_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


def spark_schema(schema: pa.Schema) -> T.StructType:
    fields = []
    for field in schema:
        kind = arrays.plain_type(field.type)
        try:
            fields.append(T.StructField(field.name, from_arrow_type(_WIDER.get(kind, kind)), nullable=True))
        except PySparkException as error:
            raise SchemaMismatchError(f"Spark has no type for column {field.name!r} of {field.type}.") from error
    return T.StructType(fields)


def as_spark_has_it(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return arrays.plain(column).cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"Column {field.name!r} does not fit {field.type} of Spark: {error}.") from error
