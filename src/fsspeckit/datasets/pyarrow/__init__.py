"""The PyArrow engine: one machine, the smallest install."""

from fsspeckit.datasets.pyarrow.io import PyArrowDatasetIO, merge_parquet_dataset_pyarrow

__all__ = ["PyArrowDatasetIO", "merge_parquet_dataset_pyarrow"]
