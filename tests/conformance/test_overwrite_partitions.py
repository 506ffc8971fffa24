"""`mode="overwrite_partitions"`: the partitions of the source, or named ones, are replaced whole. Plans of writes."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.dataset.ledger import PREFIX, Batch
from fsspeckit.core.errors import ArgumentError, RemovedRowsError, SchemaMismatchError
from support import data_files, fingerprint, multiset, read_rows, rows, write_lake

MODE: Any = "overwrite_partitions"
NULL = "__HIVE_DEFAULT_PARTITION__"
NONE = pa.table({"id": pa.array([], pa.int64()), "day": pa.array([], pa.int64())})


def lake(root: Path, *values: str) -> str:
    """Two rows in each partition."""
    return write_lake(root, {f"day={v}/a.parquet": pa.table({"id": [n, n + 100]}) for n, v in enumerate(values)})


def folders(path: str) -> set[str]:
    return {name.rpartition("/")[0] for name in data_files(path)}


def test_partitions_of_the_source_are_replaced_and_others_keep_their_bytes(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "01", "02", NULL)
    before = fingerprint(path)
    result = io.write_dataset(pa.table({"id": [7], "day": [1]}), path, MODE)
    after = fingerprint(path)
    assert (result.mode, result.rows, result.removed_rows) == (MODE, 1, 2)
    assert result.removed_files == [f"{path}/day=01/a.parquet"]
    assert [f for f in before if f in after and before[f] == after[f]] == [f for f in before if "day=01" not in f]
    assert [row for row in rows(path) if row["day"] == "01"] == [{"day": "01", "id": 7}]
    assert [file.path for file in result.files] == [f"{path}/{n}" for n in data_files(path) if "day=01" in n]


def test_all_files_of_a_partition_are_replaced_in_every_spelling(io: Any, tmp_path: Path) -> None:
    """For a column of numbers, `01` and `1` are one partition; for text they are two."""
    files = {f"day={v}/{n}.parquet": pa.table({"id": [1]}) for v in ("01", "1", "2") for n in "ab"}
    path = write_lake(tmp_path / "lake", files)
    result = io.write_dataset(pa.table({"id": [7], "day": ["1"]}), path, MODE)
    assert (result.removed_rows, folders(path)) == (2, {"day=01", "day=1", "day=2"})
    result = io.write_dataset(pa.table({"id": [8], "day": [1]}), path, MODE)
    assert (result.removed_rows, folders(path)) == (3, {"day=01", "day=2"})
    assert sorted(row["id"] for row in rows(path)) == [1, 1, 8]


def test_null_partition_is_replaced(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", NULL)
    result = io.write_dataset(pa.table({"id": [7], "day": pa.array([None], pa.int64())}), path, MODE)
    assert result.removed_rows == 2
    assert sorted(str(row["day"]) for row in rows(path)) == ["1", "1", "None"]
    assert io.write_dataset(NONE, path, MODE, partitions=[{"day": None}]).removed_rows == 1
    assert {row["day"] for row in rows(path)} == {"1"}


def test_folders_without_a_value_are_the_null_partition(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "")
    io.write_dataset(pa.table({"id": [7], "day": pa.array([None], pa.int64())}), path, MODE)
    assert folders(path) == {"day=1", f"day={NULL}"}


@pytest.mark.parametrize(
    "folder, value",
    [
        ("a b", "a b"),
        ("a%25b", "a%b"),
        ("a%3Db", "a=b"),
        ("01", "01"),
        ("nan", float("nan")),
        ("1.50", Decimal("1.5")),
        ("2026-01-01", dt.date(2026, 1, 1)),
        ("true", True),
        ("2026-01-01 12%3A00%3A00", dt.datetime(2026, 1, 1, 12)),
    ],
)
def test_values_of_every_type(io: Any, tmp_path: Path, folder: str, value: Any) -> None:
    """By the source's rows, by the same value as a name, and by the text of the folder as a name."""
    text = folder.replace("%25", "%").replace("%3D", "=").replace("%3A", ":")
    for number, named in enumerate((None, [{"day": value}], [{"day": text}])):
        path = lake(tmp_path / f"lake{number}", folder, NULL)
        result = io.write_dataset(pa.table({"id": [7], "day": [value]}), path, MODE, partitions=named)
        assert result.removed_rows == 2
        assert sorted(row["id"] for row in rows(path) if row["day"] == text) == [7]
        assert folders(path) == {f"day={folder}", f"day={NULL}"}


def test_named_partition_without_rows_becomes_empty_and_the_last_file_stays(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2", NULL)
    result = io.write_dataset(NONE, path, MODE, partitions=[{"day": 1}, {"day": None}])
    assert (result.rows, result.removed_rows, folders(path)) == (0, 4, {"day=2"})
    assert io.write_dataset(NONE, path, MODE, partitions=[{"day": "2"}]).removed_rows == 2
    assert rows(path) == [] and folders(path) == {"day=2"}
    assert io.read(path).schema.names if not hasattr(io.read(path), "sparkSession") else io.read(path).columns
    io.write_dataset(pa.table({"id": [5], "day": [3]}), path, MODE)
    assert rows(path) == [{"day": "3", "id": 5}]


@pytest.mark.disk
def test_a_folder_that_becomes_empty_is_removed(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    (tmp_path / "lake" / "day=2" / "notes.txt").write_text("kept")
    io.write_dataset(pa.table({"id": [5], "day": [3]}), path, MODE, partitions=[{"day": n} for n in (1, 2, 3)])
    assert sorted(p.name for p in (tmp_path / "lake").iterdir()) == ["day=2", "day=3"]
    assert [p.name for p in (tmp_path / "lake" / "day=2").iterdir()] == ["notes.txt"]


def test_named_partition_that_is_not_there(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1")
    before = fingerprint(path)
    result = io.write_dataset(NONE, path, MODE, partitions=[{"day": 9}])
    assert (result.removed_rows, result.files, fingerprint(path)) == (0, [], before)
    assert io.write_dataset(pa.table({"id": [1], "day": [9]}), path, MODE, partitions=[{"day": 9}]).removed_rows == 0
    assert folders(path) == {"day=1", "day=9"}


def test_some_columns_name_all_partitions_below(io: Any, tmp_path: Path) -> None:
    names = ["y=1/m=1", "y=1/m=2", "y=2/m=1"]
    path = write_lake(tmp_path / "lake", {f"{n}/a.parquet": pa.table({"id": [1]}) for n in names})
    result = io.write_dataset(pa.table({"id": [9], "y": [1], "m": [3]}), path, MODE, partitions=[{"y": 1}])
    assert (result.rows, result.removed_rows) == (1, 2)
    assert sorted((row["y"], row["m"], row["id"]) for row in rows(path)) == [("1", "3", 9), ("2", "1", 1)]
    result = io.write_dataset(
        pa.table({"id": [8], "y": [2], "m": [1]}), path, MODE, partitions=[{"m": "1", "y": 2}, {"m": 3}]
    )
    assert (result.removed_rows, [row["id"] for row in rows(path)]) == (2, [8])


def test_a_source_without_a_value_in_the_partition_column(io: Any, tmp_path: Path) -> None:
    """Its type is null: the names say what the folders mean."""
    source = pa.table({"id": pa.array([], pa.int64()), "day": pa.nulls(0)})
    path = lake(tmp_path / "lake", "01", "02")
    assert io.write_dataset(source, path, MODE, partitions=[{"day": 1}]).removed_rows == 2
    assert folders(path) == {"day=02"}


def test_partition_columns_that_files_store(io: Any, tmp_path: Path) -> None:
    stored = {f"day={d}/a.parquet": pa.table({"id": [d], "day": [d]}) for d in (1, 2)}
    path = write_lake(tmp_path / "lake", stored)
    assert io.write_dataset(pa.table({"id": [9], "day": [2]}), path, MODE).removed_rows == 1
    assert multiset(rows(path)) == multiset([{"id": 1, "day": 1}, {"id": 9, "day": 2}])


def test_a_new_data_set(io: Any, tmp_path: Path) -> None:
    source, path = pa.table({"id": [1, 2], "day": [1, 2]}), str(tmp_path / "lake")
    result = io.write_dataset(source, path, MODE, ["day"], partitions=[{"day": 1}, {"day": "2"}])
    assert (result.rows, result.removed_rows, folders(path)) == (2, 0, {"day=1", "day=2"})


def test_new_files_are_written_like_the_old_ones(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "x": pa.array(["a", "b"])})
    path = write_lake(tmp_path / "lake", {"day=1/a.parquet": table, "day=2/a.parquet": table})
    io.write_dataset(pa.table({"x": ["c"], "day": [2], "id": [3]}), path, MODE)
    (name,) = [n for n in data_files(path) if "day=2" in n]
    assert pq.read_schema(Path(path, name)).equals(table.schema)


def test_a_wider_type_goes_to_the_files_that_stay(io: Any, tmp_path: Path) -> None:
    """Readers refuse a column that is null-typed in one file and text in another."""
    files = {f"day={d}/a.parquet": pa.table({"id": [d], "x": pa.nulls(1)}) for d in (1, 2)}
    path, source = write_lake(tmp_path / "lake", files), pa.table({"id": [9], "x": ["a"], "day": [2]})
    plan = io.plan_write(source, path, MODE)
    result = io.write_dataset(source, path, MODE)
    assert len(plan.retyped_files) == len(result.retyped_files) == 1
    assert {str(pq.read_schema(Path(path, n)).field("x").type) for n in data_files(path)} == {"string"}
    assert sorted((row["id"], row["x"]) for row in rows(path)) == [(1, None), (9, "a")]


def test_summary_files_go(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    pq.write_metadata(pa.schema([("id", pa.int64())]), Path(path, "_metadata"))
    io.write_dataset(pa.table({"id": [7], "day": [1]}), path, MODE)
    assert not Path(path, "_metadata").exists()


# Files outside of partition folders


def test_a_file_with_rows_outside_of_partition_folders_is_refused(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    write_lake(path, {"loose.parquet": pa.table({"id": [1], "day": [2]})})
    refused(io, path, {"id": [1], "day": [1]}, None, r"loose\.parquet is in none")


def test_a_file_without_rows_outside_of_partition_folders_stays(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    write_lake(path, {"empty.parquet": pa.table({"id": pa.array([], pa.int64())})})
    assert io.write_dataset(pa.table({"id": [1], "day": [1]}), path, MODE).removed_rows == 2
    assert "empty.parquet" in data_files(path)


# Refusals


def refused(io: Any, path: str, data: Any, partitions: Any, message: str, error: Any = ArgumentError) -> None:
    """Write and plan refuse with the same sentence, which is a `ValueError`, and nothing changes."""
    before = fingerprint(path)
    for call in (io.write_dataset, io.plan_write):
        with pytest.raises(error, match=message) as raised:
            call(pa.table(data), path, MODE, partitions=partitions)
        assert isinstance(raised.value, ValueError)
    assert fingerprint(path) == before


@pytest.mark.parametrize(
    "data, partitions, message",
    [
        ({"id": [1, 2], "day": [2, 1]}, [{"day": 1}], r"1 row\(s\) .* outside of the partitions .* in day=2"),
        ({"id": [1], "day": [9]}, [{"day": 1}], "outside of the partitions that are named, e.g. in day=9"),
        ({"id": pa.array([], "int64"), "day": pa.array([], "int64")}, None, "no rows"),
        ({"id": [1], "day": [1]}, [], "names no partition"),
        ({"id": [1], "day": [1]}, [{}], "names no partition"),
        ({"id": [1], "day": [1]}, [{"month": 1}], r"names \['month'\], which are not partition columns"),
        ({"id": [1], "day": [1]}, [{"id": 1}], r"names \['id'\], which are not partition columns"),
        ({"id": [1], "day": [1]}, [{"day": "x"}], "not a value of the column's type"),
        ({"id": [1], "day": [1]}, [{"day": 1.5}], "not a value of the column's type"),
        ({"id": [1], "day": [1]}, [{"day": [1]}], "not a value of the column's type"),
        ({"id": [1], "day": [1]}, [{"day": ""}], "no folder can hold"),
        ({"id": [1], "day": [1]}, {"day": 1}, "list of dictionaries"),
        ({"id": [1], "day": [1]}, "day=1", "list of dictionaries"),
    ],
)
def test_refusals_change_nothing(io: Any, tmp_path: Path, data: Any, partitions: Any, message: str) -> None:
    refused(io, lake(tmp_path / "lake", "1", "2"), data, partitions, message)


def test_refusals_by_the_target(io: Any, tmp_path: Path) -> None:
    flat = write_lake(tmp_path / "flat", {"a.parquet": pa.table({"id": [1]})})
    refused(io, flat, {"id": [1]}, None, "needs a partitioned data set")
    refused(io, flat, {"id": [1]}, [{"id": 1}], "needs a partitioned data set")
    refused(io, lake(tmp_path / "lake", "1", "x"), {"id": [1], "day": [1]}, None, "not such a value")
    refused(io, lake(tmp_path / "other", "1"), {"id": [1]}, None, "day", SchemaMismatchError)


def test_arguments_without_effect(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    data = pa.table({"id": [1], "day": [1]})
    for mode in ("append", "overwrite"):
        with pytest.raises(ArgumentError, match="partitions has no effect with mode"):
            io.write_dataset(data, path, mode, partitions=[{"day": 1}])
    with pytest.raises(ArgumentError, match="partitions with a strategy has no effect"):
        io.write_parquet_dataset(data, path, "full_merge", ["id"], partitions=[{"day": 1}])
    with pytest.raises(ArgumentError, match="Unknown mode 'dynamic'"):
        io.write_dataset(data, path, "dynamic")
    for limit in (-1, True, 1.5, "1"):
        with pytest.raises(ArgumentError, match="max_removed_rows must be a number of rows"):
            io.write_dataset(data, path, "overwrite", max_removed_rows=limit)


# Plans and the limit of removed rows


def test_plan(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2", "5")
    before, data = fingerprint(tmp_path), pa.table({"id": [7, 8, 9], "day": [1, 3, 3]})
    named = [{"day": n} for n in (1, 3, 5)]
    plan = io.plan_write(data, path, MODE, partitions=named)
    assert (plan.rows, plan.removed_rows, dict(plan.new_rows)) == (3, 4, {"day=1": 1, "day=3": 2})
    assert (plan.new_partitions, plan.emptied_partitions) == (("day=3",), ("day=5",))
    assert fingerprint(tmp_path) == before
    result = io.write_dataset(data, path, MODE, partitions=named)
    assert (plan.rows, plan.removed_rows) == (result.rows, result.removed_rows)
    assert list(plan.removed_files) == result.removed_files
    assert [*plan.retyped_files, *result.retyped_files] == []


def test_plans_of_other_modes(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    before, data = fingerprint(tmp_path), pa.table({"id": [7, 8], "day": [1, 3]})
    append, overwrite = io.plan_write(data, path), io.plan_write(data, path, "overwrite")
    assert (append.removed_rows, append.removed_files, append.emptied_partitions) == (0, (), ())
    assert (overwrite.removed_rows, overwrite.emptied_partitions) == (4, ("day=2",))
    full = io.plan_parquet_dataset(pa.table({"id": [0, 8], "day": [1, 3]}), path, "full_merge", ["id"])
    assert (full.inserted, full.updated, full.deleted) == (1, 1, 3)
    assert io.plan_parquet_dataset(data, path, mode="overwrite") == overwrite
    assert fingerprint(tmp_path) == before
    flat = io.plan_write(pa.table({"id": [7, 8]}), str(tmp_path / "new"))
    assert (dict(flat.new_rows), flat.new_partitions) == ({"": 2}, ())


def test_limit_of_removed_rows(io: Any, tmp_path: Path) -> None:
    path = lake(tmp_path / "lake", "1", "2")
    before, data = fingerprint(tmp_path), pa.table({"id": [0, 8], "day": [1, 3]})
    calls = {
        2: lambda limit: io.write_dataset(data, path, MODE, max_removed_rows=limit),
        4: lambda limit: io.write_dataset(data, path, "overwrite", max_removed_rows=limit),
        3: lambda limit: io.write_parquet_dataset(data, path, "full_merge", ["id"], max_removed_rows=limit),
    }
    for count, call in calls.items():
        with pytest.raises(RemovedRowsError, match=rf"would remove {count} row\(s\)") as refused:
            call(count - 1)
        assert refused.value.rows == pickle.loads(pickle.dumps(refused.value)).rows == count
    assert fingerprint(tmp_path) == before
    assert calls[2](2).removed_rows == 2
    assert io.write_dataset(data, path, max_removed_rows=0).removed_rows == 0


def test_rows_of_a_damaged_file_are_not_known(io: Any, tmp_path: Path) -> None:
    """An overwrite replaces it; only the number of its rows is unknown."""
    path, data = lake(tmp_path / "lake", "1", "2"), pa.table({"id": [7], "day": [1]})
    Path(path, "day=2/a.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(RemovedRowsError, match="unknown number of rows") as refused:
        io.write_dataset(data, path, "overwrite", max_removed_rows=1_000_000)
    assert refused.value.rows is None
    assert io.write_dataset(data, path, "overwrite").removed_rows is None


# Streams, and places


def recorded(path: str) -> list[bool]:
    return [f"{PREFIX}app".encode() in (pq.read_metadata(Path(path, n)).metadata or {}) for n in data_files(path)]


@pytest.mark.parametrize("source", ["rows", "none", "none of all"])
def test_the_records_of_streams_survive(io: Any, tmp_path: Path, source: str) -> None:
    path, batch = lake(tmp_path / "lake", "1", "2"), pa.table({"id": [50], "day": [3]})
    io.merge(batch, path, "upsert", ["id"], batch=Batch("app", 3))
    assert recorded(path) == [False, False, True]
    days = (1, 2, 3) if source == "none of all" else (3,)
    data = pa.table({"id": [60], "day": [3]}) if source == "rows" else NONE
    plan = io.plan_write(data, path, MODE, partitions=[{"day": d} for d in days])
    result = io.write_dataset(data, path, MODE, partitions=[{"day": d} for d in days])
    assert len(plan.retyped_files) == len(result.retyped_files) == (1 if source == "none" else 0)
    assert result.removed_rows == 2 * len(days) - 1
    assert any(recorded(path))
    before = fingerprint(path)
    assert io.merge(batch, path, "upsert", ["id"], batch=Batch("app", 3)).inserted == 0
    assert fingerprint(path) == before, "the batch was committed before"


def test_in_memory(io: Any, engine: str) -> None:
    if engine == "spark":
        pytest.skip("memory:// lives in one process; Spark's executors are others")
    path = f"memory://overwrite-partitions-{uuid.uuid4().hex}/lake"
    io.write_dataset(pa.table({"id": [1, 2, 3], "day": ["a", "b", None]}), path, "append", ["day"])
    data = pa.table({"id": [4], "day": ["b"]})
    named = [{"day": "b"}, {"day": None}]
    assert io.plan_write(data, path, MODE, partitions=named).removed_rows == 2
    assert io.write_dataset(data, path, MODE, partitions=named).removed_rows == 2
    assert multiset(read_rows(io, path)) == multiset([{"id": 1, "day": "a"}, {"id": 4, "day": "b"}])


def test_names_in_another_case(io: Any, engine: str, tmp_path: Path) -> None:
    """Spark ignores the case of columns; other engines do not."""
    path, data = lake(tmp_path / "lake", "1", "2"), pa.table({"id": [7], "day": [1]})
    if engine != "spark":
        refused(io, path, data, [{"DAY": 1}], "not partition columns")
        return
    assert io.write_dataset(data, path, MODE, partitions=[{"DAY": 1}]).removed_rows == 2
    refused(io, path, data, [{"DAY": 1, "day": 2}], "differ only in case")
