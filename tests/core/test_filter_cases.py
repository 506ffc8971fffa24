"""Filters case by case: literals, partition folders, calendars, refusals, and row groups that are not read."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from core.test_filters import ENGINE, NULL, lake_of, matched, selected, values
from fsspeckit.core.dataset.target import read_target
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.core.match.filters import filter_names, parse_filters
from fsspeckit.core.storage import locate
from fsspeckit.core.values.calendars import gregorian_to_hybrid_days
from support import write_lake

UTC = dt.UTC
NOON = dt.datetime(2025, 1, 1, 12)


# -- literals


@pytest.mark.parametrize(
    ("operator", "literal", "expected"),
    [
        ("<", 1.5, [-1, 0, 1]),
        (">=", 1.5, [2]),
        ("=", 1.5, []),
        ("!=", 1.5, [-1, 0, 1, 2]),
        ("in", [1.0, 1.5, Decimal(2)], [1, 2]),
        ("not in", [1.5, np.int8(2)], [-1, 0, 1]),
        ("<", math.inf, [-1, 0, 1, 2]),
        (">", -math.inf, [-1, 0, 1, 2]),
        (">", 10**40, []),
        (">", -(10**40), [-1, 0, 1, 2]),
        ("<", Decimal("1e999999999"), [-1, 0, 1, 2]),
        (">=", Decimal("-1e999999999"), [-1, 0, 1, 2]),
        (">", 10**1000, []),
        (">", Decimal("1e-999999999"), [1, 2]),
        (">=", Decimal("-1e-999999999"), [0, 1, 2]),
        ("=", Decimal("1e-999999999"), []),
        ("<=", pa.scalar(0, pa.uint8()), [-1, 0]),
    ],
)
@pytest.mark.parametrize("dtype", [pa.int8(), pa.int64(), pa.decimal128(5, 1), pa.decimal256(50, 0), pa.float16()])
def test_numbers_are_compared_exactly(
    tmp_path: Path, dtype: pa.DataType, operator: str, literal: Any, expected: list[Any]
) -> None:
    lake_of(tmp_path, pa.array([-1, 0, None, 1, 2], pa.float32() if dtype == pa.float16() else dtype))
    assert values(tmp_path, [("x", operator, literal)]) == expected


def test_large_numbers_are_not_rounded(tmp_path: Path) -> None:
    lake_of(tmp_path, pa.array([2**64 - 2, 2**64 - 1, 2**53 + 1], pa.uint64()))
    assert values(tmp_path, [("x", "=", 2**64 - 1)]) == [2**64 - 1]
    assert values(tmp_path, [("x", "<", float(2**64))]) == [2**64 - 2, 2**64 - 1, 2**53 + 1]
    assert values(tmp_path, [("x", "=", float(2**53))]) == []


def test_numbers_beyond_all_floats(tmp_path: Path) -> None:
    lake_of(tmp_path, pa.array([-math.inf, 5e-324, 1.7e308, math.inf]))
    assert values(tmp_path, [("x", "<", Decimal("1e999999999"))]) == [-math.inf, 5e-324, 1.7e308]
    assert values(tmp_path, [("x", ">", Decimal("1e999999999"))]) == [math.inf]
    assert values(tmp_path, [("x", "in", [Decimal("1e999999999"), -(10**5000), Decimal("1e-999999999")])]) == []
    assert values(tmp_path, [("x", "<", Decimal("1e-999999999"))]) == [-math.inf]


def test_nan_is_the_greatest_value_and_equals_itself(tmp_path: Path) -> None:
    lake_of(tmp_path, pa.array([0.0, -0.0, math.inf, math.nan, None]))
    assert [repr(v) for v in values(tmp_path, [("x", ">", 1)])] == ["inf", "nan"]
    assert [repr(v) for v in values(tmp_path, [("x", "=", math.nan)])] == ["nan"]
    assert [repr(v) for v in values(tmp_path, [("x", "!=", math.nan)])] == ["0.0", "-0.0", "inf"]
    assert [repr(v) for v in values(tmp_path, [("x", "in", [0, Decimal("NaN")])])] == ["0.0", "-0.0", "nan"]


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("nan", [math.nan, np.float32("nan"), Decimal("NaN")], ids=repr)
def test_a_range_that_ends_at_nan_is_refused(tmp_path: Path, operator: str, nan: Any) -> None:
    """A threshold that was computed wrongly must not empty a data set."""
    lake_of(tmp_path, pa.array([0.0, 1.0]))
    with pytest.raises(ArgumentError, match=f"'x' by {operator} with NaN"):
        values(tmp_path, [("x", operator, nan)])


def test_a_decimal_fraction_means_the_same_for_decimals_and_floats(tmp_path: Path) -> None:
    decimals = [Decimal("0.1"), Decimal("0.2")]
    columns = {"d": pa.array(decimals), "f": pa.array([0.1, 0.2]), "g": pa.array([0.1, 0.2], pa.float32())}
    for name, column in columns.items():
        lake = lake_of(tmp_path / name, column)
        assert len(values(lake, [("x", "<=", Decimal("0.1"))])) == len(values(lake, [("x", "=", Decimal("0.1"))])) == 1
    assert len(values(tmp_path / "d", [("x", "<", 0.1)])) == 0
    assert len(values(tmp_path / "d", [("x", "=", 0.1)])) == 1
    assert len(values(tmp_path / "g", [("x", "=", 0.1)])) == 0  # float32 has no such value, as in PyArrow
    assert len(values(tmp_path / "g", [("x", "=", np.float32(0.1))])) == 1


@pytest.mark.parametrize(
    "literal",
    [
        "2025-01-01T12:00:00",
        "2025-01-01 12:00",
        NOON,
        np.datetime64("2025-01-01T12:00"),
        np.datetime64("2025-01-01T12", "h"),
        pd.Timestamp("2025-01-01 12:00"),
        pa.scalar(NOON, pa.timestamp("ms")),
    ],
)
def test_times_without_a_zone(tmp_path: Path, literal: Any) -> None:
    times = [NOON - dt.timedelta(seconds=1), NOON, NOON + dt.timedelta(seconds=1), None]
    for unit in ("s", "ms", "us", "ns"):
        lake = lake_of(tmp_path / unit, pa.array(times, pa.timestamp(unit)))
        assert len(values(lake, [("x", "<", literal)])) == len(values(lake, [("x", "=", literal)])) == 1


def test_times_with_a_zone(tmp_path: Path) -> None:
    instants = [NOON.replace(tzinfo=UTC), (NOON + dt.timedelta(hours=1)).replace(tzinfo=UTC)]
    lake = lake_of(tmp_path, pa.array(instants, pa.timestamp("us", "America/New_York")))
    late = NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))
    for literal in ("2025-01-01T12:00:00Z", "2025-01-01 13:00+01:00", instants[0], pd.Timestamp(instants[0])):
        assert values(lake, [("x", "=", literal)]) == instants[:1]
        assert values(lake, [("x", ">", literal)]) == instants[1:]
    assert values(lake, [("x", ">", late)]) == instants
    for naive in ("2025-01-01T12:00:00", "2025-01-01", NOON, dt.date(2025, 1, 1), np.datetime64("2025-01-01")):
        with pytest.raises(ArgumentError, match=r"'x'.*instants: give a time with a zone, such as 2025-01-31T00:00"):
            selected(lake, [("x", "<", naive)])


def test_nanoseconds_are_compared(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, pa.array([1, 2, 3], pa.int64()).cast(pa.timestamp("ns")))
    for literal in (np.datetime64(2, "ns"), pd.Timestamp(2), "1970-01-01T00:00:00.000000002"):
        assert sum(map(len, selected(lake, [("x", "<=", literal)])["a.parquet"].values())) == 2
    assert len(values(lake_of(tmp_path / "d", pa.array([1, 2], pa.duration("ns"))), [("x", "<", pd.Timedelta(2))])) == 1


def test_dates(tmp_path: Path) -> None:
    days = [dt.date(2024, 12, 31), dt.date(2025, 1, 1), dt.date(2025, 1, 2)]
    for dtype in (pa.date32(), pa.date64()):
        lake = lake_of(tmp_path / str(dtype), pa.array(days, dtype))
        for literal in ("2025-01-01", days[1], np.datetime64("2025-01-01"), dt.datetime(2025, 1, 1)):
            assert values(lake, [("x", "<", literal)]) == days[:1]
        assert values(lake, [("x", "<", NOON)]) == values(lake, [("x", "<=", "2025-01-01 12:00")]) == days[:2]
        assert values(lake, [("x", "=", NOON)]) == []
        with pytest.raises(ArgumentError, match="no time zone: give a value without one"):
            selected(lake, [("x", "<", "2025-01-01T00:00Z")])


def test_int96_holds_instants(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, pa.array([NOON, dt.datetime(2025, 1, 2)]), use_deprecated_int96_timestamps=True)
    for literal in ("2025-01-01T13:00+01:00", NOON.replace(tzinfo=UTC), NOON, "2025-01-01 12:00"):
        assert values(lake, [("x", "=", literal)]) == [NOON]
    assert values(lake, [("x", "=", NOON.replace(tzinfo=UTC))], zone="Europe/Berlin") == [NOON]
    with pytest.raises(ArgumentError, match=r"INT96.*instants: give a time with a zone"):
        selected(lake, [("x", "=", NOON)], zone="Europe/Berlin")


def test_times_booleans_and_text(tmp_path: Path) -> None:
    at = [dt.time(8), dt.time(12, 0, 1)]
    assert values(lake_of(tmp_path / "t", pa.array(at, pa.time32("ms"))), [("x", ">", "08:00")]) == at[1:]
    lake = lake_of(tmp_path / "b", pa.array([True, False, None]))
    assert values(lake, [("x", "=", True)]) == values(lake, [("x", "!=", "false")]) == [True]
    assert values(lake, [("x", "<", True)]) == [False]
    lake = lake_of(tmp_path / "s", pa.array(["\uffff", "\U0001f600", "é"]))
    assert values(lake, [("x", ">", "\uffff")]) == ["\U0001f600"]  # by code point, not by UTF-16
    lake = lake_of(tmp_path / "v", pa.array([b"a", b"ab", None], pa.binary_view()))
    assert values(lake, [("x", "<", b"ab")]) == [b"a"]


# -- refusals


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "no conditions"),
        ([[]], "no conditions"),
        ([[("n", "=", 1)], []], "no conditions"),
        (("n", "=", 1), "takes a list of tuples"),
        ("n = 1", "takes a list of tuples"),
        (pc.field("n") == 1, "takes a list of tuples"),
        ([("n", "=", 1), [("n", "=", 1)]], "mixes both"),
        ([("n", "=")], r"\('n', '='\) is not a condition"),
        ([(1, "=", 1)], "is not a condition"),
        ([("n", "~", 1)], "Unknown operator '~'.*Choose one of =, =="),
        ([("n", "=", [1])], "takes one value"),
        ([("n", "in", 1)], "takes a list of values"),
        ([("s", "in", "abc")], "takes a list of values"),
        ([("n", "not in", [])], "empty list"),
        ([("n", "=", None)], "'n' with null"),
        ([("n", "in", [1, None])], "'n' with null"),
        ([("t", "<", np.datetime64("NaT"))], "'t' with null"),
        ([("t", "<", pd.NaT)], "'t' with null"),
        ([("n", "=", {})], "'n' with {} of type dict"),
        ([("s", "=", "\ud800")], "'s' with"),
        ([("n", "=", "1")], "'n' of type int64 with '1', which is text. Give a number"),
        ([("n", "=", True)], "'n' of type int64 with True, which is a Boolean"),
        ([("b", "=", 1)], "'b' of type bool with 1, which is a number"),
        ([("b", "=", "yes")], "true or false"),
        ([("s", "=", 1)], "'s' of type string with 1, which is a number. Give text"),
        ([("s", "=", b"x")], "'s' of type string"),
        ([("s", "<", dt.date(2025, 1, 1))], "'s' of type string with .*a date. Give text.*quotes"),
        ([("t", "<", "yesterday")], "'t' of type timestamp.*'yesterday'.*ISO form"),
        ([("t", "<", "2025-02-30")], "ISO form"),
        ([("t", "<", 5)], "'t' of type timestamp"),
        ([("t", "<", "2025-01-01T00:00Z")], "no time zone"),
        ([("l", "=", 1)], "'l', whose type list.* has no order"),
        ([("number", "=", 1)], r"'number', which the target does not have.*It has: \['n', 's', 'b', 't', 'l'\]"),
        ([("N", "=", 1)], "Did you mean 'n'"),
    ],
)
def test_refusals(tmp_path: Path, filters: Any, message: str) -> None:
    columns = {"n": [1], "s": ["a"], "b": [True], "t": [NOON], "l": [[1]]}
    write_lake(tmp_path, {"a.parquet": pa.table(columns)})
    location = locate(str(tmp_path))
    target = read_target(ENGINE.footers, location, (), None)
    with pytest.raises(ArgumentError, match=message):
        parse_filters(filters, target)


def test_names_and_columns(tmp_path: Path) -> None:
    filters = [[("Day", "<", 5), ("x y", "=", 1)], [("Day", ">", 6)]]
    write_lake(tmp_path, {"day=1/a.parquet": pa.table({"x y": [1]})})
    target = read_target(ENGINE.footers, locate(str(tmp_path)), (), None)
    assert filter_names(filters) == ("Day", "x y")
    row_filter = parse_filters(filters, target, ignores_case=True)
    assert row_filter.columns == ("day", "x y")
    with pytest.raises(ArgumentError, match="no data set yet"):
        parse_filters(filters, read_target(ENGINE.footers, locate(str(tmp_path / "none")), (), None))


def test_text_with_a_collation_is_refused(tmp_path: Path) -> None:
    field = {"name": "x", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"x": "spark.UTF8_LCASE"}}}
    entry = json.dumps({"type": "struct", "fields": [field]})
    table = pa.table({"x": ["a"]}).replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": entry})
    write_lake(tmp_path, {"a.parquet": table})
    with pytest.raises(ArgumentError, match=r"'x', which has the collation UTF8_LCASE in a.parquet"):
        selected(tmp_path, [("x", "=", "A")])


# -- partitions


def by_month(root: Path, *months: str) -> Path:
    write_lake(root, {f"month={month}/a.parquet": pa.table({"x": [1, 2]}) for month in months})
    return root


def test_a_partition_column_of_the_paths_takes_the_type_of_the_literal(tmp_path: Path) -> None:
    lake = by_month(tmp_path, "8", "09", "10", "11", NULL)
    counts, scans = matched(lake, [("month", "<", 9)])
    assert counts == {"month=8/a.parquet": {0: 2}}
    assert {scan.read for scan in scans} == {()}
    assert set(matched(lake, [("month", "<", "9")])[0]) == {f"month={m}/a.parquet" for m in ("8", "09", "10", "11")}
    assert set(matched(lake, [("month", "!=", 9.0)])[0]) == {f"month={m}/a.parquet" for m in ("8", "10", "11")}
    assert set(matched(lake, [[("month", "in", [9, 10])], [("month", ">", Decimal("10.5"))]])[0]) == {
        f"month={m}/a.parquet" for m in ("09", "10", "11")
    }


def test_a_folder_that_is_no_value_of_the_type_is_refused(tmp_path: Path) -> None:
    lake = by_month(tmp_path, "8", "May")
    with pytest.raises(ArgumentError, match="'month' with values of type int64, and the folder 'month=May'"):
        selected(lake, [("month", "<", 9)])
    with pytest.raises(ArgumentError, match=r"'month' with values of different types .*number, text"):
        selected(lake, [[("month", "<", 9)], [("month", "=", "May")]])
    assert set(selected(lake, [("month", "=", "May")])) == {"month=May/a.parquet"}


def test_dates_and_times_of_folders(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "d", {f"day=2025-01-0{n}/a.parquet": pa.table({"x": [n]}) for n in (1, 2)})
    for literal in (dt.date(2025, 1, 2), "2025-01-02", dt.datetime(2025, 1, 2)):
        assert set(selected(lake, [("day", "<", literal)])) == {"day=2025-01-01/a.parquet"}
    lake = write_lake(tmp_path / "t", {"at=2025-01-01 12%3A00%3A00/a.parquet": pa.table({"x": [1]})})
    instant = NOON.replace(tzinfo=UTC)
    assert selected(lake, [("at", "=", instant)]) != {}
    assert selected(lake, [("at", "=", instant)], zone="Europe/Berlin") == {}
    assert selected(lake, [("at", "=", instant - dt.timedelta(hours=1))], zone="Europe/Berlin") != {}


def test_the_path_wins_over_a_stored_value(tmp_path: Path) -> None:
    write_lake(tmp_path, {"p=1/a.parquet": pa.table({"p": [7, 7]}), "b.parquet": pa.table({"p": [1, 7]})})
    assert selected(tmp_path, [("p", "=", 1)]) == {"p=1/a.parquet": {0: [0, 1]}, "b.parquet": {0: [0]}}
    with pytest.raises(ArgumentError, match="'p' of type int64 with '1', which is text"):
        selected(tmp_path, [("p", "=", "1")])


# -- calendars of Spark


def legacy(column: pa.Array) -> pa.Table:
    return pa.table({"x": column}).replace_schema_metadata({"org.apache.spark.version": "2.4.0"})


def test_dates_of_the_old_calendar(tmp_path: Path) -> None:
    days = np.array([dt.date(1500, 1, 1), dt.date(1500, 1, 9), dt.date(2025, 1, 1)], dtype="datetime64[D]").astype(int)
    stored = pa.array(gregorian_to_hybrid_days(days), pa.int32()).cast(pa.date32())
    write_lake(tmp_path, {"a.parquet": legacy(stored)}, row_group_size=1)
    assert selected(tmp_path, [("x", "=", dt.date(1500, 1, 9))]) == {"a.parquet": {1: [0]}}
    assert selected(tmp_path, [("x", "<", "1500-01-02")]) == {"a.parquet": {0: [0]}}


def test_old_instants_of_the_old_calendar(tmp_path: Path) -> None:
    instants = pa.array([dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2025, 1, 1, tzinfo=UTC)])
    write_lake(tmp_path, {"a.parquet": legacy(instants)}, row_group_size=1)
    assert selected(tmp_path, [("x", "<", "2000-01-01T00:00Z")]) == {"a.parquet": {0: [0]}}
    for literal in ("1900-01-01T00:00Z", "0001-01-01T00:00Z"):
        with pytest.raises(SchemaMismatchError, match="legacy calendar"):
            matched(tmp_path, [("x", "<", literal)])


# -- row groups that are not read


def decided(lake: Path, filters: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The row groups of which every row is selected, and those that are read."""
    selected(lake, filters)
    (scan,) = matched(lake, filters)[1]
    return scan.selected, scan.read


def test_statistics_exclude_row_groups(tmp_path: Path) -> None:
    """They never select rows: a row is only deleted for a value that was read."""
    lake = lake_of(tmp_path, pa.array([1, 2, 3, 4, 5, None, 7, 7]), row_group_size=2)
    assert decided(lake, [("x", "<", 3)]) == ((), (0,))
    assert decided(lake, [("x", "<", 4)]) == ((), (0, 1))
    assert decided(lake, [("x", ">=", 5)]) == ((), (2, 3))
    assert decided(lake, [("x", "=", 7)]) == ((), (3,))
    assert decided(lake, [("x", "!=", 7)]) == ((), (0, 1, 2))
    assert decided(lake, [("x", "in", [0, 4, 8])]) == ((), (1,))
    assert decided(lake, [("x", "not in", [0, 4, 8])]) == ((), (0, 1, 2, 3))
    assert decided(lake, [("x", "<", 2.5), ("x", ">", 0)]) == ((), (0,))
    assert decided(lake, [[("x", "<", 3)], [("x", ">", 6)]]) == ((), (0, 3))
    assert decided(lake, [("x", ">", 9)]) == ((), ())


def test_without_statistics_row_groups_are_read(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, pa.array([1, 2, 3]), row_group_size=1, write_statistics=False)
    assert decided(lake, [("x", "<", 2)]) == ((), (0, 1, 2))


def test_statistics_of_floats_leave_out_nan(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, pa.array([1.0, math.nan, 2.0, 3.0]), row_group_size=2)
    assert decided(lake, [("x", ">", 5)]) == ((), (0, 1))
    assert values(lake, [("x", ">", 2)])[1:] == [3.0]
    assert decided(lake, [("x", "<", 1.5)]) == ((), (0,))
    assert decided(lake, [("x", "<", 9)]) == ((), (0, 1))
    assert decided(lake, [("x", "in", [9, math.nan])]) == ((), (0, 1))


def test_bounds_of_text_only_exclude(tmp_path: Path) -> None:
    """They may be cut: bounds `a` and `a` do not prove that all values are `a`."""
    lake = lake_of(tmp_path, pa.array(["a", "a", "b", "c"]), row_group_size=2)
    assert decided(lake, [("x", "=", "a")]) == ((), (0,))
    assert decided(lake, [("x", "!=", "a")]) == ((), (0, 1))
    assert decided(lake, [("x", "<", "b")]) == ((), (0,))


def test_decimals_that_become_floats_are_read(tmp_path: Path) -> None:
    """0.1 as a float is slightly above the bound 0.10."""
    decimals = [Decimal(n).scaleb(-2) for n in range(10, 90)]
    write_lake(tmp_path, {"a.parquet": pa.table({"x": decimals}), "b.parquet": pa.table({"x": [5.0]})})
    for position, decimal in enumerate(decimals):
        for literal in (decimal, float(decimal)):
            assert selected(tmp_path, [("x", "=", literal)]) == {"a.parquet": {0: [position]}}


def test_empty_files_and_files_without_the_column(tmp_path: Path) -> None:
    tables = {"a.parquet": pa.table({"x": [1]}).slice(1), "b.parquet": pa.table({"y": [1]}), "c.parquet": {"x": [1]}}
    write_lake(tmp_path, {name: pa.table(table) for name, table in tables.items()})
    counts, scans = matched(tmp_path, [("x", "!=", 5)])
    assert counts == {"c.parquet": {0: 1}}
    assert [scan.reason for scan in scans] == [
        "no rows",
        "partition values or statistics exclude every row",
        "the filter may select rows",
    ]
