"""Merges of awkward shapes on two executors which have nothing of ours but the zip that `fsspeckit ship` makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pyspark
import pytest

from spark_process import result_of

pytestmark = pytest.mark.slow

JOB = Path(__file__).parent / "jobs" / "shapes.py"
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "768m",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
# What Spark's Arrow functions need; all that has compiled code.
COMPILED = ("pyarrow", "numpy", "pandas", "dateutil", "pytz", "six.py", "tzdata")


def bare_python(folder: Path) -> Path:
    """A Python that can import what Spark needs and nothing else."""
    site, links = Path(numpy.__file__).parent.parent, folder / "links"
    links.mkdir()
    for name in COMPILED:
        for found in (site / name, site / f"{name}.libs"):
            if found.exists():
                (links / found.name).symlink_to(found)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{links}:$PYTHONPATH" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return script


def submitted(folder: Path, *shapes: str) -> Any:
    made = subprocess.run(
        [sys.executable, "-m", "fsspeckit", "ship", "fsspeckit.zip"], cwd=folder, capture_output=True, text=True
    )
    assert made.stdout.startswith("Wrote fsspeckit.zip, ") and made.returncode == 0, made.stderr
    submit = str(Path(sys.executable).parent / "spark-submit")
    options = [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    master = ["--master", "local-cluster[2,1,1024]", "--py-files", str(folder / "fsspeckit.zip")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": str(bare_python(folder)),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    command = [submit, *master, *options, str(JOB), str(folder / "lakes"), *shapes]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_a_composite_key_and_a_skewed_one(tmp_path: Path) -> None:
    found = submitted(tmp_path, "composite", "skewed")
    assert len(found["modules"]) >= 2 and all("fsspeckit.zip/" in file for file in found["modules"])
    assert found["composite"] == {"counts": [401, 171, 2801], "same": True}
    assert found["skewed"] == {"counts": [100, 4882, 100_100], "same": True}


def test_a_source_larger_than_the_drivers_memory(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--wide"):
        pytest.skip("takes a minute or two: make torture")
    wide = submitted(tmp_path, "wide")["wide"]
    assert wide["counts"] == [150_000, 150_000, 300_000] and wide["rows"] == [300_000] * 3
    assert wide["bytes"] > 512 << 20
    assert wide["peak"] < 400 << 20, "the driver holds counts, not rows"


def test_a_data_source_merges_more_than_the_drivers_memory(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """5 GiB with a driver of 1 GiB: rows stay on disk, and keys are in memory."""
    if not request.config.getoption("--wide"):
        pytest.skip("takes some minutes: make torture")
    if not hasattr(pyspark.sql.SparkSession, "dataSource"):
        pytest.skip("data sources in Python came with Spark 4")
    found = result_of("wide_source", str(tmp_path), "5", seconds=3600)
    assert found["rows"] == [found["expected"]] * 3
    assert found["peak"] < 3 << 30, "less than the source; 1.7 GB were seen"
    assert found["beside"] == ["lake"]
