"""`SparkDatasetIO`: merge, plan, write, read and streams with Spark."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from fsspeckit.core import merge as core
from fsspeckit.core import validate
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.dataset.partitions import parse_hive_partition_path
from fsspeckit.core.errors import ArgumentError, DatasetMergeError, TargetError
from fsspeckit.core.model import FileInfo, MergeStrategy
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.reports import MergePlan, MergeResult, WriteResult
from fsspeckit.core.storage import Access, Location
from fsspeckit.datasets import row_options
from fsspeckit.datasets.arguments import batch_interval
from fsspeckit.datasets.inputs import Data, Path
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.options import (
    AnyStrategy,
    Columns,
    MergeOptions,
    PlanOptions,
    RewriteOptions,
    RowChangeOptions,
    SmallFilesOptions,
    Strategy,
    WriteParquetOptions,
    check_known,
)
from fsspeckit.datasets.sources import existing_files
from fsspeckit.datasets.spark import catalog
from fsspeckit.datasets.spark.columns import quoted
from fsspeckit.datasets.spark.engine import SparkEngine, operation
from fsspeckit.datasets.spark.files import open_files, read_frame
from fsspeckit.datasets.spark.session import Cluster, spark_can_read, spark_path, start_session
from fsspeckit.datasets.spark.stream import BatchMerge

if TYPE_CHECKING:
    import pyspark.sql

log = logging.getLogger("fsspeckit.spark")

_PATH_OR_TABLE = "Pass either the path of the data set or the name of its table (table=), not both."
_ESCAPE_GLOB = str.maketrans({c: f"\\{c}" for c in "\\{}[]*?"})


class StreamOptions(RewriteOptions, RowChangeOptions, SmallFilesOptions, total=False):
    """Options of `foreach_batch`."""


class SparkDatasetIO(DatasetIO[Any]):
    """Merge with Spark: executors evaluate the source once, match its keys, rewrite files and write new ones.

    Sources: Spark DataFrames (classic or Connect), paths to Parquet files, and everything that `PyArrowDatasetIO`
    accepts.

    Without `spark`, the active session is used, or a local one is started. Executors need fsspeckit in their Python,
    and driver and executors must see the data set under the same path. `plan` writes the source to a temporary folder;
    on a cluster, set `scratch` to a folder that all machines share. Rewritten files get new names: a DataFrame that was
    planned before the merge then fails when it is read, instead of silently missing rows.
    """

    def __init__(
        self,
        spark: Any = None,
        filesystem: Any = None,
        scratch: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        # Threads may share this object: every operation has its own engine (`_running`).
        self._access = Access(filesystem, storage_options)
        self._spark, self._scratch = spark, scratch

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._spark or start_session(), self._scratch)

    @property
    def spark(self) -> Any:
        self._cluster.check_running()
        return self._cluster.spark

    def merge(
        self,
        data: Data,
        path: Path | None = None,
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        *,
        table: str | None = None,
        **options: Unpack[MergeOptions],
    ) -> MergeResult:
        """See `DatasetIO.merge`. Instead of the path, `table` may name a Parquet table of Spark's catalog.

        The table is refreshed after the merge, and new partitions and columns are added to the catalog:

            io.merge(frame, table="db.orders", key_columns=["order_id"])
        """
        target, path = self._target(data, path, table, strategy, key_columns, options.get("delete_column"))
        check_known("merge", options, MergeOptions)
        result = self._merge(data, path, self._request(target, strategy, key_columns, partition_columns, options))
        if target is not None:
            catalog.update_table(self.spark, target, result.added_columns)
        return result

    def plan(
        self,
        data: Data,
        path: Path | None = None,
        strategy: Strategy | MergeStrategy = "upsert",
        key_columns: Columns = (),
        partition_columns: Columns | None = None,
        *,
        table: str | None = None,
        **options: Unpack[PlanOptions],
    ) -> MergePlan:
        """See `DatasetIO.plan`; `table` as in `merge`."""
        target, path = self._target(data, path, table, strategy, key_columns, options.get("delete_column"))
        check_known("plan", options, PlanOptions)
        return self._plan(data, path, self._request(target, strategy, key_columns, partition_columns, options))

    def write_parquet_dataset(
        self,
        data: Data,
        path: Path | None = None,
        strategy: AnyStrategy | MergeStrategy | None = None,
        key_columns: Columns | None = None,
        *,
        table: str | None = None,
        **options: Unpack[WriteParquetOptions],
    ) -> MergeResult | WriteResult:
        """See `DatasetIO.write_parquet_dataset`; `table` as in `merge`."""
        check_known("write_parquet_dataset", options, WriteParquetOptions)
        target, path = self._target(data, path, table, strategy or "insert", key_columns, None)
        if target is None:
            return self._write_parquet(data, path, strategy, key_columns, options)
        columns = target.partitioned_by(options.get("partition_columns"), options)
        arguments = {**options, "partition_columns": columns, "max_lengths": target.max_lengths}
        result = self._write_parquet(data, path, strategy, key_columns, arguments)
        catalog.update_table(self.spark, target, result.added_columns)
        return result

    def _request(
        self,
        target: catalog.Table | None,
        strategy: str,
        key_columns: Columns,
        partition_columns: Columns | None,
        options: Mapping[str, Any],
        **arguments: Any,
    ) -> core.Request:
        """With the partition columns and text lengths of the table."""
        if target is None:
            return self.request(strategy, key_columns, partition_columns, options, **arguments)
        columns = target.partitioned_by(partition_columns, options)
        options = {**options, "max_lengths": target.max_lengths}
        return self.request(strategy, key_columns, columns, options, only_columns=True, **arguments)

    def _target(
        self,
        data: Any,
        path: Path | None,
        table: str | None,
        strategy: str,
        key_columns: Any,
        delete_column: str | None,
    ) -> tuple[catalog.Table | None, Path]:
        if table is None and path is not None:
            return None, path
        if table is None or path is not None:
            raise ArgumentError(_PATH_OR_TABLE)
        target = catalog.find_table(self.spark, table)
        catalog.check_keys(table, target, key_columns)
        if MergeStrategy.parse(strategy) is not MergeStrategy.DELETE:  # which needs only the key columns
            catalog.check_columns(self.spark, table, target, data, delete_column)
        return target, target.path

    @contextlib.contextmanager
    def _running(self, verb: str, location: Location) -> Iterator[SparkEngine]:
        with operation(self._cluster, self._access, verb, location) as engine:
            yield engine

    def foreach_batch(
        self,
        path: str | None = None,
        key_columns: Columns = (),
        strategy: AnyStrategy | Strategy | MergeStrategy = "upsert",
        *,
        app_id: str,
        table: str | None = None,
        partition_columns: Columns | None = None,
        dedup_order_by: Columns | None = None,
        compact_every: int | None = None,
        **options: Unpack[StreamOptions],
    ) -> BatchMerge:
        """A function for `writeStream.foreachBatch` that merges every micro-batch exactly once.

            frame.writeStream.option("checkpointLocation", where).foreachBatch(
                io.foreach_batch("/lake/events", ["id"], app_id="events")
            ).start()

        Instead of the path, `table` may name a Parquet table of Spark's catalog. After each batch that changed rows,
        new partitions are added to the catalog, and the table is refreshed in this session and in that of the query:

            io.foreach_batch(table="db.events", key_columns=["id"], app_id="events")

        `app_id` names the stream in the data files: use one per query, and a new one for a new checkpoint. A batch that
        was committed before is skipped. A batch older than the last one is a `ValueError`, since its rows would be lost
        silently. Spark Connect does not report the checkpoint of a batch: a new checkpoint under an old `app_id` is
        noticed there only by older batch ids, and its first batch is skipped if that id was committed before.

        The options are those of `merge`, without `delete_missing`. A batch may have several changes of a key if they
        are ordered; of a feed with deletes:

            io.foreach_batch("/lake/orders", ["id"], app_id="orders", delete_column="op", delete_values=["D"],
                             sequence_by="ts", on_duplicates="latest")

        `compact_every=50` compacts the data set after every 50th batch, by its id. A compaction that fails is logged
        and does not fail the batch; the next one makes up for it.

        Otherwise it must have one row per key. `strategy="deduplicate"` reduces it too, but like `full_merge` it
        replaces all files with every batch.
        """
        check_known("foreach_batch", options, StreamOptions)
        if not isinstance(app_id, str) or not app_id:
            raise ArgumentError(f"app_id must name the stream, not {app_id!r}.")
        batch_interval(compact_every)
        is_incremental = MergeStrategy.parse(strategy).actions.incremental
        if not is_incremental:
            _refuse_row_options(strategy, options)
        target = self._stream_target(path, table, key_columns)
        request = self._request(
            target,
            strategy,
            key_columns,
            partition_columns,
            {**options, "batch": Batch(app_id, 0)},
            rewrite_mode="incremental" if is_incremental else "full",
            dedup_order_by=validate.column_names("dedup_order_by", dedup_order_by) or (),
        )
        # The session of a classic query is a copy of the user's. On Spark Connect the two are the same.
        session = self._cluster.spark if hasattr(self._cluster.spark, "sparkContext") else None
        name = None if target is None else target.name
        return BatchMerge(path, self._access, app_id, request, name, compact_every, session)

    def _stream_target(self, path: str | None, table: str | None, key_columns: Any) -> catalog.Table | None:
        """The table, checked before the stream starts."""
        if (path is None) == (table is None):
            raise ArgumentError(_PATH_OR_TABLE)
        if table is None:
            return None
        target = catalog.find_table(self.spark, table)
        catalog.check_keys(table, target, key_columns)
        return target

    def read(self, path: Path, columns: Sequence[str] | None = None, filter: Any = None) -> pyspark.sql.DataFrame:
        """Read the data set as a Spark DataFrame; `filter` is a column expression or SQL text.

        In an object store, Spark reads with s3a if its jars and settings are there; otherwise tasks read with PyArrow.
        """
        location = self._locate(path)
        if not spark_can_read(self.spark, location):
            return self._read_in_tasks(location, columns, filter)
        infos = existing_files(location)
        partitioned = _is_partitioned(location, infos)
        with self._running("read", location) as engine:
            schemas = [footer.schema for footer in engine.footers(location, infos, ())]
        same_schema = all(schema.equals(schemas[0]) for schema in schemas)
        suffixes = {"parquet", *(info.path.rpartition(".")[2] for info in infos)}
        reader = self.spark.read.option("basePath", spark_path(location, "")).option("mergeSchema", not same_schema)
        reader = reader.option("pathGlobFilter", f"*.{{{','.join(sorted(suffixes))}}}")
        if not partitioned:  # otherwise Spark skips files in subfolders
            reader = reader.option("recursiveFileLookup", True)
        # When it refreshes a frame, Spark lists a folder again, but of single files it only skips the removed ones.
        roots = [""] if _spark_lists_same(location, infos, suffixes) else [info.path for info in infos]
        try:
            frame = reader.parquet(*(spark_path(location, root).translate(_ESCAPE_GLOB) for root in roots))
        except Exception as error:  # a Java error, with its whole stack
            raise DatasetMergeError(
                f"Spark cannot read {location.shown} as one table: {_reason(error)}. Try the pyarrow engine.",
                operation="read",
            ) from error
        return _selected(frame, columns, filter)

    def _read_in_tasks(self, location: Location, columns: Sequence[str] | None, filter: Any) -> Any:
        existing_files(location)
        with self._running("read", location) as engine:
            files = open_files([location.shown], self._access, engine.footers)
            # The filter may use other columns than the caller wants.
            read_columns = columns if filter is None else None
            frame = read_frame(engine.operation, files, read_columns, engine.partition_timezone)
        return frame if filter is None else _selected(frame, columns, filter)


def _selected(frame: Any, columns: Sequence[str] | None, filter: Any) -> Any:
    """Some rows and columns of a frame."""
    frame = frame if filter is None else frame.where(filter)
    return frame if columns is None else frame.select([quoted(name) for name in columns])


def _refuse_row_options(strategy: str, options: Mapping[str, Any]) -> None:
    """`full_merge` and `deduplicate` know nothing of single rows that stay, move or are deleted."""
    used = [name for name in row_options.OPTIONS if options.get(name) not in (None, "refuse")]
    if used:
        raise ArgumentError(
            f"{used[0]} cannot be used with strategy={str(strategy)!r}, which replaces all files. Use upsert, update "
            "or delete; on_duplicates='latest' reduces a batch to one row per key."
        )


def _is_partitioned(location: Location, infos: Sequence[FileInfo]) -> bool:
    """Refuse files outside of partition folders beside files inside: Spark silently skips them."""
    outside = [info for info in infos if not parse_hive_partition_path(info.path)]
    if outside and len(outside) < len(infos):
        raise TargetError(
            f"{location.shown} has files inside and outside of partition folders, such as "
            f"{location.show(outside[0].path)}, whose rows Spark would skip. Read it with the pyarrow engine and "
            "write it again (write_dataset, mode='overwrite')."
        )
    return not outside


def _spark_lists_same(location: Location, infos: Sequence[FileInfo], suffixes: set[str]) -> bool:
    """Would Spark find exactly these files in the folder?"""
    paths = (f.path for f in location.storage.walk(location.root) if f.path.rpartition(".")[2] in suffixes)
    return {p for p in paths if not p.rsplit("/", 1)[-1].startswith((".", "_"))} == {info.path for info in infos}


def _reason(error: Exception) -> str:
    """The first line of Java's message, or its last cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return [*lines[:1], *causes][-1].rstrip(".")
