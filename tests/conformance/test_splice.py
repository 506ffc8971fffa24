"""Files of which most was copied as bytes: every reader sees the rows that a full rewrite would have given.

Each file has three row groups. In the middle one a column takes over the values of other rows of the same file, so that
what a reader should see is known from what the same reader sees in the old file.
"""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, raw_footer
from fsspeckit.core.target import spans, thrift
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import data_files

ROWS, GROUP = 60, 20
SWAPPED = {1: 16, 2: 3, 9: 2, GROUP - 1: 1}
"""Rows of the middle row group that take over values, and the rows of the last one that they take them from."""
WORDS = ("alpha", "", "béta", "日本語", "x" * 300)


def sparse(values: Iterable[Any]) -> list[Any]:
    return [None if i % 7 == 6 else value for i, value in enumerate(values)]


def instant(i: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 12, 30) + dt.timedelta(hours=i, microseconds=i)


COLUMNS: dict[str, pa.Array] = {
    "whole": pa.array(sparse(range(ROWS))),
    "small": pa.array(sparse(i % 5 for i in range(ROWS)), pa.int8()),
    "real": pa.array(sparse(i / 8 for i in range(ROWS)), pa.float32()),
    "flag": pa.array(sparse(i % 3 == 0 for i in range(ROWS))),
    "text": pa.array(sparse(WORDS[i % 5] + str(i) for i in range(ROWS))),
    "word": pa.array(sparse(WORDS[i % 5] for i in range(ROWS))),
    "raw": pa.array(sparse(bytes([i, 0, 255]) for i in range(ROWS))),
    "day": pa.array(sparse(dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in range(ROWS))),
    "at": pa.array(sparse(instant(i) for i in range(ROWS)), pa.timestamp("us")),
    "money": pa.array(sparse(Decimal(i * 101).scaleb(-2) for i in range(ROWS)), pa.decimal128(20, 2)),
    "list": pa.array(sparse([i, None, i][: i % 4] for i in range(ROWS)), pa.list_(pa.int64())),
    "struct": pa.array(sparse({"a": i, "b": {"c": str(i)}} for i in range(ROWS))),
    "map": pa.array(
        sparse([(f"k{j}", j) for j in range(i % 3)] for i in range(ROWS)), pa.map_(pa.string(), pa.int32())
    ),
}
TABLE = pa.table({"id": pa.array(range(ROWS)), **COLUMNS})
FLAT = [n for n in COLUMNS if n not in ("list", "struct", "map")]


def by_pyarrow(**options: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(TABLE, path, **{"row_group_size": GROUP, **options})


def required(path: Path) -> None:
    whole = pa.table(
        {
            n: c if n == "id" else pc.fill_null(c, c[0])
            for n, c in zip(TABLE.column_names, TABLE.columns, strict=True)
            if n == "id" or n in FLAT
        }
    )
    schema = pa.schema([field.with_nullable(False) for field in whole.schema])
    pq.write_table(whole.cast(schema), path, row_group_size=GROUP)


def decimals(path: Path) -> None:
    """All three physical types: 32 and 64 bits, and bytes of a fixed length."""
    money = {f"of {digits}": COLUMNS["money"].cast(pa.decimal128(digits, 2)) for digits in (7, 16, 30)}
    table = pa.table({"id": TABLE.column("id"), **money})
    pq.write_table(table, path, row_group_size=GROUP, store_decimal_as_integer=True)


def by_duckdb(**options: Any) -> Callable[[Path], None]:
    """DuckDB's row groups have 2,048 rows at least."""

    def write(path: Path) -> None:
        scaled = TABLE.select(["id", *FLAT, "list", "struct"])
        rows = pa.concat_tables([scaled] * 103).slice(0, 3 * 2048)
        rows = rows.set_column(0, "id", pa.array(range(rows.num_rows)))
        told = ", ".join(f"{name} {value}" for name, value in {"ROW_GROUP_SIZE": 2048, **options}.items())
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            connection.execute(f"COPY (SELECT * FROM rows ORDER BY id) TO '{path}' (FORMAT parquet, {told})")

    return write


def by_polars(**options: Any) -> Callable[[Path], None]:
    table = TABLE.select(["id", *FLAT, "list", "struct"])
    return lambda path: pl.from_arrow(table).write_parquet(path, row_group_size=GROUP, **options)


def by_fastparquet(**options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        frame = pd.DataFrame(
            {
                "id": np.arange(ROWS),
                "text": [WORDS[i % 5] + str(i) for i in range(ROWS)],
                "word": pd.Categorical([WORDS[i % 5] for i in range(ROWS)]),
                "real": np.arange(ROWS) / 8,
                "at": pd.to_datetime([instant(i) for i in range(ROWS)]),
            }
        )
        importlib.import_module("fastparquet").write(str(path), frame, row_group_offsets=GROUP, **options)

    return write


BLOOMS = {name: {"ndv": 100, "fpp": 0.01} for name in ("id", "text", "whole")}
FILES: dict[str, Callable[[Path], None]] = {
    **{
        f"codec {codec}": by_pyarrow(compression=codec) for codec in ("none", "snappy", "gzip", "zstd", "brotli", "lz4")
    },
    "pages of version 2": by_pyarrow(data_page_version="2.0", write_page_checksum=True),
    "checksums": by_pyarrow(write_page_checksum=True, compression="none"),
    "page index": by_pyarrow(write_page_index=True, data_page_size=16, write_batch_size=4),
    "bloom filters": by_pyarrow(bloom_filter_options=BLOOMS, write_page_index=True),
    "no dictionaries": by_pyarrow(use_dictionary=False),
    "delta": by_pyarrow(
        use_dictionary=False,
        column_encoding={"whole": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "real": "BYTE_STREAM_SPLIT"},
    ),
    "no statistics": by_pyarrow(write_statistics=False),
    "no arrow schema": by_pyarrow(store_schema=False),
    "int96": by_pyarrow(use_deprecated_int96_timestamps=True),
    "required": required,
    "decimals": decimals,
    "duckdb": by_duckdb(),
    "duckdb zstd": by_duckdb(COMPRESSION="zstd"),
    "duckdb version 2": by_duckdb(PARQUET_VERSION="V2"),
    "polars": by_polars(),
    "polars snappy": by_polars(compression="snappy", statistics="full"),
    "fastparquet": by_fastparquet(),
    "fastparquet gzip": by_fastparquet(compression="GZIP"),
    "fastparquet nulls": by_fastparquet(has_nulls=True, compression="SNAPPY"),
}


Rows = tuple[list[str], list[list[Any]]]


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


class Spliced:
    """A file before and after: some columns of some rows took over the values of others."""

    def __init__(self, io: Any, folder: Path, write: Callable[[Path], None], columns: Sequence[str]) -> None:
        self.old, self.lake, self.columns = folder / "old.parquet", folder / "lake", columns
        self.lake.mkdir(parents=True)
        write(self.old)
        (self.lake / "f.parquet").write_bytes(self.old.read_bytes())
        group = pq.read_metadata(self.old).row_group(0).num_rows
        self.swapped = {group + to: 2 * group + source for to, source in SWAPPED.items()}
        self.result = io.merge(self._source(), str(self.lake), "update", ["id"])
        (name,) = data_files(self.lake)
        self.new = self.lake / name

    def _source(self) -> pa.Table:
        before = pq.ParquetFile(self.old).read()
        rows, values = (before.take(pa.array(list(r))) for r in (self.swapped.keys(), self.swapped.values()))
        for name in self.columns:
            index = before.schema.get_field_index(name)
            rows = rows.set_column(index, before.schema.field(index), values.column(index))
        return rows

    def expected(self, before: Rows) -> Rows:
        names, columns = before
        for name, column in zip(names, columns, strict=True):
            if name.split(".")[0] in self.columns:  # fastparquet shows the leaves of a struct
                for to, source in self.swapped.items():
                    column[to] = column[source]
        return before


def halves(name: str) -> list[list[str]]:
    """The columns that are changed together; the others are copied."""
    if name.startswith("fastparquet"):
        return [["text"], ["word", "at"]]
    if name == "decimals":
        return [["of 7", "of 30"], ["of 16"]]
    nested = [n for n in ("list", "struct", "map") if name != "required" and (n != "map" or name[:6] not in NO_MAPS)]
    return [["word", "at", "small", *nested[::2]], ["text", "money", "flag", "raw", "day", *nested[1::2]]]


NO_MAPS = ("duckdb", "polars")
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
                assert reader != "pyarrow", error  # whoever does not read the old file need not read the new one
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
            assert name in ("no statistics", "fastparquet", "fastparquet gzip", "fastparquet nulls"), group
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
