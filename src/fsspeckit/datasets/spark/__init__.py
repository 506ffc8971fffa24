"""The Spark engine: the source is a Spark DataFrame of any size, the work runs on executors."""

from typing import Any

from fsspeckit.core.errors import ArgumentError
from fsspeckit.datasets.spark.io import SparkDatasetIO
from fsspeckit.datasets.spark.session import start_session

__all__ = ["SparkDatasetIO", "register", "start_session"]


def register(spark: Any) -> None:
    """Make `format("fsspeckit")` known to a session, classic or Connect, for reading, writing and streams.

    register(spark)
    frame.write.format("fsspeckit").option("key", "id").option("strategy", "upsert").mode("append").save(path)
    """
    try:
        from fsspeckit.datasets.spark.datasource import FsspeckitSource
    except ImportError as error:
        raise ArgumentError(f"Data sources in Python need Spark 4.1 or newer ({error}). Use SparkDatasetIO.") from error
    spark.dataSource.register(FsspeckitSource)
