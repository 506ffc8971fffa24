"""Types: what unifies, what survives a cast, and what is the same."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.errors import SchemaMismatchError
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.model import FileInfo, Footer, RowGroup, Target
from fsspeckit.core.values import arrays, nested, schema, unify
from fsspeckit.core.values.conform import conform
from fsspeckit.core.values.equality import identical, same_bits
from fsspeckit.core.values.shape import shape_of

UNIFIED = [
    (pa.int8(), pa.int64(), pa.int64()),
    (pa.int8(), pa.uint8(), pa.int16()),
    (pa.int32(), pa.uint32(), pa.int64()),
    (pa.uint8(), pa.uint64(), pa.uint64()),
    (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
    (pa.int64(), pa.float32(), pa.float64()),
    (pa.float16(), pa.float32(), pa.float32()),
    (pa.decimal128(10, 2), pa.decimal128(12, 3), pa.decimal128(12, 3)),
    (pa.decimal128(10, 2), pa.decimal128(8, 6), pa.decimal128(14, 6)),
    (pa.decimal128(38, 0), pa.decimal128(10, 5), pa.decimal256(43, 5)),
    (pa.decimal128(10, 2), pa.int64(), pa.decimal128(22, 2)),
    (pa.decimal128(10, 2), pa.float64(), pa.float64()),
    (pa.string(), pa.large_string(), pa.large_string()),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
    (pa.binary(), pa.binary(3), pa.binary()),
    (pa.binary(3), pa.large_binary(), pa.large_binary()),
    (pa.date32(), pa.date64(), pa.date32()),
    (pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
    (pa.time32("s"), pa.time32("ms"), pa.time64("us")),
    (pa.time64("ns"), pa.time32("ms"), pa.time64("ns")),
    (pa.duration("s"), pa.duration("us"), pa.duration("us")),
    (pa.null(), pa.string(), pa.string()),
    (pa.bool_(), pa.null(), pa.bool_()),
    (pa.list_(pa.int8()), pa.large_list(pa.int32()), pa.large_list(pa.int32())),
    (pa.list_(pa.int8(), 2), pa.list_(pa.int8()), pa.list_(pa.int8())),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    (
        pa.struct({"a": pa.int8(), "b": pa.null()}),
        pa.struct({"b": pa.string(), "a": pa.int64()}),
        pa.struct({"a": pa.int64(), "b": pa.string()}),
    ),
    (
        pa.list_(pa.struct([pa.field("a", pa.int8(), False)])),
        pa.list_(pa.struct([pa.field("a", pa.int8(), False), pa.field("b", pa.int8(), False)])),
        pa.list_(pa.struct([pa.field("a", pa.int8(), False), pa.field("b", pa.int8())])),
    ),
    (
        pa.map_(pa.string(), pa.struct({"a": pa.int8()})),
        pa.map_(pa.string(), pa.struct({"b": pa.int8()})),
        pa.map_(pa.string(), pa.struct({"a": pa.int8(), "b": pa.int8()})),
    ),
]


@pytest.mark.parametrize(("a", "b", "expected"), UNIFIED, ids=str)
def test_unify(a: pa.DataType, b: pa.DataType, expected: pa.DataType) -> None:
    assert unify.unify(a, b) == expected
    other = unify.unify(b, a)
    if not pa.types.is_nested(expected) and not getattr(expected, "tz", None):  # order of fields, zone: the first's
        assert other == expected
    assert unify.unify(a, a) == a


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (pa.int64(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int8()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.time64("us"), pa.timestamp("us")),
        (pa.decimal256(76, 0), pa.decimal128(38, 38)),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.list_(pa.int8()), pa.list_(pa.string())),
        (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.string()})),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), pa.struct({"a": pa.int8()})),
        (pa.map_(pa.string(), pa.int8()), pa.list_(pa.int8())),
    ],
    ids=str,
)
def test_what_does_not_unify(a: pa.DataType, b: pa.DataType) -> None:
    for pair in ((a, b), (b, a)):
        with pytest.raises(unify.CannotUnify):
            unify.unify(*pair)


MOMENT = dt.datetime(2024, 1, 1, 12)
DECIMAL = pa.decimal128(5, 2)

SURVIVE = [
    (1, pa.int64(), pa.int8()),
    (255, pa.int64(), pa.uint8()),
    (0.5, pa.float64(), pa.float32()),
    (math.nan, pa.float64(), pa.float32()),
    (-0.0, pa.float64(), pa.float32()),
    (math.inf, pa.float32(), pa.float64()),
    (3.0, pa.float64(), pa.int8()),
    (2**53, pa.int64(), pa.float64()),
    (7, pa.int64(), pa.decimal128(3, 2)),
    (Decimal("7.00"), pa.decimal128(5, 2), pa.int8()),
    (Decimal("7.00"), pa.decimal32(5, 2), pa.int64()),
    (7, pa.int64(), pa.decimal32(5, 2)),
    (Decimal("1.500"), pa.decimal128(12, 3), pa.decimal128(10, 2)),
    (Decimal("1.5"), pa.decimal128(5, 1), pa.decimal256(60, 5)),
    (0.25, pa.float64(), pa.decimal128(5, 2)),
    (1.5, pa.float16(), pa.decimal128(5, 2)),
    ("ü", pa.string(), pa.large_string()),
    (b"ab", pa.binary(), pa.binary(2)),
    (dt.date(1900, 2, 3), pa.date32(), pa.date64()),
    (MOMENT, pa.timestamp("ns"), pa.timestamp("s")),
    (MOMENT, pa.timestamp("us", "UTC"), pa.timestamp("ms", "Asia/Tokyo")),
    (dt.time(1, 2, 3), pa.time64("ns"), pa.time32("s")),
    ([1, None], pa.list_(pa.int64()), pa.large_list(pa.int8())),
    ([1.5, None], pa.list_(pa.float64()), pa.list_(pa.float32(), 2)),
    (
        {"a": 1.5, "b": None},
        pa.struct({"a": pa.float64(), "b": pa.null()}),
        pa.struct({"b": pa.string(), "a": pa.float32()}),
    ),
    ([("k", 1)], pa.map_(pa.string(), pa.int64()), pa.map_(pa.large_string(), pa.int8())),
    (None, pa.null(), pa.list_(pa.struct({"a": pa.int8()}))),
    ([None], pa.list_(pa.null()), pa.list_(pa.int8())),
    ([], pa.list_(pa.null()), pa.large_list(pa.string())),
    # what is cast by a detour on its own is cast so within others
    ([7], pa.list_(pa.int64()), pa.list_(pa.decimal128(3, 2))),
    ([Decimal("7.00")], pa.list_(pa.decimal32(5, 2)), pa.large_list(pa.int64())),
    ({"a": [1.5]}, pa.struct({"a": pa.list_(pa.float16())}), pa.struct({"a": pa.list_(pa.decimal128(5, 2))})),
    ([("k", dt.date(1900, 2, 3))], pa.map_(pa.string(), pa.date64()), pa.map_(pa.string(), pa.date32())),
    ([{"d": [7]}], pa.list_(pa.struct({"d": pa.list_(pa.int8(), 1)})), pa.list_(pa.struct({"d": pa.list_(DECIMAL)}))),
]


@pytest.mark.parametrize(("value", "source", "target"), SURVIVE, ids=str)
def test_values_that_survive(value: Any, source: pa.DataType, target: pa.DataType) -> None:
    column = pa.array([value, None, value], source)
    for given in (column, pa.chunked_array([column, column.slice(1)]), column.slice(1)):
        assert arrays.castable(source, target)
        result = arrays.cast(given, target)
        assert result.type == target
        found, wanted = result.to_pylist(), given.to_pylist()
        assert found == wanted or repr(found) == repr(wanted)  # NaN
        assert result.null_count == given.null_count
    assert len(arrays.cast(pa.array([], source), target)) == 0


LOST = [
    (128, pa.int64(), pa.int8()),
    (-1, pa.int8(), pa.uint64()),
    (0.1, pa.float64(), pa.float32()),
    (1e300, pa.float64(), pa.float32()),
    (0.5, pa.float64(), pa.int64()),
    (math.nan, pa.float64(), pa.int64()),
    (2**53 + 1, pa.int64(), pa.float64()),
    (2**24 + 1, pa.int32(), pa.float32()),
    (100, pa.int64(), pa.decimal128(3, 2)),
    (Decimal("7.25"), pa.decimal128(5, 2), pa.int8()),
    (Decimal("1.505"), pa.decimal128(12, 3), pa.decimal128(10, 2)),
    (Decimal("123.4"), pa.decimal128(5, 1), pa.decimal128(3, 1)),
    (0.125, pa.float64(), pa.decimal128(5, 2)),
    (b"abc", pa.binary(), pa.binary(2)),
    (MOMENT.replace(microsecond=1), pa.timestamp("us"), pa.timestamp("ms")),
    (dt.time(1, 2, 3, 4), pa.time64("us"), pa.time32("ms")),
    ([1, 300], pa.list_(pa.int64()), pa.list_(pa.uint8())),
    ([1, 2, 3], pa.list_(pa.int64()), pa.list_(pa.int64(), 2)),
    ({"a": 0.1}, pa.struct({"a": pa.float64()}), pa.struct({"a": pa.float32()})),
    ([("k", 300)], pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8())),
]


@pytest.mark.parametrize(("value", "source", "target"), LOST, ids=str)
def test_values_that_do_not_survive(value: Any, source: pa.DataType, target: pa.DataType) -> None:
    column = pa.chunked_array([pa.array([None, None], source), pa.array([None, value, None], source)])
    with pytest.raises(arrays.ValueDoesNotFit) as caught:
        arrays.cast(column, target)
    assert repr(caught.value.args[0]) == repr(column[3].as_py())


@pytest.mark.parametrize("dtype", [pa.decimal128(9, 2), pa.decimal64(12, 2), pa.decimal256(50, 2)], ids=str)
def test_decimals_become_the_nearest_float(dtype: pa.DataType) -> None:
    """Arrow's own cast makes 0.35000000000000003 of 0.35, so that the key 0.35 would not match."""
    decimals = [Decimal(n).scaleb(-2) for n in range(-300, 300)]
    column = arrays.cast(pa.chunked_array([pa.array(decimals, dtype)]), pa.float64())
    assert column.to_pylist() == [float(decimal) for decimal in decimals]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [300]]).slice(0, 1),
        pa.array([{"a": [1]}, {"a": [300]}]).slice(0, 1),
        pa.array([[("a", 1)], [("b", 300)]], pa.map_(pa.string(), pa.int64())).slice(0, 1),
        pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array([1, 300]), mask=pa.array([False, True])),
        pa.StructArray.from_arrays([pa.array([1, 300])], ["a"], mask=pa.array([False, True])),
    ],
    ids=["list", "struct", "map", "null list", "null struct"],
)
def test_what_is_not_shown_does_not_count(column: pa.Array) -> None:
    """Arrow casts values outside a slice and beneath a null too, and fails on them."""
    small = pa.uint8()
    kinds = {"list": pa.list_(small), "map": pa.map_(pa.string(), small), "struct": pa.struct({"a": small})}
    wanted = kinds[arrays.family(column.type)]
    if column.type == pa.struct({"a": pa.list_(pa.int64())}):
        wanted = pa.struct({"a": pa.list_(small)})
    assert arrays.cast(column, wanted).to_pylist() == column.to_pylist()


REQUIRED = pa.struct([pa.field("a", pa.int64(), False), pa.field("b", pa.list_(pa.string()), False)])
LOOSE = pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})


@pytest.mark.parametrize("kind", [LOOSE, pa.struct({"b": pa.list_(pa.null()), "a": pa.int8()})], ids=str)
def test_a_null_struct_has_no_fields_that_could_be_missing(kind: pa.DataType) -> None:
    column = pa.array([None, {"a": 1, "b": []}, None], kind)
    for given in (column, column.slice(1), pa.chunked_array([column])):
        found = arrays.cast(given, REQUIRED)
        assert found.to_pylist() == given.to_pylist()
        pq.write_table(pa.table({"s": found}), pa.BufferOutputStream())  # the writer looks beneath the null
    lists = arrays.cast(pa.array([[None, {"a": 1, "b": []}], None], pa.list_(kind)), pa.list_(REQUIRED))
    assert lists.to_pylist() == [[None, {"a": 1, "b": []}], None]
    with pytest.raises(arrays.ValueDoesNotFit):
        arrays.cast(pa.array([{"a": None, "b": []}], kind), REQUIRED)


def test_struct_fields_come_and_go_as_nulls() -> None:
    narrow, wide = pa.struct({"a": pa.int8()}), pa.struct({"b": pa.string(), "a": pa.int64()})
    column = pa.array([{"a": 1}, None], narrow)
    assert arrays.cast(column, wide).to_pylist() == [{"a": 1, "b": None}, None]
    assert arrays.cast(arrays.cast(column, wide), narrow).equals(column)
    with pytest.raises(arrays.ValueDoesNotFit) as caught:
        arrays.cast(pa.array([{"a": 1, "b": "x"}], wide), narrow)
    assert caught.value.args[0] == {"a": 1, "b": "x"}
    assert not arrays.castable(narrow, wide)  # a source has to say what it means


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int8()), pa.struct({"a": pa.int8()})], ids=str)
def test_only_nulls_become_nulls_without_a_type(kind: pa.DataType) -> None:
    assert arrays.cast(pa.nulls(2, kind), pa.null()).equals(pa.nulls(2))
    with pytest.raises(arrays.ValueDoesNotFit):
        arrays.cast(nested._any_value(kind), pa.null())


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        (pa.array([2**31 - 1], pa.date32()), pa.null(), "2147483647"),
        (pa.array([-(10**17) + 1], pa.timestamp("us")), pa.timestamp("ms"), "-1199-02-15 14:13:20"),
        (pa.array([-(10**17) + 1], pa.timestamp("us", "UTC")), pa.timestamp("ms", "UTC"), "-1199-02-15 14:13:20"),
        (pa.array([1], pa.timestamp("us", "Nowhere/Known")), pa.timestamp("s", "UTC"), "1970-01-01|1 as timestamp"),
        (pa.array([[1, 2**31 - 1]], pa.list_(pa.date32())), pa.null(), "a value of type list"),
        (pa.array([[1]], pa.list_(pa.time64("ns"))), pa.list_(pa.time64("us")), "0, 0|0.000000001|type list"),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_a_value_that_python_cannot_hold_is_described(column: pa.Array, kind: pa.DataType, text: str) -> None:
    with pytest.raises(arrays.ValueDoesNotFit, match=text):
        arrays.cast(column, kind)


def test_nanoseconds_are_shown_as_text() -> None:
    with pytest.raises(arrays.ValueDoesNotFit, match=r"1970-01-01 00:00:00\.000000001"):
        arrays.cast(pa.array([1], pa.timestamp("ns")), pa.timestamp("us"))


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (pa.array([math.nan]), pa.array([math.nan]), True),
        (pa.array([0.0]), pa.array([-0.0]), False),
        (pa.array([1.0, None]), pa.array([None, 1.0]), False),
        (pa.array([[math.nan], None]), pa.array([[math.nan], None]), True),
        (pa.array([[0.0]]), pa.array([[-0.0]]), False),
        (pa.array([[1.0], []]), pa.array([[], [1.0]]), False),
        (pa.array([{"a": math.nan}]), pa.array([{"a": math.nan}]), True),
        (pa.array([{"a": 1.0}, None]), pa.array([{"a": 1.0}, {"a": None}]), False),
        (pa.array(["a"]), pa.array(["b"]), False),
        (pa.array([1, 2]), pa.array([1]), False),
    ],
)
def test_identical(left: pa.Array, right: pa.Array, same: bool) -> None:
    assert identical(left, right) is same
    assert identical(pa.chunked_array([left]), right) is same
    assert identical(pa.chunked_array([left.slice(0, 1), left.slice(1)]), pa.chunked_array([right])) is same


BEFORE = {
    "half": pa.array([1.0, 0.0, None], pa.float16()),
    "single": pa.array([1.5, 0.0, None], pa.float32()),
    "double": pa.array([2.5, math.nan, None], pa.float64()),
    "whole": pa.array([1, 2, None]),
    "text": pa.array(["a", "b", None]),
    "flag": pa.array([True, False, None]),
    "list": pa.array([[1], [], None], pa.list_(pa.int64())),
}


@pytest.mark.parametrize("names", [["half", "single", "double"], ["whole", "text", "flag", "list"], list(BEFORE)])
def test_the_same_bits(names: list[str]) -> None:
    """Slices of several chunks, too: what a take makes is held against rows that lie elsewhere."""
    table = pa.table({name: BEFORE[name] for name in names})
    pieces = pa.concat_tables([table, table.slice(0, 1), table.slice(1)])
    assert same_bits(pieces.slice(3), table)
    assert same_bits(table.slice(0, 0), pieces.slice(6))
    assert not same_bits(table, table.slice(0, 2))
    for name in names:
        for row in range(3):
            other = BEFORE[name].take(pa.array([(row + 1) % 3 if i == row else i for i in range(3)]))
            assert not same_bits(table, table.set_column(names.index(name), name, other)), (name, row)


def test_bits_that_differ_where_values_do_not() -> None:
    zero, minus, nested = (pa.table({"x": pa.array([x])}) for x in (0.0, -0.0, [0.0]))
    assert not same_bits(zero, minus)
    assert not same_bits(nested, nested)  # not looked into


def test_identical_maps() -> None:
    kind = pa.map_(pa.string(), pa.float64())
    left = pa.array([[("a", math.nan)], [("b", 1.0), ("c", None)], None], kind)
    assert identical(left, pa.array([[("a", math.nan)], [("b", 1.0), ("c", None)], None], kind))
    assert not identical(left, pa.array([[("a", math.nan)], [("b", 1.0), ("c", 2.0)], None], kind))
    assert identical(left.slice(1), pa.array([[("b", 1.0), ("c", None)], None], kind))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None])), ["x", None]),
        (pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
        (pa.array([{"d": "x"}, None], pa.struct({"d": pa.dictionary(pa.int8(), pa.string())})), [{"d": "x"}, None]),
        (pa.array([["x"], None, []], pa.list_(pa.dictionary(pa.int8(), pa.string()))), [["x"], None, []]),
        (pa.array([[1, 2], None], pa.list_view(pa.int8())), [[1, 2], None]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), ["a", "a", "b"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_plain(column: pa.Array, values: list[Any]) -> None:
    for given in (column, pa.chunked_array([column])):
        found = arrays.plain(given)
        assert found.type == arrays.plain_type(column.type)
        assert found.to_pylist() == values
    assert arrays.plain(column.slice(1)).to_pylist() == values[1:]


# Footers and shapes


def footer(path: str, *fields: pa.Field, rows: int = 1) -> Footer:
    return Footer(FileInfo(path, 0, 0), pa.schema(list(fields)), (RowGroup(rows, 0),))


def test_footers_unify_column_by_column() -> None:
    required = pa.field("id", pa.int64(), False)
    first = footer("a", pa.field("id", pa.int32(), False), pa.field("x", pa.string(), False))
    second = footer("b", pa.field("y", pa.int8(), False), required)
    found = schema.unify_footers([first, second])
    assert found.names == ["id", "x", "y"]
    assert found.field("id").equals(required)
    assert found.field("x").nullable  # it is not in every file
    assert found.field("y").nullable


def test_metadata_of_the_first_file_stays() -> None:
    plain = footer("a", pa.field("id", pa.int64(), True, {"k": "v"}))
    found = schema.unify_footers([plain, footer("b", pa.field("id", pa.int64()))])
    assert found.field("id").metadata == {b"k": b"v"}


def test_files_that_do_not_unify_are_named() -> None:
    files = [
        footer("a", pa.field("id", pa.int64())),
        footer("b", pa.field("id", pa.int64())),
        footer("c", pa.field("id", pa.string())),
    ]
    with pytest.raises(SchemaMismatchError, match="'id' is int64 in a and string in c"):
        schema.unify_footers(files)
    with pytest.raises(SchemaMismatchError, match=r"twice has more than one column named \['id'\]"):
        schema.unify_footers([footer("twice", pa.field("id", pa.int64()), pa.field("id", pa.int64()))])


def test_the_shape_of_a_merge() -> None:
    stored = pa.schema({"id": pa.int64(), "x": pa.large_string()})
    target = Target(Footers([footer("day=1/f", *stored)]), stored, ("id", "x"), ("day",))
    source = pa.schema({"day": pa.dictionary(pa.int8(), pa.string()), "x": pa.string(), "id": pa.int8()})
    shape = shape_of(target, source, ["id"])
    assert shape.schema.names == ["id", "x", "day"]
    assert shape.schema.field("day").type == pa.string()
    assert (shape.stored, shape.keys, shape.partitions) == (("id", "x"), ("id",), ("day",))
    table = pa.table({"day": ["a"], "x": ["b"], "id": pa.array([1], pa.int8())})
    assert conform(table, shape).to_pylist() == [{"id": 1, "x": "b", "day": "a"}]


def test_a_column_of_nothing_but_nulls_fits_everywhere() -> None:
    stored = pa.schema({"id": pa.int64(), "x": pa.list_(pa.int8())})
    shape = shape_of(
        Target(Footers([footer("f", *stored)]), stored, ("id", "x"), ()),
        pa.schema({"id": "int64", "x": pa.null()}),
        ["id"],
    )
    assert conform(pa.table({"id": [1], "x": [None]}), shape).to_pylist() == [{"id": 1, "x": None}]


def test_a_short_slice_of_fixed_size_lists_is_plain() -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(list("abcdef")).dictionary_encode(), 2)
    assert arrays.plain(lists.slice(0, 1)).to_pylist() == [["a", "b"]]
    assert arrays.plain(lists.slice(1, 1)).to_pylist() == [["c", "d"]]


def test_list_views_that_overlap_and_run_backwards_are_plain() -> None:
    starts, sizes = pa.array([2, 0, 1, 1], pa.int32()), pa.array([1, 3, 2, 0], pa.int32())
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1], pa.int8()))
    null = pa.array([False, False, True, False])
    lists = pa.ListViewArray.from_arrays(starts, sizes, flags, mask=null)
    assert arrays.plain(lists).to_pylist() == [[1], [1, 0, 1], None, []]
    assert arrays.plain(lists.slice(1, 2)).to_pylist() == [[1, 0, 1], None]
