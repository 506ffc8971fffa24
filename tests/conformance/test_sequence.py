"""Newer wins: `sequence_by` decides between source and target, and between several source rows of one key."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import DuplicateKeyError, PartitionMoveError
from row_lakes import changes, counts, day_lake, flat_lake, flat_rows, folders, ids, keeps, merged, refused, seen
from support import fingerprint, rows, write_lake

NAN = float("nan")
AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
BY: dict[str, Any] = {"sequence_by": ["version"]}
LATEST: dict[str, Any] = {"sequence_by": ["version"], "on_duplicates": "latest"}
FEED: dict[str, Any] = {"delete_column": "gone"}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return flat_lake(tmp_path)


def lake_of(folder: Path, **columns: Any) -> str:
    """One file of the ids 1, 2 and so on, with a text and the given sequence columns."""
    count = len(next(iter(columns.values())))
    table = pa.table({"id": range(1, count + 1), "x": ["old"] * count, **columns})
    return write_lake(folder / "lake", {"f.parquet": table}, row_group_size=2)


def texts(lake: str) -> dict[Any, Any]:
    return dict(seen(lake, "id", "x"))


# Source and target


@pytest.mark.parametrize("strategy", ["update", "upsert"])
def test_a_row_wins_if_it_is_not_older(io: Any, lake: str, strategy: str) -> None:
    result = merged(io, changes([1, 2, 3], version=[4, 5, 6]), lake, strategy, **BY)
    assert counts(result) == {"updated": 2, "skipped": 1}
    assert result.changed == 2
    assert [row for row in seen(lake, "id", "x", "version") if row[0] in (1, 2, 3)] == [
        (1, "old", 5),
        (2, "new", 5),
        (3, "new", 6),
    ]


def test_sequence_by_may_be_one_name(io: Any, lake: str) -> None:
    assert counts(merged(io, changes([1, 2], version=[4, 6]), lake, sequence_by="version")) == {
        "updated": 1,
        "skipped": 1,
    }


def test_a_new_key_is_inserted_whatever_its_sequence(io: Any, lake: str) -> None:
    assert counts(merged(io, changes([100], version=[-1]), lake, **BY)) == {"inserted": 1}


def test_an_older_row_changes_nothing(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    result = merged(io, changes([1, 12, 13], version=[1, 1, 4]), lake, **BY)
    assert (counts(result), result.changed) == ({"skipped": 3}, 0)
    assert fingerprint(lake) == before


def test_skipped_counts_target_rows(io: Any, tmp_path: Path) -> None:
    """Of three copies two are newer, and stay."""
    table = pa.table({"id": [1, 1, 1, 2], "x": list("abcd"), "version": [7, 3, 9, 1]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    assert counts(merged(io, changes([1], version=[5]), lake, **BY)) == {"updated": 1, "skipped": 2}
    assert seen(lake, "id", "x", "version") == [(1, "a", 7), (1, "c", 9), (1, "new", 5), (2, "d", 1)]


def test_several_columns_are_compared_one_after_the_other(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, a=[2, 2, 2, 2], b=[5, 5, 5, 5])
    source = pa.table({"id": [1, 2, 3, 4], "x": ["new"] * 4, "a": [3, 1, 2, 2], "b": [0, 9, 4, 6]})
    assert counts(merged(io, source, lake, sequence_by=["a", "b"])) == {"updated": 2, "skipped": 2}
    assert texts(lake) == {1: "new", 2: "old", 3: "old", 4: "new"}
    other = pa.table({"id": [2, 3], "x": ["newer"] * 2, "a": [1, 2], "b": [9, 4]})
    assert counts(merged(io, other, lake, sequence_by=["b", "a"])) == {"updated": 1, "skipped": 1}
    assert texts(lake) == {1: "new", 2: "newer", 3: "old", 4: "new"}


def test_the_null_of_the_target_is_least(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, a=pa.array([None, None, 5, 5]), b=pa.array([9, None, None, 1]))
    source = pa.table({"id": [1, 2, 3, 4], "x": ["new"] * 4, "a": [-100, -100, 5, 5], "b": [0, 0, -1, 0]})
    assert counts(merged(io, source, lake, sequence_by=["a", "b"])) == {"updated": 3, "skipped": 1}
    assert texts(lake) == {1: "new", 2: "new", 3: "new", 4: "old"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.array([1.0, NAN, NAN, -0.0]), pa.array([NAN, 1e300, NAN, 0.0])),
        (pa.array(["b", "b", "a", "ab"]), pa.array(["ba", "B", "a", "ab"])),
        (pa.array([AT] * 4), pa.array([AT + dt.timedelta(microseconds=n) for n in (1, -1, 0, 0)])),
        (pa.array([Decimal("1.5")] * 4), pa.array([Decimal(text) for text in ("1.6", "1.4", "1.5", "1.5")])),
        (pa.array([dt.date(1969, 12, 31)] * 4), pa.array([dt.date(y, 12, 31) for y in (1970, 1968, 1969, 1969)])),
        (pa.array([-1, -1, -1, 300], pa.int16()), pa.array([0, -2, -1, 300], pa.int64())),
        (pa.array([False, True, True, False]), pa.array([True, False, True, False])),
        (pa.array([b"\x7f", b"\x80", b"", b"a"]), pa.array([b"\x80", b"\x7f", b"", b"a"])),
        (
            pa.array(["b", "b", "a", "a"]).dictionary_encode(),
            pa.array(["c", "a", "a", "a"]),
        ),
    ],
    ids=["NaN is greatest", "text", "instants", "decimals", "dates", "integers", "Boolean", "binary", "dictionary"],
)
def test_the_order_of_values(io: Any, tmp_path: Path, old: pa.Array, new: pa.Array) -> None:
    """The first source row is newer, the second older, the others are equal."""
    lake = lake_of(tmp_path, at=old)
    source = pa.table({"id": [1, 2, 3, 4], "x": ["new"] * 4, "at": new})
    assert counts(merged(io, source, lake, sequence_by=["at"])) == {"updated": 3, "skipped": 1}
    assert texts(lake) == {1: "new", 2: "old", 3: "new", 4: "new"}


def test_deletes_obey_it(io: Any, lake: str, tmp_path: Path) -> None:
    source = changes([1, 2, 3], version=[4, 5, 6], gone=[True, True, True])
    assert counts(merged(io, source, lake, **BY, **FEED)) == {"deleted": 2, "skipped": 1}
    other = flat_lake(tmp_path / "other")
    assert counts(merged(io, source.select(["id", "version"]), other, "delete", **BY)) == {"deleted": 2, "skipped": 1}
    assert ids(lake) == ids(other) == [i for i in range(30) if i not in (2, 3)]


def test_after_a_delete_an_older_upsert_inserts_again(io: Any, lake: str) -> None:
    """Not independent of order, as the documentation says."""
    merged(io, changes([1], version=[9], gone=[True]), lake, **BY, **FEED)
    assert counts(merged(io, changes([1], version=[7], gone=[False]), lake, **BY, **FEED)) == {"inserted": 1}


def test_the_sequence_of_strategy_delete_is_that_of_the_greatest_row(io: Any, lake: str) -> None:
    source = pa.table({"id": [1, 1, 2, 2], "version": [9, 1, 4, 3]})
    assert counts(merged(io, source, lake, "delete", **BY)) == {"deleted": 1, "skipped": 1}
    assert 1 not in ids(lake) and 2 in ids(lake)


def test_an_older_row_is_neither_refused_as_a_move_nor_moved(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    before = fingerprint(lake)
    older = changes([1], ["c"], version=[4])
    assert counts(merged(io, older, lake, **BY)) == {"skipped": 1}
    assert counts(merged(io, older, lake, on_move="move", **BY)) == {"skipped": 1}
    assert fingerprint(lake) == before
    refused(io, changes([1], ["c"], version=[5]), lake, "1", error=PartitionMoveError, **BY)


def test_files_with_skipped_rows_only_keep_their_bytes(io: Any, lake: str) -> None:
    before = fingerprint(lake)
    result = merged(io, changes([1, 12, 25], version=[4, 9, 4]), lake, **BY)
    assert counts(result) == {"updated": 1, "skipped": 2}
    keeps(before, fingerprint(lake), "f0.parquet", "f2.parquet")


# Refusals


@pytest.mark.parametrize("strategy", ["update", "upsert", "delete"])
def test_a_null_in_the_source_is_refused(io: Any, lake: str, strategy: str) -> None:
    refused(io, changes([1, 2], version=[9, None]), lake, "version", strategy, **BY)


def test_a_null_in_a_delete_row_or_a_repeated_row_is_refused(io: Any, lake: str) -> None:
    refused(io, changes([1], version=[None], gone=[True]), lake, "version", **BY, **FEED)
    refused(io, changes([1, 1], version=[9, None]), lake, "version", **LATEST)


def test_a_column_that_the_target_lacks_is_refused(io: Any, lake: str) -> None:
    refused(io, changes([1], at=[1]), lake, "'at'", sequence_by=["at"])
    refused(io, changes([1], at=[1]), lake, "'at'", "delete", sequence_by=["at"])


def test_a_column_that_the_source_lacks_is_refused(io: Any, lake: str) -> None:
    refused(io, changes([1]).select(["id", "x"]), lake, "'version'", **BY)
    refused(io, pa.table({"id": [1]}), lake, "'version'", "delete", **BY)


def test_a_column_without_an_order_is_refused(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, at=[[1], [2]])
    source = pa.table({"id": [1], "x": ["new"], "at": [[3]]})
    refused(io, source, lake, "'at'", sequence_by=["at"])


def test_a_sequence_of_another_type_is_refused(io: Any, lake: str) -> None:
    source = pa.table({"id": [1], "x": ["new"], "version": ["9"]})
    refused(io, source, lake, "'version'", **BY)
    refused(io, source, lake, "'version'", "delete", **BY)


def test_a_column_twice_is_refused(io: Any, lake: str) -> None:
    refused(io, changes([1]), lake, "sequence_by", sequence_by=["version", "version"])


# Several source rows of one key


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
def test_the_greatest_row_counts(io: Any, lake: str, strategy: str) -> None:
    source = changes([1, 100, 1, 100, 1], x=list("abcde"), version=[6, 1, 9, 2, 7])
    expected = {"insert": {"inserted": 1}, "update": {"updated": 1}, "upsert": {"inserted": 1, "updated": 1}}
    assert counts(merged(io, source, lake, strategy, **LATEST)) == expected[strategy]
    assert texts(lake)[1] == ("old" if strategy == "insert" else "c")
    assert texts(lake).get(100) == (None if strategy == "update" else "d")


def test_by_several_columns(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, a=[0], b=[0])
    source = pa.table({"id": [1, 1, 1], "x": list("abc"), "a": [1, 2, 2], "b": [9, 1, 2]})
    merged(io, source, lake, sequence_by=["a", "b"], on_duplicates="latest")
    assert texts(lake) == {1: "c"}


def test_the_greatest_row_may_still_be_older(io: Any, lake: str) -> None:
    source = changes([1, 1], x=list("ab"), version=[3, 4])
    assert counts(merged(io, source, lake, **LATEST)) == {"skipped": 1}


def test_the_greatest_row_may_delete(io: Any, lake: str) -> None:
    source = changes([1, 1, 2, 2, 3, 3], version=[6, 7] * 3, gone=[False, True, True, False, True, True])
    assert counts(merged(io, source, lake, **LATEST, **FEED)) == {"updated": 1, "deleted": 2}
    assert [i for i in range(4) if i in ids(lake)] == [0, 2]


def test_it_is_applied_before_everything_else(io: Any, tmp_path: Path) -> None:
    """The row that loses is not refused as a move, and its partition is not made."""
    lake = day_lake(tmp_path)
    source = changes([1, 1, 100, 100], ["c", "a", "z", "b"], version=[6, 7, 1, 2])
    assert counts(merged(io, source, lake, **LATEST)) == {"inserted": 1, "updated": 1}
    assert folders(lake) == ["day=a", "day=b", "day=c"]
    moving = changes([1, 1], ["a", "c"], version=[8, 9])
    refused(io, moving, lake, "1", error=PartitionMoveError, **LATEST)


def test_identical_rows_collapse(io: Any, lake: str) -> None:
    source = changes([1, 1, 100, 100, 1], x=["a", "a", None, None, "b"], version=[9, 9, 1, 1, 8])
    assert counts(merged(io, source, lake, **LATEST)) == {"inserted": 1, "updated": 1}
    assert (texts(lake)[1], texts(lake)[100]) == ("a", None)


def test_identical_rows_with_nan(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, at=[1.0], real=[1.0])
    source = pa.table({"id": [1, 1], "x": ["a", "a"], "at": [NAN, NAN], "real": [NAN, NAN]})
    assert counts(merged(io, source, lake, sequence_by="at", on_duplicates="latest")) == {"updated": 1}


def test_deletes_of_one_key_and_sequence_are_identical(io: Any, lake: str) -> None:
    """Whatever their other columns say."""
    source = changes([1, 1], x=["a", "b"], version=[9, 9], gone=[True, True])
    assert counts(merged(io, source, lake, **LATEST, **FEED)) == {"deleted": 1}
    words = changes([2, 2], x=["a", "b"], version=[9, 9], op=["D", "X"])
    options: dict[str, Any] = {"delete_column": "op", "delete_values": ["D", "X"]}
    assert counts(merged(io, words, lake, **LATEST, **options)) == {"deleted": 1}


def test_flags_that_mean_the_same_are_identical(io: Any, lake: str) -> None:
    """The delete column is not stored: rows that differ in it only are identical if both are kept."""
    source = changes([1, 1, 1], version=[9, 9, 9], gone=pa.array([False, None, False]))
    assert counts(merged(io, source, lake, **LATEST, **FEED)) == {"updated": 1}


@pytest.mark.parametrize(
    ("x", "gone"),
    [(["a", "b"], [False, False]), (["a", "a"], [False, True]), (["a", None], [False, False])],
    ids=["values", "flag", "null"],
)
def test_different_rows_that_tie_are_refused(io: Any, lake: str, x: list[Any], gone: list[Any]) -> None:
    source = changes([1, *(7, 7)], x=["c", *x], version=[9, 9, 9], gone=[False, *gone])
    refused(io, source, lake, r"\b7\b", error=DuplicateKeyError, **LATEST, **FEED)


def test_rows_that_differ_in_their_partition_tie(io: Any, tmp_path: Path) -> None:
    lake = day_lake(tmp_path)
    refused(io, changes([7, 7], ["a", "b"], version=[9, 9]), lake, "7", error=DuplicateKeyError, **LATEST)


def test_a_tie_below_the_greatest_does_not_matter(io: Any, lake: str) -> None:
    source = changes([1, 1, 1], x=list("abc"), version=[6, 6, 9])
    assert counts(merged(io, source, lake, **LATEST)) == {"updated": 1}
    assert texts(lake)[1] == "c"


def test_sample_keys_are_five_at_most(io: Any, lake: str) -> None:
    source = changes([*range(100, 108)] * 2, x=["a"] * 8 + ["b"] * 8)
    refused(io, source, lake, r"8 key.*100, 101, 102, 103, 104\D", error=DuplicateKeyError, **LATEST)


def test_without_latest_duplicates_are_refused(io: Any, lake: str) -> None:
    refused(io, changes([1, 1], version=[8, 9]), lake, "1", error=DuplicateKeyError, **BY)


def test_latest_needs_a_sequence(io: Any, lake: str) -> None:
    refused(io, changes([1]), lake, "sequence_by", on_duplicates="latest")


def test_an_unknown_choice(io: Any, lake: str) -> None:
    refused(io, changes([1]), lake, "on_duplicates", on_duplicates="newest", **BY)


def test_latest_in_a_new_data_set(io: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    result = io.merge(changes([1, 1, 2], x=list("abc"), version=[1, 2, 1]), lake, "upsert", ["id"], **LATEST)
    assert counts(result) == {"inserted": 2}
    assert texts(lake) == {1: "b", 2: "c"}


def test_inside_a_batch_of_a_stream(io: Any, lake: str) -> None:
    """A feed with several changes of a key in one micro-batch."""
    feed = changes(
        [1, 1, 2, 2, 100, 100], x=list("abcdef"), version=[6, 7] * 3, gone=[False, False, False, True] + [False] * 2
    )
    result = io.merge(feed, lake, "upsert", ["id"], batch=Batch("app", 1), **LATEST, **FEED)
    assert counts(result) == {"inserted": 1, "updated": 1, "deleted": 1}
    before = fingerprint(lake)
    assert counts(io.merge(feed, lake, "upsert", ["id"], batch=Batch("app", 1), **LATEST, **FEED)) == {}
    assert fingerprint(lake) == before
    assert (texts(lake)[1], texts(lake)[100], 2 in texts(lake)) == ("b", "f", False)


def test_foreach_batch_takes_the_options(io: Any, engine: str, lake: str, request: pytest.FixtureRequest) -> None:
    if engine != "spark":
        pytest.skip("Spark only")
    spark = request.getfixturevalue("spark")
    write = io.foreach_batch(lake, ["id"], app_id="feed", **LATEST, **FEED)
    columns = "id bigint, x string, version bigint, gone boolean"
    write(spark.createDataFrame([(1, "a", 6, False), (1, "b", 7, False), (2, None, 6, True)], columns), 0)
    assert (texts(lake)[1], 2 in texts(lake)) == ("b", False)
    write(spark.createDataFrame([(1, "late", 6, False)], columns), 1)
    assert texts(lake)[1] == "b"


def test_the_strategy_deduplicate_stays(io: Any, lake: str) -> None:
    source = flat_rows([1, 1], ["a", "b"], [8, 9])
    result = io.write_parquet_dataset(source, lake, "deduplicate", ["id"], dedup_order_by=["version"])
    assert (result.updated, texts(lake)[1], len(rows(lake))) == (1, "b", 30)
