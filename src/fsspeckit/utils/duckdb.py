"""`DuckDBParquetHandler` of `fsspeckit.datasets.duckdb`, under the path that spec 003 names."""

from fsspeckit.datasets.duckdb import DuckDBParquetHandler

__all__ = ["DuckDBParquetHandler"]
