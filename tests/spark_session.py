"""A Spark session as small as it gets, for tests."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

try:  # the data source needs Spark 4.1
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _NewIn41
except ImportError:
    HAS_DATA_SOURCE = False
else:
    HAS_DATA_SOURCE = _NewIn41 is not None

# Sessions of tests do little, and are done before Java's better compiler has paid off.
_QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": _QUICK_TO_START,
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": f"{tempfile.gettempdir()}/fsspeckit-warehouse",
    "spark.log.level": "ERROR",
    # What the driver would do itself, because it is little, is done by executors as well.
    "spark.fsspeckit.driverBytes": "0",
}
# For processes that have a session of their own.
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK_TO_START,
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def local_session(master: str = "local[2]", **conf: Any) -> Any:
    """A session on this machine whose Python workers are this Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
    builder = SparkSession.builder.master(master).appName("fsspeckit tests")
    for name, value in {**CONF, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextlib.contextmanager
def settings(spark: Any, **conf: str) -> Iterator[None]:
    """Settings of the session that all tests share, for a while."""
    names = {name.replace("__", "."): value for name, value in conf.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
