"""The PyArrow engine: one machine, no further dependencies."""

from fsspeckit.datasets.pyarrow.io import PyArrowDatasetIO, merge_parquet_dataset_pyarrow

__all__ = ["PyArrowDatasetIO", "merge_parquet_dataset_pyarrow"]
