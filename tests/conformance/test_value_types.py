"""Values and types that files of one data set may differ in: nulls without a type, fields of structs, null structs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import nothing_changes
from fsspeckit.core.errors import SchemaMismatchError
from support import multiset, rows, write_lake


def file_type(lake: str, name: str, column: str) -> pa.DataType:
    return pq.read_schema(f"{lake}/{name}").field(column).type


# Nulls without a type, as pandas writes a column that has no values

TYPED = {
    "text": ("b", pa.string()),
    "number": (7, pa.int32()),
    "instant": (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
    "list": (["b", None], pa.list_(pa.string())),
    "struct": ({"a": 1, "b": "x"}, pa.struct({"a": pa.int64(), "b": pa.string()})),
    "map": ([("k", 1)], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("case", list(TYPED))
def test_a_file_of_nulls_takes_the_common_type(io: Any, tmp_path: Path, case: str) -> None:
    value, kind = TYPED[case]
    files = {
        "a.parquet": pa.table({"id": [1, 2], "x": pa.nulls(2)}),
        "b.parquet": pa.table({"id": [3], "x": pa.array([value], kind)}),
    }
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [2, 3, 4], "x": pa.array([value, None, value], kind)})
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert (result.inserted, result.updated) == (1, 2)
    expected = [*data.to_pylist(), {"id": 1, "x": None}]
    assert multiset(rows(lake)) == multiset(expected)
    assert file_type(lake, "a.parquet", "x") == kind


@pytest.mark.parametrize("case", list(TYPED))
def test_a_lake_of_nulls_takes_the_type_of_the_source(io: Any, tmp_path: Path, case: str) -> None:
    value, kind = TYPED[case]
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1, 2], "x": pa.nulls(2)})})
    data = pa.table({"id": [2, 3], "x": pa.array([value, value], kind)})
    assert io.plan(data, lake, "upsert", ["id"]).updated == 1
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert (result.inserted, result.updated) == (1, 1)
    assert multiset(rows(lake)) == multiset([*data.to_pylist(), {"id": 1, "x": None}])
    io.write_dataset(data.set_column(0, "id", [[7, 8]]), lake)
    assert multiset(io_rows(lake)) == multiset([{"id": 1, "x": None}, *data.to_pylist(), *ids(data, 7, 8)])


def ids(data: pa.Table, *values: int) -> list[dict[str, Any]]:
    return data.set_column(0, "id", [list(values)]).to_pylist()


def io_rows(lake: str) -> list[dict[str, Any]]:
    return rows(lake)


def test_an_append_to_a_lake_of_nulls(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1], "x": pa.nulls(1)})})
    io.write_dataset(pa.table({"id": [2], "x": ["b"]}), lake)
    assert multiset(rows(lake)) == multiset([{"id": 1, "x": None}, {"id": 2, "x": "b"}])


def test_nulls_within_lists_and_structs(io: Any, tmp_path: Path) -> None:
    untyped = pa.struct({"a": pa.null(), "b": pa.list_(pa.null())})
    typed = pa.struct({"a": pa.string(), "b": pa.list_(pa.int64())})
    files = {"a.parquet": pa.table({"id": [1, 2], "x": pa.array([{"a": None, "b": []}, None], untyped)})}
    lake = write_lake(tmp_path / "lake", files)
    data = pa.table({"id": [2, 3], "x": pa.array([{"a": "x", "b": [1]}, None], typed)})
    result = io.merge(data, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 1)
    assert multiset(rows(lake)) == multiset([{"id": 1, "x": {"a": None, "b": []}}, *data.to_pylist()])


def test_a_key_of_nulls_only(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": pa.nulls(2), "x": ["a", "b"]})})
    result = io.merge(pa.table({"id": ["k"], "x": ["c"]}), lake, "upsert", ["id"])
    assert (result.inserted, result.updated, result.target_count_after) == (1, 0, 3)


# Fields that were added to a struct

NARROW = pa.struct({"a": pa.int64()})
WIDE = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string(), False)])


@pytest.mark.parametrize(
    "wrap",
    [lambda k: k, pa.list_, lambda k: pa.map_(pa.string(), k), lambda k: pa.struct({"s": k})],
    ids=["struct", "in a list", "in a map", "in a struct"],
)
def test_fields_that_a_struct_gained(io: Any, tmp_path: Path, wrap: Any) -> None:
    def wrapped(value: Any) -> Any:
        kind = wrap(NARROW)
        if pa.types.is_list(kind):
            return [value, None]
        if pa.types.is_map(kind):
            return [("k", value)]
        return {"s": value} if "s" in kind.names else value

    old = [wrapped({"a": 1}), wrapped(None), None]
    new = [wrapped({"a": 4, "b": "x"})]
    files = {
        "a.parquet": pa.table({"id": [1, 2, 3], "s": pa.array(old, wrap(NARROW))}),
        "b.parquet": pa.table({"id": [4], "s": pa.array(new, wrap(WIDE))}),
    }
    lake = write_lake(tmp_path / "lake", files)
    common = wrap(pa.struct({"a": pa.int64(), "b": pa.string()}))
    values = [wrapped({"a": 2, "b": "y"}), None, wrapped({"a": None, "b": None})]
    data = pa.table({"id": [2, 4, 5], "s": pa.array(values, common)})
    result = io.merge(data, lake, "upsert", ["id"], replace="in_place")
    assert (result.inserted, result.updated) == (1, 2)
    expected = [
        {"id": 1, "s": wrapped({"a": 1, "b": None})},
        {"id": 2, "s": values[0]},
        {"id": 3, "s": None},
        {"id": 4, "s": None},
        {"id": 5, "s": values[2]},
    ]
    found = sorted(pa.concat_tables(_as(lake, common)).to_pylist(), key=lambda row: row["id"])
    assert found == expected


def _as(lake: str, kind: pa.DataType) -> list[pa.Table]:
    from fsspeckit.core.values import arrays

    tables = [pq.ParquetFile(path).read() for path in sorted(Path(lake).glob("*.parquet"))]
    return [t.set_column(1, "s", arrays.cast(t.column("s"), kind)) for t in tables]


def test_a_source_says_every_field(io: Any, tmp_path: Path) -> None:
    """A row is replaced as a whole: a field that the source leaves out would be emptied in silence."""
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1], "s": [{"a": 1, "b": "x"}]})})
    for struct, message in (({"a": 2}, r"missing .*\['s\.b'\]"), ({"a": 2, "b": "y", "c": 3}, r"not have: \['s\.c'\]")):
        with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=message):
            io.merge(pa.table({"id": [1], "s": [struct]}), lake, "upsert", ["id"])


# Null structs whose fields may not be null


@pytest.mark.parametrize("nest", [False, True], ids=["struct", "in a list"])
def test_null_structs_with_required_fields(io: Any, tmp_path: Path, nest: bool) -> None:
    inner = pa.struct([pa.field("n", pa.list_(pa.field("element", pa.int8(), False)), False)])
    kind = pa.struct([pa.field("a", pa.int64(), False), pa.field("b", pa.string(), False), pa.field("c", inner)])
    values = [None, {"a": 1, "b": "x", "c": {"n": [1]}}, {"a": 2, "b": "y", "c": None}]
    if nest:
        kind, values = pa.list_(kind), [[value] for value in values]  # type: ignore[misc]
    table = pa.table({"id": [1, 2, 3], "s": pa.array(values, kind)})
    lake = write_lake(tmp_path / "lake", {"a.parquet": table})
    own = pq.ParquetFile(f"{lake}/a.parquet").read()
    assert io.merge(own, lake, "upsert", ["id"]).updated == 3
    swapped = own.take([1, 0, 2]).set_column(0, "id", [[1, 2, 4]])
    result = io.merge(swapped, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (1, 2)
    expected = [*swapped.to_pylist(), *own.slice(2).to_pylist()]
    assert multiset(rows(lake)) == multiset(expected)


def test_null_structs_with_nulls_beneath(io: Any, tmp_path: Path) -> None:
    """Arrow lets anything lie beneath a null; the Parquet writer looks there."""
    fields = [pa.field("a", pa.int64(), False)]
    hollow = pa.StructArray.from_arrays([pa.array([None, 2])], fields=fields, mask=pa.array([True, False]))
    lake = str(tmp_path / "lake")
    data = pa.table({"id": [1, 2], "s": hollow})
    assert io.merge(data, lake, "upsert", ["id"]).inserted == 2
    assert io.merge(data.take([1, 0]).set_column(0, "id", [[1, 2]]), lake, "upsert", ["id"]).updated == 2
    assert multiset(rows(lake)) == multiset([{"id": 1, "s": {"a": 2}}, {"id": 2, "s": None}])


def test_a_null_in_a_required_field_says_the_way_out(io: Any, tmp_path: Path) -> None:
    kind = pa.struct([pa.field("a", pa.int64(), False)])
    lake = write_lake(tmp_path / "lake", {"a.parquet": pa.table({"id": [1], "s": pa.array([{"a": 1}], kind)})})
    data = pa.table({"id": [1], "s": pa.array([{"a": None}], pa.struct({"a": pa.int64()}))})
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=r"'s' .*in a nested field.*Fill.*overwrite"):
        io.merge(data, lake, "upsert", ["id"])
