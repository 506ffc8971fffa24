"""Four writers in processes of their own, killed and stopped past their lease: each acknowledged merge once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.api import dataset_io
from s3.bucket import Bucket
from s3.conftest import WHOLE

WRITERS, MERGES, TROUBLES = (4, 25, 20) if WHOLE else (3, 3, 3)
LEASE = 2.0
ENGINES = ("pyarrow", "duckdb")
# Among four of them one is Spark's; its replacement is, too, since Spark starts slowly.
SPARKS = 2 if WHOLE and os.environ.get("JAVA_HOME") else None


class Process:
    """A writer and the file that it reports to."""

    def __init__(self, number: int, url: str, folder: Path) -> None:
        self.number, self.url, self.log = number, url, folder / f"{number}.log"
        self.log.touch()
        self.attempted, self.kills = 0, 0
        self._start(0)

    def _start(self, first: int) -> None:
        engine = "spark" if self.number == SPARKS else ENGINES[(self.number + self.kills) % len(ENGINES)]
        command = [sys.executable, "-m", "s3.writer", engine, self.url, str(self.number), str(first), str(MERGES)]
        with open(self.log, "ab") as log:
            where = {"PYTHONPATH": str(Path(__file__).parent.parent)}
            self.process = subprocess.Popen(command, stdout=log, env=os.environ | where)

    @property
    def done(self) -> list[int]:
        return [int(line.split()[2]) for line in self.log.read_text().splitlines() if line.startswith("done")]

    def kill(self) -> None:
        """Another takes its place, and repeats the merge of which nothing is known: an upsert, once is enough."""
        self.process.kill()
        self.process.wait()
        self.kills += 1
        self._start(max(self.done, default=-1) + 1)

    @property
    def is_under_way(self) -> bool:
        """Spark has to have begun, to be killed at anything but its start."""
        return self.process.poll() is None and (self.number != SPARKS or bool(self.done))

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE * 1.7)
        self.process.send_signal(signal.SIGCONT)


@pytest.mark.slow
def test_writers_that_are_killed_and_stopped(
    bucket: Bucket, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSSPECKIT_LEASE", str(LEASE))
    monkeypatch.setenv("FSSPECKIT_HEARTBEAT", "0.5")
    url = bucket.write(prefix, {f"f{i}.parquet": pa.table({"id": [i], "n": [0]}) for i in range(WRITERS)})
    chance = random.Random(4711)
    writers = [Process(number, url, tmp_path) for number in range(WRITERS)]
    try:
        for _ in range(TROUBLES):
            time.sleep(chance.uniform(0.5, 2.5))
            living = [w for w in writers if w.is_under_way]
            if living:
                victim = chance.choice(living)
                chance.choice([victim.kill, victim.pause])()
        for writer in writers:
            assert writer.process.wait(timeout=900) == 0, writer.log.read_text()
    finally:
        for writer in writers:
            writer.process.kill()
            writer.process.wait()
    fsspeckit.recover(url)
    rows = Counter((row["id"], row["n"]) for row in bucket.rows(prefix))
    expected = [(w, MERGES) for w in range(WRITERS)]
    expected += [(1000 * (w + 1) + turn, turn) for w in range(WRITERS) for turn in range(MERGES)]
    assert rows == Counter(expected)
    assert all(sorted(set(w.done)) == list(range(MERGES)) for w in writers)
    assert bucket.litter(prefix) == []
    assert dataset_io("pyarrow").read(url).num_rows == len(expected)
