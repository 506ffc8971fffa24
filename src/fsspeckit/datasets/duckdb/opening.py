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
        source = connection.sql(source.text)
        if source is None:
            raise ArgumentError("source_sql gives no rows; write a query, such as SELECT … FROM ….")
    if isinstance(source, duckdb.DuckDBPyRelation):
        return Opened(open_reader(source, BATCH_ROWS), query=True)
    return Opened(to_reader(source, filesystem))
