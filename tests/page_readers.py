"""A file of which some rows were changed, as every reader sees it, and its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet import thrift


def readers(path: Path) -> dict[str, list[Any]]:
    """The column `value`, in the order of `id`, by reader; PyArrow verifies checksums."""
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT value FROM read_parquet(?) ORDER BY id", [str(path)]).fetchall()
    checked = pq.ParquetFile(path, page_checksum_verification=True)
    return {
        "pyarrow": checked.read().column("value").to_pylist(),
        "duckdb": [row[0] for row in rows],
        "polars": pl.read_parquet(path)["value"].to_list(),
    }


def replaced(values: pa.Array, new: pa.Array, positions: list[int]) -> list[Any]:
    """The values with others at some positions."""
    rows: list[Any] = values.to_pylist()
    for position, value in zip(positions, new.to_pylist(), strict=True):
        rows[position] = value
    return rows


def pages(path: Path, column: int = 1) -> list[tuple[int, int, dict[int, Any]]]:
    """The pages of a column of the first row group: where each begins and ends, and the numbers in its header."""
    chunk, raw = pq.read_metadata(path).row_group(0).column(column), path.read_bytes()
    at = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    end, found = at + chunk.total_compressed_size, []
    while at < end:
        header, begin = thrift.numbers_at(raw, at) or ({}, end)
        found.append((at, begin + header[3], header))
        at = begin + header[3]
    return found
