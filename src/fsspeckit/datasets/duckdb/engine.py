"""The DuckDB engine: matches keys in SQL, spills to disk, and accepts queries as sources."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import duckdb

from fsspeckit.core.actions import Actions
from fsspeckit.core.engine import Source
from fsspeckit.core.local_engine import LocalEngine
from fsspeckit.core.match.key_index import KeySet
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.storage import Access
from fsspeckit.datasets.duckdb.keys import SqlKeys
from fsspeckit.datasets.duckdb.source import open_source
from fsspeckit.datasets.duckdb.version import choose_merge
from fsspeckit.datasets.duckdb.workspace import Workspace


class DuckDBEngine(LocalEngine):
    """See `core.engine.Engine`. Temporary tables end with the cursor of each merge."""

    name = "duckdb"
    # In addition to DuckDB's own memory_limit.
    memory_bound = 128 << 20
    spool_bytes = 32 << 20

    def __init__(
        self,
        connect: Callable[[], duckdb.DuckDBPyConnection],
        access: Access | None = None,
        use_merge: bool | None = None,
    ) -> None:
        super().__init__(min(4, os.cpu_count() or 1))
        self._connect, self._access, self._use_merge = connect, access or Access(), use_merge

    def open(self, source: object) -> Source:
        return open_source(source, self._connect(), self._access, self.spool_bytes)

    @contextlib.contextmanager
    def keys(self, spool: Spool, actions: Actions) -> Iterator[KeySet]:
        connection = self._connect()
        native = choose_merge(connection, self._use_merge)
        with contextlib.closing(Workspace(connection)) as workspace:
            yield SqlKeys(workspace, spool, actions, native, self.progress)
