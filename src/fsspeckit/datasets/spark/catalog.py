"""Tables of Spark's catalog: where their files lie, and what Spark has to be told when these have changed.

SQL only, so that it is the same on Spark Connect.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from fsspeckit.core import validate
from fsspeckit.core.dataset.listing import BUCKETED_ADVICE, list_files
from fsspeckit.core.errors import ArgumentError, SchemaMismatchError, TargetError
from fsspeckit.core.storage import Location, locate

log = logging.getLogger("fsspeckit.spark")

_NAME = re.compile(r"`(?:[^`]|``)+`|[^`.\s;]+")
_DETAILS = "# Detailed Table Information"
# More tables than this are not asked one by one where they lie.
MANY_TABLES = 100


@dataclass(frozen=True, slots=True)
class Table:
    """A Parquet table: its name as SQL takes it, its folder, and whether the catalog lists its partitions.

    `padded` are its columns of `char(n)`, which Spark fills up with blanks.
    """

    name: str
    path: str
    partition_columns: tuple[str, ...]
    lists_partitions: bool
    padded: Mapping[str, str]

    def partitioned_by(self, given: Any, options: Mapping[str, Any]) -> Any:
        """What the caller says, which is checked against the folders; else the table's columns, if it has any."""
        if given is not None or options.get("partition_by") is not None:
            return given
        return self.partition_columns or None


def find_table(spark: Any, table: str) -> Table:
    """A table of plain Parquet files; anything else is refused."""
    name = _quoted(table)
    try:
        rows = [(row["col_name"], row["data_type"]) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    except AnalysisException as error:
        raise ArgumentError(f"Spark's catalog has no table {table}: {str(error).splitlines()[0]}") from error
    columns, details = _split(rows)
    if details.get("Type") == "VIEW" or not details:
        raise TargetError(f"{table} is a view. Rows can be merged into the table that it reads; name that.")
    provider = details.get("Provider", "unknown")
    if provider.lower() != "parquet":
        raise TargetError(
            f"{table} is a table of {provider}, not of plain Parquet files. Use the MERGE of {provider}, if it has one."
        )
    if int(details.get("Num Buckets", "0")) > 0:
        raise TargetError(f"{table} is bucketed by {details.get('Bucket Columns')}. {BUCKETED_ADVICE}")
    listed = details.get("Partition Provider") == "Catalog"
    found = Table(name, _path(details["Location"]), columns, listed, _padded(rows))
    _check_folder(spark, table, found)
    return found


def _quoted(table: str) -> str:
    """`db.orders` as SQL takes it, whatever the names are."""
    parts = _NAME.findall(table) if isinstance(table, str) else []
    if not parts or ".".join(parts) != table:
        raise ArgumentError(f"{table!r} is no name of a table; write table, db.table or catalog.db.table.")
    return ".".join(part if part.startswith("`") else f"`{part}`" for part in parts)


def _split(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The partition columns and the details, which may be named like columns."""
    section = ""
    columns: list[str] = []
    details: dict[str, str] = {}
    for name, value in rows:
        if name.startswith("# ") and name != "# col_name":
            section = name
        elif section == _DETAILS and name:
            details.setdefault(name, value)
        elif section == "# Partition Information" and name and name != "# col_name":
            columns.append(name)
    return tuple(columns), details


def _padded(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Columns come first, up to a title or a line without a name."""
    columns = itertools.takewhile(lambda row: row[0] and not row[0].startswith("# "), rows)
    return {name.lower(): kind for name, kind in columns if kind.startswith("char(")}


def _path(location: str) -> str:
    """Spark writes locations as Hadoop does, without percent escapes."""
    return re.sub("^file:/+", "/", location)


def _check_folder(spark: Any, table: str, found: Table) -> None:
    """Rows outside the table's folder would not be seen, and their keys inserted again."""
    location = locate(found.path)
    if location.storage.local_path(location.root) is None:
        return
    spark.sql(f"REFRESH TABLE {found.name}")
    files = (unquote(re.sub("^file:/+", "/", file)) for file in spark.table(found.name).inputFiles())
    outside = [file for file in files if not os.path.realpath(file).startswith(location.root + "/")]
    if not outside and found.lists_partitions:
        listed = [row[0] for row in spark.sql(f"SHOW PARTITIONS {found.name}").collect()]
        outside = [name for name in listed if not os.path.isdir(location.at(name))]
    if outside:
        raise TargetError(
            f"{table} has partitions that do not lie in its folder {found.path}, e.g. {outside[0]}. Merge into their "
            f"folders by path; if the folder is gone, run MSCK REPAIR TABLE {table} SYNC PARTITIONS first."
        )


def check_columns(spark: Any, table: str, found: Table, data: Any) -> None:
    """Into a table without files the first rows bring the types; they must be the table's."""
    schema = getattr(data, "schema", None)
    if schema is None or list_files(locate(found.path)):
        return
    given = from_arrow_schema(schema) if isinstance(schema, pa.Schema) else schema
    wanted = {field.name: field.dataType.simpleString() for field in spark.table(found.name).schema}
    differing = {f.name: f.dataType.simpleString() for f in given if wanted.get(f.name) != f.dataType.simpleString()}
    missing = [name for name in wanted if name not in {field.name for field in given}]
    if differing or missing:
        raise SchemaMismatchError(
            f"The source does not have the columns of {table}, which has no files yet: of other types or extra are "
            f"{differing}, missing are {missing}. The table has {wanted}; cast and select accordingly."
        )


def check_keys(table: str, found: Table, key_columns: Any) -> None:
    """`ab` would not meet the `ab   ` that Spark wrote, and both read as the same."""
    for name in validate.column_names("key_columns", key_columns) or ():
        kind = found.padded.get(name.lower())
        if kind is not None:
            raise SchemaMismatchError(
                f"Key column {name!r} of {table} is {kind}, which Spark fills up with blanks: a key would stand twice, "
                "with them and without, since keys are compared byte by byte. Use another key, or a column of string."
            )


def refresh_table(spark: Any, found: Table) -> None:
    """After a commit: new partitions, new files. The rows are written, so this may not fail."""
    statements = [f"ALTER TABLE {found.name} RECOVER PARTITIONS"] if found.lists_partitions else []
    for statement in [*statements, f"REFRESH TABLE {found.name}"]:
        try:
            spark.sql(statement)
        except PySparkException:
            log.warning("The merge is done, but Spark's catalog is not up to date. Run: %s", statement, exc_info=True)


def refresh_tables_at(spark: Any, location: Location) -> None:
    """Tables of the current database that lie at this place show old rows until they are refreshed."""
    tables = [row for row in spark.sql("SHOW TABLES").collect() if not row["isTemporary"]]
    if not 0 < len(tables) <= MANY_TABLES:
        return
    for row in spark.sql("SHOW TABLE EXTENDED LIKE '*'").collect():
        told = re.search(r"^Location: (.*)$", row["information"], re.MULTILINE)
        if told and _is_at(told[1], location):
            spark.sql(f"REFRESH TABLE {_quoted_name(row['namespace'])}.{_quoted_name(row['tableName'])}")


def _is_at(told: str, location: Location) -> bool:
    if location.storage.local_path(location.root) is None:
        return re.sub("^s3[an]:", "s3:", told).rstrip("/") == location.storage.url(location.root)
    return os.path.realpath(_path(told)) == location.root


def _quoted_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
