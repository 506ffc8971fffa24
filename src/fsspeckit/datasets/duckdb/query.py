"""A query of the user's as a stream: alone on its connection while it is read, and known to be whole.

A query runs on the user's connection itself, for only there are its temporary tables and its transaction. Before
version 2 DuckDB ends a stream without a word as soon as anything else runs on its connection (seen); from 2 on it
refuses the other statement. So queries of one connection take turns here, and where a stream can be cut short a row of
ours comes last: without it, rows are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from fsspeckit.datasets.duckdb.columns import carried, carried_field, check_booleans, select_list
from fsspeckit.datasets.duckdb.version import library_version
from fsspeckit.datasets.duckdb.workspace import open_reader, reading

BATCH_ROWS = 16_384
MAY_BE_CUT = library_version() < (2, 0, 0)

_CUT = (
    "the source's query was cut short, since something else ran on its connection meanwhile. "
    "Give every thread a cursor of its own: DuckDBDatasetIO(connection.cursor())."
)
_ABORTED = "If a transaction was open on the source's connection, DuckDB has aborted it: roll it back before you go on."


class CutShort(duckdb.Error):  # type: ignore[misc]
    """A stream ended before its last row."""


# Errors that leave the transaction as it was; DuckDB 1 does not have the second one.
_HARMLESS: Any = (CutShort, getattr(duckdb, "ResourceInUseException", CutShort))


class Query:
    """The rows of a relation, once. `close` ends it, at any time and as often as one likes."""

    def __init__(self, connection: Any, make: Callable[[], Any]) -> None:
        """`connection` is None for a relation, which does not tell its own."""
        with ExitStack() as stack:
            stack.enter_context(_turn(connection))
            relation = make()
            rows = relation.project(select_list(relation))
            with _explained():
                self._reader = stack.enter_context(open_reader(_marked(rows) if MAY_BE_CUT else rows, BATCH_ROWS))
            check_booleans(self._reader.schema)
            names = relation.columns
            self.schema = pa.schema([carried_field(self._reader.schema.field(i), n) for i, n in enumerate(names)])
            self._held = stack.pop_all()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch, rows in self._read():
            columns = [carried(batch.column(i), field.type) for i, field in enumerate(self.schema)]
            yield pa.record_batch(columns, schema=self.schema).slice(0, rows)

    def _read(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        with _explained():
            yield from _counted(self._reader) if MAY_BE_CUT else ((batch, batch.num_rows) for batch in self._reader)

    def close(self) -> None:
        self._held.close()


_reading: list[tuple[int, Any]] = []
_changed = threading.Condition()


@contextmanager
def _turn(connection: Any) -> Iterator[None]:
    """Wait until no other thread reads on the connection. One that is not known may be any."""
    mine = (threading.get_ident(), connection)

    def free() -> bool:
        others = [theirs for thread, theirs in _reading if thread != mine[0]]
        return not any(theirs is connection or theirs is None or connection is None for theirs in others)

    with _changed:
        _changed.wait_for(free)
        _reading.append(mine)
    try:
        yield
    finally:
        with _changed:
            _reading.remove(mine)
            _changed.notify_all()


def _marked(rows: Any) -> Any:
    """The rows with a 0, then a row of nulls with a 1. The nulls are aggregates of no rows, which keep their types."""
    nulls = ", ".join(f"any_value({name}) AS {name}" for name in rows.columns)
    return rows.project("*, 0 AS mark").union(rows.limit(0).aggregate(nulls).project("*, 1 AS mark"))


def _counted(reader: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Batches, and how many rows of each are the query's; `CutShort` if the last row of all is not ours."""
    whole = False
    for batch in reader:
        marks = batch.column(batch.num_columns - 1).to_numpy()
        if whole or marks[:-1].any():
            break
        whole = bool(marks[-1:].any())
        yield batch, batch.num_rows - whole
    else:
        if whole:
            return
    raise CutShort(_CUT)


@contextmanager
def _explained() -> Iterator[None]:
    """A query that fails while it runs takes the user's transaction with it: say so."""
    try:
        with reading():
            yield
    except duckdb.Error as error:
        if isinstance(error, _HARMLESS):
            raise
        raise type(error)(f"{error}\n{_ABORTED}") from error
