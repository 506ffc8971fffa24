"""`DatasetIO`: merge, plan, write and read, once, over an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar, Unpack

import pyarrow as pa

from fsspeckit.core import defaults
from fsspeckit.core import merge as core
from fsspeckit.core.engine import Engine
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import MergePlan, MergeResult, MergeStrategy, WriteOptions, WriteResult
from fsspeckit.core.plan import validate
from fsspeckit.core.storage import Access, Location
from fsspeckit.core.target.partitions import timezone
from fsspeckit.datasets.options import (
    AnyStrategy,
    Columns,
    MergeOptions,
    Mode,
    PlanOptions,
    Strategy,
    WriteDatasetOptions,
    WriteParquetOptions,
    check_known,
)

Frame = TypeVar("Frame")


class DatasetIO(Generic[Frame]):
    """Merge rows into directories of Parquet files. Each engine's class is this one over its primitives."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()

    def _locate(self, path: str) -> Location:
        return self._access.locate(path)

    @contextmanager
    def _running(self, verb: Literal["merge", "plan", "write", "read"], location: Location) -> Iterator[Engine]:
        """The engine for one operation; what an engine does before and after each stands here."""
        yield self._engine

    def merge(
        self,
        data: Any,
        path: str,
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        **options: Unpack[MergeOptions],
    ) -> MergeResult:
        """Merge `data` into the data set at `path`, rewriting only the files that its keys touch.

        Args:
            data: the source; see the engine's class for what it takes. Its rows replace whole rows.
            path: a directory of Parquet files, Hive-partitioned or not. `insert` and `upsert` create it.
            strategy: `insert` adds rows with new keys, `update` replaces rows with existing ones, `upsert` does both.
            key_columns: the columns that identify a row.
            partition_columns: needed only for a new data set; else found in the paths. `partition_by` is the same.
            compression, max_rows_per_file, row_group_size: of new files. Rewritten files keep their own layout.
            replace: `in_place` keeps the names of rewritten files, `new_file` gives them new ones. The default is
                `in_place` on local disks, except under Spark.
            lock_timeout: seconds to wait for another writer.
            partition_timezone: the zone of instants in the names of partition folders; UTC, under Spark the session's.
            batch: the batch of a stream that `data` is; one that was committed before is skipped.

        Raises:
            ValueError: the input was refused (null or duplicate keys, columns or types that do not fit, a key that
                would change its partition). Nothing was changed.
            DatasetMergeError: the target is locked, was changed by another program, or holds an unreadable file.
        """
        check_known("merge", options, MergeOptions)
        request = self.request(strategy, key_columns, partition_columns, options)
        validate.incremental(request.strategy)
        location = self._locate(path)
        with self._running("merge", location) as engine:
            return core.run(engine, location, data, request)

    def plan(
        self,
        data: Any,
        path: str,
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        **options: Unpack[PlanOptions],
    ) -> MergePlan:
        """What `merge` would do: exact counts, and for every file what would happen to it and why. Changes nothing."""
        check_known("plan", options, PlanOptions)
        request = self.request(strategy, key_columns, partition_columns, options)
        validate.incremental(request.strategy)
        location = self._locate(path)
        with self._running("plan", location) as engine:
            return core.plan(engine, location, data, request)

    def write_dataset(
        self,
        data: Any,
        path: str,
        mode: Mode = "append",
        partition_columns: Columns | None = None,
        **options: Unpack[WriteDatasetOptions],
    ) -> WriteResult:
        """Write `data` as new files: beside the existing ones, or in their place. Other files are kept.

        The options are those of `merge`.
        """
        check_known("write_dataset", options, WriteDatasetOptions)
        return self._write(data, path, mode, partition_columns, options)

    def _write(
        self, data: Any, path: str, mode: Mode, partition_columns: Columns | None, options: Mapping[str, Any]
    ) -> WriteResult:
        columns = _partition_argument(partition_columns, options.get("partition_by"))
        layout, zone, timeout = _layout(options), _zone(options.get("partition_timezone")), _timeout(options)
        location = self._locate(path)
        with self._running("write", location) as engine:
            return core.write(engine, location, data, mode, columns, layout, timeout, zone)

    def write_parquet_dataset(
        self,
        data: Any,
        path: str,
        strategy: AnyStrategy | MergeStrategy | None = None,
        key_columns: Columns | None = None,
        **options: Unpack[WriteParquetOptions],
    ) -> MergeResult | WriteResult:
        """Write with any strategy, or plainly without one.

        `rewrite_mode="full"` replaces all data files by fresh ones in one commit; `"incremental"` is `merge`.
        `full_merge` makes the target exactly the source. `deduplicate` reduces the source to one row per key, the
        greatest by `dedup_order_by`, and upserts it. The other options are those of `merge`.
        """
        check_known("write_parquet_dataset", options, WriteParquetOptions)
        mode, rewrite_mode = options.get("mode", "append"), options.get("rewrite_mode", "full")
        order, partition_columns = options.get("dedup_order_by"), options.get("partition_columns")
        if rewrite_mode not in ("full", "incremental"):
            raise ArgumentError(f"Unknown rewrite_mode {rewrite_mode!r}. Choose 'full' or 'incremental'.")
        _check_used(strategy, key_columns, mode, rewrite_mode, order, options.get("replace"))
        if strategy is None:
            return self._write(data, path, mode, partition_columns, options)
        request = self.request(
            strategy,
            key_columns,
            partition_columns,
            options,
            rewrite_mode=rewrite_mode,
            dedup_order_by=validate.column_names("dedup_order_by", order) or (),
        )
        if rewrite_mode == "incremental":
            validate.incremental(request.strategy)
        location = self._locate(path)
        with self._running("write", location) as engine:
            return core.run(engine, location, data, request)

    def read(self, path: str, columns: Sequence[str] | None = None, filter: Any = None) -> Frame:
        """Read the data set; unfinished commits are warned of."""
        raise NotImplementedError

    def request(
        self,
        strategy: str,
        key_columns: Columns | None,
        partition_columns: Columns | None,
        options: Mapping[str, Any],
        **more: Any,
    ) -> core.Request:
        """Arguments as the core takes them, checked; what `options` leaves out has the core's defaults."""
        replace = options.get("replace")
        if replace not in (None, "in_place", "new_file"):
            raise ArgumentError(f"Unknown replace {replace!r}. Choose 'in_place' or 'new_file'.")
        return core.Request(
            strategy=MergeStrategy.parse(strategy),
            key_columns=validate.key_names(key_columns),
            partition_columns=_partition_argument(partition_columns, options.get("partition_by")),
            options=_layout(options),
            replace=replace,
            lock_timeout=_timeout(options),
            batch=options.get("batch"),
            partition_timezone=_zone(options.get("partition_timezone")),
            **more,
        )


class TableIO(DatasetIO[pa.Table]):
    """A `DatasetIO` whose engine reads Arrow tables."""

    def read(self, path: str, columns: Sequence[str] | None = None, filter: Any = None) -> pa.Table:
        """Read the data set as a table; `filter` is a PyArrow expression."""
        from fsspeckit.datasets.scan import read_dataset

        return read_dataset(self._locate(path), None if columns is None else list(columns), filter)


def _layout(options: Mapping[str, Any]) -> WriteOptions:
    names = ("compression", "max_rows_per_file", "row_group_size")
    return WriteOptions(**{name: options[name] for name in names if name in options})


def _timeout(options: Mapping[str, Any]) -> float:
    seconds: Any = options.get("lock_timeout", defaults.LOCK_TIMEOUT)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ArgumentError(f"lock_timeout is a number of seconds, 0 or more, not {seconds!r}.")
    return seconds


def _check_used(
    strategy: Any, key_columns: Any, mode: str, rewrite_mode: str, dedup_order_by: Any, replace: Any
) -> None:
    """Refuse arguments that would do nothing: whoever gives one expects something of it."""
    plain = strategy is None
    idle = {
        "key_columns without a strategy": plain and key_columns is not None,
        "rewrite_mode='incremental' without a strategy": plain and rewrite_mode == "incremental",
        f"mode={mode!r} with a strategy": not plain and mode != "append",
        "dedup_order_by without strategy='deduplicate'": dedup_order_by is not None and strategy != "deduplicate",
        "replace without rewrite_mode='incremental'": replace is not None and rewrite_mode == "full",
    }
    for what, does_nothing in idle.items():
        if does_nothing:
            raise ArgumentError(f"{what} does nothing. Leave it out, or name the strategy that you mean.")


def _zone(name: Any) -> str | None:
    return None if name is None else timezone(name)


def _partition_argument(partition_columns: Any, partition_by: Any) -> tuple[str, ...] | None:
    first = validate.column_names("partition_columns", partition_columns)
    second = validate.column_names("partition_by", partition_by)
    if first is not None and second is not None and first != second:
        raise ArgumentError(
            f"partition_columns={list(first)} and partition_by={list(second)} differ; give one of them."
        )
    return first if first is not None else second
