"""What a hostile user found: each once lost rows, doubled keys or left a data set that nobody could write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import DatasetMergeError, MergeValidationError
from support import all_names, fingerprint, rows, write_lake


def test_every_column_a_partition_column(io: Any, tmp_path: Path) -> None:
    with pytest.raises(MergeValidationError, match="Every column is a partition column"):
        io.merge(pa.table({"d": ["a", "b"]}), str(tmp_path / "lake"), "upsert", ["d"], ["d"])
    assert all_names(tmp_path) == []


@pytest.mark.disk
@pytest.mark.parametrize("in_the_way", [False, True], ids=["a name too long", "a file in the way"])
def test_a_folder_that_cannot_be_made_is_refused_in_time(io: Any, tmp_path: Path, in_the_way: bool) -> None:
    lake = str(tmp_path / "lake")
    io.merge(pa.table({"d": ["a"], "k": [1]}), lake, "upsert", ["k"], ["d"])
    value = "5" if in_the_way else "x" * 300
    if in_the_way:
        Path(lake, "d=5").write_text("not a folder")
    before = fingerprint(lake)
    with pytest.raises(DatasetMergeError, match="Cannot make the folder"):
        io.merge(pa.table({"d": [value], "k": [2]}), lake, "upsert", ["k"])
    assert fingerprint(lake) == before
    assert os.listdir(tmp_path) == ["lake"]
    assert io.merge(pa.table({"d": ["a"], "k": [1]}), lake, "upsert", ["k"]).updated == 1


def test_a_partition_column_that_begins_with_a_dot(io: Any, tmp_path: Path) -> None:
    lake, source = str(tmp_path / "lake"), pa.table({".x": ["p"], "k": [1], "v": [1]})
    assert io.merge(source, lake, "upsert", ["k"], [".x"]).inserted == 1
    again = io.merge(source, lake, "upsert", ["k"])
    assert (again.target_count_before, again.inserted, again.updated) == (1, 0, 1)


@pytest.mark.parametrize(
    "value",
    [pa.array([5], pa.duration("s")), pa.array(["__HIVE_DEFAULT_PARTITION__"])],
    ids=["duration", "null's name"],
)
def test_values_that_no_folder_can_tell(io: Any, tmp_path: Path, value: pa.Array) -> None:
    with pytest.raises(MergeValidationError, match="cannot be read back from a folder's name"):
        io.merge(pa.table({"k": [1], "d": value, "v": [1]}), str(tmp_path / "lake"), "upsert", ["k", "d"], ["d"])
    assert all_names(tmp_path) == []


@pytest.mark.parametrize(
    "folder, value",
    [("1.0", pa.array([1])), ("2024-01-01 00%3A00%3A00", pa.array(["2024-01-01"]).cast(pa.date32()))],
    ids=["number", "day"],
)
def test_other_spellings_of_a_partition(io: Any, tmp_path: Path, folder: str, value: pa.Array) -> None:
    lake = write_lake(tmp_path / "lake", {f"d={folder}/f.parquet": pa.table({"k": [1], "v": [1]})})
    result = io.merge(pa.table({"k": [1], "v": [2], "d": value}), lake, "upsert", ["k", "d"])
    assert (result.inserted, result.updated) == (0, 1)


def test_a_stored_partition_column_does_not_prune(io: Any, tmp_path: Path) -> None:
    files = {
        "day=2/a.parquet": pa.table({"k": [1], "day": pa.array([None], pa.int64()), "v": [1]}),
        "day=1/a.parquet": pa.table({"k": [5], "day": [7], "v": [1]}),
    }
    lake = write_lake(tmp_path / "lake", files)
    result = io.merge(pa.table({"k": [1, 5], "day": [2, 1], "v": [6, 6]}), lake, "upsert", ["k", "day"])
    assert (result.inserted, result.updated) == (0, 2)


@pytest.mark.disk
def test_a_pattern_is_no_target(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"k": [1]})})
    with pytest.raises(MergeValidationError, match="pattern"):
        io.merge(pa.table({"k": [1]}), f"{lake}/*.parquet", "upsert", ["k"])
    assert all_names(tmp_path) == ["lake", "lake/f.parquet"]


def test_a_widened_file_keeps_its_codec_and_words(io: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    narrow = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())})
    write_lake(lake, {"f0.parquet": narrow.replace_schema_metadata({"who": "A"})}, compression="zstd")
    write_lake(lake, {"f1.parquet": pa.table({"k": [5], "v": [2]}).replace_schema_metadata({"who": "B"})})
    (path,) = io.merge(pa.table({"k": [1], "v": [2**40]}), str(lake), "upsert", ["k"]).rewritten_files
    file = pq.ParquetFile(path)
    assert file.metadata.metadata[b"who"] == b"A"
    assert {file.metadata.row_group(0).column(i).compression for i in range(2)} == {"ZSTD"}
    assert file.read().to_pylist() == [{"k": 1, "v": 2**40}]


def test_a_file_that_the_common_type_cannot_hold(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": pa.table({"k": [1, 3], "v": [7, 2**60 + 1]}), "b.parquet": pa.table({"k": [2], "v": [1.5]})}
    lake = write_lake(tmp_path / "lake", files)
    before = fingerprint(lake)
    with pytest.raises(MergeValidationError, match=r"'v' of .*a\.parquet holds 1152921504606846977"):
        io.merge(pa.table({"k": [1], "v": [0.5]}), lake, "upsert", ["k"])
    assert fingerprint(lake) == before


FRAMES = {
    "pandas categories": lambda: pd.DataFrame({"k": [1], "c": pd.Categorical([10])}),
    "polars categories": lambda: pl.DataFrame({"k": [1], "c": pl.Series(["a"], dtype=pl.Categorical)}),
    "run-end encoded": lambda: pa.table(
        {"k": [1], "c": pa.RunEndEncodedArray.from_arrays(pa.array([1]), pa.array(["a"]))}
    ),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_new_data_sets_of_common_frames(io: Any, tmp_path: Path, frame: str) -> None:
    for turn in ("inserted", "updated"):
        assert getattr(io.merge(FRAMES[frame](), str(tmp_path / "lake"), "upsert", ["k"]), turn) == 1
    assert [row["c"] for row in rows(tmp_path / "lake")] == [10 if frame.startswith("pandas") else "a"]


def test_a_null_where_a_nested_value_is_required(io: Any, tmp_path: Path) -> None:
    kind = pa.list_(pa.field("element", pa.int64(), nullable=False))
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"k": [1], "v": pa.array([[1]], kind)})})
    before = fingerprint(lake)
    with pytest.raises(MergeValidationError):
        io.merge(
            pa.table({"k": [1], "v": [[None]]}).cast(pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))])),
            lake,
            "upsert",
            ["k"],
        )
    assert fingerprint(lake) == before


@pytest.mark.parametrize(
    "arguments",
    [
        {"key_columns": ["k"]},
        {"rewrite_mode": "incremental"},
        {"strategy": "upsert", "key_columns": ["k"], "mode": "overwrite"},
        {"strategy": "upsert", "key_columns": ["k"], "dedup_order_by": ["k"]},
        {"strategy": "upsert", "key_columns": ["k"], "replace": "new_file"},
        {"strategy": "upsert", "key_columns": 5},
        {"strategy": "upsert", "key_columns": ["k"], "lock_timeout": None},
        {"strategy": "upsert", "key_columns": ["k"], "lock_timeout": float("nan")},
    ],
    ids=repr,
)
def test_arguments_that_would_do_nothing_are_refused(io: Any, tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(MergeValidationError):
        io.write_parquet_dataset(pa.table({"k": [1]}), str(tmp_path / "lake"), **arguments)
    assert all_names(tmp_path) == []


def test_reading_files_of_different_types(tmp_path: Path) -> None:
    from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

    files = {
        "d=01/a.parquet": pa.table({"k": [1], "v": [1], "d": ["01"]}),
        "d=02/b.parquet": pa.table({"k": [2], "v": [1.5], "d": ["02"]}),
    }
    lake = write_lake(tmp_path / "lake", files)
    found = PyArrowDatasetIO().read(lake, columns=["k", "v", "d"])
    assert found.to_pylist() == [{"k": 1, "v": 1.0, "d": "01"}, {"k": 2, "v": 1.5, "d": "02"}]


@pytest.mark.parametrize("kind", [pa.list_view(pa.int64()), pa.large_list_view(pa.int64())], ids=str)
def test_list_views_are_their_values(io: Any, tmp_path: Path, kind: pa.DataType) -> None:
    source = pa.table({"k": [1, 2, 3], "v": pa.array([[1, 2], None, [3]], kind)})
    io.merge(source, str(tmp_path / "lake"), "upsert", ["k"])
    assert sorted((row["k"], row["v"]) for row in rows(tmp_path / "lake")) == [(1, [1, 2]), (2, None), (3, [3])]


def test_a_null_in_a_required_field_is_refused(io: Any, tmp_path: Path) -> None:
    fields = [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())]
    bad = pa.StructArray.from_arrays([pa.array([None, 7]), pa.array(["x", "y"])], fields=fields)
    with pytest.raises(MergeValidationError, match=r"'s'.*null in a nested field"):
        io.merge(pa.table({"id": [1, 2], "s": bad}), str(tmp_path / "lake"), "upsert", ["id"])
    assert all_names(tmp_path) == []
