"""Missing rows: target rows whose key the source does not have are deleted, everywhere or in its partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import ArgumentError, PartitionMoveError
from row_lakes import changes, counts, day_lake, flat_lake, folders, ids, keeps, merged, refused, seen
from support import data_files, fingerprint, multiset, rows, write_lake

ALL: dict[str, Any] = {"delete_missing": "all"}
PARTITIONS: dict[str, Any] = {"delete_missing": "partitions"}
SCOPES = pytest.mark.parametrize("scope", ["all", "partitions"])


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return flat_lake(tmp_path)


@pytest.fixture
def days(tmp_path: Path) -> str:
    return day_lake(tmp_path)


# Everywhere


@pytest.mark.parametrize("strategy", ["update", "upsert"])
def test_rows_that_the_source_does_not_have_go(io: Any, lake: str, strategy: str) -> None:
    result = merged(io, changes([1, 2, 12, 100]), lake, strategy, **ALL)
    new = {"inserted": 1} if strategy == "upsert" else {}
    assert counts(result) == {"updated": 3, "deleted": 27, **new}
    assert ids(lake) == [1, 2, 12, 100][: 4 if new else 3]
    assert {row[1] for row in seen(lake, "id", "x")} == {"new"}


def test_files_that_lose_all_rows_go(io: Any, lake: str) -> None:
    result = merged(io, changes([1]), lake, **ALL)
    assert [Path(path).name for path in result.removed_files if "f0" not in path] == ["f1.parquet", "f2.parquet"]
    assert len(data_files(lake)) == 1


def test_a_source_with_new_keys_only_replaces_everything(io: Any, lake: str) -> None:
    assert counts(merged(io, changes([100, 101]), lake, **ALL)) == {"inserted": 2, "deleted": 30}
    assert ids(lake) == [100, 101]


def test_an_update_of_unknown_keys_deletes_everything(io: Any, lake: str) -> None:
    """None is inserted; the last file stays with no rows."""
    assert counts(merged(io, changes([100]), lake, "update", **ALL)) == {"deleted": 30}
    (name,) = data_files(lake)
    assert pq.read_metadata(Path(lake, name)).num_rows == 0


def test_rows_with_a_null_key_are_missing_and_copies_are_not(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": [1, None, 1, 2, None], "x": list("abcde")})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    assert counts(merged(io, pa.table({"id": [1], "x": ["new"]}), lake, **ALL)) == {"updated": 2, "deleted": 3}
    assert seen(lake, "id", "x") == [(1, "new"), (1, "new")]


def test_files_whose_rows_all_match_and_stay_keep_their_bytes(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    result = merged(io, changes(range(10, 20), x="old", version=5), lake, **ALL)
    assert (counts(result), result.changed) == ({"updated": 10, "deleted": 20}, 0)
    keeps(before, fingerprint(lake), "f1.parquet")


def test_twice_is_once(io: Any, lake: str) -> None:
    source = changes([1, 100])
    merged(io, source, lake, **ALL)
    before = fingerprint(lake)
    assert counts(merged(io, source, lake, **ALL)) == {"updated": 2}
    assert fingerprint(lake) == before


def test_a_row_that_is_older_is_not_missing(io: Any, lake: str) -> None:
    result = merged(io, changes([1, 2], version=[4, 6]), lake, sequence_by=["version"], **ALL)
    assert counts(result) == {"updated": 1, "skipped": 1, "deleted": 28}
    assert seen(lake, "id", "x") == [(1, "old"), (2, "new")]


def test_rows_of_a_feed(io: Any, lake: str) -> None:
    """A row that is deleted by the feed is not counted twice."""
    source = changes([1, 2, 100, 101], gone=[True, False, False, True])
    result = merged(io, source, lake, delete_column="gone", **ALL)
    assert counts(result) == {"inserted": 1, "updated": 1, "deleted": 29}
    assert ids(lake) == [2, 100]


def test_some_columns_of_what_stays(io: Any, lake: str) -> None:
    assert counts(merged(io, changes([1, 2]), lake, update_columns=["x"], **ALL)) == {"updated": 2, "deleted": 28}
    assert seen(lake, "id", "x", "version") == [(1, "new", 5), (2, "new", 5)]


@SCOPES
def test_a_missing_target(io: Any, tmp_path: Path, scope: str) -> None:
    lake = str(tmp_path / "lake")
    result = io.merge(changes([1, 2], ["a", "b"]), lake, "upsert", ["id"], ["day"], delete_missing=scope)
    assert counts(result) == {"inserted": 2}


# In partitions


def test_partitions_without_source_rows_are_left_alone(io: Any, days: str) -> None:
    before = fingerprint(days)
    result = merged(io, changes([1, 100], ["a", "d"]), days, **PARTITIONS)
    assert counts(result) == {"inserted": 1, "updated": 1, "deleted": 1}
    assert seen(days, "id", "day") == [(1, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "c"), (100, "d")]
    keeps(before, fingerprint(days), "day=b/fb.parquet", "day=c/fc.parquet")


def test_all_partitions_with_all(io: Any, days: str) -> None:
    assert counts(merged(io, changes([1], ["a"]), days, **ALL)) == {"updated": 1, "deleted": 5}
    assert (folders(days), seen(days, "id", "day")) == (["day=a"], [(1, "a")])


def test_a_partition_in_which_the_source_only_deletes_is_left_alone(io: Any, days: str) -> None:
    source = changes([1, 3], ["a", "b"], gone=[False, True])
    result = merged(io, source, days, delete_column="gone", **PARTITIONS)
    assert counts(result) == {"updated": 1, "deleted": 2}
    assert seen(days, "id", "day") == [(1, "a"), (4, "b"), (5, "c"), (6, "c")]


def test_an_older_source_row_names_its_partition(io: Any, days: str) -> None:
    result = merged(io, changes([1], ["a"], version=[1]), days, sequence_by=["version"], **PARTITIONS)
    assert counts(result) == {"skipped": 1, "deleted": 1}
    assert 2 not in ids(days)


def test_the_partition_of_the_row_that_counts(io: Any, days: str) -> None:
    """Of several source rows, the one that is dropped names no partition."""
    source = changes([100, 100], ["a", "b"], version=[1, 2])
    options: dict[str, Any] = {"sequence_by": ["version"], "on_duplicates": "latest"}
    assert counts(merged(io, source, days, **options, **PARTITIONS)) == {"inserted": 1, "deleted": 2}
    assert seen(days, "id", "day") == [(1, "a"), (2, "a"), (5, "c"), (6, "c"), (100, "b")]


def test_null_keys_and_the_null_partition(io: Any, tmp_path: Path) -> None:
    files = {
        f"day={name}/f.parquet": pa.table({"id": [number, None], "x": ["old"] * 2})
        for number, name in enumerate(("__HIVE_DEFAULT_PARTITION__", "a"))
    }
    lake = write_lake(tmp_path / "lake", files)
    source = pa.table({"id": [100], "x": ["new"], "day": pa.array([None], pa.string())})
    assert counts(merged(io, source, lake, **PARTITIONS)) == {"inserted": 1, "deleted": 2}
    left = [{"id": 100, "x": "new", "day": None}, *({"id": i, "x": "old", "day": "a"} for i in (1, None))]
    assert multiset(rows(lake)) == multiset(left)


def test_two_partition_columns(io: Any, tmp_path: Path) -> None:
    files = {f"a={a}/b={b}/f.parquet": pa.table({"id": [10 * a + b, 100 + 10 * a + b]}) for a in (1, 2) for b in (1, 2)}
    lake = write_lake(tmp_path / "lake", files)
    source = pa.table({"id": [11, 22], "a": [1, 2], "b": [1, 2]})
    assert counts(merged(io, source, lake, **PARTITIONS)) == {"updated": 2, "deleted": 2}
    assert ids(lake) == [11, 12, 21, 22, 112, 121]


def test_a_partition_column_in_the_key(io: Any, days: str) -> None:
    """The key (3, a) is not there: (3, b) is another key, and its partition is not concerned."""
    source = changes([1, 3], ["a", "a"])
    assert counts(merged(io, source, days, keys=["id", "day"], **PARTITIONS)) == {
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
    }


@SCOPES
def test_moves(io: Any, days: str, scope: str) -> None:
    """A row that moves is not missing; without `on_move` it is refused."""
    source = changes([1], ["c"])
    refused(io, source, days, "1", error=PartitionMoveError, delete_missing=scope)
    result = merged(io, source, days, on_move="move", delete_missing=scope)
    assert counts(result) == {"updated": 1, "moved": 1, "deleted": 5 if scope == "all" else 2}
    expected = [(1, "c")] if scope == "all" else [(1, "c"), (2, "a"), (3, "b"), (4, "b")]
    assert seen(days, "id", "day") == expected


# Refusals


def test_files_outside_partition_folders(io: Any, tmp_path: Path) -> None:
    """Their rows may be in any partition, and the merge knows files by their folders."""
    inside, outside = (pa.table({"id": [n, n + 1], "day": ["a", "b"]}) for n in (1, 3))
    lake = write_lake(tmp_path / "lake", {"day=a/f.parquet": inside.slice(0, 1), "g.parquet": outside})
    source = pa.table({"id": [1], "day": ["a"]})
    refused(io, source, lake, "g.parquet", **PARTITIONS)
    assert counts(merged(io, source, lake, **ALL)) == {"updated": 1, "deleted": 2}


@SCOPES
def test_streams(io: Any, engine: str, days: str, scope: str, request: pytest.FixtureRequest) -> None:
    source = changes([1], ["a"])
    with pytest.raises(ArgumentError, match="delete_missing"):
        io.merge(source, days, "upsert", ["id"], batch=Batch("app", 1), delete_missing=scope)
    if engine == "spark":
        spark = request.getfixturevalue("spark")
        frame = spark.createDataFrame([(1, "new", 9, "a")], "id bigint, x string, version bigint, day string")
        with pytest.raises((ArgumentError, TypeError), match="delete_missing"):
            io.foreach_batch(days, ["id"], app_id="app", delete_missing=scope)(frame, 0)
    assert len(rows(days)) == 6


@SCOPES
def test_a_source_without_a_row_that_stays(io: Any, days: str, scope: str) -> None:
    empty = changes([], pa.array([], pa.string()))
    refused(io, empty, days, "full_merge", delete_missing=scope)
    refused(io, empty, days, "full_merge", "update", delete_missing=scope)
    deletes = changes([1, 2], ["a", "a"], gone=[True, True])
    refused(io, deletes, days, "full_merge", delete_missing=scope, delete_column="gone")


@SCOPES
@pytest.mark.parametrize("strategy", ["insert", "delete"])
def test_strategies_without_missing_rows(io: Any, days: str, strategy: str, scope: str) -> None:
    refused(io, changes([1], ["a"]), days, "delete_missing", strategy, delete_missing=scope)


@pytest.mark.parametrize("scope", ["some", True, "", ["all"]])
def test_an_unknown_scope(io: Any, days: str, scope: Any) -> None:
    refused(io, changes([1], ["a"]), days, "delete_missing", delete_missing=scope)
