"""The Spark engine: the source is a Spark DataFrame of any size, the work runs on executors."""

from fsspeckit.datasets.spark.io import SparkDatasetIO
from fsspeckit.datasets.spark.session import start_session

__all__ = ["SparkDatasetIO", "start_session"]
