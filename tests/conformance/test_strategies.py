"""`write_parquet_dataset` with all strategies, and `write_dataset`: rows, counts and files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import nothing_changes
from fsspeckit.core.errors import ArgumentError, DuplicateKeyError, PartitionMoveError, SchemaMismatchError
from support import all_names, data_files, fingerprint, multiset, rows, write_lake

SOURCE = pa.table({"id": [5, 12, 99], "x": ["A", "B", "C"]})
EMPTY = SOURCE.slice(0, 0)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    files = {
        f"f{i}.parquet": pa.table({"id": range(i * 10, i * 10 + 10), "x": [f"old{n}" for n in range(10)]})
        for i in range(4)
    }
    return write_lake(tmp_path / "lake", files, row_group_size=4, compression="zstd")


def by_id(path: str) -> dict[int, Any]:
    found = rows(path)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["x"] for row in found}


def counts(result: Any) -> tuple[int, ...]:
    return result.inserted, result.updated, result.deleted, result.target_count_before, result.target_count_after


def only_data_files(lake: str) -> bool:
    return all_names(Path(lake).parent) == sorted(["lake", *(f"lake/{name}" for name in data_files(lake))])


EXPECTED = {
    "insert": (1, 0, 0, 40, 41),
    "update": (0, 2, 0, 40, 40),
    "upsert": (1, 2, 0, 40, 41),
    "deduplicate": (1, 2, 0, 40, 41),
    "full_merge": (1, 2, 38, 40, 3),
}


def model(old: dict[int, str], strategy: str) -> dict[int, str]:
    new = dict(zip(SOURCE["id"].to_pylist(), SOURCE["x"].to_pylist(), strict=True))
    if strategy == "full_merge":
        return new
    if strategy == "insert":
        return new | old
    return old | {k: v for k, v in new.items() if strategy != "update" or k in old}


@pytest.mark.parametrize("strategy", list(EXPECTED))
def test_full(io: Any, lake: str, strategy: str) -> None:
    old_files, old = set(data_files(lake)), by_id(lake)
    result = io.write_parquet_dataset(SOURCE, lake, strategy, ["id"])
    assert counts(result) == EXPECTED[strategy]
    assert (result.strategy, result.source_count) == (strategy, 3)
    assert by_id(lake) == model(old, strategy)
    assert old_files.isdisjoint(data_files(lake))
    assert sorted(result.removed_files) == [f"{lake}/{name}" for name in sorted(old_files)]
    assert sorted(result.rewritten_files + result.inserted_files) == [f"{lake}/{name}" for name in data_files(lake)]
    assert result.preserved_files == []
    assert sum(file.row_count for file in result.files) == result.target_count_after
    assert only_data_files(lake)


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
def test_incremental_is_merge(io: Any, lake: str, tmp_path: Path, strategy: str) -> None:
    twin = write_lake(tmp_path / "twin/lake", {n: pq.read_table(f"{lake}/{n}") for n in data_files(lake)})
    before, old = fingerprint(lake), by_id(lake)
    result = io.write_parquet_dataset(SOURCE, lake, strategy, ["id"], rewrite_mode="incremental")
    merged = io.merge(SOURCE, twin, strategy, ["id"])
    assert counts(result) == counts(merged) == EXPECTED[strategy]
    assert by_id(lake) == by_id(twin) == model(old, strategy)
    assert len(result.rewritten_files) == (0 if strategy == "insert" else 2)
    kept = [name for name in before if fingerprint(lake).get(name) == before[name]]
    assert sorted(result.preserved_files) == [f"{lake}/{name}" for name in sorted(kept)]
    assert len(kept) == (4 if strategy == "insert" else 2)


@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
def test_incremental_refuses_what_concerns_every_row(io: Any, lake: str, strategy: str) -> None:
    with nothing_changes(lake), pytest.raises(ValueError, match=f"not supported for '{strategy}'"):
        io.write_parquet_dataset(SOURCE, lake, strategy, ["id"], rewrite_mode="incremental")


@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
@pytest.mark.parametrize("call", ["merge", "plan"])
def test_merge_says_where_other_strategies_are(io: Any, lake: str, call: str, strategy: str) -> None:
    with nothing_changes(lake), pytest.raises(ValueError, match=rf"write_parquet_dataset\(..., strategy='{strategy}'"):
        getattr(io, call)(SOURCE, lake, strategy, ["id"])


@pytest.mark.parametrize("strategy", list(EXPECTED))
def test_full_into_a_missing_target(io: Any, tmp_path: Path, strategy: str) -> None:
    target = str(tmp_path / "lake")
    result = io.write_parquet_dataset(SOURCE, target, strategy, ["id"])
    written = 0 if strategy == "update" else 3
    assert counts(result) == (written, 0, 0, 0, written)
    assert Path(target).exists() == bool(written)
    assert len(rows(target)) == written


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "deduplicate"])
def test_full_with_an_empty_source_changes_nothing(io: Any, lake: str, strategy: str) -> None:
    with nothing_changes(lake):
        assert counts(io.write_parquet_dataset(EMPTY, lake, strategy, ["id"])) == (0, 0, 0, 40, 40)


def test_full_merge_with_an_empty_source(io: Any, lake: str) -> None:
    result = io.write_parquet_dataset(EMPTY, lake, "full_merge", ["id"])
    assert counts(result) == (0, 0, 40, 40, 0)
    (name,) = data_files(lake)
    file = pq.ParquetFile(Path(lake, name))
    assert (file.metadata.num_rows, file.schema_arrow) == (0, SOURCE.schema)
    assert only_data_files(lake)
    assert io.merge(SOURCE, lake, "upsert", ["id"]).inserted == 3
    assert len(rows(lake)) == 3


def test_full_merge_with_an_empty_source_of_a_partitioned_target(io: Any, tmp_path: Path) -> None:
    files = {f"day={d}/f.parquet": pa.table({"id": [d]}) for d in (1, 2)}
    lake = write_lake(tmp_path / "lake", files)
    empty = pa.table({"id": pa.array([], pa.int64()), "day": pa.array([], pa.int64())})
    assert io.write_parquet_dataset(empty, lake, "full_merge", ["id"]).deleted == 2
    assert len(data_files(lake)) == 1
    again = pa.table({"id": [1, 3], "day": [1, 3]})
    assert io.merge(again, lake, "upsert", ["id"]).inserted == 2
    assert multiset(rows(lake)) == multiset([{"id": 1, "day": "1"}, {"id": 3, "day": "3"}])


def test_full_merge_counts_surplus_duplicates_and_null_keys_as_deleted(io: Any, tmp_path: Path) -> None:
    old = pa.table({"id": [1, 1, None, 2, None], "x": list("abcde")})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    result = io.write_parquet_dataset(pa.table({"id": [1, 3], "x": ["A", "C"]}), lake, "full_merge", ["id"])
    assert counts(result) == (1, 1, 4, 5, 2)
    assert by_id(lake) == {1: "A", 3: "C"}


@pytest.mark.parametrize("strategy", ["update", "upsert"])
def test_full_keeps_null_keys_and_replaces_duplicates(io: Any, tmp_path: Path, strategy: str) -> None:
    old = pa.table({"id": [1, 1, None, 2], "x": list("abcd")})
    lake = write_lake(tmp_path / "lake", {"f.parquet": old})
    result = io.write_parquet_dataset(pa.table({"id": [1], "x": ["A"]}), lake, strategy, ["id"])
    assert counts(result) == (0, 2, 0, 4, 4)
    assert [(row["id"], row["x"]) for row in rows(lake)] == [(1, "A"), (1, "A"), (None, "c"), (2, "d")]


def test_full_merge_refuses_a_moved_key(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"day={d}/f.parquet": pa.table({"id": [d]}) for d in (1, 2)})
    with nothing_changes(lake), pytest.raises(PartitionMoveError, match=r"e\.g\. 1\b"):
        io.write_parquet_dataset(pa.table({"id": [1], "day": [2]}), lake, "full_merge", ["id"])


@pytest.mark.parametrize(
    ("order", "kept"),
    [([1, 3, 2], "b"), ([None, None, 0], "c"), ([1.0, math.nan, math.inf], "b"), (["a", "ab", "B"], "b")],
    ids=["numbers", "null is least", "NaN is greatest", "text by code point"],
)
def test_deduplicate_keeps_the_greatest(io: Any, tmp_path: Path, order: list[Any], kept: str) -> None:
    lake = str(tmp_path / "lake")
    data = pa.table({"id": [7, 7, 7], "x": ["a", "b", "c"], "at": pa.array(order)})
    result = io.write_parquet_dataset(data, lake, "deduplicate", ["id"], dedup_order_by=["at"])
    assert (result.inserted, by_id(lake)) == (1, {7: kept})


def test_deduplicate_by_two_columns(io: Any, lake: str) -> None:
    data = pa.table({"id": [5, 5, 5, 99], "x": ["b", "d", "c", "e"]})
    result = io.write_parquet_dataset(data, lake, "deduplicate", ["id"], dedup_order_by=["id", "x"])
    assert counts(result) == (1, 1, 0, 40, 41)
    assert (by_id(lake)[5], by_id(lake)[99]) == ("d", "e")


def test_deduplicate_collapses_identical_rows(io: Any, lake: str) -> None:
    data = pa.table({"id": [5, 99, 5, 99], "x": ["a", None, "a", None]})
    result = io.write_parquet_dataset(data, lake, "deduplicate", ["id"])
    assert counts(result) == (1, 1, 0, 40, 41)
    assert (by_id(lake)[5], by_id(lake)[99]) == ("a", None)


def test_deduplicate_asks_for_an_order(io: Any, lake: str) -> None:
    data = pa.table({"id": [5, 5, 6, 6], "x": ["a", "b", "c", "c"]})
    with nothing_changes(lake), pytest.raises(DuplicateKeyError, match=r"1 key\(s\).*e\.g\. 5\..*dedup_order_by"):
        io.write_parquet_dataset(data, lake, "deduplicate", ["id"])


@pytest.mark.parametrize("order", [[2, 2], [None, None], [math.nan, math.nan]], ids=["equal", "null", "NaN"])
def test_deduplicate_refuses_a_tie(io: Any, tmp_path: Path, order: list[Any]) -> None:
    data = pa.table({"id": [5, 5], "x": ["a", "b"], "at": pa.array(order, pa.float64())})
    with pytest.raises(DuplicateKeyError, match="leaves ties"):
        io.write_parquet_dataset(data, str(tmp_path / "lake"), "deduplicate", ["id"], dedup_order_by="at")
    same = data.set_column(1, "x", [["a", "a"]])
    assert (
        io.write_parquet_dataset(same, str(tmp_path / "lake"), "deduplicate", ["id"], dedup_order_by="at").inserted == 1
    )


def test_a_tie_below_the_greatest_does_not_matter(io: Any, lake: str) -> None:
    data = pa.table({"id": [5, 5, 5], "x": ["a", "a", "b"]})
    result = io.write_parquet_dataset(data, lake, "deduplicate", ["id"], dedup_order_by=["x"])
    assert (result.updated, by_id(lake)[5]) == (1, "b")


def test_dedup_order_by_of_an_unknown_column(io: Any, lake: str) -> None:
    data = pa.table({"id": [5, 5], "x": ["a", "b"]})
    with nothing_changes(lake), pytest.raises(ArgumentError, match="nope"):
        io.write_parquet_dataset(data, lake, "deduplicate", ["id"], dedup_order_by=["nope"])


def test_dedup_order_by_of_a_column_without_an_order(io: Any, tmp_path: Path) -> None:
    data = pa.table({"id": [5, 5], "x": [[1], [2]]})
    with pytest.raises(ArgumentError, match=r"\['x'\], whose values have no order"):
        io.write_parquet_dataset(data, str(tmp_path / "lake"), "deduplicate", ["id"], dedup_order_by=["x"])


def test_deduplicate_refuses_null_keys(io: Any, lake: str) -> None:
    data = pa.table({"id": [5, 5, None], "x": ["a", "a", "b"]})
    with nothing_changes(lake), pytest.raises(ValueError, match="NULL"):
        io.write_parquet_dataset(data, lake, "deduplicate", ["id"])


# write_dataset


def test_append(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    result = io.write_dataset(SOURCE, lake)
    assert before.items() <= fingerprint(lake).items()
    (name,) = set(data_files(lake)) - set(before)
    (entry,) = result.files
    assert (entry.path, entry.row_count, entry.operation) == (f"{lake}/{name}", 3, "inserted")
    assert entry.size_bytes == Path(lake, name).stat().st_size
    assert (result.mode, result.rows, result.removed_files) == ("append", 3, [])
    assert len(rows(lake)) == 43
    assert only_data_files(lake)


def test_overwrite_keeps_what_is_not_data(io: Any, lake: str) -> None:
    old = data_files(lake)
    kept = {"README.txt": "read me", "_SUCCESS": "", "sub/notes.md": "n", ".hidden": "h"}
    for name, text in kept.items():
        Path(lake, name).parent.mkdir(exist_ok=True)
        Path(lake, name).write_text(text)
    result = io.write_dataset(SOURCE, lake, "overwrite")
    assert by_id(lake) == {5: "A", 12: "B", 99: "C"}
    assert {name: Path(lake, name).read_text() for name in kept} == kept
    assert set(old).isdisjoint(data_files(lake))
    assert sorted(result.removed_files) == [f"{lake}/{name}" for name in old]
    assert [entry.row_count for entry in result.files] == [3]


def test_overwrite_may_change_the_schema(io: Any, lake: str) -> None:
    io.write_dataset(pa.table({"other": [1.5]}), lake, "overwrite")
    assert rows(lake) == [{"other": 1.5}]


def test_overwrite_removes_stale_summaries(io: Any, lake: str) -> None:
    for name in ("_metadata", "_common_metadata"):
        pq.write_metadata(SOURCE.schema, Path(lake, name))
    io.write_dataset(SOURCE, lake, "overwrite")
    assert not Path(lake, "_metadata").exists()
    assert not Path(lake, "_common_metadata").exists()


def test_overwrite_repairs_a_broken_data_set(io: Any, lake: str) -> None:
    Path(lake, "f0.parquet").write_text("broken")
    io.write_dataset(SOURCE, lake, "overwrite")
    assert len(rows(lake)) == 3


def test_append_refuses_another_schema(io: Any, lake: str) -> None:
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"\['x'\]"):
        io.write_dataset(pa.table({"id": [1]}), lake)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_write_creates_a_data_set(io: Any, tmp_path: Path, mode: str) -> None:
    target = str(tmp_path / "deep/er/lake")
    assert io.write_dataset(SOURCE, target, mode).rows == 3
    assert len(rows(target)) == 3


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_write_without_rows_keeps_the_schema(io: Any, tmp_path: Path, mode: str) -> None:
    target = str(tmp_path / "lake")
    result = io.write_dataset(EMPTY, target, mode)
    (name,) = data_files(target)
    assert (result.rows, [entry.row_count for entry in result.files]) == (0, [0])
    assert pq.read_schema(f"{target}/{name}") == SOURCE.schema


@pytest.mark.parametrize("argument", ["partition_columns", "partition_by"])
def test_partitioned_write(io: Any, tmp_path: Path, argument: str) -> None:
    lake = str(tmp_path / "lake")
    data = pa.table({"id": [1, 2, 3, 4], "day": ["a", "b/c", None, "a"]})
    result = io.write_dataset(data, lake, **{argument: ["day"]})
    folders = {name.rpartition("/")[0] for name in data_files(lake)}
    assert folders == {"day=a", "day=b%2Fc", "day=__HIVE_DEFAULT_PARTITION__"}
    assert sorted((entry.path.split("day=")[1][0], entry.row_count) for entry in result.files) == [
        ("_", 1),
        ("a", 2),
        ("b", 1),
    ]
    io.write_dataset(pa.table({"id": [5], "day": ["b/c"]}), lake)
    assert {name.rpartition("/")[0] for name in data_files(lake)} == folders
    assert multiset(rows(lake)) == multiset([*data.to_pylist(), {"id": 5, "day": "b/c"}])
    io.write_dataset(pa.table({"id": [6], "day": ["z"]}), lake, "overwrite")
    assert rows(lake) == [{"day": "z", "id": 6}]


def test_a_write_without_a_strategy_is_write_dataset(io: Any, lake: str) -> None:
    assert io.write_parquet_dataset(SOURCE, lake).mode == "append"
    assert len(rows(lake)) == 43
    assert io.write_parquet_dataset(SOURCE, lake, mode="overwrite").mode == "overwrite"
    assert len(rows(lake)) == 3


# options


def codecs(path: str) -> set[str]:
    metadata = pq.read_metadata(path)
    return {
        metadata.row_group(g).column(c).compression
        for g in range(metadata.num_row_groups)
        for c in range(metadata.num_columns)
    }


def group_sizes(path: str) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]


def test_options_govern_new_files_only(io: Any, lake: str) -> None:
    data = pa.table({"id": range(5, 120), "x": ["new"] * 115})
    result = io.merge(
        data, lake, "upsert", ["id"], compression="gzip", max_rows_per_file=30, row_group_size=20, replace="in_place"
    )
    assert (result.updated, result.inserted) == (35, 80)
    sizes = sorted(entry.row_count for entry in result.files if entry.operation == "inserted")
    assert sizes == [20, 30, 30]
    assert all(codecs(path) == {"GZIP"} for path in result.inserted_files)
    assert sorted(group_sizes(path) for path in result.inserted_files) == [[20], [20, 10], [20, 10]]
    assert all(codecs(path) == {"ZSTD"} and group_sizes(path) == [4, 4, 2] for path in result.rewritten_files)


@pytest.mark.parametrize(
    ("compression", "stored"), [("none", "UNCOMPRESSED"), ("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("gzip", "GZIP")]
)
def test_compression(io: Any, tmp_path: Path, compression: str, stored: str) -> None:
    result = io.write_dataset(SOURCE, str(tmp_path / "lake"), compression=compression)
    assert codecs(result.files[0].path) == {stored}


def test_full_rewrites_are_new_files(io: Any, lake: str) -> None:
    result = io.write_parquet_dataset(SOURCE, lake, "upsert", ["id"], compression="gzip", row_group_size=7)
    assert all(codecs(path) == {"GZIP"} for path in result.rewritten_files + result.inserted_files)
    assert sorted(group_sizes(path) for path in result.rewritten_files) == [[7, 3]] * 4


def test_replace_by_new_files(io: Any, lake: str) -> None:
    result = io.merge(SOURCE, lake, "update", ["id"], replace="new_file")
    names = [Path(path).name for path in result.rewritten_files]
    assert all(name.startswith(("f0.fk", "f1.fk")) and name.endswith(".parquet") for name in names)
    assert sorted(result.removed_files) == [f"{lake}/f0.parquet", f"{lake}/f1.parquet"]
    again = io.merge(pa.table({"id": [5], "x": ["AA"]}), lake, "update", ["id"], replace="new_file")
    (path,) = again.rewritten_files
    assert len(Path(path).name) == len("f0.fk12345678.parquet")
    assert (by_id(lake)[5], len(data_files(lake))) == ("AA", 4)
    assert only_data_files(lake)


@pytest.mark.disk
def test_replace_in_place(io: Any, lake: str) -> None:
    names = data_files(lake)
    result = io.merge(SOURCE, lake, "update", ["id"], replace="in_place")
    assert sorted(result.rewritten_files) == [f"{lake}/f0.parquet", f"{lake}/f1.parquet"]
    assert (result.removed_files, data_files(lake)) == ([], names)
