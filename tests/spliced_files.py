"""Files of every writer and kind, three row groups each, of which a merge changes some columns in the middle one.

There a column takes over the values of other rows of the same file, so that what a reader should see is known from what
the same reader sees in the old file.
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

from fsspeckit.datasets.duckdb.version import parse_version
from support import data_files

Rows = tuple[list[str], list[list[Any]]]
"""Names and values of columns, as some reader sees them."""
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
        if "PARQUET_VERSION" in options and parse_version(duckdb.__version__) < (1, 2, 0):
            pytest.skip("this DuckDB writes version 1 only")
        scaled = TABLE.select(["id", *FLAT, "list", "struct"])
        rows = pa.concat_tables([scaled] * 103).slice(0, 3 * 2048)
        rows = rows.set_column(0, "id", pa.array(range(rows.num_rows)))
        settings = ", ".join(f"{name} {value}" for name, value in {"ROW_GROUP_SIZE": 2048, **options}.items())
        with duckdb.connect(config={"threads": 1}) as connection:  # of several, DuckDB 1.1 cuts row groups anywhere
            connection.register("rows", rows)
            connection.execute(f"COPY (SELECT * FROM rows ORDER BY id) TO '{path}' (FORMAT parquet, {settings})")

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
    "fastparquet nulls": by_fastparquet(has_nulls=True, compression="SNAPPY", times="int96"),
}
NO_MAPS = ("duckdb", "polars")


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
