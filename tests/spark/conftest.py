"""Fixtures of the Spark engine's own tests."""

from __future__ import annotations

from typing import Any

import pytest

from fsspeckit.datasets.spark import SparkDatasetIO
from spark_session import HAS_DATA_SOURCE

collect_ignore = (
    []
    if HAS_DATA_SOURCE
    else [
        "test_datasource.py",
        "test_datasource_rows.py",
        "jobs/source_stream.py",
    ]
)


@pytest.fixture
def io(spark: Any) -> SparkDatasetIO:
    return SparkDatasetIO(spark)
