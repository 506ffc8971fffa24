"""The example job, end to end, as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_events_under_spark_submit(tmp_path: Path) -> None:
    submit = Path(sys.executable).parent / "spark-submit"
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [str(submit), "--master", "local[2]", *options, str(ROOT / "examples" / "events_job.py")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([*command, "--demo", str(tmp_path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found == {"batch": 500, "rows": 648, "keys": 648, "corrected": 100}
    lake = ds.dataset(tmp_path / "lake" / "events", partitioning="hive").to_table()
    assert sorted(set(lake["day"].to_pylist())) == [f"2026-03-0{n}" for n in range(1, 6)]
    assert set(lake["user"].to_pylist()) == {f"user{n}" for n in range(7)}
    ids = set(lake["event_id"].to_pylist())
    assert ids == {f"e{n:06d}" for n in range(650) if n not in (560, 640)}, "two were withdrawn"
    hours = {row["event_id"]: row["at"].hour for row in lake.to_pylist()}
    assert {hours[f"e{n:06d}"] for n in range(400, 550)} == {9}, "the late file, of 7 o'clock, changed nothing"
    assert {hours[f"e{n:06d}"] for n in range(550, 650) if n not in (560, 640)} == {10}, "the newest of two counts"


def test_the_stream_needs_no_group_by() -> None:
    assert "groupBy" not in (ROOT / "examples" / "events_job.py").read_text()
