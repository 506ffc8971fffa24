"""Rows of columns whose values stand in the pages themselves are changed within few pages, and the others are copied:
the same rows for every reader, true bounds, and nothing left of what was overwritten."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsspeckit
from damage import edit_footer
from fsspeckit import UnreadableFileError
from fsspeckit.core.rewrite import in_pages, kernel, plain_pages
from fsspeckit.core.rewrite.page_bytes import PatchedChunk
from fsspeckit.core.rewrite.plain_pages import with_values
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.target.tail import footer_bytes
from page_readers import readers, replaced

ROWS = 40_000
CHANGED = [20_000, 20_001, 20_002, 20_017, 20_099]
"""In one page, or in two that follow each other."""
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
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pages, "_SMALL", 0)


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What came of every column that was tried: its new chunk, "same", or "unknown"."""
    told: list[Any] = []

    def noted(*arguments: Any, **options: Any) -> Any:
        told.append("unknown")
        told[-1] = with_values(*arguments, **options) or "same"
        return None if told[-1] == "same" else told[-1]

    monkeypatch.setattr(in_pages, "with_values", noted)
    return told


def column_of(kind: str) -> pa.Array:
    return pa.array([VALUES[kind](i * 7919 % ROWS) for i in range(ROWS)], pa.type_for_alias(kind))


def new_values(kind: str) -> pa.Array:
    """Of which the first is greater than all, and the second is less."""
    numbers = [ROWS + 5, -5 if kind not in ("string", "binary", "uint32", "uint64") else ROWS + 7, 11, 12, 13]
    return pa.array([VALUES[kind](n) for n in numbers], pa.type_for_alias(kind))


def lake_of(folder: Path, values: pa.Array, *, nullable: bool = True, **options: Any) -> Path:
    folder.mkdir()
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("value", values.type, nullable)])
    table = pa.table([pa.array(range(ROWS)), values], schema=schema)
    options = {"use_dictionary": False, **SMALL_PAGES, **options}
    pq.write_table(table, folder / "f.parquet", row_group_size=ROWS, **options)
    return folder


def change(lake: Path, values: pa.Array, positions: list[int]) -> Any:
    return fsspeckit.merge(pa.table({"id": pa.array(positions), "value": values}), str(lake), key_columns=["id"])


def check(lake: Path, rows: list[Any]) -> None:
    """Every reader sees the rows, the bounds are theirs, and pages add up to what the footer says."""
    path = lake / "f.parquet"
    for reader, seen in readers(path).items():
        assert seen == rows, reader
    chunk = pq.read_metadata(path).row_group(0).column(1)
    as_stored = [row.encode() if isinstance(row, str) else row for row in rows]
    bounds = tuple(v.encode() if isinstance(v, str) else v for v in (chunk.statistics.min, chunk.statistics.max))
    assert bounds == (min(as_stored), max(as_stored))
    assert chunk.statistics.null_count == 0
    with duckdb.connect() as connection:
        sizes = connection.execute(
            "SELECT total_uncompressed_size FROM parquet_metadata(?) WHERE path_in_schema = 'value'", [str(path)]
        ).fetchone()
    assert sizes == (chunk.total_uncompressed_size,)


def check_changed(lake: Path, outcomes: list[Any], values: pa.Array, new: pa.Array, positions: list[int]) -> None:
    assert change(lake, new, positions).updated == len(positions)
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    check(lake, replaced(values, new, positions))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "after a dictionary"])
def test_every_type_for_every_reader(tmp_path: Path, outcomes: list[Any], kind: str, dictionary: bool) -> None:
    values = column_of(kind)
    options: dict[str, Any] = {"use_dictionary": dictionary, "dictionary_pagesize_limit": 4096}
    lake = lake_of(tmp_path / "lake", values, **options)
    check_changed(lake, outcomes, values, new_values(kind), CHANGED)


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_in_pages_that_go_by_a_dictionary(tmp_path: Path, outcomes: list[Any], kind: str) -> None:
    """The dictionary is left out, and with it what was overwritten."""
    values = column_of(kind)
    options: dict[str, Any] = {
        "use_dictionary": True,
        "dictionary_pagesize_limit": 4096,
        "compression": "none",
    }
    lake = lake_of(tmp_path / "lake", values, **options)
    before = pq.read_metadata(lake / "f.parquet").row_group(0).column(1)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(before.encodings)
    positions = [3, 4, 5, 9, 100]
    check_changed(lake, outcomes, values, new_values(kind), positions)
    after = pq.read_metadata(lake / "f.parquet").row_group(0).column(1)
    assert set(after.encodings) == {"PLAIN", "RLE"}
    assert after.dictionary_page_offset is None
    if kind == "string":
        gone = values[3].as_py().encode()
        assert len(gone).to_bytes(4, "little") + gone not in (lake / "f.parquet").read_bytes()


@pytest.mark.parametrize("nullable", [True, False], ids=["optional", "required"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["string", "int64"])
def test_every_codec_and_version_of_pages(
    tmp_path: Path, outcomes: list[Any], kind: str, codec: str, version: str, nullable: bool
) -> None:
    options = {"compression": codec, "data_page_version": version, "write_page_checksum": True}
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values, nullable=nullable, **options)
    check_changed(lake, outcomes, values, new_values(kind), CHANGED)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("kind", ["string", "double"])
def test_dictionaries_in_both_versions_of_pages(tmp_path: Path, outcomes: list[Any], kind: str, version: str) -> None:
    options: dict[str, Any] = {"data_page_version": version, "use_dictionary": True, "dictionary_pagesize_limit": 4096}
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values, write_page_checksum=True, **options)
    check_changed(lake, outcomes, values, new_values(kind), [0, 1, 2, 3, 20_000])


@pytest.mark.parametrize("codec", ["brotli", "lz4"])
def test_data_that_do_not_tell_their_size_are_decoded(tmp_path: Path, outcomes: list[Any], codec: str) -> None:
    values = column_of("int64")
    lake = lake_of(tmp_path / "lake", values, compression=codec)
    change(lake, new_values("int64"), CHANGED)
    assert outcomes == []
    check(lake, replaced(values, new_values("int64"), CHANGED))


def pages_of(path: Path) -> list[bytes]:
    """The pages of the second column, with their headers."""
    with pa.OSFile(str(path)) as file:
        entry = thrift.structs(thrift.structs(thrift.decode(footer_bytes(file)), 4)[0], 1)[1]
        read = spans.reader_of(file)
        return [read(page.at, page.end - page.at) for page in spans.pages_of(read, spans.Chunk.of(entry))]


@pytest.mark.parametrize("kind", ["string", "int64"])
def test_pages_in_which_no_row_changes_are_copied(tmp_path: Path, outcomes: list[Any], kind: str) -> None:
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values, use_dictionary=True, dictionary_pagesize_limit=4096)
    before = pages_of(lake / "f.parquet")
    result = change(lake, new_values(kind), CHANGED)
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    check(lake, replaced(values, new_values(kind), CHANGED))
    after = pages_of(lake / "f.parquet")
    written = sum(len(a) for a, b in zip(after, before, strict=True) if a != b)
    assert 0 < result.bytes_encoded - written < 4096  # the footer
    assert len(after) == len(before) > 10
    assert 1 <= sum(a != b for a, b in zip(after, before, strict=True)) <= 2
    assert after[0] == before[0]  # the dictionary, which no changed row goes by


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("bound", ["min", "max"])
def test_a_bound_that_is_overwritten_is_looked_for_anew(
    tmp_path: Path, outcomes: list[Any], kind: str, bound: str
) -> None:
    rows = column_of(kind).to_pylist()
    as_stored = [row.encode() if isinstance(row, str) else row for row in rows]
    place = as_stored.index((min if bound == "min" else max)(as_stored))
    new = pa.array([VALUES[kind](ROWS // 2)], pa.type_for_alias(kind))
    values = pa.array(rows, new.type)
    lake = lake_of(tmp_path / "lake", values)
    check_changed(lake, outcomes, values, new, [place])


def test_a_bound_that_two_rows_have_stays(tmp_path: Path, outcomes: list[Any]) -> None:
    rows = column_of("int64").to_pylist()
    rows[5] = rows[30_000] = 10**17
    values = pa.array(rows)
    lake = lake_of(tmp_path / "lake", values)
    check_changed(lake, outcomes, values, pa.array([1]), [5])
    assert pq.read_metadata(lake / "f.parquet").row_group(0).column(1).statistics.max == 10**17


def test_a_column_that_has_the_values_is_copied(tmp_path: Path, outcomes: list[Any]) -> None:
    values = column_of("string")
    lake = lake_of(tmp_path / "lake", values)
    before = (lake / "f.parquet").read_bytes()
    result = change(lake, values.take(pa.array(CHANGED)), CHANGED)
    assert outcomes == ["same"]
    assert (result.updated, result.rewritten_files) == (len(CHANGED), [])
    assert (lake / "f.parquet").read_bytes() == before


def test_merged_again_and_back(tmp_path: Path, outcomes: list[Any]) -> None:
    values = column_of("string")
    lake = lake_of(tmp_path / "lake", values, use_dictionary=True, dictionary_pagesize_limit=4096)
    before = pq.read_table(lake)
    positions = [1, 2, 20_000, 20_001, 30_000]
    change(lake, new_values("string"), positions)
    change(lake, values.take(pa.array(positions)), positions)
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk] * 2
    assert pq.read_table(lake).equals(before)
    check(lake, values.to_pylist())


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (lambda i: "" if i % 5 == 0 else f"name {i * i}", PatchedChunk),
        (lambda i: "" if i % 5 < 2 else f"name {i * i}", None),
        (lambda i: f"a\0\0\0b{i}", None),
        (lambda i: f"{i}\0\0", None),
        (lambda i: "x" * 255 if i % 2 else "é" * 127, PatchedChunk),
        (lambda i: "x" * 256 if i == 20_050 else str(i), str),
        (lambda i: "\0", str),
    ],
)
def test_text_that_looks_like_lengths(
    tmp_path: Path, outcomes: list[Any], text: Callable[[int], str], outcome: type | None
) -> None:
    """What cannot be told from lengths is decoded; the rows are right either way."""
    values, new = pa.array([text(i) for i in range(ROWS)]), pa.array(["n", "", "new", "é", "z" * 200])
    lake = lake_of(tmp_path / "lake", values)
    change(lake, new, CHANGED)
    assert outcome is None or [type(told) for told in outcomes] == [outcome]
    for reader, seen in readers(lake / "f.parquet").items():
        assert seen == replaced(values, new, CHANGED), reader


def test_a_new_text_that_is_long_is_decoded(tmp_path: Path, outcomes: list[Any]) -> None:
    values, new = column_of("string"), pa.array(["x" * 256])
    lake = lake_of(tmp_path / "lake", values)
    change(lake, new, [7])
    assert outcomes == ["unknown"]
    check(lake, replaced(values, new, [7]))


@pytest.mark.parametrize("where", ["in the file", "in the source"])
@pytest.mark.parametrize("kind", ["string", "double"])
def test_nulls_are_decoded(tmp_path: Path, outcomes: list[Any], kind: str, where: str) -> None:
    values, new = column_of(kind), new_values(kind)
    if where == "in the file":
        values = pa.array([None, *values.to_pylist()[1:]], values.type)
    else:
        new = pa.array([None, *new.to_pylist()[1:]], new.type)
    lake = lake_of(tmp_path / "lake", values)
    change(lake, new, CHANGED)
    assert not any(isinstance(outcome, PatchedChunk) for outcome in outcomes)
    assert readers(lake / "f.parquet")["pyarrow"] == replaced(values, new, CHANGED)


@pytest.mark.parametrize("where", ["in the file", "in the source"])
def test_nan_is_in_no_order(tmp_path: Path, outcomes: list[Any], where: str) -> None:
    rows, new = column_of("double").to_pylist(), [1.0, 2.0, 3.0, 4.0, 5.0]
    if where == "in the file":
        rows[CHANGED[2]] = math.nan
    else:
        new[2] = math.nan
    lake = lake_of(tmp_path / "lake", pa.array(rows))
    change(lake, pa.array(new), CHANGED)
    assert outcomes == ["unknown"]
    seen = readers(lake / "f.parquet")["pyarrow"]
    assert [repr(value) for value in seen] == [repr(v) for v in replaced(pa.array(rows), pa.array(new), CHANGED)]


def test_zeros_as_bounds(tmp_path: Path, outcomes: list[Any]) -> None:
    """A reader may take -0.0 for less than 0.0, and must not miss either of them."""
    values = pa.array([float(i + 1) for i in range(ROWS)])
    lake = lake_of(tmp_path / "lake", values)
    change(lake, pa.array([0.0]), [100])
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    statistics = pq.read_metadata(lake / "f.parquet").row_group(0).column(1).statistics
    assert math.copysign(1, statistics.min) == -1
    result = change(lake, pa.array([-0.0]), [100])
    assert len(result.rewritten_files) == 1
    assert repr(readers(lake / "f.parquet")["pyarrow"][100]) == "-0.0"


@pytest.mark.parametrize("options", [{"write_page_index": True}, {"bloom_filter_options": {"value": {"ndv": 30}}}])
def test_what_tells_of_single_pages_is_made_anew(tmp_path: Path, outcomes: list[Any], options: dict[str, Any]) -> None:
    values = column_of("int64")
    lake = lake_of(tmp_path / "lake", values, **options)
    change(lake, new_values("int64"), CHANGED)
    assert outcomes == []
    check(lake, replaced(values, new_values("int64"), CHANGED))


def test_changes_all_over_are_decoded(tmp_path: Path, outcomes: list[Any]) -> None:
    values, positions = column_of("string"), list(range(0, ROWS, 500))
    new = values.take(pa.array([i // 2 for i in positions]))
    lake = lake_of(tmp_path / "lake", values)
    change(lake, new, positions)
    assert outcomes == []
    check(lake, replaced(values, new, positions))


@pytest.mark.parametrize("kind", ["string", "int64"])
def test_a_damaged_page_is_told_of(tmp_path: Path, outcomes: list[Any], kind: str) -> None:
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values, write_page_checksum=True, compression="none")
    path = lake / "f.parquet"
    raw = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(1)
    at = path.read_bytes().index(pages_of(path)[0])
    assert at == chunk.data_page_offset
    raw[at + len(pages_of(path)[0]) - 1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(UnreadableFileError, match=r"f\.parquet"):
        change(lake, new_values(kind).slice(0, 1), [0])
    assert path.read_bytes() == raw
    assert outcomes == ["unknown"]


def test_bounds_that_only_old_readers_look_at_are_made_anew(tmp_path: Path, outcomes: list[Any]) -> None:
    """Their order is not told, so nobody prunes by them: PyArrow writes others."""
    values = column_of("int64")
    lake = lake_of(tmp_path / "lake", values)

    def old(footer: Any) -> None:
        statistics = footer[4][1][1][0][1][1][1][1][3][1][12][1]
        statistics[1], statistics[2] = statistics.pop(5), statistics.pop(6)

    edit_footer(lake / "f.parquet", old)
    change(lake, new_values("int64"), CHANGED)
    assert outcomes == ["unknown"]
    check(lake, replaced(values, new_values("int64"), CHANGED))


def edit_statistics(lake: Path, change: Callable[[Any], Any]) -> None:
    edit_footer(lake / "f.parquet", lambda footer: change(footer[4][1][1][0][1][1][1][1][3][1][12][1]))


def told_statistics(lake: Path) -> Any:
    with pa.OSFile(str(lake / "f.parquet")) as file:
        return thrift.decode(footer_bytes(file))[4][1][1][0][1][1][1][1][3][1][12][1]


@pytest.mark.parametrize("kind", ["int64", "double", "string"])
@pytest.mark.parametrize("fields", [set(), {3}, {3, 6}, {3, 5}])
def test_statistics_without_a_bound(tmp_path: Path, outcomes: list[Any], kind: str, fields: set[int]) -> None:
    """As DuckDB writes them of doubles with a NaN."""
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values)
    edit_statistics(lake, lambda told: [told.pop(number) for number in told.keys() - fields])
    change(lake, new_values(kind), CHANGED)
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    assert told_statistics(lake).keys() == fields
    assert readers(lake / "f.parquet")["pyarrow"] == replaced(values, new_values(kind), CHANGED)


@pytest.mark.parametrize("kind", ["string", "double"])
def test_bounds_that_are_no_values_are_made_anew(tmp_path: Path, outcomes: list[Any], kind: str) -> None:
    """A bound that was cut short has the beginning of a text in it, which may be the one that is overwritten."""
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values, compression="none")

    def cut(told: Any) -> None:
        low, high = (b"secret", b"\xff\xffsecret") if kind == "string" else (struct.pack("<d", v) for v in (-1e9, 1e9))
        told |= {5: (thrift.BINARY, high), 6: (thrift.BINARY, low), 7: (thrift.FALSE, None), 8: (thrift.FALSE, None)}

    edit_statistics(lake, cut)
    check_changed(lake, outcomes, values, new_values(kind), CHANGED)
    assert {told_statistics(lake)[number][0] for number in (7, 8)} == {thrift.TRUE}
    assert b"secret" not in (lake / "f.parquet").read_bytes()


@pytest.mark.parametrize("field", [2, 3], ids=["nulls", "rows"])
def test_a_page_that_contradicts_itself_is_not_understood(tmp_path: Path, outcomes: list[Any], field: int) -> None:
    values = column_of("int64")
    lake = lake_of(tmp_path / "lake", values, data_page_version="2.0", compression="none")
    path = lake / "f.parquet"
    raw, page = path.read_bytes(), pages_of(path)[0]
    header, length = thrift.decode_at(page, 0) or ({}, 0)
    header[8][1][field] = thrift.I32, header[8][1][field][1] + 1
    path.write_bytes(raw.replace(page, thrift.encode(header) + page[length:]))
    assert len(path.read_bytes()) == len(raw)
    with contextlib.suppress(UnreadableFileError):
        change(lake, new_values("int64").slice(0, 1), [0])
    assert outcomes == ["unknown"]


def test_without_statistics(tmp_path: Path, outcomes: list[Any]) -> None:
    values = column_of("string")
    lake = lake_of(tmp_path / "lake", values, write_statistics=False)
    change(lake, new_values("string"), CHANGED)
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    assert readers(lake / "f.parquet")["pyarrow"] == replaced(values, new_values("string"), CHANGED)
    assert pq.read_metadata(lake / "f.parquet").row_group(0).column(1).statistics is None


def test_flags_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns but the flags are read; those have the values already, or get them."""
    read: list[str] = []

    def noted(*arguments: Any, **options: Any) -> pa.Table:
        read.extend(options["columns"] or ["all"])
        return read_row_group(*arguments, **options)

    monkeypatch.setattr(kernel, "read_row_group", noted)
    flags = pa.array([i % 3 == 0 for i in range(ROWS)])
    lake = lake_of(tmp_path / "lake", flags)
    before = (lake / "f.parquet").read_bytes()
    assert change(lake, flags.take(pa.array(CHANGED)), CHANGED).rewritten_files == []
    assert (lake / "f.parquet").read_bytes() == before
    new = pa.array([not flags[i].as_py() for i in CHANGED])
    change(lake, new, CHANGED)
    for reader, seen in readers(lake / "f.parquet").items():
        assert seen == replaced(flags, new, CHANGED), reader
    assert "value" not in read
    assert "all" not in read


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


def test_pages_of_all_kinds_against_a_model(
    tmp_path: Path, outcomes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MANY_ROWS", 0), ("SPARSE", 1)):
        monkeypatch.setattr(in_pages, name, value)
    monkeypatch.setattr(plain_pages, "_PAGES_PER_CHANGE", 0)
    ways: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(changes(), st.booleans())
    def check(case: tuple[pa.Array, pa.Array, list[int], dict[str, Any]], nullable: bool) -> None:
        values, new, positions, options = case
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("value", values.type, nullable)])
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            path = Path(folder) / "f.parquet"
            pq.write_table(pa.table([pa.array(range(len(values))), values], schema=schema), path, **options)
            source = pa.table({"id": pa.array(positions), "value": new})
            result = fsspeckit.merge(source, folder, key_columns=["id"])
            rows = replaced(values, new, positions)
            assert result.updated == len(positions)
            assert bool(result.rewritten_files) == (list(map(repr, rows)) != list(map(repr, values.to_pylist())))
            file = pq.ParquetFile(path, page_checksum_verification=True)
            assert list(map(repr, file.read().column("value").to_pylist())) == list(map(repr, rows))
            check_bounds(file.metadata.row_group(0).column(1).statistics, rows)
        ways.update(type(outcomes.pop()).__name__ for _ in list(outcomes))

    check()
    assert min(ways["PatchedChunk"], ways["str"]) > 0, ways


def check_bounds(statistics: Any, rows: list[Any]) -> None:
    """Where there are bounds, no value is outside of them."""
    if statistics is not None and statistics.has_min_max:
        as_stored = [row.encode() if isinstance(row, str) else row for row in rows]
        low, high = (v.encode() if isinstance(v, str) else v for v in (statistics.min, statistics.max))
        ordered = [value for value in as_stored if value == value]
        assert min(ordered) == low
        assert max(ordered) == high
