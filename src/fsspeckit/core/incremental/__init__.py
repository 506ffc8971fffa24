"""The names of spec 001, for callers who plan, check and replace files themselves.

A merge does not run through this room: its names are thin over the functions that a merge does run (`target.listing`,
`target.footers`, `plan.prune`, `plan.confirm`, `plan.validate`, `commit.session`). `merge` is the PyArrow engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.core import defaults
from fsspeckit.core.incremental.candidates import (
    ConservativeMembershipChecker,
    IncrementalRewritePlan,
    PartitionPruner,
    confirm_affected_files,
    plan_incremental_rewrite,
)
from fsspeckit.core.incremental.checks import validate_no_null_keys, validate_partition_column_immutability
from fsspeckit.core.incremental.files import IncrementalFileManager
from fsspeckit.core.incremental.metadata import ParquetFileMetadata, ParquetMetadataAnalyzer, list_dataset_files
from fsspeckit.core.model import MergeFileMetadata, MergeResult
from fsspeckit.core.target.partitions import parse_hive_partition_path

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
    compression: str = defaults.COMPRESSION,
    max_rows_per_file: int = defaults.MAX_ROWS_PER_FILE,
    row_group_size: int = defaults.ROW_GROUP_SIZE,
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
