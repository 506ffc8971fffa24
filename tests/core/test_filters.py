"""Filters: what they select, what they refuse, and which row groups are not read. A model in plain Python decides."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from fsspeckit.core.dataset.target import read_target
from fsspeckit.core.local_engine import LocalEngine
from fsspeckit.core.match.filter_scan import FilterScan, match_filter
from fsspeckit.core.match.filters import RowFilter, filter_names, parse_filters
from fsspeckit.core.model import Target
from fsspeckit.core.rewrite.files import FilterChanges
from fsspeckit.core.storage import Location, locate
from support import write_lake

NULL = "__HIVE_DEFAULT_PARTITION__"
UTC = dt.UTC
ENGINE = LocalEngine(threads=2)


def opened(root: Path | str, filters: Any, zone: str = "UTC") -> tuple[Location, Target, RowFilter]:
    location = locate(str(root))
    target = read_target(ENGINE.footers, location, filter_names(filters), None)
    row_filter: RowFilter = pickle.loads(pickle.dumps(parse_filters(filters, target, zone)))  # Spark sends it
    return location, target, row_filter


def matched(root: Path | str, filters: Any, zone: str = "UTC") -> tuple[dict[str, dict[int, int]], list[FilterScan]]:
    location, target, row_filter = opened(root, filters, zone)
    counts, scans = match_filter(ENGINE, location, target, row_filter)
    return {path: dict(groups) for path, groups in counts.items()}, scans


def selected(root: Path | str, filters: Any, zone: str = "UTC") -> dict[str, dict[int, list[int]]]:
    """The positions of the selected rows, as a rewrite deletes them."""
    location, target, row_filter = opened(root, filters, zone)
    counts, scans = match_filter(ENGINE, location, target, row_filter)
    found: dict[str, dict[int, list[int]]] = {}
    for footer, scan in zip(target.files, scans, strict=True):
        changes = FilterChanges(location, footer, row_filter)
        for group in range(len(footer.row_groups)):
            change = changes.row_group(group)
            positions = change.deleted.tolist()
            assert len(positions) == counts.get(footer.path, {}).get(group, 0)
            assert group not in scan.selected or len(positions) == footer.row_groups[group].rows
            assert positions == [] or group in (*scan.selected, *scan.read)
            assert (len(change.positions), change.rows.num_columns) == (0, 0)
            if positions:
                found.setdefault(footer.path, {})[group] = positions
    return found


def values(root: Path, filters: Any, column: str = "x", zone: str = "UTC") -> list[Any]:
    """The values of a column in the selected rows."""
    found = []
    for path, groups in sorted(selected(root, filters, zone).items()):
        file = pq.ParquetFile(root / path)
        for group, positions in sorted(groups.items()):
            cells = file.read_row_group(group, [column]).column(column).to_pylist()
            found += [cells[position] for position in positions]
    return found


def lake_of(root: Path, column: pa.Array, **options: Any) -> Path:
    write_lake(root, {"a.parquet": pa.table({"x": column})}, **options)
    return root


# -- the model


Order = tuple[Any, ...]


def order(value: Any) -> Order:
    """A value as something that Python sorts as filters do."""
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    if isinstance(value, float) and math.isinf(value):
        return (1, 0) if value > 0 else (-1, 0)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return (0, Fraction(value))
    if isinstance(value, dt.datetime):
        return (0, value.astimezone(UTC) if value.tzinfo else value)
    return (0, value)


def holds(cell: Any, operator: str, literal: Any) -> bool:
    if cell is None:
        return False
    if operator in ("in", "not in"):
        return any(order(cell) == order(one) for one in literal) == (operator == "in")
    left, right = order(cell), order(literal)
    outcome = {
        "=": left == right,
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return outcome[operator]


def in_type(cell: Any, dtype: pa.DataType) -> Any:
    """The cell of a file in the common type of all files. Only decimals that become floats differ."""
    return float(cell) if isinstance(cell, Decimal) and pa.types.is_floating(dtype) else cell


DAYS = [dt.date(1500, 2, 1), dt.date(1969, 12, 31), dt.date(2024, 12, 31), dt.date(2025, 1, 1), dt.date(9999, 12, 31)]
TIMES = [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(2025, 1, 1), dt.datetime(2025, 1, 1, 12, 0, 1)]
FINE = dt.datetime(2025, 1, 1, 12, 0, 0, 500001)
NUMBERS: list[Any] = [-3, -1, 0, 1, 2, 100]
FRACTIONS: list[Any] = [-1.5, 0.5, 2.25]
SPECIAL: list[Any] = [-0.0, math.nan, math.inf, -math.inf]
TEXTS = ["", "a", "ab", "b", "B", "\uffff", "\U0001f600", "é", "a" * 90 + "x", "a" * 90 + "y"]
BYTES = [b"\0\0", b"\0a", b"ab", b"\xff\xff"]
UNITS = ("s", "ms", "us", "ns")

Family = tuple[Sequence[tuple[pa.DataType, Sequence[Any]]], Sequence[Any]]
"""Types with the cells that they may hold, and literals."""
FAMILIES: dict[str, Family] = {
    "number": (
        [
            *((dtype, NUMBERS) for dtype in (pa.int8(), pa.int32(), pa.int64())),
            *((dtype, [0, 1, 2, 100]) for dtype in (pa.uint8(), pa.uint64())),
            *((dtype, [*map(float, NUMBERS), *FRACTIONS, *SPECIAL]) for dtype in (pa.float32(), pa.float64())),
            *(
                (pa.decimal128(9, 2), [Decimal("0.10"), Decimal("0.35"), Decimal("2.25"), Decimal(-3)])
                for _ in range(2)
            ),
        ],
        [*NUMBERS, *FRACTIONS, *SPECIAL, 0.1, 0.35, Decimal("0.1"), Decimal("2.251"), 10**30, -(10**30), np.int8(1)],
    ),
    "text": (
        [(dtype, TEXTS) for dtype in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))],
        [*TEXTS, "a" * 90, "zz"],
    ),
    "binary": ([(dtype, BYTES) for dtype in (pa.binary(), pa.large_binary(), pa.binary(2))], [*BYTES, b"", b"abc"]),
    "date": ([(dtype, DAYS) for dtype in (pa.date32(), pa.date64())], DAYS),
    "naive": ([(pa.timestamp(unit), TIMES) for unit in UNITS], [*TIMES, FINE]),
    "zoned": (
        [(pa.timestamp(unit, "Europe/Berlin"), [v.replace(tzinfo=UTC) for v in TIMES]) for unit in UNITS],
        [v.replace(tzinfo=dt.timezone(dt.timedelta(hours=h))) for v in [*TIMES, FINE] for h in (0, 1)],
    ),
    "time": (
        [(dtype, [dt.time(0), dt.time(12, 0, 1)]) for dtype in (pa.time32("ms"), pa.time64("us"), pa.time64("ns"))],
        [dt.time(0), dt.time(12, 0, 1), dt.time(12, 0, 0, 999)],
    ),
    "bool": ([(pa.bool_(), [True, False])], [True, False, np.bool_(True)]),
    "duration": ([(pa.duration("us"), [dt.timedelta(0), dt.timedelta(1)])], [dt.timedelta(0), dt.timedelta(hours=1)]),
}
OPERATORS = ["=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]


def literals(family: str) -> st.SearchStrategy[tuple[str, Any]]:
    one = st.sampled_from(FAMILIES[family][1])
    ordered = one.filter(lambda value: value == value)  # a range that ends at NaN is refused
    return st.sampled_from(OPERATORS).flatmap(
        lambda op: st.tuples(
            st.just(op),
            st.lists(one, min_size=1, max_size=3) if op.endswith("in") else ordered if op[0] in "<>" else one,
        )
    )


@st.composite
def tables(draw: st.DrawFn, families: Sequence[str], partition: bool) -> pa.Table:
    """Columns `c0`, `c1`, … of these families; a file may lack one, or hold nothing but nulls of type null."""
    rows = draw(st.integers(0 if not partition else 1, 7))
    columns: dict[str, Any] = {"row": pa.array(range(rows), pa.int64())}
    for number, family in enumerate(families):
        dtype, cells = draw(st.sampled_from(FAMILIES[family][0]))
        how = draw(st.sampled_from(["values", "values", "values", "required", "absent", "null"]))
        cell = st.sampled_from(cells) if how == "required" else st.none() | st.sampled_from(cells)
        if how == "null":
            columns[f"c{number}"] = pa.nulls(rows)
        elif how != "absent":
            columns[f"c{number}"] = pa.array(draw(st.lists(cell, min_size=rows, max_size=rows)), dtype)
    return pa.table(columns)


@st.composite
def lakes(draw: st.DrawFn) -> tuple[dict[str, tuple[pa.Table, dict[str, Any]]], list[str]]:
    families = draw(st.lists(st.sampled_from(sorted(FAMILIES)), min_size=1, max_size=2))
    partition = draw(st.sampled_from(["", "", "in paths", "stored"]))
    files = {}
    for number in range(draw(st.integers(1, 3))):
        table, folder = draw(tables(families, bool(partition))), ""
        if partition:
            part = draw(st.sampled_from([None, 1, 2, 9, 10]))
            folder = f"p={NULL if part is None else f'{part:02d}'}/"
            if partition == "stored":  # the path wins, whatever is stored
                stored = draw(st.sampled_from([part, 5]))
                table = table.append_column("p", pa.array([stored] * table.num_rows, pa.int32()))
        options = {
            "write_statistics": draw(st.booleans()),
            "row_group_size": draw(st.integers(1, 4)),
            "use_dictionary": draw(st.booleans()),
        }
        files[f"{folder}f{number}.parquet"] = table, options
    return files, [*families, *(["p"] if partition else [])]


def cells_of(path: str, row: dict[str, Any]) -> dict[str, Any]:
    if "p=" not in path:
        return row
    text = path.split("/")[0].removeprefix("p=")
    return {**row, "p": None if text == NULL else int(text)}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_filters_select_what_the_model_selects(data: st.DataObject) -> None:
    files, families = data.draw(lakes())
    names = {f"c{number}" if family != "p" else "p": family for number, family in enumerate(families)}
    stored = {name for table, _ in files.values() for name in table.column_names}
    names = {name: family for name, family in names.items() if name in stored or name == "p"} or {"row": "number"}
    condition = st.sampled_from(sorted(names)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            literals(names[name])
            if names[name] != "p"
            else st.tuples(st.sampled_from(OPERATORS[:-2]), st.sampled_from([0, 1, 2, 3, 9, 10])),
        )
    )
    any_of = data.draw(st.lists(st.lists(condition, min_size=1, max_size=2), min_size=1, max_size=2))
    filters: Any = [[(name, op, literal) for name, (op, literal) in conditions] for conditions in any_of]
    filters = filters[0] if len(filters) == 1 and data.draw(st.booleans()) else filters
    note(f"{filters}")
    with tempfile.TemporaryDirectory() as root:
        for path, (table, options) in files.items():
            write_lake(root, {path: table}, **options)
        location = locate(root)
        target = read_target(ENGINE.footers, location, (), None)
        assert target.schema is not None
        types = {field.name: field.type for field in target.schema}
        expected: dict[str, dict[int, list[int]]] = {}
        for path, (table, options) in files.items():
            for number, row in enumerate(table.to_pylist()):
                cells = {n: in_type(v, types.get(n, pa.null())) for n, v in cells_of(path, row).items()}
                if any(
                    all(
                        holds(cells.get(name), op, _of_column(literal, types.get(name))) for name, (op, literal) in part
                    )
                    for part in any_of
                ):
                    group, position = divmod(number, options["row_group_size"])
                    expected.setdefault(path, {}).setdefault(group, []).append(position)
        assert selected(root, filters) == expected


def _of_column(literal: Any, dtype: Any) -> Any:
    """Against decimals, the float 0.1 is 0.1; against floats, the decimal 0.1 is the float."""
    if isinstance(literal, list):
        return [_of_column(one, dtype) for one in literal]
    if isinstance(literal, np.generic):
        return literal.item()
    if isinstance(literal, float) and math.isfinite(literal) and dtype is not None and pa.types.is_decimal(dtype):
        return Decimal(repr(literal))
    if literal == Decimal("0.1") and dtype is not None and pa.types.is_floating(dtype):
        return float(np.float32(0.1)) if dtype == pa.float32() else 0.1
    return literal
