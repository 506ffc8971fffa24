"""Deletes by filters in PyArrow's form, also of partition columns that are only in the paths."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fsspeckit.cli.commands import cli
from fsspeckit.core.errors import MergeValidationError
from row_lakes import consistent, counts, day_lake, flat_lake, folders, ids, keeps, refusal, seen
from support import data_files, fingerprint, multiset, rows, write_lake

NAN = float("nan")
AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def values() -> pa.Table:
    """Twelve rows with nulls and NaN in columns of common types."""
    return pa.table(
        {
            "id": pa.array(range(12)),
            "n": pa.array([1, 2, 3, None, 5, 6, 7, 8, None, 10, 11, 12], pa.int32()),
            "real": pa.array([0.5, NAN, None, -0.0, 0.0, 1.5, NAN, 2.5, 3.5, 4.5, None, 5.5]),
            "text": pa.array(["a", "b", None, "ab", "", "ü", "z", "B", "a", "b", "c", None]),
            "flag": pa.array([True, False, None] * 4),
            "day": pa.array([dt.date(2024, 1, d + 1) if d % 5 else None for d in range(12)]),
            "at": pa.array([AT + dt.timedelta(days=d) for d in range(12)], pa.timestamp("us", "UTC")),
            "money": pa.array([Decimal(d).scaleb(-1) for d in range(12)], pa.decimal128(8, 2)),
            "word": pa.array(["x", "y", None, "z"] * 3).dictionary_encode(),
        }
    )


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """One row group a file. PyArrow's bounds leave out NaN, and DataFusion takes a file with equal bounds for a
    constant: with a copied row group of NaN and one other value, it would read NaN as that value."""
    files = {f"f{i}.parquet": values().slice(i * 4, 4) for i in range(3)}
    return write_lake(tmp_path / "lake", files)


def delete(io: Any, lake: str, filters: Any) -> Any:
    """The result of a delete; its plan has the same counts."""
    plan = io.plan_delete(lake, filters=filters)
    result = io.delete(lake, filters=filters)
    assert counts(plan) == counts(result)
    assert plan.target_count_after == result.target_count_after
    consistent(result, lake)
    return result


FILTERS = [
    [("n", "=", 5)],
    [("n", "==", 5)],
    [("n", "!=", 5)],
    [("n", "<", 5)],
    [("n", "<=", 5)],
    [("n", ">", 5)],
    [("n", ">=", 5)],
    [("n", "in", [1, 5, 99])],
    [("n", "not in", [1, 5, 99])],
    [("real", ">", 1.0)],
    [("real", "==", 0.0)],
    [("real", "!=", 0.5)],
    [("text", "<", "b")],
    [("text", "in", {"a", "ü"})],
    [("flag", "==", True)],
    [("day", "<", dt.date(2024, 1, 8))],
    [("at", ">=", AT + dt.timedelta(days=6))],
    [("money", "<=", Decimal("0.30"))],
    [("word", "==", "y")],
    [("n", ">", 2), ("n", "<", 8), ("text", "!=", "z")],
    [[("n", "<", 3)], [("text", "==", "c"), ("id", ">", 5)]],
    [("n", ">", 100)],
]


def selected(row: dict[str, Any], filters: Any) -> bool:
    """Does a filter in PyArrow's form select a row? A list of lists is joined by or, a list of conditions by and."""
    groups = filters if isinstance(filters[0], list) else [filters]
    return any(all(holds(row[name], operator, literal) for name, operator, literal in group) for group in groups)


def holds(value: Any, operator: str, literal: Any) -> bool:
    """As in SQL no condition holds for null; NaN is the greatest value, as in keys and sequences."""
    if value is None:
        return False
    if operator in ("in", "not in"):
        return (value in literal) == (operator == "in")
    left, right = ((isinstance(v, float) and math.isnan(v), v) for v in (value, literal))
    if left[0] or right[0]:
        left, right = (left[0], 0), (right[0], 0)
    ways = {"=": left == right, "==": left == right, "!=": left != right}
    return {**ways, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]


@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: re.sub(r"\{.*\}", "a set", str(filters)))
def test_what_the_filter_selects_is_deleted(io: Any, lake: str, filters: Any) -> None:
    before, table = fingerprint(lake), values()
    gone = {row["id"] for row in table.to_pylist() if selected(row, filters)}
    result = delete(io, lake, filters)
    assert counts(result) == ({"deleted": len(gone)} if gone else {})
    assert (result.target_count_before, result.target_count_after) == (12, 12 - len(gone))
    kept = [row for row in table.to_pylist() if row["id"] not in gone]
    assert multiset(rows(lake)) == multiset(kept)
    keeps(before, fingerprint(lake), *(f"f{i}.parquet" for i in range(3) if not gone & set(range(4 * i, 4 * i + 4))))


def test_null_keys_and_copies_are_rows_like_others(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 1, None, 2], "x": ["a", "b", "a", "a"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    assert counts(delete(io, lake, [("x", "==", "a")])) == {"deleted": 3}
    assert rows(lake) == [{"id": 1, "x": "b"}]


def test_all_rows_of_a_file_and_of_the_data_set(io: Any, tmp_path: Path) -> None:
    lake = flat_lake(tmp_path)
    result = delete(io, lake, [("id", ">=", 10), ("id", "<", 20)])
    assert result.removed_files == [f"{lake}/f1.parquet"]
    assert data_files(lake) == ["f0.parquet", "f2.parquet"]
    assert counts(delete(io, lake, [("x", "==", "old")])) == {"deleted": 20}
    (name,) = data_files(lake)
    assert pq.read_metadata(Path(lake, name)).num_rows == 0


# Partition columns that are only in the paths


def months(folder: Path, *names: Any) -> str:
    files = {f"month={name}/f{n}.parquet": pa.table({"id": [n]}) for n, name in enumerate(names)}
    return write_lake(folder / "lake", files)


@pytest.mark.parametrize(
    ("names", "filters", "left"),
    [
        (["8", "9", "10", "11", "12"], [("month", "<", 9)], ["10", "11", "12", "9"]),
        (["8", "9", "10", "11", "12"], [("month", "in", [8, 12])], ["10", "11", "9"]),
        (["08", "09", "10"], [("month", "<=", 9)], ["10"]),
        (["-1", "1.5", "2"], [("month", "<", 1.6)], ["2"]),
        (["2024-09-30", "2024-10-01"], [("month", "<", dt.date(2024, 10, 1))], ["2024-10-01"]),
        (["2024-09-30", "2024-10-01"], [("month", "<", "2024-10-01")], ["2024-10-01"]),
        (["a", "b", "with space", "50%25"], [("month", "==", "50%")], ["a", "b", "with space"]),
        (["true", "false"], [("month", "==", True)], ["false"]),
        (["1", "9", "__HIVE_DEFAULT_PARTITION__"], [("month", "<", 5)], ["9", None]),
        (["1", "2"], [("month", "<", 5), ("id", ">", 0)], ["1"]),
    ],
    ids=str,
)
def test_a_partition_column_takes_the_type_of_the_literal(
    io: Any, tmp_path: Path, names: list[str], filters: Any, left: list[Any]
) -> None:
    lake = months(tmp_path, *names)
    before = fingerprint(lake)
    assert counts(delete(io, lake, filters)) == {"deleted": len(names) - len(left)}
    assert sorted([row["month"] for row in rows(lake)], key=str) == left
    assert len(folders(lake)) == len(left)
    keeps(before, fingerprint(lake), *data_files(lake))


@pytest.mark.parametrize(
    ("names", "literal", "value"),
    [(["1", "two"], 5, "two"), (["1", "1.5"], 5, "1.5"), (["2024-01-01", "soon"], dt.date(2024, 1, 1), "soon")],
    ids=str,
)
def test_every_folder_must_parse_as_the_literal(
    io: Any, tmp_path: Path, names: list[str], literal: Any, value: str
) -> None:
    lake = months(tmp_path, *names)
    for call in (io.delete, io.plan_delete):
        with refusal(lake, value):
            call(lake, filters=[("month", "<", literal)])


def test_whole_partitions_go(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    before = fingerprint(lake)
    assert counts(delete(io, lake, [("day", "in", ["a", "b"])])) == {"deleted": 4}
    assert (folders(lake), seen(lake, "id", "day")) == (["day=c"], [(5, "c"), (6, "c")])
    keeps(before, fingerprint(lake), "day=c/fc.parquet")


def test_a_partition_column_and_a_stored_one(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    assert counts(delete(io, lake, [[("day", "==", "a"), ("id", "==", 2)], [("id", "==", 6)]])) == {"deleted": 2}
    assert ids(lake) == [1, 3, 4, 5]


# Refusals


@pytest.mark.parametrize("call", ["delete", "plan_delete"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"filters": []},
        {"filters": [[]]},
        {"filters": [("n", "<", 5)], "keys": pa.table({"id": [1]}), "key_columns": ["id"]},
        {"filters": [("nope", "<", 5)]},
        {"filters": [("n", "~", 5)]},
        {"filters": [("n", "<")]},
        {"filters": [("n", "<", "five")]},
        {"filters": "n < 5"},
        {"filters": 5},
    ],
    ids=["nothing", "empty", "empty group", "keys too", "column", "operator", "two parts", "type", "text", "number"],
)
def test_arguments_that_say_nothing(io: Any, lake: str, call: str, arguments: dict[str, Any]) -> None:
    with refusal(lake, ".", MergeValidationError):
        getattr(io, call)(lake, **arguments)


@pytest.mark.parametrize(
    "arguments", [{"filters": [("n", "<", 5)]}, {"keys": pa.table({"id": [1]}), "key_columns": "id"}]
)
@pytest.mark.parametrize("call", ["delete", "plan_delete"])
def test_a_missing_target(io: Any, tmp_path: Path, call: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(MergeValidationError, match="lake"):
        getattr(io, call)(str(tmp_path / "lake"), **arguments)
    assert list(tmp_path.iterdir()) == []


# The command line


def command(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["delete", *arguments, "--json"], catch_exceptions=False, prog_name="fsspeckit")
    assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    return said


@pytest.mark.parametrize(
    ("names", "where", "left"),
    [
        (["8", "9", "10", "11", "12"], "month < 9", ["10", "11", "12", "9"]),
        (["2024-09-30", "2024-10-01"], "month < 2024-10-01", ["2024-10-01"]),
        (["a", "b", "c"], "month >= b", ["a"]),
        (["8", "9", "x"], "month in (8, x)", ["9"]),
        (["8", "9", "10"], "month in (8, 10)", ["9"]),
    ],
    ids=["number", "date", "text", "text beside a number", "numbers"],
)
def test_values_of_the_command_line(tmp_path: Path, names: list[str], where: str, left: list[str]) -> None:
    """All values are numbers, or all ISO dates, or text."""
    lake = months(tmp_path, *names)
    assert command(lake, "--where", where)["deleted"] == len(names) - len(left)
    assert sorted(row["month"] for row in rows(lake)) == left


def test_conditions_of_the_command_line_are_joined_by_and(tmp_path: Path) -> None:
    lake = flat_lake(tmp_path)
    assert command(lake, "--where", "id >= 5", "--where", "id < 7")["deleted"] == 2
    assert ids(lake) == [i for i in range(30) if i not in (5, 6)]


def test_keys_of_the_command_line(tmp_path: Path) -> None:
    lake = flat_lake(tmp_path)
    pq.write_table(pa.table({"id": [5, 6, 99]}), tmp_path / "gone.parquet")
    assert command(lake, "--keys", str(tmp_path / "gone.parquet"), "-k", "id")["deleted"] == 2
    assert ids(lake) == [i for i in range(30) if i not in (5, 6)]
