"""Keys and statistics as Python values, for callers who plan by themselves (`core.incremental`)."""

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


def key_table(names: Sequence[str], source_keys: Iterable[Any], also: Iterable[str] = ()) -> pa.Table:
    """Key columns as a table, and of the columns in `also` those that the source has.

    Keys come as a table, or as Python values: one value for each key, a tuple or a mapping for composite keys.
    """
    if isinstance(source_keys, (str, bytes)):
        raise ArgumentError(f"source_keys takes the keys to look for, not the text {source_keys!r}; give a list.")
    others = sorted(set(also) - set(names))
    if isinstance(source_keys, pa.RecordBatch):
        source_keys = pa.Table.from_batches([source_keys])
    if isinstance(source_keys, pa.Table):
        there = [*names, *(name for name in others if name in source_keys.column_names)]
        return pa.table([column_of(source_keys, name) for name in there], names=there)
    values = list(source_keys)  # a generator gives its keys only once
    if len(names) == 1 and not any(isinstance(key, (tuple, list, Mapping)) for key in values):
        values = [(key,) for key in values]
    rows = [_row(key, names) for key in values]
    there = [*names, *(name for name in others if rows and all(name in row for row in rows))]
    return pa.table({name: key_array([row[name] for row in rows]) for name in there})


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ArgumentError(f"Column {name!r} not found; the table has {table.column_names}.")
    return table.column(name)


def _row(key: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(key, Mapping) and set(names) <= set(key):
        return key
    if isinstance(key, (tuple, list)) and len(key) == len(names):
        return dict(zip(names, key, strict=True))
    raise ArgumentError(f"source_keys has {key!r}, which is no key of {list(names)}; give a value for each column.")


def key_array(values: list[Any]) -> pa.Array:
    """Python values as an array; integers may be as large as 64 bits without a sign allow."""
    with contextlib.suppress(OverflowError, pa.ArrowException):
        return pa.array(values)
    with contextlib.suppress(OverflowError, pa.ArrowException):
        return pa.array(values, pa.uint64())
    raise ArgumentError(f"{values[:5]!r} are not values of one type; give values of the column's type.")


def statistics(bounds: Sequence[Bounds | None], dtype: pa.DataType) -> dict[str, Any] | None:
    """`min`, `max` and `null_count` of a column over its row groups; `None` if they are not known of each of them."""
    known = [b for b in bounds if b is not None]
    if not known or len(known) < len(bounds):
        return None
    nulls = None if any(b.nulls is None for b in known) else sum(b.nulls or 0 for b in known)
    filled, dtype = [b for b in known if b.lower is not None], arrays.plain_type(dtype)
    if not filled:
        return {"min": None, "max": None, "null_count": nulls}
    try:
        lower = _python_value(min(b.lower for b in filled), dtype, round_up=False)
        upper = _python_value(max(b.upper for b in filled), dtype, round_up=True)
    except (ValueError, OverflowError, LookupError, pa.ArrowException):  # Python has no such value
        return None
    return {"min": lower, "max": upper, "null_count": nulls}


def _python_value(value: Any, dtype: pa.DataType, *, round_up: bool) -> Any:
    """An order value (see `keys`) in Python's type. Python has no nanoseconds, so they are rounded, up or down."""
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
    """Bounds out of a caller's `statistics`.

    `None` if they prove nothing about keys of a plain type: missing, NaN, contradictory, or of another order.
    """
    if stats is None or "min" not in stats or "max" not in stats:
        return None
    nulls = stats.get("null_count")
    if stats["min"] is None and stats["max"] is None and nulls == rows:
        return Bounds(None, None, rows)
    if nulls is not None and nulls >= rows:
        return None
    try:
        column = arrays.plain(key_array([stats["min"], stats["max"]]))
    except ArgumentError:
        return None
    if column.null_count or not have_one_order(column.type, key_type):
        return None
    lower, upper = keys.order_values(column)
    return Bounds(lower, upper, nulls) if lower <= upper else None


def have_one_order(one: pa.DataType, other: pa.DataType) -> bool:
    """Do order values of two plain types compare as a merge compares them?

    Days and instants are both whole numbers, and mean different things. A merge rounds decimals to floats, or the
    reverse. Text is compared by its bytes.
    """
    if any(t.is_floating(a) and t.is_decimal(b) for a, b in ((one, other), (other, one))):
        return False
    families = {arrays.family(one), arrays.family(other)} - {"null"}
    return len(families) < 2 or families == {"text", "binary"}
