"""Spark reads rewritten files with filters pushed down and not, and lakes before and after merges.

`python -m readers.spark FOLDER` goes through what the conformance suite kept there (`--keep-rewritten`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t
from pyspark.sql import functions

from readers.attempt import attempt
from readers.check import Tally, filter_differences
from readers.engines import CannotFilter, Rows, bounds_of, rows_of
from readers.filters import MOST_ROWS, Filter, Leaf, filters_of, leaves, read
from readers.lakes import MOST_ROWS as MOST_LAKE_ROWS
from readers.lakes import Counts, Read, unreadable
from spark_session import local_session

Item = TypeVar("Item")
# Plans with a hundred scans run once: to compile them takes longer than to interpret them.
_INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
}
_FILES = {
    **_INTERPRETED,
    "spark.sql.caseSensitive": "true",
    "spark.sql.files.openCostInBytes": str(128 << 20),  # a file is never split: its rows keep their order
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
_JOB = 60
# A whole row as text: Python has no value for some that Spark has.
_ROW = "CAST(struct(*) AS STRING)"
_BOUNDED_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "date")


class SparkReader:
    """Spark skips row groups and pages, and answers min, max and count from statistics.

    Each way to read has a session of its own, so that the settings of the caller's session stay as they are.
    """

    def __init__(self, spark: Any, name: str = "spark") -> None:
        self.name = name
        self.plain = _session(spark, {**_FILES, **_PLAIN})
        self.pushing = _session(spark, {**_FILES, **PUSHDOWNS[name]})
        self.aggregating = _session(spark, {**_FILES, **_AGGREGATES})

    def open(self, path: str) -> SparkFile:
        return SparkFile(self, path)


def _session(spark: Any, conf: dict[str, str]) -> Any:
    session = spark.newSession()
    for name, value in conf.items():
        session.conf.set(name, value)
    return session


class SparkFile:
    """A file as Spark sees it."""

    def __init__(self, reader: SparkReader, path: str) -> None:
        self.reader, self.path = reader, path
        self.plain = reader.plain.read.schema(_schema(reader.plain, path)).parquet(_escaped(path))
        self.scan = reader.pushing.read.schema(self.plain.schema).parquet(_escaped(path))

    @cached_property
    def aggregated(self) -> Any:
        return self.reader.aggregating.read.schema(self.plain.schema).parquet(_escaped(self.path))

    def pushed(self, filter: Filter, old: Any) -> Rows:
        if filter.operator == "bounds":
            return bounds_of(self.aggregated.agg(*self._bounds([filter])).collect())
        return rows_of([row[:1] for row in self.scan.filter(self._condition(filter, old)).selectExpr(_ROW).collect()])

    def in_memory(self, filter: Filter, old: Any) -> Rows:
        """Spark pushes down no condition that it is to select."""
        if filter.operator == "bounds":
            return bounds_of(self.plain.agg(*self._bounds([filter])).collect())
        rows = self.plain.selectExpr(_ROW, self._condition(filter, old)).collect()
        return rows_of([row[:1] for row in rows if row[1]])

    def rows(self) -> Rows:
        return rows_of([row[:1] for row in self.plain.selectExpr(_ROW).collect()])

    def is_misread(self) -> bool:
        return False

    def suspects(self, filters: Sequence[Filter], old: SparkFile | None) -> tuple[list[Filter], int]:
        """Filters that may find something else when they are pushed down, and how many do not: in few jobs."""
        conditions: dict[Filter, str] = {}
        bounds, found, same = [], [], 0
        for one in filters:
            needs_old = one.value is not None and one.value.old
            if one.operator == "bounds":
                bounds += [one] if self._has_bounds(one.leaf) else []
            elif old is not None or not needs_old:
                condition = attempt(partial(self._condition, one, old))
                if not condition.startswith(CannotFilter.__name__):
                    conditions[one] = condition
        for batch in _slices(list(conditions), _JOB):
            differing = attempt(partial(self._differing, [conditions[one] for one in batch]))
            suspected = batch if isinstance(differing, str) else [batch[at] for at in sorted(differing)]
            found += suspected
            same += len(batch) - len(suspected)
        if bounds:
            made = self._bounds(bounds)
            expected, answer = (attempt(frame.agg(*made).collect) for frame in (self.plain, self.aggregated))
            if isinstance(expected, str) or isinstance(answer, str) or bounds_of(answer) != bounds_of(expected):
                return found + bounds, same
        return found, same + len(bounds)

    def _differing(self, conditions: Sequence[str]) -> set[int]:
        """Which conditions hold for other rows in a scan with them than in a scan without."""
        rows = self.plain.selectExpr(f"hash({_ROW})", *conditions).collect()
        expected = Counter((at, row[0]) for row in rows for at, holds in enumerate(row[1:]) if holds)
        self.scan.createOrReplaceTempView("scan")
        scans = [f"SELECT {at}, hash({_ROW}) FROM scan WHERE {text}" for at, text in enumerate(conditions)]
        union = self.reader.pushing.sql(" UNION ALL ".join(scans))
        found = Counter((row[0], row[1]) for row in union.coalesce(1).collect())
        return {at for at, _ in (found - expected) + (expected - found)}

    def _has_bounds(self, leaf: Leaf) -> bool:
        """Does Spark take them from the footer? Where a chunk has none, as one with NaN, it gives an error."""
        if len(leaf.path) > 1 or dict(self.plain.dtypes).get(leaf.path[0]) not in _BOUNDED_TYPES:
            return False
        schema = pq.read_schema(self.path)
        before = list(schema)[: schema.get_field_index(leaf.path[0])]
        if len(schema) > len(self.plain.columns) or any(t.is_nested(field.type) for field in before):
            return False  # Spark finds a chunk by the column's number: it would take the statistics of another one
        metadata = pq.read_metadata(self.path)
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        known = [chunk.statistics for chunk in chunks if chunk.path_in_schema == leaf.path[0]]
        return all(stats is not None and stats.has_min_max and stats.has_null_count for stats in known)

    def _bounds(self, filters: Sequence[Filter]) -> list[Any]:
        if not all(self._has_bounds(one.leaf) for one in filters):
            raise CannotFilter
        calls = [f"{call}({_column(one.leaf)})" for one in filters for call in ("count", "min", "max")]
        return [functions.expr(call) for call in ("count(*)", *calls)]

    def _condition(self, filter: Filter, old: Any) -> str:
        leaf = _column(filter.leaf)
        if filter.leaf not in self.types:
            raise CannotFilter
        if filter.operator in ("null", "not null"):
            return f"{leaf} IS {filter.operator.upper()}"
        if filter.operator == "= nan":
            return f"{leaf} = CAST('NaN' AS {self.types[filter.leaf]})"
        assert filter.value is not None
        return f"{leaf} {filter.operator} {(old if filter.value.old else self).literal(filter.value.row, filter.leaf)}"

    def literal(self, row: int, leaf: Leaf) -> str:
        """The value of a row as SQL."""
        texts = self.texts.get(leaf, [])
        digits = texts[row] if row < len(texts) else None
        if digits is None:
            raise CannotFilter
        return (
            f"X'{digits}'"
            if self.types[leaf] == "binary"
            else f"CAST(CAST(X'{digits}' AS STRING) AS {self.types[leaf]})"
        )

    @cached_property
    def types(self) -> dict[Leaf, str]:
        """The leaves that Spark has, too."""
        return {
            leaf: made.schema[0].dataType.simpleString()
            for leaf in leaves(pq.read_schema(self.path))
            if leaf.path[0] in self.plain.columns
            and not isinstance(made := attempt(partial(self.plain.selectExpr, _column(leaf))), str)
        }

    @cached_property
    def texts(self) -> dict[Leaf, list[str | None]]:
        """The values as text, in hexadecimal digits, of all leaves that have an order."""
        ordered = [leaf for leaf in self.types if not leaf.nested]
        texts = [
            _column(leaf) if self.types[leaf] == "binary" else f"CAST({_column(leaf)} AS STRING)" for leaf in ordered
        ]
        rows = self.plain.selectExpr(*(f"hex({text})" for text in texts)).collect() if texts else []
        return {leaf: [row[at] for row in rows] for at, leaf in enumerate(ordered)}


def _schema(session: Any, path: str) -> Any:
    """The columns that Spark reads: it has no type for some."""
    schema = attempt(lambda: session.read.parquet(_escaped(path)).schema)
    if not isinstance(schema, str):
        return schema
    fields = [field for field in pq.read_schema(path) if not _is_foreign(field.type)]
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.schema(fields).empty_table(), f"{folder}/empty.parquet")
        return session.read.parquet(folder).schema


def _is_foreign(type: pa.DataType) -> bool:
    """Times of day, nanoseconds, intervals, UUIDs and halves are illegal for Spark."""
    if t.is_timestamp(type):
        return type.unit == "ns"
    others = t.is_temporal(type) and not t.is_date(type)
    return others or isinstance(type, pa.BaseExtensionType) or t.is_fixed_size_binary(type) or t.is_float16(type)


def _slices(items: list[Item], size: int) -> list[list[Item]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _escaped(path: str) -> str:
    """Spark takes paths for patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def _column(leaf: Leaf) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in leaf.path)


def differences(new: str, old: str | None, readers: Sequence[SparkReader], tally: Tally) -> list[str]:
    """As `readers.check.differences`, with many filters in one job."""
    table, before = read(new), read(old) if old else None
    if table is None or table.num_rows > MOST_ROWS:
        return []
    tally.files += 1
    filters, found = filters_of(table, before), []
    for reader in readers:
        opened, opened_old = (attempt(partial(reader.open, path)) if path else None for path in (new, old))
        if isinstance(opened_old, str):
            opened_old = None
        if isinstance(opened, str) or opened is None:
            if opened_old is not None:
                found.append(f"{reader.name} read the file before the merge, and now: {opened}")
            continue
        suspects, same = opened.suspects(filters, opened_old)
        tally.filters[reader.name] += same
        for one in suspects:
            found += filter_differences(reader, opened, opened_old, one, tally)
    return found


def read_lake(spark: Any, lake: Path) -> Read | str:
    """What Spark reads with its default options, or its error."""

    def collect() -> Read:
        frame = spark.read.parquet(_escaped(str(lake)))
        rows = frame.selectExpr(_ROW).collect()
        return Read(len(rows), frame.schema.simpleString(), rows_of(rows) if len(rows) <= MOST_LAKE_ROWS else None)

    return attempt(collect)


def lake_differences(spark: Any, before: Path, after: Path, counts: Counts) -> tuple[bool, list[str]]:
    """Did Spark read the lake before the merge, and does it read the right rows afterwards?"""
    old, new = read_lake(spark, before), read_lake(spark, after)
    was_read = not isinstance(old, str) and old.count == counts.before
    return was_read, unreadable({"spark": old}, {"spark": new}, counts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, help="stop after as long, and say how far it got")
    options = parser.parse_args(arguments)
    files = sorted((options.folder / "files").glob("*.parquet"))
    lakes = sorted((options.folder / "lakes").iterdir())
    if not files or not lakes:
        parser.error(f"{options.folder} has no files or no lakes")
    end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    spark = local_session(**{"spark.driver.extraJavaOptions": "", "spark.log.level": "OFF"})
    session = _session(spark, _INTERPRETED)
    tally, found, read_before, done = Tally(), 0, 0, 0
    for lake in lakes:
        done += 1
        counts = Counts(**json.loads((lake / "counts.json").read_text()))
        was_read, texts = lake_differences(session, lake / "before", lake / "after", counts)
        read_before += was_read
        found += _print(lake.name, texts)
        if time.monotonic() > end:
            break
    print(f"{done} of {len(lakes)} lakes, {read_before} of them read before the merge", flush=True)
    readers, done = [SparkReader(spark, name) for name in PUSHDOWNS], 0
    for done, file in enumerate(files, 1):
        old = options.folder / "old" / file.name
        found += _print(file.name, differences(str(file), str(old) if old.exists() else None, readers, tally))
        if done % 50 == 0:
            print(f"{done} of {len(files)} files", flush=True)
        if time.monotonic() > end:
            break
    spark.stop()
    print(
        f"{done} of {len(files)} files, {dict(tally.filters)} filters, {found} differences; "
        f"{len(tally.excused)} more that the old files have, too"
    )
    return 1 if found else 0


def _print(name: str, texts: Sequence[str]) -> int:
    for text in texts:
        print(f"{name}: {text}", flush=True)
    return len(texts)


if __name__ == "__main__":
    sys.exit(main())
