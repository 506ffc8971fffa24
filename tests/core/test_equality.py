"""Rows that differ, compared with a loop over rows."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.core.values.equality import differing_rows, identical

NAN, OTHER_NAN = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64).tolist()
FLOATS = [0.0, -0.0, 1.5, None, NAN, OTHER_NAN, float("inf")]
POINT = pa.struct([("x", pa.float64()), ("s", pa.string())])
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "null": (pa.null(), [None]),
    "flag": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [1, None, -5]),
    "uint64": (pa.uint64(), [0, None, 2**64 - 1]),
    "half": (pa.float16(), [None if x is None else np.float16(x) for x in FLOATS]),
    "float": (pa.float32(), FLOATS),
    "double": (pa.float64(), FLOATS),
    "day": (pa.date32(), [dt.date(1, 1, 1), None, dt.date(2024, 2, 29)]),
    "day in ms": (pa.date64(), [dt.date(1, 1, 1), None, dt.date(2024, 2, 29)]),
    "clock": (pa.time64("us"), [1, 2, None]),
    "instant": (pa.timestamp("ns", "Asia/Tokyo"), [1, None, 2**60]),
    "span": (pa.duration("s"), [1, None, 2]),
    "money": (pa.decimal128(20, 2), [Decimal("1.50"), None, Decimal("-2.25")]),
    "small money": (pa.decimal32(5, 2), [Decimal("1.50"), None, Decimal("-2.25")]),
    "large money": (pa.decimal256(50, 2), [Decimal("1.50"), None, Decimal("-2.25")]),
    "text": (pa.string(), ["", None, "a", "é"]),
    "large text": (pa.large_string(), ["", None, "a", "é"]),
    "bytes": (pa.binary(), [b"", None, b"\0"]),
    "three bytes": (pa.binary(3), [b"abc", None, b"\0\0\0"]),
    "list": (pa.list_(pa.int32()), [[1, None], None, [], [1, 2], [1], [None, 1]]),
    "large list": (pa.large_list(pa.string()), [["a", None], None, [], ["", "a"], ["a", ""]]),
    "list of floats": (pa.list_(pa.float64()), [[0.0], [-0.0], [NAN, 1.0], [OTHER_NAN, 1.0], None, [None]]),
    "pair": (pa.list_(pa.int8(), 2), [[1, 2], None, [1, None], [2, 1]]),
    "point": (POINT, [{"x": 0.0, "s": "a"}, {"x": -0.0, "s": "a"}, None, {"x": None, "s": "a"}, {"x": NAN, "s": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("a", None)], [("b", 1)], [("a", 1), ("b", 1)]]),
    "deep": (
        pa.list_(pa.struct([("points", pa.list_(POINT))])),
        [None, [], [None], [{"points": None}], [{"points": [{"x": 1.0, "s": "a"}]}], [{"points": [None]}]],
    ),
}


def shown(value: Any) -> Any:
    """A value in a form in which equal means identical: bits of floats, one NaN."""
    if isinstance(value, float | np.floating):
        return "NaN" if value != value else struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: shown(part) for name, part in value.items()}
    return [shown(part) for part in value] if isinstance(value, list | tuple) else value


def check(left: Any, right: Any) -> None:
    rows = zip(left.to_pylist(), right.to_pylist(), strict=True)
    expected = [shown(a) != shown(b) for a, b in rows]
    mask = differing_rows(left, right)
    assert (mask.dtype, mask.tolist()) == (np.bool_, expected)
    assert identical(left, right) is not any(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_of_values_as_a_loop_over_rows_sees_it(kind: str) -> None:
    dtype, values = KINDS[kind]
    pairs = [(a, b) for a in values for b in values] * 2
    left, right = (pa.array(column, dtype) for column in zip(*pairs, strict=True))
    check(left, right)
    check(left, left)
    check(left[1:-1], right[1:-1])
    check(left[:0], right[:0])
    check(*(pa.chunked_array([a[:at], a[at:]], dtype) for a, at in ((left, len(left) // 3), (right, len(left) // 2))))
    check(*(pa.chunked_array([], dtype) for _ in range(2)))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rows_of_every_type_at_random(data: st.DataObject) -> None:
    dtype, values = KINDS[data.draw(st.sampled_from(sorted(KINDS)))]
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(values), st.sampled_from(values)), max_size=30))
    columns = ([pair[side] for pair in pairs] for side in range(2))
    start = data.draw(st.integers(0, len(pairs)))
    left, right = (pa.array(column, dtype).slice(start) for column in columns)
    check(left, right)


def test_decimals_whose_digits_do_not_fit() -> None:
    """Damaged files have such values. Arrow refuses to compare those of 32 bits."""
    raw = [(1 << 24).to_bytes(4, "little"), (1 << 25).to_bytes(4, "little")]
    kind = pa.decimal32(5, 2)
    left, right = (pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(raw[0] + last)]) for last in raw)
    assert differing_rows(left, right).tolist() == [False, True]
