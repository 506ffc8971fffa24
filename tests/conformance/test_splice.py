"""Files of which most was copied as bytes: every reader sees the rows that a full rewrite would have given."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, raw_footer
from fsspeckit.core.parquet import chunk_layout as spans
from fsspeckit.core.parquet import thrift
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from spliced_files import FILES, SWAPPED, Rows, Spliced, halves
from support import write_lake


def read_pyarrow(path: Path) -> Rows:
    table = pq.ParquetFile(path).read()
    return table.column_names, [column.to_pylist() for column in table.columns]


def read_duckdb(path: Path) -> Rows:
    with duckdb.connect() as connection:
        cursor = connection.execute("SELECT * FROM read_parquet(?)", [str(path)])
        return [c[0] for c in cursor.description], [list(column) for column in zip(*cursor.fetchall(), strict=True)]


def read_polars(path: Path) -> Rows:
    frame = pl.read_parquet(path)
    return frame.columns, [column.to_list() for column in frame]


def read_fastparquet(path: Path) -> Rows:
    frame = importlib.import_module("fastparquet").ParquetFile(str(path)).to_pandas()
    frame = frame.astype(object).where(frame.notna(), None)
    return list(frame.columns), [list(frame[name]) for name in frame.columns]


READERS = {"pyarrow": read_pyarrow, "duckdb": read_duckdb, "polars": read_polars, "fastparquet": read_fastparquet}


FEW = ("codec zstd", "page index", "duckdb", "polars", "fastparquet")


@pytest.mark.parametrize("name", FILES)
def test_every_reader_sees_the_rows(io: Any, engine: str, tmp_path: Path, name: str) -> None:
    if engine != "pyarrow" and name not in FEW:
        pytest.skip("the kernel is the same: a few files for every engine, all files for one")
    read_by = set()
    for number, columns in enumerate(halves(name)):
        file = Spliced(io, tmp_path / str(number), FILES[name], columns)
        assert file.result.updated == len(SWAPPED)
        for reader, read in READERS.items():
            try:
                before = read(file.old)
            except Exception as error:
                assert reader != "pyarrow", error  # a reader that refuses the old file may refuse the new one
                continue
            assert repr(read(file.new)) == repr(file.expected(before)), (reader, columns)
            read_by.add(reader)
    assert {"pyarrow", "duckdb", "polars"} <= read_by


@pytest.mark.parametrize("name", FILES)
def test_what_did_not_change_is_the_same_bytes(tmp_path: Path, name: str) -> None:
    for number, columns in enumerate(halves(name)):
        file = Spliced(PyArrowDatasetIO(), tmp_path / str(number), FILES[name], columns)
        if columns == ["word", "at"]:  # a dictionary goes that fastparquet would ask for
            assert file.result.bytes_copied == 0
            continue
        copied = 0
        for group in range(3):
            for leaf, path in enumerate(_paths(file.old)):
                before, after = (_pages(path, group, leaf) for path in (file.old, file.new))
                changed = group == 1 and path.split(".")[0] in columns
                assert (before != after) if changed else (before == after), (group, path)
                copied += 0 if changed else len(after)
        assert file.result.bytes_copied == copied
        assert file.result.bytes_encoded == file.new.stat().st_size - copied


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_spliced_and_reencoded_files_are_counted(io: Any, tmp_path: Path, mode: str) -> None:
    """Of six files one has a field that we do not know, one has the source's row already, one is not touched."""
    lake = write_lake(tmp_path / "lake", {f"{n}.parquet": pa.table({"id": [n], "x": [n]}) for n in range(6)})

    def later_field(footer: thrift.Struct) -> None:
        footer[4][1][1][0][1][1][1][0][3][1][30] = thrift.I64, 7

    edit_footer(tmp_path / "lake" / "3.parquet", later_field)
    source = pa.table({"id": [0, 1, 2, 3, 4, 9], "x": [-1, -1, -1, -1, 4, 9]})
    result = io.write_parquet_dataset(source, lake, "upsert", ["id"], rewrite_mode=mode)
    assert (result.updated, result.inserted) == (5, 1)
    expected = (3, 1, 4) if mode == "incremental" else (0, 6, 6)
    assert (result.spliced_files, result.reencoded_files, len(result.rewritten_files)) == expected
    again = io.write_parquet_dataset(source, lake, "upsert", ["id"], rewrite_mode="incremental")
    assert (again.updated, again.spliced_files, again.reencoded_files) == (6, 0, 0)


def _paths(path: Path) -> list[str]:
    schema = pq.ParquetFile(path).schema
    return [schema.column(i).path for i in range(len(schema.names))]


def _pages(path: Path, group: int, leaf: int) -> bytes:
    chunk = spans.Chunk.of(raw_footer(path)[4][1][1][group][1][1][1][leaf])
    return path.read_bytes()[chunk.start : chunk.end]


@pytest.mark.parametrize("name", FILES)
def test_statistics_bound_the_values_and_prune(tmp_path: Path, name: str) -> None:
    """A value that moved to the middle row group is found there, by readers that skip row groups."""
    columns = halves(name)[0]
    flat = columns[0]
    file = Spliced(PyArrowDatasetIO(), tmp_path, FILES[name], columns)
    after = pq.ParquetFile(file.new)
    table = after.read()
    for group in range(3):
        chunk = after.metadata.row_group(group).column(table.schema.get_field_index(flat))
        part = after.read_row_group(group).column(flat).to_pylist()
        if chunk.statistics is not None and chunk.statistics.has_min_max:
            values = [v for v in part if v is not None]
            assert (chunk.statistics.min, chunk.statistics.max) == (min(values), max(values)), group
        else:
            old = pq.read_metadata(file.old).row_group(group).column(table.schema.get_field_index(flat)).statistics
            # DuckDB 1.1 writes no column orders, so PyArrow trusts no bounds of text in the old and the new file.
            unordered = name.startswith("duckdb") and not old.has_min_max
            assert unordered or name in ("no statistics", "fastparquet", "fastparquet gzip", "fastparquet nulls"), group
    place = min(file.swapped)
    value = table.column(flat)[place]
    expected = [i for i, v in enumerate(table.column(flat).to_pylist()) if v == value.as_py()]
    assert place in expected
    ids = table.column("id").take(pa.array(expected)).to_pylist()
    assert pq.read_table(file.new, filters=pc.field(flat) == value).column("id").to_pylist() == ids
    assert pl.scan_parquet(file.new).filter(pl.col(flat) == value.as_py()).collect()["id"].to_list() == ids
    with duckdb.connect() as connection:
        query = f'SELECT id FROM read_parquet(?) WHERE "{flat}" = ? ORDER BY id'
        assert [row[0] for row in connection.execute(query, [str(file.new), value.as_py()]).fetchall()] == ids


@pytest.mark.parametrize("name", ["page index", "bloom filters"])
def test_page_indexes_and_bloom_filters_are_where_the_footer_says(tmp_path: Path, name: str) -> None:
    file = Spliced(PyArrowDatasetIO(), tmp_path, FILES[name], ["text", "whole", "list"])
    content, seen = file.new.read_bytes(), 0

    def read(offset: int, length: int) -> bytes:
        return content[offset : offset + length]

    for group in raw_footer(file.new)[4][1][1]:
        for entry in group[1][1][1]:
            chunk = spans.Chunk.of(entry)
            starts = []
            for page in thrift.decode(read(entry[4][1], entry[5][1]))[1][1][1]:
                header, end = spans.read_struct(read, page[1][1], chunk.end)
                assert header[1][1] in (0, 3), "a data page"
                assert end + header[3][1] - page[1][1] == page[2][1], "its size, header included"
                starts.append(page[3][1])
            assert starts[0] == 0 and starts == sorted(starts)  # a list may go on in another page
            bounds = thrift.decode(read(entry[6][1], entry[7][1]))
            assert len(bounds[2][1][1]) == len(starts), "a bound for every page"
            seen += len(starts)
            if 14 in chunk.metadata:
                bloom, end = spans.read_struct(read, chunk.metadata[14][1], len(content))
                assert end - chunk.metadata[14][1] + bloom[1][1] == chunk.metadata[15][1]
    assert seen > (200 if name == "page index" else 40)
    text = pq.ParquetFile(file.new).read().column("text")
    with duckdb.connect() as connection:  # DuckDB asks bloom filters
        for value in text.drop_null().to_pylist():
            (count,) = connection.execute(
                "SELECT count(*) FROM read_parquet(?) WHERE text = ?", [str(file.new), value]
            ).fetchone() or (0,)
            assert count == text.to_pylist().count(value)


def test_a_bloom_filter_of_unknown_length(tmp_path: Path) -> None:
    """Old writers say where it begins only."""

    def write(path: Path) -> None:
        FILES["bloom filters"](path)

        def forget(footer: thrift.Struct) -> None:
            for group in footer[4][1][1]:
                for entry in group[1][1][1]:
                    entry[3][1].pop(15, None)

        edit_footer(path, forget)

    file = Spliced(PyArrowDatasetIO(), tmp_path, write, ["whole"])
    assert file.result.bytes_copied > 0
    old, new = (pq.ParquetFile(path).metadata.row_group(0).column(0) for path in (file.old, file.new))
    assert new.bloom_filter_offset > 0
    before, after = file.old.read_bytes(), file.new.read_bytes()
    assert after[new.bloom_filter_offset :][:40] == before[old.bloom_filter_offset :][:40]


def test_a_chain_of_merges_does_not_grow_or_drift(tmp_path: Path) -> None:
    """Ten merges, each into what the one before left: the same size, the same layout, the right rows."""
    file = Spliced(PyArrowDatasetIO(), tmp_path, FILES["bloom filters"], ["text"])
    table, sizes = pq.ParquetFile(file.new).read(), []
    for turn in range(10):
        row = {**table.slice(turn * 5, 1).to_pylist()[0], "text": f"turn {turn}"}
        PyArrowDatasetIO().merge(pa.Table.from_pylist([row], table.schema), str(file.lake), "update", ["id"])
        rows = table.to_pylist()
        rows[turn * 5] = row
        table = pa.Table.from_pylist(rows, table.schema)
        assert pq.ParquetFile(file.new).read().to_pylist() == rows
        sizes.append(file.new.stat().st_size)
    assert max(sizes) - min(sizes) < 200
    assert raw_footer(file.new)[2] == raw_footer(file.old)[2]
