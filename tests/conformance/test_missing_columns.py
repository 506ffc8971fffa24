"""Files that lack a column that others have: a reader of such a data set can still read it after a merge."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.test_common_types import READERS, _chunk, by_id, who_reads
from fsspeckit.api import dataset_io
from support import data_files, fingerprint, multiset, rows, write_lake


def file(number: int, has_x: bool, **more: Any) -> pa.Table:
    columns = {"id": [number, 10 * number], "y": [0.5, 1.5]}
    return pa.table({**columns, **({"x": ["old", None]} if has_x else {}), **more})


def source(number: int, x: str | None = "new", **more: Any) -> pa.Table:
    return pa.table({"id": [number], "y": [2.5], "x": pa.array([x], pa.string()), **more})


def columns(lake: str) -> dict[str, list[str]]:
    return {name: pq.ParquetFile(f"{lake}/{name}").schema_arrow.names for name in data_files(lake)}


def with_all_columns(files: dict[str, pa.Table], data: pa.Table) -> list[dict[str, Any]]:
    """The rows of files with those of the source in their place."""
    new = {row["id"] for row in data.to_pylist()}
    old = [{"x": None, **row} for table in files.values() for row in table.to_pylist() if row["id"] not in new]
    return [*old, *data.to_pylist()]


# Which of the files has x, the row to upsert, and whether DuckDB would refuse the data set unless all files had x
IN_PLACE = {
    "the first gains it, another lacks it": ("-x-", 1, "new", True),
    "the first gains it from none but nulls": ("-x-", 1, None, True),
    "all others have it": ("-xx", 1, "new", True),
    "a later file gains it": ("-x-", 3, "new", False),
    "a file that has it": ("-x-", 2, "new", False),
    "DuckDB does not read it": ("x--", 1, "new", False),
    "a new file that comes last": ("-x-", 9, "new", False),
}


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
@pytest.mark.parametrize("case", list(IN_PLACE))
def test_whoever_read_it_still_does(io: Any, tmp_path: Path, case: str, replace: str) -> None:
    having, number, value, adds = IN_PLACE[case]
    files = {f"f{n}.parquet": file(n, has == "x") for n, has in enumerate(having, 1)}
    lake = write_lake(tmp_path / "lake", files)
    if number == 9:  # new files are named `part-…`
        os.rename(f"{lake}/f1.parquet", f"{lake}/a1.parquet")
    before, old = who_reads(lake), fingerprint(lake)
    assert ("duckdb" in before) == (having[0] != "x")
    data = source(number, value)
    plan = io.plan(data, lake, "upsert", ["id"])
    result = io.merge(data, lake, "upsert", ["id"], replace=replace)
    found = [{"x": None, **row} for row in rows(lake)]
    assert sorted(found, key=by_id) == sorted(with_all_columns(files, data), key=by_id)
    assert who_reads(lake).keys() >= before.keys() and set(who_reads(lake).values()) == {result.target_count_after}
    assert plan.retyped_columns == result.retyped_columns == ({"x": "string"} if adds else {})
    lacking = sum("x" not in names for names in columns(lake).values())
    if adds:
        assert lacking == 0 and who_reads(lake).keys() == READERS.keys()
        assert len(result.retyped_files) == having.count("-") - 1 == len(plan.by_action("rewrite")) - 1
        assert any("DuckDB expects the columns of the first file" in hint for hint in plan.hints)
        assert {f.reason for f in plan.by_action("rewrite") if not f.matched_rows} <= {"gets x"}
    else:
        assert result.retyped_files == [] and len(fingerprint(lake).items() & old.items()) >= 2
    again = fingerprint(lake)
    assert io.merge(data, lake, "upsert", ["id"], replace=replace).rewritten_files == []
    assert fingerprint(lake) == again


@pytest.mark.parametrize("how", ["merge", "append"])
def test_a_new_file_that_comes_first(io: Any, tmp_path: Path, how: str) -> None:
    files = {f"z{n}.parquet": file(n, n == 2) for n in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files)
    assert "duckdb" in who_reads(lake)
    data = source(9)
    result: Any
    if how == "merge":
        assert io.plan(data, lake, "insert", ["id"]).retyped_columns == {"x": "string"}
        result = io.merge(data, lake, "insert", ["id"])
    else:
        result = io.write_dataset(data, lake, mode="append")
    assert multiset(rows(lake)) == multiset(with_all_columns(files, data))
    assert who_reads(lake) == dict.fromkeys(READERS, 7)
    assert len(result.retyped_files) == 2


PARTITIONS: dict[str, tuple[list[Any], Any, bool]] = {
    "int": ([10, 20], 30, False),
    "int, sorted as text": ([2, 3], 10, True),
    "text": (["b", "c"], "a", True),
    "text behind": (["b", "c"], "d", False),
    "day": ([dt.date(2024, 1, 1), dt.date(2024, 1, 2)], dt.date(2024, 1, 3), False),
    "day before": ([dt.date(2024, 1, 1), dt.date(2024, 1, 2)], dt.date(2023, 12, 31), True),
    "a folder that is there": ([10, 20], 20, False),
    "null": ([10, 20], None, False),
    "null before text": (["a", "b"], None, True),
}


@pytest.mark.parametrize("case", list(PARTITIONS))
def test_new_partitions(io: Any, tmp_path: Path, case: str) -> None:
    """Only a folder that comes first matters: a new day in a lake of many is no reason to write all the others."""
    (one, two), new, adds = PARTITIONS[case]
    files = {f"p={one}/f.parquet": file(1, False), f"p={two}/f.parquet": file(2, True)}
    lake = write_lake(tmp_path / "lake", {**files, f"p={two}/g.parquet": file(3, False)})
    before, old = who_reads(lake), fingerprint(lake)
    data = source(9, p=pa.array([new], pa.array([one]).type))
    plan = io.plan(data, lake, "upsert", ["id"])
    result = io.merge(data, lake, "upsert", ["id"])
    assert (len(result.retyped_files), bool(plan.retyped_columns)) == ((2, True) if adds else (0, False))
    refused = set() if new is not None else {"pandas"}  # null beside other values: whatever the files hold
    assert who_reads(lake).keys() >= before.keys() - refused
    assert result.target_count_after == 7 == len(rows(lake))
    if not adds:
        assert fingerprint(lake).items() >= old.items()


def test_folders_sort_in_two_ways(io: Any, tmp_path: Path) -> None:
    """DuckDB takes the files of a folder before its folders on disks, and goes by the whole name on object stores."""
    files = {"m/f.parquet": file(1, False), "n.parquet": file(2, False), "o.parquet": file(3, True)}
    for number in (1, 2):
        lake = write_lake(tmp_path / f"lake{number}", files)
        assert "duckdb" in who_reads(lake)
        result = io.merge(source(number), lake, "upsert", ["id"], replace="in_place")
        assert len(result.retyped_files) == 1 and who_reads(lake) == dict.fromkeys(READERS, 6)


def test_files_written_anew_have_all_columns(io: Any, tmp_path: Path) -> None:
    files = {f"f{n}.parquet": file(n, n == 2) for n in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files)
    io.write_parquet_dataset(source(9), lake, strategy="upsert", key_columns=["id"], rewrite_mode="full")
    assert who_reads(lake) == dict.fromkeys(READERS, 7)
    assert all("x" in names for names in columns(lake).values())


def test_fields_of_structs_are_read_in_any_order(io: Any, tmp_path: Path) -> None:
    """No reader that takes structs of different fields asks which file comes first."""
    one, two = pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.int64()})
    for kind in ("struct", "list"):
        short, wide = (one, two) if kind == "struct" else (pa.list_(one), pa.list_(two))
        value: Any = {"a": 1, "b": 2} if kind == "struct" else [{"a": 1, "b": 2}]
        files = {
            f"z{n}.parquet": pa.table({"id": [n], "s": pa.array([None], wide if n == 2 else short)}) for n in (1, 2, 3)
        }
        lake = write_lake(tmp_path / kind, files)
        before = who_reads(lake)
        result = io.merge(pa.table({"id": [1, 9], "s": pa.array([value] * 2, wide)}), lake, "upsert", ["id"])
        assert result.retyped_files == [] and who_reads(lake).keys() == before.keys() >= {"duckdb", "pandas"}


OTHERS: dict[str, Any] = {
    "text": pa.array(["a", None]),
    "categories": pa.array(["a", None]).dictionary_encode(),
    "struct": pa.array([{"a": 1, "b": "x"}, None]),
    "list": pa.array([[1, 2], None]),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "boolean": pa.array([True, None]),
    "decimal": pa.array([None, None], pa.decimal128(30, 3)),
    "instant": pa.array([None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "Europe/Berlin")),
    "untyped": pa.nulls(2),
    "required": pa.array([1, 2], pa.int32()),
}


@pytest.mark.parametrize("case", list(OTHERS))
def test_a_file_that_gets_a_column_keeps_all_else(io: Any, tmp_path: Path, case: str) -> None:
    """Row groups, codecs, encodings, indexes, entries, order, mode; the columns that it had are copied byte by byte."""
    values, count = OTHERS[case], 1000
    some = pa.table(
        {"id": range(count), "t": [f"t{i % 7}" for i in range(count)], "n": pa.array(range(count), pa.int32())}
    ).replace_schema_metadata({"owner": "us"})
    options: dict[str, Any] = {
        "row_group_size": 300,
        "compression": {"id": "zstd", "t": "gzip", "n": "none"},
        "write_page_index": True,
        "use_dictionary": ["t"],
        "column_encoding": {"id": "DELTA_BINARY_PACKED"},
        "sorting_columns": [pq.SortingColumn(0)],
    }
    lake = write_lake(tmp_path / "lake", {"b.parquet": some}, **options)
    field = pa.field("x", values.type, nullable=case != "required")
    wide = some.slice(0, 2).set_column(0, "id", [[-1, -2]]).append_column(field, values)
    write_lake(lake, {"a.parquet": some.slice(0, 1).set_column(0, "id", [[-3]]), "c.parquet": wide})
    path = f"{lake}/b.parquet"
    os.chmod(path, 0o640)
    old, old_bytes = pq.ParquetFile(path), Path(path).read_bytes()
    data = wide.slice(0, 1).set_column(0, "id", [[-3]]).set_column(1, "t", [["new"]])
    before = who_reads(lake)
    assert "duckdb" in before
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert result.retyped_files == [path] and result.bytes_copied > 4000 and result.reencoded_files == 0
    new, new_bytes = pq.ParquetFile(path), Path(path).read_bytes()
    nulls = field.with_nullable(True)
    assert new.read().equals(some.append_column(nulls, pa.nulls(count, values.type)))
    assert new.schema_arrow.field("x").type == values.type
    assert (new.schema_arrow.metadata, os.stat(path).st_mode & 0o777) == (old.schema_arrow.metadata, 0o640)
    assert who_reads(lake) == dict.fromkeys(READERS, count + 3)
    for group in range(4):
        was, now = old.metadata.row_group(group), new.metadata.row_group(group)
        assert (now.num_rows, now.sorting_columns) == (was.num_rows, was.sorting_columns)
        for leaf in range(3):
            assert _chunk(new_bytes, now.column(leaf)) == _chunk(old_bytes, was.column(leaf))
            assert now.column(leaf).statistics == was.column(leaf).statistics
        assert all(now.column(leaf).compression == "ZSTD" for leaf in range(3, now.num_columns))


def test_what_pandas_and_spark_say_of_columns_is_true(io: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    spark = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})
    for n in range(3):
        frame = pd.DataFrame({"id": [n], **({"note": ["old"]} if n == 1 else {})}, pd.Index([f"k{n}"], name="key"))
        table = pa.Table.from_pandas(frame)
        entries = {**table.schema.metadata, b"org.apache.spark.sql.parquet.row.metadata": spark.encode()}
        pq.write_table(table.replace_schema_metadata(entries), lake / f"f{n}.parquet")
    data = pd.DataFrame({"id": [0], "note": ["new"]}, pd.Index(["k0"], name="key"))
    io.merge(pa.Table.from_pandas(data), str(lake), "upsert", ["id"], replace="in_place")
    found = pd.read_parquet(lake).sort_values("id")
    assert found.index.tolist() == ["k0", "k1", "k2"] and found["note"].dropna().tolist() == ["new", "old"]
    metadata = pq.read_metadata(lake / "f2.parquet").metadata
    assert [c["name"] for c in json.loads(metadata[b"pandas"])["columns"]] == ["id", "key", "note"]
    fields = json.loads(metadata[b"org.apache.spark.sql.parquet.row.metadata"])["fields"]
    assert [(f["name"], f["type"]) for f in fields] == [("id", "long"), ("note", "string")]
    arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata[b"ARROW:schema"])))
    assert arrow.names == ["id", "key", "note"]


def test_int96_stays_int96(io: Any, tmp_path: Path) -> None:
    """Also where no file has all columns."""
    when = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))
    files = {"a": {}, "b": {"u": [1]}, "c": {"t": when}}
    lake = tmp_path / "lake"
    lake.mkdir()
    for n, (name, more) in enumerate(files.items()):
        table = pa.table({"id": [n], **more})
        pq.write_table(table, lake / f"{name}.parquet", use_deprecated_int96_timestamps=True)
    data = pa.table({"id": [0], "u": [7], "t": when})
    result = io.merge(data, str(lake), "upsert", ["id"], replace="in_place")
    assert result.retyped_columns.keys() == {"t", "u"} and len(result.retyped_files) == 2
    for name in files:
        schema = pq.ParquetFile(lake / f"{name}.parquet").schema
        assert {schema.column(i).name: schema.column(i).physical_type for i in range(3)}["t"] == "INT96"
    assert who_reads(str(lake)).keys() >= {"pandas", "pyarrow", "pyarrow dataset", "duckdb"}


def test_spark_reads_what_it_read(spark: Any, tmp_path: Path) -> None:
    files = {f"z{n}.parquet": file(n, n == 2) for n in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files)
    before = spark.read.parquet(lake).count()
    data = pa.concat_tables([source(1), source(9)])
    result = dataset_io("spark", spark=spark).merge(data, lake, "upsert", ["id"])
    assert (before, spark.read.parquet(lake).count(), len(result.retyped_files)) == (6, 7, 1)
    found = [row.asDict() for row in spark.read.parquet(lake).collect()]
    assert sorted(found, key=by_id) == sorted(with_all_columns(files, data), key=by_id)
    assert who_reads(lake) == dict.fromkeys(READERS, 7)
