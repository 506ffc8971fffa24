"""Folders: layouts that may not be mixed, the empty text, and instants in a zone."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fsspeckit
from damage import nothing_changes
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError, TargetError
from support import data_files, rows, write_lake

NULL = "__HIVE_DEFAULT_PARTITION__"


def folders(lake: str) -> set[str]:
    return {unquote(name.rpartition("/")[0]) for name in data_files(lake)}


# Layouts


def test_a_flat_data_set_gets_no_partition_folders(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "p": ["a", "b"]})})
    data = pa.table({"id": [2, 3], "p": ["b", "c"]})
    message = r"partition_columns is \['p'\].*in no partition folders.*Leave it out.*mode='overwrite'"
    for strategy in ("insert", "update", "upsert"):
        with nothing_changes(lake), pytest.raises(ValueError, match=message):
            io.merge(data, lake, strategy, ["id"], ["p"])
    with nothing_changes(lake), pytest.raises(ArgumentError, match=message):
        io.plan(data, lake, "upsert", ["id"], ["p"])
    with nothing_changes(lake), pytest.raises(ArgumentError, match=message):
        io.write_dataset(data, lake, "append", ["p"])
    with nothing_changes(lake), pytest.raises(ArgumentError, match=message):
        io.write_parquet_dataset(data, lake, "upsert", ["id"], partition_columns=["p"])
    assert io.merge(data, lake, "upsert", ["id"], []).inserted == 1  # flat it is


def test_an_overwrite_may_change_the_layout(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "p": ["a", "b"]})})
    io.write_dataset(pa.table({"id": [1, 2], "p": ["a", "b"]}), lake, "overwrite", ["p"])
    assert folders(lake) == {"p=a", "p=b"}
    io.write_dataset(pa.table({"id": [3], "p": ["c"]}), lake, "overwrite", [])
    assert rows(lake) == [{"id": 3, "p": "c"}]


def test_folders_of_different_columns_are_refused(io: Any, tmp_path: Path) -> None:
    files = {"p=1/f.parquet": pa.table({"id": [1]}), "q=1/p=2/g.parquet": pa.table({"id": [2]})}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [3], "p": [1], "q": [1]})
    with nothing_changes(lake), pytest.raises(TargetError, match=r"\['p'\] .*p=1/f\.parquet.*\['q', 'p'\] .*q=1/p=2/g"):
        io.merge(data, lake, "upsert", ["id"])


def test_a_data_set_of_the_null_partition_is_read(io: Any, tmp_path: Path) -> None:
    """PyArrow infers no type for such a column."""
    lake = str(tmp_path / "lake")
    io.merge(pa.table({"id": [1, 2], "p": pa.array([None, None], pa.string())}), lake, "upsert", ["id"], ["p"])
    assert folders(lake) == {f"p={NULL}"}
    for columns, condition in ((None, None), (["p", "id"], None), (None, pc.field("p").is_null())):
        table = fsspeckit.read(lake, columns, condition)
        assert sorted(table.to_pylist(), key=lambda row: row["id"]) == [{"id": 1, "p": None}, {"id": 2, "p": None}]
        assert table.schema.field("p").type == pa.string()


# The empty text


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_an_empty_partition_value_is_null(io: Any, tmp_path: Path, kind: pa.DataType) -> None:
    lake = str(tmp_path / "lake")
    data = pa.table({"id": [1, 2, 3], "p": pa.array(["", "a", None]).cast(kind), "x": ["a", "b", "c"]})
    assert io.merge(data, lake, "upsert", ["id"], ["p"]).inserted == 3
    assert folders(lake) == {f"p={NULL}", "p=a"}
    again = pa.table({"id": [1, 3, 4], "p": pa.array(["", "", ""]).cast(kind), "x": ["A", "C", "D"]})
    result = io.merge(again, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 2)
    assert folders(lake) == {f"p={NULL}", "p=a"}
    assert sorted((row["id"], row["p"], row["x"]) for row in rows(lake)) == [
        (1, None, "A"),
        (2, "a", "b"),
        (3, None, "C"),
        (4, None, "D"),
    ]


def test_an_empty_partition_value_is_no_key(io: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    data = pa.table({"id": [1], "p": [""]})
    with pytest.raises(SchemaMismatchError, match=r"'p' .*key.*empty.*1 row"):
        io.merge(data, lake, "upsert", ["id", "p"], ["p"])
    assert not Path(lake).exists()


def test_a_folder_without_a_value_is_null_and_gets_no_new_files(io: Any, tmp_path: Path) -> None:
    """Other programs write `p=`; after which Spark refuses the whole data set, which we do not help."""
    files = {"p=/f.parquet": pa.table({"id": [1], "x": ["a"]}), "p=a/f.parquet": pa.table({"id": [2], "x": ["b"]})}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [1, 3], "x": ["A", "C"], "p": pa.array([None, ""], pa.string())})
    result = io.merge(data, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 1)
    assert folders(lake) == {"p=", "p=a", f"p={NULL}"}


# Instants

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=9)))


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "+09:00", "+9", "GMT+9", "UTC+09:00"])
def test_instants_in_folders_follow_the_partition_timezone(io: Any, tmp_path: Path, zone: str) -> None:
    lake = str(tmp_path / "lake")
    when = pa.array([NOON, NOON], pa.timestamp("us", "UTC"))
    data = pa.table({"id": [1, 2], "t": when, "x": ["a", "b"]})
    io.merge(data, lake, "upsert", ["id"], ["t"], partition_timezone=zone)
    (folder,) = folders(lake)
    assert folder == "t=2024-01-01 12:00:00"
    again = data.slice(1).set_column(2, "x", [["B"]])
    assert io.plan(again, lake, "upsert", ["id"], partition_timezone=zone).updated == 1
    assert io.merge(again, lake, "upsert", ["id"], partition_timezone=zone).updated == 1
    assert io.write_dataset(data.slice(0, 1), lake, partition_timezone=zone).rows == 1
    written = io.write_parquet_dataset(again, lake, "upsert", ["id"], partition_timezone=zone)
    assert (written.updated, written.inserted) == (1, 0)
    assert folders(lake) == {folder}


def test_a_lake_of_spark_in_tokyo(io: Any, tmp_path: Path) -> None:
    files = {"t=2024-01-01 12%3A00%3A00/f.parquet": pa.table({"id": [1], "x": ["a"]})}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [1], "x": ["A"], "t": pa.array([NOON], pa.timestamp("us", "UTC"))})
    assert io.merge(data, lake, "upsert", ["id"], partition_timezone="Asia/Tokyo").updated == 1
    with nothing_changes(lake), pytest.raises(ValueError, match="cannot change"):
        io.merge(data, lake, "upsert", ["id"], partition_timezone="Europe/Berlin")


def test_an_hour_that_happens_twice_has_one_folder(io: Any, tmp_path: Path) -> None:
    """The clock of Berlin shows 02:30 twice that night; the first is meant, as by Java."""
    first, second = (dt.datetime(2024, 10, 27, hour, 30, tzinfo=dt.UTC) for hour in (0, 1))
    lake = str(tmp_path / "lake")
    for moment, ok in ((first, True), (second, False)):
        data = pa.table({"id": [1], "x": ["a"], "t": pa.array([moment], pa.timestamp("us", "UTC"))})
        if ok:
            io.merge(data, lake, "upsert", ["id"], ["t"], partition_timezone="Europe/Berlin")
            continue
        with (
            nothing_changes(lake),
            pytest.raises(SchemaMismatchError, match=r"'t'.*cannot be read back from a folder's"),
        ):
            io.merge(data.set_column(0, "id", [[2]]), lake, "upsert", ["id"], partition_timezone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["Nowhere/Known", "", 9, "+99:00"])
def test_a_zone_that_is_none(io: Any, tmp_path: Path, zone: Any) -> None:
    data = pa.table({"id": [1], "t": ["a"]})
    with pytest.raises(ArgumentError, match="partition_timezone"):
        io.merge(data, str(tmp_path / "lake"), "upsert", ["id"], ["t"], partition_timezone=zone)
    with pytest.raises(ArgumentError, match="partition_timezone"):
        io.write_dataset(data, str(tmp_path / "lake"), partition_timezone=zone)


@pytest.mark.parametrize(
    "value",
    [pa.array([2**31 - 1], pa.date32()), pa.array([-(10**17)], pa.timestamp("us", "UTC"))],
    ids=["infinite date", "before the year 0"],
)
def test_a_partition_value_that_cannot_be_spelled(io: Any, tmp_path: Path, value: pa.Array) -> None:
    data = pa.table({"id": [1], "p": value})
    with pytest.raises(SchemaMismatchError, match=r"'p': .* cannot be read back from a folder's name"):
        io.merge(data, str(tmp_path / "lake"), "upsert", ["id"], ["p"])
