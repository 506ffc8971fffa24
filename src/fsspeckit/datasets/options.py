"""The options of merges and writes: types for callers, and names to check calls against.

Imports no large module, so that `fsspeckit --help` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from fsspeckit.core.suggestions import closest

if TYPE_CHECKING:
    from fsspeckit.core.dataset.ledger import Batch
    from fsspeckit.core.model import Replace
    from fsspeckit.core.progress import OnProgress

EngineName: TypeAlias = Literal["pyarrow", "duckdb", "spark"]
Strategy: TypeAlias = Literal["insert", "update", "upsert", "delete"]
AnyStrategy: TypeAlias = Literal["insert", "update", "upsert", "full_merge", "deduplicate", "delete"]
Mode: TypeAlias = Literal["append", "overwrite", "overwrite_partitions"]
Columns: TypeAlias = Sequence[str] | str


class ProgressOptions(TypedDict, total=False):
    """Options of everything that may take long."""

    on_progress: OnProgress | None
    """Called with a `ProgressEvent` again and again, one call at a time, maybe from other threads."""


class CommonOptions(ProgressOptions, total=False):
    """Options of `plan`, `merge` and all writes."""

    partition_by: Columns | None
    """An alias of `partition_columns`."""
    partition_timezone: str | None
    """Time zone of timestamps in partition folder names. Default: UTC, under Spark the session's zone."""
    source_timezone: str | None
    """Time zone of source timestamps that have none, if the target's have one. Default under Spark: the session's."""


class SchemaOptions(TypedDict, total=False):
    """Options of `plan`, `merge` and writes about columns that only the source has, and values that do not fit."""

    on_schema_change: Literal["refuse", "evolve"]
    """Refuse such a source, or add its columns to the target and widen the types of numbers."""
    evolve_files: Literal["all", "touched"]
    """Which files get a new column: all, or only those with changed rows."""
    evolve_max_bytes: int
    """The most bytes of files without a changed row that are rewritten for a schema change."""


class RowChangeOptions(TypedDict, total=False):
    """Options of `plan` and `merge` about single rows."""

    delete_column: str | None
    """A source column that says which rows delete. It is not stored."""
    delete_values: Sequence[Any] | None
    """The values of `delete_column` that mean delete, e.g. `["D"]`. Without them the column must be Boolean."""
    sequence_by: Columns | None
    """Columns that order the changes of a key: a row is replaced or deleted only by one that is not older."""
    on_duplicates: Literal["refuse", "latest"]
    """Of several source rows with the same key, refuse all, or keep the greatest by `sequence_by`."""
    update_columns: Columns | None
    """Matched rows get only these columns (and `sequence_by`); the others keep their values."""
    exclude_columns: Columns | None
    """Matched rows get all columns but these."""
    delete_missing: Literal["all", "partitions"] | None
    """Delete target rows whose key the source does not have: all, or those in the source's partitions."""
    on_move: Literal["refuse", "move"]
    """A key that is in another partition: refuse the merge, or move the row."""


class SmallFilesOptions(TypedDict, total=False):
    """Options of `merge` and `foreach_batch`."""

    small_files: Literal["new", "append"]
    """With `upsert`: new rows make new files, or join the smallest file of their partition, if that is small."""


class TargetOptions(TypedDict, total=False):
    """Options of `plan` and `merge` about the target."""

    must_exist: bool
    """Refuse a target that does not exist, instead of creating it."""


class PlanOptions(CommonOptions, RowChangeOptions, SchemaOptions, TargetOptions, total=False):
    """Options of `plan`."""

    compare: bool
    """Read the matched rows too, and say which of them, and which files, are equal to the source's already."""


class NewFileOptions(CommonOptions, SchemaOptions, total=False):
    """Options of `write_dataset`, `merge` and `write_parquet_dataset`."""

    compression: str | None
    """The codec of new files: snappy, zstd, gzip, lz4, brotli or none. Default: that of the data set's own files; in a
    new data set Spark's `spark.sql.parquet.compression.codec`, else snappy. Rewritten files keep their own layout."""
    max_rows_per_file: int
    """Maximum number of rows in a new file."""
    row_group_size: int | None
    """Maximum number of rows in a row group of a new file. Default: as in the data set's own files, else 500,000."""
    lock_timeout: float
    """Seconds to wait for another writer."""
    undoable: bool
    """Keep the files that are replaced or removed, so that `fsspeckit.undo` can put them back."""


class WriteModeOptions(TypedDict, total=False):
    """Options of `write_dataset` and `write_parquet_dataset` about the rows that a write removes."""

    partitions: Sequence[Mapping[str, Any]] | None
    """With `overwrite_partitions`: the partitions to replace, e.g. `[{"day": "2026-01-01"}]`."""
    max_removed_rows: int | None
    """Refuse a write that would remove more rows than this."""


class WriteDatasetOptions(NewFileOptions, WriteModeOptions, total=False):
    """Options of `write_dataset`."""


class RewriteOptions(NewFileOptions, total=False):
    """Options of `merge` and `write_parquet_dataset`, which may rewrite files."""

    commit_log: str | None
    """A file on a disk that gets one JSON line per commit of a merge, appended."""

    replace: Replace | None
    """`in_place` (default on local disks) keeps names of rewritten files; `new_file` (Spark, stores) gives new ones."""


class WriteParquetOptions(RewriteOptions, WriteModeOptions, total=False):
    """Options of `write_parquet_dataset`."""

    mode: Mode
    """Without a strategy: add to the existing data files, replace them, or replace those of some partitions."""
    rewrite_mode: Literal["full", "incremental"]
    """`full` replaces all data files with new ones in one commit; `incremental` does what `merge` does."""
    partition_columns: Columns | None
    """For a new data set; otherwise detected from the paths."""
    dedup_order_by: Columns | None
    """With `deduplicate`: keep the row that is greatest by these columns."""


class MergeOptions(RewriteOptions, RowChangeOptions, SmallFilesOptions, TargetOptions, total=False):
    """Options of `merge`."""

    batch: Batch | None
    """Identifies the source as a batch of a stream. A batch that was committed before is skipped."""


class DeleteOptions(ProgressOptions, total=False):
    """Options of `delete` and `plan_delete`."""

    commit_log: str | None
    """A file on a disk that gets one JSON line per commit, appended. `plan_delete` ignores it."""

    replace: Replace | None
    """`in_place` (default on local disks) keeps names of rewritten files; `new_file` (Spark, stores) gives new ones."""
    lock_timeout: float
    """Seconds to wait for another writer."""
    undoable: bool
    """Keep the files that are replaced or removed, so that `fsspeckit.undo` can put them back."""
    partition_timezone: str | None
    """Time zone of timestamps in partition folder names. Default: UTC, under Spark the session's zone."""
    source_timezone: str | None
    """Time zone of timestamps in `keys` that have none, if the target's have one. Under Spark: the session's."""


class CompactOptions(ProgressOptions, total=False):
    """Options of `compact` and `plan_compact`."""

    target_size: int | str
    """About the size of a file, as a number of bytes or as text: `256MB`, `1GiB`."""
    sort_by: Columns | None
    """Columns to sort the rows of each partition by, so that statistics show which files may have a value."""
    partitions: Sequence[Mapping[str, Any]] | None
    """Only these partitions: `[{"day": "2026-01-01"}]`."""
    lock_timeout: float
    """Seconds to wait for another writer."""
    undoable: bool
    """Keep the old files, so that `fsspeckit.undo` can put them back. The compaction is then one commit."""


class EngineOptions(TypedDict, total=False):
    """Options of a single engine."""

    table: str | None
    """Spark: a table of its catalog, instead of the path."""
    source_sql: str | None
    """DuckDB: a query that returns the source, instead of `data`."""
    use_merge: bool | None
    """DuckDB: whether to use its MERGE statement; `None` uses it from 1.4.0 on."""


class AnyPlanOptions(PlanOptions, EngineOptions, total=False):
    """Options of `fsspeckit.plan`."""


class AnyMergeOptions(MergeOptions, EngineOptions, total=False):
    """Options of `fsspeckit.merge`."""


class AnyWriteOptions(WriteDatasetOptions, total=False):
    """Options of `fsspeckit.write_dataset` and `fsspeckit.plan_write`."""

    source_sql: str | None
    """DuckDB: a query that returns the source, instead of `data`."""


ONLY_FOR_MERGES = AnyMergeOptions.__optional_keys__ - AnyPlanOptions.__optional_keys__
"""Options of `merge` that have no effect on its plan, and that `plan` does not take."""
SET_BY_STATEMENTS = (
    "strategy",
    "key_columns",
    *sorted(RowChangeOptions.__optional_keys__ - {"on_duplicates", "on_move"}),
)
"""Arguments of `merge` that a MERGE statement says itself."""

# What other libraries, and the command line, call these arguments.
_PARAMETERS = ("key_columns", "partition_columns", "strategy", "path", "data")
_OTHER_NAMES = {
    **dict.fromkeys(
        ("key", "keys", "on", "by", "predicate", "primary_key", "join_columns", "id_columns"), "key_columns"
    ),
    **dict.fromkeys(("partition", "partitions", "partition_cols", "partitioning"), "partition_columns"),
    **dict.fromkeys(("how", "when", "action"), "strategy"),
    **dict.fromkeys(("target", "dataset", "table_path", "destination"), "path"),
    **dict.fromkeys(("source", "df", "frame", "rows"), "data"),
    **dict.fromkeys(("order_by", "sequence", "version_column"), "sequence_by"),
    **dict.fromkeys(("codec",), "compression"),
    **dict.fromkeys(("timeout",), "lock_timeout"),
}


def check_known(function: str, options: Mapping[str, Any], known: Any) -> None:
    """Refuse an unknown option with a `TypeError`, as Python does for an unknown parameter."""
    for name in options.keys() - known.__optional_keys__:
        choices = [*known.__optional_keys__, *_PARAMETERS]
        meant = _OTHER_NAMES.get(name) or closest(name, choices)
        hint = f"Did you mean {meant!r}?" if meant in choices else f"It takes {', '.join(sorted(choices))}."
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {hint}")
