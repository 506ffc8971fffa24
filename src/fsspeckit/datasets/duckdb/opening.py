"""Sources of any kind as a stream of record batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.duckdb.workspace import batches, open_reader
from fsspeckit.datasets.sources import to_reader

BATCH_ROWS = 16_384


@dataclass(frozen=True)
class Sql:
    """A source given as SQL text, to be run on the user's own connection."""

    text: str


@dataclass(frozen=True)
class Opened:
    """A source as a stream. A query is ours to close; a reader that the user gave is the user's."""

    reader: pa.RecordBatchReader
    query: bool = False

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    def batches(self) -> Iterable[pa.RecordBatch]:
        return batches(self.reader) if self.query else self.reader

    def close(self) -> None:
        if self.query:
            self.reader.close()


def open_source(source: Any, connection: Any, filesystem: Any) -> Opened:
    """SQL and relations run where they belong: on the user's connection, within its transaction."""
    if isinstance(source, Sql):
        source = _query(source.text, connection)
    if isinstance(source, duckdb.DuckDBPyRelation):
        # A relation keeps the result that it was asked for; a projection of it has one of its own, but renames
        # columns that differ only in case.
        return Opened(_renamed(open_reader(source.project("*"), BATCH_ROWS), source.columns), query=True)
    return Opened(to_reader(source, filesystem))


def _renamed(reader: pa.RecordBatchReader, names: list[str]) -> pa.RecordBatchReader:
    if reader.schema.names == names:
        return reader
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(schema, (batch.rename_columns(names) for batch in reader))


def _query(text: str, connection: Any) -> Any:
    """Only a query: a statement that changes something would have done so before it turns out to give no rows."""
    if not isinstance(text, str):
        raise ArgumentError(f"source_sql takes SQL text, not {type(text).__name__}; give other sources as data.")
    statements = connection.extract_statements(text)
    if len(statements) != 1 or statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.MULTI):
        raise ArgumentError("source_sql must be one query, such as SELECT … FROM …; run other statements before.")
    return connection.sql(text)
