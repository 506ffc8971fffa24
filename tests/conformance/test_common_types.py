"""Files of one data set whose types differ: a reader of such a data set can still read it after a merge."""

from __future__ import annotations

import datetime as dt
import glob
import json
import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from damage import nothing_changes
from fsspeckit.api import dataset_io
from fsspeckit.core.errors import SchemaMismatchError
from support import data_files, fingerprint, multiset, rows, write_lake

READERS: dict[str, Callable[[str], Any]] = {
    "pandas": pd.read_parquet,
    "pyarrow": pq.read_table,
    "pyarrow dataset": lambda lake: ds.dataset(lake).to_table(),
    "polars": pl.read_parquet,
    "polars scan": lambda lake: pl.scan_parquet(f"{lake}/**/*.parquet").collect(),
    "duckdb": lambda lake: duckdb.sql(f"SELECT * FROM '{lake}/**/*.parquet'").fetchall(),
}


def who_reads(lake: str) -> dict[str, int]:
    """The rows that each reader gives; those that refuse the data set are left out."""
    found = {}
    for name, read in READERS.items():
        try:
            found[name] = len(read(lake))
        except (pa.ArrowException, pl.exceptions.PolarsError, duckdb.Error):
            continue
    return found


def types(lake: str, column: str = "x") -> dict[str, pa.DataType]:
    return {name: pq.ParquetFile(f"{lake}/{name}").schema_arrow.field(column).type for name in data_files(lake)}


def by_id(row: dict[str, Any]) -> int:
    return int(row["id"])


def file(ids: list[int], values: list[Any], dtype: pa.DataType) -> pa.Table:
    return pa.table({"id": ids, "x": pa.array(values, dtype), "y": [float(i) for i in ids]})


INT, LONG = pa.int32(), pa.int64()
MILLIS, MICROS = pa.timestamp("ms"), pa.timestamp("us")
NOON, LATER = dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 1, 1, 12, 0, 0, 5)
LESS, MORE = pa.decimal128(6, 2), pa.decimal128(9, 4)
UNTYPED, NAMED = pa.struct({"a": pa.null()}), pa.struct({"a": pa.string()})
TEXT = pa.string()
CATEGORIES = pa.dictionary(pa.int8(), TEXT)

# The types of three files with a value each, the value that the source brings, and the id of the row that it is for
CASES: dict[str, tuple[list[tuple[pa.DataType, Any]], Any, int]] = {
    "nulls, text for the last": ([(pa.null(), None)] * 3, "new", 3),
    "nulls, text for the first": ([(pa.null(), None)] * 3, "new", 1),
    "nulls, a new row": ([(pa.null(), None)] * 3, "new", 9),
    "nulls behind text": ([(TEXT, "old"), (pa.null(), None), (pa.null(), None)], "new", 2),
    "nulls behind text, a new row": ([(TEXT, "old"), (pa.null(), None), (pa.null(), None)], "new", 9),
    "nulls behind categories": ([(CATEGORIES, "old"), (pa.null(), None), (CATEGORIES, "old")], "new", 2),
    "nulls behind categories, a new row": ([(CATEGORIES, "old"), (pa.null(), None)], "new", 9),
    "nulls before text of nulls": ([(pa.null(), None), (TEXT, None), (TEXT, None)], "new", 2),
    "int and long, for an int": ([(INT, 1), (LONG, 2), (INT, 3)], 2**40, 3),
    "int and long, for a long": ([(INT, 1), (LONG, 2), (INT, 3)], 2**40, 2),
    "int and long, a new row": ([(INT, 1), (LONG, 2), (INT, 3)], 2**40, 9),
    "long and int": ([(LONG, 1), (INT, 2), (INT, 3)], 2**40, 2),
    "float and double": ([(pa.float32(), 1.5), (pa.float64(), 2.5), (pa.float32(), 3.5)], 0.1, 2),
    "int and double": ([(INT, 1), (pa.float64(), 2.0), (INT, 3)], 0.5, 3),
    "decimals": ([(LESS, Decimal("1.00")), (MORE, Decimal("2.0000")), (LESS, None)], Decimal("3.0001"), 2),
    "millis and micros": ([(MILLIS, NOON), (MICROS, NOON), (MILLIS, NOON)], LATER, 2),
    "structs of nulls": ([(UNTYPED, {"a": None})] * 3, {"a": "new"}, 2),
    "lists of nulls": ([(pa.list_(pa.null()), [None])] * 3, ["new"], 2),
    "a null that becomes a struct": ([(pa.null(), None)] * 3, {"a": "new", "b": 1}, 2),
}


def lake_of(case: str, folder: Path) -> tuple[str, pa.Table, list[dict[str, Any]]]:
    """The data set of a case, its source, and the rows that there are to be."""
    files, value, for_id = CASES[case]
    tables = {f"f{n}.parquet": file([n, 10 * n], [v, v], dtype) for n, (dtype, v) in enumerate(files, 1)}
    data = pa.table({"id": [for_id], "x": pa.array([value]), "y": [0.5]})
    expected = [row for table in tables.values() for row in table.to_pylist() if row["id"] != for_id]
    return write_lake(folder, tables), data, [*expected, *data.to_pylist()]


@pytest.mark.parametrize("case", list(CASES))
def test_whoever_read_it_still_does(io: Any, tmp_path: Path, case: str) -> None:
    lake, data, expected = lake_of(case, tmp_path / "lake")
    before = who_reads(lake)
    assert {"pyarrow", "pandas", "duckdb"} & before.keys()
    plan = io.plan(data, lake, "upsert", ["id"])
    result = io.merge(data, lake, "upsert", ["id"])
    assert sorted(rows(lake), key=by_id) == sorted(expected, key=by_id)
    assert who_reads(lake).keys() >= before.keys() | READERS.keys()
    assert set(who_reads(lake).values()) == {len(expected)}
    assert len(set(types(lake).values())) == 1, types(lake)
    assert plan.retyped_columns == result.retyped_columns == {"x": str(next(iter(types(lake).values())))}
    assert {f.matched_rows for f in plan.by_action("rewrite")} == ({0} if result.inserted else {0, 1})
    assert len(plan.by_action("rewrite")) == len(result.rewritten_files)
    assert len(result.retyped_files) == len(result.rewritten_files) - result.updated
    assert set(result.retyped_files) <= set(result.rewritten_files)
    again = fingerprint(lake)
    repeated = io.merge(data, lake, "upsert", ["id"])
    assert (repeated.retyped_columns, repeated.retyped_files, fingerprint(lake)) == ({}, [], again)


@pytest.mark.parametrize("case", ["nulls, a new row", "int and long, a new row"])
def test_an_append_brings_the_other_files_along(io: Any, tmp_path: Path, case: str) -> None:
    lake, data, expected = lake_of(case, tmp_path / "lake")
    old = {name for name, dtype in types(lake).items() if dtype not in (LONG, TEXT)}
    result = io.write_dataset(data, lake, mode="append")
    assert multiset(rows(lake)) == multiset(expected)
    assert who_reads(lake) == dict.fromkeys(READERS, len(expected))
    assert len(result.retyped_files) == len(old) and result.rows == 1
    assert sorted(f.path for f in result.files if f.operation == "rewritten") == sorted(result.retyped_files)
    again = fingerprint(lake)
    repeated = io.write_dataset(data, lake, mode="append")
    assert repeated.retyped_files == [] and fingerprint(lake).items() >= again.items()


def test_values_that_every_file_can_hold_bring_none_along(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": file([1], [1], INT), "b.parquet": file([2], [2], LONG), "c.parquet": file([3], [3], INT)}
    lake = write_lake(tmp_path / "lake", files)
    before, others = who_reads(lake), fingerprint(lake)
    result = io.merge(pa.table({"id": [3, 4], "x": [30, 40], "y": [0.0, 0.0]}), lake, "upsert", ["id"])
    assert (result.retyped_columns, result.retyped_files, len(result.rewritten_files)) == ({}, [], 1)
    assert {name: fingerprint(lake)[name] for name in ("a.parquet", "b.parquet")}.items() <= others.items()
    assert who_reads(lake).keys() == before.keys()


def test_nulls_do_not_give_a_column_its_type(io: Any, tmp_path: Path) -> None:
    """Text that is all null, into files that have no type for it: PyArrow refuses a mixture of these too."""
    untyped = {f"{name}.parquet": file([n], [None], pa.null()) for n, name in enumerate("ab")}
    lake = write_lake(tmp_path / "lake", untyped)
    others = fingerprint(lake)
    data = pa.table({"id": [1, 2], "x": pa.nulls(2, TEXT), "y": [0.5, 0.5]})
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert (result.inserted, result.updated, result.retyped_columns) == (1, 1, {})
    io.write_dataset(data.set_column(0, "id", [[3, 4]]), lake, mode="append")
    assert set(types(lake).values()) == {pa.null()}
    assert fingerprint(lake)["a.parquet"] == others["a.parquet"]
    assert who_reads(lake) == dict.fromkeys(READERS, 5)


def test_a_merge_that_changes_no_row_changes_no_type(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": file([1], [None], pa.null()), "b.parquet": file([2], ["old"], TEXT)}
    lake = write_lake(tmp_path / "lake", files)
    with nothing_changes(lake):
        result = io.merge(files["b.parquet"], lake, "upsert", ["id"])
    assert (result.updated, result.rewritten_files, result.retyped_columns) == (1, [], {})


@pytest.mark.parametrize("way", ["keys", "feed", "sequence"])
def test_rows_that_delete_change_no_type(io: Any, tmp_path: Path, way: str) -> None:
    """Nothing of them is stored."""
    types = (pa.int32(), pa.int64(), pa.int32())
    files = {
        f"f{n}.parquet": pa.table({"id": pa.array([n * 10, n * 10 + 1], dtype), "ts": pa.array([1, 1], dtype)})
        for n, dtype in enumerate(types)
    }
    lake = write_lake(tmp_path / "lake", files)
    before = fingerprint(lake)
    if way == "keys":
        result = io.delete(lake, keys=[0, 2**40], key_columns=["id"])
    else:
        feed = pa.table({"id": [0, 2**40], "ts": [2**40 if way == "sequence" else 1, 1], "op": [True, True]})
        sequence = {"sequence_by": "ts"} if way == "sequence" else {}
        result = io.merge(feed, lake, "upsert", ["id"], delete_column="op", **sequence)
    assert (result.deleted, dict(result.retyped_columns)) == (1, {})
    assert sum(fingerprint(lake).get(name) == of for name, of in before.items()) == 2


def test_a_key_that_grows(io: Any, tmp_path: Path) -> None:
    tables = [pa.table({"id": pa.array([n], INT), "y": [1.5]}) for n in (1, 2)]
    files = {"a.parquet": tables[0], "b.parquet": tables[1], "c.parquet": pa.table({"id": [3], "y": [1.5]})}
    lake = write_lake(tmp_path / "lake", files)
    result = io.merge(pa.table({"id": [2, 2**40], "y": [2.5, 2.5]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated, len(result.retyped_files)) == (1, 1, 1)
    assert set(types(lake, "id").values()) == {LONG}
    assert who_reads(lake) == dict.fromkeys(READERS, 4)
    assert sorted(row["id"] for row in rows(lake)) == [1, 2, 3, 2**40]


def test_several_columns_and_partitions(io: Any, tmp_path: Path) -> None:
    def part(n: int, x: Any, z: Any) -> pa.Table:
        return pa.table({"id": [n], "x": pa.array([x], INT if z is None else LONG), "z": pa.array([z], None), "y": [n]})

    files = {f"p={n}/f.parquet": part(n, n, "old" if n == 3 else None) for n in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [1], "x": [2**40], "z": ["new"], "y": [7], "p": [1]})
    result = io.merge(data, lake, "upsert", ["id"], replace="new_file")
    assert result.retyped_columns == {"x": "int64", "z": "string"}
    assert [Path(path).parent.name for path in result.retyped_files] == ["p=2"]
    assert [Path(path).parent.name for path in sorted(result.removed_files)] == ["p=1", "p=2"]
    assert all(".fk" in path for path in result.rewritten_files) and len(data_files(lake)) == 3
    assert set(types(lake).values()) == {LONG} and set(types(lake, "z").values()) == {TEXT}
    assert who_reads(lake) == dict.fromkeys(READERS, 3)


# The types of three files, of which the first one goes
FIRST: dict[str, tuple[list[tuple[pa.DataType, Any]], pa.DataType]] = {
    "nulls behind text": ([(TEXT, "old"), (pa.null(), None), (TEXT, "more")], TEXT),
    "int behind long": ([(LONG, 1), (INT, 2), (LONG, 2**40)], LONG),
    "int behind double": ([(pa.float64(), 1.0), (LONG, 2), (pa.float64(), 3.5)], pa.float64()),
    "decimals": ([(MORE, Decimal("1.0000")), (LESS, None), (MORE, Decimal("3.0001"))], MORE),
}


def remove_first(io: Any, lake: str, how: str) -> Any:
    """Remove the rows of the first file, and so the file."""
    if how == "filters":
        return io.delete(lake, filters=[("id", "in", [1, 10])])
    if how == "partitions":
        old = pa.table({"id": [2, 20], "x": pa.nulls(2), "y": [2.0, 20.0], "p": [2, 2]})
        return io.write_dataset(old, lake, mode="overwrite_partitions", partitions=[{"p": 1}, {"p": 2}])
    return io.delete(lake, keys=[1, 10], key_columns=["id"])


@pytest.mark.parametrize("how", ["keys", "filters", "partitions"])
@pytest.mark.parametrize("case", list(FIRST))
def test_the_first_file_goes(io: Any, tmp_path: Path, case: str, how: str) -> None:
    """Readers take the types of the next file then."""
    files, common = FIRST[case]
    names = [f"p={n}/f.parquet" if how == "partitions" else f"f{n}.parquet" for n in (1, 2, 3)]
    tables = [file([n, 10 * n], [v, v], dtype) for n, (dtype, v) in enumerate(files, 1)]
    lake = write_lake(tmp_path / "lake", dict(zip(names, tables, strict=True)))
    before = who_reads(lake)
    assert {"pyarrow", "pandas", "duckdb"} <= before.keys()
    if how != "partitions":
        given = {"filters": [("id", "in", [1, 10])]} if how == "filters" else {"keys": [1, 10], "key_columns": ["id"]}
        plan = io.plan_delete(lake, **given)
        assert plan.retyped_columns == {"x": str(common)}
        assert any("narrower type of x than others may become the first one" in hint for hint in plan.hints)
    result = remove_first(io, lake, how)
    assert who_reads(lake).keys() >= before.keys()
    assert set(who_reads(lake).values()) == {4} and sorted(row["id"] for row in rows(lake)) == [2, 3, 20, 30]
    assert set(types(lake).values()) == {common}
    if how != "partitions":
        assert [Path(path).name.partition(".")[0] for path in result.retyped_files] == ["f2"]
        assert result.retyped_columns == {"x": str(common)}


def test_another_file_goes(io: Any, tmp_path: Path) -> None:
    """No file takes another type if the first one stays, or if all others have one type."""
    for first, rest, gone in ((LONG, INT, 2), (LONG, INT, 1), (INT, LONG, 2)):
        files = {f"f{n}.parquet": file([n], [n], first if n == 1 else rest) for n in (1, 2, 3)}
        lake = write_lake(tmp_path / f"{first}{gone}", files)
        before = fingerprint(lake)
        assert io.delete(lake, keys=[gone], key_columns=["id"]).retyped_files == []
        assert fingerprint(lake).items() <= before.items()


def test_a_file_that_gets_an_earlier_name(io: Any, tmp_path: Path) -> None:
    files = {
        "a.g.parquet": file([1], [1], LONG),
        "a.parquet": file([2], [2], INT),
        "b.parquet": file([3], [2**40], LONG),
    }
    lake = write_lake(tmp_path / "lake", files)
    io.merge(pa.table({"id": [2], "x": [5], "y": [0.5]}), lake, "update", ["id"], replace="new_file")
    assert who_reads(lake) == dict.fromkeys(READERS, 3)


def test_files_written_anew_in_any_order(io: Any, tmp_path: Path) -> None:
    files = {f"f{n}.parquet": file([n], [n], LONG if n == 1 else INT) for n in range(1, 6)}
    lake = write_lake(tmp_path / "lake", {**files, "f6.parquet": file([6], [2**40], LONG)})
    data = pa.table({"id": [1], "x": [7], "y": [0.5]})
    io.write_parquet_dataset(data, lake, strategy="upsert", key_columns=["id"], rewrite_mode="full")
    assert who_reads(lake) == dict.fromkeys(READERS, 6) and set(types(lake).values()) == {LONG}


def test_all_files_written_anew_have_one_type(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": file([1], [1], INT), "b.parquet": file([2], [2], LONG), "c.parquet": file([3], [3], INT)}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [1], "x": [2**40], "y": [0.5]})
    io.write_parquet_dataset(data, lake, strategy="upsert", key_columns=["id"], rewrite_mode="full")
    assert set(types(lake).values()) == {LONG}
    assert who_reads(lake) == dict.fromkeys(READERS, 3)


def test_a_file_that_cannot_take_the_type_refuses_the_merge(io: Any, tmp_path: Path) -> None:
    files = {"a.parquet": file([1], [2**53 + 1], LONG), "b.parquet": file([2], [0.5], pa.float64())}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [2], "x": [0.25], "y": [0.5]})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"a\.parquet holds 9007199254740993.*double"):
        io.merge(data, lake, "upsert", ["id"])


@pytest.mark.parametrize("value", [NOON, NOON.date()], ids=["for a timestamp", "for a date"])
def test_dates_beside_timestamps_refuse_the_merge(io: Any, tmp_path: Path, value: Any) -> None:
    """They have no common type, so no merge makes one of the files what readers do not take beside the other."""
    dates, times = file([1], [NOON.date()], pa.date32()), file([2], [NOON], MICROS)
    lake = write_lake(tmp_path / "lake", {"a.parquet": dates, "b.parquet": times})
    before, data = who_reads(lake), pa.table({"id": [1], "x": [value], "y": [0.5]})
    said = r"'x' is date32\[day\] in a\.parquet and timestamp\[us\] in b\.parquet.*Cast the files to one type"
    for call in (io.merge, io.plan):
        with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=said):
            call(data, lake, "upsert", ["id"])
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=said):
        io.write_dataset(data, lake, mode="append")
    assert who_reads(lake) == before != {}


def test_a_file_that_is_brought_along_keeps_all_else(io: Any, tmp_path: Path) -> None:
    """Row order, row groups, codecs, indexes, entries, sort order, mode; other columns are copied byte by byte."""
    many = pa.table(
        {
            "id": range(1000),
            "text": [f"t{i % 7}" for i in range(1000)],
            "x": pa.array(range(1000), INT),
            "none": pa.nulls(1000),
            "y": [i / 3 for i in range(1000)],
        }
    ).replace_schema_metadata({"owner": "us"})
    options: Mapping[str, Any] = {
        "row_group_size": 300,
        "compression": {"id": "zstd", "text": "gzip", "x": "zstd", "none": "zstd", "y": "none"},
        "write_page_index": True,
        "use_dictionary": ["text"],
        "column_encoding": {"x": "DELTA_BINARY_PACKED"},
        "sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(2)],
    }
    lake = write_lake(tmp_path / "lake", {"a.parquet": many}, **options)
    wide = many.slice(0, 1).set_column(2, "x", pa.array([5], LONG)).set_column(0, "id", [[-1]])
    write_lake(lake, {"b.parquet": wide})
    path = f"{lake}/a.parquet"
    os.chmod(path, 0o640)
    old, old_bytes = pq.ParquetFile(path), Path(path).read_bytes()
    data = wide.set_column(2, "x", [[2**40]]).set_column(3, "none", [["new"]])
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert result.retyped_files == [path] and result.bytes_copied > 5000
    new, new_bytes = pq.ParquetFile(path), Path(path).read_bytes()
    expected = many.set_column(2, "x", many.column("x").cast(LONG)).set_column(3, "none", pa.nulls(1000, TEXT))
    assert new.read().equals(expected)
    assert (new.schema_arrow.metadata, os.stat(path).st_mode & 0o777) == (old.schema_arrow.metadata, 0o640)
    assert new.num_row_groups == old.num_row_groups
    for group in range(4):
        before, after = old.metadata.row_group(group), new.metadata.row_group(group)
        assert (after.num_rows, after.sorting_columns) == (before.num_rows, before.sorting_columns)
        for leaf, name in enumerate(many.column_names):
            was, now = before.column(leaf), after.column(leaf)
            assert now.compression == was.compression and now.has_offset_index and now.has_column_index, name
            if name not in ("x", "none"):
                assert _chunk(new_bytes, now) == _chunk(old_bytes, was)
                assert now.statistics == was.statistics
        assert "DELTA_BINARY_PACKED" in after.column(2).encodings
        assert (after.column(2).statistics.min, after.column(2).statistics.max) == (
            group * 300,
            min(999, group * 300 + 299),
        )
        assert after.column(3).statistics.null_count == after.num_rows


def _chunk(data: bytes, chunk: pq.ColumnChunkMetaData) -> bytes:
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return data[start : start + chunk.total_compressed_size]


def test_what_pandas_says_of_its_columns_is_true(io: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    for n in range(3):
        ids = pd.Index([f"k{n}"], name="key")
        pd.DataFrame({"id": [n], "note": [None], "n": [None]}, ids).to_parquet(lake / f"f{n}.parquet")
    data = pd.DataFrame({"id": [1], "note": ["new"], "n": [7]}, pd.Index(["k1"], name="key"))
    io.merge(pa.Table.from_pandas(data), str(lake), "upsert", ["id"])
    found = pd.read_parquet(lake).sort_values("id")
    assert found.index.tolist() == ["k0", "k1", "k2"]
    assert found["note"].dropna().tolist() == ["new"] and found["n"].dropna().tolist() == [7]
    for path in glob.glob(f"{lake}/*.parquet"):
        entry = json.loads(pq.read_schema(path).metadata[b"pandas"])
        said = {column["name"]: column["pandas_type"] for column in entry["columns"]}
        assert said == {"id": "int64", "note": "unicode", "n": "int64", "key": "unicode"}
        assert entry["index_columns"] == ["key"]


def test_structs_that_gain_a_field_leave_the_others_alone(io: Any, tmp_path: Path) -> None:
    """A field that a file lacks is null to every reader that takes such files at all."""
    one, two = pa.struct({"a": LONG}), pa.struct({"a": LONG, "b": LONG})
    files = {"a.parquet": file([1], [{"a": 1}], one), "b.parquet": file([2], [{"a": 2, "b": 2}], two)}
    lake = write_lake(tmp_path / "lake", {**files, "c.parquet": file([3], [{"a": 3}], one)})
    before, others = who_reads(lake), fingerprint(lake)
    data = pa.table({"id": [1], "x": [{"a": 10, "b": 10}], "y": [0.5]})
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert (len(result.rewritten_files), result.retyped_columns) == (1, {})
    assert {n: fingerprint(lake)[n] for n in ("b.parquet", "c.parquet")}.items() <= others.items()
    assert who_reads(lake).keys() >= before.keys()


def test_spark_reads_what_it_read(spark: Any, tmp_path: Path) -> None:
    """Spark takes int for long, and refuses long for int."""
    io = dataset_io("spark", spark=spark)
    for case in ("long and int", "nulls, text for the last"):
        lake, data, expected = lake_of(case, tmp_path / case.replace(" ", "_"))
        result = io.merge(data, lake, "upsert", ["id"])
        found = [row.asDict(recursive=True) for row in spark.read.parquet(lake).collect()]
        assert sorted(found, key=by_id) == sorted(expected, key=by_id)
        assert len(result.retyped_files) == len(result.rewritten_files) - 1
        assert who_reads(lake) == dict.fromkeys(READERS, len(expected))
