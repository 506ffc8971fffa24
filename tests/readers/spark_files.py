"""Files as Spark reads them: their columns and values, and one file with a job for each filter."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t
from pyspark.sql import functions
from pyspark.sql.types import DataType, StructType

from readers.attempt import attempt
from readers.engines import CannotFilter, Rows, bounds_of, rows_of
from readers.filters import Filter, Leaf, leaves

# Plans with a hundred scans run once: to compile them takes longer than to interpret them.
INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
}
_FILES = {
    **INTERPRETED,
    "spark.sql.caseSensitive": "true",
    "spark.sql.files.openCostInBytes": str(128 << 20),  # a file is never split: its rows keep their order
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",  # no job lists files
}
_PLAIN = {"spark.sql.parquet.filterPushdown": "false", "spark.sql.parquet.aggregatePushdown": "false"}
# How Spark is to use statistics, page indexes, dictionaries and bloom filters.
PUSHDOWNS = {
    "spark": {"spark.sql.parquet.filterPushdown": "true"},
    "spark, row by row": {
        "spark.sql.parquet.filterPushdown": "true",
        "spark.sql.parquet.recordLevelFilter.enabled": "true",
        "spark.sql.parquet.enableVectorizedReader": "false",
    },
}
# Only the second generation of sources answers min, max and count from footers.
_AGGREGATES = {"spark.sql.parquet.aggregatePushdown": "true", "spark.sql.sources.useV1SourceList": ""}
# A whole row as text: Python has no value for some that Spark has.
ROW = "CAST(struct(*) AS STRING)"
_BOUNDED_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "date")


class SparkReader:
    """Spark skips row groups and pages, and answers min, max and count from statistics.

    Each way to read has a session of its own, so that the settings of the caller's session stay as they are.
    """

    def __init__(self, spark: Any, name: str = "spark") -> None:
        self.name = name
        self.plain = new_session(spark, {**_FILES, **_PLAIN})
        self.pushing = new_session(spark, {**_FILES, **PUSHDOWNS[name]})
        self.aggregating = new_session(spark, {**_FILES, **_AGGREGATES})

    def open(self, path: str) -> SparkFile:
        schema = schema_of(self.plain, path)
        texts = texts_of(schema, path)
        rows = self.plain.read.schema(schema).parquet(escaped(path)).selectExpr(*texts.values()).collect()
        return SparkFile(self, Content(path, schema, values_of(texts, rows)))


def new_session(spark: Any, conf: dict[str, str]) -> Any:
    session = spark.newSession()
    for name, value in conf.items():
        session.conf.set(name, value)
    return session


@dataclass(frozen=True)
class Content:
    """The columns of a file as Spark sees them, and the values of those that have an order, in hexadecimal digits."""

    path: str
    schema: StructType
    values: Mapping[Leaf, Sequence[str | None]]
    uri: str = ""  # as Spark names the file, if it has rows

    def condition(self, filter: Filter, old: Content | None) -> str:
        """The filter as SQL; `old` is the same file before the merge."""
        leaf, type = sql_name(filter.leaf), _type_of(self.schema, filter.leaf)
        if type is None:
            raise CannotFilter
        if filter.operator in ("null", "not null"):
            return f"{leaf} IS {filter.operator.upper()}"
        if filter.operator == "= nan":
            return f"{leaf} = CAST('NaN' AS {type})"
        assert filter.value is not None
        content = old if filter.value.old else self
        if content is None:
            raise CannotFilter
        return f"{leaf} {filter.operator} {content._literal(filter.value.row, filter.leaf)}"

    def _literal(self, row: int, leaf: Leaf) -> str:
        """The value of a row as SQL."""
        values, type = self.values.get(leaf, []), _type_of(self.schema, leaf)
        digits = values[row] if row < len(values) else None
        if digits is None:
            raise CannotFilter
        return f"X'{digits}'" if type == "binary" else f"CAST(CAST(X'{digits}' AS STRING) AS {type})"

    def has_bounds(self, leaf: Leaf) -> bool:
        """Does Spark take them from the footer? Where a chunk has none, as one with NaN, it gives an error."""
        if len(leaf.path) > 1 or _type_of(self.schema, leaf) not in _BOUNDED_TYPES:
            return False
        columns = self._metadata.schema.to_arrow_schema()
        before = list(columns)[: columns.get_field_index(leaf.path[0])]
        if len(columns) > len(self.schema) or any(t.is_nested(field.type) for field in before):
            return False  # Spark finds a chunk by the column's number: it would take the statistics of another one
        groups = [self._metadata.row_group(group) for group in range(self._metadata.num_row_groups)]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        known = [chunk.statistics for chunk in chunks if chunk.path_in_schema == leaf.path[0]]
        return all(stats is not None and stats.has_min_max and stats.has_null_count for stats in known)

    @cached_property
    def _metadata(self) -> pq.FileMetaData:
        return pq.read_metadata(self.path)


class SparkFile:
    """A file as one reader sees it."""

    def __init__(self, reader: SparkReader, content: Content) -> None:
        self.content = content
        self.plain, self.scan, self.aggregated = (
            session.read.schema(content.schema).parquet(escaped(content.path))
            for session in (reader.plain, reader.pushing, reader.aggregating)
        )

    def pushed(self, filter: Filter, old: Any) -> Rows:
        if filter.operator == "bounds":
            return bounds_of(self.aggregated.agg(*self._bounds(filter.leaf)).collect())
        return rows_of([row[:1] for row in self.scan.filter(self._condition(filter, old)).selectExpr(ROW).collect()])

    def in_memory(self, filter: Filter, old: Any) -> Rows:
        """Spark pushes down no condition that it is to select."""
        if filter.operator == "bounds":
            return bounds_of(self.plain.agg(*self._bounds(filter.leaf)).collect())
        rows = self.plain.selectExpr(ROW, self._condition(filter, old)).collect()
        return rows_of([row[:1] for row in rows if row[1]])

    def rows(self) -> Rows:
        return rows_of([row[:1] for row in self.plain.selectExpr(ROW).collect()])

    def is_misread(self) -> bool:
        return False

    def _bounds(self, leaf: Leaf) -> list[Any]:
        if not self.content.has_bounds(leaf):
            raise CannotFilter
        return [functions.expr(call) for call in aggregates([leaf])]

    def _condition(self, filter: Filter, old: SparkFile | None) -> str:
        return self.content.condition(filter, old.content if old is not None else None)


def schema_of(session: Any, path: str) -> StructType:
    """The columns that Spark reads: it has no type for some."""
    schema = attempt(lambda: session.read.parquet(escaped(path)).schema)
    if isinstance(schema, str):
        fields = [field for field in pq.read_schema(path) if not _is_foreign(field.type)]
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(pa.schema(fields).empty_table(), f"{folder}/empty.parquet")
            schema = session.read.parquet(folder).schema
    assert isinstance(schema, StructType)
    return schema


def _is_foreign(type: pa.DataType) -> bool:
    """Times of day, nanoseconds, intervals, UUIDs and halves are illegal for Spark."""
    if t.is_timestamp(type):
        return type.unit == "ns"
    others = t.is_temporal(type) and not t.is_date(type)
    return others or isinstance(type, pa.BaseExtensionType) or t.is_fixed_size_binary(type) or t.is_float16(type)


def _type_of(schema: StructType, leaf: Leaf) -> str | None:
    """Spark's type for a leaf, if Spark has the leaf."""
    found: DataType = schema
    for name in leaf.path:
        if not isinstance(found, StructType) or found.names.count(name) != 1:
            return None
        found = found[name].dataType
    return found.simpleString()


def texts_of(schema: StructType, path: str) -> dict[Leaf, str]:
    """The leaves of a file that have an order, with the SQL for their values as text."""
    types = {leaf: _type_of(schema, leaf) for leaf in leaves(pq.read_schema(path)) if not leaf.nested}
    return {
        leaf: f"hex({sql_name(leaf)})" if type == "binary" else f"hex(CAST({sql_name(leaf)} AS STRING))"
        for leaf, type in types.items()
        if type is not None
    }


def values_of(texts: Mapping[Leaf, str], rows: Sequence[Sequence[str | None]]) -> dict[Leaf, list[str | None]]:
    return {leaf: [row[at] for row in rows] for at, leaf in enumerate(texts)}


def aggregates(found: Sequence[Leaf]) -> list[str]:
    """What Spark answers from footers."""
    calls = [f"{call}({sql_name(leaf)})" for leaf in found for call in ("count", "min", "max")]
    return ["count(*)", *calls]


def escaped(path: str) -> str:
    """Spark takes paths for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def sql_name(leaf: Leaf) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in leaf.path)
