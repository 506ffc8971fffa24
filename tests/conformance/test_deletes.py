"""Deletes by key: which rows go, what becomes of files, folders and the record of streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.dataset.ledger import PREFIX, Batch
from fsspeckit.core.errors import ArgumentError, MergeValidationError, NullKeyError
from row_lakes import (
    changes,
    consistent,
    counts,
    day_lake,
    flat_lake,
    flat_rows,
    folders,
    ids,
    keeps,
    merged,
    refusal,
    refused,
    seen,
)
from support import all_names, data_files, fingerprint, rows, write_lake

BOTH_WAYS = pytest.mark.parametrize("way", ["strategy", "function"])


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return flat_lake(tmp_path)


def delete(io: Any, way: str, keys: Any, lake: str, key_columns: Any = ("id",)) -> Any:
    """Deletes by `merge(strategy="delete")` or by `delete(keys=)`, which mean the same."""
    if way == "strategy":
        return merged(io, keys, lake, "delete", key_columns)
    plan = io.plan_delete(lake, keys=keys, key_columns=list(key_columns))
    result = io.delete(lake, keys=keys, key_columns=list(key_columns))
    assert counts(plan) == counts(result)
    consistent(result, lake)
    return result


# Which rows


@BOTH_WAYS
def test_rows_with_these_keys_go(io: Any, lake: str, way: str) -> None:
    before = fingerprint(lake)
    result = delete(io, way, pa.table({"id": [3, 12, 13]}), lake)
    assert counts(result) == {"deleted": 3}
    assert (result.target_count_before, result.target_count_after, result.changed) == (30, 27, 0)
    assert ids(lake) == [i for i in range(30) if i not in (3, 12, 13)]
    keeps(before, fingerprint(lake), "f2.parquet")
    assert len(result.rewritten_files) == 2


@BOTH_WAYS
def test_a_key_that_is_not_there_is_no_error(io: Any, lake: str, way: str) -> None:
    before = fingerprint(lake)
    result = delete(io, way, pa.table({"id": [-1, 15, 1000]}), lake)
    assert counts(result) == {"deleted": 1}
    keeps(before, fingerprint(lake), "f0.parquet", "f2.parquet")
    before = fingerprint(lake)
    assert counts(delete(io, way, pa.table({"id": [-1, 15, 1000]}), lake)) == {}
    assert fingerprint(lake) == before


@BOTH_WAYS
def test_no_keys_delete_nothing(io: Any, lake: str, way: str) -> None:
    before = fingerprint(lake)
    assert counts(delete(io, way, pa.table({"id": pa.array([], pa.int64())}), lake)) == {}
    assert fingerprint(lake) == before


@BOTH_WAYS
def test_every_column_but_the_key_is_ignored(io: Any, lake: str, way: str) -> None:
    """Even one that the target does not have, one of another type, or one whose value does not fit."""
    keys = pa.table({"id": [3], "x": [7], "version": [0.5], "unknown": [[1]]})
    assert counts(delete(io, way, keys, lake)) == {"deleted": 1}
    assert pq.read_schema(Path(lake, data_files(lake)[0])).names == ["id", "x", "version"]


@BOTH_WAYS
def test_nulls_in_other_columns_do_not_matter(io: Any, tmp_path: Path, way: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("x", pa.string(), False)])
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": ["a", "b"]}, schema=schema)})
    keys = pa.table({"id": [1], "x": pa.array([None], pa.string())})
    assert counts(delete(io, way, keys, lake)) == {"deleted": 1}
    assert rows(lake) == [{"id": 2, "x": "b"}]


@BOTH_WAYS
def test_keys_may_stand_twice(io: Any, lake: str, way: str) -> None:
    keys = pa.table({"id": [3, 3, 4, 3], "x": ["a", "b", "c", "a"]})
    assert counts(delete(io, way, keys, lake)) == {"deleted": 2}


@BOTH_WAYS
def test_a_null_key_is_refused(io: Any, lake: str, way: str) -> None:
    with refusal(lake, r"NULL.*'id' \(1 row\)", NullKeyError):
        if way == "strategy":
            io.merge(pa.table({"id": [1, None]}), lake, "delete", ["id"])
        else:
            io.delete(lake, keys=pa.table({"id": [1, None]}), key_columns=["id"])


@BOTH_WAYS
def test_all_copies_of_a_key_go_and_null_keys_stay(io: Any, tmp_path: Path, way: str) -> None:
    files = {"a.parquet": pa.table({"id": [1, None, 1, 2]}), "b.parquet": pa.table({"id": [1, 3]})}
    lake = write_lake(tmp_path / "lake", files)
    assert counts(delete(io, way, pa.table({"id": [1]}), lake)) == {"deleted": 3}
    assert ids(lake) == [None, 2, 3]


@BOTH_WAYS
def test_keys_are_equal_by_value(io: Any, tmp_path: Path, way: str) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [0.0, -0.0, float("nan"), 1.5]})})
    assert counts(delete(io, way, pa.table({"id": [0.0, float("nan")]}), lake)) == {"deleted": 3}
    assert ids(lake) == [1.5]


@BOTH_WAYS
def test_keys_of_several_columns(io: Any, lake: str, way: str) -> None:
    keys = pa.table({"id": [3, 4], "x": ["old", "other"]})
    assert counts(delete(io, way, keys, lake, ("id", "x"))) == {"deleted": 1}
    assert ids(lake) == [i for i in range(30) if i != 3]


def test_keys_from_a_parquet_file(io: Any, lake: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [3, 4]}), tmp_path / "gone.parquet")
    assert counts(io.delete(lake, keys=str(tmp_path / "gone.parquet"), key_columns=["id"])) == {"deleted": 2}


def test_the_function_of_the_package(engine: str, lake: str, request: pytest.FixtureRequest) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    name: Any = engine.partition("-")[0]
    keys = pa.table({"id": [3, 4]})
    plan = fsspeckit.plan_delete(lake, keys=keys, key_columns=["id"], engine=name)
    result = fsspeckit.delete(lake, keys=keys, key_columns=["id"], engine=name)
    assert counts(plan) == counts(result) == {"deleted": 2}
    assert fsspeckit.delete(lake, filters=[("id", "<", 3)], engine=name).deleted == 3
    assert ids(lake) == list(range(5, 30))


# Partitions


@BOTH_WAYS
@pytest.mark.parametrize("day", [None, ["z"], ["c"], pa.array([None], pa.string())], ids=["absent", "new", "c", "null"])
def test_a_row_is_found_wherever_it_is(io: Any, tmp_path: Path, way: str, day: Any) -> None:
    """A delete never counts as a move."""
    lake = day_lake(tmp_path)
    assert counts(delete(io, way, changes([1], day), lake)) == {"deleted": 1}
    assert seen(lake, "id", "day") == [(2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "c")]


@BOTH_WAYS
def test_a_partition_column_that_is_a_key_counts(io: Any, tmp_path: Path, way: str) -> None:
    lake = day_lake(tmp_path)
    keys = pa.table({"id": [1, 3], "day": ["b", "b"]})
    assert counts(delete(io, way, keys, lake, ("id", "day"))) == {"deleted": 1}
    assert ids(lake) == [1, 2, 4, 5, 6]


@BOTH_WAYS
def test_copies_in_several_partitions_all_go(io: Any, tmp_path: Path, way: str) -> None:
    lake = write_lake(
        tmp_path / "lake", {f"day={d}/f.parquet": pa.table({"id": [1, n]}) for n, d in ((2, "a"), (3, "b"))}
    )
    assert counts(delete(io, way, pa.table({"id": [1]}), lake)) == {"deleted": 2}
    assert seen(lake, "id", "day") == [(2, "a"), (3, "b")]


# Files and folders


@BOTH_WAYS
def test_a_file_that_loses_all_rows_is_removed(io: Any, lake: str, way: str) -> None:
    before = fingerprint(lake)
    result = delete(io, way, pa.table({"id": range(10, 20)}), lake)
    assert counts(result) == {"deleted": 10}
    assert data_files(lake) == ["f0.parquet", "f2.parquet"]
    assert result.removed_files == [f"{lake}/f1.parquet"]
    assert (result.rewritten_files, result.inserted_files) == ([], [])
    keeps(before, fingerprint(lake), "f0.parquet", "f2.parquet")


@BOTH_WAYS
def test_a_partition_folder_that_becomes_empty_is_removed(io: Any, tmp_path: Path, way: str) -> None:
    files = {f"year={y}/day={d}/f.parquet": pa.table({"id": [y * 10 + d]}) for y, d in ((1, 1), (1, 2), (2, 1))}
    lake = write_lake(tmp_path / "lake", files)
    assert delete(io, way, pa.table({"id": [12]}), lake).deleted == 1
    assert folders(lake) == ["year=1", "year=1/day=1", "year=2", "year=2/day=1"]
    assert delete(io, way, pa.table({"id": [21]}), lake).deleted == 1
    assert folders(lake) == ["year=1", "year=1/day=1"]
    again = pa.table({"id": [12], "year": [1], "day": [2]})
    assert io.merge(again, lake, "upsert", ["id"]).inserted == 1
    assert folders(lake) == ["year=1", "year=1/day=1", "year=1/day=2"]


def test_a_folder_with_another_file_is_not_empty(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    Path(lake, "day=b/notes.txt").write_text("keep me")
    assert io.merge(pa.table({"id": [3, 4]}), lake, "delete", ["id"]).deleted == 2
    assert all_names(lake) == ["day=a", "day=a/fa.parquet", "day=b", "day=b/notes.txt", "day=c", "day=c/fc.parquet"]


@BOTH_WAYS
@pytest.mark.parametrize("make", [flat_lake, day_lake], ids=["flat", "partitioned"])
def test_the_last_file_stays_with_no_rows(io: Any, tmp_path: Path, make: Any, way: str) -> None:
    lake = make(tmp_path)
    count, schema = len(rows(lake)), pq.read_schema(Path(lake, data_files(lake)[0]))
    result = delete(io, way, pa.table({"id": range(100)}), lake)
    assert counts(result) == {"deleted": count}
    (name,) = data_files(lake)
    assert pq.read_metadata(Path(lake, name)).num_rows == 0
    assert pq.read_schema(Path(lake, name)).equals(schema)
    assert all_names(tmp_path) == sorted({"lake", f"lake/{name}", *(f"lake/{folder}" for folder in folders(lake))})
    assert counts(delete(io, way, pa.table({"id": range(100)}), lake)) == {}
    source = changes([1, 2], ["a", "b"]) if make is day_lake else changes([1, 2])
    assert counts(merged(io, source, lake)) == {"inserted": 2}
    assert [row[:2] for row in seen(lake, "id", "x")] == [(1, "new"), (2, "new")]


def test_row_order_and_row_groups_of_what_stays(io: Any, lake: str) -> None:
    merged(io, pa.table({"id": [1, 4, 5, 6, 7]}), lake, "delete")
    (name,) = [n for n in data_files(lake) if n.startswith("f0")]
    file = pq.ParquetFile(Path(lake, name))
    assert file.read().column("id").to_pylist() == [0, 2, 3, 8, 9]
    assert 0 not in [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]


def test_an_emptied_partition_leaves_spark_s_catalog(io: Any, engine: str, tmp_path: Path, request: Any) -> None:
    """Otherwise the next merge by the table's name would be refused."""
    if engine != "spark":
        pytest.skip("Spark only")
    spark = request.getfixturevalue("spark")
    spark.sql("DROP TABLE IF EXISTS fk_deletes")
    columns = "id bigint, x string, day string"
    spark.sql(f"CREATE TABLE fk_deletes ({columns}) USING parquet PARTITIONED BY (day) LOCATION '{tmp_path}/lake'")
    try:
        spark.sql("INSERT INTO fk_deletes SELECT id, 'old', concat('d', id % 3) FROM range(9)")
        gone = spark.sql("SELECT id FROM fk_deletes WHERE day = 'd1'")
        assert io.merge(gone, table="fk_deletes", strategy="delete", key_columns=["id"]).deleted == 3
        assert [row[0] for row in spark.sql("SHOW PARTITIONS fk_deletes").collect()] == ["day=d0", "day=d2"]
        more = spark.sql("SELECT 100 AS id, 'new' AS x, 'd0' AS day")
        assert io.merge(more, table="fk_deletes", strategy="upsert", key_columns=["id"]).inserted == 1
        assert spark.table("fk_deletes").count() == 7
    finally:
        spark.sql("DROP TABLE IF EXISTS fk_deletes")


# Streams


def recorded(lake: str, app_id: str) -> set[int]:
    """Batches of a stream that the files record."""
    entries = [pq.read_metadata(Path(lake, n)).metadata.get(f"{PREFIX}{app_id}".encode()) for n in data_files(lake)]
    return {int(str(entry).partition('"batch": ')[2].partition(",")[0]) for entry in entries if entry is not None}


@pytest.mark.parametrize("gone", [[3], range(10), range(30)], ids=["of a file", "a file", "all files"])
@pytest.mark.parametrize("way", ["strategy", "feed"])
def test_a_batch_that_only_deletes_is_recorded(io: Any, lake: str, gone: Any, way: str) -> None:
    """Where no file is written, the smallest remaining one is copied with a new footer."""
    source = pa.table({"id": gone}) if way == "strategy" else changes(gone, op=["D"] * len(list(gone)))
    options = {} if way == "strategy" else {"delete_column": "op", "delete_values": ["D"]}
    strategy = "delete" if way == "strategy" else "upsert"
    result = io.merge(source, lake, strategy, ["id"], batch=Batch("app", 7), **options)
    assert counts(result) == {"deleted": len(list(gone))}
    consistent(result, lake)
    assert recorded(lake, "app") == {7}
    io.merge(flat_rows([3], "again"), lake, "upsert", ["id"])
    before = fingerprint(lake)
    assert counts(io.merge(source, lake, strategy, ["id"], batch=Batch("app", 7), **options)) == {}
    assert fingerprint(lake) == before, "the batch was committed before"
    with pytest.raises(MergeValidationError, match="Batch 6"):
        io.merge(source, lake, strategy, ["id"], batch=Batch("app", 6), **options)


def test_the_smallest_remaining_file_records_the_batch(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": flat_rows([1]), "b.parquet": flat_rows([2]), "c.parquet": flat_rows(range(100, 9000))}
    lake = write_lake(tmp_path / "lake", files)
    before, pages = fingerprint(lake), pq.read_table(Path(lake, "b.parquet"))
    result = io.merge(pa.table({"id": [1]}), lake, "delete", ["id"], batch=Batch("app", 1))
    consistent(result, lake)
    (name,) = [n for n in data_files(lake) if n.startswith("b")]
    assert f"{PREFIX}app".encode() in pq.read_metadata(Path(lake, name)).metadata
    assert pq.ParquetFile(Path(lake, name)).read().equals(pages)
    assert [Path(path).name for path in result.rewritten_files] == [name]
    keeps(before, fingerprint(lake), "c.parquet")


@pytest.mark.parametrize("way", ["keys", "filters"])
def test_no_delete_removes_the_only_record_of_a_stream(io: Any, lake: str, way: str) -> None:
    batch = flat_rows(range(100, 110), "stream")
    io.merge(batch, lake, "upsert", ["id"], batch=Batch("app", 3))
    assert recorded(lake, "app") == {3}
    if way == "keys":
        result = io.delete(lake, keys=batch.select(["id"]), key_columns=["id"])
    else:
        result = io.delete(lake, filters=[("id", ">=", 100)])
    assert counts(result) == {"deleted": 10}
    consistent(result, lake)
    assert recorded(lake, "app") == {3}
    assert counts(io.merge(batch, lake, "upsert", ["id"], batch=Batch("app", 3))) == {}
    assert len(rows(lake)) == 30


# Refusals


def test_keys_need_key_columns(io: Any, lake: str) -> None:
    with refusal(lake, "key_columns", ArgumentError):
        io.delete(lake, keys=pa.table({"id": [1]}))


def test_a_key_column_that_is_not_there(io: Any, lake: str) -> None:
    with refusal(lake, "nope"):
        io.delete(lake, keys=pa.table({"id": [1]}), key_columns=["nope"])
    with refusal(lake, "other"):
        io.delete(lake, keys=pa.table({"other": [1]}), key_columns=["other"])


def test_keys_that_no_type_holds(io: Any, lake: str) -> None:
    with refusal(lake, "keys", ArgumentError):
        io.delete(lake, keys=[1, 2**70], key_columns=["id"])


@pytest.mark.parametrize(
    "keys",
    [pa.array([1, 2]), pa.chunked_array([[1], [2]]), np.array([1, 2]), pd.Series([1, 2]), pl.Series([1, 2]), {1, 2}],
    ids=lambda keys: f"{type(keys).__module__}.{type(keys).__name__}",
)
def test_keys_of_one_column(io: Any, lake: str, keys: Any) -> None:
    assert io.delete(lake, keys=keys, key_columns=["id"]).deleted == 2
    if not isinstance(keys, set):
        with refusal(lake, "one column"):
            io.delete(lake, keys=keys, key_columns=["id", "x"])


KEYS_OF_32_BITS = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "x": ["a", "b", "c"]})


@pytest.mark.parametrize("way", ["strategy", "function", "feed"])
@pytest.mark.parametrize("key", [2**31, -(2**31) - 1, 2**62])
def test_a_key_beyond_the_range_of_the_target_s_integers_is_not_there(
    io: Any, tmp_path: Path, way: str, key: int
) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": KEYS_OF_32_BITS})
    for found in (1, 0):
        keys = pa.table({"id": [2, key]})
        if way == "feed":
            result = merged(
                io, keys.append_column("op", pa.array(["D", "D"])), lake, delete_column="op", delete_values="D"
            )
        else:
            result = delete(io, way, keys, lake)
        assert counts(result) == ({"deleted": 1} if found else {})
    assert ids(lake) == [1, 3]


def test_other_keys_that_do_not_fit_are_refused(io: Any, tmp_path: Path) -> None:
    """They may be meant for a row that is there: 0.1 of 64 bits for 0.1 of 32 bits."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": KEYS_OF_32_BITS})
    refused(io, pa.table({"id": [1.5]}), lake, "'id'", "delete")
    floats = write_lake(tmp_path / "floats", {"f.parquet": pa.table({"id": pa.array([0.1], pa.float32())})})
    refused(io, pa.table({"id": [0.1]}), floats, "'id'", "delete")


def test_rows_of_a_feed_that_are_stored_must_fit(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": KEYS_OF_32_BITS})
    feed = pa.table({"id": [2**40, 1], "x": ["n", None], "op": ["U", "D"]})
    refused(io, feed, lake, "'id'", delete_column="op", delete_values=["D"])


def test_a_key_of_another_type(io: Any, lake: str) -> None:
    refused(io, pa.table({"id": ["1"]}), lake, "'id'", "delete")
