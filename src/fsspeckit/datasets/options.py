"""The options of merges and writes, once: as types for callers, and as names to check calls against.

Loads nothing, so that `fsspeckit --help` answers at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from fsspeckit.core.model import Replace
    from fsspeckit.core.target.ledger import Batch

EngineName: TypeAlias = Literal["pyarrow", "duckdb", "spark"]
Strategy: TypeAlias = Literal["insert", "update", "upsert"]
AnyStrategy: TypeAlias = Literal["insert", "update", "upsert", "full_merge", "deduplicate"]
Mode: TypeAlias = Literal["append", "overwrite"]
Columns: TypeAlias = Sequence[str] | str


class PlanOptions(TypedDict, total=False):
    """Options of `plan`, and of everything else."""

    partition_by: Columns | None
    """The same as `partition_columns`."""
    partition_timezone: str | None
    """The zone of instants in the names of partition folders; UTC, under Spark the session's."""


class WriteDatasetOptions(PlanOptions, total=False):
    """Options of `write_dataset`, and of all that writes."""

    compression: str
    """The codec of new files: snappy, zstd, gzip, lz4, brotli or none. Rewritten files keep their own layout."""
    max_rows_per_file: int
    """How many rows a new file has at most."""
    row_group_size: int
    """How many rows a row group of a new file has at most."""
    lock_timeout: float
    """Seconds to wait for another writer."""


class RewriteOptions(WriteDatasetOptions, total=False):
    """Options of all that may rewrite files."""

    replace: Replace | None
    """`in_place` keeps the names of rewritten files, as on local disks unless told; `new_file`, as under Spark, not."""


class WriteParquetOptions(RewriteOptions, total=False):
    """Options of `write_parquet_dataset`."""

    mode: Mode
    """Without a strategy: beside the existing files, or in their place."""
    rewrite_mode: Literal["full", "incremental"]
    """`full` replaces all data files by fresh ones in one commit; `incremental` is `merge`."""
    partition_columns: Columns | None
    """Needed only for a new data set; else found in the paths."""
    dedup_order_by: Columns | None
    """With `deduplicate`: of several rows of one key the greatest by these columns is kept."""


class MergeOptions(RewriteOptions, total=False):
    """Options of `merge`."""

    batch: Batch | None
    """The batch of a stream that the source is; one that was committed before is skipped."""


class EngineOptions(TypedDict, total=False):
    """What only one engine takes."""

    table: str | None
    """Spark: a table of its catalog, in place of the path."""
    source_sql: str | None
    """DuckDB: a query that gives the source, in place of `data`."""
    use_merge: bool | None
    """DuckDB: with or without its MERGE statement; `None` uses it from 1.4.0 on."""


class AnyPlanOptions(PlanOptions, EngineOptions, total=False):
    """Options of `fsspeckit.plan`."""


class AnyMergeOptions(MergeOptions, EngineOptions, total=False):
    """Options of `fsspeckit.merge`."""


def check_known(function: str, options: Mapping[str, Any], known: Any) -> None:
    """Refuse a name that is none of the options, as Python does for names that are no parameters."""
    for name in options.keys() - known.__optional_keys__:
        close = difflib.get_close_matches(name, known.__optional_keys__, 1)
        hint = f"Did you mean {close[0]!r}?" if close else f"It takes {', '.join(sorted(known.__optional_keys__))}."
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {hint}")
