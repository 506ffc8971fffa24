"""Each line of "Traps" in the design: inputs on which a careless merge inserts twice, loses or misplaces rows."""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, nothing_changes, spoil_pages
from fsspeckit.core.errors import PartitionMoveError, SchemaMismatchError
from fsspeckit.core.parquet import thrift
from support import all_names, data_files, fingerprint, multiset, read_rows, rows, write_lake

UTC = dt.UTC


def pairs(lake: str, *names: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[n] for n in names) for row in rows(lake)), key=repr)


def counts(result: Any) -> tuple[int, int, int]:
    return result.inserted, result.updated, result.target_count_after


# Statistics


def test_a_struct_leaf_named_like_the_key(io: Any, tmp_path: Path) -> None:
    table = pa.table({"s": [{"n": 77, "id": 1000}, {"n": 88, "id": 2000}], "id": [1, 2], "x": ["a", "b"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    data = pa.table({"s": [{"n": 1, "id": 5}], "id": [2], "x": ["B"]})
    (elsewhere,) = io.plan(data.set_column(1, "id", [[1000]]), lake, "upsert", ["id"]).files
    assert elsewhere.action == "prune"  # by the key's own bounds, not by the leaf's
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (0, 1, 2)
    assert pairs(lake, "id", "x") == [(1, "a"), (2, "B")]


def test_a_column_with_the_path_of_a_struct_leaf(io: Any, tmp_path: Path) -> None:
    table = pa.table({"s": [{"id": 1000}, {"id": 2000}], "s.id": [1, 2], "x": ["a", "b"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    data = pa.table({"s": [{"id": 5}, None], "s.id": [2, 3], "x": ["B", "C"]})
    assert counts(io.merge(data, lake, "upsert", ["s.id"])) == (1, 1, 3)
    assert pairs(lake, "s.id", "x") == [(1, "a"), (2, "B"), (3, "C")]


def test_row_groups_with_and_without_statistics(io: Any, tmp_path: Path) -> None:
    """PyArrow leaves out bounds longer than 4 KiB: only the first row group has some."""
    long = ["z" * 5000, "y" * 5000]
    lake = str(tmp_path / "lake")
    write_lake(lake, {"f.parquet": pa.table({"id": ["a", "b", *long], "x": [1, 2, 3, 4]})}, row_group_size=2)
    metadata = pq.read_metadata(f"{lake}/f.parquet")
    assert [metadata.row_group(g).column(0).statistics is not None for g in (0, 1)] != [True, True] or not (
        metadata.row_group(1).column(0).statistics.has_min_max
    )
    data = pa.table({"id": [long[0], "b", "c"], "x": [30, 20, 50]})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 2, 5)
    assert sorted(row["x"] for row in rows(lake)) == [1, 4, 20, 30, 50]


def test_files_without_statistics(io: Any, tmp_path: Path) -> None:
    lake = write_lake(
        tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})}, write_statistics=False
    )
    assert counts(io.merge(pa.table({"id": [2, 3], "x": ["B", "C"]}), lake, "upsert", ["id"])) == (1, 1, 3)


def test_a_file_whose_key_holds_nan(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1.0, math.nan, 9.0, -0.0], "x": ["a", "b", "c", "d"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table, "g.parquet": pa.table({"id": [math.nan], "x": ["e"]})})
    data = pa.table({"id": [math.nan, 100.0, 0.0], "x": ["N", "H", "Z"]})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 3, 6)
    assert sorted(row["x"] for row in rows(lake)) == ["H", "N", "N", "Z", "a", "c"]


def test_a_source_key_of_nan_is_looked_for_everywhere(io: Any, tmp_path: Path) -> None:
    """Writers leave NaN out of the bounds: 1 to 9 may hold it."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1.0, math.nan, 9.0], "x": ["a", "b", "c"]})})
    assert counts(io.merge(pa.table({"id": [math.nan], "x": ["N"]}), lake, "upsert", ["id"])) == (0, 1, 3)


def test_bounds_of_nan_prove_nothing(io: Any, tmp_path: Path) -> None:
    """Old writers put NaN into the bounds, which then compare with nothing."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1.0, 5.0, 9.0], "x": ["a", "b", "c"]})})
    nan = (thrift.BINARY, struct.pack("<d", math.nan))

    def spoil(footer: thrift.Struct) -> None:
        chunk = footer[4][1][1][0][1][1][1][0]
        chunk[3][1][12][1].update({1: nan, 2: nan, 5: nan, 6: nan})

    edit_footer(Path(lake, "f.parquet"), spoil)
    assert math.isnan(pq.read_metadata(f"{lake}/f.parquet").row_group(0).column(0).statistics.max)
    assert counts(io.merge(pa.table({"id": [5.0], "x": ["B"]}), lake, "upsert", ["id"])) == (0, 1, 3)


def test_two_nans_are_one_key(io: Any, tmp_path: Path) -> None:
    bits = pa.array([0x7FF8000000000001, 0x7FF8000000000002], pa.int64()).view(pa.float64())
    with pytest.raises(ValueError, match=r"duplicate keys: 1 key.*nan"):
        io.merge(pa.table({"id": bits, "x": ["a", "b"]}), str(tmp_path / "lake"), "upsert", ["id"])


# One key, two types


def ts(unit: str, zone: str | None = None, *values: int) -> pa.Array:
    return pa.array(values, pa.timestamp(unit, zone))


SAME_KEYS = {
    "int32 in int64": (pa.array([1, 2], pa.int64()), pa.array([2, 3], pa.int32())),
    "int64 in int32": (pa.array([1, 2], pa.int32()), pa.array([2, 3], pa.int64())),
    "uint8 in int16": (pa.array([1, 2], pa.int16()), pa.array([2, 3], pa.uint8())),
    "uint64 beyond int64": (pa.array([1, 2**63 + 5], pa.uint64()), pa.array([2**63 + 5, 2**64 - 1], pa.uint64())),
    "float in int": (pa.array([1, 2], pa.int64()), pa.array([2.0, 3.0])),
    "int in float32": (pa.array([1, 2], pa.float32()), pa.array([2, 3])),
    "decimal(12,3) in (10,2)": (
        pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(10, 2)),
        pa.array([Decimal("2.500"), Decimal("3.500")], pa.decimal128(12, 3)),
    ),
    "decimal(10,2) in (12,3)": (
        pa.array([Decimal("1.500"), Decimal("-2.500")], pa.decimal128(12, 3)),
        pa.array([Decimal("-2.50"), Decimal("3.50")], pa.decimal128(10, 2)),
    ),
    "int in decimal": (
        pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(10, 2)),
        pa.array([2, 3], pa.int64()),
    ),
    "decimal256": (
        pa.array([Decimal(1), Decimal(10) ** 40], pa.decimal256(50, 2)),
        pa.array([Decimal(10) ** 40, Decimal(3)], pa.decimal256(60, 2)),
    ),
    "timestamp ns in us": (ts("us", None, 1, 2), ts("ns", None, 2000, 3000)),
    "timestamp us in ns": (ts("ns", None, 1000, 2000), ts("us", None, 2, 3)),
    "timestamp s in ms": (ts("ms", None, 1000, 2000), ts("s", None, 2, 3)),
    "another zone": (ts("us", "UTC", 1, 2), ts("ms", "America/New_York", 0, 3).cast(pa.timestamp("us", "Asia/Tokyo"))),
    "date64 in date32": (pa.array([1, 2], pa.date32()), pa.array([2 * 86_400_000, 3 * 86_400_000], pa.date64())),
    "time": (pa.array([1000, 2000], pa.time64("us")), pa.array([2, 3], pa.time32("ms"))),
    "large_string in string": (pa.array(["a", "b"]), pa.array(["b", "c"], pa.large_string())),
    "string in large_string": (pa.array(["a", "b"], pa.large_string()), pa.array(["b", "c"])),
    "string_view in string": (pa.array(["a", "b"]), pa.array(["b", "c"], pa.string_view())),
    "dictionary in string": (pa.array(["a", "b"]), pa.array(["b", "c"]).dictionary_encode()),
    "string in dictionary": (pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c"])),
    "dictionary of int in int": (pa.array([1, 2]), pa.array([2, 3]).dictionary_encode()),
    "large_binary in binary": (pa.array([b"a", b"\xff"]), pa.array([b"\xff", b"c"], pa.large_binary())),
    "binary in fixed size": (pa.array([b"aa", b"bb"], pa.binary(2)), pa.array([b"bb", b"cc"])),
    "bool": (pa.array([True]), pa.array([True, False])),
}


@pytest.mark.parametrize("target", list(SAME_KEYS))
def test_the_same_key_in_another_type(io: Any, tmp_path: Path, target: str) -> None:
    old, new = SAME_KEYS[target]
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": old, "x": ["old"] * len(old)})})
    expected_type = pq.read_schema(f"{lake}/f.parquet").field("id").type
    result = io.merge(pa.table({"id": new, "x": ["new"] * len(new)}), lake, "upsert", ["id"])
    shared = 0 if target == "another zone" else 1
    assert counts(result) == (len(new) - shared, shared, len(old) + len(new) - shared)
    types = {pq.read_schema(Path(lake, name)).field("id").type for name in data_files(lake)}
    assert types == {expected_type}


def test_the_same_instant_in_another_zone(io: Any, tmp_path: Path) -> None:
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=UTC)
    old = pa.table({"id": pa.array([noon], pa.timestamp("us", "Europe/Berlin")), "x": ["old"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    data = pa.table({"id": pa.array([noon], pa.timestamp("ns", "Asia/Tokyo")), "x": ["new"]})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (0, 1, 1)
    assert pairs(lake, "x") == [("new",)]


@pytest.mark.parametrize(("old", "new"), [([1], ["1"]), (["1"], [1]), ([dt.date(2024, 1, 1)], ["2024-01-01"])])
def test_text_against_another_type(io: Any, tmp_path: Path, old: list[Any], new: list[Any]) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": old, "x": ["a"]})})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"'id' is .* not comparable"):
        io.merge(pa.table({"id": new, "x": ["b"]}), lake, "upsert", ["id"])


def test_strings_compare_by_code_point(io: Any, tmp_path: Path) -> None:
    words = ["e\u0301", "\u00e9", "", " ", "E", "\U0001f600", "\uffff"]
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": words, "x": ["old"] * 7})}, row_group_size=2)
    data = pa.table({"id": ["\u00e9", "", "\U0001f600", "e"], "x": ["new"] * 4})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 3, 8)
    assert {row["id"] for row in rows(lake) if row["x"] == "old"} == {"e\u0301", " ", "E", "\uffff"}


def test_long_keys_that_share_a_prefix(io: Any, tmp_path: Path) -> None:
    """DuckDB, Polars and others cut bounds; a cut bound excludes what is beyond it and confirms nothing."""
    names = ["p" * 100 + str(n) for n in range(30)]
    files = {f"f{i}.parquet": pa.table({"id": names[i * 10 : i * 10 + 10], "x": ["old"] * 10}) for i in range(3)}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [names[3], names[25], "p" * 100, "p" * 100 + "9z"], "x": ["new"] * 4})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (2, 2, 32)


def test_files_of_one_target_with_different_types(io: Any, tmp_path: Path) -> None:
    files = {
        "a.parquet": pa.table({"id": pa.array([1, 2], pa.int32()), "x": ["a", "b"]}),
        "b.parquet": pa.table({"id": pa.array([3, 2**40], pa.int64()), "x": pa.array(["c", "d"], pa.large_string())}),
    }
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [2, 2**40, 2**41], "x": ["B", "D", "E"]})
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert counts(result) == (1, 2, 5)
    assert pairs(lake, "id", "x") == sorted([(1, "a"), (2, "B"), (3, "c"), (2**40, "D"), (2**41, "E")], key=repr)
    assert {pq.read_schema(f"{lake}/{name}").field("id").type for name in data_files(lake)} == {pa.int64()}


def test_files_take_the_unified_type_only_if_a_value_needs_it(io: Any, tmp_path: Path) -> None:
    files = {
        "a.parquet": pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int8())}),
        "b.parquet": pa.table({"id": [3], "n": pa.array([300], pa.int32())}),
        "c.parquet": pa.table({"id": [4], "n": pa.array([4], pa.int8())}),
    }
    lake = write_lake(tmp_path / "lake", files)

    def types() -> list[pa.DataType]:
        return [pq.read_schema(f"{lake}/{name}").field("n").type for name in data_files(lake)]

    io.merge(pa.table({"id": [1, 4], "n": [100, 5]}), lake, "update", ["id"], replace="in_place")
    assert types() == [pa.int8(), pa.int32(), pa.int8()]
    io.merge(pa.table({"id": [1, 4], "n": [100_000, 5]}), lake, "update", ["id"], replace="in_place")
    assert types() == [pa.int32(), pa.int32(), pa.int32()]
    assert pairs(lake, "id", "n") == [(1, 100_000), (2, 2), (3, 300), (4, 5)]


def test_decimal_and_float_files_of_one_target(io: Any, tmp_path: Path) -> None:
    """0.10 as a decimal and 0.1 as a double are one key, though the double is a little more than 0.10."""
    files = {
        "a.parquet": pa.table({"id": pa.array([Decimal("0.10")], pa.decimal128(10, 2)), "x": ["a"]}),
        "b.parquet": pa.table({"id": [7.5], "x": ["b"]}),
    }
    lake = write_lake(tmp_path / "lake", files)
    assert counts(io.merge(pa.table({"id": [0.1], "x": ["A"]}), lake, "upsert", ["id"])) == (0, 1, 2)


def test_a_column_that_only_some_files_have(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": pa.table({"id": [1, 2]}), "b.parquet": pa.table({"id": [3], "x": ["c"]})}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [1, 3, 4], "x": ["A", "C", "D"]})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 2, 4)
    found = [(row["id"], row.get("x")) for row in rows(lake)]
    assert sorted(found) == [(1, "A"), (2, None), (3, "C"), (4, "D")]


def test_a_source_column_of_nothing_but_nulls(io: Any, tmp_path: Path) -> None:
    """Its Arrow type is null, which fits every column."""
    old = pa.table({"id": [1, 2], "x": ["a", "b"], "l": [[1], [2]]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    data = pa.table({"id": [2, 3], "x": [None, None], "l": [[], [None]]})
    assert data.schema.field("x").type == pa.null()
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 1, 3)
    assert multiset(rows(lake)) == multiset([old.to_pylist()[0], *data.to_pylist()])


def test_a_slice_of_a_source(io: Any, tmp_path: Path) -> None:
    """What lies outside the slice does not fit the target, and does not matter."""
    old = pa.table({"id": [1], "l": pa.array([[1]], pa.list_(pa.int8()))})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    data = pa.table({"id": [1, 2, 1], "l": [[5], [6], [300]]}).slice(0, 2)
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 1, 2)
    assert pairs(lake, "id", "l") == [(1, [5]), (2, [6])]


# Pruning


def test_keys_far_apart_prune_what_lies_between(io: Any, tmp_path: Path) -> None:
    files = {f"f{i}.parquet": pa.table({"id": [i * 10, i * 10 + 9], "x": ["old"] * 2}) for i in range(5)}
    lake = write_lake(tmp_path / "lake", files)
    for i in (1, 2, 3):
        spoil_pages(Path(lake, f"f{i}.parquet"))
    assert counts(io.merge(pa.table({"id": [0, 49], "x": ["A", "B"]}), lake, "upsert", ["id"])) == (0, 2, 10)


@pytest.mark.parametrize("shift", [0, 1], ids=["first column excludes", "second column excludes"])
def test_a_composite_key_prunes_by_any_column(io: Any, tmp_path: Path, shift: int) -> None:
    near, far = [1, 9], [101, 109]
    columns = [[near, far], [far, near]][shift]
    files = {
        "hit.parquet": pa.table({"a": near, "b": near, "x": ["old"] * 2}),
        "miss.parquet": pa.table({"a": columns[0], "b": columns[1], "x": ["old"] * 2}),
    }
    lake = write_lake(tmp_path / "lake", files)
    spoil_pages(Path(lake, "miss.parquet"))
    data = pa.table({"a": [9, 1], "b": [9, 2], "x": ["A", "B"]})
    assert counts(io.merge(data, lake, "upsert", ["a", "b"])) == (1, 1, 5)


def test_the_parts_of_a_composite_key_do_not_mix(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"a": [1, 2], "b": ["x", "y"], "v": [0, 0]})})
    data = pa.table({"a": [1, 2, 2], "b": ["y", "x", "y"], "v": [7, 8, 9]})
    assert counts(io.merge(data, lake, "upsert", ["a", "b"])) == (2, 1, 4)
    assert pairs(lake, "a", "b", "v") == [(1, "x", 0), (1, "y", 7), (2, "x", 8), (2, "y", 9)]


# Partitions

PARTITIONS = {
    "01 as text": ("01", "01", pa.string()),
    "01 as number": ("01", 1, pa.int64()),
    "007": ("007", "007", pa.string()),
    "007 as number": ("007", 7, pa.int32()),
    "1e5 as text": ("1e5", "1e5", pa.string()),
    "1e5 as float": ("1e5", 100_000.0, pa.float64()),
    "TRUE as text": ("TRUE", "TRUE", pa.string()),
    "TRUE as bool": ("TRUE", True, pa.bool_()),
    "nan as text": ("nan", "nan", pa.string()),
    "nan as float": ("nan", math.nan, pa.float64()),
    "date as text": ("2024-01-31", "2024-01-31", pa.string()),
    "date": ("2024-01-31", dt.date(2024, 1, 31), pa.date32()),
    "timestamp": ("2024-01-31 12:00:00", dt.datetime(2024, 1, 31, 12), pa.timestamp("us")),
    "zoned timestamp": ("2024-01-31 12%3A00%3A00", dt.datetime(2024, 1, 31, 12, tzinfo=UTC), pa.timestamp("us", "UTC")),
    "decimal": ("1.50", Decimal("1.5"), pa.decimal128(5, 1)),
    "null": ("__HIVE_DEFAULT_PARTITION__", None, pa.string()),
    "null number": ("__HIVE_DEFAULT_PARTITION__", None, pa.int64()),
    "space": ("a b", "a b", pa.string()),
    "escaped space": ("a%20b", "a b", pa.string()),
    **{f"with {c}": (quote(f"a{c}b", safe=""), f"a{c}b", pa.string()) for c in "=%/:'ü"},
    "bare colon": ("a:b", "a:b", pa.string()),
    "bare equals": ("a=b", "a=b", pa.string()),
    "bare ü": ("ü", "ü", pa.string()),
    "bare quote": ("it's", "it's", pa.string()),
    "dictionary": ("01", "01", pa.dictionary(pa.int32(), pa.string())),
}


@pytest.mark.parametrize(("strategy", "named"), [("update", False), ("upsert", True)])
@pytest.mark.parametrize("case", list(PARTITIONS))
def test_partition_values(io: Any, tmp_path: Path, case: str, named: bool, strategy: str) -> None:
    spelled, value, kind = PARTITIONS[case]
    files = {
        f"p={spelled}/f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]}),
        "p=77/f.parquet": pa.table({"id": [3], "x": ["c"]}),
    }
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        files["p=2000-01-01/f.parquet"] = files.pop("p=77/f.parquet")
    if pa.types.is_boolean(kind):
        files["p=false/f.parquet"] = files.pop("p=77/f.parquet")
    lake = write_lake(tmp_path / "lake", files)
    folders = {name.rpartition("/")[0] for name in files}
    data = pa.table({"id": [2, 9], "x": ["B", "new"], "p": pa.array([value, value], kind)})
    result = io.merge(data, lake, strategy, ["id"], ["p"] if named else None)
    inserted = 1 if strategy == "upsert" else 0
    assert counts(result) == (inserted, 1, 3 + inserted)
    assert {name.rpartition("/")[0] for name in data_files(lake)} == folders
    found = [
        (row["id"], row["x"])
        for name in data_files(lake)
        if name.startswith(f"p={spelled}/")
        for row in _rows(lake, name)
    ]
    assert sorted(found) == [(1, "a"), (2, "B"), (9, "new")][: 2 + inserted]


def _rows(lake: str, name: str) -> list[dict[str, Any]]:
    with open(Path(lake, name), "rb") as file:
        return pq.ParquetFile(file).read().to_pylist()


@pytest.mark.parametrize(
    "value",
    ["01", "a b", "=", "%", "%41", "/", ":", "'", "ü", '"', "*", "?", "[0]", "{", "\\", "\n", "..", "a/../b"],
)
def test_a_new_partition_reads_back(io: Any, tmp_path: Path, value: str) -> None:
    lake = str(tmp_path / "lake")
    data = pa.table({"id": [1, 2], "p": [value, "other"], "x": ["a", "b"]})
    assert io.merge(data, lake, "upsert", ["id"], ["p"]).inserted == 2
    assert multiset(rows(lake)) == multiset(data.to_pylist())
    assert len({name.count("/") for name in data_files(lake)}) == 1
    again = pa.table({"id": [1, 3], "p": [value, value], "x": ["A", "c"]})
    assert counts(io.merge(again, lake, "upsert", ["id"])) == (1, 1, 3)
    assert len({name.rpartition("/")[0] for name in data_files(lake)}) == 2


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
def test_the_partition_is_part_of_the_key(io: Any, tmp_path: Path, strategy: str) -> None:
    days = ["2024-01-01", "2024-01-02"]
    files = {f"day={d}/f.parquet": pa.table({"id": [1, 2], "x": ["old"] * 2}) for d in days}
    lake = write_lake(tmp_path / "lake", files)
    date = dt.date.fromisoformat
    data = pa.table({"id": [1, 2, 1], "day": [date(days[0]), date(days[1]), dt.date(2024, 1, 3)], "x": ["new"] * 3})
    result = io.merge(data, lake, strategy, ["id", "day"])
    expected = {"insert": (1, 0, 5), "update": (0, 2, 4), "upsert": (1, 2, 5)}[strategy]
    assert counts(result) == expected
    changed = {(row["id"], row["day"]) for row in rows(lake) if row["x"] == "new"}
    updated = {(1, days[0]), (2, days[1])} if strategy != "insert" else set()
    assert changed == updated | ({(1, "2024-01-03")} if strategy != "update" else set())


def test_two_partition_columns(io: Any, tmp_path: Path) -> None:
    files = {
        f"y={y}/m={m:02d}/f.parquet": pa.table({"id": [y * 100 + m], "x": ["old"]}) for y in (1, 2) for m in (1, 2)
    }
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [102, 999], "x": ["new"] * 2, "m": [2, 2], "y": [1, 2]})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 1, 5)
    assert {name.rpartition("/")[0] for name in data_files(lake)} == {name.rpartition("/")[0] for name in files}
    with nothing_changes(lake), pytest.raises(PartitionMoveError):
        io.merge(data.set_column(2, "m", [[1, 2]]), lake, "upsert", ["id"])


def test_a_partition_column_that_files_also_store(io: Any, tmp_path: Path) -> None:
    lake = write_lake(
        tmp_path / "lake", {f"p={p}/f.parquet": pa.table({"id": [p], "p": [p], "x": ["old"]}) for p in (1, 2)}
    )
    data = pa.table({"id": [1, 3], "p": [1, 2], "x": ["new"] * 2})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (1, 1, 3)
    assert multiset(rows(lake)) == multiset([*data.to_pylist(), {"id": 2, "p": 2, "x": "old"}])


def test_a_file_outside_any_partition(io: Any, tmp_path: Path) -> None:
    """Its stored column gives the value; files within partitions need not store it, and still do not afterwards."""
    files = {
        "p=1/f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]}),
        "loose.parquet": pa.table({"id": [3, 4], "x": ["c", "d"], "p": [1, 2]}),
    }
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [2, 4], "x": ["B", "D"], "p": [1, 2]})
    result = io.merge(data, lake, "update", ["id"], replace="in_place")
    assert counts(result) == (0, 2, 4)
    assert pq.read_schema(f"{lake}/p=1/f.parquet").names == ["id", "x"]
    assert _rows(lake, "p=1/f.parquet") == [{"id": 1, "x": "a"}, {"id": 2, "x": "B"}]
    assert _rows(lake, "loose.parquet") == [{"id": 3, "x": "c", "p": 1}, {"id": 4, "x": "D", "p": 2}]
    with nothing_changes(lake), pytest.raises(PartitionMoveError, match="4"):
        io.merge(pa.table({"id": [4], "x": ["D"], "p": [1]}), lake, "update", ["id"])


@pytest.mark.parametrize("strategy", ["update", "upsert"])
@pytest.mark.parametrize("skipped", [True, False], ids=["old partition not in source", "old partition in source"])
def test_a_moved_key_changes_nothing(io: Any, tmp_path: Path, strategy: str, skipped: bool) -> None:
    files = {f"day={d}/f.parquet": pa.table({"id": [d * 10, d * 10 + 1], "x": ["old"] * 2}) for d in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files)
    days = [1, 2, 2] if skipped else [1, 2, 1]
    data = pa.table({"id": [10, 20, 31], "x": ["new"] * 3, "day": days})
    with nothing_changes(lake), pytest.raises(PartitionMoveError, match=r"\['day'\] cannot change .*e\.g\. 31\."):
        io.merge(data, lake, strategy, ["id"])
    with nothing_changes(lake), pytest.raises(ValueError, match="cannot change for existing keys"):
        io.plan(data, lake, strategy, ["id"])


def test_an_insert_skips_a_key_of_another_partition(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"day={d}/f.parquet": pa.table({"id": [d], "x": ["old"]}) for d in (1, 2)})
    data = pa.table({"id": [1, 5], "x": ["new"] * 2, "day": [2, 2]})
    assert counts(io.merge(data, lake, "insert", ["id"])) == (1, 0, 3)
    assert pairs(lake, "id", "day", "x") == [(1, "1", "old"), (2, "2", "old"), (5, "2", "new")]


def test_a_key_twice_in_the_target_once_moved(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"day={d}/f.parquet": pa.table({"id": [7], "x": ["old"]}) for d in (1, 2)})
    with nothing_changes(lake), pytest.raises(PartitionMoveError, match=r"1 key\(s\)"):
        io.merge(pa.table({"id": [7], "x": ["new"], "day": [1]}), lake, "upsert", ["id"])


# Files that are not data


def test_files_that_are_not_data(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1], "x": ["old"]})
    hidden = ["_temporary/0/part.parquet", ".hidden/f.parquet", ".staging_abc/f.parquet", "_f.parquet", ".f.parquet"]
    lake = write_lake(tmp_path / "lake", {"f.parquet": table, **dict.fromkeys(hidden, table)})
    Path(lake, "_SUCCESS").touch()
    Path(lake, "data.csv").write_text("id,x")
    before = fingerprint(lake)
    result = io.merge(pa.table({"id": [1, 2], "x": ["new"] * 2}), lake, "upsert", ["id"], replace="in_place")
    assert counts(result) == (1, 1, 2)
    assert len(result.files) == 2
    after = fingerprint(lake)
    assert {name for name in before if after[name] != before[name]} == {"f.parquet"}


@pytest.mark.disk
def test_leftovers_of_a_dead_writer_are_not_data(io: Any, tmp_path: Path) -> None:
    """A staging folder without a journal never happened: the next merge does not count it, and removes it."""
    table = pa.table({"id": [1], "x": ["old"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    for home in (tmp_path / ".fsspeckit-lake", tmp_path / "lake/.fsspeckit"):
        write_lake(home / ".staging_0123", {"file-00000": table, "file-00001.parquet": table})
    result = io.merge(pa.table({"id": [1, 2], "x": ["new"] * 2}), lake, "upsert", ["id"])
    assert counts(result) == (1, 1, 2)
    assert all_names(tmp_path) == sorted(["lake", *(f"lake/{name}" for name in data_files(lake))])
    assert len(data_files(lake)) == 2


def test_stale_summaries_are_removed(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1], "x": ["old"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    for name in ("_metadata", "_common_metadata"):
        pq.write_metadata(table.schema, Path(lake, name))
    io.merge(pa.table({"id": [1], "x": ["new"]}), lake, "update", ["id"], replace="in_place")
    assert all_names(lake) == ["f.parquet"]


@pytest.mark.disk
def test_checksum_files_of_replaced_files_are_removed(io: Any, tmp_path: Path) -> None:
    files = {f"{n}.parquet": pa.table({"id": [i], "x": ["old"]}) for i, n in enumerate("ab")}
    lake = write_lake(tmp_path / "lake", files)
    for name in files:
        Path(lake, f".{name}.crc").write_bytes(b"crc\0")
    io.merge(pa.table({"id": [0], "x": ["new"]}), lake, "update", ["id"])
    assert [name for name in all_names(lake) if name.endswith(".crc")] == [".b.parquet.crc"]


# What a rewritten file keeps


@pytest.mark.disk
def test_a_rewritten_file_keeps_its_order_and_layout(io: Any, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), False, {"PARQUET:field_id": "7", "comment": "key"}),
            pa.field("x", pa.large_string(), True, {"PARQUET:field_id": "9"}),
            pa.field("c", pa.dictionary(pa.int8(), pa.string())),
        ],
        {"owner": "me", "note": "kept"},
    )
    table = pa.table(
        {"id": range(0, 40, 2), "x": ["old"] * 20, "c": pa.array(["a", "b"] * 10).dictionary_encode()}
    ).cast(schema)
    options = {"compression": {"id": "zstd", "x": "gzip", "c": "none"}, "row_group_size": 6, "write_page_index": True}
    lake = write_lake(tmp_path / "lake", {"f.parquet": table}, sorting_columns=[pq.SortingColumn(0)], **options)
    Path(lake, "f.parquet").chmod(0o640)
    old = pq.ParquetFile(f"{lake}/f.parquet")
    for turn in range(3):
        data = pa.table({"id": [14, 2], "x": [f"new{turn}"] * 2, "c": ["z", "b"]})
        (path,) = io.merge(data, lake, "upsert", ["id"]).rewritten_files
    new = pq.ParquetFile(path)
    assert new.read().column("id").to_pylist() == list(range(0, 40, 2))
    assert new.schema_arrow.equals(old.schema_arrow, check_metadata=True)
    assert new.schema.equals(old.schema)
    assert new.metadata.metadata == old.metadata.metadata
    for g in range(4):
        ours, theirs = new.metadata.row_group(g), old.metadata.row_group(g)
        assert ours.num_rows == theirs.num_rows
        assert ours.sorting_columns == theirs.sorting_columns == (pq.SortingColumn(0),)
        for c in range(3):
            assert ours.column(c).compression == theirs.column(c).compression
            assert ours.column(c).has_offset_index
            assert ours.column(c).has_column_index
    assert new.metadata.num_row_groups == 4
    assert Path(path).stat().st_mode & 0o777 == 0o640


def test_a_sort_order_that_no_longer_holds_is_not_declared(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "x": [10, 20, 30]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table}, sorting_columns=[pq.SortingColumn(1)])
    (path,) = io.merge(pa.table({"id": [1], "x": [99]}), lake, "update", ["id"]).rewritten_files
    assert pq.read_metadata(path).row_group(0).sorting_columns == ()


# Names

ODD = [" leading", "trailing ", 'a"b', "a'b", "a.b", "a`b", "k0", "__row", "file", "row_group", "key", "select", "Ünï"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("role", ["key", "payload", "partition"])
def test_odd_column_names(io: Any, tmp_path: Path, name: str, role: str) -> None:
    names = {"key": "id", "payload": "x", "partition": "p"} | {role: name}
    key, payload, partition = names.values()
    lake = str(tmp_path / "lake")
    old = pa.table({key: [1, 2], payload: ["a", "b"], partition: ["u", "v"]})
    io.merge(old, lake, "upsert", [key], [partition])
    data = pa.table({key: [2, 3], payload: ["B", "C"], partition: ["v", "v"]})
    assert counts(io.merge(data, lake, "upsert", [key])) == (1, 1, 3)
    assert multiset(rows(lake)) == multiset([old.to_pylist()[0], *data.to_pylist()])


def test_names_that_differ_by_case_only(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "Id": [5, 6]})})
    assert counts(io.merge(pa.table({"id": [2, 3], "Id": [60, 1]}), lake, "upsert", ["id"])) == (1, 1, 3)
    assert pairs(lake, "id", "Id") == [(1, 5), (2, 60), (3, 1)]


@pytest.mark.parametrize(
    "name", ["f[0].parquet", "f*.parquet", "a b.parquet", "a%20b.parquet", "ü.parquet", "a#b?.parquet"]
)
def test_odd_file_names(io: Any, tmp_path: Path, name: str) -> None:
    files = {name: pa.table({"id": [1], "x": ["a"]}), "f0.parquet": pa.table({"id": [2], "x": ["b"]})}
    lake = write_lake(tmp_path / "my [lake] % ü", files)
    result = io.merge(pa.table({"id": [1, 3], "x": ["A", "C"]}), lake, "upsert", ["id"], replace="in_place")
    assert counts(result) == (1, 1, 3)
    assert result.rewritten_files == [f"{lake}/{name}"]
    assert pairs(lake, "id", "x") == [(1, "A"), (2, "b"), (3, "C")]


# Paths


def test_file_urls(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "my lake", {"f.parquet": pa.table({"id": [1], "x": ["a"]})})
    for path in (f"file://{lake}", f"file://{quote(lake)}", f"{lake}/"):
        assert io.merge(pa.table({"id": [1], "x": [path]}), path, "update", ["id"]).updated == 1
        assert pairs(lake, "id", "x") == [(1, path)]
    assert all_names(tmp_path)[0] == "my lake"


def test_a_relative_path_and_a_link(io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lake(tmp_path / "real/lake", {"f.parquet": pa.table({"id": [1], "x": ["a"]})})
    (tmp_path / "link").symlink_to("real/lake")
    monkeypatch.chdir(tmp_path)
    for path in ("real/lake", "link", "./real/../real/lake"):
        assert counts(io.merge(pa.table({"id": [1], "x": [path]}), path, "upsert", ["id"])) == (0, 1, 1)
    assert pairs(str(tmp_path / "real/lake"), "x") == [("./real/../real/lake",)]
    assert all_names(tmp_path / "real")[:1] == ["lake"]


@pytest.fixture
def memory(engine: str) -> str:
    if engine == "spark":
        pytest.skip("memory:// lives in one process; Spark's executors are others")
    return f"memory://traps-{uuid.uuid4().hex}"


def memory_rows(url: str) -> list[dict[str, Any]]:
    fs, root = fsspec.core.url_to_fs(url)
    found = []
    for path in fs.find(root):
        with fs.open(path, "rb") as file:
            found += pq.ParquetFile(file).read().to_pylist()
    return found


def test_memory_urls(io: Any, memory: str) -> None:
    url = f"{memory}/lake"
    assert io.merge(pa.table({"id": [1, 2], "x": ["a", "b"]}), url, "upsert", ["id"]).inserted == 2
    assert counts(io.merge(pa.table({"id": [2, 3], "x": ["B", "C"]}), url, "upsert", ["id"])) == (1, 1, 3)
    assert sorted(row["x"] for row in memory_rows(url)) == ["B", "C", "a"]
    assert sorted(row["id"] for row in read_rows(io, url)) == [1, 2, 3]
    with pytest.raises(ValueError, match="NULL"):
        io.merge(pa.table({"id": pa.nulls(1, pa.int64()), "x": ["a"]}), url, "upsert", ["id"])
    io.write_dataset(pa.table({"id": [9], "x": ["z"]}), url, "overwrite")
    assert memory_rows(url) == [{"id": 9, "x": "z"}]
    fs, root = fsspec.core.url_to_fs(memory)
    assert all(path.endswith(".parquet") for path in fs.find(root))


def test_memory_urls_with_partitions(io: Any, memory: str) -> None:
    url = f"{memory}/lake"
    data = pa.table({"id": [1, 2], "p": ["a b", "c/d"]})
    io.merge(data, url, "upsert", ["id"], ["p"])
    assert counts(io.merge(pa.table({"id": [2, 3], "p": ["c/d", "c/d"]}), url, "upsert", ["id"])) == (1, 1, 3)
    with pytest.raises(PartitionMoveError):
        io.merge(pa.table({"id": [2], "p": ["a b"]}), url, "upsert", ["id"])


# Counts


@pytest.mark.parametrize(
    ("strategy", "expected"), [("insert", (1, 0, 8)), ("update", (0, 4, 7)), ("upsert", (1, 4, 8))]
)
def test_counts_with_null_and_duplicate_keys_in_the_target(
    io: Any, tmp_path: Path, strategy: str, expected: tuple[int, int, int]
) -> None:
    files = {
        "a.parquet": pa.table({"id": [1, 1, None, 2], "x": ["a", "b", "c", "d"]}),
        "b.parquet": pa.table({"id": [1, None, 3], "x": ["e", "f", "g"]}),
    }
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [1, 2, 4], "x": ["A", "D", "Z"]})
    plan = io.plan(data, lake, strategy, ["id"])
    assert (plan.inserted, plan.updated, plan.target_count_after) == expected
    assert counts(io.merge(data, lake, strategy, ["id"])) == expected
    assert len(rows(lake)) == expected[2]
    assert sorted(row["x"] for row in rows(lake) if row["id"] is None) == ["c", "f"]


def test_nulls_of_a_composite_key_match_nothing(io: Any, tmp_path: Path) -> None:
    lake = write_lake(
        tmp_path / "lake", {"f.parquet": pa.table({"a": [1, 1, None], "b": ["x", None, "x"], "v": [0, 0, 0]})}
    )
    assert counts(io.merge(pa.table({"a": [1, 2], "b": ["x", "x"], "v": [9, 9]}), lake, "upsert", ["a", "b"])) == (
        1,
        1,
        4,
    )
