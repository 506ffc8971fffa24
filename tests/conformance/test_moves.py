"""Moves: a key whose source row lies in another partition is refused, or moves there in the same commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.errors import PartitionMoveError
from row_lakes import changes, counts, day_lake, flat_rows, folders, ids, keeps, merged, refused, seen
from support import data_files, fingerprint, rows, write_lake

MOVE: dict[str, Any] = {"on_move": "move"}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return day_lake(tmp_path)


def copies(folder: Path, **versions: int) -> str:
    """A row of id 1 in each of the named days, with this version, beside one of another id."""
    files = {
        f"day={d}/f{d}.parquet": flat_rows([1, 50 + n], version=[v, 5]) for n, (d, v) in enumerate(versions.items())
    }
    return write_lake(folder / "lake", files)


def where(lake: str) -> list[tuple[Any, ...]]:
    """Where the rows of id 1 are, and what they say."""
    return sorted((row["day"], row["x"], row["version"]) for row in rows(lake) if row["id"] == 1)


def test_moves_are_refused_unless_asked_for(io: Any, lake: str) -> None:
    refused(io, changes([1, 3], ["b", "b"]), lake, r"e\.g\. 1\b", error=PartitionMoveError)
    refused(io, changes([1, 3], ["b", "b"]), lake, r"e\.g\. 1\b", error=PartitionMoveError, on_move="refuse")


@pytest.mark.parametrize("strategy", ["update", "upsert"])
def test_the_old_row_goes_and_the_new_one_comes(io: Any, lake: str, strategy: str) -> None:
    before = fingerprint(lake)
    result = merged(io, changes([1], ["c"]), lake, strategy, **MOVE)
    assert counts(result) == {"updated": 1, "moved": 1}
    assert (result.changed, result.target_count_before, result.target_count_after) == (1, 6, 6)
    assert seen(lake, "id", "day", "x")[0] == (1, "c", "new")
    assert ids(lake) == [1, 2, 3, 4, 5, 6]
    keeps(before, fingerprint(lake), "day=b/fb.parquet")


def test_to_a_new_partition_and_out_of_an_old_one(io: Any, lake: str) -> None:
    result = merged(io, changes([1, 2], ["d", "c"]), lake, **MOVE)
    assert counts(result) == {"updated": 2, "moved": 2}
    assert folders(lake) == ["day=b", "day=c", "day=d"]
    assert [row[:2] for row in seen(lake, "id", "day")] == [(1, "d"), (2, "c"), (3, "b"), (4, "b"), (5, "c"), (6, "c")]


def test_rows_that_stay_move_and_are_new(io: Any, lake: str) -> None:
    result = merged(io, changes([1, 2, 3, 100], ["a", "b", "b", "a"]), lake, **MOVE)
    assert counts(result) == {"inserted": 1, "updated": 3, "moved": 1}
    assert seen(lake, "id", "day", "x") == [
        (1, "a", "new"),
        (2, "b", "new"),
        (3, "b", "new"),
        (4, "b", "old"),
        (5, "c", "old"),
        (6, "c", "old"),
        (100, "a", "new"),
    ]


def test_an_update_moves_and_inserts_nothing(io: Any, lake: str) -> None:
    result = merged(io, changes([1, 100], ["b", "b"]), lake, "update", **MOVE)
    assert counts(result) == {"updated": 1, "moved": 1}


def test_a_row_with_the_same_values_moves_too(io: Any, lake: str) -> None:
    result = merged(io, changes([1], ["b"], x="old", version=5), lake, **MOVE)
    assert (counts(result), result.changed) == ({"updated": 1, "moved": 1}, 1)


def test_to_and_from_the_null_partition(io: Any, lake: str) -> None:
    there = changes([1], pa.array([None], pa.string()))
    assert counts(merged(io, there, lake, **MOVE)) == {"updated": 1, "moved": 1}
    assert seen(lake, "id", "day", "x")[0] == (1, None, "new")
    assert counts(merged(io, changes([1], ["a"]), lake, **MOVE)) == {"updated": 1, "moved": 1}
    assert folders(lake) == ["day=a", "day=b", "day=c"]


def test_twice_is_once(io: Any, lake: str) -> None:
    source = changes([1, 2], ["d", "c"])
    merged(io, source, lake, **MOVE)
    before = fingerprint(lake)
    assert counts(merged(io, source, lake, **MOVE)) == {"updated": 2}
    assert fingerprint(lake) == before


def test_files_that_store_the_partition_column(io: Any, tmp_path: Path) -> None:
    files = {f"day={d}/f.parquet": flat_rows([n]).append_column("day", pa.array([d])) for n, d in enumerate("ab")}
    lake = write_lake(tmp_path / "lake", files)
    assert counts(merged(io, changes([0], ["b"]), lake, **MOVE)) == {"updated": 1, "moved": 1}
    assert seen(lake, "id", "day", "x") == [(0, "b", "new"), (1, "b", "old")]
    assert all(name.startswith("day=b/") for name in data_files(lake))


def test_two_partition_columns_of_which_one_is_a_key(io: Any, tmp_path: Path) -> None:
    files = {f"a={a}/b={b}/f.parquet": pa.table({"id": [b]}) for a in (1, 2) for b in (1, 2)}
    lake = write_lake(tmp_path / "lake", files)
    source = pa.table({"id": [1, 2], "a": [1, 2], "b": [3, 2]})
    result = merged(io, source, lake, keys=["id", "a"], **MOVE)
    assert counts(result) == {"updated": 2, "moved": 1}
    assert seen(lake, "a", "b", "id") == [("1", "2", 2), ("1", "3", 1), ("2", "1", 1), ("2", "2", 2)]


def test_with_the_partition_in_the_key_nothing_moves(io: Any, lake: str) -> None:
    assert counts(merged(io, changes([1], ["b"]), lake, keys=["id", "day"], **MOVE)) == {"inserted": 1}
    assert [row for row in seen(lake, "id", "day") if row[0] == 1] == [(1, "a"), (1, "b")]


# Duplicate copies


def test_copies_in_the_right_partition_are_updated_and_others_deleted(io: Any, tmp_path: Path) -> None:
    lake = copies(tmp_path, a=5, b=5, c=5)
    assert counts(merged(io, changes([1], ["b"]), lake, **MOVE)) == {"updated": 1, "deleted": 2}
    assert where(lake) == [("b", "new", 9)]


def test_with_none_there_one_moves_and_the_others_are_deleted(io: Any, tmp_path: Path) -> None:
    lake = copies(tmp_path, a=5, b=5, c=5)
    assert counts(merged(io, changes([1], ["d"]), lake, **MOVE)) == {"updated": 1, "moved": 1, "deleted": 2}
    assert where(lake) == [("d", "new", 9)]


def test_several_copies_in_the_right_partition(io: Any, tmp_path: Path) -> None:
    files = {"day=a/f.parquet": flat_rows([1, 1, 2]), "day=b/f.parquet": flat_rows([1, 3])}
    lake = write_lake(tmp_path / "lake", files)
    assert counts(merged(io, changes([1], ["a"]), lake, **MOVE)) == {"updated": 2, "deleted": 1}
    assert where(lake) == [("a", "new", 9), ("a", "new", 9)]


@pytest.mark.parametrize(
    ("versions", "day", "expected", "left"),
    [
        ({"a": 3, "b": 7}, "c", {"updated": 1, "moved": 1, "skipped": 1}, [("b", "old", 7), ("c", "new", 5)]),
        ({"a": 7, "b": 3}, "b", {"updated": 1, "skipped": 1}, [("a", "old", 7), ("b", "new", 5)]),
        ({"a": 3, "b": 7}, "b", {"skipped": 1, "deleted": 1}, [("b", "old", 7)]),
        ({"a": 6, "b": 7}, "c", {"skipped": 2}, [("a", "old", 6), ("b", "old", 7)]),
        (
            {"a": 3, "b": 4, "c": 7},
            "d",
            {"updated": 1, "moved": 1, "deleted": 1, "skipped": 1},
            [("c", "old", 7), ("d", "new", 5)],
        ),
    ],
    ids=["moves", "newer elsewhere", "newer here", "all newer", "moves beside a newer one"],
)
def test_copies_that_are_newer_stay(
    io: Any, tmp_path: Path, versions: dict[str, int], day: str, expected: dict[str, int], left: list[Any]
) -> None:
    lake = copies(tmp_path, **versions)
    result = merged(io, changes([1], [day], version=[5]), lake, sequence_by=["version"], **MOVE)
    assert counts(result) == expected
    assert where(lake) == left


def test_rows_of_a_feed(io: Any, lake: str) -> None:
    """A delete is found wherever it is, and is no move."""
    source = changes([1, 2, 3], ["b", "b", "c"], gone=[True, False, None])
    result = merged(io, source, lake, delete_column="gone", **MOVE)
    assert counts(result) == {"updated": 2, "moved": 2, "deleted": 1}
    assert seen(lake, "id", "day") == [(2, "b"), (3, "c"), (4, "b"), (5, "c"), (6, "c")]


# Refusals


@pytest.mark.parametrize("option", [{"update_columns": ["x"]}, {"exclude_columns": ["version"]}], ids=str)
def test_with_some_columns_it_is_refused(io: Any, lake: str, option: dict[str, Any]) -> None:
    """The other columns of the new row would be unknown, or the move invisible."""
    refused(io, changes([1], ["a"]), lake, "on_move", **option, **MOVE)


@pytest.mark.parametrize("strategy", ["insert", "delete"])
def test_strategies_that_move_nothing(io: Any, lake: str, strategy: str) -> None:
    refused(io, changes([1], ["a"]), lake, "on_move", strategy, **MOVE)


@pytest.mark.parametrize("value", ["allow", True, ""])
def test_an_unknown_choice(io: Any, lake: str, value: Any) -> None:
    refused(io, changes([1], ["a"]), lake, "on_move", on_move=value)
