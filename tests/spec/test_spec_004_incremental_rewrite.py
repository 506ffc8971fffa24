"""Spec 004: `write_parquet_dataset(..., rewrite_mode="incremental")` of DuckDB's handler, scenario by scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.api import dataset_io
from fsspeckit.datasets.duckdb import DuckDBParquetHandler
from support import data_files, fingerprint, rows, write_lake


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {
        f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": [f"old{n}" for n in range(10)]})
        for i in range(8)
    }
    return write_lake(tmp_path / "lake", files)


def test_incremental_upsert_rewrites_only_affected_files(lake: str) -> None:
    before = fingerprint(lake)
    source = pa.table({"id": [3, 35, 500], "x": ["a", "b", "c"]})
    result = DuckDBParquetHandler().write_parquet_dataset(
        source, lake, strategy="upsert", key_columns=["id"], rewrite_mode="incremental"
    )
    after = fingerprint(lake)
    assert [n for n in before if before[n] != after[n]] == ["f0.parquet", "f3.parquet"]
    assert len(set(after) - set(before)) == len(result.inserted_files) == 1
    expected = {i: f"old{i % 10}" for i in range(80)} | {3: "a", 35: "b", 500: "c"}
    assert {row["id"]: row["x"] for row in rows(lake)} == expected
    assert len(rows(lake)) == 81


def test_incremental_update_never_writes_inserts(lake: str) -> None:
    before = fingerprint(lake)
    source = pa.table({"id": [3, 500], "x": ["a", "never"]})
    result = DuckDBParquetHandler().write_parquet_dataset(
        source, lake, strategy="update", key_columns=["id"], rewrite_mode="incremental"
    )
    after = fingerprint(lake)
    assert (result.inserted, result.updated, result.inserted_files) == (0, 1, [])
    assert [n for n in before if before[n] != after[n]] == ["f0.parquet"]
    assert "never" not in {row["x"] for row in rows(lake)}
    assert len(data_files(lake)) == 8


def test_unknown_file_membership_treated_as_affected(tmp_path: Path) -> None:
    """Design: a file without statistics is scanned for keys and rewritten if, and only if, it holds one."""
    tables = {f"f{i}.parquet": pa.table({"id": [i, i + 10], "x": ["old", "old"]}) for i in range(3)}
    lake = write_lake(tmp_path / "lake", tables, write_statistics=False)
    assert pq.read_metadata(f"{lake}/f0.parquet").row_group(0).column(0).statistics is None
    source = pa.table({"id": [11], "x": ["new"]})
    plan = DuckDBParquetHandler().plan(source, lake, "upsert", ["id"])
    assert [f.action for f in plan.files] == ["scan", "rewrite", "scan"]
    result = DuckDBParquetHandler().write_parquet_dataset(
        source, lake, strategy="upsert", key_columns=["id"], rewrite_mode="incremental"
    )
    assert (result.updated, result.inserted) == (1, 0)
    assert {row["id"]: row["x"] for row in rows(lake)}[11] == "new"


def refused(lake: str, strategy: Any, **arguments: Any) -> None:
    before = fingerprint(lake)
    with pytest.raises(ValueError, match=f"(?i)incremental rewrite is not supported for '{strategy}'"):
        DuckDBParquetHandler().write_parquet_dataset(
            pa.table({"id": [1], "x": ["a"]}), lake, strategy=strategy, rewrite_mode="incremental", **arguments
        )
    assert fingerprint(lake) == before


@pytest.mark.parametrize("arguments", [{}, {"key_columns": ["id"]}, {"key_columns": []}], ids=str)
@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
def test_reject_incremental_full_sync_strategies(lake: str, strategy: Any, arguments: dict[str, Any]) -> None:
    """The spec's calls name no keys: the strategy is what is wrong with them."""
    refused(lake, strategy, **arguments)


@pytest.mark.parametrize("by", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
@pytest.mark.parametrize("verb", ["merge", "plan"])
def test_merge_names_the_strategy_before_the_keys(lake: str, by: Any, strategy: Any, verb: str) -> None:
    with pytest.raises(
        ValueError, match=f"(?i)incremental rewrite is not supported for '{strategy}'.*rewrite_mode='full'"
    ):
        getattr(dataset_io(by), verb)(pa.table({"id": [1], "x": ["a"]}), lake, strategy)
