"""Conditions of the command line."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.match.filter_text import parse_conditions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day < 2025-01-01", ("day", "<", dt.date(2025, 1, 1))),
        ("n>=5", ("n", ">=", 5)),
        ("n = -007", ("n", "=", -7)),
        ("n == 1.50", ("n", "==", Decimal("1.50"))),
        ("n != 1e3", ("n", "!=", Decimal(1000))),
        ("n <> .5", ("n", "!=", Decimal("0.5"))),
        ("n = '5'", ("n", "=", "5")),
        ("name = O''Hara", None),
        ("name = 'O''Hara'", ("name", "=", "O'Hara")),
        ("name = ''", ("name", "=", "")),
        ("name = New York", None),
        ("name = 'New York'", ("name", "=", "New York")),
        ("flag = true", ("flag", "=", "true")),
        ("at < 2025-01-01T00:00:00+01:00", ("at", "<", "2025-01-01T00:00:00+01:00")),
        ("id in (1, 2,3 )", ("id", "in", [1, 2, 3])),
        ("id IN(1)", ("id", "in", [1])),
        ("id not  in ('a', b)", ("id", "not in", ["a", "b"])),
        ("id in (1, x)", ("id", "in", ["1", "x"])),
        ("id in ('a, b', '(')", ("id", "in", ["a, b", "("])),
        ('"part no" = 1', ("part no", "=", 1)),
        ("`part no`=1", ("part no", "=", 1)),
        ('"a""b" = 1', ('a"b', "=", 1)),
        ('"in" in (1)', ("in", "in", [1])),
        ("inner = 1", ("inner", "=", 1)),
        ("s.id = 1", ("s.id", "=", 1)),
        ("größe > 1", ("größe", ">", 1)),
        ("not_in = 1", ("not_in", "=", 1)),
        ("n = 'null'", ("n", "=", "null")),
        (f"n = {'9' * 5000}", ("n", "=", Decimal("9" * 5000))),
    ],
)
def test_conditions(text: str, expected: Any) -> None:
    if expected is None:
        with pytest.raises(ArgumentError, match="single quotes"):
            parse_conditions([text])[0]
    else:
        assert parse_conditions([text])[0] == expected


def test_nan_is_a_number() -> None:
    assert math.isnan(parse_conditions(["x = nan"])[0][2])
    assert parse_conditions(["x < -inf"])[0][2] == Decimal("-inf")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a condition"),
        ("n", "is not a condition"),
        ("n is null", "is not a condition"),
        ("n like 'a'", "is not a condition"),
        ("= 5", "is not a condition"),
        ("n =", "takes one value"),
        ("n = (1)", "takes one value"),
        ("n = 1, 2", "takes one value"),
        ('n = "x"', "single quotes"),
        ("n = 'x", "single quotes"),
        ("n in 1", "takes a list"),
        ("n in ()", "takes a list"),
        ("n in (1,)", "takes a list"),
        ("n in (1 2)", "takes a list"),
        ("n < 5 and m > 3", "give each condition by itself"),
        ("n != a or m = b", "give each condition by itself"),
        ("n < = 5", "takes one value"),
        ("n = NULL", "null"),
        ("n in (1, null)", "null"),
        ("day < 2025-02-30", "2025-02-30 is not a date"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_conditions([text])[0]


def test_all_values_of_a_column_are_of_one_type() -> None:
    assert parse_conditions(["day >= 2025-01-01", "n < 5", "day < 2025-02-01"]) == [
        ("day", ">=", dt.date(2025, 1, 1)),
        ("n", "<", 5),
        ("day", "<", dt.date(2025, 2, 1)),
    ]
    assert parse_conditions(["m > 5", "m != may"]) == [("m", ">", "5"), ("m", "!=", "may")]
    assert parse_conditions(["d > 2025-01-01", "`d` < 9"]) == [("d", ">", "2025-01-01"), ("d", "<", "9")]
    assert parse_conditions(["m > 5", "m != '6'"]) == [("m", ">", "5"), ("m", "!=", "6")]
