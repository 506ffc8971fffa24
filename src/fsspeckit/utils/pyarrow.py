"""`merge_parquet_dataset_pyarrow` of `fsspeckit.datasets.pyarrow`, under the path that spec 003 names."""

from fsspeckit.datasets.pyarrow import merge_parquet_dataset_pyarrow

__all__ = ["merge_parquet_dataset_pyarrow"]
