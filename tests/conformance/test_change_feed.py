"""Change feeds: a column of the source says which rows delete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.errors import PartitionMoveError, SchemaMismatchError
from row_lakes import changes, counts, day_lake, flat_lake, folders, ids, keeps, merged, refused, seen
from support import data_files, fingerprint, rows, write_lake

D: dict[str, Any] = {"delete_column": "op", "delete_values": ["D"]}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return flat_lake(tmp_path)


def stored_columns(lake: str) -> list[str]:
    (names,) = {tuple(pq.read_schema(Path(lake, name)).names) for name in data_files(lake)}
    return list(names)


# Which rows delete


@pytest.mark.parametrize(
    ("op", "values"),
    [
        (pa.array([True, False, None, None, True, False]), None),
        (pa.array(["D", "U", None, "d", "D", "I"]), ["D"]),
        (pa.array(["D", "U", None, "d", "X", "I"]), ["D", "X"]),
        (pa.array(["true", "false", None, "", "true", "false"]), ["true"]),
        (pa.array([1, 0, None, 2, 1, 3], pa.int32()), [1]),
        (pa.array(["D", "U", None, "d", "D", "I"]).dictionary_encode(), ["D"]),
        (pa.array([False, True, None, None, False, True]), [False]),
    ],
    ids=["Boolean", "text", "several values", "Debezium", "number", "dictionary", "false deletes"],
)
def test_null_and_other_values_are_no_deletes(io: Any, lake: str, op: pa.Array, values: Any) -> None:
    """The first row deletes an existing key, the fifth one that is not there."""
    source = changes([1, 2, 3, 100, 101, 102], op=op)
    options: dict[str, Any] = {"delete_column": "op"} | ({} if values is None else {"delete_values": values})
    result = merged(io, source, lake, **options)
    assert counts(result) == {"inserted": 2, "updated": 2, "deleted": 1}
    assert result.changed == 2
    expected = {i: "old" for i in range(30) if i != 1} | dict.fromkeys((2, 3, 100, 102), "new")
    assert dict(seen(lake, "id", "x")) == expected


@pytest.mark.parametrize("values", [None, ["D"]])
def test_a_column_of_nulls_only_deletes_nothing(io: Any, lake: str, values: Any) -> None:
    """Arrow and pandas know no other type for a batch in which no row has a value."""
    options = {} if values is None else {"delete_values": values}
    result = merged(io, changes([1, 100], op=pa.nulls(2)), lake, delete_column="op", **options)
    assert counts(result) == {"inserted": 1, "updated": 1}


def test_views_in_a_feed(io: Any, tmp_path: Path) -> None:
    """Polars gives text as views, also in lists, structs and categories. PyArrow cannot filter them."""
    old = {"x": ["a", "b"], "tags": [["p"], ["q"]], "at": [{"c": "r"}] * 2}
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": pa.array([1, 2], pa.int32()), **old})})
    columns = {"x": ["c", "d"], "tags": [["s", None], []], "at": [{"c": "t"}, None]}
    feed = pl.DataFrame({"id": [1, 2], **columns, "op": ["D", "U"]})
    beyond = pl.DataFrame({"id": [2**40, 3], **columns, "op": ["D", "U"]})
    assert counts(merged(io, feed, lake, **D)) == {"updated": 1, "deleted": 1}
    assert counts(merged(io, beyond.with_columns(pl.col("x").cast(pl.Categorical)), lake, **D)) == {"inserted": 1}
    assert seen(lake, "id", "x") == [(2, "d"), (3, "d")]


def test_delete_values_may_be_a_tuple(io: Any, lake: str) -> None:
    source = changes([1, 2], op=["D", "U"])
    result = merged(io, source, lake, delete_column="op", delete_values=("D",))
    assert counts(result) == {"updated": 1, "deleted": 1}


def test_the_column_is_not_stored(io: Any, lake: str, tmp_path: Path) -> None:
    merged(io, changes([1, 100], op=["D", "I"]), lake, **D)
    assert stored_columns(lake) == ["id", "x", "version"]
    new = str(tmp_path / "new")
    assert counts(io.merge(changes([1, 2, 3], op=["D", "I", None]), new, "upsert", ["id"], **D)) == {"inserted": 2}
    assert (stored_columns(new), ids(new)) == (["id", "x", "version"], [2, 3])


def test_update_inserts_nothing(io: Any, lake: str) -> None:
    result = merged(io, changes([1, 2, 100, 101], op=["D", "U", "U", "D"]), lake, "update", **D)
    assert counts(result) == {"updated": 1, "deleted": 1}
    assert ids(lake) == [i for i in range(30) if i != 1]


def test_files_without_a_change_keep_their_bytes(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    merged(io, changes([1, 100], op=["D", "D"]), lake, **D)
    keeps(before, fingerprint(lake), "f1.parquet", "f2.parquet")
    before = fingerprint(lake)
    assert counts(merged(io, changes([1, 100], op=["D", "D"]), lake, **D)) == {}
    assert fingerprint(lake) == before


def test_files_and_folders_that_become_empty_go(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    source = changes([3, 4, 100], ["b", "b", "d"], op=["D", "D", "I"])
    assert counts(merged(io, source, lake, **D)) == {"inserted": 1, "deleted": 2}
    assert folders(lake) == ["day=a", "day=c", "day=d"]


def test_a_file_loses_and_gains_in_one_merge(io: Any, tmp_path: Path) -> None:
    """All old rows of a partition go, and a new one takes their place."""
    lake = day_lake(tmp_path)
    source = changes([3, 4, 100], ["b", "b", "b"], op=["D", "D", "I"])
    assert counts(merged(io, source, lake, **D)) == {"inserted": 1, "deleted": 2}
    assert seen(lake, "id", "day") == [(1, "a"), (2, "a"), (5, "c"), (6, "c"), (100, "b")]


# Delete rows are checked for key and sequence only


def test_nulls_where_the_schema_says_not_null(io: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("x", pa.string(), False)])
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2, 3], "x": list("abc")}, schema=schema)})
    source = pa.table({"id": [1, 2], "x": [None, "B"], "op": ["D", "U"]})
    assert counts(merged(io, source, lake, **D)) == {"updated": 1, "deleted": 1}
    assert seen(lake, "id", "x") == [(2, "B"), (3, "c")]
    refused(io, pa.table({"id": [2, 3], "x": ["B", None], "op": ["D", "U"]}), lake, "'x' may not be null", **D)


def test_values_that_do_not_fit(io: Any, tmp_path: Path) -> None:
    """In a row that stays, the same value is refused."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 2], "x": pa.array([1, 2], pa.int8())})})
    source = pa.table({"id": [1, 2], "x": [1000, 3], "op": ["D", "U"]})
    assert counts(merged(io, source, lake, **D)) == {"updated": 1, "deleted": 1}
    assert seen(lake, "id", "x") == [(2, 3)]
    refused(
        io, pa.table({"id": [1, 2], "x": [1, 1000], "op": ["D", "U"]}), lake, "1000", error=SchemaMismatchError, **D
    )


def test_columns_that_are_absent_from_a_feed_of_deletes(io: Any, lake: str) -> None:
    source = pa.table({"id": [1, 2, 100], "op": ["D", "D", "D"]})
    assert counts(merged(io, source, lake, **D)) == {"deleted": 2}
    mixed = pa.table({"id": [3, 4], "op": ["D", "U"]})
    refused(io, mixed, lake, r"missing from the source: \['x', 'version'\]", error=SchemaMismatchError, **D)


@pytest.mark.parametrize("day", ["c", "new", None])
def test_a_delete_row_is_found_in_any_partition(io: Any, tmp_path: Path, day: Any) -> None:
    lake = day_lake(tmp_path)
    source = changes([1, 3], pa.array([day, "b"], pa.string()), op=["D", "U"])
    assert counts(merged(io, source, lake, **D)) == {"updated": 1, "deleted": 1}
    assert seen(lake, "id", "day", "x")[:2] == [(2, "a", "old"), (3, "b", "new")]
    assert folders(lake) == ["day=a", "day=b", "day=c"]


def test_a_row_that_is_no_delete_may_not_move(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    refused(io, changes([1, 3], ["c", "c"], op=["D", "U"]), lake, "3", error=PartitionMoveError, **D)


def test_a_partition_column_that_is_a_key(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    source = changes([1, 3], ["b", "b"], op=["D", "D"])
    assert counts(merged(io, source, lake, keys=["id", "day"], **D)) == {"deleted": 1}
    assert ids(lake) == [1, 2, 4, 5, 6]


# Refusals


def test_a_column_that_is_not_boolean_needs_values(io: Any, lake: str) -> None:
    for op in (["true"], [1], ["D"]):
        refused(io, changes([1], op=op), lake, "delete_values", delete_column="op")


def test_delete_values_without_a_column(io: Any, lake: str) -> None:
    refused(io, changes([1]), lake, "delete_column", delete_values=["D"])


def test_no_delete_values(io: Any, lake: str) -> None:
    refused(io, changes([1], op=["D"]), lake, "delete_values", delete_column="op", delete_values=[])


def test_delete_values_of_another_type(io: Any, lake: str) -> None:
    refused(io, changes([1], op=["D"]), lake, "delete_values", delete_column="op", delete_values=[1])
    refused(io, changes([1], op=["D"]), lake, "delete_values", delete_column="op", delete_values=[2**70])


@pytest.mark.parametrize("op", [pa.array([{"a": 1}]), pa.array([[1]])], ids=["struct", "list"])
def test_a_nested_column_says_nothing_about_deletes(io: Any, lake: str, op: pa.Array) -> None:
    options: dict[str, Any] = {"delete_column": "op", "delete_values": op.to_pylist()}
    refused(io, changes([1], op=op), lake, "'op'", **options)


def test_a_column_that_the_source_lacks(io: Any, lake: str) -> None:
    refused(io, changes([1]), lake, "'op'", **D)


def test_a_column_that_the_target_stores(io: Any, lake: str, tmp_path: Path) -> None:
    refused(io, changes([1]), lake, "'x'", delete_column="x", delete_values=["D"])
    days = day_lake(tmp_path / "days")
    refused(io, changes([1], ["a"]), days, "'day'", delete_column="day", delete_values=["D"])


def test_a_key_column_says_nothing_about_deletes(io: Any, lake: str, tmp_path: Path) -> None:
    refused(io, changes([1]), lake, "'id'", delete_column="id", delete_values=[1])
    new = str(tmp_path / "new/lake")
    Path(new).parent.mkdir()
    refused(io, changes([1]), new, "'id'", delete_column="id", delete_values=[1])


@pytest.mark.parametrize("strategy", ["insert", "delete"])
def test_other_strategies_have_no_feed(io: Any, lake: str, strategy: str) -> None:
    refused(io, changes([1], op=["D"]), lake, "delete_column", strategy, **D)


def test_a_key_is_deleted_and_upserted_in_one_feed(io: Any, lake: str) -> None:
    refused(io, changes([1, 1], op=["D", "U"]), lake, "1", **D)


def test_a_null_key_of_a_delete_row(io: Any, lake: str) -> None:
    refused(io, changes([1, None], op=["U", "D"]), lake, "NULL", **D)


def test_a_feed_without_rows_changes_nothing(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    empty = changes([], op=pa.array([], pa.string()))
    assert counts(merged(io, empty, lake, **D)) == {}
    assert fingerprint(lake) == before
    assert len(rows(lake)) == 30
