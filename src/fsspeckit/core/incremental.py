"""The door of spec 001: its names, all of them the code that the pipeline runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.core.commit.staging import IncrementalFileManager
from fsspeckit.core.model import MergeFileMetadata, MergeResult
from fsspeckit.core.plan.confirm import confirm_affected_files
from fsspeckit.core.plan.listing import list_dataset_files
from fsspeckit.core.plan.partitions import parse_hive_partition_path
from fsspeckit.core.plan.prune import (
    ConservativeMembershipChecker,
    ParquetFileMetadata,
    ParquetMetadataAnalyzer,
    PartitionPruner,
    key_table,
)
from fsspeckit.core.validate import validate_no_null_keys, validate_partition_column_immutability

__all__ = [
    "ConservativeMembershipChecker",
    "IncrementalFileManager",
    "IncrementalRewritePlan",
    "MergeFileMetadata",
    "MergeResult",
    "ParquetFileMetadata",
    "ParquetMetadataAnalyzer",
    "PartitionPruner",
    "confirm_affected_files",
    "list_dataset_files",
    "merge",
    "parse_hive_partition_path",
    "plan_incremental_rewrite",
    "validate_no_null_keys",
    "validate_partition_column_immutability",
]


def merge(
    data: pa.Table,
    path: str,
    strategy: Literal["insert", "update", "upsert"],
    key_columns: Sequence[str],
    partition_columns: Sequence[str] | None = None,
    filesystem: Any = None,
    compression: str = "snappy",
    max_rows_per_file: int = 5_000_000,
    row_group_size: int = 500_000,
) -> MergeResult:
    """Merge data into a Parquet data set, rewriting only the files its keys touch. See `PyArrowDatasetIO.merge`."""
    from fsspeckit.datasets.pyarrow import PyArrowDatasetIO  # the core imports no engine when it is loaded

    return PyArrowDatasetIO(filesystem).merge(
        data,
        path,
        strategy,
        key_columns,
        partition_columns,
        compression=compression,
        max_rows_per_file=max_rows_per_file,
        row_group_size=row_group_size,
    )


@dataclass
class IncrementalRewritePlan:
    """Which files an incremental rewrite touches."""

    affected_files: list[str]
    unaffected_files: list[str]
    new_files: list[str]
    affected_rows: int


def plan_incremental_rewrite(
    dataset_path: str,
    source_keys: Iterable[Any],
    key_columns: Sequence[str] | str,
    filesystem: Any = None,
    partition_schema: pa.Schema | None = None,
) -> IncrementalRewritePlan:
    """Plan from metadata alone: files that partition values and statistics cannot prove free of the keys are affected.

    `new_files` is empty: which keys are new is known only once the affected files' keys are read
    (`confirm_affected_files`, or `plan` of a `DatasetIO`).
    """
    keys = key_table(key_columns, source_keys)
    files = ParquetMetadataAnalyzer().analyze_dataset_files(dataset_path, filesystem)
    admitted = set(PartitionPruner().identify_candidate_files(files, keys.column_names, keys, partition_schema))
    checker = ConservativeMembershipChecker()
    affected = [f for f in files if f.path in admitted and checker.file_might_contain_keys(f, keys.column_names, keys)]
    paths = {f.path for f in affected}
    return IncrementalRewritePlan(
        affected_files=[f.path for f in affected],
        unaffected_files=[f.path for f in files if f.path not in paths],
        new_files=[],
        affected_rows=sum(f.total_rows for f in affected),
    )
