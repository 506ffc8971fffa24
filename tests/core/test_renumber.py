"""Rows that change to values which the column's dictionary has are changed within its pages: the same rows for every
reader, and true statistics; everything else is decoded and written, as ever."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import fsspeckit
from damage import edit_footer
from fsspeckit import UnreadableFileError
from fsspeckit.core.rewrite import in_pages
from fsspeckit.core.rewrite.page_bytes import PatchedChunk, Unknown, decompressed_size
from fsspeckit.core.rewrite.renumber import renumbered
from fsspeckit.core.target import spans
from page_readers import readers, replaced

ROWS = 50_000
CHANGED = [0, 1, 2, 9, 10, 19_999, 20_000, 33_333, 33_341, ROWS - 1]
DAY = dt.date(2024, 1, 1)
VALUES: dict[str, Callable[[int], Any]] = {
    "int32": lambda i: i * 7 - 20,
    "int64": lambda i: i * 10**12,
    "uint32": lambda i: 2**32 - 1 - i,
    "uint64": lambda i: 2**64 - 1 - i,
    "float": lambda i: i / 8 - 1,
    "double": lambda i: i / 3,
    "date32": lambda i: DAY + dt.timedelta(i),
    "timestamp[ms]": lambda i: dt.datetime(2024, 1, 1) + dt.timedelta(hours=i),
    "timestamp[us]": lambda i: dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=i),
    "timestamp[ns]": lambda i: dt.datetime(2024, 1, 1) + dt.timedelta(hours=i),
    "string": lambda i: "é" * (i % 5) + f"value {i}",
    "binary": lambda i: bytes([255, i]),
    "bool": lambda i: i % 2 == 0,
}


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What came of every column that was tried."""
    told: list[Any] = []

    def noted(*arguments: Any, **options: Any) -> Any:
        told.append(Unknown)
        told[-1] = renumbered(*arguments, **options)
        return told[-1]

    monkeypatch.setattr(in_pages, "renumbered", noted)
    return told


def column_of(kind: str, distinct: int = 30) -> pa.Array:
    values = pa.array([VALUES[kind](i) for i in range(distinct)], pa.type_for_alias(kind))
    return values.take(pa.array([(i * 17 + i // 100) % distinct for i in range(ROWS)]))


def lake_of(folder: Path, values: pa.Array, *, nullable: bool = True, **options: Any) -> Path:
    folder.mkdir()
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("value", values.type, nullable)])
    table = pa.table([pa.array(range(ROWS)), values], schema=schema)
    pq.write_table(table, folder / "f.parquet", row_group_size=ROWS, **options)
    return folder


def expected(values: pa.Array, new: pa.Array, positions: list[int] | None = None) -> list[Any]:
    return replaced(values, new, positions or CHANGED)


def change(lake: Path, values: pa.Array, positions: list[int] | None = None) -> Any:
    source = pa.table({"id": pa.array(positions or CHANGED), "value": values})
    return fsspeckit.merge(source, str(lake), key_columns=["id"])


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_for_every_reader(tmp_path: Path, outcomes: list[Any], kind: str) -> None:
    values = column_of(kind)
    lake = lake_of(tmp_path / "lake", values)
    new = values.take(pa.array([i + 1 if i + 1 < ROWS else 5 for i in CHANGED]))
    before = pq.read_metadata(lake / "f.parquet").row_group(0).column(1)
    assert change(lake, new).updated == len(CHANGED)
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    for reader, rows in readers(lake / "f.parquet").items():
        assert rows == expected(values, new), reader
    after = pq.read_metadata(lake / "f.parquet").row_group(0).column(1)
    assert after.statistics == before.statistics
    assert after.encodings == before.encodings
    assert (after.statistics.min, after.statistics.max) == tuple(pc.min_max(values).as_py().values())


@pytest.mark.parametrize("nullable", [True, False], ids=["optional", "required"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_every_codec_and_version_of_pages(
    tmp_path: Path, outcomes: list[Any], codec: str, version: str, nullable: bool
) -> None:
    values = column_of("string")
    options = {"compression": codec, "data_page_version": version, "write_page_checksum": True}
    lake = lake_of(tmp_path / "lake", values, nullable=nullable, **options)
    new = values.take(pa.array([i // 2 for i in CHANGED]))
    change(lake, new)
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    for reader, rows in readers(lake / "f.parquet").items():
        assert rows == expected(values, new), reader
    (lake / "g.parquet").write_bytes((lake / "f.parquet").read_bytes())
    sizes = pq.read_metadata(lake / "f.parquet").row_group(0).column(1)
    written = io.BytesIO()
    pq.write_table(pq.read_table(lake / "g.parquet"), written, row_group_size=ROWS, **options)
    again = pq.read_metadata(written).row_group(0).column(1)
    assert sizes.total_uncompressed_size == pytest.approx(again.total_uncompressed_size, rel=0.01)


@pytest.mark.parametrize("codec", ["brotli", "lz4"])
def test_data_that_do_not_tell_their_size_are_decoded(tmp_path: Path, outcomes: list[Any], codec: str) -> None:
    values = column_of("int64")
    check_decoded(tmp_path, outcomes, values, values.take(pa.array([i // 2 for i in CHANGED])), compression=codec)


@pytest.mark.parametrize("count", [1, 200, 255, 256, 300, 65_535, 65_536, 70_000, 2_000_000])
@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd"])
def test_compressed_data_tell_their_size(codec: str, count: int) -> None:
    number = {"snappy": 1, "gzip": 2, "zstd": 6}[codec]
    for data in (bytes(count), bytes(i * i % 251 for i in range(count))):
        compressed = pa.Codec(codec).compress(data, asbytes=True)
        assert decompressed_size(compressed, number) == count


def test_a_key_that_is_written_otherwise_beside_a_column_of_old(tmp_path: Path, outcomes: list[Any]) -> None:
    """0.0 and -0.0 are one key: so no column is copied, and yet one is not encoded anew."""
    values = column_of("int64")
    folder = tmp_path / "lake"
    folder.mkdir()
    ids = pa.array([float(i) for i in range(ROWS)])
    pq.write_table(pa.table({"id": ids, "value": values}), folder / "f.parquet", row_group_size=ROWS)
    new = values.take(pa.array([1000, 1001]))
    fsspeckit.merge(pa.table({"id": [-0.0, 7.0], "value": new}), str(folder), key_columns=["id"])
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk]
    for reader, rows in readers(folder / "f.parquet").items():
        assert sorted(rows) == sorted(expected(values, new, [0, 7])), reader
    metadata = pq.read_metadata(folder / "f.parquet")
    assert [metadata.row_group(0).column(i).statistics.has_min_max for i in range(2)] == [True, True]


def test_flags_in_pages_of_both_versions(tmp_path: Path, outcomes: list[Any]) -> None:
    """PyArrow packs flags plainly in pages of the first version only."""
    values = column_of("bool")
    new = pc.invert(values.take(pa.array(CHANGED)))
    for version in ("1.0", "2.0"):
        lake = lake_of(tmp_path / version, values, data_page_version=version)
        change(lake, new)
        assert isinstance(outcomes.pop(), PatchedChunk) is (version == "1.0")
        for reader, rows in readers(lake / "f.parquet").items():
            assert rows == expected(values, new), (version, reader)


def test_a_column_that_has_the_values_is_copied(tmp_path: Path, outcomes: list[Any]) -> None:
    values = column_of("int64")
    lake = lake_of(tmp_path / "lake", values)
    before = (lake / "f.parquet").read_bytes()
    result = change(lake, values.take(pa.array(CHANGED)))
    assert outcomes == [None]
    assert (result.updated, result.rewritten_files) == (len(CHANGED), [])
    assert (lake / "f.parquet").read_bytes() == before


def test_nan_is_nan_whatever_its_bits(tmp_path: Path, outcomes: list[Any]) -> None:
    one, other = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    values = pa.array([one if i % 3 == 0 else other if i % 3 == 1 else 2.0 for i in range(ROWS)])
    lake = lake_of(tmp_path / "lake", values)
    before = (lake / "f.parquet").read_bytes()
    positions = [0, 3, 6, 9]
    assert change(lake, pa.array([other] * 4), positions).rewritten_files == []
    assert outcomes == [None]
    assert (lake / "f.parquet").read_bytes() == before
    assert change(lake, pa.array([other, 2.0, other, other]), positions).rewritten_files
    assert isinstance(outcomes.pop(), PatchedChunk)
    bits = pq.read_table(lake).column("value").to_numpy().view(np.uint64)
    assert bits[[0, 3, 6, 9, 12]].tolist() == np.array([other, 2.0, other, other, one]).view(np.uint64).tolist()


@pytest.mark.parametrize("kind", ["int64", "double", "binary"])
def test_a_value_with_two_numbers(tmp_path: Path, outcomes: list[Any], kind: str) -> None:
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
    assert change(lake, column.take(pa.array(CHANGED))).rewritten_files == []
    assert outcomes == [None]
    assert path.read_bytes() == before
    new = values.take(pa.array([1] * len(CHANGED)))
    change(lake, new)
    for reader, rows in readers(path).items():
        assert rows == expected(column, new), reader


def test_merged_twice_and_back(tmp_path: Path, outcomes: list[Any]) -> None:
    values = column_of("double")
    lake = lake_of(tmp_path / "lake", values)
    before = pq.read_table(lake)
    new = values.take(pa.array([i // 3 for i in CHANGED]))
    change(lake, new)
    change(lake, values.take(pa.array(CHANGED)))
    assert [type(outcome) for outcome in outcomes] == [PatchedChunk] * 2
    assert pq.read_table(lake).equals(before)


def check_decoded(tmp_path: Path, outcomes: list[Any], values: pa.Array, new: pa.Array, **options: Any) -> Path:
    """The values are changed, and not within the pages."""
    lake = lake_of(tmp_path / "lake", values, **options)
    change(lake, new)
    assert not any(isinstance(outcome, PatchedChunk) for outcome in outcomes)
    assert readers(lake / "f.parquet")["pyarrow"] == expected(values, new)
    statistics = pq.read_metadata(lake / "f.parquet").row_group(0).column(1).statistics
    present = [value for value in expected(values, new) if value is not None]
    assert (statistics.min, statistics.max) == (min(present), max(present))
    return lake / "f.parquet"


def test_a_new_value_is_decoded(tmp_path: Path, outcomes: list[Any]) -> None:
    check_decoded(tmp_path, outcomes, column_of("int64"), pa.array([10**15] * len(CHANGED)))


@pytest.mark.parametrize("kind", ["string", "int64"])
def test_a_value_that_no_row_has_any_more_leaves_the_file(tmp_path: Path, outcomes: list[Any], kind: str) -> None:
    """So that bounds are true, and nobody finds in the file's bytes what was overwritten."""
    last: Any = "Zacharias" if kind == "string" else 2**62 + 12345
    rows = column_of(kind).to_pylist()
    for position in CHANGED[3:5]:
        rows[position] = last
    values = pa.array(rows, pa.type_for_alias(kind))
    raw = last.encode() if isinstance(last, str) else last.to_bytes(8, "little")
    new = values.take(pa.array([100] * len(CHANGED)))
    path = check_decoded(tmp_path, outcomes, values, new)
    assert raw not in path.read_bytes()


@pytest.mark.parametrize("where", ["in the file", "in the source"])
def test_nulls_are_decoded(tmp_path: Path, outcomes: list[Any], where: str) -> None:
    values = column_of("int64")
    new = values.take(pa.array([i // 2 for i in CHANGED]))
    if where == "in the file":
        values = pa.array([None, *values.to_pylist()[1:]])
    else:
        new = pa.array([None, *new.to_pylist()[1:]])
    check_decoded(tmp_path, outcomes, values, new)


@pytest.mark.parametrize("options", [{"write_page_index": True}, {"bloom_filter_options": {"value": {"ndv": 30}}}])
def test_what_tells_of_single_pages_is_made_anew(tmp_path: Path, outcomes: list[Any], options: dict[str, Any]) -> None:
    values = column_of("int64")
    check_decoded(tmp_path, outcomes, values, values.take(pa.array([i // 2 for i in CHANGED])), **options)


def test_a_number_that_is_too_wide_for_its_page_is_decoded(tmp_path: Path, outcomes: list[Any]) -> None:
    """The dictionary grows from page to page, and with it the bits of a number."""
    values = pa.array([i % 3 if i < 40_000 else i % 2_000 for i in range(ROWS)])
    new = pa.array([1_999, *values.take(pa.array(CHANGED[1:])).to_pylist()])
    check_decoded(tmp_path, outcomes, values, new)


def test_many_rows_are_decoded(tmp_path: Path, outcomes: list[Any]) -> None:
    values, positions = column_of("int64"), list(range(0, ROWS, 7))
    lake = lake_of(tmp_path / "lake", values)
    new = values.take(pa.array([i // 2 for i in positions]))
    change(lake, new, positions)
    assert outcomes == []
    assert readers(lake / "f.parquet")["pyarrow"] == expected(values, new, positions)


def test_a_damaged_page_is_told_of(tmp_path: Path, outcomes: list[Any]) -> None:
    """By its checksum, also in a page in which no row changes: all of the column is written."""
    values = column_of("int64")
    lake = lake_of(tmp_path / "lake", values, write_page_checksum=True)
    path = lake / "f.parquet"
    chunk = pq.read_metadata(path).row_group(0).column(1)
    raw = bytearray(path.read_bytes())
    raw[chunk.dictionary_page_offset + chunk.total_compressed_size - 9] ^= 1
    path.write_bytes(raw)
    with pytest.raises(UnreadableFileError, match=r"f\.parquet"):
        change(lake, values.take(pa.array([i // 2 for i in CHANGED[:3]])), CHANGED[:3])
    assert path.read_bytes() == raw
    assert not any(isinstance(outcome, PatchedChunk) for outcome in outcomes)


def test_a_number_that_means_no_value_is_told_of(tmp_path: Path, outcomes: list[Any]) -> None:
    """Also in a row that does not change, in a page in which none does."""
    values = column_of("int64", distinct=30)
    lake = lake_of(tmp_path / "lake", values, compression="none")
    path = lake / "f.parquet"
    chunk = pq.read_metadata(path).row_group(0).column(1)
    raw = bytearray(path.read_bytes())
    raw[chunk.dictionary_page_offset + chunk.total_compressed_size - 9] = 0xFF  # five bits of ones: 31, of 30 values
    path.write_bytes(raw)
    with pytest.raises(UnreadableFileError, match=r"f\.parquet"):
        change(lake, values.take(pa.array([i // 2 for i in CHANGED[:3]])), CHANGED[:3])
    assert outcomes == [Unknown]
    assert path.read_bytes() == raw


def test_a_number_that_means_no_value_in_a_column_that_does_not_change_is_told_of(
    tmp_path: Path, outcomes: list[Any]
) -> None:
    """As of every column that is compared, though the file is rewritten because of another one."""
    values = column_of("string", distinct=30)
    folder = tmp_path / "lake"
    folder.mkdir()
    table = pa.table({"id": pa.array(range(ROWS)), "value": values, "other": pa.array([1.5] * ROWS)})
    path = folder / "f.parquet"
    pq.write_table(table, path, row_group_size=ROWS, compression="none")
    chunk = pq.read_metadata(path).row_group(0).column(1)
    raw = bytearray(path.read_bytes())
    raw[chunk.dictionary_page_offset + chunk.total_compressed_size - 9] = 0xFF
    path.write_bytes(raw)
    source = table.slice(0, 3).set_column(2, "other", pa.array([2.5] * 3))
    with pytest.raises(UnreadableFileError, match=r"f\.parquet"):
        fsspeckit.merge(source, str(folder), key_columns=["id"])
    assert Unknown in outcomes
    assert path.read_bytes() == raw


@pytest.mark.parametrize(("values", "walks"), [(column_of("string"), 1), (pa.array(["a"] * ROWS), 2)])
def test_pages_are_walked_once_if_they_were_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: pa.Array, walks: int
) -> None:
    """Before a column is copied its pages are looked at: again, if they could not be opened (a run of one number)."""
    walked: list[int] = []
    pages_of = spans.pages_of

    def recording(read: Any, chunk: spans.Chunk, *more: Any) -> list[spans.Page]:
        walked.append(chunk.start)
        return pages_of(read, chunk, *more)

    monkeypatch.setattr(spans, "pages_of", recording)
    table = pa.table({"id": pa.array(range(ROWS)), "value": values, "other": pa.array([1.5] * ROWS)})
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, row_group_size=ROWS)
    start = pq.read_metadata(path).row_group(0).column(1).dictionary_page_offset
    source = table.slice(0, 3).set_column(2, "other", pa.array([2.5] * 3))
    assert fsspeckit.merge(source, str(tmp_path), key_columns=["id"]).updated == 3
    assert walked.count(start) == walks
    assert pq.read_table(path).column("value").to_pylist() == values.to_pylist()


def test_flags_with_the_offset_of_a_dictionary_that_is_not_there(tmp_path: Path, outcomes: list[Any]) -> None:
    values = column_of("bool")
    lake = lake_of(tmp_path / "lake", values)

    def point(footer: Any) -> None:
        metadata = footer[4][1][1][0][1][1][1][1][3][1]
        metadata[11] = metadata[9]

    edit_footer(lake / "f.parquet", point)
    new = pc.invert(values.take(pa.array(CHANGED)))
    change(lake, new)
    assert not any(isinstance(outcome, PatchedChunk) for outcome in outcomes)
    for reader, rows in readers(lake / "f.parquet").items():
        assert rows == expected(values, new), reader
