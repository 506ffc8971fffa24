"""Readers that push filters down into the scan of a Parquet file, and evaluate the same filters on rows in memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from readers.filters import Filter, Leaf, column_of

Rows = Counter[str]
_COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class CannotFilter(Exception):
    """The reader has no such filter for such a column."""


class Opened(Protocol):
    """A file as one reader sees it. An old version of it is opened beside it for its values."""

    def pushed(self, filter: Filter, old: Opened | None) -> Rows:
        """The rows that a scan with the filter gives."""

    def in_memory(self, filter: Filter, old: Opened | None) -> Rows:
        """The rows of a scan without a filter for which the filter holds."""

    def rows(self) -> Rows:
        """All rows."""

    def is_misread(self) -> bool:
        """Does a scan give other rows than are there, even without a filter?"""


class Reader(Protocol):
    """Opens files."""

    name: str

    def open(self, path: str) -> Opened: ...


def rows_of(records: Sequence[Any]) -> Rows:
    return Counter(map(repr, records))


def bounds_of(records: Sequence[Any]) -> Rows:
    """Least and greatest value; the least of zeros is written as -0.0 in statistics, as the format asks for."""
    return Counter(repr(record).replace("-0.0", "0.0") for record in records)


class DuckDBReader:
    """DuckDB skips row groups by statistics and bloom filters, and answers min and max from statistics."""

    name = "duckdb"

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute("SET TimeZone = 'UTC'")
        self.opened = 0

    def open(self, path: str) -> Opened:
        self.opened += 1  # a file, and its old version
        return _DuckDBFile(self.connection, path, f"rows_{self.opened % 2}")


class _DuckDBFile:
    def __init__(self, connection: Any, path: str, table: str) -> None:
        quoted = path.replace("'", "''")
        self.connection, self.table = connection, table
        self.scan = f"read_parquet('{quoted}', hive_partitioning = false)"
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {self.scan}")
        self.values: dict[tuple[int, Leaf], str] = {}

    def pushed(self, filter: Filter, old: Any) -> Rows:
        return self._rows(self.scan, filter, old)

    def in_memory(self, filter: Filter, old: Any) -> Rows:
        return self._rows(self.table, filter, old)

    def is_misread(self) -> bool:
        return False

    def rows(self) -> Rows:
        return rows_of(self.connection.execute(f"SELECT * FROM {self.table}").fetchall())

    def _rows(self, place: str, filter: Filter, old: Any) -> Rows:
        leaf = _quoted(filter.leaf)
        if filter.operator == "bounds":
            query = f"SELECT min({leaf}), max({leaf}), count({leaf}), count(*) FROM {place}"
            return bounds_of(self.connection.execute(query).fetchall())
        query = f"SELECT * FROM {place} WHERE {self._condition(leaf, filter, old)}"
        return rows_of(self.connection.execute(query).fetchall())

    def _condition(self, leaf: str, filter: Filter, old: Any) -> str:
        if filter.operator in ("null", "not null"):
            return f"{leaf} IS {filter.operator.upper()}"
        if filter.operator == "= nan":
            return f"isnan({leaf})"
        assert filter.value is not None
        return f"{leaf} {filter.operator} {(old if filter.value.old else self).literal(filter.value.row, filter.leaf)}"

    def literal(self, row: int, leaf: Leaf) -> str:
        """The value of a row as SQL."""
        if (row, leaf) not in self.values:
            name = _quoted(leaf)
            query = f"SELECT CAST({name} AS VARCHAR), typeof({name}) FROM {self.table} WHERE rowid = {row}"
            found = self.connection.execute(query).fetchone()
            if found is None or found[0] is None:
                raise CannotFilter
            text = found[0].replace("'", "''")
            self.values[row, leaf] = f"CAST('{text}' AS {found[1]})"
        return self.values[row, leaf]


def _quoted(leaf: Leaf) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in leaf.path)


class PolarsReader:
    """Polars skips row groups by statistics and reads the columns of the filter first."""

    name = "polars"

    def open(self, path: str) -> Opened:
        return _PolarsFile(path)


class _PolarsFile:
    def __init__(self, path: str) -> None:
        import polars as pl

        self.scan = pl.scan_parquet(path, hive_partitioning=False, glob=False, use_statistics=True)
        self.frame = pl.read_parquet(path, hive_partitioning=False, glob=False, use_statistics=False)

    def pushed(self, filter: Filter, old: Any) -> Rows:
        return rows_of(self.scan.filter(self._expression(filter, old)).collect().rows())

    def in_memory(self, filter: Filter, old: Any) -> Rows:
        return rows_of(self.frame.filter(self._expression(filter, old)).rows())

    def is_misread(self) -> bool:
        return False

    def rows(self) -> Rows:
        return rows_of(self.frame.rows())

    def _expression(self, filter: Filter, old: Any) -> Any:
        import polars as pl

        leaf = self._leaf(filter.leaf)
        if filter.operator == "bounds":
            raise CannotFilter
        if filter.operator in ("null", "not null"):
            return leaf.is_null() if filter.operator == "null" else leaf.is_not_null()
        if filter.operator == "= nan":
            return leaf.is_nan()
        assert filter.value is not None
        column = (old if filter.value.old else self).frame.select(leaf).to_series()
        value = column[filter.value.row] if filter.value.row < len(column) else None
        if value is None:
            raise CannotFilter
        return _COMPARE[filter.operator](leaf, pl.lit(value, dtype=column.dtype))

    def _leaf(self, leaf: Leaf) -> Any:
        import polars as pl

        column = pl.col([leaf.path[0]])
        for name in leaf.path[1:]:
            column = column.struct.field(name)
        return column


class DataFusionReader:
    """DataFusion skips row groups and pages by statistics, page indexes and bloom filters."""

    name = "datafusion"

    def __init__(self) -> None:
        from datafusion import SessionConfig, SessionContext

        parquet = "datafusion.execution.parquet."
        settings = dict.fromkeys((f"{parquet}pushdown_filters", f"{parquet}reorder_filters"), "true")
        one = {"datafusion.execution.target_partitions": "1"}
        self.context = SessionContext(SessionConfig({**settings, **one}))
        # With statistics, a column whose bounds are equal is not read at all: it is taken for constant.
        unaided = {"datafusion.execution.collect_statistics": "false", f"{parquet}pruning": "false"}
        self.plain = SessionContext(SessionConfig({**unaided, **one}))

    def open(self, path: str) -> Opened:
        return _DataFusionFile(self.context, self.plain, path)


class _DataFusionFile:
    def __init__(self, context: Any, plain: Any, path: str) -> None:
        self.scan = context.read_parquet(path, file_extension="")
        self.table = plain.read_parquet(path, file_extension="").to_arrow_table()
        self.memory = plain.from_arrow(self.table)

    def pushed(self, filter: Filter, old: Any) -> Rows:
        return self._rows(self.scan, filter, old)

    def in_memory(self, filter: Filter, old: Any) -> Rows:
        return self._rows(self.memory, filter, old)

    def is_misread(self) -> bool:
        return rows_of(self.scan.to_arrow_table().to_pylist()) != self.rows()

    def rows(self) -> Rows:
        return rows_of(self.table.to_pylist())

    def _rows(self, frame: Any, filter: Filter, old: Any) -> Rows:
        from datafusion import functions

        if filter.operator == "bounds":
            leaf = self._leaf(filter.leaf)
            made = [getattr(functions, name)(leaf).alias(name) for name in ("min", "max", "count")]
            return bounds_of(frame.aggregate([], made).to_arrow_table().to_pylist())
        return rows_of(frame.filter(self._expression(filter, old)).to_arrow_table().to_pylist())

    def _expression(self, filter: Filter, old: Any) -> Any:
        from datafusion import literal

        leaf = self._leaf(filter.leaf)
        if filter.operator in ("null", "not null"):
            return leaf.is_null() if filter.operator == "null" else leaf.is_not_null()
        if filter.operator == "= nan":
            kind = column_of(self.table, filter.leaf).type
            return leaf == literal(pa.scalar(math.nan, kind))
        return _COMPARE[filter.operator](leaf, literal(self._value(filter, old)))

    def _leaf(self, leaf: Leaf) -> Any:
        from datafusion import col

        column = col('"' + leaf.path[0].replace('"', '""') + '"')
        for name in leaf.path[1:]:
            column = column[name]
        return column

    def _value(self, filter: Filter, old: Any) -> pa.Scalar:
        assert filter.value is not None
        column = column_of((old if filter.value.old else self).table, filter.leaf)
        if column is None or filter.value.row >= len(column):
            raise CannotFilter
        value = column[filter.value.row]
        return value.value if isinstance(value, pa.DictionaryScalar) else value
