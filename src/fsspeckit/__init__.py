"""MERGE for plain Parquet: insert, update and upsert rows by key into a directory of Parquet files.

>>> import fsspeckit, pyarrow as pa
>>> fsspeckit.merge(pa.table({"id": [1], "x": ["a"]}), "memory://top/lake", "upsert", ["id"]).inserted
1
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {"merge": "api", "plan": "api", "recover": "api"} | dict.fromkeys(
    ("DatasetMergeError", "FsspeckitError", "MergeValidationError"), "core.errors"
)


def __getattr__(name: str) -> Any:
    """Names load their module when they are first asked for, so that the command line starts at once."""
    if name not in __all__:
        raise AttributeError(f"module 'fsspeckit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fsspeckit.{_HOMES.get(name, 'core.model')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
