"""Spec 001, "Requirements": one test per scenario, named after it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import nothing_changes, spoil_pages
from fsspeckit.core.incremental import MergeFileMetadata
from support import data_files, fingerprint, rows, write_lake


def by_id(lake: str) -> dict[Any, Any]:
    return {row["id"]: row for row in rows(lake)}


@pytest.fixture
def days(tmp_path: Path) -> str:
    """A Hive-partitioned data set: ids 0..9 on the first of January 2025, 10..19 on the second, 20..29 on the third."""
    files = {
        f"day=2025-01-0{d}/f.parquet": pa.table({"id": range((d - 1) * 10, d * 10), "x": ["old"] * 10})
        for d in (1, 2, 3)
    }
    return write_lake(tmp_path / "lake", files)


@pytest.fixture
def many(tmp_path: Path) -> str:
    files = {f"f{i:02d}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(20)}
    return write_lake(tmp_path / "lake", files)


# Incremental Merge Planning Uses Partition and Statistics Pruning


def test_partition_pruning_reduces_candidate_files(io: Any, tmp_path: Path) -> None:
    """Only files of the matching partition may be rewritten; others are at most guarded (design, point 9)."""
    same = pa.table({"id": [1, 2], "x": ["old"] * 2})
    files = {"day=2025-01-01/f.parquet": same, "day=2025-01-02/f.parquet": same.set_column(0, "id", [[0, 3]])}
    loose = same.append_column("day", [[dt.date(2024, 1, 1), dt.date(2026, 1, 1)]])  # no folder says: not pruned
    lake = write_lake(tmp_path / "lake", {**files, "loose.parquet": loose})
    data = pa.table({"id": [1], "x": ["new"], "day": [dt.date(2025, 1, 1)]})
    plan = io.plan(data, lake, "insert", ["id"], ["day"])
    assert [f.path.removeprefix(f"{lake}/") for f in plan.files] == [*files, "loose.parquet"]
    assert [f.action for f in plan.files] == ["scan", "guard", "scan"]
    by_key = io.plan(data, lake, "upsert", ["id", "day"])
    assert [f.action for f in by_key.files] == ["rewrite", "prune", "scan"]


def test_statistics_pruning_excludes_non_overlapping_files(io: Any, many: str) -> None:
    plan = io.plan(pa.table({"id": [5, 117], "x": ["new"] * 2}), many, "upsert", ["id"])
    assert [Path(f.path).name for f in plan.files if f.action != "prune"] == ["f00.parquet", "f11.parquet"]
    assert {f.reason for f in plan.by_action("prune")} == {"no source key is in its range of keys"}


# Conservative Pruning Preserves Correctness


def test_missing_or_inexact_stats_treated_as_unknown_membership(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"none.parquet": pa.table({"id": ["a"], "x": [1]})}, write_statistics=False)
    write_lake(lake, {"long.parquet": pa.table({"id": ["b" * 5000], "x": [2]})})
    write_lake(lake, {"known.parquet": pa.table({"id": ["c"], "x": [3]})})
    plan = io.plan(pa.table({"id": ["zzz"], "x": [0]}), lake, "upsert", ["id"])
    assert {Path(f.path).name: f.action for f in plan.files} == {
        "none.parquet": "scan",
        "long.parquet": "scan",
        "known.parquet": "prune",
    }
    result = io.merge(pa.table({"id": ["a", "b" * 5000], "x": [10, 20]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (0, 2)


# Full Row Replacement Semantics


def test_update_replaces_full_rows(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "a": ["x", "y"], "b": [1.0, 2.0]})})
    new = {"id": 1, "a": None, "b": 9.5}
    io.merge(
        pa.Table.from_pylist([new], pa.schema({"b": "double", "a": "string", "id": "int64"})), lake, "update", ["id"]
    )
    assert by_id(lake) == {1: new, 2: {"id": 2, "a": "y", "b": 2.0}}


# Partition Columns Cannot Change (Initial Implementation)


@pytest.mark.parametrize("strategy", ["update", "upsert"])
def test_reject_partition_movement_on_update(io: Any, days: str, strategy: str) -> None:
    data = pa.table({"id": [1], "x": ["new"], "day": [dt.date(2025, 1, 2)]})
    with (
        nothing_changes(days),
        pytest.raises(ValueError, match=r"Partition columns \['day'\] cannot change for existing"),
    ):
        io.merge(data, days, strategy, key_columns=["id"], partition_by=["day"])


# `write_dataset` Supports Append and Overwrite


def test_append_writes_new_parquet_files_only(io: Any, many: str) -> None:
    before = fingerprint(many)
    io.write_dataset(pa.table({"id": [1], "x": ["new"]}), many, mode="append")
    after = fingerprint(many)
    assert before.items() < after.items()
    assert len(rows(many)) == 201


def test_overwrite_replaces_parquet_data_files(io: Any, many: str) -> None:
    old = set(data_files(many))
    Path(many, "README.txt").write_text("kept")
    io.write_dataset(pa.table({"id": [1], "x": ["new"]}), many, mode="overwrite")
    assert rows(many) == [{"id": 1, "x": "new"}]
    assert old.isdisjoint(data_files(many))
    assert Path(many, "README.txt").read_text() == "kept"


# Return File Metadata for Newly Written Files


def test_append_returns_written_file_metadata(io: Any, many: str) -> None:
    before = set(data_files(many))
    result = io.write_dataset(pa.table({"id": range(25), "x": ["new"] * 25}), many, mode="append", max_rows_per_file=10)
    assert all(isinstance(entry, MergeFileMetadata) for entry in result.files)
    assert {entry.path for entry in result.files} == {f"{many}/{n}" for n in set(data_files(many)) - before}
    for entry in result.files:
        assert entry.row_count == pq.read_metadata(entry.path).num_rows
        assert entry.size_bytes == Path(entry.path).stat().st_size
    assert sorted(entry.row_count for entry in result.files) == [5, 10, 10]


# `merge` Supports Insert, Update, Upsert (DuckDB, and every other engine)


def test_insert_appends_only_new_keys(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "x": ["old"]})})
    before = fingerprint(lake)
    result = io.merge(pa.table({"id": [1, 2], "x": ["a", "b"]}), lake, strategy="insert", key_columns=["id"])
    written = [row for path in result.inserted_files for row in pq.ParquetFile(path).read().to_pylist()]
    assert written == [{"id": 2, "x": "b"}]
    assert before.items() < fingerprint(lake).items()


def test_update_preserves_unaffected_rows(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]})})
    io.merge(pa.table({"id": [2], "x": ["B"]}), lake, strategy="update", key_columns=["id"])
    assert rows(lake) == [{"id": 1, "x": "a"}, {"id": 2, "x": "B"}]


def test_composite_keys_work_for_upsert(io: Any, tmp_path: Path) -> None:
    old = pa.table({"id": [1, 2], "category": ["A", "B"], "x": ["old"] * 2})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    data = pa.table({"id": [1, 2, 1], "category": ["A", "A", "B"], "x": ["new"] * 3})
    result = io.merge(data, lake, strategy="upsert", key_columns=["id", "category"])
    assert (result.inserted, result.updated) == (2, 1)
    found = {(row["id"], row["category"]): row["x"] for row in rows(lake)}
    assert found == {(1, "A"): "new", (2, "B"): "old", (2, "A"): "new", (1, "B"): "new"}


def test_conservative_pruning_and_key_scan_confirmation(io: Any, many: str) -> None:
    """Pruned files are not read at all; a candidate without the key is scanned by its key column alone."""
    write_lake(many, {"gap.parquet": pa.table({"id": [500, 600], "x": ["old"] * 2})})
    for name in data_files(many):
        if name not in ("f03.parquet", "f07.parquet"):
            spoil_pages(Path(many, name), ["x"] if name == "gap.parquet" else None)
    before = fingerprint(many)
    data = pa.table({"id": [31, 77, 550], "x": ["new"] * 3})
    result = io.merge(data, many, strategy="update", key_columns=["id"], replace="in_place")
    after = fingerprint(many)
    assert {n for n in before if before[n] != after[n]} == {"f03.parquet", "f07.parquet"}
    assert (result.updated, len(result.rewritten_files)) == (2, 2)


# Merge Returns File Metadata (DuckDB, PyArrow)


def test_upsert_returns_metadata_for_rewritten_and_inserted_files(io: Any, many: str) -> None:
    data = pa.table({"id": [31, 77, 900, 901], "x": ["new"] * 4})
    result = io.merge(data, many, strategy="upsert", key_columns=["id"], max_rows_per_file=1)
    entries = {entry.path: entry for entry in result.files}
    assert len(result.rewritten_files) == len(result.inserted_files) == 2
    assert [entries[path].operation for path in result.rewritten_files] == ["rewritten"] * 2
    assert [entries[path].operation for path in result.inserted_files] == ["inserted"] * 2
    assert [entries[path].row_count for path in result.rewritten_files + result.inserted_files] == [10, 10, 1, 1]
    assert set(entries) == {f"{many}/{name}" for name in data_files(many)}


def test_parquet_metadata_is_the_default_metadata_source(io: Any, many: str) -> None:
    result = io.merge(pa.table({"id": [31, 900], "x": ["new"] * 2}), many, strategy="upsert", key_columns=["id"])
    for entry in result.files:
        assert entry.row_count == pq.read_metadata(entry.path).num_rows
        assert entry.size_bytes == Path(entry.path).stat().st_size


# `merge` Supports Insert, Update, Upsert (PyArrow)


def test_update_rewrites_only_affected_files(io: Any, many: str) -> None:
    before = fingerprint(many)
    data = pa.table({"id": [31, 900], "x": ["new"] * 2})
    result = io.merge(data, many, strategy="update", key_columns=["id"], replace="in_place")
    after = fingerprint(many)
    assert result.rewritten_files == [f"{many}/f03.parquet"]
    assert {n for n in before if before[n] != after[n]} == {"f03.parquet"}
    assert after.keys() == before.keys()
    assert 900 not in by_id(many)
