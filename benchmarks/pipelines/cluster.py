"""The scattered batch on a cluster of two executors, one after the other killed while files are rewritten."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
from pipelines.contenders import OURS, OVERWRITE, timed
from pipelines.daily import DAYS, FILES, add_round
from pipelines.model import Model, write_with_spark
from processes import java_processes
from results import Row

from spark_session import SMALL, local_session

KILLED = f"{OURS}, executors killed"
WORK = "cluster of two executors"
ABOUT = {WORK: "`local-cluster[2,1,1024]`; 60 days in 180 files, 1 % of the rows change in all of them, 0.1 % are new"}
KILLS = 2


def run(root: Path, scale: float, rounds: int) -> list[Row]:
    model = Model.new(DAYS, max(500, int(50_000 * scale)))
    conf = SMALL | {"spark.driver.memory": "1g", "spark.executor.memory": "1g"}
    spark = local_session("local-cluster[2,1,1024]", **conf)
    write_with_spark(spark, model, root / "lake", FILES)
    measured = {contender: Row(WORK, contender) for contender in (OURS, KILLED, OVERWRITE)}
    warm_up, killed = Row("", ""), 0
    for turn in range(rounds + 1):
        for contender, row in measured.items():
            after, batch = model.batch(0, model.total // 100, model.total // 1000, turn + 1)
            pq.write_table(batch, root / "batch.parquet")
            shutil.copytree(root / "lake", root / "copy", copy_function=os.link)
            method = OVERWRITE if contender == OVERWRITE else OURS
            with Killer(root / "copy", KILLS if contender == KILLED else 0) as killer:
                wall, cpu = timed(spark, method, root / "batch.parquet", root / "copy")
            add_round(row if turn else warm_up, wall, cpu)
            killed += killer.killed
            problem = after.problem(root / "copy")
            assert not problem, (contender, problem)
            assert not list(root.glob(".fsspeckit*")), "staging folders are left"
            shutil.rmtree(root / "copy")
    assert killed >= rounds, "executors were killed while files were rewritten"
    measured[KILLED].note = f"{killed} executors killed in {rounds + 1} merges"
    measured[KILLED].cpu = None  # that of killed processes is lost
    spark.stop()
    return list(measured.values())


class Killer(threading.Thread):
    """Kills executors while a merge stages files: one, and when it was replaced another."""

    def __init__(self, lake: Path, kills: int) -> None:
        super().__init__(daemon=True)
        self._staged = lake.parent / f".fsspeckit-{lake.name}"
        self._left, self.killed = kills, 0
        self._done = threading.Event()

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while self._left and not self._done.wait(0.02):
            if any(self._staged.glob(".staging_*/file-*")) and (found := executors()):
                os.kill(found[0], signal.SIGKILL)
                self._left, self.killed = self._left - 1, self.killed + 1
                time.sleep(1)


def executors() -> list[int]:
    """The processes of executors, which this process started through Java."""
    found = []
    for pid in java_processes():
        try:
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
