"""`on_schema_change="evolve"`: new columns and wider types, and every file is brought along."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from conformance.test_common_types import READERS, by_id, who_reads
from row_lakes import consistent, refusal, refused
from support import data_files, fingerprint, rows, write_lake

EVOLVE: dict[str, Any] = {"on_schema_change": "evolve"}
INT, LONG = pa.int32(), pa.int64()


def file(number: int, rows: int = 2, **more: Any) -> pa.Table:
    ids = [10 * number + i for i in range(rows)]
    return pa.table({"id": ids, "n": pa.array([number] * rows, INT), "t": [f"t{i}" for i in ids], **more})


def lake_of_three(folder: Path, **options: Any) -> str:
    return write_lake(folder, {f"f{n}.parquet": file(n) for n in (1, 2, 3)}, **options)


def source(ids: list[int], n: Any = 7, **more: Any) -> pa.Table:
    columns = {"id": ids, "n": [n] * len(ids), "t": ["new"] * len(ids)}
    return pa.table({name: values for name, values in {**columns, **more}.items() if values is not None})


def schemas(lake: str) -> dict[str, pa.Schema]:
    return {name: pq.ParquetFile(f"{lake}/{name}").schema_arrow.remove_metadata() for name in data_files(lake)}


def check_readers(lake: str, columns: list[str], count: int) -> None:
    """Every reader sees the columns with its default options, and all rows."""
    assert who_reads(lake) == dict.fromkeys(READERS, count)
    assert pd.read_parquet(lake).columns.tolist() == columns
    assert pq.read_table(lake).column_names == columns == ds.dataset(lake).to_table().column_names
    assert pl.read_parquet(lake).columns == columns


@pytest.mark.parametrize("replace", ["in_place", "new_file"])
def test_a_new_column_goes_to_all_files(io: Any, tmp_path: Path, replace: Any) -> None:
    lake = lake_of_three(tmp_path / "lake")
    old = rows(lake)
    data = source([20, 99], new=["x", None])
    plan = io.plan(data, lake, "upsert", ["id"], **EVOLVE)
    result = io.merge(data, lake, "upsert", ["id"], replace=replace, **EVOLVE)
    expected = [{**row, "new": None} for row in old if row["id"] != 20] + data.to_pylist()
    assert sorted(rows(lake), key=by_id) == sorted(expected, key=by_id)
    assert (result.inserted, result.updated, result.changed) == (plan.inserted, plan.updated, 1) == (1, 1, 1)
    assert plan.added_columns == result.added_columns == {"new": "string"}
    assert plan.retyped_columns == result.retyped_columns == {}
    assert len(result.retyped_files) == 2 and result.reencoded_files == 0
    assert {f.reason for f in plan.by_action("rewrite") if not f.matched_rows} == {"gets new"}
    assert "New in the data set: new." in plan.hints[0] and "2 files" in plan.hints[0]
    consistent(result, lake)
    check_readers(lake, ["id", "n", "t", "new"], 7)
    assert len(set(schemas(lake).values())) == 1
    again = fingerprint(lake)
    repeated = io.merge(data, lake, "upsert", ["id"], **EVOLVE)
    assert (repeated.added_columns, repeated.retyped_files, fingerprint(lake)) == ({}, [], again)


WIDER: dict[str, tuple[pa.DataType, Any, pa.Array, pa.DataType]] = {
    "int": (INT, 1, pa.array([2**40]), LONG),
    "int of a double": (INT, 1, pa.array([2.0**40]), LONG),
    "short": (pa.int16(), 1, pa.array([2**20], INT), INT),
    "unsigned": (pa.uint32(), 1, pa.array([-1]), LONG),
    "float": (pa.float32(), 0.5, pa.array([0.1]), pa.float64()),
    "float of an int": (pa.float32(), 0.5, pa.array([2**24 + 1]), pa.float64()),
    "decimal": (pa.decimal128(5, 2), Decimal("1.25"), pa.array([Decimal("12345678.90")]), pa.decimal128(10, 2)),
    "decimal of an int": (pa.decimal128(5, 2), Decimal("1.25"), pa.array([10**12]), pa.decimal128(22, 2)),
    "list": (pa.list_(INT), [1], pa.array([[2**40]]), pa.list_(LONG)),
    "struct": (pa.struct({"a": INT}), {"a": 1}, pa.array([{"a": 2**40}]), pa.struct({"a": LONG})),
    "map": (
        pa.map_("string", INT),
        [("k", 1)],
        pa.array([[("k", 2**40)]], pa.map_("string", LONG)),
        pa.map_("string", LONG),
    ),
}


@pytest.mark.parametrize("key", [20, 99])
@pytest.mark.parametrize("case", list(WIDER))
def test_a_value_that_does_not_fit_widens_all_files(io: Any, tmp_path: Path, case: str, key: int) -> None:
    dtype, value, new, wide = WIDER[case]
    files = {f"f{n}.parquet": file(n, x=pa.array([value, None], dtype)) for n in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files)
    old, data = rows(lake), source([key], x=new)
    refused(io, data, lake, "would not survive.*on_schema_change='evolve'")
    plan = io.plan(data, lake, "upsert", ["id"], **EVOLVE)
    result = io.merge(data, lake, "upsert", ["id"], **EVOLVE)
    assert all(schema.field("x").type == wide for schema in schemas(lake).values())
    assert plan.retyped_columns == result.retyped_columns and set(result.retyped_columns) == {"x"}
    assert result.added_columns == {}
    expected = [*(row for row in old if row["id"] != key), *data.to_pylist()]
    assert sorted(rows(lake), key=by_id) == sorted(expected, key=by_id)
    check_readers(lake, ["id", "n", "t", "x"], 6 + result.inserted)
    assert len(result.retyped_files) == 3 - result.updated and result.reencoded_files == 0


def test_types_are_not_widened_without_need(io: Any, tmp_path: Path) -> None:
    """pandas says int64 and float64 of everything."""
    files = {f"f{n}.parquet": file(n, f=pa.array([0.5, 1.5], pa.float32())) for n in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files)
    before = schemas(lake)
    data = pd.DataFrame({"id": [20, 99], "n": [5, 6], "t": ["a", "b"], "f": [0.25, 4.0]})
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place", **EVOLVE)
    assert result.retyped_columns == result.added_columns == {} and result.retyped_files == []
    assert schemas(lake).items() >= before.items() and len(set(schemas(lake).values())) == 1
    assert len(result.rewritten_files) == 1


def test_columns_that_the_source_lacks(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    data = pa.table({"id": [20, 99], "n": pa.array([5, 6], INT)})
    result = io.merge(data, lake, "upsert", ["id"], **EVOLVE)
    assert (result.updated, result.inserted, result.added_columns) == (1, 1, {})
    found = {row["id"]: row for row in rows(lake)}
    assert found[20] == {"id": 20, "n": 5, "t": "t20"} and found[99] == {"id": 99, "n": 6, "t": None}
    check_readers(lake, ["id", "n", "t"], 7)


NESTED: dict[str, tuple[pa.DataType, Any, pa.DataType, Any, dict[str, str]]] = {
    "struct": (
        pa.struct({"a": INT}),
        {"a": 1},
        pa.struct({"b": pa.string(), "a": INT}),
        {"b": "x", "a": 2},
        {"x.b": "string"},
    ),
    "struct in a struct": (
        pa.struct({"s": pa.struct({"a": INT}), "z": pa.string()}),
        {"s": {"a": 1}, "z": "z"},
        pa.struct({"s": pa.struct({"a": INT, "b": LONG}), "z": pa.string()}),
        {"s": {"a": 2, "b": 3}, "z": None},
        {"x.s.b": "int64"},
    ),
    "list of structs": (
        pa.list_(pa.struct({"a": INT})),
        [{"a": 1}, None],
        pa.list_(pa.struct({"a": INT, "b": pa.list_(pa.string())})),
        [{"a": 2, "b": ["x", None]}, {"a": None, "b": None}],
        {"x.element.b": "list<item: string>"},
    ),
    "map of structs": (
        pa.map_(pa.string(), pa.struct({"a": INT})),
        [("k", {"a": 1})],
        pa.map_(pa.string(), pa.struct({"a": INT, "b": pa.float64()})),
        [("k", {"a": 2, "b": 0.5})],
        {"x.value.b": "double"},
    ),
}


def _filled(value: Any, like: Any) -> Any:
    """A value with null in the struct fields that it lacks."""
    if isinstance(like, dict) and isinstance(value, dict):
        return {name: _filled(value.get(name), part) for name, part in like.items()}
    if isinstance(like, list) and isinstance(value, list) and like and isinstance(like[0], tuple):
        return [(key, _filled(part, like[0][1])) for key, part in value]
    if isinstance(like, list) and isinstance(value, list):
        return [_filled(part, like[0]) for part in value]
    return value


@pytest.mark.parametrize("key", [20, 99])
@pytest.mark.parametrize("case", list(NESTED))
def test_new_struct_fields(io: Any, tmp_path: Path, case: str, key: int) -> None:
    dtype, value, wide, new, added = NESTED[case]
    files = {f"f{n}.parquet": file(n, x=pa.array([value, None], dtype)) for n in (1, 2, 3)}
    lake = write_lake(tmp_path / "lake", files, row_group_size=1)
    old, data = rows(lake), source([key], x=pa.array([new], wide))
    refused(io, data, lake, "Struct fields of the source that the target does not have.*evolve")
    plan = io.plan(data, lake, "upsert", ["id"], **EVOLVE)
    result = io.merge(data, lake, "upsert", ["id"], **EVOLVE)
    assert plan.added_columns == result.added_columns == added and set(result.retyped_columns) == {"x"}
    expected = [{**row, "x": _filled(row["x"], new)} for row in old if row["id"] != key]
    assert sorted(rows(lake), key=by_id) == sorted([*expected, *data.to_pylist()], key=by_id)
    check_readers(lake, ["id", "n", "t", "x"], 6 + result.inserted)
    assert len(set(schemas(lake).values())) == 1 and result.reencoded_files == 0


def test_numbers_beside_new_struct_fields_are_widened_only_if_needed(io: Any, tmp_path: Path) -> None:
    dtype, wide = pa.struct({"a": INT}), pa.struct({"a": LONG, "b": pa.string()})
    for value, expected in ((5, INT), (2**40, LONG)):
        files = {f"f{n}.parquet": file(n, x=pa.array([{"a": 1}, None], dtype)) for n in (1, 2)}
        lake = write_lake(tmp_path / f"lake{value}", files)
        io.merge(source([20], x=pa.array([{"a": value, "b": "x"}], wide)), lake, "upsert", ["id"], **EVOLVE)
        assert {s.field("x").type for s in schemas(lake).values()} == {pa.struct({"a": expected, "b": pa.string()})}


@pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
@pytest.mark.parametrize("all_files", [True, False])
def test_touched_files_only(io: Any, tmp_path: Path, strategy: Any, all_files: bool) -> None:
    lake = lake_of_three(tmp_path / "lake")
    before, data = fingerprint(lake), source([20, 99], new=["x", "y"])
    options = EVOLVE if all_files else {**EVOLVE, "evolve_files": "touched"}
    plan = io.plan(data, lake, strategy, ["id"], **options)
    result = io.merge(data, lake, strategy, ["id"], replace="in_place", **options)
    having = [name for name, schema in schemas(lake).items() if "new" in schema.names]
    assert result.added_columns == plan.added_columns == {"new": "string"}
    if all_files:
        assert having == data_files(lake)
        check_readers(lake, ["id", "n", "t", "new"], result.target_count_after)
        return
    assert len(having) == result.updated + result.inserted and result.retyped_files == []
    untouched = [f"f{n}.parquet" for n in (1, 2, 3) if f"f{n}.parquet" not in having]
    assert {name: fingerprint(lake)[name] for name in untouched} == {name: before[name] for name in untouched}
    (hint,) = plan.hints
    assert "mergeSchema=true" in hint and "union_by_name=true" in hint
    assert sorted(row["id"] for row in rows(lake) if row.get("new")) == sorted(
        [20] * (strategy != "insert") + [99] * (strategy != "update")
    )


def test_touched_files_do_not_hold_for_types(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    data = source([20], n=2**40, new=["x"])
    result = io.merge(data, lake, "upsert", ["id"], evolve_files="touched", **EVOLVE)
    assert {schema.field("n").type for schema in schemas(lake).values()} == {LONG}
    assert ["new" in schema.names for schema in schemas(lake).values()].count(True) == 1
    assert len(result.retyped_files) == 2


def test_appends(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    old, data = rows(lake), source([98, 99], n=2**40, t=None, new=[1.5, None])
    result = io.write_dataset(data, lake, mode="append", **EVOLVE)
    expected = [{**row, "new": None} for row in old] + [{"t": None, **row} for row in data.to_pylist()]
    assert sorted(rows(lake), key=by_id) == sorted(expected, key=by_id)
    assert result.added_columns == {"new": "double"} and len(result.retyped_files) == 3
    check_readers(lake, ["id", "n", "t", "new"], 8)
    again = fingerprint(lake)
    assert io.write_dataset(data, lake, mode="append", **EVOLVE).added_columns == {}
    assert fingerprint(lake).items() >= again.items()


def test_partition_overwrites(io: Any, tmp_path: Path) -> None:
    files = {f"day={day}/f.parquet": file(n) for n, day in enumerate("abc", 1)}
    lake = write_lake(tmp_path / "lake", files)
    data = source([98, 99], n=2**40, new=["x", "y"], day=["b", "d"])
    plan = io.plan_write(data, lake, mode="overwrite_partitions", **EVOLVE)
    result = io.write_dataset(data, lake, mode="overwrite_partitions", **EVOLVE)
    assert plan.added_columns == result.added_columns == {"new": "string"}
    assert len(plan.retyped_files) == len(result.retyped_files) == 2 and result.removed_rows == 2
    assert {schema.field("n").type for schema in schemas(lake).values()} == {LONG}
    assert all(schema.names == ["id", "n", "t", "new"] for schema in schemas(lake).values())
    assert sorted((row["id"], row["day"], row["new"]) for row in rows(lake) if row["new"]) == [
        (98, "b", "x"),
        (99, "d", "y"),
    ]
    assert who_reads(lake) == dict.fromkeys(READERS, 6)


@pytest.mark.parametrize("strategy", ["upsert", "deduplicate", "full_merge"])
def test_full_rewrites(io: Any, tmp_path: Path, strategy: Any) -> None:
    lake = lake_of_three(tmp_path / "lake")
    data = source([20, 99], n=2**40, new=["x", None])
    result = io.write_parquet_dataset(data, lake, strategy=strategy, key_columns=["id"], **EVOLVE)
    assert result.added_columns == {"new": "string"}
    count = 2 if strategy == "full_merge" else 7
    check_readers(lake, ["id", "n", "t", "new"], count)
    assert {row["id"]: row for row in rows(lake)}[20] == {"id": 20, "n": 2**40, "t": "new", "new": "x"}


def test_partitions(io: Any, tmp_path: Path) -> None:
    files = {f"day={day}/f.parquet": file(n) for n, day in enumerate(["a", "b", "c"], 1)}
    lake = write_lake(tmp_path / "lake", files)
    data = source([20, 99], new=["x", "y"], day=["b", "d"])
    result = io.merge(data, lake, "upsert", ["id"], **EVOLVE)
    assert result.added_columns == {"new": "string"} and len(result.retyped_files) == 2
    assert who_reads(lake) == dict.fromkeys(READERS, 7)
    assert {row["id"]: row["new"] for row in rows(lake) if row["new"]} == {20: "x", 99: "y"}
    assert all(schema.names == ["id", "n", "t", "new"] for schema in schemas(lake).values())


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_layouts_are_kept(io: Any, tmp_path: Path, codec: str) -> None:
    options = {"compression": codec, "row_group_size": 1, "write_page_index": True, "data_page_version": "2.0"}
    lake = lake_of_three(tmp_path / "lake", **options)
    old = {name: Path(lake, name).read_bytes() for name in data_files(lake)}
    result = io.merge(source([99], new=["x"]), lake, "insert", ["id"], replace="in_place", **EVOLVE)
    for name in result.retyped_files:
        name = name.removeprefix(f"{lake}/")
        metadata, new = pq.read_metadata(f"{lake}/{name}"), Path(lake, name).read_bytes()
        pages = len(old[name]) - 8 - int.from_bytes(old[name][-8:-4], "little")
        assert new[:pages] == old[name][:pages]  # nothing moves
        assert metadata.num_row_groups == 2 and metadata.num_columns == 4
        chunks = [metadata.row_group(g).column(c) for g in range(2) for c in range(4)]
        assert {chunk.compression for chunk in chunks} == {codec.upper().replace("NONE", "UNCOMPRESSED")}
        assert all(chunk.has_column_index and chunk.has_offset_index for chunk in chunks)
        assert [c.statistics.null_count for c in chunks] == [0, 0, 0, 1] * 2
    check_readers(lake, ["id", "n", "t", "new"], 7)


def test_a_stream_of_batches(io: Any, tmp_path: Path) -> None:
    """Batch ids stay in the footers of files that are brought along."""
    from fsspeckit.core.dataset.ledger import Batch

    lake = lake_of_three(tmp_path / "lake")
    for number, data in enumerate([source([20], new=["x"]), source([21], new=["y"], other=[1.5])]):
        result = io.merge(data, lake, "upsert", ["id"], batch=Batch("feed", number), **EVOLVE)
        assert len(result.added_columns) == 1
        before = fingerprint(lake)
        again = io.merge(data, lake, "upsert", ["id"], batch=Batch("feed", number), **EVOLVE)
        assert (again.updated, fingerprint(lake)) == (0, before)
    assert all(b"feed" in Path(lake, name).read_bytes() for name in data_files(lake))
    check_readers(lake, ["id", "n", "t", "new", "other"], 6)


def test_deletes_alone_change_no_schema(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    data = source([20], new=["x"], gone=[True])
    result = io.merge(data, lake, "upsert", ["id"], delete_column="gone", **EVOLVE)
    assert result.deleted == 1 and result.added_columns == {}
    assert all(schema.names == ["id", "n", "t"] for schema in schemas(lake).values())
    mixed = source([30, 31], new=["x", "y"], gone=[True, False])
    result = io.merge(mixed, lake, "upsert", ["id"], delete_column="gone", **EVOLVE)
    assert (result.deleted, result.updated, result.added_columns) == (1, 1, {"new": "string"})
    check_readers(lake, ["id", "n", "t", "new"], 4)


def test_a_source_without_rows_changes_nothing(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    before = fingerprint(lake)
    data = source([20], new=["x"])
    assert io.merge(data.slice(1), lake, "upsert", ["id"], **EVOLVE).added_columns == {}
    assert io.merge(source([99], new=["x"]), lake, "update", ["id"], **EVOLVE).added_columns == {}
    assert io.merge(data, lake, "insert", ["id"], **EVOLVE).added_columns == {}
    assert fingerprint(lake) == before


def test_update_columns_may_name_new_columns(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    data = pa.table({"id": [20, 99], "new": ["x", "y"], "other": [1, 2]})
    io.merge(data, lake, "upsert", ["id"], update_columns=["new"], **EVOLVE)
    found = {row["id"]: row for row in rows(lake)}
    assert found[20] == {"id": 20, "n": 2, "t": "t20", "new": "x", "other": None}
    assert found[99] == {"id": 99, "n": None, "t": None, "new": "y", "other": 2}
    check_readers(lake, ["id", "n", "t", "new", "other"], 7)


def test_a_column_of_nulls_without_a_type_is_left_out(io: Any, tmp_path: Path) -> None:
    if type(io).__name__ == "SparkDatasetIO":
        pytest.skip("Spark's VOID is text for PyArrow")
    lake = lake_of_three(tmp_path / "lake")
    data = source([20], new=pa.nulls(1), s=pa.array([{"a": None}], pa.struct({"a": pa.null()})))
    assert io.merge(data, lake, "upsert", ["id"], **EVOLVE).added_columns == {}
    assert all(schema.names == ["id", "n", "t"] for schema in schemas(lake).values())


def test_files_without_rows_and_without_row_groups(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    with pq.ParquetWriter(f"{lake}/f4.parquet", file(4).schema):
        pass
    pq.write_table(file(5).slice(2), f"{lake}/f5.parquet")
    io.merge(source([99], n=2**40, new=["x"]), lake, "insert", ["id"], **EVOLVE)
    assert len(set(schemas(lake).values())) == 1
    check_readers(lake, ["id", "n", "t", "new"], 7)


def test_files_that_lack_a_column_get_it_too(io: Any, tmp_path: Path) -> None:
    files = {f"f{n}.parquet": file(n) for n in (1, 3)} | {"f2.parquet": file(2, y=[1.5, None])}
    lake = write_lake(tmp_path / "lake", files)
    io.merge(source([30], y=[2.5], new=["x"]), lake, "upsert", ["id"], replace="in_place", **EVOLVE)
    assert all(set(schema.names) == {"id", "n", "t", "y", "new"} for schema in schemas(lake).values())
    assert who_reads(lake) == dict.fromkeys(READERS, 6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "narrowing": ({"n": 0.5}, "'n' is double in the source and int32 in the target: the value 0.5 would not survive"),
    "another kind": ({"n": "seven"}, "not comparable"),
    "digits behind the point": ({"d": [Decimal("1.2345")]}, "would not survive"),
    "a renamed column": ({"t": None, "text": ["x"]}, "no column 't' and a new one of the same type, 'text'"),
    "a name in another case": ({"T2": ["x"], "t2": ["y"]}, "differs from 'T2' only in case"),
    "a struct field that is missing": ({"s": [{"b": 1}]}, r"missing from the source: \['s.a'\]"),
    "a wider key": ({"id": [2**40]}, "'id' .* Key and partition columns never change their type"),
    "a wider partition": ({"p": [2**40]}, "'p' .* never change their type"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refusals(io: Any, tmp_path: Path, case: str) -> None:
    if type(io).__name__ == "SparkDatasetIO" and "case" in case:
        pytest.skip("Spark's frames have no two such columns")
    changes, match = REFUSED[case]
    struct = pa.array([{"a": 1}] * 2, pa.struct({"a": INT}))
    files = {
        f"p={p}/f.parquet": pa.table(
            {
                "id": pa.array([10 * p, 10 * p + 1], INT),
                "n": pa.array([1, 2], INT),
                "t": ["a", "b"],
                "d": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
                "s": struct,
                "p": pa.array([p, p], INT),
            }
        )
        for p in (1, 2)
    }
    lake = write_lake(tmp_path / "lake", files)
    columns = {"id": pa.array([20], INT), "d": [Decimal("1.25")], "s": struct.slice(1), "p": pa.array([2], INT)}
    base = {"n": pa.array([7], INT), "t": ["x"], **columns}
    data = {**base, **{k: v if isinstance(v, list) or v is None else [v] for k, v in changes.items()}}
    refused(io, pa.table({k: v for k, v in data.items() if v is not None}), lake, match, **EVOLVE)


def test_moved_and_replaced_rows_need_all_columns(io: Any, tmp_path: Path) -> None:
    files = {f"p={p}/f.parquet": file(n) for n, p in enumerate("ab", 1)}
    lake = write_lake(tmp_path / "lake", files)
    data = source([10], t=None, p=["b"])
    same = source([10], t=None, p=["a"])
    refused(io, data, lake, r"Columns missing from the source: \['t'\]. 1 row\(s\) move", on_move="move", **EVOLVE)
    with refusal(lake, r"\['t'\]. full_merge replaces every row"):
        io.write_parquet_dataset(same, lake, strategy="full_merge", key_columns=["id"], **EVOLVE)
    with refusal(lake, "missing from the source: .'p'."):
        io.write_dataset(source([99]), lake, **EVOLVE)


def test_options_without_effect(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    data = source([20])
    refused(io, data, lake, "Unknown on_schema_change 'merge'", on_schema_change="merge")
    refused(io, data, lake, "evolve_files has no effect", evolve_files="touched")
    refused(io, data, lake, "evolve_max_bytes has no effect", evolve_max_bytes=5)
    refused(io, data, lake, "evolve_max_bytes must be a number", evolve_max_bytes=-1, **EVOLVE)
    refused(io, data, lake, "no effect with strategy='delete'", strategy="delete", **EVOLVE)
    with refusal(lake, "no effect with mode='overwrite'"):
        io.write_dataset(data, lake, mode="overwrite", **EVOLVE)


def test_a_bound_of_bytes(io: Any, tmp_path: Path) -> None:
    lake = lake_of_three(tmp_path / "lake")
    size = sum(Path(lake, f"f{n}.parquet").stat().st_size for n in (1, 3))
    data = source([20], new=["x"])
    match = rf"rewrite 2 file\(s\) without a changed row, {size:,} bytes, and at most {size - 1:,} are allowed"
    refused(io, data, lake, match, evolve_max_bytes=size - 1, **EVOLVE)
    with refusal(lake, "at most 10 are allowed.*evolve_files='touched'"):
        io.write_dataset(data, lake, evolve_max_bytes=10, **EVOLVE)
    assert io.merge(data, lake, "upsert", ["id"], evolve_max_bytes=size, **EVOLVE).added_columns == {"new": "string"}


@pytest.mark.disk
def test_a_full_disk(io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspeckit.core.storage.local import LocalStorage

    lake = lake_of_three(tmp_path / "lake")
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda self, folder: 1000)
    with refusal(lake, "and the disk has 1,000 bytes free"):
        io.merge(source([20], new=["x"]), lake, "upsert", ["id"], **EVOLVE)
    with refusal(lake, "and the disk has 1,000 bytes free"):
        io.write_dataset(source([20], new=["x"]), lake, **EVOLVE)
    io.merge(source([20]), lake, "upsert", ["id"])


def test_a_first_row_group_without_rows(io: Any, tmp_path: Path) -> None:
    """It has neither statistics nor a page index, and new columns get those of the others."""
    lake, table = tmp_path / "lake", pa.table({"id": [1, 2, 3], "x": ["a", "b", "c"]})
    lake.mkdir()
    with pq.ParquetWriter(lake / "f.parquet", table.schema, write_page_index=True) as writer:
        writer.write_table(table.slice(0, 0))
        writer.write_table(table)
    io.merge(pa.table({"id": [9], "x": ["d"], "new": [1.0]}), str(lake), key_columns=["id"], on_schema_change="evolve")
    (path,) = [path for path in lake.iterdir() if pq.read_metadata(path).num_rows == 3]
    group = pq.read_metadata(path).row_group(1)
    assert [group.column(n).path_in_schema for n in range(3)] == ["id", "x", "new"]
    for number in range(3):
        column = group.column(number)
        assert column.has_offset_index and column.has_column_index and column.is_stats_set
