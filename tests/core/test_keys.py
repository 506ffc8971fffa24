"""Canonical keys, intervals and the key index."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.footer_columns import UNKNOWN
from fsspeckit.core.match.prune import bounds_might_match, each_might_match
from fsspeckit.core.model import Bounds
from fsspeckit.core.values import keys

PLAIN = {
    "bool": pa.array([True, False]),
    "int8": pa.array([-1, 5], pa.int8()),
    "uint64": pa.array([2**64 - 1, 2**63], pa.uint64()),
    "float16": pa.array(np.array([1.5, -2.0], np.float16)),
    "float32": pa.array([1.5, -2.0], pa.float32()),
    "decimal32": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal32(5, 2)),
    "decimal128": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(10, 2)),
    "decimal256": pa.array([Decimal(10) ** 40, Decimal(-1)], pa.decimal256(50, 0)),
    "date32": pa.array([dt.date(1900, 1, 1), dt.date(2100, 1, 1)]),
    "date64": pa.array([dt.date(1900, 1, 1), dt.date(2100, 1, 1)], pa.date64()),
    "time32": pa.array([1, 2], pa.time32("ms")),
    "time64": pa.array([1, 2], pa.time64("ns")),
    "timestamp": pa.array([1, -2], pa.timestamp("us", "Asia/Tokyo")),
    "duration": pa.array([1, -2], pa.duration("s")),
    "string": pa.array(["", "ü"]),
    "large_string": pa.array(["a", "aa"], pa.large_string()),
    "binary": pa.array([b"\0", b""]),
    "fixed": pa.array([b"ab", b"ac"], pa.binary(2)),
}


@pytest.mark.parametrize("name", list(PLAIN))
def test_canonical_keeps_equality(name: str) -> None:
    column = PLAIN[name]
    keys.check_key_type("k", column.type)
    canonical = keys.canonical(pa.concat_arrays([column, column, pa.nulls(1, column.type)]))
    assert canonical.type in (pa.int64(), pa.large_binary())
    first, second, third, fourth, null = canonical.to_pylist()
    assert (first, second) == (third, fourth)
    assert first != second
    assert null is None


def test_floats_are_equal_by_value() -> None:
    bits = pa.array([0x7FF8000000000001, -1, 0], pa.int64()).view(pa.float64())
    column = pa.chunked_array([bits, pa.array([-0.0, math.nan, 0.0, None])])
    quiet, other, zero, negative, nan, positive, null = keys.canonical(column).to_pylist()
    assert quiet == other == nan
    assert zero == negative == positive
    assert null is None
    single = keys.canonical(pa.array([1.5], pa.float32()))
    assert single.equals(keys.canonical(pa.array([1.5], pa.float64())))


def test_types_that_are_no_keys() -> None:
    for kind in (
        pa.list_(pa.int8()),
        pa.struct({}),
        pa.map_(pa.int8(), pa.int8()),
        pa.null(),
        pa.month_day_nano_interval(),
    ):
        with pytest.raises(SchemaMismatchError, match=r"'k' of type .* cannot be a key"):
            keys.check_key_type("k", kind)
    keys.check_key_type("k", pa.dictionary(pa.int8(), pa.string()))


@pytest.mark.parametrize("name", list(PLAIN))
def test_order_values_keep_the_order(name: str) -> None:
    column = PLAIN[name]
    values = keys.order_values(column)
    smaller = {
        "bool",
        "uint64",
        "float16",
        "float32",
        "decimal32",
        "decimal128",
        "decimal256",
        "timestamp",
        "duration",
        "binary",
    }
    assert (values[0] > values[1]) == (name in smaller)
    assert keys.order_values(pa.nulls(1, column.type)) == [None]


def test_order_values_compare_across_units() -> None:
    assert keys.order_values(pa.array([3], pa.timestamp("ms"))) == keys.order_values(
        pa.array([3_000_000], pa.timestamp("ns"))
    )
    assert keys.order_values(pa.array([3], pa.time32("s"))) == keys.order_values(pa.array([3_000_000], pa.time64("us")))
    assert (
        keys.order_values(pa.array([86_400_000], pa.date64())) == keys.order_values(pa.array([1], pa.date32())) == [1]
    )


def test_intervals_of_few_keys_are_the_keys() -> None:
    assert keys.intervals(pa.array([9, 1, 1_000_000, None, 1])) == [(1, 1), (9, 9), (1_000_000, 1_000_000)]
    assert keys.intervals(pa.array(["b", "a"])) == [(b"a", b"a"), (b"b", b"b")]
    assert keys.intervals(pa.array([], pa.int64())) == []
    assert keys.intervals(pa.array([1.0, math.nan])) is None


def test_intervals_are_cut_at_the_widest_gaps() -> None:
    assert keys.intervals(pa.array([1, 2, 3, 50, 51, 200]), 3) == [(1, 3), (50, 51), (200, 200)]
    assert keys.intervals(pa.array([1, 2, 3, 50, 51, 200]), 2) == [(1, 51), (200, 200)]
    assert keys.intervals(pa.array([1, 2, 3, 50, 51, 200]), 1) == [(1, 200)]
    words = ["prefix-a", "prefix-b", "prefix-x", "prefix-y"]
    assert keys.intervals(pa.array(words), 2) == [(b"prefix-a", b"prefix-b"), (b"prefix-x", b"prefix-y")]


@pytest.mark.parametrize("name", list(PLAIN))
def test_intervals_of_every_type(name: str) -> None:
    found = keys.intervals(PLAIN[name])
    assert found is not None
    values = keys.order_values(PLAIN[name])
    assert (found[0][0], found[-1][1]) == (min(values), max(values))


@pytest.mark.parametrize(
    "make",
    [
        lambda r: r.randrange(-(2**62), 2**62),
        lambda r: r.random() * 10 ** r.randrange(-5, 20),
        lambda r: "p" * 90 + str(r.random()),
    ],
    ids=["int", "float", "text"],
)
def test_intervals_cover_every_value(make: Any) -> None:
    chance = random.Random(5)
    column = pa.array([make(chance) for _ in range(5000)])
    found = keys.intervals(column)
    assert found is not None
    assert len(found) == keys.MAX_INTERVALS
    assert all(low <= high for low, high in found)
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(found))
    assert all(bounds_might_match(Bounds(value, value), found) for value in keys.order_values(column))


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (0, 0, False),
        (0, 1, True),
        (3, 4, True),
        (4, 9, False),
        (4, 10, True),
        (0, 99, True),
        (12, 19, False),
        (21, 30, False),
    ],
)
def test_bounds_against_intervals(lower: int, upper: int, expected: bool) -> None:
    assert bounds_might_match(Bounds(lower, upper), [(1, 3), (10, 11), (20, 20)]) is expected


def test_every_place_of_bounds_among_intervals() -> None:
    for intervals in ([], [(2, 2)], [(2, 5)], [(1, 1), (3, 3), (4, 7)], [(0, 2), (4, 4), (6, 8)]):
        for lower, upper in itertools.combinations_with_replacement(range(-1, 10), 2):
            meets = any(first <= upper and last >= lower for first, last in intervals)
            assert bounds_might_match(Bounds(lower, upper), intervals) is meets, (intervals, lower, upper)


def test_bounds_that_prove_nothing() -> None:
    assert bounds_might_match(None, [(1, 1)])
    assert bounds_might_match(Bounds(1, 2), None)
    assert bounds_might_match(Bounds(b"a", b"b"), [(1, 1)])
    assert not bounds_might_match(Bounds(None, None, 5), [(1, 1)])
    assert not bounds_might_match(Bounds(1, 2), [])


def test_bounds_of_many_row_groups_at_once() -> None:
    """The same answer as one by one, for numbers and for all that is not compared as numbers."""
    whole = [Bounds(lower, upper, 0) for lower in range(-1, 10) for upper in range(-1, 10)]  # damaged ones, too
    pairs: list[list[Bounds | None]] = [
        [],
        list(whole),
        [*whole, None],
        [*whole, Bounds(None, None, 7)],
        [Bounds(lower / 2, upper / 2) for lower in range(9) for upper in range(9)],
        [Bounds(Decimal(lower) / 2, Decimal(9)) for lower in range(9)],
        [Bounds(-(2**63), 2**63 - 1), Bounds(2**64, 2**65), Bounds(3, 2**80)],
        [Bounds(b"a", b"c"), None, Bounds(b"", b"")],
    ]
    covers: list[Any] = [None, [], [(2, 2)], [(1, 1), (3, 3), (4, 7)], [(-(2**63), 2**63 - 1)], [(1.5, 1.5), (4, 5)]]
    covers += [[(2**64, 2**64 + 1)], [(b"b", b"b")]]
    for bounds, intervals in itertools.product(pairs, covers):
        column = [[getattr(b or UNKNOWN, part) for b in bounds] for part in ("lower", "upper", "nulls")]
        expected = [bounds_might_match(b, intervals) for b in bounds]
        assert each_might_match((column[0], column[1], column[2]), intervals).tolist() == expected, (bounds, intervals)


def test_the_index_finds_rows() -> None:
    index = keys.KeyIndex([pa.array([7, 3, 9], pa.int64())])
    assert index.find([pa.array([3, None, 8, 9, 3, 0])]).tolist() == [1, -1, -1, 2, 1, -1]
    assert index.unique


def test_the_index_of_composite_keys() -> None:
    index = keys.KeyIndex(
        [pa.array([1, 1, 2], pa.int64()), pa.array([b"a", b"b", b"a"], pa.large_binary()), pa.array([5, 5, 6])]
    )
    columns = [
        pa.array([1, 2, 2, 1, None, 1], pa.int64()),
        pa.array([b"b", b"a", b"b", b"a", b"a", None], pa.large_binary()),
        pa.array([5, 6, 6, 6, 5, 5]),
    ]
    assert index.find(columns).tolist() == [1, 2, -1, -1, -1, -1]


def test_the_index_counts_duplicates() -> None:
    index = keys.KeyIndex([pa.array([5, 1, 5, 2, 1, 5], pa.int64())])
    assert index.duplicates() == (2, [0, 1])
    assert not index.unique
    many = keys.KeyIndex([pa.array([*range(9), *range(9)], pa.int64())])
    assert many.duplicates() == (9, [0, 1, 2, 3, 4])
    assert index.find([pa.array([5, 1, 2])]).tolist() == [0, 1, 3]


@pytest.mark.parametrize("kind", ["sorted", "unsorted", "with nulls"])
@pytest.mark.parametrize("rows", [1, 15, 400])
def test_each_way_of_searching_finds_the_same(rows: int, kind: str) -> None:
    rng = np.random.default_rng(rows)
    source, target = rng.integers(-30, 30, 40), rng.integers(-40, 40, rows)
    column = pa.array(np.sort(target) if kind == "sorted" else target, mask=target % 5 == 0 if "null" in kind else None)
    numbers = {value: number for number, value in enumerate(np.unique(source).tolist())}
    expected = [-1 if value is None else numbers.get(value, -1) for value in column.to_pylist()]
    assert keys.Lookup(pa.array(source)).find(column).tolist() == expected


def test_an_empty_index_finds_nothing() -> None:
    for kind in (pa.int64(), pa.large_binary()):
        index = keys.KeyIndex([pa.array([], kind)])
        assert index.find([pa.nulls(2, kind)]).tolist() == [-1, -1]


def test_groups_take_null_as_a_value() -> None:
    codes, first = keys.group([pa.array([1, None, 1, None]), pa.array([b"a", b"a", b"b", b"a"], pa.large_binary())])
    assert len(set(codes.tolist())) == 3
    assert codes[1] == codes[3]
    assert sorted(first.tolist()) == [0, 1, 2]


def test_differ() -> None:
    assert keys.differ(pa.array([1, None, None, 2]), pa.array([1, None, 1, 3])).tolist() == [False, False, True, True]


def test_keys_in_messages() -> None:
    moment = pa.array([1], pa.timestamp("ns"))
    assert keys.show(keys.sample([pa.array([1, 2])], [0, 1])) == "1, 2"
    assert keys.show(keys.sample([pa.array(["a"]), pa.array([Decimal("1.50")])], [0])) == "('a', 1.50)"
    assert "1970-01-01" in keys.show(keys.sample([moment], [0]))
    assert keys.show(keys.sample([pa.array([dt.date(2024, 1, 2)])], [0])) == "2024-01-02"
