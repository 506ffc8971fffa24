"""Sources: what becomes an Arrow stream, and queries."""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from fsspeckit.core.engine import Source
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.local_engine import ArrowSource
from fsspeckit.core.storage import Access
from fsspeckit.datasets.duckdb.query import Query
from fsspeckit.datasets.sources import to_reader


@dataclass(frozen=True)
class Sql:
    """A source given as SQL text, to be run on the user's own connection."""

    text: str


_CHANGE = re.compile(rb"(insert|update|delete|copy)\b", re.IGNORECASE)


def open_source(source: object, connection: Any, access: Access, spool_bytes: int = 0) -> Source:
    """SQL and relations run where they belong: on the user's connection, within its transaction."""
    if isinstance(source, pa.Table):
        return ArrowSource(source.schema, source, spool_bytes)
    stream: Query | None = None
    if isinstance(source, Sql):
        _check_query(source.text, connection)
        stream = Query(connection, lambda: _relation(source.text, connection))
    elif isinstance(source, duckdb.DuckDBPyRelation):
        stream = Query(None, lambda: source)
    spill = _temp_directory(connection)
    if stream is not None:
        return ArrowSource(stream.schema, stream.batches, spool_bytes, spill, stream.close)
    reader = to_reader(source, access)
    return ArrowSource(reader.schema, lambda: reader, spool_bytes, spill)


def _temp_directory(connection: Any) -> str | None:
    """Where the user lets DuckDB spill to, or the folder above: DuckDB makes it and takes it away. `None`: nowhere."""
    with closing(connection.cursor()) as cursor:
        (folder,) = cursor.execute("SELECT current_setting('temp_directory')").fetchone()
    if not folder:
        return None
    folder = os.path.abspath(str(folder))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _check_query(text: str, connection: Any) -> None:
    """Only a query: a statement that changes something would have done so before it turns out to give no rows.

    Parsed on a cursor, because a syntax error aborts a transaction too.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"source_sql takes SQL text, not {type(text).__name__}; give other sources as data.")
    with closing(connection.cursor()) as cursor:
        statements = [statement.type for statement in cursor.extract_statements(text)]
    if statements == [duckdb.StatementType.SELECT] and not _changes_something(text):
        return
    if "pivot" in text.lower():  # several statements in disguise: they leave a type behind
        raise ArgumentError("source_sql must be one query. A PIVOT is one if it lists its values: ON … IN (…).")
    raise ArgumentError("source_sql must be one query, such as SELECT … FROM …; run other statements before.")


def _changes_something(text: str) -> bool:
    """Does a CTE insert, update, delete or copy, as DuckDB 2 lets it?"""
    raw = text.encode()
    tokens = [(at, token_type) for at, token_type in duckdb.tokenize(text) if token_type != duckdb.token_type.comment]
    return any(
        raw[before : before + 1] in (b"(", b")") and _CHANGE.match(raw, at) is not None
        for (before, _), (at, token_type) in pairwise(tokens)
        if token_type == duckdb.token_type.keyword
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
