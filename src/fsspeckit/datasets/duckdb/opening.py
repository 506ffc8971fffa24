"""Sources of any kind as a stream of record batches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.duckdb.query import Query
from fsspeckit.datasets.sources import to_reader


@dataclass(frozen=True)
class Sql:
    """A source given as SQL text, to be run on the user's own connection."""

    text: str


@dataclass(frozen=True)
class Given:
    """A stream that is not a query; one that the user gave is the user's to close."""

    reader: pa.RecordBatchReader

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.reader

    def close(self) -> None:
        """Nothing to do."""


Opened = Query | Given
_CHANGE = re.compile(rb"(insert|update|delete|copy)\b", re.IGNORECASE)


def open_source(source: Any, connection: Any, filesystem: Any) -> Opened:
    """SQL and relations run where they belong: on the user's connection, within its transaction."""
    if isinstance(source, Sql):
        _check_query(source.text, connection)
        return Query(connection, lambda: _relation(source.text, connection))
    if isinstance(source, duckdb.DuckDBPyRelation):
        return Query(None, lambda: source)
    return Given(to_reader(source, filesystem))


def _check_query(text: str, connection: Any) -> None:
    """Only a query: a statement that changes something would have done so before it turns out to give no rows.

    Parsed on a cursor, because a syntax error aborts a transaction too.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"source_sql takes SQL text, not {type(text).__name__}; give other sources as data.")
    with closing(connection.cursor()) as cursor:
        kinds = [statement.type for statement in cursor.extract_statements(text)]
    if kinds == [duckdb.StatementType.SELECT] and not _changes_something(text):
        return
    if "pivot" in text.lower():  # several statements in disguise: they leave a type behind
        raise ArgumentError("source_sql must be one query. A PIVOT is one if it lists its values: ON … IN (…).")
    raise ArgumentError("source_sql must be one query, such as SELECT … FROM …; run other statements before.")


def _changes_something(text: str) -> bool:
    """Does a CTE insert, update, delete or copy, as DuckDB 2 lets it?"""
    raw = text.encode()
    tokens = [(at, kind) for at, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    return any(
        raw[before : before + 1] in (b"(", b")") and _CHANGE.match(raw, at) is not None
        for (before, _), (at, kind) in pairwise(tokens)
        if kind == duckdb.token_type.keyword
    )


def _relation(text: str, connection: Any) -> Any:
    """DuckDB looks for a table that it does not know among the variables of whoever calls; so they have odd names."""
    names = {"_fsspeckit_connection": connection, "_fsspeckit_text": _bare(text)}
    return eval("_fsspeckit_connection.sql(_fsspeckit_text)", names)


def _bare(text: str) -> str:
    """One statement without its semicolon: DuckDB 2 does not take a comment after that.

    >>> _bare("SELECT ';'; -- the end")
    "SELECT ';'  -- the end"
    """
    letters = bytearray(text.encode())
    for at, _ in duckdb.tokenize(text):
        if letters[at : at + 1] == b";":
            letters[at : at + 1] = b" "
    return letters.decode()
