"""Some columns: matched rows take the named columns, and keep the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.errors import ArgumentError, PartitionMoveError, SchemaMismatchError
from row_lakes import changes, counts, day_lake, flat_lake, ids, keeps, merged, refused, seen
from support import data_files, fingerprint, write_lake

X: dict[str, Any] = {"update_columns": ["x"]}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return flat_lake(tmp_path)


def row_of(lake: str, number: int) -> tuple[Any, ...]:
    (row,) = [row for row in seen(lake, "id", "x", "version") if row[0] == number]
    return row


# Matched rows


@pytest.mark.parametrize("strategy", ["update", "upsert"])
def test_matched_rows_keep_the_other_columns(io: Any, lake: str, strategy: str) -> None:
    result = merged(io, changes([1, 12]), lake, strategy, **X)
    assert (counts(result), result.changed) == ({"updated": 2}, 2)
    assert (row_of(lake, 1), row_of(lake, 12)) == ((1, "new", 5), (12, "new", 5))
    assert ids(lake) == list(range(30))


def test_one_name_may_be_a_string(io: Any, lake: str) -> None:
    merged(io, changes([1]), lake, update_columns="x")
    merged(io, changes([2]), lake, exclude_columns="version")
    assert (row_of(lake, 1), row_of(lake, 2)) == ((1, "new", 5), (2, "new", 5))


def test_the_source_needs_the_key_and_the_named_columns(io: Any, lake: str) -> None:
    assert counts(merged(io, pa.table({"id": [1], "x": ["new"]}), lake, **X)) == {"updated": 1}
    assert row_of(lake, 1) == (1, "new", 5)
    refused(io, pa.table({"id": [1], "version": [9]}), lake, "'x'", **X)
    refused(io, pa.table({"x": ["new"]}), lake, "'id'", **X)


def test_the_complement(io: Any, lake: str) -> None:
    """What is excluded may be in the source or not."""
    assert counts(merged(io, changes([1]), lake, exclude_columns=["version"])) == {"updated": 1}
    assert counts(merged(io, pa.table({"id": [2], "x": ["new"]}), lake, exclude_columns=["version"])) == {"updated": 1}
    assert (row_of(lake, 1), row_of(lake, 2)) == ((1, "new", 5), (2, "new", 5))
    refused(io, pa.table({"id": [1], "version": [9]}), lake, "'x'", exclude_columns=["version"])


def test_a_null_in_a_named_column_is_a_value(io: Any, lake: str) -> None:
    result = merged(io, changes([1, 2], x=[None, "new"]), lake, **X)
    assert (result.updated, result.changed) == (2, 2)
    assert row_of(lake, 1) == (1, None, 5)


def test_the_sequence_is_taken_too(io: Any, lake: str) -> None:
    source = changes([1, 2], version=[9, 4])
    assert counts(merged(io, source, lake, sequence_by=["version"], **X)) == {"updated": 1, "skipped": 1}
    assert (row_of(lake, 1), row_of(lake, 2)) == ((1, "new", 9), (2, "old", 5))
    refused(io, pa.table({"id": [1], "x": ["new"]}), lake, "'version'", sequence_by=["version"], **X)


def test_all_copies_of_a_key_are_updated(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 1, None], "x": list("abc"), "y": [1, 2, 3]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    assert counts(merged(io, pa.table({"id": [1], "x": ["new"]}), lake, **X)) == {"updated": 2}
    assert seen(lake, "id", "x", "y") == [(None, "c", 3), (1, "new", 1), (1, "new", 2)]


def test_rows_that_have_the_values_already(io: Any, lake: str) -> None:
    """The columns that are not named differ, and that does not matter."""
    before = fingerprint(lake)
    result = merged(io, changes([1, 2], x="old", version=77), lake, **X)
    assert (result.updated, result.changed) == (2, 0)
    assert fingerprint(lake) == before


def test_unchanged_columns_are_copied_as_bytes(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": range(100), "x": ["old"] * 100, "y": [f"value {i}" for i in range(100)]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    before = chunk(Path(lake, "f.parquet"), 2)
    result = merged(io, pa.table({"id": [7], "x": ["new"]}), lake, **X)
    (name,) = data_files(lake)
    assert chunk(Path(lake, name), 2) == before
    assert (result.spliced_files, result.reencoded_files) == (1, 0)
    assert result.bytes_copied >= len(before)


def chunk(path: Path, column: int) -> bytes:
    """The bytes of a column in the first row group."""
    found = pq.read_metadata(path).row_group(0).column(column)
    start = found.dictionary_page_offset if found.has_dictionary_page else found.data_page_offset
    return path.read_bytes()[start : start + found.total_compressed_size]


def test_a_feed_with_deletes(io: Any, lake: str) -> None:
    source = pa.table({"id": [1, 2, 3], "x": [None, "new", "new"], "gone": [True, False, None]})
    assert counts(merged(io, source, lake, delete_column="gone", **X)) == {"updated": 2, "deleted": 1}
    assert ids(lake) == [0, *range(2, 30)]
    assert row_of(lake, 2) == (2, "new", 5)


# Inserted rows


def test_inserted_rows_take_every_column_that_the_source_gives(io: Any, lake: str) -> None:
    assert counts(merged(io, changes([1, 100]), lake, **X)) == {"inserted": 1, "updated": 1}
    assert (row_of(lake, 1), row_of(lake, 100)) == ((1, "new", 5), (100, "new", 9))
    assert counts(merged(io, changes([101]), lake, exclude_columns=["version"])) == {"inserted": 1}
    assert row_of(lake, 101) == (101, "new", 9)


def test_other_columns_of_inserted_rows_are_null(io: Any, lake: str) -> None:
    assert counts(merged(io, pa.table({"id": [100], "x": ["new"]}), lake, **X)) == {"inserted": 1}
    assert row_of(lake, 100) == (100, "new", None)


def test_a_required_column_that_the_source_lacks(io: Any, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.string()), pa.field("y", pa.int64(), False)])
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "x": ["a"], "y": [1]}, schema=schema)})
    assert counts(merged(io, pa.table({"id": [1], "x": ["b"]}), lake, **X)) == {"updated": 1}
    refused(io, pa.table({"id": [1, 2], "x": ["c", "c"]}), lake, "'y'", **X)
    assert counts(merged(io, pa.table({"id": [1, 2], "x": ["c", "c"]}), lake, "update", **X)) == {"updated": 1}


# Partitions


def test_a_differing_partition_value_is_refused_as_a_move(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    assert counts(merged(io, changes([1], ["a"]), lake, **X)) == {"updated": 1}
    refused(io, changes([1], ["b"]), lake, "1", error=PartitionMoveError, **X)
    refused(io, changes([1], ["b"]), lake, "1", error=PartitionMoveError, exclude_columns=["x"])


def test_a_partition_column_may_be_named(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    assert counts(merged(io, changes([1], ["a"]), lake, update_columns=["x", "day"])) == {"updated": 1}
    refused(io, changes([1], ["b"]), lake, "1", error=PartitionMoveError, update_columns=["x", "day"])


def test_a_source_without_partition_column_moves_nothing(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    before = fingerprint(lake)
    assert counts(merged(io, pa.table({"id": [1, 6], "x": ["new"] * 2}), lake, **X)) == {"updated": 2}
    assert seen(lake, "id", "day", "x")[0] == (1, "a", "new")
    assert seen(lake, "id", "day", "x")[-1] == (6, "c", "new")
    keeps(before, fingerprint(lake), "day=b/fb.parquet")


def test_a_source_without_partition_column_inserts_nothing(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    source = pa.table({"id": [1, 100], "x": ["new"] * 2})
    refused(io, source, lake, "day", **X)
    assert counts(merged(io, source, lake, "update", **X)) == {"updated": 1}


# Refusals


@pytest.mark.parametrize("option", ["update_columns", "exclude_columns"])
@pytest.mark.parametrize(("names", "match"), [(["nope"], "'nope'"), (["x", "x"], "_columns"), (5, "_columns")], ids=str)
def test_columns_that_cannot_be_named(io: Any, lake: str, option: str, names: Any, match: str) -> None:
    wrong: dict[str, Any] = {option: names}
    refused(io, changes([1]), lake, match, **wrong)


def test_a_key_column_cannot_be_updated(io: Any, lake: str) -> None:
    refused(io, changes([1]), lake, "'id'", update_columns=["id", "x"], error=ArgumentError)


def test_not_both(io: Any, lake: str) -> None:
    refused(io, changes([1]), lake, "exclude_columns", update_columns=["x"], exclude_columns=["version"])


@pytest.mark.parametrize("strategy", ["insert", "delete"])
def test_strategies_that_update_nothing(io: Any, lake: str, strategy: str) -> None:
    refused(io, changes([1]), lake, "update_columns", strategy, **X)
    refused(io, changes([1]), lake, "exclude_columns", strategy, exclude_columns=["x"])


def test_a_column_that_the_target_lacks(io: Any, lake: str) -> None:
    refused(io, changes([1], more=[1]), lake, r"\['more'\]", error=SchemaMismatchError, **X)


def test_a_value_that_does_not_fit(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1], "x": pa.array([1], pa.int8()), "y": [1]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    refused(io, pa.table({"id": [1], "x": [1000]}), lake, "1000", error=SchemaMismatchError, **X)
