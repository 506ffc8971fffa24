"""The Spark engine: sources are Spark DataFrames of any size, and executors do the work."""

from typing import Any

from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.spark.io import SparkDatasetIO
from fsspeckit.datasets.spark.merge_into import merge_into
from fsspeckit.datasets.spark.session import start_session

__all__ = ["SparkDatasetIO", "merge_into", "register", "start_session"]


def register(spark: Any) -> None:
    """Register `format("fsspeckit")` with a session, classic or Connect, for reading, writing and streams.

    register(spark)
    frame.write.format("fsspeckit").option("key", "id").option("strategy", "upsert").mode("append").save(path)
    """
    try:
        from fsspeckit.datasets.spark.datasource import FsspeckitSource
    except ImportError as error:
        raise ArgumentError(f"The data source needs Spark 4.1 or newer ({error}). Use SparkDatasetIO.") from error
    spark.dataSource.register(FsspeckitSource)
