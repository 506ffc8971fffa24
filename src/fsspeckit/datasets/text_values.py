"""Text as values of a type: what CSV and JSON lines hold, in the types of the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.values import arrays

_ZONED = r"[Tt ]\d\d[\d:.]*([Zz]|[+-]\d\d:?(\d\d)?)\s*$"
_LEADING_ZERO = r"^\s*[+-]?0[0-9xX]"
_INFERRED = (
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
)
_WORDS = {"true", "false"}


class BadText(Exception):
    """`args` are the position of the first value that does not fit, and the value."""


class Number(str):
    """A number of a JSON document, as its digits: no digit is lost before its type is known."""

    __slots__ = ()


def has_text_form(dtype: pa.DataType) -> bool:
    """Can text be parsed as this plain type?"""
    if arrays.family(dtype) in ("number", "text", "date", "time", "zoned timestamp", "naive timestamp"):
        return True
    return bool(t.is_boolean(dtype) or t.is_null(dtype))


def type_for(texts: pa.Array, dtype: pa.DataType) -> pa.DataType:
    """The type in which text becomes values of a plain type. Only the texts show whether times have a zone."""
    if not t.is_timestamp(dtype):
        return dtype
    first = next((text for text in texts.to_pylist() if text is not None and text.strip()), None)
    if first is None:
        return dtype
    zoned = pc.match_substring_regex(pa.array([first]), _ZONED)[0].as_py()
    return pa.timestamp(dtype.unit, (dtype.tz or "UTC") if zoned else None)


def parse(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Text as values of a plain type, or `BadText`. Blank text is null, unless the type is text."""
    if arrays.family(dtype) == "text":
        return texts.cast(dtype)
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return converted(texts, lambda part: _parsed(part, dtype))


def converted(values: Any, convert: Callable[[Any], pa.Array]) -> pa.Array:
    """`convert(values)`, or `BadText` with the first value that it refuses. `values` are an array or a list."""
    try:
        return convert(values)
    except (pa.ArrowException, arrays.ValueDoesNotFit, TypeError, ValueError, OverflowError):
        pass
    low, high = 0, len(values)  # the first `low` values fit, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values[low:middle])
            low = middle
        except (pa.ArrowException, arrays.ValueDoesNotFit, TypeError, ValueError, OverflowError):
            high = middle
    value = values[low]
    raise BadText(low, value.as_py() if isinstance(value, pa.Scalar) else value)


def _parsed(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    if t.is_integer(dtype):
        try:
            return texts.cast(dtype)
        except pa.ArrowInvalid:  # 1.0, as pandas writes integers beside nulls
            return arrays.cast(texts.cast(pa.decimal128(38, 6)), dtype)
    if t.is_floating(dtype):
        values = texts.cast(dtype)
        infinite = pc.fill_null(pc.is_inf(values.cast(pa.float64())), False)
        if pc.any(pc.and_(infinite, pc.fill_null(pc.match_substring_regex(texts, r"\d"), False))).as_py():
            raise ValueError("too large")
        return values
    if t.is_boolean(dtype):
        return pc.utf8_lower(texts).cast(dtype)
    if t.is_time(dtype):
        moments = pc.binary_join_element_wise(pa.scalar("1970-01-01T"), texts, pa.scalar(""))
        return moments.cast(pa.timestamp(dtype.unit)).cast(dtype)
    if t.is_date64(dtype):
        return texts.cast(pa.date32()).cast(dtype)
    if t.is_null(dtype):
        if texts.null_count < len(texts):
            raise ValueError("not null")
        return pa.nulls(len(texts))
    return texts.cast(dtype)


def infer(names: Sequence[str], batches: Iterable[Mapping[str, pa.Array]]) -> dict[str, pa.DataType]:
    """The first type that all texts of a column fit: numbers, true and false, ISO dates and times, or else text.

    A number with a leading zero is text: it would lose the zero. A column without a value has no type here.
    """
    possible: dict[str, Sequence[pa.DataType]] = {}
    for columns in batches:
        for name in names:
            texts = columns[name]
            if texts.null_count < len(texts):
                possible[name] = [dtype for dtype in possible.get(name, _INFERRED) if _is(texts, dtype)]
    return {name: next(iter(types), pa.string()) for name, types in possible.items()}


def _is(texts: pa.Array, dtype: pa.DataType) -> bool:
    if t.is_boolean(dtype) and not set(pc.unique(pc.utf8_lower(texts.drop_null())).to_pylist()) <= _WORDS:
        return False
    if t.is_integer(dtype) or t.is_floating(dtype):
        zeros = pc.match_substring_regex(texts, _LEADING_ZERO)
        if pc.any(zeros).as_py():
            return False
    try:
        parse(texts, dtype)
    except BadText:
        return False
    return True


def parse_json(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Values of JSON documents, with numbers as `Number`, as an array of a plain type."""
    if t.is_nested(dtype):
        return converted(values, lambda part: pa.array([_python(value) for value in part], dtype))
    if arrays.family(dtype) == "text":
        return converted(values, lambda part: pa.array([_text(value) for value in part], dtype))
    texts = converted(values, lambda part: pa.array([_scalar_text(value) for value in part], pa.string()))
    return parse(texts, dtype)


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and not isinstance(value, Number)):
        return value
    raise TypeError("not text")


def _scalar_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return value
    raise TypeError("not a scalar")


def _python(value: Any) -> Any:
    if isinstance(value, Number):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    if isinstance(value, dict):
        return {name: _python(item) for name, item in value.items()}
    return [_python(item) for item in value] if isinstance(value, list) else value


def infer_json(json_types: set[type]) -> pa.DataType | None:
    """The type that fits JSON values of these types (see `json_type`); `None` if none fits all."""
    if json_types == {int, float}:
        return pa.float64()
    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    return types.get(next(iter(json_types))) if len(json_types) == 1 else pa.null() if not json_types else None


def json_type(value: Any) -> type:
    if isinstance(value, Number):
        return int if value.lstrip("-").isdigit() else float
    return type(value)
