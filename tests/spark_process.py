"""Spark in a process of its own: other sessions, and processes to kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent


def start(job: str, *arguments: str) -> subprocess.Popen[str]:
    """A job of `tests/spark/jobs`, in a process group of its own."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(TESTS / "spark" / "jobs" / f"{job}.py"), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def result_of(job: str, *arguments: str, seconds: float = 900) -> Any:
    """The JSON on the last line that a job prints; on a busy machine everything takes its time."""
    process = start(job, *arguments)
    try:
        out, problems = process.communicate(timeout=seconds)
    finally:
        kill(process)
    assert process.returncode == 0, f"{out}\n{problems[-6000:]}"
    return json.loads(out.strip().splitlines()[-1])


def kill(process: subprocess.Popen[str]) -> None:
    """End the process and its Java with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
