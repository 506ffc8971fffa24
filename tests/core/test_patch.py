"""Rows of a column replaced by position, whatever its type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.core.rewrite.patch import patched

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [1, None, -5, 127]),
    "int64": (pa.int64(), [1, 2, -5, 2**62]),
    "uint16": (pa.uint16(), [0, None, 65535]),
    "half": (pa.float16(), [np.float16(1.5), None, np.float16(-2)]),
    "double": (pa.float64(), [1.5, None, float("inf"), -0.0]),
    "flag": (pa.bool_(), [True, None, False, True, True]),
    "date": (pa.date32(), [dt.date(1, 1, 1), None, dt.date(2024, 2, 29)]),
    "time": (pa.timestamp("ns", "Asia/Tokyo"), [1, None, 2**60]),
    "money": (pa.decimal128(38, 2), [Decimal("1.50"), None, Decimal("-2.25")]),
    "small money": (pa.decimal32(5, 2), [Decimal("1.50"), None]),
    "huge": (pa.decimal256(70, 2), [Decimal("1.50"), None, Decimal(10) ** 60]),
    "bytes": (pa.binary(3), [b"abc", None, b"\0\0\0"]),
    "nothing wide": (pa.binary(0), [b"", None]),
    "text": (pa.string(), ["a", None, "", "ü" * 40]),
    "large": (pa.large_binary(), [b"a", None, b""]),
    "list": (pa.list_(pa.int32()), [[1, None], None, [], [2, 3, 4]]),
    "pair": (pa.list_(pa.int8(), 2), [[1, 2], None, [3, None]]),
    "struct": (pa.struct([("x", pa.int64()), ("s", pa.string())]), [{"x": 1, "s": None}, None, {"x": None, "s": "b"}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", None), ("c", 2)]]),
    "null": (pa.null(), [None]),
    "month interval": (pa.month_day_nano_interval(), [(1, 2, 3), None]),
}
ROWS = 300


def _column(name: str, rows: int, offset: int = 0) -> pa.Array:
    dtype, values = KINDS[name]
    return pa.array([values[(offset + i * i) % len(values)] for i in range(rows)], dtype)


def _shown(column: Any) -> list[Any]:
    return [repr(value) for value in column.to_pylist()]


PLACES = {
    "none": [],
    "first": [0],
    "last": [ROWS - 1],
    "a run": list(range(40, 60)),
    "runs and single ones": [0, 1, 2, 77, 78, 150, ROWS - 2, ROWS - 1],
    "every other": list(range(0, ROWS, 2)),
    "all": list(range(ROWS)),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", KINDS)
def test_as_if_row_by_row(name: str, places: str) -> None:
    positions = np.array(PLACES[places], dtype=np.int64)
    old, new = _column(name, ROWS), _column(name, len(positions), 1)
    expected = _shown(old)
    for place, value in zip(positions, _shown(new), strict=True):
        expected[place] = value
    whole = pa.chunked_array([old]), pa.chunked_array([new], old.type)
    slices = [pa.chunked_array([pa.concat_arrays([a, a]).slice(len(a))], a.type) for a in (old, new)]
    pieces = [pa.chunked_array([a[: len(a) // 3], a[len(a) // 3 :]], a.type) for a in (old, new)]
    for before, after in (whole, slices, pieces):
        kept = _shown(before)
        merged = patched(before, positions, after)
        merged.validate(full=True)
        assert merged.type == old.type
        assert _shown(merged) == expected
        assert _shown(before) == kept, "the old values stay as they were"
