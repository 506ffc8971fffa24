"""A file of which some rows were changed within pages, as every reader sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq


def readers(path: Path) -> dict[str, list[Any]]:
    """The column `value`, in the order of `id`, by reader; PyArrow looks at checksums."""
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
