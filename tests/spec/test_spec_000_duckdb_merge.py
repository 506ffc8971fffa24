"""Spec 000: `merge` of the DuckDB engine, scenario by scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import merge as core
from fsspeckit.core.match import key_reader as confirm
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, DuckDBParquetHandler
from support import data_files, fingerprint, rows, write_lake


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Four files with ten ids each; the ids of the last two overlap."""
    files = {}
    for i in range(3):
        files[f"f{i}.parquet"] = pa.table({"id": range(i * 10, i * 10 + 10), "x": [f"old{n}" for n in range(10)]})
    files["f3.parquet"] = pa.table({"id": [20, 45, 49], "x": ["twin", "b", "c"]})
    return write_lake(tmp_path / "lake", files)


def found(lake: str) -> dict[Any, Any]:
    return {row["id"]: row["x"] for row in rows(lake)}


def test_insert_appends_only_new_keys(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "x": ["old"]})})
    before = fingerprint(lake)
    result = DuckDBDatasetIO().merge(
        pa.table({"id": [1, 2], "x": ["new", "two"]}), lake, strategy="insert", key_columns=["id"]
    )
    (written,) = result.inserted_files
    assert pq.read_table(written).to_pylist() == [{"id": 2, "x": "two"}]
    assert before.items() <= fingerprint(lake).items()
    assert (result.inserted, result.updated, result.rewritten_files) == (1, 0, [])


def test_update_preserves_unaffected_rows(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["one", "two"]})})
    result = DuckDBDatasetIO().merge(pa.table({"id": [2], "x": ["TWO"]}), lake, strategy="update", key_columns=["id"])
    assert rows(lake) == [{"id": 1, "x": "one"}, {"id": 2, "x": "TWO"}]
    assert (result.inserted, result.updated) == (0, 1)


def test_composite_keys_work_for_upsert(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "category": ["A", "B"], "x": ["old", "old"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    source = pa.table({"id": [1, 1, 2], "category": ["A", "B", "A"], "x": ["new", "new", "new"]})
    result = DuckDBDatasetIO().merge(source, lake, strategy="upsert", key_columns=["id", "category"])
    assert (result.inserted, result.updated) == (2, 1)
    assert {(r["id"], r["category"]): r["x"] for r in rows(lake)} == {
        (1, "A"): "new",
        (2, "B"): "old",
        (1, "B"): "new",
        (2, "A"): "new",
    }


def test_conservative_pruning_and_key_scan_confirmation(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """f0 and f1 are excluded by statistics; f2 holds 25, f3 might by its bounds (20..49) but does not."""
    read: list[tuple[str, Any]] = []
    original = confirm.read_row_group  # type: ignore[attr-defined]

    def spy(location: Any, path: str, file: Any, group: int, columns: Any = None) -> pa.Table:
        read.append((path, columns))
        return original(location, path, file, group, columns)

    monkeypatch.setattr(confirm, "read_row_group", spy)
    before = fingerprint(lake)
    result = DuckDBDatasetIO().merge(pa.table({"id": [25], "x": ["new"]}), lake, strategy="update", key_columns=["id"])
    assert sorted(read) == [("f2.parquet", ["id"]), ("f3.parquet", ["id"])]
    assert result.rewritten_files == [f"{lake}/f2.parquet"]
    after = fingerprint(lake)
    assert [n for n in before if before[n] != after[n]] == ["f2.parquet"]


def test_upsert_returns_metadata_for_rewritten_and_inserted_files(lake: str) -> None:
    source = pa.table({"id": [5, 99, 100], "x": ["a", "b", "c"]})
    result = DuckDBDatasetIO().merge(source, lake, strategy="upsert", key_columns=["id"])
    entries = {f.path: f for f in result.files}
    assert set(entries) == {f"{lake}/{name}" for name in data_files(lake)}
    assert [f.operation for f in result.files].count("rewritten") == len(result.rewritten_files) == 1
    assert entries[result.rewritten_files[0]].row_count == 10
    assert [entries[path].row_count for path in result.inserted_files] == [2]


def test_parquet_metadata_is_the_default_metadata_source(lake: str) -> None:
    source = pa.table({"id": [5, 99], "x": ["a", "b"]})
    for entry in DuckDBDatasetIO().merge(source, lake, "upsert", ["id"]).files:
        assert entry.row_count == pq.read_metadata(entry.path).num_rows
        assert entry.size_bytes == Path(entry.path).stat().st_size


@pytest.mark.parametrize("strategy", ["update", "upsert"])
def test_write_parquet_dataset_incremental_delegates_to_merge(
    lake: str, strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[core.Request] = []
    original = core.run

    def spy(engine: Any, location: Any, source: Any, request: core.Request) -> Any:
        requests.append(request)
        return original(engine, location, source, request)

    monkeypatch.setattr(core, "run", spy)
    source = pa.table({"id": [5, 99], "x": ["a", "b"]})
    handler = DuckDBParquetHandler()
    handler.merge(source, lake, strategy=strategy, key_columns=["id"])
    handler.write_parquet_dataset(source, lake, strategy=strategy, key_columns=["id"], rewrite_mode="incremental")
    assert requests[0] == requests[1]
