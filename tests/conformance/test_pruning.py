"""What is read and what is not: data pages of pruned files are garbage, and the merge does not notice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, nothing_changes, spoil_pages
from fsspeckit.core.errors import UnreadableFileError
from fsspeckit.core.parquet import thrift
from support import data_files, fingerprint, rows, write_lake


def lake_of(folder: Path, count: int, size: int = 10, **options: Any) -> str:
    tables = {
        f"f{i:03d}.parquet": pa.table({"id": range(i * size, i * size + size), "x": ["old"] * size})
        for i in range(count)
    }
    return write_lake(folder, tables, **options)


def test_keys_in_3_of_200_files(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", 200)
    touched = {"f003.parquet", "f100.parquet", "f199.parquet"}
    for name in set(data_files(lake)) - touched:
        spoil_pages(Path(lake, name))
    before = fingerprint(lake)
    result = io.merge(
        pa.table({"id": [35, 1001, 1002, 1999, 2000], "x": ["new"] * 5}), lake, "upsert", ["id"], replace="in_place"
    )
    assert (result.inserted, result.updated, result.target_count_after) == (1, 4, 2001)
    assert {Path(path).name for path in result.rewritten_files} == touched
    assert len(result.preserved_files) == 197
    after = fingerprint(lake)
    assert {name for name in before if before[name] != after[name]} == touched
    found = [row for path in result.rewritten_files for row in pq.ParquetFile(path).read().to_pylist()]
    assert sorted(row["id"] for row in found if row["x"] == "new") == [35, 1001, 1002, 1999]


def test_the_garbage_is_garbage(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", 2)
    spoil_pages(Path(lake, "f000.parquet"))
    with pytest.raises(UnreadableFileError, match="f000"):
        io.merge(pa.table({"id": [5], "x": ["new"]}), lake, "upsert", ["id"])


def test_row_groups_within_a_file(io: Any, tmp_path: Path) -> None:
    """An insert reads keys of the row group that its key falls into, and of no other."""
    lake = lake_of(tmp_path / "lake", 1, size=100, row_group_size=10)
    path = Path(lake, "f000.parquet")
    spoil_pages(path, row_groups=set(range(10)) - {4})
    spoil_pages(path, columns=["x"])
    result = io.merge(pa.table({"id": [45, 46, 200], "x": ["new"] * 3}), lake, "insert", ["id"])
    assert (result.inserted, result.target_count_after) == (1, 101)
    plan = io.plan(pa.table({"id": [45], "x": ["new"]}), lake, "insert", ["id"])
    assert [(f.row_groups, f.scanned_row_groups) for f in plan.files if f.path == str(path)] == [(10, 1)]


def test_an_insert_of_new_keys_between_files_reads_footers_only(io: Any, tmp_path: Path) -> None:
    tables = {f"f{i}.parquet": pa.table({"id": [i * 10, i * 10 + 5], "x": ["old"] * 2}) for i in range(3)}
    lake = write_lake(tmp_path / "lake", tables)
    for name in tables:
        spoil_pages(Path(lake, name))
    assert io.merge(pa.table({"id": [7, 18, 99], "x": ["new"] * 3}), lake, "upsert", ["id"]).inserted == 3


def test_an_empty_source_reads_footers_only(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", 3)
    for name in data_files(lake):
        spoil_pages(Path(lake, name))
    with nothing_changes(lake):
        result = io.merge(pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], "str")}), lake, "upsert", ["id"])
    assert (result.target_count_before, result.target_count_after, len(result.preserved_files)) == (30, 30, 3)


def test_only_key_columns_are_scanned(io: Any, tmp_path: Path) -> None:
    """Keys that a file does not hold, though its bounds admit them: its other columns are never read."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 9], "x": ["a", "b"]})})
    spoil_pages(Path(lake, "f.parquet"), ["x"])
    result = io.merge(pa.table({"id": [5], "x": ["new"]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 0)


def test_many_keys_prune_by_their_gaps(io: Any, tmp_path: Path) -> None:
    """More keys than intervals: what lies in the widest gaps is still pruned."""
    lake = lake_of(tmp_path / "lake", 3, size=10_000)
    spoil_pages(Path(lake, "f001.parquet"))
    ids = [*range(0, 10_000, 4), *range(20_000, 30_000, 4)]
    assert io.merge(pa.table({"id": ids, "x": ["new"] * len(ids)}), lake, "update", ["id"]).updated == 5000


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
def test_plan_tells_what_merge_does(io: Any, tmp_path: Path, strategy: str) -> None:
    lake = lake_of(tmp_path / "lake", 4, row_group_size=5)
    write_lake(lake, {"gap.parquet": pa.table({"id": [500, 600], "x": ["old"] * 2})})
    data = pa.table({"id": [3, 14, 550, 900], "x": ["new"] * 4})
    with nothing_changes(lake):
        plan = io.plan(data, lake, strategy, ["id"])
    expected = {
        "f000.parquet": ("rewrite", 1, 1),
        "f001.parquet": ("rewrite", 1, 1),
        "f002.parquet": ("prune", 0, 0),
        "f003.parquet": ("prune", 0, 0),
        "gap.parquet": ("scan", 1, 0),
    }
    if strategy == "insert":
        expected |= dict.fromkeys(("f000.parquet", "f001.parquet"), ("scan", 1, 1))
    found = {Path(f.path).name: (f.action, f.scanned_row_groups, f.matched_rows) for f in plan.files}
    assert found == expected
    reasons = {Path(f.path).name: f.reason for f in plan.files}
    assert reasons["f002.parquet"] == "no source key is in its range of keys"
    assert reasons["gap.parquet"] == "no key matched"
    assert "1" in reasons["f000.parquet"]
    sizes = {Path(f.path).name: (f.rows, f.bytes, f.row_groups) for f in plan.files}
    assert sizes["f000.parquet"] == (10, Path(lake, "f000.parquet").stat().st_size, 2)
    result = io.merge(data, lake, strategy, ["id"])
    same = ("strategy", "source_count", "target_count_before", "target_count_after", "inserted", "updated", "deleted")
    assert [getattr(plan, name) for name in same] == [getattr(result, name) for name in same]
    assert len(plan.by_action("rewrite")) == len(result.rewritten_files)


def partitioned(folder: Path) -> str:
    return write_lake(
        folder, {f"day={d}/f.parquet": pa.table({"id": range(0, 30, 3), "x": ["old"] * 10}) for d in (1, 2, 3)}
    )


def test_plan_shows_the_guard_and_how_to_spare_it(io: Any, tmp_path: Path) -> None:
    lake = partitioned(tmp_path / "lake")
    data = pa.table({"id": [4], "x": ["new"], "day": [2]})
    plan = io.plan(data, lake, "upsert", ["id"])
    assert [f.action for f in plan.files] == ["guard", "scan", "guard"]
    assert "would move" in plan.files[0].reason
    (hint,) = plan.hints
    assert "2 files" in hint
    assert "Add day to the key columns to avoid this" in hint
    spared = io.plan(data, lake, "upsert", ["id", "day"])
    assert [f.action for f in spared.files] == ["prune", "scan", "prune"]
    assert spared.files[0].reason == "its partition gets no source row"
    assert spared.hints == ()


def test_partition_pruning_spares_other_partitions(io: Any, tmp_path: Path) -> None:
    lake = partitioned(tmp_path / "lake")
    for d in (1, 3):
        spoil_pages(Path(lake, f"day={d}/f.parquet"))
    data = pa.table({"id": [3], "x": ["new"], "day": [2]})
    assert io.merge(data, lake, "upsert", ["id", "day"]).updated == 1
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match="day=1"):
        io.merge(data, lake, "upsert", ["id"])  # without the partition in the key, the guard has to look


def test_the_guard_reads_keys_only_and_only_where_statistics_admit_them(io: Any, tmp_path: Path) -> None:
    lake = write_lake(
        tmp_path / "lake",
        {
            "day=1/f.parquet": pa.table({"id": [1, 9], "x": ["old"] * 2}),
            "day=2/f.parquet": pa.table({"id": [4], "x": ["old"]}),
            "day=3/f.parquet": pa.table({"id": [100, 200], "x": ["old"] * 2}),
        },
    )
    spoil_pages(Path(lake, "day=1/f.parquet"), ["x"])
    spoil_pages(Path(lake, "day=3/f.parquet"))
    plan = io.plan(pa.table({"id": [4], "x": ["new"], "day": [2]}), lake, "update", ["id"])
    assert [f.action for f in plan.files] == ["guard", "rewrite", "prune"]
    assert io.merge(pa.table({"id": [4], "x": ["new"], "day": [2]}), lake, "update", ["id"]).updated == 1


def test_a_plan_of_a_missing_target(io: Any, tmp_path: Path) -> None:
    plan = io.plan(pa.table({"id": [1], "x": ["a"]}), str(tmp_path / "none"), "upsert", ["id"])
    assert (plan.inserted, plan.updated, plan.files, plan.target_count_after) == (1, 0, (), 1)
    assert not (tmp_path / "none").exists()


def test_a_merge_of_pruned_files_still_counts_them(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", 3)
    result = io.merge(pa.table({"id": [1], "x": ["new"]}), lake, "update", ["id"])
    assert sorted((f.operation, f.row_count) for f in result.files) == [
        ("preserved", 10),
        ("preserved", 10),
        ("rewritten", 10),
    ]
    assert len(rows(lake)) == 30


KEYS_IN_ORDER: dict[str, pa.Array] = {
    "int8": pa.array([-1, 0, 1], pa.int8()),
    "int32": pa.array([-1, 0, 1], pa.int32()),
    "int64": pa.array([1, 2, 2**40], pa.int64()),
    "uint32": pa.array([1, 2, 2**32 - 1], pa.uint32()),
    "uint64": pa.array([1, 2, 2**64 - 1], pa.uint64()),
    "float": pa.array([-1.5, 0.0, 2.5], pa.float32()),
    "double": pa.array([-1.5, 0.0, 2.5], pa.float64()),
    "string": pa.array(["a", "b", "ü"]),
    "binary": pa.array([b"a", b"b", b"\xff"]),
    "fixed binary": pa.array([b"aa", b"ab", b"\xff\x00"], pa.binary(2)),
    "decimal": pa.array([Decimal("-1.50"), Decimal("0.00"), Decimal("2.50")], pa.decimal128(9, 2)),
    "large decimal": pa.array([Decimal(-1), Decimal(0), Decimal(10**30)], pa.decimal128(38, 0)),
    "date": pa.array([date(1969, 1, 1), date(1970, 1, 1), date(2026, 1, 1)]),
    "timestamp": pa.array([-1, 0, 10**15], pa.timestamp("us")),
    "zoned timestamp": pa.array([-1, 0, 10**15], pa.timestamp("us", "UTC")),
    "time": pa.array([0, 1, 10**9], pa.time64("us")),
    "bool": pa.array([False, True]),
}


def spoil_statistics(path: Path, change: Callable[[thrift.Struct], None], column: int = 0) -> None:
    """Change the statistics of a column in every row group of a file."""

    def edit(footer: thrift.Struct) -> None:
        for group in footer[4][1][1]:
            metadata = dict(group[1][1][1][column][3][1])
            statistics = dict(metadata[12][1])
            change(statistics)
            group[1][1][1][column][3] = thrift.STRUCT, {**metadata, 12: (thrift.STRUCT, statistics)}

    edit_footer(path, edit)


def check_every_key_is_found(io: Any, lake: str, keys: pa.Array) -> None:
    """An upsert of a key that is there updates its row, and inserts none."""
    for i in range(len(keys)):
        result = io.merge(pa.table({"id": keys[i : i + 1], "x": ["new"]}), lake, "upsert", ["id"])
        assert (result.inserted, result.updated, result.target_count_after) == (0, 1, len(keys))
    assert [row["x"] for row in rows(lake)] == ["new"] * len(keys)


@pytest.mark.parametrize("keys", KEYS_IN_ORDER.values(), ids=KEYS_IN_ORDER)
def test_a_minimum_above_the_maximum_proves_nothing(io: Any, tmp_path: Path, keys: pa.Array) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": keys, "x": ["old"] * len(keys)})})

    def swap(statistics: thrift.Struct) -> None:
        for greatest, least in ((1, 2), (5, 6)):
            if greatest in statistics:
                statistics[greatest], statistics[least] = statistics[least], statistics[greatest]

    spoil_statistics(Path(lake, "f.parquet"), swap)
    check_every_key_is_found(io, lake, keys)


def _only_nulls(statistics: thrift.Struct) -> None:
    statistics[3] = thrift.I64, 3


def _only_nulls_and_no_bounds(statistics: thrift.Struct) -> None:
    for number in (1, 2, 5, 6):
        del statistics[number]
    _only_nulls(statistics)


def _too_many_nulls(statistics: thrift.Struct) -> None:
    statistics[3] = thrift.I64, 4
    for number in (1, 2, 5, 6):
        statistics[number] = statistics[1]


def _negative_nulls(statistics: thrift.Struct) -> None:
    statistics[3] = thrift.I64, -1
    for number in (1, 2, 5, 6):
        statistics[number] = statistics[1]


def _long_bounds(statistics: thrift.Struct) -> None:
    for number in (1, 2, 5, 6):
        statistics[number] = thrift.BINARY, statistics[1][1] + b"\0"


def _two_maxima(statistics: thrift.Struct) -> None:
    statistics[5] = statistics[2]


CONTRADICTIONS = {
    "bounds, and nothing but nulls": _only_nulls,
    "nothing but nulls, and levels of values": _only_nulls_and_no_bounds,
    "more nulls than rows": _too_many_nulls,
    "less than no nulls": _negative_nulls,
    "bounds that are too long": _long_bounds,
    "two maxima": _two_maxima,
}


@pytest.mark.parametrize("nullable", [True, False], ids=["optional", "required"])
@pytest.mark.parametrize("contradict", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_statistics_that_contradict_themselves_prove_nothing(
    io: Any, tmp_path: Path, contradict: Callable[[thrift.Struct], None], nullable: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable), pa.field("x", pa.string())])
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1, 5, 9], "x": ["old"] * 3}, schema=schema)})
    spoil_statistics(Path(lake, "f.parquet"), contradict)
    check_every_key_is_found(io, lake, pa.array([1, 5, 9]))


def test_contradictory_statistics_of_one_file_among_many(io: Any, tmp_path: Path) -> None:
    """Footers of many files are parsed together."""
    lake = lake_of(tmp_path / "lake", 40, size=3)

    def swap(statistics: thrift.Struct) -> None:
        statistics[1], statistics[2], statistics[5], statistics[6] = (statistics[n] for n in (2, 1, 6, 5))

    spoil_statistics(Path(lake, "f020.parquet"), swap)
    result = io.merge(pa.table({"id": [61], "x": ["new"]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated, result.target_count_after) == (0, 1, 120)


@pytest.mark.parametrize(
    "options", [{}, {"update_columns": ["x"]}, {"sequence_by": "ts"}], ids=["", "some", "sequence"]
)
@pytest.mark.parametrize("scope", ["all", "partitions"])
def test_wrong_bounds_delete_no_missing_row(io: Any, tmp_path: Path, options: dict[str, Any], scope: str) -> None:
    """A row of which the statistics say that the source does not have it is not deleted unread."""
    table = pa.table({"id": [1, 2, 3], "x": ["a", "b", "c"], "ts": [7, 7, 7]})
    lake = write_lake(tmp_path / "lake", {"p=1/f.parquet": table, "p=2/f.parquet": table})

    def raise_bounds(statistics: thrift.Struct) -> None:
        for bound in (1, 2, 5, 6):
            if bound in statistics:
                statistics[bound] = statistics[bound][0], (500 + bound % 2).to_bytes(8, "little")

    for folder in ("p=1", "p=2"):
        spoil_statistics(Path(lake, folder, "f.parquet"), raise_bounds)
    source = pa.table({"id": [1, 2], "x": ["n", "n"], "ts": [7, 7], "p": [1, 1]})
    result = io.merge(source, lake, "update", ["id", "p"], delete_missing=scope, **options)
    assert (result.updated, result.deleted) == (2, 1 if scope == "partitions" else 4)
    assert sorted(row["id"] for row in rows(lake) if str(row["p"]) == "1") == [1, 2]
