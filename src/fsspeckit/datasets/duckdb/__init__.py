"""The DuckDB engine: one machine, sources larger than memory, SQL sources."""

from fsspeckit.datasets.duckdb.io import DuckDBDatasetIO, DuckDBParquetHandler
from fsspeckit.datasets.duckdb.sql import PathValidator

__all__ = ["DuckDBDatasetIO", "DuckDBParquetHandler", "PathValidator"]
