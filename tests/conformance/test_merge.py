"""What insert, update and upsert do to rows, counts and files, on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import MergeValidationError
from support import data_files, fingerprint, rows, write_lake


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {
        f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": [f"old{n}" for n in range(10)]})
        for i in range(4)
    }
    return write_lake(tmp_path / "lake", files, row_group_size=4)


def by_id(path: str) -> dict[int, str]:
    return {row["id"]: row["x"] for row in rows(path)}


def test_upsert_updates_and_inserts(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    result = io.merge(pa.table({"id": [5, 12, 99], "x": ["A", "B", "C"]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated, result.deleted) == (1, 2, 0)
    assert (result.source_count, result.target_count_before, result.target_count_after) == (3, 40, 41)
    assert by_id(lake) | {5: "A", 12: "B", 99: "C"} == by_id(lake)
    assert len(rows(lake)) == 41
    after = fingerprint(lake)
    assert {n: after[n] for n in ("f2.parquet", "f3.parquet")} == {n: before[n] for n in ("f2.parquet", "f3.parquet")}
    assert len(result.rewritten_files) == 2
    assert len(result.inserted_files) == 1
    assert sorted(result.preserved_files) == [f"{lake}/f2.parquet", f"{lake}/f3.parquet"]


def test_rows_keep_their_place(io: Any, lake: str) -> None:
    result = io.merge(pa.table({"id": [5, 2], "x": ["A", "B"]}), lake, "update", ["id"])
    (path,) = result.rewritten_files
    table = pa.parquet.ParquetFile(path).read()
    assert table.column("id").to_pylist() == list(range(10))
    assert table.column("x").to_pylist() == ["old0", "old1", "B", "old3", "old4", "A", "old6", "old7", "old8", "old9"]


def test_insert_skips_existing_keys(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    result = io.merge(pa.table({"id": [5, 100, 101], "x": ["A", "B", "C"]}), lake, "insert", ["id"])
    assert (result.inserted, result.updated) == (2, 0)
    assert by_id(lake)[5] == "old5"
    assert before.items() <= fingerprint(lake).items()
    assert result.rewritten_files == []


def test_update_ignores_new_keys(io: Any, lake: str) -> None:
    files = data_files(lake)
    result = io.merge(pa.table({"id": [5, 100], "x": ["A", "B"]}), lake, "update", ["id"])
    assert (result.inserted, result.updated) == (0, 1)
    assert len(data_files(lake)) == len(files)
    assert 100 not in by_id(lake)


def test_empty_source_changes_nothing(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    empty = pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.string())})
    for strategy in ("insert", "update", "upsert"):
        result = io.merge(empty, lake, strategy, ["id"])
        assert (result.inserted, result.updated, result.deleted, result.target_count_after) == (0, 0, 0, 40)
    assert fingerprint(lake) == before


def test_missing_target(io: Any, tmp_path: Path) -> None:
    source = pa.table({"id": [1, 2], "x": ["a", "b"]})
    updated = io.merge(source, str(tmp_path / "none"), "update", ["id"])
    assert (updated.inserted, updated.updated) == (0, 0)
    assert not (tmp_path / "none").exists()
    for strategy in ("insert", "upsert"):
        target = str(tmp_path / strategy)
        assert io.merge(source, target, strategy, ["id"]).inserted == 2
        assert len(rows(target)) == 2


def test_columns_in_another_order(io: Any, lake: str) -> None:
    names = pq.read_schema(Path(lake, data_files(lake)[0])).names
    result = io.merge(pa.table({"x": ["new5", "new500"], "id": [5, 500]}), lake, "upsert", ["id"])
    assert (result.updated, result.inserted) == (1, 1)
    assert {row["id"]: row["x"] for row in rows(lake) if row["id"] in (5, 500)} == {5: "new5", 500: "new500"}
    assert [pq.read_schema(Path(lake, name)).names for name in data_files(lake)] == [names] * len(data_files(lake))


def test_identical_rows_spare_the_file(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    result = io.merge(pa.table({"id": [5, 12], "x": ["old5", "old2"]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated, result.rewritten_files) == (0, 2, [])
    assert fingerprint(lake) == before


@pytest.mark.parametrize("key", [0, "", b"", False, 0.0], ids=repr)
def test_a_null_key_is_not_an_empty_one(io: Any, tmp_path: Path, key: Any) -> None:
    kind = pa.scalar(key).type
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": pa.array([None, key], kind), "x": ["n", "e"]})})
    result = io.merge(pa.table({"id": pa.array([key], kind), "x": ["E"]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (0, 1)
    assert [(row["id"], row["x"]) for row in rows(lake)] == [(None, "n"), (key, "E")]


@pytest.mark.parametrize("old, new", [(0.0, -0.0), (1.0, float("nan")), (None, 0.0), (float("nan"), None)], ids=repr)
def test_every_difference_of_a_float_counts(io: Any, tmp_path: Path, old: Any, new: Any) -> None:
    kind = pa.struct([("a", pa.list_(pa.float64()))])
    files = {"f.parquet": pa.table({"id": [1], "x": pa.array([{"a": [old]}], kind)})}
    lake = write_lake(tmp_path / "lake", files)
    result = io.merge(pa.table({"id": [1], "x": pa.array([{"a": [new]}], kind)}), lake, "update", ["id"])
    assert len(result.rewritten_files) == 1
    assert repr(rows(lake)) == repr([{"id": 1, "x": {"a": [new]}}])


def test_null_and_duplicate_keys_of_the_target(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 1, None, 2], "x": ["a", "b", "c", "d"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    result = io.merge(pa.table({"id": [1, 3], "x": ["A", "C"]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated, result.target_count_after) == (1, 2, 5)
    found = [(row["id"], row["x"]) for row in rows(lake)]
    assert sorted(found, key=str) == sorted([(1, "A"), (1, "A"), (None, "c"), (2, "d"), (3, "C")], key=str)


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
def test_null_keys_in_the_source_are_refused(io: Any, lake: str, strategy: str) -> None:
    before = fingerprint(lake)
    with pytest.raises(ValueError, match=r"NULL.*'id' \(2 rows\)"):
        io.merge(pa.table({"id": [1, None, None], "x": ["a", "b", "c"]}), lake, strategy, ["id"])
    assert fingerprint(lake) == before


@pytest.mark.parametrize("key", [5, 500], ids=["existing", "new"])
def test_duplicate_keys_in_the_source_are_refused(io: Any, lake: str, key: int) -> None:
    before = fingerprint(lake)
    with pytest.raises(MergeValidationError, match=f"duplicate keys.*{key}"):
        io.merge(pa.table({"id": [key, 1, key], "x": ["a", "b", "c"]}), lake, "upsert", ["id"])
    assert fingerprint(lake) == before
