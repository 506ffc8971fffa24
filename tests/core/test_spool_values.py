"""Every value of every type survives the spool, to the last bit: in a file of this process, and in a shared folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsspeckit.api import dataset_io
from fsspeckit.core.rows.store import LocalStore, SharedFolder, Store, one_batch
from fsspeckit.core.storage import LocalStorage
from fsspeckit.core.values.equality import identical

WIDTHS = {
    pa.float16(): 2,
    pa.float32(): 4,
    pa.float64(): 8,
    pa.date32(): 4,
    pa.date64(): 8,
    pa.time32("s"): 4,
    pa.time32("ms"): 4,
    pa.time64("us"): 8,
    pa.time64("ns"): 8,
    pa.timestamp("s"): 8,
    pa.timestamp("ms", "UTC"): 8,
    pa.timestamp("us", "Europe/Berlin"): 8,
    pa.timestamp("ns"): 8,
    pa.timestamp("ns", "Asia/Kolkata"): 8,
    pa.duration("s"): 8,
    pa.duration("ns"): 8,
    pa.decimal32(5, 2): 4,
    pa.decimal64(12, 3): 8,
    pa.decimal128(38, 10): 16,
    pa.decimal256(76, 0): 32,
    pa.binary(3): 3,
    **{kind: kind.bit_width // 8 for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32())},
    **{kind: kind.bit_width // 8 for kind in (pa.uint32(), pa.int64(), pa.uint64())},
}
TEXTS = [pa.string(), pa.large_string()]
BYTES = [pa.binary(), pa.large_binary()]
LEAVES = [*WIDTHS, *TEXTS, *BYTES, pa.bool_(), pa.null()]


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(st.tuples(st.sampled_from(["a", "A", "f0", 'q"', ""]), inner, st.booleans()), max_size=3)
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        fields.map(lambda found: pa.struct([pa.field(n, k, nullable=x or pa.types.is_null(k)) for n, k, x in found])),
    )


TYPES = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


@st.composite
def columns(draw: Any, kind: pa.DataType, rows: int, nullable: bool = True) -> pa.Array:
    """An array of any bits that the type's width allows, also of dates and times that no calendar has."""
    mask = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), dtype=bool) & nullable
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    if kind in WIDTHS:
        data = draw(st.binary(min_size=rows * WIDTHS[kind], max_size=rows * WIDTHS[kind]))
        valid = pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(data)])
    if pa.types.is_boolean(kind) or kind in TEXTS or kind in BYTES:
        values = st.booleans() if pa.types.is_boolean(kind) else st.text(max_size=20) if kind in TEXTS else st.binary()
        return pa.array([None if null else draw(values) for null in mask], kind)
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return pa.array([None if null else {} for null in mask], kind)
        children = [draw(columns(f.type, rows, f.nullable)) for f in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(mask))
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(
            draw(columns(kind.value_type, rows * 2)), type=kind, mask=pa.array(mask)
        )
    lengths = np.array(draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), dtype=np.int64)
    offsets = pa.array(
        np.concatenate([[0], np.cumsum(lengths)]), pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    )
    total = int(lengths.sum())
    if pa.types.is_map(kind):
        keys = draw(columns(kind.key_type, total, False))
        return pa.MapArray.from_arrays(offsets, keys, draw(columns(kind.item_type, total)), kind, mask=pa.array(mask))
    cls = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return cls.from_arrays(offsets, draw(columns(kind.value_type, total)), type=kind, mask=pa.array(mask))


@pytest.fixture(params=["file", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = LocalStore(0) if request.param == "file" else SharedFolder(LocalStorage(), str(tmp_path))
    yield made
    made.close()


def through(store: Store, table: pa.Table) -> pa.Table:
    writer = store.writer("test")
    writer.write(one_batch(table))
    run = writer.finish()
    assert (run.rows, run.starts) == (table.num_rows, (0,))
    return pa.Table.from_batches(list(store.read(run)))


def same(left: pa.Array, right: pa.Array) -> bool:
    """Equal to the bit: `identical` leaves one NaN equal to another."""
    bits = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(left.type)
    return identical(left, right) and (bits is None or left.view(bits).equals(right.view(bits)))


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_value_of_any_type(store: Store, data: st.DataObject) -> None:
    kind = data.draw(TYPES)
    array = data.draw(columns(kind, data.draw(st.integers(0, 6))))
    start = data.draw(st.integers(0, len(array)))
    for piece in (array, array.slice(start), array.slice(0, start)):
        back = through(store, pa.table({"x": piece})).column("x").combine_chunks()
        assert back.type == kind
        back.validate(full=False)
        assert same(back, piece)


@pytest.mark.parametrize("kind", LEAVES, ids=str)
def test_leaves_of_many_rows(kind: pa.DataType, store: Store) -> None:
    """With nulls, in order."""
    rows = 5000
    rng = np.random.default_rng(7)
    if kind in WIDTHS:
        raw = pa.py_buffer(rng.bytes(rows * WIDTHS[kind]))
        array = pa.Array.from_buffers(kind, rows, [None, raw])
    elif pa.types.is_null(kind):
        array = pa.nulls(rows)
    elif pa.types.is_boolean(kind):
        array = pa.array(rng.integers(0, 2, rows).astype(bool))
    else:
        array = pa.array([rng.bytes(i % 40).hex() for i in range(rows)]).cast(kind)
    array = array.take(pa.array(np.arange(rows), mask=np.arange(rows) % 7 == 3))
    assert same(through(store, pa.table({"x": array})).column("x").combine_chunks(), array)


def test_hard_values(store: Store) -> None:
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0x7FF0000000000001], dtype=np.uint64)
    table = pa.table(
        {
            "nan": pa.array(bits.view(np.float64)),
            "nul": ["a\0b", "\0", "", "ü\U0001f986"],
            "twice": pa.array([[("a", 1), ("a", 2)], [], None, [("", None)]], pa.map_(pa.string(), pa.int8())),
            "empty": pa.array([[], None, [None], [[]]], pa.list_(pa.list_(pa.null()))),
        }
    )
    back = through(store, table)
    assert back.schema.equals(table.schema)
    for name in table.column_names:
        assert same(back.column(name).combine_chunks(), table.column(name).combine_chunks())


@pytest.mark.parametrize("name", ["pyarrow", "duckdb"])
def test_a_required_field_of_a_null_struct_is_written(name: str, tmp_path: Path) -> None:
    """There is null in it; Parquet's writer wants a value."""
    inner = pa.struct([pa.field("k", pa.string(), nullable=False), pa.field("l", pa.list_(pa.int8()), nullable=False)])
    kinds = [pa.int8(), pa.bool_(), pa.decimal128(5, 1), pa.binary(2), pa.string(), pa.list_(pa.int8()), inner]
    kind = pa.struct([pa.field(f"f{i}", k, nullable=False) for i, k in enumerate(kinds)])
    table = pa.table({"id": [1, 2, 3], "s": pa.nulls(3, kind)})
    assert dataset_io(name).merge(table.to_reader(), str(tmp_path / "lake"), "upsert", ["id"]).inserted == 3
    assert dataset_io(name).read(str(tmp_path / "lake")).column("s").null_count == 3
