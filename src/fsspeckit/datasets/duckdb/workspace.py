"""A place of our own in the user's database: one cursor, its temporary tables and views.

Temporary tables, views and transactions belong to a cursor. Whatever happens here, the user's own connection keeps its
tables, its open transaction and its settings; when the cursor closes, all of ours is gone. What the cursor shares
with the user is what it should share: the database's memory limit and the directory it spills into.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from fsspeckit.core.values import arrays
from fsspeckit.datasets.duckdb.columns import check_booleans

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class Workspace:
    """SQL on a cursor, by one thread at a time."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()
        self._lock = threading.RLock()
        self._token = uuid.uuid4().hex
        self._tables = 0
        self._statement: Future[Any] = Future()
        self._statement.set_result(None)

    def new_name(self, what: str) -> str:
        """A name that no table of the user's has."""
        self._tables += 1
        return f"fsspeckit_{what}_{self._tables}_{self._token}"

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute a statement; what comes back is small."""
        logger.debug("%s", sql)
        with self._lock:
            rows: list[tuple[Any, ...]] = self._interruptible(lambda: self._cursor.execute(sql).fetchall())
            return rows

    def fetch(self, sql: str) -> pa.Table:
        """The rows of a query or of a RETURNING clause, as Arrow."""
        logger.debug("%s", sql)
        with self._lock:
            return _plain(self._interruptible(lambda: self._cursor.sql(sql).to_arrow_table()))

    def stream(self, sql: str, rows: int) -> Iterator[pa.Table]:
        """The rows of a query, a few at a time. Nothing else may run on the workspace until it is exhausted."""
        logger.debug("%s", sql)
        with self._lock, self._interruptible(lambda: open_reader(self._cursor.sql(sql), rows)) as reader, reading():
            while (batch := self._interruptible(lambda: next(reader, None))) is not None:
                yield _plain(pa.Table.from_batches([batch]))

    def create(self, what: str, query: str) -> str:
        name = self.new_name(what)
        self.run(f"CREATE TEMP TABLE {name} AS {query}")
        return name

    def create_like(self, what: str, columns: pa.Schema) -> str:
        """An empty table for rows of an Arrow schema."""
        name = self.new_name(what)
        self._with_view(columns.empty_table(), f"CREATE TEMP TABLE {name} AS SELECT * FROM {{view}}")
        return name

    def insert(self, table: str, rows: pa.Table) -> None:
        self._with_view(rows, f"INSERT INTO {table} SELECT * FROM {{view}}")

    def _with_view(self, rows: pa.Table, sql: str) -> None:
        """Arrow memory is read where it lies: registered under a name of its own, and let go of."""
        view = f"source_view_{uuid.uuid4().hex}"
        with self._lock:
            try:
                self._cursor.register(view, rows)
                self.run(sql.format(view=view))
            finally:
                _unregister_duckdb_table_safely(self._cursor, view)

    def drop(self, *tables: str) -> None:
        for table in tables:
            self.run(f"DROP TABLE IF EXISTS {table}")

    def close(self) -> None:
        with self._lock:
            self._stop()
            self._cursor.close()

    def _interruptible(self, statement: Callable[[], Value]) -> Value:
        """Run a statement so that Ctrl-C ends it and is a `KeyboardInterrupt`.

        In the main thread DuckDB looks for Ctrl-C itself. It makes a `RuntimeError` of the first one; after a second
        one, closing the cursor waits for a statement that nobody ends. In another thread it does not look for it.
        """
        if threading.current_thread() is not threading.main_thread():
            return statement()
        self._statement = outcome = Future[Any]()
        threading.Thread(target=_run, args=(statement, outcome), daemon=True).start()
        try:
            wait([outcome])
        except KeyboardInterrupt:
            self._stop()
            raise
        value: Value = outcome.result()
        return value

    def _stop(self) -> None:
        """End the statement that runs. An interrupt that comes before it has begun is lost, so there are several."""
        while not self._statement.done():
            with contextlib.suppress(KeyboardInterrupt):
                self._cursor.interrupt()
                wait([self._statement], timeout=0.05)


def _run(statement: Callable[[], Any], outcome: Future[Any]) -> None:
    try:
        outcome.set_result(statement())
    except BaseException as error:
        outcome.set_exception(error)


def open_reader(relation: Any, rows: int) -> pa.RecordBatchReader:
    """A relation as a stream of record batches; DuckDB has renamed the method."""
    method = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return method(rows)


@contextmanager
def reading() -> Iterator[None]:
    """What fails in DuckDB while a stream is read comes out of Arrow as an error of the system's."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise duckdb.Error(str(error)) from error


def _plain(table: pa.Table) -> pa.Table:
    """Without what the user's settings of Arrow output have put in: views, and integers with a name."""
    check_booleans(table.schema)
    return pa.table([arrays.plain(column) for column in table.columns], names=table.column_names)


def _unregister_duckdb_table_safely(connection: Any, name: str) -> None:
    """Take a registered view away; that it was never there is not an error."""
    try:
        connection.unregister(name)
    except duckdb.Error as error:
        logger.debug("Could not unregister %s: %s", name, error)
