"""`PyArrowDatasetIO`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from fsspeckit.core.model import MergeStrategy
from fsspeckit.core.reports import MergeResult, WriteResult
from fsspeckit.core.storage import Access
from fsspeckit.datasets.inputs import Data, Path
from fsspeckit.datasets.io import TableIO
from fsspeckit.datasets.options import AnyStrategy, Columns, WriteParquetOptions
from fsspeckit.datasets.pyarrow.engine import PyArrowEngine


class PyArrowDatasetIO(TableIO):
    """Merge with PyArrow. Keys are held in memory, large streams spill to disk, and the target is streamed.

    Sources: `pa.Table`, `RecordBatch`, `RecordBatchReader`, anything that exports an Arrow stream (pandas, Polars,
    DuckDB relations), and paths to Parquet files.

    >>> import pyarrow as pa
    >>> io = PyArrowDatasetIO()
    >>> io.merge(pa.table({"id": [1, 2], "x": ["a", "b"]}), "memory://doc/lake", "upsert", ["id"]).inserted
    2
    >>> io.merge(pa.table({"id": [2, 3], "x": ["B", "c"]}), "memory://doc/lake", "upsert", ["id"]).updated
    1
    """

    def __init__(self, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None) -> None:
        access = Access(filesystem, storage_options)
        super().__init__(PyArrowEngine(access), access)


def merge_parquet_dataset_pyarrow(
    data: Data,
    path: Path,
    strategy: AnyStrategy | MergeStrategy,
    key_columns: Columns,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[WriteParquetOptions],
) -> MergeResult | WriteResult:
    """Merge with any of the five strategies; `options` are those of `PyArrowDatasetIO.write_parquet_dataset`."""
    io = PyArrowDatasetIO(filesystem, storage_options)
    return io.write_parquet_dataset(data, path, strategy, key_columns, **options)
