"""Spec 003: one merge layer, its edge cases, and statistics that tell what was done."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from damage import nothing_changes, spoil_pages
from fsspeckit import MergeStrategy
from fsspeckit.core import merge as core
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO, merge_parquet_dataset_pyarrow
from fsspeckit.report.summary import document
from support import data_files, rows, write_lake

ALL = ["insert", "update", "upsert", "full_merge", "deduplicate"]


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10}) for i in range(3)}
    return write_lake(tmp_path / "lake", files)


def counts(result: Any) -> tuple[int, ...]:
    return result.inserted, result.updated, result.deleted, result.target_count_before, result.target_count_after


def test_the_five_strategies() -> None:
    """And `delete`, which the specification does not have."""
    five = ["insert", "update", "upsert", "full_merge", "deduplicate"]
    assert [strategy.value for strategy in MergeStrategy] == [*five, "delete"]
    assert core.MergeStrategy is MergeStrategy
    actions = {s.value: s.actions for s in MergeStrategy}
    assert [name for name, a in actions.items() if a.matched == "update"] == [
        "update",
        "upsert",
        "full_merge",
        "deduplicate",
    ]
    assert [name for name, a in actions.items() if a.new == "insert"] == [
        "insert",
        "upsert",
        "full_merge",
        "deduplicate",
    ]
    assert [name for name, a in actions.items() if a.incremental] == ["insert", "update", "upsert", "delete"]


def test_no_engine_has_a_flow_of_its_own() -> None:
    """`merge` of an engine's class is the one of `DatasetIO`, which is `core.merge.run`."""
    assert "merge" not in vars(PyArrowDatasetIO)
    assert "write_parquet_dataset" not in vars(PyArrowDatasetIO)
    assert len(inspect.getsource(core.run).splitlines()) <= 60


def test_the_paths_that_the_spec_names() -> None:
    from fsspeckit.datasets.duckdb import DuckDBParquetHandler
    from fsspeckit.utils import duckdb as utils_duckdb
    from fsspeckit.utils import pyarrow as utils_pyarrow

    assert utils_duckdb.DuckDBParquetHandler is DuckDBParquetHandler
    assert callable(utils_duckdb.DuckDBParquetHandler.merge_parquet_dataset)
    assert utils_pyarrow.merge_parquet_dataset_pyarrow is merge_parquet_dataset_pyarrow


def test_the_paths_load_no_engine_but_their_own() -> None:
    code = """
import sys, fsspeckit.utils
assert not {"duckdb", "pyspark", "pyarrow"} & set(sys.modules), sorted(sys.modules)
import fsspeckit.utils.pyarrow
assert not {"duckdb", "pyspark"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("strategy", ALL)
def test_total_is_the_number_of_rows_after_the_merge(io: Any, lake: str, strategy: str) -> None:
    source = pa.table({"id": [3, 4, 500], "x": ["a", "b", "c"]})
    result = io.write_parquet_dataset(source, lake, strategy, ["id"])
    assert result.total == result.target_count_after == len(rows(lake))
    assert document(result, lake)["total"] == result.total


@pytest.mark.parametrize("empty", ["missing", "no files", "no rows"])
@pytest.mark.parametrize("strategy", ALL)
def test_empty_target(io: Any, tmp_path: Path, strategy: str, empty: str) -> None:
    target = tmp_path / "lake"
    data = pa.table({"id": [1, 2], "x": ["a", "b"]})
    if empty == "no files":
        target.mkdir()
    if empty == "no rows":
        write_lake(target, {"f.parquet": data.slice(0, 0)})
    result = io.write_parquet_dataset(data, str(target), strategy, ["id"])
    written = 0 if strategy == "update" else 2
    assert counts(result) == (written, 0, 0, 0, written)
    assert len(rows(target)) == written


def test_update_of_an_empty_target_writes_nothing(io: Any, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    target.mkdir()
    with nothing_changes(target):
        io.merge(pa.table({"id": [1], "x": ["a"]}), str(target), "update", ["id"])


def test_full_merge_with_an_empty_source_deletes_all(io: Any, lake: str) -> None:
    empty = pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.string())})
    result = io.write_parquet_dataset(empty, lake, "full_merge", ["id"])
    assert counts(result) == (0, 0, 30, 30, 0)
    assert rows(lake) == []
    assert len(data_files(lake)) == 1


@pytest.mark.parametrize("strategy", ALL)
def test_schema_incompatibility_is_an_error(io: Any, lake: str, strategy: str) -> None:
    bad = {
        r"missing from the source: \['x'\]": pa.table({"id": [1]}),
        r"target does not have: \['y'\]": pa.table({"id": [1], "x": ["a"], "y": [1]}),
        "'x' is bool in the source and string in the target": pa.table({"id": [1], "x": [True]}),
        "'id' is double in the source and int64 in the target: the value 0.5": pa.table({"id": [0.5], "x": ["a"]}),
    }
    for message, data in bad.items():
        with nothing_changes(lake), pytest.raises(ValueError, match=message):
            io.write_parquet_dataset(data, lake, strategy, ["id"])


def test_schema_promotion_where_values_survive(io: Any, lake: str) -> None:
    data = pa.table({"x": pa.array(["a"]).dictionary_encode(), "id": pa.array([1], pa.uint8())})
    assert counts(io.merge(data, lake, "upsert", ["id"])) == (0, 1, 0, 30, 30)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("insert", (1, 0, 0, 30, 31)),
        ("update", (0, 2, 0, 30, 30)),
        ("upsert", (1, 2, 0, 30, 31)),
        ("full_merge", (1, 2, 28, 30, 3)),
        ("deduplicate", (1, 2, 0, 30, 31)),
    ],
)
def test_statistics_tell_what_was_done(io: Any, lake: str, strategy: str, expected: tuple[int, ...]) -> None:
    """An update does not count the rows that it did not touch."""
    result = io.write_parquet_dataset(pa.table({"id": [5, 15, 99], "x": ["n"] * 3}), lake, strategy, ["id"])
    assert counts(result) == expected
    assert len(rows(lake)) == result.target_count_after
    assert sum(row["x"] == "n" for row in rows(lake)) == result.inserted + result.updated


def test_the_target_is_touched_by_filtered_reads(io: Any, lake: str) -> None:
    """Spec 003's "key-filtered scanner": what statistics exclude is never read."""
    spoil_pages(f"{lake}/f1.parquet")
    assert io.merge(pa.table({"id": [5, 25], "x": ["n"] * 2}), lake, "update", ["id"]).updated == 2


@pytest.mark.parametrize("strategy", ALL)
def test_merge_parquet_dataset_pyarrow(lake: str, strategy: Any) -> None:
    result = merge_parquet_dataset_pyarrow(pa.table({"id": [5, 99], "x": ["n"] * 2}), lake, strategy, ["id"])
    assert result.strategy == strategy
    assert len(rows(lake)) == {"update": 30, "full_merge": 2}.get(strategy, 31)


def test_merge_parquet_dataset_pyarrow_takes_the_options(lake: str) -> None:
    data = pa.table({"id": [5, 5], "x": ["a", "b"]})
    result = merge_parquet_dataset_pyarrow(data, lake, "deduplicate", "id", dedup_order_by="x")
    assert (result.updated, {row["x"] for row in rows(lake)}) == (1, {"old", "b"})
