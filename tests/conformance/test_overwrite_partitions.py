"""`mode="overwrite_partitions"`: the partitions of the source, or named ones, are replaced whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support import data_files, fingerprint, rows, write_lake

MODE: Any = "overwrite_partitions"


def lake(root: Path, *values: str) -> str:
    return write_lake(root, {f"day={v}/a.parquet": pa.table({"id": [n, n + 100]}) for n, v in enumerate(values)})


def test_partitions_of_the_source_are_replaced_and_others_keep_their_bytes(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "01", "02", "__HIVE_DEFAULT_PARTITION__")
    before = fingerprint(path)
    result = io.write_dataset(pa.table({"id": [7], "day": [1]}), path, MODE)
    after = fingerprint(path)
    assert (result.rows, result.removed_rows, len(result.removed_files)) == (1, 2, 1)
    assert [f for f in before if f in after and before[f] == after[f]] == [f for f in before if "day=01" not in f]
    assert [row for row in rows(path) if row["day"] == "01"] == [{"day": "01", "id": 7}]
    assert len(data_files(path)) == 3


def test_null_partition_is_replaced(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "__HIVE_DEFAULT_PARTITION__")
    result = io.write_dataset(pa.table({"id": [7], "day": pa.array([None], pa.int64())}), path, MODE)
    assert result.removed_rows == 2
    assert sorted(str(row["day"]) for row in rows(path)) == ["1", "1", "None"]


@pytest.mark.parametrize("folder, value", [("a b", "a b"), ("a%25b", "a%b"), ("a%3Db", "a=b"), ("01", "01")])
def test_odd_values(io: Any, tmp_path: Path, folder: str, value: str) -> None:
    path = lake(tmp_path / "lake", folder, "other")
    result = io.write_dataset(pa.table({"id": [7], "day": [value]}), path, MODE, partitions=[{"day": value}])
    assert result.removed_rows == 2
    assert sorted(row["id"] for row in rows(path) if row["day"] == value) == [7]
    assert {name.split("/")[0] for name in data_files(path)} == {f"day={folder}", "day=other"}


def test_named_partition_without_rows_becomes_empty_and_the_last_file_stays(io: Any, tmp_path: Path) -> None:
    path, none = (
        lake(tmp_path / "lake", "1", "2"),
        pa.table({"id": pa.array([], pa.int64()), "day": pa.array([], "int64")}),
    )
    assert io.write_dataset(none, path, MODE, partitions=[{"day": 1}]).removed_rows == 2
    assert not (tmp_path / "lake" / "day=1").exists()
    assert io.write_dataset(none, path, MODE, partitions=[{"day": "2"}]).removed_rows == 2
    assert rows(path) == [] and len(data_files(path)) == 1


def test_some_columns_name_all_partitions_below(io: Any, tmp_path: Path) -> None:
    names = ["y=1/m=1", "y=1/m=2", "y=2/m=1"]
    path = write_lake(tmp_path / "lake", {f"{n}/a.parquet": pa.table({"id": [1]}) for n in names})
    result = io.write_dataset(pa.table({"id": [9], "y": [1], "m": [3]}), path, MODE, partitions=[{"y": 1}])
    assert (result.rows, result.removed_rows) == (1, 2)
    assert sorted((row["y"], row["m"], row["id"]) for row in rows(path)) == [("1", "3", 9), ("2", "1", 1)]


@pytest.mark.parametrize(
    "data, partitions, message",
    [
        ({"id": [1], "day": [2]}, [{"day": 1}], "outside of the partitions"),
        ({"id": pa.array([], "int64"), "day": pa.array([], "int64")}, None, "no rows"),
        ({"id": [1], "day": [1]}, [], "names no partition"),
        ({"id": [1], "day": [1]}, [{}], "names no partition"),
        ({"id": [1], "day": [1]}, [{"month": 1}], "no partition columns"),
        ({"id": [1], "day": [1]}, [{"day": "x"}], "no value of the column's type"),
        ({"id": [1], "day": [1]}, {"day": 1}, "list of dictionaries"),
    ],
)
def test_refusals_change_nothing(io: Any, tmp_path: Path, data: Any, partitions: Any, message: str) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    before = fingerprint(tmp_path)
    with pytest.raises(ValueError, match=message):
        io.write_dataset(pa.table(data), path, MODE, partitions=partitions)
    assert fingerprint(tmp_path) == before


def test_unpartitioned_target_and_unreadable_folder_are_refused(io: Any, tmp_path: Path) -> None:
    flat = write_lake(tmp_path / "flat", {"a.parquet": pa.table({"id": [1]})})
    with pytest.raises(ValueError, match="needs a partitioned data set"):
        io.write_dataset(pa.table({"id": [1]}), flat, MODE)
    with pytest.raises(ValueError, match="no such value"):
        io.write_dataset(pa.table({"id": [1], "day": [1]}), lake(tmp_path / "lake", "1", "x"), MODE)


def test_plan_and_limit_of_removed_rows(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    before, data = fingerprint(tmp_path), pa.table({"id": [7, 8], "day": [1, 3]})
    plan = io.plan_write(data, path, MODE)
    assert (plan.rows, plan.removed_rows, dict(plan.new_rows)) == (2, 2, {"day=1": 1, "day=3": 1})
    assert plan.new_partitions == ("day=3",)
    for mode in (MODE, "overwrite"):
        with pytest.raises(ValueError, match="would remove"):
            io.write_dataset(data, path, mode, max_removed_rows=1)
    assert fingerprint(tmp_path) == before
