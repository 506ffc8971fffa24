"""`DatasetIO`: merge, plan, write and read, once, over an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

from fsspeckit.core import merge as core
from fsspeckit.core.engine import Engine
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import MergePlan, MergeResult, MergeStrategy, Replace, WriteOptions, WriteResult
from fsspeckit.core.plan import validate
from fsspeckit.core.storage import Location, locate
from fsspeckit.core.target.ledger import Batch
from fsspeckit.core.target.partitions import timezone

Frame = TypeVar("Frame")


class DatasetIO(Generic[Frame]):
    """Merge rows into directories of Parquet files. Each engine's class is this one over its primitives."""

    def __init__(self, engine: Engine, filesystem: Any = None) -> None:
        self._engine = engine
        self._filesystem = filesystem

    def _locate(self, path: str) -> Location:
        return locate(path, self._filesystem)

    def merge(
        self,
        data: Any,
        path: str,
        strategy: Literal["insert", "update", "upsert"] | MergeStrategy,
        key_columns: Sequence[str] | str,
        partition_columns: Sequence[str] | str | None = None,
        *,
        partition_by: Sequence[str] | str | None = None,
        compression: str = "snappy",
        max_rows_per_file: int = 5_000_000,
        row_group_size: int = 500_000,
        replace: Replace | None = None,
        lock_timeout: float = 60,
        partition_timezone: str | None = None,
        batch: Batch | None = None,
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
        options = WriteOptions(compression, max_rows_per_file, row_group_size)
        request = self.request(
            strategy,
            key_columns,
            partition_columns,
            partition_by,
            options,
            replace,
            lock_timeout,
            partition_timezone=_zone(partition_timezone),
            batch=batch,
        )
        validate.incremental(request.strategy)
        return core.run(self._engine, self._locate(path), data, request)

    def plan(
        self,
        data: Any,
        path: str,
        strategy: Literal["insert", "update", "upsert"] | MergeStrategy,
        key_columns: Sequence[str] | str,
        partition_columns: Sequence[str] | str | None = None,
        *,
        partition_by: Sequence[str] | str | None = None,
        partition_timezone: str | None = None,
    ) -> MergePlan:
        """What `merge` would do: exact counts, and for every file what would happen to it and why. Changes nothing."""
        zone = _zone(partition_timezone)
        request = self.request(
            strategy, key_columns, partition_columns, partition_by, WriteOptions(), partition_timezone=zone
        )
        validate.incremental(request.strategy)
        return core.plan(self._engine, self._locate(path), data, request)

    def write_dataset(
        self,
        data: Any,
        path: str,
        mode: Literal["append", "overwrite"] = "append",
        partition_columns: Sequence[str] | str | None = None,
        *,
        partition_by: Sequence[str] | str | None = None,
        compression: str = "snappy",
        max_rows_per_file: int = 5_000_000,
        row_group_size: int = 500_000,
        lock_timeout: float = 60,
        partition_timezone: str | None = None,
    ) -> WriteResult:
        """Write `data` as new files: beside the existing ones, or in their place. Other files are kept."""
        options = WriteOptions(compression, max_rows_per_file, row_group_size)
        _check_timeout(lock_timeout)
        columns, zone = _partition_argument(partition_columns, partition_by), _zone(partition_timezone)
        return core.write(self._engine, self._locate(path), data, mode, columns, options, lock_timeout, zone)

    def write_parquet_dataset(
        self,
        data: Any,
        path: str,
        strategy: str | MergeStrategy | None = None,
        key_columns: Sequence[str] | str | None = None,
        *,
        mode: Literal["append", "overwrite"] = "append",
        rewrite_mode: Literal["full", "incremental"] = "full",
        partition_columns: Sequence[str] | str | None = None,
        partition_by: Sequence[str] | str | None = None,
        dedup_order_by: Sequence[str] | str | None = None,
        compression: str = "snappy",
        max_rows_per_file: int = 5_000_000,
        row_group_size: int = 500_000,
        replace: Replace | None = None,
        lock_timeout: float = 60,
        partition_timezone: str | None = None,
    ) -> MergeResult | WriteResult:
        """Write with any strategy, or plainly without one.

        `rewrite_mode="full"` replaces all data files by fresh ones in one commit; `"incremental"` is `merge`.
        `full_merge` makes the target exactly the source. `deduplicate` reduces the source to one row per key, the
        greatest by `dedup_order_by`, and upserts it.
        """
        if rewrite_mode not in ("full", "incremental"):
            raise ArgumentError(f"Unknown rewrite_mode {rewrite_mode!r}. Choose 'full' or 'incremental'.")
        options = WriteOptions(compression, max_rows_per_file, row_group_size)
        _check_used(strategy, key_columns, mode, rewrite_mode, dedup_order_by, replace)
        if strategy is None:
            _check_timeout(lock_timeout)
            columns, zone = _partition_argument(partition_columns, partition_by), _zone(partition_timezone)
            return core.write(self._engine, self._locate(path), data, mode, columns, options, lock_timeout, zone)
        wanted = MergeStrategy.parse(strategy)
        if rewrite_mode == "incremental":
            validate.incremental(wanted)
        request = self.request(
            wanted,
            key_columns,
            partition_columns,
            partition_by,
            options,
            replace,
            lock_timeout,
            rewrite_mode=rewrite_mode,
            dedup_order_by=validate.column_names("dedup_order_by", dedup_order_by) or (),
            partition_timezone=_zone(partition_timezone),
        )
        return core.run(self._engine, self._locate(path), data, request)

    def read(self, path: str, columns: Sequence[str] | None = None, filter: Any = None) -> Frame:
        """Read the data set; unfinished commits are warned of."""
        raise NotImplementedError

    def request(
        self,
        strategy: str | MergeStrategy,
        key_columns: Any,
        partition_columns: Any,
        partition_by: Any,
        options: WriteOptions,
        replace: Replace | None = None,
        lock_timeout: float = 60,
        **more: Any,
    ) -> core.Request:
        """Arguments as the core takes them, checked."""
        if replace not in (None, "in_place", "new_file"):
            raise ArgumentError(f"Unknown replace {replace!r}. Choose 'in_place' or 'new_file'.")
        _check_timeout(lock_timeout)
        return core.Request(
            strategy=MergeStrategy.parse(strategy),
            key_columns=validate.key_names(key_columns),
            partition_columns=_partition_argument(partition_columns, partition_by),
            options=options,
            replace=replace,
            lock_timeout=lock_timeout,
            **more,
        )


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
    for what, given in idle.items():
        if given:
            raise ArgumentError(f"{what} does nothing. Leave it out, or name the strategy that you mean.")


def _check_timeout(seconds: Any) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ArgumentError(f"lock_timeout is a number of seconds, 0 or more, not {seconds!r}.")


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
