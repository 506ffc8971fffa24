"""A cursor of the user's connection for our statements, with temporary tables and views.

Temporary tables, views and transactions belong to a cursor, so the user's connection keeps its tables, its transaction
and its settings, and ours disappear with the cursor. The database's memory limit and temporary directory apply to both.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from fsspeckit.core.values import arrays
from fsspeckit.datasets.duckdb.columns import check_booleans

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class Workspace:
    """Runs SQL on its own cursor, one thread at a time."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()
        self._lock = threading.RLock()
        self._token = uuid.uuid4().hex
        self._tables = 0
        self._statement: _Statement | None = None

    def new_name(self, what: str) -> str:
        """A name that no table of the user has."""
        self._tables += 1
        return f"fsspeckit_{what}_{self._tables}_{self._token}"

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows. For small results."""
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
        """The rows of a query in batches. No other statement may run until the last batch is read."""
        logger.debug("%s", sql)
        with (
            self._lock,
            self._interruptible(lambda: open_reader(self._cursor.sql(sql), rows)) as reader,
            as_duckdb_errors(),
        ):
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
        """Run a statement on Arrow data that is registered, without a copy, as a temporary view."""
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
            if self._statement is not None:
                self._stop(self._statement)
            self._cursor.close()

    def _interruptible(self, statement: Callable[[], Value]) -> Value:
        """Run a statement in another thread, so that Ctrl-C interrupts it and raises `KeyboardInterrupt`.

        In the main thread DuckDB handles Ctrl-C itself: the first one raises `RuntimeError`, and after a second one
        closing the cursor waits for the statement forever.
        """
        if threading.current_thread() is not threading.main_thread():
            return statement()
        running = _Statement(statement)
        _thread.start_new_thread(self._run, (running,))
        try:
            while not running.is_done:
                running.wait()
        except KeyboardInterrupt:
            self._stop(running)
            raise
        if running.error is not None:
            raise running.error
        value: Value = running.value
        return value

    def _run(self, statement: _Statement) -> None:
        self._statement = statement
        statement.run()

    def _stop(self, statement: _Statement) -> None:
        """Interrupt a running statement. DuckDB ignores an interrupt before the statement starts, so repeat it."""
        while not statement.is_done:
            with contextlib.suppress(KeyboardInterrupt):
                self._cursor.interrupt()
                statement.wait(0.05)


class _Statement:
    """A statement that another thread runs. The main thread waits for it, and Ctrl-C may end the wait at any moment.

    Ctrl-C within a `Thread`, a `Future` or a `Condition`, which are written in Python, leaves their locks taken, or
    released once too often. A plain lock is either acquired or not.
    """

    def __init__(self, statement: Callable[[], Any]) -> None:
        self._statement = statement
        self._running = threading.Lock()
        self._running.acquire()
        self.is_done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._statement()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self._running.release()

    def wait(self, seconds: float = -1) -> None:
        """Returns when the statement is done, or earlier."""
        self._running.acquire(timeout=seconds)


def open_reader(relation: Any, rows: int) -> pa.RecordBatchReader:
    """A relation as a stream of record batches. The method has another name in old versions of DuckDB."""
    method = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return method(rows)


@contextmanager
def as_duckdb_errors() -> Iterator[None]:
    """If DuckDB fails while a stream is read, Arrow raises an error of its own or an `OSError`."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise duckdb.Error(str(error)) from error


def _plain(table: pa.Table) -> pa.Table:
    """Remove views and extension types, which depend on the user's Arrow settings."""
    check_booleans(table.schema)
    return arrays.plain_table(table)


def _unregister_duckdb_table_safely(connection: Any, name: str) -> None:
    """Unregister a view. It is not an error if the view does not exist."""
    try:
        connection.unregister(name)
    except duckdb.Error as error:
        logger.debug("Could not unregister %s: %s", name, error)
