"""Bounds of text that is written anew are taken from what is known, where that tells; they are true in any case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from damage import edit_footer
from fsspeckit.core.rewrite import bounds, kernel
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.tail import footer_bytes

ROWS = 60_000
EVERYWHERE = list(range(0, ROWS, 500))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each column of text that was asked for: were its bounds known?"""
    answers: list[bool] = []

    def noted(*arguments: Any) -> Any:
        statistics = bounds.text_statistics(*arguments)
        answers.append(statistics is not None)
        return statistics

    monkeypatch.setattr(kernel, "text_statistics", noted)
    return answers


def names() -> list[Any]:
    return [f"customer {10**9 + i * 7919 % ROWS} é" for i in range(ROWS)]


def changed(tmp_path: Path, values: list[Any], new: dict[int, Any], **options: Any) -> Any:
    """The statistics after a merge; rows are compared here."""
    lake = tmp_path / "lake"
    lake.mkdir()
    table = pa.table({"id": range(ROWS), "value": pa.array(values, pa.string())})
    pq.write_table(table, lake / "f.parquet", **{"use_dictionary": False, **options})
    rows = {**{i: f"customer {10**9 + i} new" for i in EVERYWHERE}, **new}
    source = pa.table({"id": sorted(rows), "value": pa.array([rows[i] for i in sorted(rows)], pa.string())})
    assert fsspeckit.merge(source, str(lake), key_columns=["id"]).updated == len(rows)
    expected = [rows.get(i, value) for i, value in enumerate(values)]
    file = pq.ParquetFile(lake / "f.parquet")
    assert file.read().column("value").to_pylist() == expected
    chunk = file.metadata.row_group(0).column(1)
    present = [value for value in expected if value is not None]
    if chunk.statistics is not None and chunk.statistics.has_min_max:
        assert (chunk.statistics.min, chunk.statistics.max) == (min(present), max(present))
    return chunk


def lowest(values: list[Any]) -> int:
    return min((i for i, value in enumerate(values) if value is not None), key=values.__getitem__)


def test_rows_within_the_bounds(tmp_path: Path, told: list[bool]) -> None:
    values = names()
    values[1], values[2] = "a", "zz"
    chunk = changed(tmp_path, values, {})
    assert told == [True]
    assert (chunk.statistics.min, chunk.statistics.max, chunk.statistics.null_count) == ("a", "zz", 0)


def test_rows_beyond_the_bounds(tmp_path: Path, told: list[bool]) -> None:
    values = names()
    values[1], values[2] = "b", "y"
    chunk = changed(tmp_path, values, {7: "a", 9: "z"})
    assert told == [True]
    assert (chunk.statistics.min, chunk.statistics.max) == ("a", "z")


@pytest.mark.parametrize("bound", [min, max])
def test_a_bound_that_is_overwritten(tmp_path: Path, told: list[bool], bound: Any) -> None:
    values = names()
    place = values.index(bound(values))
    chunk = changed(tmp_path, values, {place: "customer 1000030000 other"})
    assert told == [False]
    assert chunk.statistics.has_min_max


@pytest.mark.parametrize("where", ["in the file", "in the source", "replaced"])
def test_nulls_are_counted(tmp_path: Path, told: list[bool], where: str) -> None:
    values = names()
    values[1], values[2] = "a", "zz"
    if where != "in the source":
        values[11] = None
    new = {11: None} if where == "in the source" else {11: "customer 1"} if where == "replaced" else {}
    chunk = changed(tmp_path, values, new)
    assert told == [where == "in the file"]
    assert chunk.statistics.null_count == (0 if where == "replaced" else 1)


def test_a_page_index_stays(tmp_path: Path, told: list[bool]) -> None:
    values = names()
    values[1], values[2] = "a", "zz"
    chunk = changed(tmp_path, values, {}, write_page_index=True)
    assert told == [False]
    assert chunk.has_column_index


def test_a_long_bound_is_not_written(tmp_path: Path, told: list[bool]) -> None:
    values = names()
    values[1], values[2] = "a", "y"
    chunk = changed(tmp_path, values, {7: "z" * 5000})
    assert told == [False]
    assert not chunk.statistics.has_min_max


def test_a_file_without_statistics_gets_some(tmp_path: Path, told: list[bool]) -> None:
    assert changed(tmp_path, names(), {}, write_statistics=False).statistics.has_min_max
    assert told == [False]


def test_bounds_that_are_cut_short(tmp_path: Path, told: list[bool]) -> None:
    """They have the beginning of a text in them, which may be one that is overwritten."""
    values = names()
    values[1], values[2] = "a", "zz"
    table = pa.table({"id": range(ROWS), "value": pa.array(values, pa.string())})
    pq.write_table(table, tmp_path / "f.parquet", use_dictionary=False)

    def cut(footer: thrift.Struct) -> None:
        footer[4][1][1][0][1][1][1][1][3][1][12][1][8] = thrift.FALSE, None

    edit_footer(tmp_path / "f.parquet", cut)
    source = pa.table({"id": EVERYWHERE, "value": ["customer 2"] * len(EVERYWHERE)})
    fsspeckit.merge(source, str(tmp_path), key_columns=["id"])
    assert told == [False]


def test_a_few_long_texts_do_not_make_large_pages(tmp_path: Path) -> None:
    """Of even one long text, as few rows are encoded at once as PyArrow does by itself: a page ends only after them."""
    values = ["x" * 8000 if 1000 <= i < 3000 else f"name {i}" for i in range(ROWS)]
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"id": range(ROWS), "value": values}), lake / "f.parquet", use_dictionary=False)
    source = pa.table({"id": EVERYWHERE, "value": ["n"] * len(EVERYWHERE)})
    fsspeckit.merge(source, str(lake), key_columns=["id"])
    with pa.OSFile(str(lake / "f.parquet")) as file:
        entry = thrift.structs(thrift.structs(thrift.decode(footer_bytes(file)), 4)[0], 1)[1]
        sizes = [page.plain_size for page in spans.pages_of(spans.reader_of(file), spans.Chunk.of(entry))]
    assert max(sizes) < 10 << 20


def test_text_in_a_small_dictionary_stays_in_it(tmp_path: Path, told: list[bool]) -> None:
    values = [f"{'city' * 30} {i % 50}" for i in range(ROWS)]
    chunk = changed(tmp_path, values, {}, use_dictionary=True)
    assert told == []
    assert "RLE_DICTIONARY" in chunk.encodings
