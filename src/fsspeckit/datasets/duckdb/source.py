"""Sources: Arrow streams, DuckDB relations and SQL queries.

A query runs on the user's own connection, because only there are its temporary tables and its transaction. If another
statement runs on the connection while the result is streamed, DuckDB 1 ends the stream without an error, and DuckDB 2
refuses the statement. So queries on one connection wait for each other, and with DuckDB 1 we append a marker row: if it
is missing at the end, rows are missing.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from fsspeckit.core.engine import Source
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.local_engine import ArrowSource
from fsspeckit.core.storage import Access
from fsspeckit.datasets.duckdb.columns import check_booleans, parquet_column, parquet_field, select_list
from fsspeckit.datasets.duckdb.version import library_version
from fsspeckit.datasets.duckdb.workspace import as_duckdb_errors, open_reader
from fsspeckit.datasets.sources import to_reader

BATCH_ROWS = 16_384
NEEDS_MARKER = library_version() < (2, 0, 0)

_CUT_SHORT = (
    "the source's query was cut short, because another statement ran on its connection. "
    "Give every thread its own cursor: DuckDBDatasetIO(connection.cursor())."
)
_ABORTED = "If a transaction was open on the source's connection, DuckDB has aborted it: roll it back before you go on."
_WRITES = re.compile(rb"(insert|update|delete|copy)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Sql:
    """A source given as SQL text. It runs on the user's own connection."""

    text: str


def open_source(source: object, connection: Any, access: Access, spool_bytes: int = 0) -> Source:
    if isinstance(source, pa.Table):
        return ArrowSource(source.schema, source, spool_bytes)
    query: Query | None = None
    if isinstance(source, Sql):
        _check_query(source.text, connection)
        query = Query(connection, lambda: _relation(source.text, connection))
    elif isinstance(source, duckdb.DuckDBPyRelation):
        query = Query(None, lambda: source)
    spill = _temp_directory(connection)
    if query is not None:
        return ArrowSource(query.schema, query.batches, spool_bytes, spill, query.close)
    reader = to_reader(source, access)
    return ArrowSource(reader.schema, lambda: reader, spool_bytes, spill)


def _temp_directory(connection: Any) -> str | None:
    """The directory that DuckDB spills to, or its nearest existing parent. `None` if the user forbids spilling."""
    with closing(connection.cursor()) as cursor:
        (folder,) = cursor.execute("SELECT current_setting('temp_directory')").fetchone()
    if not folder:
        return None
    folder = os.path.abspath(str(folder))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _check_query(text: str, connection: Any) -> None:
    """Refuse everything but a query before it runs. The text is parsed on a cursor: a syntax error on the connection
    itself would abort its transaction."""
    if not isinstance(text, str):
        raise ArgumentError(f"source_sql takes SQL text, not {type(text).__name__}; give other sources as data.")
    with closing(connection.cursor()) as cursor:
        statements = [statement.type for statement in cursor.extract_statements(text)]
    if statements == [duckdb.StatementType.SELECT] and not _has_writing_cte(text):
        return
    if "pivot" in text.lower():  # DuckDB turns it into several statements, which create a type
        raise ArgumentError("source_sql must be one query. A PIVOT is one if it lists its values: ON … IN (…).")
    raise ArgumentError("source_sql must be one query, such as SELECT … FROM …; run other statements before.")


def _has_writing_cte(text: str) -> bool:
    """DuckDB 2 accepts INSERT, UPDATE, DELETE and COPY in common table expressions."""
    raw = text.encode()
    tokens = [(at, token_type) for at, token_type in duckdb.tokenize(text) if token_type != duckdb.token_type.comment]
    return any(
        raw[before : before + 1] in (b"(", b")") and _WRITES.match(raw, at) is not None
        for (before, _), (at, token_type) in pairwise(tokens)
        if token_type == duckdb.token_type.keyword
    )


def _relation(text: str, connection: Any) -> Any:
    """DuckDB looks up unknown tables among the caller's Python variables. `eval` gives it only these two."""
    names = {"_fsspeckit_connection": connection, "_fsspeckit_text": _without_semicolons(text)}
    return eval("_fsspeckit_connection.sql(_fsspeckit_text)", names)


def _without_semicolons(text: str) -> str:
    """DuckDB 2 refuses a comment after the semicolon of a single statement.

    >>> _without_semicolons("SELECT ';'; -- the end")
    "SELECT ';'  -- the end"
    """
    raw = bytearray(text.encode())
    for at, _ in duckdb.tokenize(text):
        if raw[at : at + 1] == b";":
            raw[at : at + 1] = b" "
    return raw.decode()


class CutShort(duckdb.Error):  # type: ignore[misc]
    """A stream ended before its marker row."""


# Errors that do not abort the transaction; DuckDB 1 does not have the second one.
_HARMLESS: Any = (CutShort, getattr(duckdb, "ResourceInUseException", CutShort))


class Query:
    """A stream of the rows of a relation. It can be read once, and closed at any time, more than once."""

    def __init__(self, connection: Any, make: Callable[[], Any]) -> None:
        """`connection` is `None` for a relation, which does not expose its connection."""
        with ExitStack() as stack:
            stack.enter_context(_exclusive(connection))
            relation = make()
            rows = relation.project(select_list(relation))
            with _mention_aborted_transaction():
                rows = _with_marker(rows) if NEEDS_MARKER else rows
                self._reader = stack.enter_context(open_reader(rows, BATCH_ROWS))
            check_booleans(self._reader.schema)
            names = relation.columns
            self.schema = pa.schema([parquet_field(self._reader.schema.field(i), n) for i, n in enumerate(names)])
            self._resources = stack.pop_all()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._read():
            columns = [parquet_column(batch.column(i), field.type) for i, field in enumerate(self.schema)]
            yield pa.record_batch(columns, schema=self.schema)

    def _read(self) -> Iterator[pa.RecordBatch]:
        with _mention_aborted_transaction():
            yield from _without_marker(self._reader) if NEEDS_MARKER else self._reader

    def close(self) -> None:
        self._resources.close()


_active: list[tuple[int, Any]] = []
_active_changed = threading.Condition()


@contextmanager
def _exclusive(connection: Any) -> Iterator[None]:
    """Wait until no other thread reads from the connection. An unknown connection (`None`) could be any connection."""
    mine = (threading.get_ident(), connection)

    def free() -> bool:
        others = [theirs for thread, theirs in _active if thread != mine[0]]
        return not any(theirs is connection or theirs is None or connection is None for theirs in others)

    with _active_changed:
        _active_changed.wait_for(free)
        _active.append(mine)
    try:
        yield
    finally:
        with _active_changed:
            _active.remove(mine)
            _active_changed.notify_all()


def _with_marker(rows: Any) -> Any:
    """Add a column `mark`: 0 for all rows, and 1 for a last row of nulls. Aggregates of no rows are typed nulls."""
    nulls = ", ".join(f"any_value({name}) AS {name}" for name in rows.columns)
    return rows.project("*, 0 AS mark").union(rows.limit(0).aggregate(nulls).project("*, 1 AS mark"))


def _without_marker(reader: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches without the marker row; `CutShort` if that is not the last row."""
    complete = False
    for batch in reader:
        marks = batch.column(batch.num_columns - 1).to_numpy()
        if complete or marks[:-1].any():
            break
        complete = bool(marks[-1:].any())
        yield batch.slice(0, batch.num_rows - complete)
    else:
        if complete:
            return
    raise CutShort(_CUT_SHORT)


@contextmanager
def _mention_aborted_transaction() -> Iterator[None]:
    """A query that fails while it runs aborts the user's transaction: say so in the error."""
    try:
        with as_duckdb_errors():
            yield
    except duckdb.Error as error:
        if isinstance(error, _HARMLESS):
            raise
        raise type(error)(f"{error}\n{_ABORTED}") from error
