"""Timestamps without a zone in the source, for columns of instants in the target.

They become instants only in a zone that the caller names, by the rules of Spark's cast from TIMESTAMP_NTZ: a local
time that is skipped when clocks change moves on by the length of the gap, and of a time that occurs twice the first is
taken.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import arrays, nested

# Metadata of a source field: it is INT96 in `all` or `some` files of the source.
_MARK = b"fsspeckit.int96"
_EPOCH = dt.datetime(1970, 1, 1)
# From here on Arrow ignores changes of clocks (seen). The rules of zones repeat with the calendar, every 400 years.
_RULES_SINCE = int((dt.datetime(2037, 1, 1) - _EPOCH).total_seconds())
_CALENDAR_REPEATS = 146_097 * 86_400
_QUARTER_HOUR = 900


def assumed_type(source: pa.DataType, target: pa.DataType) -> pa.DataType:
    """The plain source type with zones where the target has instants.

    >>> assumed_type(pa.timestamp("us"), pa.timestamp("ms", "Asia/Tokyo"))
    TimestampType(timestamp[us, tz=UTC])
    """
    if t.is_timestamp(source) and t.is_timestamp(target):
        return pa.timestamp(source.unit, "UTC") if source.tz is None and target.tz is not None else source
    if not t.is_nested(source) or arrays.family(source) != arrays.family(target) or t.is_union(source):
        return source
    if t.is_struct(source):
        types = {field.name: field.type for field in target}
        return pa.struct([f.with_type(assumed_type(f.type, types.get(f.name, f.type))) for f in source])
    children = iter(nested.fields_of(target))
    return arrays.with_children(source, lambda field: field.with_type(assumed_type(field.type, next(children).type)))


def zoned_type(dtype: pa.DataType) -> pa.DataType:
    """The plain type with all timestamps in UTC."""
    if t.is_timestamp(dtype):
        return pa.timestamp(dtype.unit, "UTC")
    return arrays.with_children(dtype, lambda field: field.with_type(zoned_type(field.type)))


def has_timestamp(dtype: pa.DataType, *, zoned: bool) -> bool:
    """Does a type hold timestamps with a zone, or without one?"""
    return nested.contains(dtype, lambda d: t.is_timestamp(d) and (d.tz is not None) is zoned)


def as_instants(array: Any, dtype: pa.DataType, zone: str) -> Any:
    """Cast to an `assumed_type`. Timestamps without a zone are local times of `zone`."""
    if array.type == dtype:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([as_instants(chunk, dtype, zone) for chunk in array.chunks], dtype)
    if t.is_timestamp(dtype):
        return _to_instants(array, zone)
    lengths, values = nested.decompose(array)
    children = [as_instants(value, f.type, zone) for value, f in zip(values, nested.fields_of(dtype), strict=True)]
    return nested.compose(dtype, lengths, children, array.is_null())


def _to_instants(array: pa.Array, zone: str) -> pa.Array:
    """Instants of local times. At a change of clocks, the offset before it applies."""
    unit, local = array.type.unit, array.cast(pa.int64())
    before = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest")
    offset = pc.subtract(pc.local_timestamp(before).cast(pa.int64()), before.cast(pa.int64()))
    far = pc.greater_equal(local, _RULES_SINCE * arrays.PER_SECOND[unit])
    if not zone.startswith(("+", "-")) and pc.any(far).as_py():
        offset = pc.if_else(far, _offsets_by_rule(local, far, unit, zone), offset)
    return pc.subtract_checked(local, offset).cast(pa.timestamp(unit, "UTC"))


def _offsets_by_rule(local: pa.Array, far: pa.Array, unit: str, zone: str) -> pa.Array:
    """Offsets by Python's `zoneinfo`. Clocks change at quarters of an hour, so each quarter is looked up once."""
    per_second, rules = arrays.PER_SECOND[unit], ZoneInfo(zone)
    quarters = pc.if_else(far, pc.divide(local, _QUARTER_HOUR * per_second), None).dictionary_encode()
    offsets = []
    for quarter in quarters.dictionary.to_pylist():
        seconds = quarter * _QUARTER_HOUR
        moment = _EPOCH + dt.timedelta(seconds=_RULES_SINCE + (seconds - _RULES_SINCE) % _CALENDAR_REPEATS)
        offset = moment.replace(tzinfo=rules).utcoffset()
        assert offset is not None
        offsets.append(int(offset.total_seconds()) * per_second)
    return pa.array(offsets, pa.int64()).take(quarters.indices)


def mark_int96(schema: pa.Schema, columns_of_files: Iterable[frozenset[str]]) -> pa.Schema:
    """Mark the INT96 columns in the schema of a source: Arrow reads their instants as UTC times without a zone."""
    files = list(columns_of_files)
    for name in frozenset[str]().union(*files):
        position = schema.get_field_index(name)
        if position >= 0:
            mark = b"all" if all(name in columns for columns in files) else b"some"
            field = schema.field(position)
            schema = schema.set(position, field.with_metadata({**(field.metadata or {}), _MARK: mark}))
    return schema


def int96_mark(field: pa.Field) -> str | None:
    """`all` or `some`: the source's files in which the column is INT96."""
    mark: bytes | None = (field.metadata or {}).get(_MARK)
    return mark.decode() if mark is not None else None


def without_int96_marks(schema: pa.Schema) -> pa.Schema:
    """The schema without the marks, which files must not have."""
    fields = [
        f.with_metadata({k: v for k, v in f.metadata.items() if k != _MARK}) if int96_mark(f) else f for f in schema
    ]
    return pa.schema(fields, schema.metadata)
