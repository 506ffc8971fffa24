"""`DatasetIO`: merge, plan, write and read with an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar, Unpack

import pyarrow as pa

from fsspeckit.core import compact as compaction
from fsspeckit.core import defaults, validate
from fsspeckit.core import merge as core
from fsspeckit.core.commit import undo as undoing
from fsspeckit.core.engine import Engine
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.match.filters import filter_names
from fsspeckit.core.model import MergeStrategy
from fsspeckit.core.progress import OnProgress
from fsspeckit.core.reports import (
    CompactPlan,
    CompactResult,
    MergePlan,
    MergeResult,
    UndoResult,
    WritePlan,
    WriteResult,
)
from fsspeckit.core.storage import Access, Location
from fsspeckit.datasets.arguments import (
    check_used,
    common_arguments,
    compact_request,
    file_name,
    flag,
    schema_changes,
    small_files,
    write_request,
)
from fsspeckit.datasets.inputs import Data, Path, prepared
from fsspeckit.datasets.options import (
    AnyStrategy,
    Columns,
    CompactOptions,
    DeleteOptions,
    MergeOptions,
    Mode,
    PlanOptions,
    Strategy,
    WriteDatasetOptions,
    WriteParquetOptions,
    check_known,
)
from fsspeckit.datasets.row_options import row_arguments
from fsspeckit.datasets.sources import keys_source

Frame = TypeVar("Frame")


class DatasetIO(Generic[Frame]):
    """Merge rows into directories of Parquet files. Each engine has a subclass."""

    def __init__(self, engine: Engine, access: Access | None = None) -> None:
        self._engine = engine
        self._access = access or Access()

    def _locate(self, path: Path) -> Location:
        return self._access.locate(path)

    @contextmanager
    def _running(self, verb: Literal["merge", "plan", "write", "read"], location: Location) -> Iterator[Engine]:
        """The engine for one operation. Subclasses add what happens before and after it."""
        yield self._engine

    def merge(
        self,
        data: Data,
        path: Path,
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        **options: Unpack[MergeOptions],
    ) -> MergeResult:
        """Merge `data` into the data set at `path`, rewriting only files that contain matching keys.

        Args:
            data: the source; the engine's class lists what it accepts. Its rows replace whole rows.
            path: a directory of Parquet files, Hive-partitioned or not. `insert` and `upsert` create it if necessary.
            strategy: `insert` adds rows with new keys, `update` replaces rows with existing ones, `upsert` does both,
                `delete` removes the rows with the source's keys.
            key_columns: the columns that identify a row.
            partition_columns: for a new data set; otherwise detected from the paths. `partition_by` is an alias.
            delete_column, delete_values: the source column, and its values, that mark rows to delete.
            sequence_by: columns that order the changes of a key. An older row changes nothing.
            on_duplicates: `refuse` source rows with the same key, or keep the `latest` by `sequence_by`.
            update_columns, exclude_columns: matched rows get only these columns, or all but these.
            delete_missing: delete target rows that the source does not have: `all`, or those in its `partitions`.
            on_move: `refuse` a key that exists in another partition, or `move` the row.
            must_exist: refuse a target that does not exist, instead of creating it.
            on_schema_change: `refuse` columns that only the source has and numbers that do not fit, or `evolve`: add
                these columns, and widen the types of numbers. The source may then lack columns.
            evolve_files: new columns go to `all` files, or only to `touched` ones, those with changed rows.
            evolve_max_bytes: the most bytes of files without a changed row that are rewritten for that.
            compression, max_rows_per_file, row_group_size: for new files. The default is the codec and the row-group
                size of the data set's own files. Rewritten files keep their own layout.
            replace: `in_place` keeps the names of rewritten files, `new_file` gives them new ones. The default is
                `in_place` on local disks, and `new_file` under Spark and in object stores.
            small_files: with `upsert`, `append` joins new rows with the smallest file of their partition, if that is
                below 32 MiB; `new` (default) writes new files.
            lock_timeout: seconds to wait for another writer.
            commit_log: a file on a disk that gets one JSON line per commit.
            partition_timezone: time zone of timestamps in partition folder names. The default is UTC, under Spark the
                session's zone.
            source_timezone: time zone of source timestamps that have none, if the target's timestamps have one. The
                default under Spark is the session's zone; other engines refuse such timestamps.
            batch: identifies `data` as a batch of a stream. A batch that was committed before is skipped.
            undoable: keep the files that are replaced or removed, so that `fsspeckit.undo` can put them back.
            on_progress: called with a `ProgressEvent` again and again.

        Raises:
            ValueError: the input was refused (null or duplicate keys, columns or types that do not fit, a key that
                would change its partition). Nothing was changed.
            DatasetMergeError: the target is locked, was changed by another program, or holds an unreadable file.
        """
        check_known("merge", options, MergeOptions)
        return self._merge(data, path, self.request(strategy, key_columns, partition_columns, options))

    def _merge(self, data: Any, path: Path, request: core.Request) -> MergeResult:
        location = self._locate(path)
        with self._running("merge", location) as engine:
            return core.run(engine, location, prepared(data, self._access), request)

    def plan(
        self,
        data: Data,
        path: Path,
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        **options: Unpack[PlanOptions],
    ) -> MergePlan:
        """Describe what `merge` would do: exact counts, and the action for each file; `compare` reads rows too."""
        check_known("plan", options, PlanOptions)
        return self._plan(data, path, self.request(strategy, key_columns, partition_columns, options))

    def _plan(self, data: Any, path: Path, request: core.Request) -> MergePlan:
        location = self._locate(path)
        with self._running("plan", location) as engine:
            return core.plan(engine, location, prepared(data, self._access), request)

    def delete(
        self,
        path: Path,
        keys: Any = None,
        key_columns: Columns = (),
        filters: Any = None,
        **options: Unpack[DeleteOptions],
    ) -> MergeResult:
        """Delete rows by their keys, or rows that a filter selects. The files that had them hold no byte of them.

        Args:
            path: a directory of Parquet files, which must exist.
            keys: a source with the key columns, as in `merge`; other columns are ignored. For one key column also a
                list of values, for several a list of tuples.
            key_columns: the columns that identify a row.
            filters: conditions in PyArrow's form, instead of keys: `[("day", "<", "2025-01-01")]`. A list of lists
                selects the rows for which one of them holds. No condition holds for a null.
            replace, lock_timeout, undoable, partition_timezone, source_timezone: as in `merge`.
        """
        check_known("delete", options, DeleteOptions)
        source, request = self._delete_request(keys, key_columns, filters, options)
        return self._merge(source, path, request)

    def plan_delete(
        self,
        path: Path,
        keys: Any = None,
        key_columns: Columns = (),
        filters: Any = None,
        **options: Unpack[DeleteOptions],
    ) -> MergePlan:
        """Describe what `delete` would do, and change nothing."""
        check_known("plan_delete", options, DeleteOptions)
        source, request = self._delete_request(keys, key_columns, filters, options)
        return self._plan(source, path, request)

    def _delete_request(
        self, keys: Any, key_columns: Columns, filters: Any, options: Mapping[str, Any]
    ) -> tuple[Any, core.Request]:
        if (keys is None) == (filters is None):
            raise ArgumentError("Delete rows either by keys or by filters: pass one of the two.")
        if filters is None:
            request = self.request("delete", key_columns, None, options)
            return keys_source(keys, request.key_columns), replace(request, must_exist=True)
        if key_columns:
            raise ArgumentError("key_columns has no effect with filters. Leave it out.")
        filter_names(filters)  # refuse filters of another form before anything is read
        request = self.request("delete", ("*",), None, options)
        request = replace(request, key_columns=(), filters=filters, must_exist=True)
        return pa.table({"none": pa.nulls(0)}), request

    def compact(self, path: Path, **options: Unpack[CompactOptions]) -> CompactResult:
        """Join small files, cut large ones and encode small row groups again, as `fsspeckit.compact` does."""
        check_known("compact", options, CompactOptions)
        request, location = compact_request(options), self._locate(path)
        with self._running("merge", location) as engine:
            return compaction.compact(engine, location, request)

    def undo(
        self, path: Path, lock_timeout: float = defaults.LOCK_TIMEOUT, on_progress: OnProgress | None = None
    ) -> UndoResult:
        """Put back what the last commit with `undoable=True` replaced or removed, as `fsspeckit.undo` does."""
        location = self._locate(path)
        with self._running("merge", location):
            return undoing.undo(location, lock_timeout, on_progress)

    def plan_compact(self, path: Path, **options: Unpack[CompactOptions]) -> CompactPlan:
        """Describe what `compact` would do, and change nothing."""
        check_known("plan_compact", options, CompactOptions)
        request, location = compact_request(options), self._locate(path)
        with self._running("plan", location) as engine:
            return compaction.plan(engine, location, request)

    def write_dataset(
        self,
        data: Data,
        path: Path,
        mode: Mode = "append",
        partition_columns: Columns | None = None,
        **options: Unpack[WriteDatasetOptions],
    ) -> WriteResult:
        """Write `data` as new files, in addition to the existing data files or instead of them. Other files are kept.

        Args:
            data, path, partition_columns: as in `merge`.
            mode: `append` adds files, `overwrite` replaces all data files, `overwrite_partitions` replaces those of the
                partitions that `data` has rows of.
            partitions: with `overwrite_partitions`, the partitions to replace: `[{"day": "2026-01-01"}]`. Rows of other
                partitions are refused, and named partitions without rows become empty. Some of the partition columns
                name all partitions with these values; `None` is the null partition.
            max_removed_rows: refuse a write that would remove more rows than this.
            on_schema_change, evolve_files, evolve_max_bytes: as in `merge`; not with `overwrite`.

        The other options are those of `merge`.
        """
        check_known("write_dataset", options, WriteDatasetOptions)
        return self._write(data, path, mode, partition_columns, options)

    def plan_write(
        self,
        data: Data,
        path: Path,
        mode: Mode = "append",
        partition_columns: Columns | None = None,
        **options: Unpack[WriteDatasetOptions],
    ) -> WritePlan:
        """Describe what `write_dataset` would do, and change nothing."""
        check_known("plan_write", options, WriteDatasetOptions)
        return self._plan_write(data, path, mode, partition_columns, options)

    def _write(
        self, data: Any, path: Path, mode: Mode, partition_columns: Columns | None, options: Mapping[str, Any]
    ) -> WriteResult:
        request, location = write_request(mode, partition_columns, options), self._locate(path)
        with self._running("write", location) as engine:
            return core.write(engine, location, prepared(data, self._access), request)

    def _plan_write(
        self, data: Any, path: Path, mode: Mode, partition_columns: Columns | None, options: Mapping[str, Any]
    ) -> WritePlan:
        request, location = write_request(mode, partition_columns, options), self._locate(path)
        with self._running("plan", location) as engine:
            return core.plan_write(engine, location, prepared(data, self._access), request)

    def write_parquet_dataset(
        self,
        data: Data,
        path: Path,
        strategy: AnyStrategy | MergeStrategy | None = None,
        key_columns: Columns | None = None,
        **options: Unpack[WriteParquetOptions],
    ) -> MergeResult | WriteResult:
        """Write with any strategy; without one, append or overwrite (`mode`).

        `rewrite_mode="full"` replaces all data files with new ones in one commit; `"incremental"` does what `merge`
        does. `full_merge` makes the target equal to the source. `deduplicate` reduces the source to one row per key,
        the greatest by `dedup_order_by`, and upserts it. The other options are those of `merge`.
        """
        check_known("write_parquet_dataset", options, WriteParquetOptions)
        return self._write_parquet(data, path, strategy, key_columns, options)

    def _write_parquet(
        self, data: Any, path: Path, strategy: str | None, key_columns: Columns | None, options: Mapping[str, Any]
    ) -> MergeResult | WriteResult:
        request = self._strategy_request(strategy, key_columns, options)
        if request is None:
            return self._write(data, path, options.get("mode", "append"), options.get("partition_columns"), options)
        location = self._locate(path)
        with self._running("write", location) as engine:
            return core.run(engine, location, prepared(data, self._access), request)

    def plan_parquet_dataset(
        self,
        data: Data,
        path: Path,
        strategy: AnyStrategy | MergeStrategy | None = None,
        key_columns: Columns | None = None,
        **options: Unpack[WriteParquetOptions],
    ) -> MergePlan | WritePlan:
        """Describe what `write_parquet_dataset` would do, and change nothing."""
        check_known("plan_parquet_dataset", options, WriteParquetOptions)
        request, mode = self._strategy_request(strategy, key_columns, options), options.get("mode", "append")
        if request is None:
            return self._plan_write(data, path, mode, options.get("partition_columns"), options)
        return self._plan(data, path, request)

    def _strategy_request(self, strategy: Any, key_columns: Any, options: Mapping[str, Any]) -> core.Request | None:
        """The arguments of `write_parquet_dataset` with a strategy; `None` if it is a plain write."""
        rewrite_mode, order = options.get("rewrite_mode", "full"), options.get("dedup_order_by")
        if rewrite_mode not in ("full", "incremental"):
            raise ArgumentError(f"Unknown rewrite_mode {rewrite_mode!r}. Choose 'full' or 'incremental'.")
        check_used(strategy, key_columns, rewrite_mode, options)
        if strategy is None:
            return None
        if strategy == MergeStrategy.DELETE:
            raise ArgumentError("write_parquet_dataset does not delete rows. Use delete, or merge(strategy='delete').")
        return self.request(
            strategy,
            key_columns,
            options.get("partition_columns"),
            options,
            rewrite_mode=rewrite_mode,
            dedup_order_by=validate.column_names("dedup_order_by", order) or (),
        )

    def read(self, path: Path, columns: Sequence[str] | None = None, filter: Any = None) -> Frame:
        """Read the data set. An unfinished commit causes a warning."""
        raise NotImplementedError

    def request(
        self,
        strategy: str,
        key_columns: Columns | None,
        partition_columns: Columns | None,
        options: Mapping[str, Any],
        rewrite_mode: Literal["full", "incremental"] = "incremental",
        dedup_order_by: tuple[str, ...] = (),
        *,
        only_columns: bool = False,
    ) -> core.Request:
        """Check the arguments and return them as a `Request` with defaults for missing options.

        `only_columns`: schema changes may add columns, but not change their types.
        The strategy is checked first, so that a strategy that cannot be incremental is refused even without keys.
        """
        parsed, how = MergeStrategy.parse(strategy, rewrite_mode == "incremental"), options.get("replace")
        no_effect = f"strategy={parsed.value!r}" if parsed.actions.matched == "delete" else None
        if rewrite_mode == "incremental":
            validate.incremental(parsed)
        if how not in (None, "in_place", "new_file"):
            raise ArgumentError(f"Unknown replace {how!r}. Choose 'in_place' or 'new_file'.")
        return core.Request(
            strategy=parsed,
            key_columns=validate.key_names(key_columns),
            rewrite_mode=rewrite_mode,
            dedup_order_by=dedup_order_by,
            replace=how,
            compare=flag("compare", options),
            batch=options.get("batch"),
            must_exist=bool(options.get("must_exist")),
            commit_log=file_name("commit_log", options.get("commit_log")),
            schema=schema_changes(options, no_effect, only_columns=only_columns),
            small_files=small_files(parsed, options.get("small_files", "new")),
            **common_arguments(partition_columns, options),
            **row_arguments(parsed, options),
        )


class TableIO(DatasetIO[pa.Table]):
    """A `DatasetIO` whose engine reads Arrow tables."""

    def read(self, path: Path, columns: Sequence[str] | None = None, filter: Any = None) -> pa.Table:
        """Read the data set as a table; `filter` is a PyArrow expression."""
        from fsspeckit.datasets.scan import read_dataset

        return read_dataset(self._locate(path), None if columns is None else list(columns), filter)
