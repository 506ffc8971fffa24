"""Some rows of a column change: the same rows for every reader, true statistics, nothing left of what was overwritten,
and damage is reported wherever the column is decoded."""

from __future__ import annotations

import datetime as dt
import math
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsspeckit
from damage import edit_footer
from fsspeckit import UnreadableFileError
from fsspeckit.core.parquet import thrift
from page_readers import pages, readers, replaced

ROWS = 21_000
CHANGED = [0, 1, 20_000, 20_017, ROWS - 1]
SMALL_PAGES = {"data_page_size": 8192, "write_batch_size": 256}
VALUES: dict[str, Callable[[int], Any]] = {
    "int32": lambda i: i * 7 - 20_000,
    "int64": lambda i: i * 10**12,
    "uint32": lambda i: 2**32 - 1 - i,
    "uint64": lambda i: 2**64 - 1 - i,
    "float": lambda i: i / 8 - 1,
    "double": lambda i: i / 3 - 100,
    "date32": lambda i: dt.date(2024, 1, 1) + dt.timedelta(i),
    "timestamp[ms]": lambda i: dt.datetime(2024, 1, 1) + dt.timedelta(hours=i),
    "timestamp[us]": lambda i: dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=i),
    "timestamp[ns]": lambda i: dt.datetime(2024, 1, 1) + dt.timedelta(hours=i),
    "string": lambda i: "é" * (i % 5) + f"value {i}",
    "binary": lambda i: bytes([255, i % 251 + 1]) + str(i).encode(),
    "bool": lambda i: i % 2 == 0,
}
ENCODINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (ROWS, {"use_dictionary": False}),
    "a small dictionary": (30, {}),
    "a dictionary that was given up": (ROWS, {"dictionary_pagesize_limit": 4096}),
}
"""How many distinct values there are, and the writer's options."""


def column_of(kind: str, distinct: int = ROWS) -> pa.Array:
    return pa.array([VALUES[kind](i * 7919 % distinct) for i in range(ROWS)], pa.type_for_alias(kind))


def new_values(kind: str) -> pa.Array:
    """Values inside and outside of the column's bounds."""
    numbers = [ROWS + 5, ROWS + 7 if kind in ("string", "binary", "uint32", "uint64") else -5, 11, 12, 13]
    return pa.array([VALUES[kind](n) for n in numbers], pa.type_for_alias(kind))


def lake_of(folder: Path, values: pa.Array, *, nullable: bool = True, **options: Any) -> Path:
    folder.mkdir()
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("value", values.type, nullable)])
    table = pa.table([pa.array(range(ROWS)), values], schema=schema)
    pq.write_table(table, folder / "f.parquet", row_group_size=ROWS, **{**SMALL_PAGES, **options})
    return folder


def change(lake: Path, values: pa.Array, positions: list[int]) -> Any:
    return fsspeckit.merge(pa.table({"id": pa.array(positions), "value": values}), str(lake), key_columns=["id"])


def check(lake: Path, rows: list[Any]) -> None:
    """Every reader sees the rows, and the statistics describe them."""
    for reader, seen in readers(lake / "f.parquet").items():
        assert seen == rows, reader
    statistics = statistics_of(lake)
    stored = [row.encode() if isinstance(row, str) else row for row in rows if row is not None]
    bounds = tuple(v.encode() if isinstance(v, str) else v for v in (statistics.min, statistics.max))
    assert bounds == (min(stored), max(stored))
    assert statistics.null_count == rows.count(None)


def statistics_of(lake: Path) -> Any:
    return pq.read_metadata(lake / "f.parquet").row_group(0).column(1).statistics


def check_changed(lake: Path, values: pa.Array, new: pa.Array, positions: list[int]) -> None:
    assert change(lake, new, positions).updated == len(positions)
    check(lake, replaced(values, new, positions))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_type_and_encoding_for_every_reader(tmp_path: Path, kind: str, encoding: str) -> None:
    distinct, options = ENCODINGS[encoding]
    values = column_of(kind, distinct)
    lake = lake_of(tmp_path / "lake", values, **options)
    check_changed(lake, values, new_values(kind), CHANGED)


@pytest.mark.parametrize("nullable", [True, False], ids=["optional", "required"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("distinct", [30, ROWS])
def test_every_codec_and_version_of_pages(
    tmp_path: Path, codec: str, version: str, nullable: bool, distinct: int
) -> None:
    options = {"compression": codec, "data_page_version": version, "write_page_checksum": True}
    values = column_of("string", distinct)
    lake = lake_of(tmp_path / "lake", values, nullable=nullable, **options)
    check_changed(lake, values, new_values("string"), CHANGED)


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind != "bool"])
@pytest.mark.parametrize("bound", [min, max])
def test_a_bound_that_is_overwritten_is_replaced_by_the_next(tmp_path: Path, kind: str, bound: Any) -> None:
    rows = column_of(kind).to_pylist()
    place = [row.encode() if isinstance(row, str) else row for row in rows].index(
        bound(row.encode() if isinstance(row, str) else row for row in rows)
    )
    new = pa.array([VALUES[kind](ROWS // 2)], pa.type_for_alias(kind))
    values = pa.array(rows, new.type)
    check_changed(lake_of(tmp_path / "lake", values, use_dictionary=False), values, new, [place])


@pytest.mark.parametrize("where", ["in the file", "in the source", "replaced"])
@pytest.mark.parametrize("kind", ["string", "double"])
@pytest.mark.parametrize("distinct", [30, ROWS])
def test_nulls_are_counted(tmp_path: Path, kind: str, where: str, distinct: int) -> None:
    values, new = column_of(kind, distinct), new_values(kind)
    place = CHANGED[0] if where == "replaced" else 7
    if where == "in the source":
        new = pa.array([None, *new.to_pylist()[1:]], new.type)
    else:
        values = pa.array([None if i == place else v for i, v in enumerate(values.to_pylist())], values.type)
    check_changed(lake_of(tmp_path / "lake", values), values, new, CHANGED)


@pytest.mark.parametrize("options", [{"write_page_index": True}, {"bloom_filter_options": {"value": {"ndv": 30}}}])
@pytest.mark.parametrize("distinct", [30, ROWS])
def test_page_indexes_and_bloom_filters_describe_the_new_values(
    tmp_path: Path, options: dict[str, Any], distinct: int
) -> None:
    values = column_of("int64", distinct)
    lake = lake_of(tmp_path / "lake", values, **options)
    check_changed(lake, values, new_values("int64"), CHANGED)
    chunk = pq.read_metadata(lake / "f.parquet").row_group(0).column(1)
    assert chunk.has_column_index if "write_page_index" in options else chunk.bloom_filter_offset
    sought = new_values("int64")[0]
    assert pq.read_table(lake, filters=pc.field("value") == sought).column("id").to_pylist() == [CHANGED[0]]


@pytest.mark.parametrize("distinct", [30, ROWS])
@pytest.mark.parametrize("kind", ["string", "int64"])
def test_a_value_that_no_row_has_any_more_leaves_the_file(tmp_path: Path, kind: str, distinct: int) -> None:
    """So that bounds are true, and nobody finds in the file's bytes what was overwritten."""
    last: Any = "Zacharias" if kind == "string" else 2**62 + 12345
    values = pa.array([last if i in CHANGED[1:3] else v for i, v in enumerate(column_of(kind, distinct).to_pylist())])
    lake = lake_of(tmp_path / "lake", values, compression="none", dictionary_pagesize_limit=4096)
    raw = last.encode() if isinstance(last, str) else last.to_bytes(8, "little")
    assert raw in (lake / "f.parquet").read_bytes()
    check_changed(lake, values, values.take(pa.array([100] * len(CHANGED))), CHANGED)
    assert raw not in (lake / "f.parquet").read_bytes()


@pytest.mark.parametrize("kind", ["string", "double"])
def test_bounds_that_are_no_values_are_replaced(tmp_path: Path, kind: str) -> None:
    """A bound that was cut short holds the beginning of a text, which may be the one that is overwritten."""
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values, compression="none")

    def cut(footer: Any) -> None:
        low, high = (b"secret", b"\xff\xffsecret") if kind == "string" else (struct.pack("<d", v) for v in (-1e9, 1e9))
        footer[4][1][1][0][1][1][1][1][3][1][12][1].update(
            {5: (thrift.BINARY, high), 6: (thrift.BINARY, low), 7: (thrift.FALSE, None), 8: (thrift.FALSE, None)}
        )

    edit_footer(lake / "f.parquet", cut)
    check_changed(lake, values, new_values(kind), CHANGED)
    assert b"secret" not in (lake / "f.parquet").read_bytes()


def test_a_bound_of_thousands_of_bytes_is_not_written(tmp_path: Path) -> None:
    values = column_of("string")
    lake = lake_of(tmp_path / "lake", values)
    change(lake, pa.array(["\U0010ffff" * 1500]), [7])
    assert not statistics_of(lake).has_min_max
    assert readers(lake / "f.parquet")["pyarrow"] == replaced(values, pa.array(["\U0010ffff" * 1500]), [7])


def test_a_few_long_texts_do_not_make_large_pages(tmp_path: Path) -> None:
    """Of even one long text, as few rows are encoded at once as PyArrow does by itself: a page ends only after them."""
    values = pa.array(["x" * 8000 if 1000 <= i < 3000 else f"name {i}" for i in range(ROWS)])
    lake = lake_of(tmp_path / "lake", values, use_dictionary=False)
    change(lake, pa.array(["n"] * len(CHANGED)), CHANGED)
    assert max(header[2] for _, _, header in pages(lake / "f.parquet")) < 10 << 20


def test_text_in_a_small_dictionary_stays_in_it(tmp_path: Path) -> None:
    values = column_of("string", 30)
    lake = lake_of(tmp_path / "lake", values)
    check_changed(lake, values, new_values("string"), CHANGED)
    assert "RLE_DICTIONARY" in pq.read_metadata(lake / "f.parquet").row_group(0).column(1).encodings


@pytest.mark.parametrize("distinct", [30, ROWS])
@pytest.mark.parametrize("kind", VALUES)
def test_values_that_are_there_already_are_not_written(tmp_path: Path, kind: str, distinct: int) -> None:
    values = column_of(kind, distinct)
    lake = lake_of(tmp_path / "lake", values)
    before = (lake / "f.parquet").read_bytes()
    result = change(lake, values.take(pa.array(CHANGED)), CHANGED)
    assert (result.updated, result.rewritten_files) == (len(CHANGED), [])
    assert (lake / "f.parquet").read_bytes() == before


@pytest.mark.parametrize("distinct", [30, ROWS])
def test_merged_again_and_back(tmp_path: Path, distinct: int) -> None:
    values = column_of("string", distinct)
    lake = lake_of(tmp_path / "lake", values)
    before = pq.read_table(lake)
    change(lake, new_values("string"), CHANGED)
    change(lake, values.take(pa.array(CHANGED)), CHANGED)
    assert pq.read_table(lake).equals(before)
    check(lake, values.to_pylist())


def test_nan_is_nan_whatever_its_bits(tmp_path: Path) -> None:
    one, other = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    values = pa.array([one if i % 3 == 0 else other if i % 3 == 1 else 2.0 for i in range(ROWS)])
    lake = lake_of(tmp_path / "lake", values)
    before, positions = (lake / "f.parquet").read_bytes(), [0, 3, 6, 9]
    assert change(lake, pa.array([other] * 4), positions).rewritten_files == []
    assert (lake / "f.parquet").read_bytes() == before
    assert change(lake, pa.array([other, 2.0, other, other]), positions).rewritten_files
    bits = pq.read_table(lake).column("value").to_numpy().view(np.uint64)
    assert bits[[0, 3, 6, 9, 12]].tolist() == np.array([other, 2.0, other, other, one]).view(np.uint64).tolist()


def test_zeros_as_bounds(tmp_path: Path) -> None:
    """A reader may take -0.0 for less than 0.0, and must not miss either of them."""
    lake = lake_of(tmp_path / "lake", pa.array([float(i + 1) for i in range(ROWS)]))
    change(lake, pa.array([0.0]), [100])
    assert math.copysign(1, statistics_of(lake).min) == -1
    assert len(change(lake, pa.array([-0.0]), [100]).rewritten_files) == 1
    assert repr(readers(lake / "f.parquet")["pyarrow"][100]) == "-0.0"


def test_a_key_that_is_written_otherwise(tmp_path: Path) -> None:
    """0.0 and -0.0 are one key, and the source's is stored."""
    values, ids = column_of("int64", 30), pa.array([float(i) for i in range(ROWS)])
    pq.write_table(pa.table({"id": ids, "value": values}), tmp_path / "f.parquet", row_group_size=ROWS)
    new = values.take(pa.array([1000, 1001]))
    fsspeckit.merge(pa.table({"id": [-0.0, 7.0], "value": new}), str(tmp_path), key_columns=["id"])
    for reader, rows in readers(tmp_path / "f.parquet").items():
        assert sorted(rows) == sorted(replaced(values, new, [0, 7])), reader
    assert repr(pq.read_table(tmp_path).column("id")[0].as_py()) == "-0.0"
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert [metadata.row_group(0).column(i).statistics.has_min_max for i in range(2)] == [True, True]


@pytest.mark.parametrize("kind", ["int64", "double", "binary"])
def test_a_value_that_stands_twice_in_a_dictionary(tmp_path: Path, kind: str) -> None:
    """No writer at hand makes such a dictionary; all of them read it."""
    raw = {
        "int64": [n.to_bytes(8, "little") for n in (10**17 + 1, 10**17 + 2, 10**17 + 3)],
        "double": [np.float64(n).tobytes() for n in (1.1, 2.2, 3.3)],
        "binary": [b"first value", b"second one!", b"third value"],
    }[kind]
    values = pa.array(raw if kind == "binary" else [np.frombuffer(n, kind)[0] for n in raw], pa.type_for_alias(kind))
    column = values.take(pa.array([i % 3 for i in range(ROWS)]))
    lake = lake_of(tmp_path / "lake", column, compression="none", write_statistics=False)
    path = lake / "f.parquet"
    assert path.read_bytes().count(raw[2]) == 1
    path.write_bytes(path.read_bytes().replace(raw[2], raw[0]))
    column = pq.read_table(lake).column("value").combine_chunks()
    assert column.to_pylist() == values.take(pa.array([(0, 1, 0)[i % 3] for i in range(ROWS)])).to_pylist()
    before = path.read_bytes()
    assert change(lake, column.take(pa.array(CHANGED)), CHANGED).rewritten_files == []
    assert path.read_bytes() == before
    new = values.take(pa.array([1] * len(CHANGED)))
    change(lake, new, CHANGED)
    for reader, rows in readers(path).items():
        assert rows == replaced(column, new, CHANGED), reader


def test_flags_with_the_offset_of_a_dictionary_that_is_not_there(tmp_path: Path) -> None:
    values = column_of("bool")
    lake = lake_of(tmp_path / "lake", values)

    def point(footer: Any) -> None:
        metadata = footer[4][1][1][0][1][1][1][1][3][1]
        metadata[11] = metadata[9]

    edit_footer(lake / "f.parquet", point)
    check_changed(lake, values, pc.invert(values.take(pa.array(CHANGED))), CHANGED)


# -- damage: the page is not one that holds a changed row, and its column need not change either


def break_last_page(path: Path, new: Callable[[int], int]) -> bytes:
    """Change a byte near the end of the column `value`, among the values of its last page."""
    raw, (_, end, _) = bytearray(path.read_bytes()), pages(path)[-1]
    raw[end - 9] = new(raw[end - 9])
    path.write_bytes(raw)
    return bytes(raw)


def check_reported(lake: Path, raw: bytes, new: pa.Array, other: float | None) -> None:
    source = pa.table({"id": range(len(new)), "value": new})
    if other is not None:
        source = source.append_column("other", pa.array([other] * len(new)))
    with pytest.raises(UnreadableFileError, match=r"f\.parquet"):
        fsspeckit.merge(source, str(lake), key_columns=["id"])
    assert (lake / "f.parquet").read_bytes() == raw


@pytest.mark.parametrize("distinct", [30, ROWS])
@pytest.mark.parametrize("kind", ["string", "int64"])
def test_a_wrong_checksum_is_reported(tmp_path: Path, kind: str, distinct: int) -> None:
    values = column_of(kind, distinct)
    lake = lake_of(tmp_path / "lake", values, write_page_checksum=True, compression="none")
    raw = break_last_page(lake / "f.parquet", lambda byte: byte ^ 1)
    check_reported(lake, raw, values.slice(100, 3), None)


@pytest.mark.parametrize("changes", ["value", "another column"])
@pytest.mark.parametrize("kind", ["string", "int64", "double"])
def test_a_dictionary_index_without_a_value_is_reported(tmp_path: Path, kind: str, changes: str) -> None:
    values = column_of(kind, 30)
    table = pa.table({"id": pa.array(range(ROWS)), "value": values, "other": pa.array([1.5] * ROWS)})
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, row_group_size=ROWS, compression="none", **SMALL_PAGES)
    raw = break_last_page(path, lambda byte: 0xFF)  # five bits of ones: 31, of 30 values
    new = values.slice(100, 3) if changes == "value" else values.slice(0, 3)
    check_reported(tmp_path, raw, new, 1.5 if changes == "value" else 2.5)


# -- all of it at random, against a model

POOLS: dict[str, list[Any]] = {
    "int32": [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "uint64": [0, 1, 2**63, 2**64 - 1],
    "double": [0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan],
    "string": ["", "a", "b", "ab", "é", "\0", "\0\0\0\0", "x" * 255, "x" * 256, "customer 17", "customer 18"],
    "binary": [b"", b"\0", b"\1\0\0\0", b"abc", b"\xff" * 30],
    "bool": [True, False],
}


@st.composite
def changes(draw: st.DrawFn) -> tuple[pa.Array, pa.Array, list[int], dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(POOLS)))
    value = st.sampled_from(POOLS[kind])
    values = draw(st.lists(value, min_size=1, max_size=60))
    positions = sorted(draw(st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=4)))
    new = [draw(value) for _ in positions]
    options = {
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from((1, 24, 1 << 20))),
        "write_batch_size": draw(st.sampled_from((1, 3, 8, 1024))),
        "data_page_size": draw(st.sampled_from((1, 40, 1 << 20))),
        "data_page_version": draw(st.sampled_from(("1.0", "2.0"))),
        "compression": draw(st.sampled_from(("none", "snappy", "gzip", "zstd"))),
        "write_page_checksum": draw(st.booleans()),
        "write_statistics": draw(st.booleans()),
    }
    dtype = pa.type_for_alias(kind)
    return pa.array(values, dtype), pa.array(new, dtype), positions, options


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(changes(), st.booleans())
def test_pages_of_all_kinds_against_a_model(
    case: tuple[pa.Array, pa.Array, list[int], dict[str, Any]], nullable: bool
) -> None:
    values, new, positions, options = case
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("value", values.type, nullable)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.parquet"
        pq.write_table(pa.table([pa.array(range(len(values))), values], schema=schema), path, **options)
        result = change(Path(folder), new, positions)
        rows = replaced(values, new, positions)
        assert result.updated == len(positions)
        assert bool(result.rewritten_files) == (list(map(repr, rows)) != list(map(repr, values.to_pylist())))
        file = pq.ParquetFile(path, page_checksum_verification=True)
        assert list(map(repr, file.read().column("value").to_pylist())) == list(map(repr, rows))
        check_bounds(file.metadata.row_group(0).column(1).statistics, rows)


def check_bounds(statistics: Any, rows: list[Any]) -> None:
    """Where there are bounds, no value is outside of them."""
    if statistics is not None and statistics.has_min_max:
        stored = [row.encode() if isinstance(row, str) else row for row in rows]
        low, high = (v.encode() if isinstance(v, str) else v for v in (statistics.min, statistics.max))
        ordered = [value for value in stored if value == value]
        assert min(ordered) == low
        assert max(ordered) == high
