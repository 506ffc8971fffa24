"""The public functions: choose an engine by the type of the source, or by name, and call it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from fsspeckit.core import defaults
from fsspeckit.core.commit import forget, session
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import MergeStrategy
from fsspeckit.core.reports import MergePlan, MergeResult, WritePlan, WriteResult
from fsspeckit.core.storage import Access
from fsspeckit.datasets.inputs import Data, Path
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.options import (
    AnyMergeOptions,
    AnyPlanOptions,
    AnyWriteOptions,
    Columns,
    DeleteOptions,
    EngineName,
    Mode,
    Strategy,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyspark.sql

_ENGINES = {"pyarrow": "PyArrowDatasetIO", "duckdb": "DuckDBDatasetIO", "spark": "SparkDatasetIO"}
_NEEDS = {"duckdb": "'duckdb>=1.1.3'", "spark": "'pyspark[connect]>=4.0,<5' 'pandas>=2.2,<3'"}


def engine_for(source: Any) -> str:
    """`spark` for Spark DataFrames, `duckdb` for DuckDB relations, else `pyarrow`."""
    module = type(source).__module__.partition(".")[0]
    return {"pyspark": "spark", "duckdb": "duckdb", "_duckdb": "duckdb"}.get(module, "pyarrow")


def dataset_io(
    engine: str, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None, **options: Any
) -> DatasetIO[Any]:
    """Create the `DatasetIO` of an engine; `options` are the arguments of its class."""
    if engine not in _ENGINES:
        raise ArgumentError(f"Unknown engine {engine!r}. Choose one of {', '.join(map(repr, _ENGINES))}.")
    try:
        module = importlib.import_module(f"fsspeckit.datasets.{engine}")
    except ModuleNotFoundError as error:
        if engine not in _NEEDS:
            raise
        raise ArgumentError(
            f"The {engine} engine is not installed ({error}). Run: pip install {_NEEDS[engine]}"
        ) from error
    create: Callable[..., DatasetIO[Any]] = getattr(module, _ENGINES[engine])
    return create(filesystem=filesystem, storage_options=storage_options, **options)


def merge(
    data: Data | None,
    path: Path | None = None,
    strategy: Strategy | MergeStrategy = "upsert",
    key_columns: Columns = (),
    partition_columns: Columns | None = None,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[AnyMergeOptions],
) -> MergeResult:
    """Merge the rows of `data` into the Parquet data set at `path`, rewriting only files that contain matching keys.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [1, 2], "status": ["new", "new"]})
    >>> fsspeckit.merge(orders, "memory://door/orders", key_columns=["id"]).inserted
    2
    >>> changes = pa.table({"id": [2, 3], "status": ["paid", "new"]})
    >>> result = fsspeckit.merge(changes, "memory://door/orders", "upsert", ["id"], compression="zstd")
    >>> result.updated, result.inserted
    (1, 1)

    Args:
        data: a PyArrow table, reader or dataset, a pandas or Polars frame, a DuckDB relation, a Spark DataFrame, a list
            of dicts, an iterator of record batches, or paths of Parquet, Arrow, CSV or JSON lines files, which may be
            patterns such as `changes/*.csv` (docs/sources.md). Its rows replace whole rows.
        path: a directory of Parquet files, Hive-partitioned or not. `insert` and `upsert` create it if necessary.
        strategy: `insert` adds rows with new keys, `update` replaces rows with existing ones, `upsert` does both,
            `delete` removes the rows with the source's keys.
        key_columns: the columns that identify a row.
        partition_columns: for a new data set; otherwise detected from the paths. `partition_by` is an alias.
        delete_column: a source column that says which rows delete; it is not stored. A null is not a delete.
        delete_values: the values of that column that mean delete, e.g. `["D"]`. Without them it must be Boolean.
        sequence_by: columns that order the changes of a key. A row is replaced or deleted only by one that is not
            older, or skipped.
        on_duplicates: `refuse` source rows with the same key, or keep the `latest` by `sequence_by`.
        update_columns, exclude_columns: matched rows get only these columns, or all but these.
        delete_missing: delete target rows that the source does not have: `all`, or those in the `partitions` of the
            source's rows.
        on_move: `refuse` a key that exists in another partition, or `move` the row.
        on_schema_change: `refuse` columns that only the source has and numbers that do not fit, or `evolve`: add these
            columns, and widen the types of numbers (docs/schema-changes.md). The source may then lack columns: they are
            null in inserted rows, and matched rows keep their values.
        evolve_files: new columns go to `all` files, or only to `touched` ones, those with changed rows. Some readers
            then need `mergeSchema` or `union_by_name`.
        evolve_max_bytes: the most bytes of files without a changed row that are rewritten for that; 100 GB.
        small_files: with `upsert`, `append` joins new rows with the smallest file of their partition.
        must_exist: refuse a target that does not exist, instead of creating it.
        engine: `pyarrow`, `duckdb` or `spark`. By default Spark DataFrames use `spark`, DuckDB relations `duckdb`, and
            all other sources `pyarrow`.
        filesystem: an fsspec file system for the target.
        storage_options: how to reach `s3://` paths, of sources too: endpoint, region, access_key_id,
            secret_access_key and others (docs/object-stores.md). The AWS environment and profiles supply the rest.
        compression, max_rows_per_file, row_group_size: for new files. The default is the codec and the row-group size
            of the data set's own files. Rewritten files keep their own layout.
        replace: `in_place` keeps the names of rewritten files, `new_file` gives them new ones. The default is
            `in_place` on local disks, and `new_file` under Spark and in object stores.
        lock_timeout: seconds to wait for another writer.
        commit_log: a file on a disk that gets one JSON line per commit.
        partition_timezone: time zone of timestamps in partition folder names. The default is UTC, under Spark the
            session's zone.
        source_timezone: time zone of source timestamps that have none, if the target's timestamps have one. The
            default under Spark is the session's zone; other engines refuse such timestamps.
        batch: identifies `data` as a batch of a stream. A batch that was committed before is skipped.
        undoable: keep the files that are replaced or removed beside the data set, so that `undo` can put them back.
        on_progress: called with a `ProgressEvent` again and again: a function of yours, or `progress_bar()`
            (docs/progress.md).
        table: Spark only; a table of its catalog, instead of `path`.
        source_sql: DuckDB only; a query that returns the source, instead of `data`, which is `None`.
        use_merge: DuckDB only; whether to use its MERGE statement. By default it is used from DuckDB 1.4.0 on.

    Raises:
        MergeValidationError: the input was refused (null or duplicate keys, columns or types that do not fit, a key
            that would change its partition); it is a `ValueError`. Nothing was changed.
        DatasetMergeError: the target is locked, was changed by another program, or holds an unreadable file.
    """
    run: Callable[..., MergeResult] = dataset_io(engine or engine_for(data), filesystem, storage_options).merge
    return run(data, path, strategy, key_columns, partition_columns, **options)


def plan(
    data: Data | None,
    path: Path | None = None,
    strategy: Strategy | MergeStrategy = "upsert",
    key_columns: Columns = (),
    partition_columns: Columns | None = None,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[AnyPlanOptions],
) -> MergePlan:
    """Describe what `merge` would do, file by file and with exact counts, and change nothing.

    The arguments are those of `merge`. `compare=True` reads the matched rows too: the plan then says which of them, and
    which files, are equal to the source's already and would stay as they are.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [1, 2], "status": ["new", "new"]})
    >>> _ = fsspeckit.merge(orders, "memory://plan/orders", key_columns=["id"])
    >>> plan = fsspeckit.plan(orders.slice(1), "memory://plan/orders", key_columns=["id"])
    >>> plan.updated, [(file.action, file.matched_rows) for file in plan.files]
    (1, [('rewrite', 1)])
    >>> plan = fsspeckit.plan(orders.slice(1), "memory://plan/orders", key_columns=["id"], compare=True)
    >>> plan.updated, plan.changed, [(file.action, file.reason) for file in plan.files]
    (1, 0, [('scan', '1 matched row, equal already')])
    """
    run: Callable[..., MergePlan] = dataset_io(engine or engine_for(data), filesystem, storage_options).plan
    return run(data, path, strategy, key_columns, partition_columns, **options)


def delete(
    path: Path,
    keys: Any = None,
    key_columns: Columns = (),
    filters: Any = None,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[DeleteOptions],
) -> MergeResult:
    """Delete rows by their keys, or rows that a filter selects. The files that had them hold no byte of them.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [1, 2, 3, 4], "day": ["2024-12-30", "2024-12-31", "2025-01-01", "2025-01-02"]})
    >>> _ = fsspeckit.merge(orders, "memory://delete/orders", key_columns=["id"])
    >>> fsspeckit.delete("memory://delete/orders", keys=[3, 99], key_columns=["id"]).deleted
    1
    >>> fsspeckit.delete("memory://delete/orders", filters=[("day", "<", "2025-01-01")]).deleted
    2

    Args:
        path: a directory of Parquet files, which must exist.
        keys: a source with the key columns, as in `merge`; other columns are ignored. For one key column also a list of
            values, for several a list of tuples. A key that is not in the data set is no error.
        key_columns: the columns that identify a row.
        filters: conditions in PyArrow's form, instead of keys: tuples of column, operator (`=`, `!=`, `<`, `<=`, `>`,
            `>=`, `in`, `not in`) and value, all of which must hold. A list of lists selects the rows for which one of
            them holds. No condition holds for a null.
        engine, filesystem, storage_options, replace, lock_timeout, undoable, partition_timezone, source_timezone,
            on_progress: as in `merge`. `kept_copies` of the result are the folders of undoable commits that may still
            have deleted rows.
    """
    run: Callable[..., MergeResult] = dataset_io(engine or engine_for(keys), filesystem, storage_options).delete
    return run(path, keys, key_columns, filters, **options)


def plan_delete(
    path: Path,
    keys: Any = None,
    key_columns: Columns = (),
    filters: Any = None,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[DeleteOptions],
) -> MergePlan:
    """Describe what `delete` would do, file by file and with exact counts, and change nothing.

    >>> import fsspeckit, pyarrow as pa
    >>> _ = fsspeckit.merge(pa.table({"id": [1, 2]}), "memory://plan_delete/orders", key_columns=["id"])
    >>> plan = fsspeckit.plan_delete("memory://plan_delete/orders", filters=[("id", ">", 1)])
    >>> plan.deleted, plan.files[0].deleted_rows
    (1, 1)
    """
    run: Callable[..., MergePlan] = dataset_io(engine or engine_for(keys), filesystem, storage_options).plan_delete
    return run(path, keys, key_columns, filters, **options)


def write_dataset(
    data: Data | None,
    path: Path,
    mode: Mode = "append",
    partition_columns: Columns | None = None,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[AnyWriteOptions],
) -> WriteResult:
    """Write the rows of `data` as new files, beside the existing data files, or instead of all or some of them.

    Keys are not compared. All changes are one commit, as in `merge`.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [1, 2, 3], "day": ["2026-01-01", "2026-01-02", "2026-01-02"]})
    >>> fsspeckit.write_dataset(orders, "memory://write/orders", partition_columns=["day"]).rows
    3
    >>> corrected = pa.table({"id": [4], "day": ["2026-01-02"]})
    >>> result = fsspeckit.write_dataset(corrected, "memory://write/orders", "overwrite_partitions")
    >>> result.rows, result.removed_rows
    (1, 2)
    >>> fsspeckit.read("memory://write/orders", ["id"]).to_pylist()
    [{'id': 1}, {'id': 4}]

    Args:
        data, path, engine, filesystem, storage_options: as in `merge`. A new data set is created.
        mode: `append` adds files, `overwrite` replaces all data files, `overwrite_partitions` replaces those of the
            partitions that `data` has rows of, and leaves other files unchanged.
        partition_columns: for a new data set; otherwise detected from the paths. `partition_by` is an alias.
        partitions: with `overwrite_partitions`, the partitions to replace, e.g. `[{"day": "2026-01-01"}]`. Rows of
            other partitions are refused, and a named partition without rows becomes empty. A dictionary with some of
            the partition columns names all partitions with these values. `None` names the null partition.
        max_removed_rows: refuse a write that would remove more rows than this (`RemovedRowsError`).
        on_schema_change, evolve_files, evolve_max_bytes: as in `merge`; not with `overwrite`.
        compression, max_rows_per_file, row_group_size, lock_timeout, partition_timezone, source_timezone, undoable,
            on_progress: as in `merge`.
        source_sql: DuckDB only; a query that returns the source, instead of `data`, which is `None`.
    """
    run: Callable[..., WriteResult] = dataset_io(engine or engine_for(data), filesystem, storage_options).write_dataset
    return run(data, path, mode, partition_columns, **options)


def plan_write(
    data: Data | None,
    path: Path,
    mode: Mode = "append",
    partition_columns: Columns | None = None,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[AnyWriteOptions],
) -> WritePlan:
    """Describe what `write_dataset` would do, with exact counts, and change nothing. The arguments are the same.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [1, 2, 3], "day": ["2026-01-01", "2026-01-02", "2026-01-02"]})
    >>> _ = fsspeckit.write_dataset(orders, "memory://plan_write/orders", partition_columns=["day"])
    >>> plan = fsspeckit.plan_write(orders.slice(0, 1), "memory://plan_write/orders", "overwrite_partitions")
    >>> plan.rows, plan.removed_rows, dict(plan.new_rows)
    (1, 1, {'day=2026-01-01': 1})
    """
    run: Callable[..., WritePlan] = dataset_io(engine or engine_for(data), filesystem, storage_options).plan_write
    return run(data, path, mode, partition_columns, **options)


@overload
def read(
    path: Path,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    *,
    engine: Literal["pyarrow", "duckdb"] = "pyarrow",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table: ...


@overload
def read(
    path: Path,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    *,
    engine: Literal["spark"],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pyspark.sql.DataFrame: ...


@overload
def read(
    path: Path,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    *,
    engine: EngineName,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table | pyspark.sql.DataFrame: ...


def read(
    path: Path,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    *,
    engine: EngineName = "pyarrow",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.Table | pyspark.sql.DataFrame:
    """Read a data set as a PyArrow table, or with `engine="spark"` as a Spark DataFrame.

    `filter` is a PyArrow expression; for Spark a column expression or SQL text. An unfinished commit causes a warning.
    A table has rows of one version of the data set (see `snapshot`). A Spark DataFrame is read later, without that.

    >>> import fsspeckit, pyarrow as pa, pyarrow.compute as pc
    >>> orders = pa.table({"id": [1, 2], "status": ["new", "paid"]})
    >>> _ = fsspeckit.merge(orders, "memory://read/orders", key_columns=["id"])
    >>> fsspeckit.read("memory://read/orders", ["id"], pc.field("status") == "paid").to_pylist()
    [{'id': 2}]
    """
    frame: pa.Table | pyspark.sql.DataFrame = dataset_io(engine, filesystem, storage_options).read(
        path, columns, filter
    )
    return frame


def recover(
    path: Path,
    filesystem: Any = None,
    lock_timeout: float = defaults.LOCK_TIMEOUT,
    *,
    storage_options: Mapping[str, Any] | None = None,
    finish: bool = False,
    discard: bool = False,
    forget_stream: str | None = None,
) -> list[str]:
    """Finish an interrupted commit in the data set at `path`, and remove the temporary files of killed writers.

    Returns one line for each step that was taken. A recorded commit is finished if every file is as the commit expects.
    Otherwise nothing is changed and `CommitUnfinishedError` reports the differences: `finish` then applies the commit
    anyway, and `discard` gives it up. `forget_stream` names a stream whose record is dropped, if the stream has been
    idle for seven days.

    >>> import fsspeckit, pyarrow as pa
    >>> _ = fsspeckit.merge(pa.table({"id": [1]}), "memory://recover/orders", key_columns=["id"])
    >>> fsspeckit.recover("memory://recover/orders")
    []
    """
    if finish and discard:
        raise ArgumentError("A commit can be finished or discarded, not both.")
    location = Access(filesystem, storage_options).locate(path)
    done = session.recover(location, lock_timeout, "finish" if finish else "discard" if discard else None)
    return done if forget_stream is None else [*done, forget.forget_stream(location, forget_stream, lock_timeout)]
