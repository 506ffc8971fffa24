"""MERGE for plain Parquet: insert, update, upsert and delete rows by key in a directory of Parquet files.

>>> import fsspeckit, pyarrow as pa
>>> fsspeckit.merge(pa.table({"id": [1], "x": ["a"]}), "memory://top/lake", key_columns=["id"]).inserted
1
>>> fsspeckit.read("memory://top/lake").to_pylist()
[{'id': 1, 'x': 'a'}]
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsspeckit.api import delete, merge, plan, plan_delete, plan_write, read, recover, write_dataset
    from fsspeckit.commits import history, snapshot, undo
    from fsspeckit.core.errors import (
        ArgumentError,
        CommitUnfinishedError,
        DatasetLockedError,
        DatasetMergeError,
        DuplicateKeyError,
        FsspeckitError,
        LayoutError,
        MergeValidationError,
        NullKeyError,
        PartitionMoveError,
        RemovedRowsError,
        SchemaMismatchError,
        StorageError,
        TargetChangedError,
        TargetError,
        UnreadableFileError,
    )
    from fsspeckit.core.model import MergeStrategy
    from fsspeckit.core.progress import ProgressEvent
    from fsspeckit.core.reports import (
        CompactPlan,
        CompactResult,
        FilePlan,
        KeptCommit,
        MergeFileMetadata,
        MergePlan,
        MergeResult,
        UndoResult,
        WritePlan,
        WriteResult,
    )
    from fsspeckit.datasets.duckdb import DuckDBDatasetIO as DuckDBDatasetIO
    from fsspeckit.datasets.options import MergeOptions, PlanOptions
    from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
    from fsspeckit.datasets.spark import SparkDatasetIO as SparkDatasetIO
    from fsspeckit.maintenance import compact, plan_compact
    from fsspeckit.report.inspection import Inspection, inspect
    from fsspeckit.report.progress_bar import progress_bar
    from fsspeckit.statements import plan_sql, sql

__all__ = [
    "ArgumentError",
    "CommitUnfinishedError",
    "CompactPlan",
    "CompactResult",
    "DatasetLockedError",
    "DatasetMergeError",
    "DuplicateKeyError",
    "FilePlan",
    "FsspeckitError",
    "Inspection",
    "KeptCommit",
    "LayoutError",
    "MergeFileMetadata",
    "MergeOptions",
    "MergePlan",
    "MergeResult",
    "MergeStrategy",
    "MergeValidationError",
    "NullKeyError",
    "PartitionMoveError",
    "PlanOptions",
    "ProgressEvent",
    "PyArrowDatasetIO",
    "RemovedRowsError",
    "SchemaMismatchError",
    "StorageError",
    "TargetChangedError",
    "TargetError",
    "UndoResult",
    "UnreadableFileError",
    "WritePlan",
    "WriteResult",
    "compact",
    "delete",
    "history",
    "inspect",
    "merge",
    "plan",
    "plan_compact",
    "plan_delete",
    "plan_sql",
    "plan_write",
    "progress_bar",
    "read",
    "recover",
    "snapshot",
    "sql",
    "undo",
    "write_dataset",
]

__version__ = "0.1.0"

# fsspec warns about our environment variables, because their names start with its own prefix.
warnings.filterwarnings("ignore", "Ignoring environment variable FSSPECKIT_", UserWarning, r"fsspec\.config")

# Not in `__all__`, so that `from fsspeckit import *` works without their libraries.
_ENGINES = {"DuckDBDatasetIO": "datasets.duckdb", "SparkDatasetIO": "datasets.spark"}
_MODULES = {
    **dict.fromkeys(
        ("delete", "merge", "plan", "plan_delete", "plan_write", "read", "recover", "write_dataset"),
        "api",
    ),
    **dict.fromkeys(("compact", "plan_compact"), "maintenance"),
    **dict.fromkeys(("plan_sql", "sql"), "statements"),
    **dict.fromkeys(("history", "snapshot", "undo"), "commits"),
    **dict.fromkeys(("MergeOptions", "PlanOptions"), "datasets.options"),
    **dict.fromkeys(("Inspection", "inspect"), "report.inspection"),
    **dict.fromkeys((name for name in __all__ if name.endswith("Error")), "core.errors"),
    "MergeStrategy": "core.model",
    "ProgressEvent": "core.progress",
    "progress_bar": "report.progress_bar",
    "PyArrowDatasetIO": "datasets.pyarrow",
    **_ENGINES,
}


def __getattr__(name: str) -> Any:
    """Import the module of a name on first use, so that the command line starts fast."""
    if name not in __all__ and name not in _ENGINES:
        raise AttributeError(f"module 'fsspeckit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fsspeckit.{_MODULES.get(name, 'core.reports')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_ENGINES])
