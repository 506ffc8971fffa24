"""The front door: defaults, options and refusals of `fsspeckit.merge`, `plan`, `read` and `inspect`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

import fsspeckit
from fsspeckit import api
from fsspeckit.core import defaults
from fsspeckit.core.model import WriteOptions
from fsspeckit.datasets import options as option_types
from fsspeckit.datasets.io import DatasetIO
from support import all_names, rows

ORDERS = pa.table({"id": [1, 2], "status": ["new", "new"]})
CHANGES = pa.table({"id": [2, 3], "status": ["paid", "new"]})
STRATEGIES = ", ".join(repr(strategy) for strategy in get_args(option_types.Strategy))


@pytest.fixture
def lake(tmp_path: Path) -> str:
    fsspeckit.merge(ORDERS, str(tmp_path / "lake"), key_columns=["id"])
    return str(tmp_path / "lake")


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_upsert_is_the_default(lake: str, name: Any) -> None:
    plan = fsspeckit.plan(CHANGES, lake, key_columns="id", engine=name)
    result = fsspeckit.merge(CHANGES, lake, key_columns="id", engine=name)
    assert (plan.strategy, plan.updated, plan.inserted) == ("upsert", 1, 1)
    assert (result.strategy, result.updated, result.inserted) == ("upsert", 1, 1)
    assert {row["id"]: row["status"] for row in rows(lake)} == {1: "new", 2: "paid", 3: "new"}


def test_upsert_is_the_default_of_the_classes(lake: str) -> None:
    result = fsspeckit.PyArrowDatasetIO().merge(CHANGES, lake, key_columns=["id"])
    assert (result.strategy, result.updated, result.inserted) == ("upsert", 1, 1)
    assert fsspeckit.DuckDBDatasetIO().plan(CHANGES, lake, key_columns=["id"]).updated == 2


def test_arguments_by_position(lake: str) -> None:
    assert fsspeckit.plan(CHANGES, lake, "insert", ["id"]).inserted == 1
    result = fsspeckit.merge(CHANGES, lake, "insert", ["id"])
    assert (result.strategy, result.inserted, result.updated) == ("insert", 1, 0)


def test_options_reach_the_files(tmp_path: Path) -> None:
    lake, source = str(tmp_path / "lake"), pa.table({"id": list(range(10)), "day": [1, 2] * 5})
    fsspeckit.merge(
        source, lake, key_columns=["id"], partition_by="day", compression="zstd", max_rows_per_file=4, row_group_size=3
    )
    files = [name for name in all_names(lake) if name.endswith(".parquet")]
    metadata = [pq.read_metadata(f"{lake}/{name}") for name in files]
    assert sorted(m.num_rows for m in metadata) == [1, 1, 4, 4]
    assert {m.row_group(0).column(0).compression for m in metadata} == {"ZSTD"}
    assert max(m.row_group(i).num_rows for m in metadata for i in range(m.num_row_groups)) == 3


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
@pytest.mark.parametrize("function", ["merge", "plan"])
def test_an_option_that_is_misspelt(lake: str, function: str, name: str) -> None:
    call: Any = getattr(fsspeckit, function)
    with pytest.raises(TypeError, match=rf"^{function}\(\) got an unexpected keyword argument 'partition_timzone'"):
        call(CHANGES, lake, key_columns=["id"], engine=name, partition_timzone="UTC")
    with pytest.raises(TypeError, match=r"Did you mean 'partition_timezone'\?"):
        call(CHANGES, lake, key_columns=["id"], engine=name, partition_timzone="UTC")
    assert rows(lake) == ORDERS.to_pylist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "key_columns is empty"),
        ({"key_columns": 5}, "takes column names, not 5"),
        ({"key_columns": ["id"], "strategy": "upser"}, "Unknown merge strategy 'upser'"),
        ({"strategy": ["id"]}, r"Unknown merge strategy \['id'\]\. .*Name columns by key_columns=\['id'\]"),
        ({"key_columns": ["id"], "strategy": None}, rf"Unknown merge strategy None\. Choose one of {STRATEGIES}\.$"),
        ({"key_columns": ["id"], "compression": "bz2"}, "Unknown compression 'bz2'"),
        ({"key_columns": ["id"], "path": None}, "path"),
        ({"key_columns": ["id"], "storage_options": "a-secret"}, "a mapping of names to values, not str"),
        (
            {"key_columns": ["id"], "storage_options": {"key": "a-secret"}, "filesystem": LocalFileSystem()},
            "filesystem= or storage_options=, not both",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_refusals(lake: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(fsspeckit.ArgumentError, match=message) as refused:
        fsspeckit.merge(CHANGES, **{"path": lake, **arguments})
    assert "a-secret" not in str(refused.value)
    assert rows(lake) == ORDERS.to_pylist()


def test_what_only_one_engine_takes(lake: str) -> None:
    with pytest.raises(TypeError, match="'table'"):
        fsspeckit.merge(CHANGES, table="db.orders", key_columns=["id"])
    query = "SELECT 9::BIGINT AS id, 'new' AS status"
    result = fsspeckit.merge(None, lake, key_columns=["id"], engine="duckdb", source_sql=query, use_merge=False)
    assert (result.inserted, result.updated) == (1, 0)


def test_read(lake: str) -> None:
    assert fsspeckit.read(lake).equals(ORDERS)
    assert fsspeckit.read(lake, ["status"], pc.field("id") == 2).to_pylist() == [{"status": "new"}]
    assert fsspeckit.read(lake, engine="duckdb").equals(ORDERS)
    with pytest.raises(fsspeckit.ArgumentError, match="has no Parquet files"):
        fsspeckit.read(f"{lake}/none")


def test_storage_options_are_in_no_repr(lake: str) -> None:
    """And a local path has no use for them, so that a source on a disk goes into a store."""
    given = {"access_key_id": "AKIA-x", "secret_access_key": "a-secret"}
    for io in (fsspeckit.PyArrowDatasetIO(storage_options=given), fsspeckit.DuckDBDatasetIO(storage_options=given)):
        assert "a-secret" not in repr(vars(io)) + repr(vars(io._engine))
        assert io.read(lake).equals(ORDERS)
    assert fsspeckit.inspect(lake, storage_options=given).rows == 2
    assert fsspeckit.recover(lake, storage_options=given) == []


def test_inspect(lake: str) -> None:
    """A key that is named by a text is that column, not its letters."""
    for key_columns in ("id", ["id"]):
        seen = fsspeckit.inspect(lake, key_columns)
        assert (seen.rows, seen.key_columns, seen.keys["id"].lower, seen.keys["id"].upper) == (2, ("id",), "1", "2")
    with pytest.raises(fsspeckit.ArgumentError, match=r"Key columns not found: \['x'\]"):
        fsspeckit.inspect(lake, "x")


def test_every_option_is_described_and_has_a_home() -> None:
    """The types, the docstring and what the core takes name the same options."""
    merge_options = option_types.AnyMergeOptions.__optional_keys__
    documented = inspect.getdoc(fsspeckit.merge) or ""
    assert [name for name in merge_options if name not in documented] == []
    assert [n for n in option_types.MergeOptions.__optional_keys__ if n not in (DatasetIO.merge.__doc__ or "")] == []
    layout = {field.name for field in WriteOptions.__dataclass_fields__.values()}
    assert layout < merge_options
    assert WriteOptions() == WriteOptions(None, defaults.MAX_ROWS_PER_FILE, None)  # None: as the data set has them


def test_every_engine_has_a_name() -> None:
    assert tuple(api._ENGINES) == get_args(option_types.EngineName)


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_write_and_its_plan(lake: str, name: Any) -> None:
    assert fsspeckit.plan_write(CHANGES, lake, engine=name).rows == 2
    assert fsspeckit.write_dataset(CHANGES, lake, "overwrite", engine=name, max_removed_rows=2).removed_rows == 2
    assert rows(lake) == CHANGES.to_pylist()
    for function in ("write_dataset", "plan_write"):
        call: Any = getattr(fsspeckit, function)
        with pytest.raises(TypeError, match=rf"^{function}\(\) got an unexpected keyword argument 'partition'"):
            call(CHANGES, lake, engine=name, partition=[{"id": 1}])


def test_write_from_sql(lake: str) -> None:
    query = "SELECT 9::BIGINT AS id, 'new' AS status"
    assert fsspeckit.plan_write(None, lake, "overwrite", engine="duckdb", source_sql=query).removed_rows == 2
    assert fsspeckit.write_dataset(None, lake, engine="duckdb", source_sql=query).rows == 1


def test_every_option_of_a_write_is_described() -> None:
    documented = inspect.getdoc(fsspeckit.write_dataset) or ""
    assert [name for name in option_types.AnyWriteOptions.__optional_keys__ if name not in documented] == []
