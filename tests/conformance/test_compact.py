"""Compaction: the same rows in fewer files, with every engine; a second run changes nothing."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import compact as flow
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import ArgumentError, DatasetMergeError, LayoutError, TargetError
from support import all_names, data_files, fingerprint, multiset, rows, write_lake

BIG = 120_000
"""Rows of a row group that is copied."""


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + count)), "s": [f"s{i % 7}" for i in range(count)]})


def small_lake(root: Path, files: int = 20, rows_each: int = 10) -> str:
    return write_lake(root, {f"f{i:03d}.parquet": numbers(i * rows_each, rows_each) for i in range(files)})


def ids(lake: str) -> list[int]:
    """In the order of files by name."""
    return [row["id"] for row in rows(lake)]


def check_second_run(io: Any, lake: str, **options: Any) -> None:
    before = fingerprint(lake), all_names(lake)
    result = io.compact(lake, **options)
    assert (result.commits, result.new_files, result.removed_files) == (0, [], [])
    assert io.plan_compact(lake, **options).bins == ()
    assert (fingerprint(lake), all_names(lake)) == before


def test_small_files_become_one(io: Any, tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake")
    plan = io.plan_compact(lake)
    assert (plan.files_before, plan.files_after, plan.rows, plan.bins[0].reason) == (20, 1, 200, "small files")
    assert len(data_files(lake)) == 20
    result = io.compact(lake)
    assert (result.files_before, result.files_after, result.rows, result.commits) == (20, 1, 200, 1)
    assert data_files(lake) == [Path(result.new_files[0]).name]
    assert result.new_files[0].startswith(f"{lake}/f000.fk")
    assert len(result.removed_files) == 20
    assert ids(lake) == list(range(200))
    assert pq.ParquetFile(Path(lake, data_files(lake)[0])).num_row_groups == 1
    check_second_run(io, lake)


def test_partitions_stay_apart(io: Any, tmp_path: Path) -> None:
    files = {
        f"p={p}/f{i}.parquet": numbers(100 * i, 5) for p in ("1", "2", "__HIVE_DEFAULT_PARTITION__") for i in (0, 1)
    }
    lake = write_lake(tmp_path / "lake", files)
    before = multiset(rows(lake))
    result = io.compact(lake)
    assert result.files_after == 3
    assert multiset(rows(lake)) == before
    check_second_run(io, lake)


def test_only_some_partitions(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"m=0{m}/f{i}.parquet": numbers(i, 1) for m in (1, 2, 3) for i in range(4)})
    assert io.compact(lake, partitions=[{"m": 1}, {"m": "02"}]).files_after == 6
    assert [len([n for n in data_files(lake) if n.startswith(f"m=0{m}")]) for m in (1, 2, 3)] == [1, 1, 4]
    for wrong, message in (
        ([{"x": 1}], "the data set is partitioned by"),
        ([{"m": 9}], "There is no partition"),
        ([], "partitions is a list such as"),
        ("m=1", "partitions is a list such as"),
    ):
        with pytest.raises(ArgumentError, match=message):
            io.compact(lake, partitions=wrong)
    with pytest.raises(ArgumentError, match="the data set is not partitioned"):
        io.compact(small_lake(tmp_path / "flat", 2), partitions=[{"m": 1}])


def test_large_row_groups_are_copied_as_bytes(io: Any, tmp_path: Path) -> None:
    tables = {f"f{i}.parquet": numbers(BIG * i, BIG) for i in range(3)}
    lake = write_lake(tmp_path / "lake", tables, write_page_index=True, compression="zstd")
    old = Path(lake, "f1.parquet").read_bytes()
    start = pq.read_metadata(Path(lake, "f1.parquet")).row_group(0).column(0).data_page_offset
    result = io.compact(lake)
    new = Path(lake, data_files(lake)[0])
    assert old[start : start + 2000] in new.read_bytes()
    metadata = pq.read_metadata(new)
    assert [metadata.row_group(g).num_rows for g in range(3)] == [BIG] * 3
    assert metadata.row_group(1).column(0).has_offset_index and metadata.row_group(1).column(0).compression == "ZSTD"
    assert result.bytes_copied > 0.8 * result.bytes_written
    assert ids(lake) == list(range(3 * BIG))
    assert duckdb.sql(f"SELECT count(*) FROM '{new}' WHERE id = {BIG + 5}").fetchall() == [(1,)]
    check_second_run(io, lake)


def test_small_row_groups_between_large_ones_are_encoded(io: Any, tmp_path: Path) -> None:
    lake = write_lake(
        tmp_path / "lake",
        {
            "a.parquet": numbers(0, 10),
            "b.parquet": numbers(10, 10),
            "c.parquet": numbers(20, BIG),
            "d.parquet": numbers(20 + BIG, 30),
        },
    )
    io.compact(lake)
    metadata = pq.read_metadata(Path(lake, data_files(lake)[0]))
    assert [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)] == [20, BIG, 30]
    assert ids(lake) == list(range(50 + BIG))
    check_second_run(io, lake)


def test_a_file_of_small_row_groups(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": numbers(0, 1000)}, row_group_size=10)
    plan = io.plan_compact(lake)
    assert [b.reason for b in plan.bins] == ["small row groups"]
    io.compact(lake)
    assert pq.read_metadata(Path(lake, data_files(lake)[0])).num_row_groups == 1
    assert ids(lake) == list(range(1000))
    check_second_run(io, lake)


def test_a_large_file_is_cut(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": range(50_000), "x": [random.Random(1).random() for _ in range(50_000)]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table}, row_group_size=5_000)
    size = Path(lake, "f.parquet").stat().st_size
    result = io.compact(lake, target_size=size // 5)
    assert 4 <= result.files_after <= 6
    assert ids(lake) == list(range(50_000)), "names are in the order of rows"
    check_second_run(io, lake, target_size=size // 5)


def test_one_large_row_group_is_cut(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": range(50_000), "x": [f"{i:050d}" for i in range(50_000)]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table}, use_dictionary=False, compression="none")
    io.compact(lake, target_size="500kB")
    assert len(data_files(lake)) > 3
    assert ids(lake) == list(range(50_000))
    check_second_run(io, lake, target_size="500kB")


def test_commits_are_divided(io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "_COMMIT_BYTES", 1)
    monkeypatch.setattr(flow, "_FILES_PER_TASK", 0)
    lake = write_lake(tmp_path / "lake", {f"p={p}/f{i}.parquet": numbers(i, 1) for p in range(4) for i in range(3)})
    before = multiset(rows(lake))
    assert io.compact(lake).commits == 4
    assert multiset(rows(lake)) == before
    check_second_run(io, lake)


# -- what files hold


def test_names_that_are_too_long_are_cut(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {f"{letter * 123}.parquet": numbers(n, 1) for n, letter in enumerate("üé")})
    assert io.compact(lake).files_after == 1
    assert data_files(lake)[0].startswith("é" * 110 + ".fk") and sorted(ids(lake)) == [0, 1]


def test_zero_rows(io: Any, tmp_path: Path) -> None:
    none = numbers(0, 0)
    lake = write_lake(tmp_path / "lake", {"a.parquet": none, "b.parquet": numbers(0, 3), "c.parquet": none})
    assert io.compact(lake).files_after == 1
    assert ids(lake) == [0, 1, 2]
    check_second_run(io, lake)
    empty = write_lake(tmp_path / "empty", {"a.parquet": none, "b.parquet": none})
    assert io.compact(empty).files_after == 1
    assert pq.read_schema(Path(empty, data_files(empty)[0])).names == ["id", "s"]
    check_second_run(io, empty)


def test_a_column_of_nulls_takes_the_type_of_the_others(io: Any, tmp_path: Path) -> None:
    typed, nulls = pa.table({"id": [1], "x": ["a"]}), pa.table({"id": [2], "x": pa.nulls(1)})
    lake = write_lake(tmp_path / "lake", {"a.parquet": nulls, "b.parquet": typed})
    io.compact(lake)
    assert multiset(rows(lake)) == multiset([{"id": 1, "x": "a"}, {"id": 2, "x": None}])
    assert pq.read_schema(Path(lake, data_files(lake)[0])).field("x").type in (pa.string(), pa.large_string())
    check_second_run(io, lake)


def test_types_that_differ_are_unified(io: Any, tmp_path: Path) -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32()), "y": pa.array([1.5], pa.float32())})
    wide = pa.table({"y": pa.array([2.5], pa.float64()), "id": pa.array([2**40], pa.int64())})
    lake = write_lake(tmp_path / "lake", {"a.parquet": narrow, "b.parquet": wide})
    io.compact(lake)
    assert rows(lake) == [{"id": 1, "y": 1.5}, {"id": 2**40, "y": 2.5}]
    check_second_run(io, lake)


def test_no_file_has_the_common_schema(io: Any, tmp_path: Path) -> None:
    one = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([2**40], pa.int64())})
    two = pa.table({"a": pa.array([2**40], pa.int64()), "b": pa.array([2], pa.int32())})
    lake = write_lake(tmp_path / "lake", {"a.parquet": one, "b.parquet": two}, compression="zstd")
    io.compact(lake)
    assert rows(lake) == [{"a": 1, "b": 2**40}, {"a": 2**40, "b": 2}]
    assert pq.read_metadata(Path(lake, data_files(lake)[0])).row_group(0).column(0).compression == "ZSTD"
    check_second_run(io, lake)


@pytest.mark.parametrize("nullable", [True, False])
def test_entries_are_kept_when_no_file_has_the_common_schema(io: Any, tmp_path: Path, nullable: bool) -> None:
    """Those of the user, of GeoParquet and of pandas, whose index they name; and field ids, where a layout has them."""
    kept: dict[str, Any] = {"encoding": "WKB", "geometry_types": []}
    geo = {"version": "1.0.0", "columns": {"g": {**kept, "bbox": [0, 0, 1, 1]}}}
    frame = pd.DataFrame({"x": [1], "y": [2]}, index=pd.Index(["a"], name="k"))
    pandas = pa.Table.from_pandas(frame).select(["k", "x", "y"]).schema.metadata[b"pandas"]
    metadata = {"mine": "1", "geo": json.dumps(geo), "pandas": pandas}
    files = {}
    for name, (x, y) in {"a": (pa.int32(), pa.int64()), "b": (pa.int64(), pa.int32())}.items():
        fields = [pa.field("k", pa.string()), pa.field("x", x, nullable or name == "b"), pa.field("y", y)]
        fields = [f.with_metadata({"PARQUET:field_id": str(n)}) for n, f in enumerate(fields, 5)]
        columns = [pa.array([name] * 9), pa.array([1] * 9, x), pa.array([2] * 9, y)]
        files[f"{name}.parquet"] = pa.table(columns, schema=pa.schema(fields, metadata)).slice(name == "b")
    lake = write_lake(tmp_path / "lake", files)
    io.compact(lake)
    (path,) = Path(lake).iterdir()
    schema, entries = pq.read_schema(path), pq.read_metadata(path).metadata
    assert schema.types == [pa.string(), pa.int64(), pa.int64()] and len(rows(lake)) == 17
    assert entries[b"mine"] == b"1" and json.loads(entries[b"geo"])["columns"] == {"g": kept}
    assert list(pd.read_parquet(path).index) == ["a"] * 9 + ["b"] * 8
    assert [f.metadata[b"PARQUET:field_id"] for f in schema] == [b"5", b"6", b"7"] or not nullable


def test_files_that_lack_a_column_are_not_joined_with_the_others(io: Any, tmp_path: Path) -> None:
    short, long = pa.table({"id": [1]}), pa.table({"id": [2], "x": ["a"]})
    lake = write_lake(tmp_path / "lake", {"a.parquet": short, "b.parquet": short, "c.parquet": long, "d.parquet": long})
    before = duckdb.sql(f"SELECT count(*) FROM '{lake}/*.parquet'").fetchall()
    assert io.compact(lake).files_after == 2
    assert duckdb.sql(f"SELECT count(*) FROM '{lake}/*.parquet'").fetchall() == before
    check_second_run(io, lake)


def test_codecs_that_differ(io: Any, tmp_path: Path) -> None:
    for name, codec in (("a", "gzip"), ("b", "zstd"), ("c", "zstd")):
        write_lake(tmp_path / "lake", {f"{name}.parquet": numbers(ord(name) * BIG, BIG)}, compression=codec)
    lake = str(tmp_path / "lake")
    io.compact(lake)
    metadata = pq.read_metadata(Path(lake, data_files(lake)[0]))
    codecs = {metadata.row_group(g).column(c).compression for g in range(metadata.num_row_groups) for c in (0, 1)}
    assert len(codecs) == 1
    assert metadata.num_rows == 3 * BIG
    check_second_run(io, lake)


TYPES: dict[str, Callable[[int], pa.Array]] = {
    "nested": lambda n: pa.array([{"a": [n, None], "b": {"c": str(n)}}, None]),
    "map": lambda n: pa.array([[("k", n)], None], pa.map_(pa.string(), pa.int64())),
    "dictionary": lambda n: pa.array([f"x{n}", None]).dictionary_encode(),
    "large": lambda n: pa.array([f"x{n}", None], pa.large_string()),
    "decimal": lambda n: pa.array([Decimal(n) / 4, None], pa.decimal128(20, 2)),
    "timestamp": lambda n: pa.array([dt.datetime(2024, 1, 1 + n % 28, tzinfo=dt.UTC), None]),
    "nan": lambda n: pa.array([float("nan") if n % 2 else -0.0, float(n)]),
    "binary": lambda n: pa.array([bytes([n]), b""]),
    "date": lambda n: pa.array([dt.date(1500, 1, 1 + n), None]),
    "null": lambda n: pa.nulls(2),
    "bool": lambda n: pa.array([True, None]),
    "uint64": lambda n: pa.array([2**64 - 1 - n, None], pa.uint64()),
    "time": lambda n: pa.array([dt.time(n), None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(io: Any, tmp_path: Path, name: str) -> None:
    tables = {f"f{n}.parquet": pa.table({"id": [n, n], "x": TYPES[name](n)}) for n in range(5)}
    lake = write_lake(tmp_path / "lake", tables)
    before, schema = [repr(row) for row in rows(lake)], pq.read_schema(Path(lake, "f0.parquet"))
    io.compact(lake)
    assert [repr(row) for row in rows(lake)] == before
    assert pq.read_schema(Path(lake, data_files(lake)[0])).equals(schema, check_metadata=False)
    check_second_run(io, lake)


def test_int96_stays_int96(io: Any, tmp_path: Path) -> None:
    tables = {
        f"f{n}.parquet": pa.table({"t": pa.array([dt.datetime(2024, 1, n + 1)], pa.timestamp("ns"))}) for n in range(3)
    }
    lake = write_lake(tmp_path / "lake", tables, use_deprecated_int96_timestamps=True)
    before = rows(lake)
    io.compact(lake)
    assert rows(lake) == before
    assert pq.read_metadata(Path(lake, data_files(lake)[0])).schema.column(0).physical_type == "INT96"
    check_second_run(io, lake)


def test_bounds_of_nan(io: Any, tmp_path: Path) -> None:
    """PyArrow's bounds leave NaN out, and readers for whom NaN is the greatest value would skip the row group."""
    with_nan, without = ([1.0, float("nan")], [2.0, 3.0])
    tables = {f"f{i}.parquet": pa.table({"x": v * (BIG // 2)}) for i, v in enumerate((with_nan, without))}
    lake = write_lake(tmp_path / "lake", tables)
    io.compact(lake)
    found = duckdb.sql(f"SELECT count(*) FROM '{lake}/*.parquet' WHERE x > 5").fetchall()
    assert found == [(BIG // 2,)] or io.compact(lake).commits == 0  # copied row groups have the bounds of their writer


# -- key-value entries


def with_entries(path: Path, table: pa.Table, entries: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(entries), path)


def entries_of(lake: str) -> dict[bytes, bytes]:
    return dict(pq.read_metadata(Path(lake, data_files(lake)[0])).metadata)


def test_entries_that_agree_are_kept(io: Any, tmp_path: Path) -> None:
    for i in range(3):
        with_entries(tmp_path / f"lake/f{i}.parquet", numbers(i, 1), {"owner": "me"})
    lake = str(tmp_path / "lake")
    io.compact(lake)
    assert entries_of(lake)[b"owner"] == b"me"


def test_entries_that_differ_are_refused(io: Any, tmp_path: Path) -> None:
    for i in range(3):
        with_entries(tmp_path / f"lake/f{i}.parquet", numbers(i, 1), {"owner": str(i)})
    lake = str(tmp_path / "lake")
    before = fingerprint(lake)
    for call in (io.compact, io.plan_compact):
        with pytest.raises(LayoutError, match=r"f0.parquet and .*f1.parquet have different key-value entries 'owner'"):
            call(lake)
    assert fingerprint(lake) == before


def test_entries_of_known_writers_are_dropped(io: Any, tmp_path: Path) -> None:
    for i in range(3):
        with_entries(tmp_path / f"lake/f{i}.parquet", numbers(i, 1), {"hoodie_min_record_key": str(i), "a": "b"})
    lake = str(tmp_path / "lake")
    io.compact(lake)
    assert b"hoodie_min_record_key" not in entries_of(lake)
    assert entries_of(lake)[b"a"] == b"b"


def test_an_index_of_row_numbers_is_dropped(io: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    (tmp_path / "lake").mkdir()
    for i in range(3):
        pandas.DataFrame({"id": [i]}).to_parquet(tmp_path / f"lake/f{i}.parquet")
    lake = str(tmp_path / "lake")
    io.compact(lake)
    assert pandas.read_parquet(lake).index.tolist() == [0, 1, 2]


def test_streams_are_remembered(io: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    for number in range(4):
        for app in ("a", "b")[: 1 + number % 2]:
            row = pa.table({"id": [f"{app}{number}"]})
            io.merge(row, lake, "insert", ["id"], batch=Batch(app, number))
    io.compact(lake)
    entries = entries_of(lake)
    assert [json.loads(entries[f"fsspeckit.stream.{app}".encode()])["batch"] for app in ("a", "b")] == [3, 3]
    assert io.merge(pa.table({"id": ["other"]}), lake, "insert", ["id"], batch=Batch("a", 3)).inserted == 0


# -- sort


def shuffled(count: int, seed: int) -> list[int]:
    values = list(range(count))
    random.Random(seed).shuffle(values)
    return values


def test_rows_are_sorted(io: Any, tmp_path: Path) -> None:
    order = shuffled(20_000, 1)
    files = {f"f{i}.parquet": pa.table({"id": order[i::5], "x": [str(v) for v in order[i::5]]}) for i in range(5)}
    lake = write_lake(tmp_path / "lake", files)
    size = sum(Path(lake, name).stat().st_size for name in data_files(lake))
    options: dict[str, Any] = {"sort_by": "id", "target_size": size // 5}
    assert io.plan_compact(lake, **options).bins[0].reason == "not sorted"
    io.compact(lake, **options)
    assert len(data_files(lake)) > 2
    assert ids(lake) == list(range(20_000))
    assert all(row["x"] == str(row["id"]) for row in rows(lake))
    check_second_run(io, lake, **options)


def test_only_files_that_overlap_are_sorted_again(io: Any, tmp_path: Path) -> None:
    files = {f"f{i}.parquet": numbers(i * BIG, BIG) for i in range(3)}
    files["g.parquet"] = numbers(BIG + 7, 10)
    lake = write_lake(tmp_path / "lake", files)
    untouched = {name: data for name, data in fingerprint(lake).items() if name in ("f0.parquet", "f2.parquet")}
    size = Path(lake, "f0.parquet").stat().st_size
    io.compact(lake, sort_by="id", target_size=size)
    assert untouched.items() <= fingerprint(lake).items()
    assert len(rows(lake)) == 3 * BIG + 10
    check_second_run(io, lake, sort_by="id", target_size=size)


@pytest.mark.parametrize("undoable", [False, True])
def test_small_files_around_another_in_sort_order(io: Any, tmp_path: Path, undoable: bool) -> None:
    """Joined, `f0` and `f2` would overlap `f1`: it has a good size, or is sorted itself by the same commit."""
    f1 = numbers(10, 10)
    files = {"f0.parquet": numbers(0, 10), "f1.parquet": f1, "f2.parquet": numbers(20, 10)}
    shuffled_files = files | {"f1.parquet": f1.take(shuffled(10, 1)), "g.parquet": f1.take(shuffled(10, 2))}
    large = {"f0.parquet": numbers(0, 10), "f1.parquet": numbers(10, BIG), "f2.parquet": numbers(BIG + 10, 10)}
    lake = write_lake(tmp_path / "large", large)
    size = Path(lake, "f1.parquet").stat().st_size
    before = fingerprint(lake)
    io.compact(lake, sort_by="id", target_size=size, undoable=undoable)
    assert fingerprint(lake) == before
    lake = write_lake(tmp_path / "unsorted", shuffled_files)
    (chosen,) = io.plan_compact(lake, sort_by="id").bins
    assert (chosen.files, chosen.reason) == (2, "not sorted")


@pytest.mark.parametrize("write_statistics", [True, False])
def test_empty_files_go_with_the_sorted_ones(io: Any, tmp_path: Path, write_statistics: bool) -> None:
    """An undoable compaction is one commit, and so they cannot be joined with them later."""
    files = {f"f{i}.parquet": numbers(0, 10).take(shuffled(10, i)) for i in range(2)}
    lake = write_lake(tmp_path / "lake", files | {"a.parquet": numbers(0, 0)}, write_statistics=write_statistics)
    assert io.compact(lake, sort_by="id", undoable=True).files_after == 1
    assert ids(lake) == sorted([*range(10)] * 2)
    check_second_run(io, lake, sort_by="id", undoable=True)


def test_sort_by_several_columns_and_nulls(io: Any, tmp_path: Path) -> None:
    random_rows = [
        {"c": random.Random(i).choice(["x", "y", None]), "id": random.Random(i).choice([None, *range(9)]), "n": i}
        for i in range(3_000)
    ]
    files = {f"f{i}.parquet": pa.Table.from_pylist(random_rows[i::3]) for i in range(3)}
    lake = write_lake(tmp_path / "lake", files)
    options: dict[str, Any] = {"sort_by": ["c", "id"], "target_size": "10kB"}
    before = multiset(rows(lake))
    io.compact(lake, **options)
    found = [((r["c"] is None, r["c"] or ""), (r["id"] is None, r["id"] or 0)) for r in rows(lake)]
    assert found == sorted(found)
    assert multiset(rows(lake)) == before
    check_second_run(io, lake, **options)


def test_sort_without_statistics(io: Any, tmp_path: Path) -> None:
    files = {f"f{i}.parquet": pa.table({"id": shuffled(500, i)}) for i in range(3)}
    lake = write_lake(tmp_path / "lake", files, write_statistics=False)
    io.compact(lake, sort_by="id")
    assert ids(lake) == sorted(list(range(500)) * 3)
    check_second_run(io, lake, sort_by="id")


def test_sort_with_nan(io: Any, tmp_path: Path) -> None:
    files = {f"f{i}.parquet": pa.table({"x": [2.0, float("nan"), float(i), None]}) for i in range(3)}
    lake = write_lake(tmp_path / "lake", files)
    io.compact(lake, sort_by="x")
    assert [str(row["x"]) for row in rows(lake)] == [
        *map(str, sorted([2.0] * 3 + [0.0, 1.0, 2.0])),
        *["nan"] * 3,
        *["None"] * 3,
    ]
    check_second_run(io, lake, sort_by="x")


def test_sort_by_a_column_that_some_files_lack(io: Any, tmp_path: Path) -> None:
    """All rows of such a file are null there, and so in order."""
    files = {f"f{i}.parquet": numbers(10 * i, 10).append_column("at", pa.array(shuffled(10, i))) for i in range(2)}
    old = {f"g{i}.parquet": numbers(100 + 10 * i, 10) for i in range(2)}
    lake = write_lake(tmp_path / "lake", files | old)
    result = io.compact(lake, sort_by=["at"])
    assert (result.files_before, result.files_after) == (4, 2)
    assert [row.get("at") for row in rows(lake)] == [*sorted([*range(10)] * 2), *[None] * 20]
    assert sorted(ids(lake)) == [*range(20), *range(100, 120)] and ids(lake)[20:] == [*range(100, 120)]
    check_second_run(io, lake, sort_by=["at"])


def test_sort_with_nan_that_statistics_leave_out(io: Any, tmp_path: Path) -> None:
    """The bounds of these files do not overlap, and their rows are not in order."""
    nan = float("nan")
    columns = {"a.parquet": [nan, 1.0], "b.parquet": [2.0, 2.5], "c.parquet": [3.0, nan]}
    lake = write_lake(tmp_path / "lake", {name: pa.table({"x": values}) for name, values in columns.items()})
    io.compact(lake, sort_by="x")
    assert [repr(row["x"]) for row in rows(lake)] == ["1.0", "2.0", "2.5", "3.0", "nan", "nan"]
    check_second_run(io, lake, sort_by="x")


def test_columns_that_cannot_be_sorted_by(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [1], "l": [[1]]})})
    with pytest.raises(ArgumentError, match="sort_by names 'other'"):
        io.compact(lake, sort_by="other")
    with pytest.raises(ArgumentError, match="cannot be sorted by 'l'"):
        io.compact(lake, sort_by="l")


# -- refusals


def test_an_unreadable_file_is_refused(io: Any, tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", 3)
    Path(lake, "g.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    before = fingerprint(lake)
    for call in (io.compact, io.plan_compact):
        with pytest.raises(DatasetMergeError, match=r"Cannot read .*g\.parquet") as caught:
            call(lake)
        assert "\n" not in str(caught.value)
    assert fingerprint(lake) == before


def test_a_damaged_page_is_refused(io: Any, tmp_path: Path) -> None:
    lake = write_lake(
        tmp_path / "lake",
        {f"f{i}.parquet": numbers(i, 1000) for i in range(3)},
        write_page_checksum=True,
        compression="none",
    )
    damaged = Path(lake, "f1.parquet")
    raw = bytearray(damaged.read_bytes())
    raw[len(raw) // 3] ^= 0xFF
    damaged.write_bytes(bytes(raw))
    before = fingerprint(lake)
    with pytest.raises(DatasetMergeError, match=r"f1.parquet"):
        io.compact(lake)
    assert fingerprint(lake) == before


def test_bad_arguments(io: Any, tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", 2)
    with pytest.raises(TargetError, match="There is no data set at"):
        io.compact(str(tmp_path / "missing"))
    for wrong in ("many", 0, -1, True, None):
        with pytest.raises(ArgumentError, match="target_size must be a size such as 256MB"):
            io.compact(lake, target_size=wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sort'"):
        io.compact(lake, sort="id")


# -- random lakes


@pytest.mark.parametrize("seed", range(6))
def test_random_lakes(io: Any, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    files, start = {}, 0
    for number in range(draw.randint(2, 30)):
        count = draw.choice([0, 1, 5, 200, 3_000])
        values = [draw.randint(0, 10_000) for _ in range(count)]
        files[f"p={draw.randint(1, 3)}/f{number:02d}.parquet"] = pa.table(
            {
                "id": pa.array(values, pa.int64()),
                "n": pa.array(range(start, start + count), pa.int64()),
                "s": pa.array([draw.choice(["a", "b", None]) for _ in range(count)], pa.string()),
                "f": pa.array([draw.random() for _ in range(count)], pa.float64()),
            }
        )
        start += count
    group = draw.choice([7, 100, 10_000])
    lake = write_lake(tmp_path / "lake", files, row_group_size=group, compression=draw.choice(["snappy", "zstd"]))
    options: dict[str, Any] = {"target_size": draw.choice(["3kB", "40kB", "256MB"])}
    if draw.random() < 0.5:
        options["sort_by"] = draw.choice(["id", ["s", "id"]])
    before = multiset(rows(lake))
    io.compact(lake, **options)
    assert multiset(rows(lake)) == before
    read = f"SELECT count(*), sum(n), sum(id) FROM read_parquet('{lake}/**/*.parquet', hive_partitioning = true)"
    expected = (start, sum(range(start)), sum(sum(t.column("id").to_pylist()) for t in files.values()))
    if start:
        assert duckdb.sql(read).fetchall() == [expected]
        found = pl.scan_parquet(f"{lake}/**/*.parquet").select(pl.len(), pl.col("n").sum(), pl.col("id").sum())
        assert found.collect().rows() == [expected]
    check_second_run(io, lake, **options)
