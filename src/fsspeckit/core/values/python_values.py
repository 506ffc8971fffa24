"""Keys and statistics as Python values, for `core.incremental`."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Bounds
from fsspeckit.core.values import arrays, keys
from fsspeckit.core.values.shape import not_comparable
from fsspeckit.core.values.unify import CannotUnify, unify


def key_table(names: Sequence[str], source_keys: Iterable[Any], optional: Iterable[str] = ()) -> pa.Table:
    """A table of the key columns, and of those `optional` columns that the source has.

    `source_keys` are a table, or Python values: a value, a tuple or a mapping for each key.
    """
    if isinstance(source_keys, (str, bytes)):
        raise ArgumentError(f"source_keys takes the keys to look for, not the text {source_keys!r}; give a list.")
    more_names = sorted(set(optional) - set(names))
    if isinstance(source_keys, pa.RecordBatch):
        source_keys = pa.Table.from_batches([source_keys])
    if isinstance(source_keys, pa.Table):
        columns = [*names, *(name for name in more_names if name in source_keys.column_names)]
        return pa.table([column_of(source_keys, name) for name in columns], names=columns)
    values = list(source_keys)  # a generator can be read only once
    if len(names) == 1 and not any(isinstance(key, (tuple, list, Mapping)) for key in values):
        values = [(key,) for key in values]
    rows = [_row(key, names) for key in values]
    columns = [*names, *(name for name in more_names if rows and all(name in row for row in rows))]
    return pa.table({name: _key_array([row[name] for row in rows]) for name in columns})


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ArgumentError(f"Column {name!r} not found; the table has {table.column_names}.")
    return table.column(name)


def _row(key: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(key, Mapping) and set(names) <= set(key):
        return key
    if isinstance(key, (tuple, list)) and len(key) == len(names):
        return dict(zip(names, key, strict=True))
    raise ArgumentError(f"source_keys has {key!r}, which is not a key of {list(names)}; give a value for each column.")


def _key_array(values: list[Any]) -> pa.Array:
    """Python values as an array; integers may need the type uint64."""
    for dtype in (None, pa.uint64()):
        with contextlib.suppress(OverflowError, pa.ArrowException):
            return pa.array(values, dtype)
    raise ArgumentError(f"{values[:5]!r} are not values of one type; give values of the column's type.")


def statistics(bounds: Sequence[Bounds | None], dtype: pa.DataType) -> dict[str, Any] | None:
    """`min`, `max` and `null_count` of a column over all row groups; `None` if one of them has no bounds."""
    present = [b for b in bounds if b is not None]
    if not present or len(present) < len(bounds):
        return None
    nulls = None if any(b.nulls is None for b in present) else sum(b.nulls or 0 for b in present)
    not_null, dtype = [b for b in present if b.lower is not None], arrays.plain_type(dtype)
    if not not_null:
        return {"min": None, "max": None, "null_count": nulls}
    try:
        lower = _python_value(min(b.lower for b in not_null), dtype, round_up=False)
        upper = _python_value(max(b.upper for b in not_null), dtype, round_up=True)
    except (ValueError, OverflowError, LookupError, pa.ArrowException):  # Python has no such value
        return None
    return {"min": lower, "max": upper, "null_count": nulls}


def _python_value(value: Any, dtype: pa.DataType, *, round_up: bool) -> Any:
    """An order value (see `keys`) as a value of Python's type. Nanoseconds are rounded to microseconds."""
    if arrays.family(dtype) == "text":
        return value.decode()
    if t.is_boolean(dtype):
        return bool(value)
    if t.is_date(dtype):
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    if t.is_timestamp(dtype) or t.is_time(dtype):
        micros = -(-value // 1000) if round_up else value // 1000
        return pa.scalar(micros, pa.timestamp("us", dtype.tz) if t.is_timestamp(dtype) else pa.time64("us")).as_py()
    return value


def bounds(stats: Mapping[str, Any] | None, rows: int, key_type: pa.DataType) -> Bounds | None:
    """Bounds from the caller's `statistics`.

    `None` if they prove nothing about keys of a plain type: missing, NaN, contradictory, or in another order.
    """
    if stats is None or "min" not in stats or "max" not in stats:
        return None
    nulls = stats.get("null_count")
    if stats["min"] is None and stats["max"] is None and nulls == rows:
        return Bounds(None, None, rows)
    if nulls is not None and nulls >= rows:
        return None
    try:
        column = arrays.plain(_key_array([stats["min"], stats["max"]]))
    except ArgumentError:
        return None
    if column.null_count or not have_one_order(column.type, key_type):
        return None
    lower, upper = keys.order_values(column)
    return Bounds(lower, upper, nulls) if lower <= upper else None


def comparable_type(name: str, column: pa.ChunkedArray, target: pa.DataType) -> pa.DataType:
    """The type in which a source column is compared: the target's if every value fits, else the unified type."""
    try:
        common = unify(column.type, target)
    except CannotUnify:
        raise not_comparable(name, column.type, target) from None
    target = arrays.plain_type(target)
    return target if arrays.fits(arrays.plain(column), target) else common


def have_one_order(left: pa.DataType, right: pa.DataType) -> bool:
    """Do order values of two plain types compare as in a merge?

    Not those of dates and timestamps, which are both integers, nor of floats and decimals, which a merge casts.
    """
    if any(t.is_floating(a) and t.is_decimal(b) for a, b in ((left, right), (right, left))):
        return False
    families = {arrays.family(left), arrays.family(right)} - {"null"}
    return len(families) < 2 or families == {"text", "binary"}
