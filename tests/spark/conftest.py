"""Fixtures of the Spark engine's own tests."""

from __future__ import annotations

from typing import Any

import pytest

from fsspeckit.datasets.spark import SparkDatasetIO


@pytest.fixture
def io(spark: Any) -> SparkDatasetIO:
    return SparkDatasetIO(spark)
