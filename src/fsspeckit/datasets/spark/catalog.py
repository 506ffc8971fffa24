"""Tables of Spark's catalog: where their files are, and how to refresh them after a merge.

SQL only, so that it works on Spark Connect too.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
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
from fsspeckit.datasets.spark.columns import quoted, spark_frame

log = logging.getLogger("fsspeckit.spark")

_NAME = re.compile(r"`(?:[^`]|``)+`|[^`.\s;]+")
_TEXT_TYPE = re.compile(r"(?:var)?char\(\d+\)")
_DETAILS = "# Detailed Table Information"
# With more tables than this, Spark is not asked for the location of each one.
MANY_TABLES = 100


@dataclass(frozen=True, slots=True)
class Table:
    """A Parquet table: its full name, quoted, its folder, and whether the catalog lists its partitions.

    `char_columns` are its columns of `char(n)`, which Spark pads with blanks, with their types. `max_lengths` are the
    lengths of these and of `varchar(n)` columns. Names are in lower case.
    """

    name: str
    path: str
    partition_columns: tuple[str, ...]
    lists_partitions: bool
    char_columns: Mapping[str, str]
    max_lengths: Mapping[str, int]

    def partitioned_by(self, partition_columns: Any, options: Mapping[str, Any]) -> Any:
        """The caller's partition columns, which the merge checks against the folders, or else those of the table."""
        if partition_columns is not None or options.get("partition_by") is not None:
            return partition_columns
        return self.partition_columns or None


def find_table(spark: Any, name: str) -> Table:
    """A table of plain Parquet files; everything else is refused."""
    sql_name = _quoted_table(name)
    try:
        description = spark.sql(f"DESCRIBE TABLE EXTENDED {sql_name}").collect()
    except AnalysisException as error:
        raise ArgumentError(f"Spark's catalog has no table {name}: {str(error).splitlines()[0]}") from error
    rows = [(row["col_name"], row["data_type"]) for row in description]
    partition_columns, details = _partitions_and_details(rows)
    if details.get("Type") == "VIEW" or not details:
        raise TargetError(f"{name} is a view. Merge into the table that it reads.")
    provider = details.get("Provider", "unknown")
    if provider.lower() != "parquet":
        raise TargetError(
            f"{name} is a table of {provider}, not of plain Parquet files. Use the MERGE of {provider}, if it has one."
        )
    if int(details.get("Num Buckets", "0")) > 0:
        raise TargetError(f"{name} is bucketed by {details.get('Bucket Columns')}. {BUCKETED_ADVICE}")
    lists_partitions = details.get("Partition Provider") == "Catalog"
    path = _without_scheme(details["Location"])
    # The session may change its current database later.
    full_name = ".".join(quoted(details[part]) for part in ("Catalog", "Database", "Table") if part in details)
    table = Table(full_name or sql_name, path, partition_columns, lists_partitions, *_text_columns(rows))
    _check_folder(spark, name, table)
    return table


def _quoted_table(name: str) -> str:
    """`db.orders` with every part quoted."""
    parts = _NAME.findall(name) if isinstance(name, str) else []
    if not parts or ".".join(parts) != name:
        raise ArgumentError(f"{name!r} is not the name of a table. Write table, db.table or catalog.db.table.")
    return ".".join(part if part.startswith("`") else quoted(part) for part in parts)


def _partitions_and_details(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Both from their own sections: a column may have the name of a detail."""
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


def _text_columns(rows: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, int]]:
    """The types of `char(n)` columns, and the lengths of `char(n)` and `varchar(n)`.

    Columns come first, up to a section title or a line without a name.
    """
    columns = itertools.takewhile(lambda row: row[0] and not row[0].startswith("# "), rows)
    types = {name.lower(): sql_type for name, sql_type in columns if _TEXT_TYPE.fullmatch(sql_type)}
    lengths = {name: int(sql_type.partition("(")[2].rstrip(")")) for name, sql_type in types.items()}
    return {name: sql_type for name, sql_type in types.items() if sql_type.startswith("char(")}, lengths


def _without_scheme(location: str) -> str:
    """Like Hadoop, Spark writes locations without percent escapes."""
    return re.sub("^file:/+", "/", location)


def _check_folder(spark: Any, name: str, table: Table) -> None:
    """Refuse partitions outside of the table's folder: the merge would not see their keys and insert them again."""
    location = locate(table.path)
    if location.storage.local_path(location.root) is None:
        return
    spark.sql(f"REFRESH TABLE {table.name}")
    files = (unquote(_without_scheme(file)) for file in spark.table(table.name).inputFiles())
    outside = [file for file in files if not os.path.realpath(file).startswith(location.root + "/")]
    if not outside and table.lists_partitions:
        partitions = [row[0] for row in spark.sql(f"SHOW PARTITIONS {table.name}").collect()]
        outside = [partition for partition in partitions if not os.path.isdir(location.at(partition))]
    if outside:
        raise TargetError(
            f"{name} has partitions that are not in its folder {table.path}, e.g. {outside[0]}. Merge into their "
            f"folders by path. If the folder was removed, run MSCK REPAIR TABLE {name} SYNC PARTITIONS first."
        )


def check_columns(spark: Any, name: str, table: Table, data: Any, delete_column: str | None) -> None:
    """In a table without files, the first rows decide the types of the files: they must be the table's."""
    schema = getattr(spark_frame(data), "schema", None)
    if schema is None or list_files(locate(table.path)):
        return
    fields = from_arrow_schema(schema) if isinstance(schema, pa.Schema) else schema
    source = {field.name: field.dataType.simpleString() for field in fields if field.name != delete_column}
    wanted = {field.name: field.dataType.simpleString() for field in spark.table(table.name).schema}
    differing = {column: sql_type for column, sql_type in source.items() if wanted.get(column) != sql_type}
    missing = [column for column in wanted if column not in source]
    if differing or missing:
        raise SchemaMismatchError(
            f"The source does not have the columns of {name}, which has no files yet. Extra columns or other types: "
            f"{differing}; missing: {missing}. The table has {wanted}; cast and select accordingly."
        )


def check_keys(name: str, table: Table, key_columns: Any) -> None:
    """Refuse `char(n)` keys: `ab` does not match the `ab   ` that Spark wrote, and Spark reads both as the same."""
    for column in validate.column_names("key_columns", key_columns) or ():
        sql_type = table.char_columns.get(column.lower())
        if sql_type is not None:
            raise SchemaMismatchError(
                f"Key column {column!r} of {name} is {sql_type}, which Spark pads with blanks. Keys are compared byte "
                "by byte, so a key could occur twice, with blanks and without. Use another key, or a column of string."
            )


def add_columns(spark: Any, table: Table, names: Sequence[str]) -> None:
    """After a commit: add new columns to the table, with the types that Spark reads from the files."""
    known = {name.lower() for name in spark.table(table.name).schema.names}
    if all(name.lower() in known for name in names):
        return
    types = {f.name: f.dataType for f in spark.read.option("mergeSchema", "true").parquet(table.path).schema}
    columns = [f"{quoted(name)} {types[name].simpleString()}" for name in names if name.lower() not in known]
    _run_logged(spark, [f"ALTER TABLE {table.name} ADD COLUMNS ({', '.join(columns)})"])


def update_table(spark: Any, table: Table, added_columns: Iterable[str]) -> None:
    """After a commit: add new columns and partitions to the catalog, and forget old files."""
    add_columns(spark, table, list(added_columns))
    refresh_table(spark, table)


def refresh_table(spark: Any, table: Table) -> None:
    """After a commit: add new partitions, drop those without a folder, forget old files.

    ALTER TABLE … DROP PARTITION would delete the folder of a managed table, with the files that another writer has just
    put there. MSCK REPAIR TABLE … DROP PARTITIONS changes the catalog only. The rows are committed, so an error is only
    logged.
    """
    changes = ("ALTER TABLE {} RECOVER PARTITIONS", "MSCK REPAIR TABLE {} DROP PARTITIONS")
    statements = [change.format(table.name) for change in changes if table.lists_partitions]
    _run_logged(spark, [*statements, f"REFRESH TABLE {table.name}"])


def refresh_files(spark: Any, table: Table) -> None:
    """Make another session forget the files of the table. All sessions share the partitions in the catalog."""
    _run_logged(spark, [f"REFRESH TABLE {table.name}"])


def _run_logged(spark: Any, statements: Iterable[str]) -> None:
    """The rows are committed, so an error is only logged."""
    for statement in statements:
        try:
            spark.sql(statement)
        except PySparkException:
            log.warning("The merge is done, but Spark's catalog is not up to date. Run: %s", statement, exc_info=True)


def refresh_tables_at(spark: Any, location: Location) -> None:
    """Refresh the tables of the current database at this location: until then they show old rows."""
    tables = [row for row in spark.sql("SHOW TABLES").collect() if not row["isTemporary"]]
    if not 0 < len(tables) <= MANY_TABLES:
        return
    for row in spark.sql("SHOW TABLE EXTENDED LIKE '*'").collect():
        match = re.search(r"^Location: (.*)$", row["information"], re.MULTILINE)
        if match and _is_at(match[1], location):
            spark.sql(f"REFRESH TABLE {quoted(row['namespace'])}.{quoted(row['tableName'])}")


def _is_at(table_location: str, location: Location) -> bool:
    if location.storage.local_path(location.root) is None:
        return re.sub("^s3[an]:", "s3:", table_location).rstrip("/") == location.storage.url(location.root)
    return os.path.realpath(_without_scheme(table_location)) == location.root
