"""`DuckDBDatasetIO` and `DuckDBParquetHandler`."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TypeVar, Unpack

import duckdb
import pyarrow as pa

from fsspeckit.core.errors import ArgumentError, DatasetMergeError
from fsspeckit.core.model import MergeStrategy
from fsspeckit.core.reports import MergePlan, MergeResult, WritePlan, WriteResult
from fsspeckit.core.storage import Access
from fsspeckit.datasets.duckdb.engine import DuckDBEngine
from fsspeckit.datasets.duckdb.source import Sql
from fsspeckit.datasets.duckdb.version import check_use_merge
from fsspeckit.datasets.inputs import Data, Path
from fsspeckit.datasets.io import DatasetIO, TableIO
from fsspeckit.datasets.options import (
    AnyStrategy,
    Columns,
    MergeOptions,
    Mode,
    PlanOptions,
    Strategy,
    WriteDatasetOptions,
    WriteParquetOptions,
)

logger = logging.getLogger(__name__)
Self = TypeVar("Self", bound="DuckDBDatasetIO")
_UNSET: Any = object()
_database_lock = threading.Lock()


class DuckDBDatasetIO(TableIO):
    """Merge with DuckDB. A source larger than DuckDB's `memory_limit` spills to disk.

    Sources: everything that `PyArrowDatasetIO` accepts, a DuckDB relation, and SQL text as `source_sql=`. Relations and
    SQL are streamed. They run on your own connection and see its temporary tables and its transaction:

    - A DuckDB connection has one open result at a time, so merges on one connection wait for each other. If you have
      not read a result to its end, the query closes it (DuckDB 1: its remaining rows are lost) or the merge is refused
      (DuckDB 2). If you run a statement while the query is read, the merge fails (DuckDB 1) or the statement is refused
      (DuckDB 2). Give each thread its own connection: `DuckDBDatasetIO(connection.cursor())`.
    - If the query fails, DuckDB aborts the transaction that is open on the connection: roll it back.
    - SQL sees the tables of the connection, not Python variables: `register` what you need.

    Args:
        connection: used through a cursor and left unchanged; its `memory_limit` and `temp_directory` apply. Without
            one, a private in-memory database is used, which spills to the system's temporary directory.
        filesystem: an fsspec file system for the target.
        storage_options: how to reach a store, as in `fsspeckit.merge`.
        use_merge: `None` uses DuckDB's MERGE from 1.4.0 on, `True` requires it, `False` uses a join and UNION ALL.

    >>> import pyarrow as pa
    >>> io = DuckDBDatasetIO()
    >>> io.merge(pa.table({"id": [1, 2], "x": ["a", "b"]}), "memory://duck/lake", "upsert", ["id"]).inserted
    2
    >>> sql = "SELECT 2::BIGINT AS id, 'B' AS x"
    >>> io.merge(path="memory://duck/lake", strategy="upsert", key_columns=["id"], source_sql=sql).updated
    1
    """

    def __init__(
        self,
        connection: Any = None,
        filesystem: Any = None,
        use_merge: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_use_merge(use_merge)
        _check_connection(connection)
        self._users_connection = connection
        self._own_database: Any = None
        access = Access(filesystem, storage_options)
        super().__init__(DuckDBEngine(self._connection, access, use_merge), access)

    def merge(
        self,
        data: Data | None = None,
        path: Path = "",
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        *,
        source_sql: str | None = None,
        use_merge: bool | None = _UNSET,
        **options: Unpack[MergeOptions],
    ) -> MergeResult:
        """See `DatasetIO.merge`. `source_sql` is a query that returns the source. `use_merge` is for this call only."""
        with self._call("MERGE", path, strategy, key_columns, use_merge) as io:
            return io.merge(_source(data, source_sql), _path(path), strategy, key_columns, partition_columns, **options)

    def plan(
        self,
        data: Data | None = None,
        path: Path = "",
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        *,
        source_sql: str | None = None,
        use_merge: bool | None = _UNSET,
        **options: Unpack[PlanOptions],
    ) -> MergePlan:
        """See `DatasetIO.plan`; `source_sql` and `use_merge` as in `merge`."""
        with self._call("MERGE", path, strategy, key_columns, use_merge) as io:
            return io.plan(_source(data, source_sql), _path(path), strategy, key_columns, partition_columns, **options)

    def write_dataset(
        self,
        data: Data | None = None,
        path: Path = "",
        mode: Mode = "append",
        partition_columns: Columns | None = None,
        *,
        source_sql: str | None = None,
        **options: Unpack[WriteDatasetOptions],
    ) -> WriteResult:
        """See `DatasetIO.write_dataset`; `source_sql` as in `merge`."""
        with self._call("WRITE", path) as io:
            return io.write_dataset(_source(data, source_sql), _path(path), mode, partition_columns, **options)

    def plan_write(
        self,
        data: Data | None = None,
        path: Path = "",
        mode: Mode = "append",
        partition_columns: Columns | None = None,
        *,
        source_sql: str | None = None,
        **options: Unpack[WriteDatasetOptions],
    ) -> WritePlan:
        """See `DatasetIO.plan_write`; `source_sql` as in `merge`."""
        with self._call("WRITE", path) as io:
            return io.plan_write(_source(data, source_sql), _path(path), mode, partition_columns, **options)

    def write_parquet_dataset(
        self,
        data: Data | None = None,
        path: Path = "",
        strategy: AnyStrategy | MergeStrategy | None = None,
        key_columns: Columns | None = None,
        *,
        source_sql: str | None = None,
        use_merge: bool | None = _UNSET,
        **options: Unpack[WriteParquetOptions],
    ) -> MergeResult | WriteResult:
        """See `DatasetIO.write_parquet_dataset`; `source_sql` and `use_merge` as in `merge`."""
        name = "WRITE" if strategy is None else "MERGE"
        with self._call(name, path, strategy, key_columns, use_merge) as io:
            return io.write_parquet_dataset(_source(data, source_sql), _path(path), strategy, key_columns, **options)

    def plan_parquet_dataset(
        self,
        data: Data | None = None,
        path: Path = "",
        strategy: AnyStrategy | MergeStrategy | None = None,
        key_columns: Columns | None = None,
        *,
        source_sql: str | None = None,
        use_merge: bool | None = _UNSET,
        **options: Unpack[WriteParquetOptions],
    ) -> MergePlan | WritePlan:
        """See `DatasetIO.plan_parquet_dataset`; `source_sql` and `use_merge` as in `merge`."""
        name = "WRITE" if strategy is None else "MERGE"
        with self._call(name, path, strategy, key_columns, use_merge) as io:
            return io.plan_parquet_dataset(_source(data, source_sql), _path(path), strategy, key_columns, **options)

    def close(self) -> None:
        """Close the private database, if there is one. A connection that you passed stays open."""
        with _database_lock:
            database, self._own_database = self._own_database, None
        if database is not None:
            database.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connection(self) -> Any:
        if self._users_connection is not None:
            return self._users_connection
        with _database_lock:
            if self._own_database is None:
                self._own_database = _private_database()
            return self._own_database

    @contextmanager
    def _call(
        self, operation: str, path: Path, strategy: Any = None, key_columns: Any = None, use_merge: Any = _UNSET
    ) -> Iterator[DatasetIO[pa.Table]]:
        """Run one call with its own `use_merge`, and translate DuckDB's errors."""
        engine = self._engine
        if use_merge is not _UNSET:
            check_use_merge(use_merge)
            engine = DuckDBEngine(self._connection, self._access, use_merge)
        with _translate_errors(operation, path, strategy, key_columns):
            yield DatasetIO(engine, self._access)


class DuckDBParquetHandler(DuckDBDatasetIO):
    """`DuckDBDatasetIO` with the names of specs 003 and 004."""

    def merge_parquet_dataset(
        self,
        data: Data,
        path: Path,
        strategy: AnyStrategy | MergeStrategy,
        key_columns: Columns,
        **options: Unpack[WriteParquetOptions],
    ) -> MergeResult | WriteResult:
        """Merge with any of the five strategies; `options` are those of `write_parquet_dataset`."""
        return self.write_parquet_dataset(data, path, strategy, key_columns, **options)


def _check_connection(connection: Any) -> None:
    if connection is not None and not (hasattr(connection, "cursor") and hasattr(connection, "sql")):
        raise ArgumentError(
            f"connection takes a DuckDB connection, not {type(connection).__name__}; open one with duckdb.connect(…)."
        )


def _private_database() -> Any:
    """An in-memory database that spills to the system's temporary directory, not to the working directory."""
    spill = os.path.join(_private_folder(), f"duckdb-{uuid.uuid4().hex}")
    return duckdb.connect(":memory:", config={"temp_directory": spill})


def _private_folder() -> str:
    """A folder that only this user can read: DuckDB makes its own for everybody. It stays, for all databases."""
    folder = os.path.join(tempfile.gettempdir(), f"fsspeckit-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    is_private = stat.S_ISDIR(status.st_mode) and status.st_mode & 0o077 == 0
    return folder if is_private and status.st_uid == os.getuid() else tempfile.mkdtemp(prefix="fsspeckit-")


@contextmanager
def _translate_errors(operation: str, path: Path, strategy: Any, key_columns: Any) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        where = ", ".join([f"strategy={strategy}", f"path={path}", *getattr(error, "__notes__", ())])
        logger.error("%s operation failed: %s: %s (%s)", operation, type(error).__name__, error, where)
        raise DatasetMergeError(
            f"{operation} operation failed: {error}",
            strategy=strategy,
            key_columns=key_columns,
            operation=operation.lower(),
        ) from error


def _source(data: Any, source_sql: str | None) -> Any:
    if (data is None) == (source_sql is None):
        raise ArgumentError("Give either data or source_sql, and not both.")
    return data if source_sql is None else Sql(source_sql)


def _path(path: Path) -> Path:
    if not path:
        raise ArgumentError("path is missing. Name the directory of Parquet files.")
    return path
