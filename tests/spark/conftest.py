"""Fixtures of the Spark engine's own tests."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from fsspeckit.datasets.spark import SparkDatasetIO

# Data sources in Python came with Spark 4.
collect_ignore = (
    []
    if hasattr(SparkSession, "dataSource")
    else [
        "test_datasource.py",
        "test_datasource_rows.py",
        "jobs/source_stream.py",
    ]
)


@pytest.fixture
def io(spark: Any) -> SparkDatasetIO:
    return SparkDatasetIO(spark)
