"""The values of filters: Python values that are compared with a column of any type.

A value is never rounded to the type of the column. `x < 1.5` on integers is `x <= 1`: each value is stored with the
greatest value of the column's type that is not above it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import arrays, keys

_EXACT = Context(prec=80)
_DAY = 86_400 * arrays.NANOS["s"]
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_EPOCH = dt.datetime(1970, 1, 1)
_LEAST, _GREATEST = Decimal("1e-400"), Decimal("1e400")
_DATE_UNITS = ("Y", "M", "W", "D")
_TIME_UNITS = {"h": 3600 * 10**9, "m": 60 * 10**9, **arrays.NANOS}


class NullValue(Exception):
    """A filter's value is null."""


class NotComparable(Exception):
    """A value cannot be compared with a column; `args[0]` says what to give instead."""


@dataclass(frozen=True, slots=True)
class Value:
    """A Python value: its family (see `arrays.family`) and its order value (see `values.keys`)."""

    family: str
    order: Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A value for a column of one type.

    `order` is its order value. `at_most` is the greatest value of the column's type that is not above it, in the form
    of `comparable`, or `None` if all values of the type are above it. `exact`: the two are equal.
    """

    order: Any
    at_most: Any
    exact: bool

    @property
    def rank(self) -> tuple[bool, Any]:
        return rank(self.order)


def rank(order: Any) -> tuple[bool, Any]:
    """A sort key of order values: NaN is the greatest value."""
    return (True, 0) if order != order else (False, order)


# -- Python values


def value_of(scalar: Any) -> Value:
    """The family and the order value of a Python, NumPy or Arrow scalar. `TypeError` for other objects."""
    if isinstance(scalar, pa.Scalar):
        if not scalar.is_valid:
            raise NullValue
        array = arrays.plain(pa.repeat(scalar, 1))
        if not keys.is_plain_value(array.type):
            raise TypeError
        return Value(arrays.family(array.type), keys.order_values(array)[0])
    if isinstance(scalar, (np.datetime64, np.timedelta64)):
        return _numpy_time(scalar)
    if scalar is None or type(scalar).__name__ in ("NaTType", "NAType"):  # of pandas
        raise NullValue
    if isinstance(scalar, np.generic):
        scalar = scalar.item()
    return _python_value(scalar)


def _python_value(scalar: Any) -> Value:
    if isinstance(scalar, bool):
        return Value("bool", int(scalar))
    if isinstance(scalar, (int, float, Decimal)):
        if isinstance(scalar, Decimal) and not scalar.is_finite():
            scalar = math.nan if scalar.is_nan() else math.copysign(math.inf, scalar)
        return Value("number", scalar if isinstance(scalar, float) else _within_reach(scalar))
    if isinstance(scalar, str):
        return Value("text", scalar.encode())
    if isinstance(scalar, (bytes, bytearray, memoryview)):
        return Value("binary", bytes(scalar))
    if isinstance(scalar, dt.datetime):
        zoned = scalar.utcoffset() is not None
        since = scalar - (_EPOCH.replace(tzinfo=dt.UTC) if zoned else _EPOCH)
        return Value("zoned timestamp" if zoned else "naive timestamp", _nanos(since))
    if isinstance(scalar, dt.date):
        return Value("date", (scalar - _EPOCH.date()).days)
    if isinstance(scalar, dt.time) and scalar.tzinfo is None:
        return Value("time", _nanos(dt.datetime.combine(_EPOCH, scalar) - _EPOCH))
    if isinstance(scalar, dt.timedelta):
        return Value("duration", _nanos(scalar))
    raise TypeError


def _within_reach(number: int | Decimal) -> int | Decimal:
    """The number, or one that compares alike with all values of all types: 1e999999999 has too many digits."""
    size = Decimal(number).copy_abs()
    if not size or _LEAST < size < _GREATEST:
        return number
    return (_LEAST if size <= _LEAST else _GREATEST).copy_sign(Decimal(number))


def _nanos(delta: dt.timedelta) -> int:
    """Exact, also for the nanoseconds of pandas."""
    seconds = delta.days * 86_400 + delta.seconds
    return seconds * 10**9 + delta.microseconds * 1000 + int(getattr(delta, "nanoseconds", 0))


def _numpy_time(scalar: Any) -> Value:
    if np.isnat(scalar):
        raise NullValue
    unit, step = np.datetime_data(scalar)
    if isinstance(scalar, np.datetime64) and unit in _DATE_UNITS:
        return Value("date", int(scalar.astype("datetime64[D]").astype(np.int64)))
    if unit not in _TIME_UNITS:
        raise TypeError
    nanos = int(scalar.astype(np.int64)) * step * _TIME_UNITS[unit]
    return Value("naive timestamp" if isinstance(scalar, np.datetime64) else "duration", nanos)


def common_type(values: Sequence[Value]) -> pa.DataType | None:
    """The type of a column that only the paths have: that of the values; `None` if they are of several families."""
    if len({value.family for value in values}) > 1:
        return None
    types = {
        "bool": pa.bool_(),
        "number": pa.int64() if all(isinstance(value.order, int) for value in values) else pa.float64(),
        "text": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "naive timestamp": pa.timestamp("us"),
        "zoned timestamp": pa.timestamp("us", "UTC"),
        "time": pa.time64("us"),
        "duration": pa.duration("us"),
    }
    return types[values[0].family]


# -- values for a column


def literal(value: Value, dtype: pa.DataType, *, int96: bool = False, utc: bool = True) -> Literal:
    """The value for a column of a plain type. `NotComparable` if it cannot be compared with it.

    An `int96` column holds instants that Arrow reads as times without a zone. It takes values with a zone, and if
    `utc`, values without one as times in UTC.
    """
    family = arrays.family(dtype)
    if int96 and family == "naive timestamp":
        value = _in_family(value, "naive timestamp" if utc and not _has_zone(value) else "zoned timestamp")
    else:
        value = _in_family(value, family)
    order = value.order
    if t.is_date(dtype) and value.family == "naive timestamp":
        order = Fraction(order, _DAY)
    if t.is_floating(dtype) and isinstance(order, Decimal):
        order = _nearest(order, dtype)
    if t.is_decimal(dtype) and isinstance(order, float) and math.isfinite(order):
        order = Decimal(repr(order))  # 0.1 is 0.1, and not 0.1000000000000000055511151231257827
    at_most, exact = _floor(order, dtype)
    return Literal(order, at_most, exact)


def _has_zone(value: Value) -> bool:
    return _parsed(value).family == "zoned timestamp" if value.family == "text" else value.family == "zoned timestamp"


def _in_family(value: Value, family: str) -> Value:
    """The value in the family of the column. Dates and times may differ, as long as no zone has to be guessed."""
    if value.family == family:
        return value
    if value.family == "text" and family in _FROM_TEXT:
        value = _FROM_TEXT[family](value)
    if value.family == "date" and family in ("naive timestamp", "zoned timestamp"):
        value = Value("naive timestamp", value.order * _DAY)
    if value.family == family or (value.family, family) == ("naive timestamp", "date"):
        return value
    if family == "zoned timestamp" and value.family == "naive timestamp":
        raise NotComparable("Its values are instants: give a time with a zone, such as 2025-01-31T00:00:00Z.")
    if value.family == "zoned timestamp" and family in ("naive timestamp", "date"):
        raise NotComparable("Its values have no time zone: give a value without one.")
    raise NotComparable(_ADVICE.get(family, ""))


def _parsed(value: Value) -> Value:
    """ISO text as a time with or without a zone."""
    text = pa.array([value.order], pa.binary()).cast(pa.string())
    for family, zone in (("naive timestamp", None), ("zoned timestamp", "UTC")):
        for unit in ("ns", "us"):  # nanoseconds end in 2262
            try:
                return Value(
                    family, text.cast(pa.timestamp(unit, zone)).view(pa.int64())[0].as_py() * arrays.NANOS[unit]
                )
            except pa.ArrowInvalid:
                continue
    raise NotComparable("Give a date or time in ISO form, such as 2025-01-31 or 2025-01-31T12:00:00.")


def _parsed_date(value: Value) -> Value:
    parsed = _parsed(value)
    whole_day = parsed.family == "naive timestamp" and parsed.order % _DAY == 0
    return Value("date", parsed.order // _DAY) if whole_day else parsed


def _parsed_time(value: Value) -> Value:
    try:
        parsed = _parsed(Value("text", b"1970-01-01 " + value.order))
    except NotComparable:
        parsed = value
    if parsed.family != "naive timestamp":
        raise NotComparable("Give a time of day, such as 12:00:00.")
    return Value("time", parsed.order)


def _parsed_bool(value: Value) -> Value:
    if value.order.lower() not in (b"true", b"false"):
        raise NotComparable("Give true or false.")
    return Value("bool", int(value.order.lower() == b"true"))


_FROM_TEXT: dict[str, Callable[[Value], Value]] = {
    "date": _parsed_date,
    "naive timestamp": _parsed,
    "zoned timestamp": _parsed,
    "time": _parsed_time,
    "bool": _parsed_bool,
}
_ADVICE = {
    "number": "Give a number.",
    "text": "Give text (on the command line, in quotes).",
    "binary": "Give bytes.",
    "bool": "Give True or False.",
    "date": "Give a date.",
    "naive timestamp": "Give a date or time.",
    "zoned timestamp": "Give a time with a zone.",
    "time": "Give a time of day.",
    "duration": "Give a timedelta.",
}


def _nearest(value: Decimal, dtype: pa.DataType) -> Any:
    """The float with the shortest text that equals a decimal: 0.1 is 0.1 in float32, too. Other decimals stay."""
    with np.errstate(over="ignore"):
        near = _FLOATS[dtype.bit_width](str(value))
    return float(near) if np.isfinite(near) and Decimal(str(near)) == value else value


def _floor(order: Any, dtype: pa.DataType) -> tuple[Any, bool]:
    """`at_most` and `exact` of a literal."""
    if arrays.family(dtype) in ("text", "binary", "bool"):
        return order, True
    if t.is_floating(dtype):
        return _floor_float(order, _FLOATS[dtype.bit_width])
    scale = dtype.scale if t.is_decimal(dtype) else 0
    lowest, highest = _limits(dtype)
    if isinstance(order, float) and not math.isfinite(order):
        at, exact = (lowest - 1 if order < 0 else highest), False
    else:
        steps = Fraction(order) * Fraction(10) ** scale / arrays.NANOS.get(getattr(dtype, "unit", ""), 1)
        at = min(math.floor(steps), highest)
        exact = at == steps
    if at < lowest:
        return None, False
    return (Decimal(at).scaleb(-scale, _EXACT) if t.is_decimal(dtype) else at), exact


def _limits(dtype: pa.DataType) -> tuple[int, int]:
    if t.is_decimal(dtype):
        return 1 - 10**dtype.precision, 10**dtype.precision - 1
    if t.is_unsigned_integer(dtype):
        return 0, 2**dtype.bit_width - 1
    bits = 32 if t.is_date(dtype) else dtype.bit_width
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _floor_float(order: Any, float_type: Any) -> tuple[float, bool]:
    if order != order:
        return math.nan, True
    try:
        whole = float(order)
    except OverflowError:
        whole = math.inf if order > 0 else -math.inf
    with np.errstate(over="ignore"):
        near = float_type(whole)
        while float(near) > order:
            near = np.nextafter(near, float_type(-math.inf))
        while near < math.inf and float(np.nextafter(near, float_type(math.inf))) <= order:
            near = np.nextafter(near, float_type(math.inf))
    return float(near), float(near) == order


# -- columns


def comparable(column: Any) -> pa.Array:
    """A plain column in a type that Arrow compares and whose order is that of the values, except for NaN."""
    array = keys.sortable(arrays.one_array(column))
    if t.is_decimal(array.type) or array.type == pa.uint64():
        return array
    return array.cast(pa.float64()) if t.is_floating(array.type) else keys.canonical(array)


def _array(literals: Sequence[Literal], dtype: pa.DataType) -> pa.Array:
    return pa.array([literal.at_most for literal in literals], dtype)


def is_below(column: pa.Array, literal: Literal, *, or_equal: bool) -> pa.Array:
    """In which rows of a `comparable` column is the value less than the literal, or equal to it? Null for nulls."""
    if literal.at_most is None:
        return pc.if_else(pc.is_valid(column), False, pa.scalar(None, pa.bool_()))
    if literal.at_most != literal.at_most:  # NaN is the greatest value
        return pc.or_(pc.invert(pc.is_nan(column)), or_equal)
    compare = pc.less_equal if or_equal or not literal.exact else pc.less
    return compare(column, _array([literal], column.type)[0])


def is_one_of(column: pa.Array, literals: Sequence[Literal]) -> pa.Array:
    """In which rows does a `comparable` column equal one of the literals? False for nulls."""
    values = _array([literal for literal in literals if literal.exact], column.type)
    return pc.is_in(keys.canonical(column), value_set=keys.canonical(values))
