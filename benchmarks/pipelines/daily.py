"""A daily batch: 60 days of 50,000 rows that Spark wrote in 180 files, and changes of 1 % of the rows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
from pipelines.contenders import CONTENDERS, timed
from pipelines.model import Model, write_with_spark
from results import Row

from spark_session import local_session

DAYS, FILES = 60, 3
ABOUT = {
    "daily batch, scattered": "60 days of 50,000 rows in 180 files; 1 % of the rows change in all files, 0.1 % are new",
    "daily batch, clustered": "the same lake; as many changes, all in the last two days",
}


def run(root: Path, scale: float, rounds: int) -> list[Row]:
    model = Model.new(DAYS, max(500, int(50_000 * scale)))
    spark = local_session("local[2]", **{"spark.driver.memory": "4g", "spark.fsspeckit.driverBytes": "8m"})
    write_with_spark(spark, model, root / "lake", FILES)
    measured = {(work, contender): Row(work, contender) for work in ABOUT for contender in CONTENDERS}
    warm_up = Row("", "")
    for turn in range(rounds + 1):
        for (work, contender), row in measured.items():
            first_day = DAYS - 2 if work.endswith("clustered") else 0
            after, batch = model.batch(first_day, model.total // 100, model.total // 1000, turn + 1)
            pq.write_table(batch, root / "batch.parquet")
            shutil.copytree(root / "lake", root / "copy", copy_function=os.link)
            wall, cpu = timed(spark, contender, root / "batch.parquet", root / "copy")
            add_round(row if turn else warm_up, wall, cpu)
            row.note = (problem := after.problem(root / "copy")) and f"wrong: {problem}"
            shutil.rmtree(root / "copy")
            assert not row.note, (work, contender, row.note)
    spark.stop()
    return list(measured.values())


def add_round(row: Row, wall: float, cpu: float) -> None:
    """The fastest round counts."""
    row.rounds += 1
    row.wall, row.cpu = min(wall, row.wall or wall), min(cpu, row.cpu or cpu)
