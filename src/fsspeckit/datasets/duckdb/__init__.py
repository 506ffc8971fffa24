"""The DuckDB engine: one machine, larger than memory, SQL."""

from fsspeckit.datasets.duckdb.io import DuckDBDatasetIO, DuckDBParquetHandler
from fsspeckit.datasets.duckdb.sql import PathValidator

__all__ = ["DuckDBDatasetIO", "DuckDBParquetHandler", "PathValidator"]
