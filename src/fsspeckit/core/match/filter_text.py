"""Conditions as text, such as `day < 2025-01-01` on the command line."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fsspeckit.core.errors import ArgumentError

_COLUMN = r'(?P<column>"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^\s\'"`(),<>=!]+)'
_OPERATOR = r"(?P<operator><=|>=|!=|<>|==|=|<|>|\s(?:not\s+)?in(?=[\s(]))"
_CONDITION = re.compile(rf"\s*{_COLUMN}\s*?{_OPERATOR}(?P<value>.*)", re.IGNORECASE | re.DOTALL)
_VALUE = r"'(?:[^']|'')*'|[^\s'\"`(),<>=!]+"
_ONE = re.compile(rf"\s*({_VALUE})\s*")
_LIST = re.compile(rf"\s*\(\s*(?:{_VALUE})\s*(?:,\s*(?:{_VALUE})\s*)*\)\s*")

_MAX_DIGITS = 4000  # Python reads no integers with more
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|nan|-?inf", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class _Condition:
    """Column, operator and the texts of the values, those in quotes with their quotes."""

    column: str
    operator: str
    values: tuple[str, ...]

    @property
    def several(self) -> bool:
        return self.operator in ("in", "not in")


def parse_conditions(texts: Sequence[str]) -> list[tuple[str, str, Any]]:
    """Conditions that must all hold, as a list of tuples.

    The values of a column are numbers if all of them are, or dates if all of them are ISO dates, else text. Values in
    quotes are text.

    >>> parse_conditions(["day < 2025-01-01", "`part no` in ('7', 8)"])
    [('day', '<', datetime.date(2025, 1, 1)), ('part no', 'in', ['7', '8'])]
    """
    conditions = [_split(text) for text in texts]
    values: dict[str, list[str]] = {}
    for condition in conditions:
        values.setdefault(condition.column, []).extend(condition.values)
    read = {column: _reader(column_values) for column, column_values in values.items()}
    return [
        (c.column, c.operator, [read[c.column](v) for v in c.values] if c.several else read[c.column](c.values[0]))
        for c in conditions
    ]


def _split(text: str) -> _Condition:
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise ArgumentError(
            f'{text!r} is not a condition. Write column, operator and value, such as "day < 2025-01-01" or "kind in '
            "('a', 'b')\"; the operators are =, !=, <, <=, >, >=, in and not in."
        )
    column, operator = parts["column"], " ".join(parts["operator"].lower().split())
    if column[0] in '"`':
        column = column[1:-1].replace(column[0] * 2, column[0])
    several = operator in ("in", "not in")
    if (_LIST if several else _ONE).fullmatch(parts["value"]) is None:
        form = "a list of values such as (1, 2)" if several else "one value"
        raise ArgumentError(
            f"{text!r}: {operator!r} takes {form}. Put text with spaces or signs in single quotes, and give each "
            "condition by itself."
        )
    values = tuple(re.findall(_VALUE, parts["value"]))
    if any(value.lower() == "null" for value in values):
        raise ArgumentError(f"{text!r}: as in SQL, no comparison with null holds. The text null is 'null'.")
    return _Condition(column, "!=" if operator == "<>" else operator, values)


def _reader(values: Sequence[str]) -> Any:
    """The function that reads the values of one column."""
    if all(_NUMBER.fullmatch(value) for value in values):
        return _number
    return _date if all(_DATE.fullmatch(value) for value in values) else _text


def _number(text: str) -> int | Decimal:
    """Decimal: as a float, 0.1 would not be the 0.1 of a decimal column."""
    return int(text) if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS else Decimal(text)


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ArgumentError(f"{text} is not a date: there is no such day.") from None


def _text(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text
