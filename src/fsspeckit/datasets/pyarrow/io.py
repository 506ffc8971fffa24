"""`PyArrowDatasetIO`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import pyarrow as pa

from fsspeckit.core.model import MergeResult, MergeStrategy, WriteResult
from fsspeckit.core.storage import Access
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.options import AnyStrategy, Columns, WriteParquetOptions
from fsspeckit.datasets.pyarrow.engine import PyArrowEngine


class PyArrowDatasetIO(DatasetIO[pa.Table]):
    """Merge with PyArrow: keys are held in memory, a stream's rows as far as they fit, the target is streamed.

    Sources: `pa.Table`, `RecordBatch`, `RecordBatchReader`, anything with an Arrow stream (pandas, Polars, DuckDB
    relations), and paths to Parquet files.

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

    def read(self, path: str, columns: Sequence[str] | None = None, filter: Any = None) -> pa.Table:
        """Read the data set as a table; `filter` is a PyArrow expression."""
        from fsspeckit.datasets.scan import read_dataset

        return read_dataset(self._locate(path), None if columns is None else list(columns), filter)


def merge_parquet_dataset_pyarrow(
    data: Any,
    path: str,
    strategy: AnyStrategy | MergeStrategy,
    key_columns: Columns,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[WriteParquetOptions],
) -> MergeResult | WriteResult:
    """Merge with any of the five strategies; `options` are those of `PyArrowDatasetIO.write_parquet_dataset`."""
    io = PyArrowDatasetIO(filesystem, storage_options)
    return io.write_parquet_dataset(data, path, strategy, key_columns, **options)
