"""MERGE for plain Parquet: insert, update and upsert rows by key into a directory of Parquet files.

>>> import fsspeckit, pyarrow as pa
>>> fsspeckit.merge(pa.table({"id": [1], "x": ["a"]}), "memory://top/lake", "upsert", ["id"]).inserted
1
"""

from fsspeckit.api import merge, plan, recover
from fsspeckit.core.errors import DatasetMergeError, FsspeckitError, MergeValidationError
from fsspeckit.core.model import (
    FilePlan,
    MergeFileMetadata,
    MergePlan,
    MergeResult,
    MergeStrategy,
    WriteResult,
)

__all__ = [
    "DatasetMergeError",
    "FilePlan",
    "FsspeckitError",
    "MergeFileMetadata",
    "MergePlan",
    "MergeResult",
    "MergeStrategy",
    "MergeValidationError",
    "WriteResult",
    "merge",
    "plan",
    "recover",
]

__version__ = "0.1.0"
