"""5,000 and 20,000 files of 100 rows, and a driver of 1 GiB: seconds, and the peak memory of the driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
from pipelines.contenders import CONTENDERS, timed
from pipelines.daily import add_round
from pipelines.model import Model, write_small_files
from processes import java_processes, peak_mib
from results import Row

from spark_session import local_session

DAYS, ROWS = 100, 100
COUNTS = (5_000, 20_000)
ABOUT = {
    f"{count:,} files": "of 100 rows in 100 days; 5 % of the rows of the last five days change, 0.5 % are new; "
    "each round in a process of its own, driver of 1 GiB"
    for count in COUNTS
}


def run(root: Path, scale: float, rounds: int) -> list[Row]:
    rows = []
    for work, count in zip(ABOUT, COUNTS, strict=True):
        model = Model.new(DAYS, max(1, int(count * scale) // DAYS) * ROWS)
        write_small_files(model, root / "lake", ROWS)
        after, batch = model.batch(DAYS - 5, model.rows // 4, max(5, model.rows // 40), 1)
        pq.write_table(batch, root / "batch.parquet")
        for contender in CONTENDERS:
            row = Row(work, contender)
            for _ in range(rounds):
                shutil.copytree(root / "lake", root / "copy", copy_function=os.link)
                add(row, in_a_process(contender, root))
                problem = after.problem(root / "copy")
                assert not problem, (work, contender, problem)
                shutil.rmtree(root / "copy")
            rows.append(row)
        shutil.rmtree(root / "lake")
    return rows


def add(row: Row, measured: Row) -> None:
    assert measured.wall is not None and measured.cpu is not None and measured.peak_mib is not None
    add_round(row, measured.wall, measured.cpu)
    row.peak_mib, row.note = max(measured.peak_mib, row.peak_mib or 0), measured.note


def in_a_process(contender: str, root: Path) -> Row:
    command = [sys.executable, "-m", "pipelines.many_files", contender, str(root / "batch.parquet"), str(root / "copy")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main(contender: str, batch: str, lake: str) -> None:
    """One upsert, in a session that has run a job before."""
    spark = local_session("local[2]", **{"spark.driver.memory": "1g", "spark.fsspeckit.driverBytes": "8m"})
    spark.read.parquet(batch).count()
    row = Row("", contender)
    add_round(row, *timed(spark, contender, Path(batch), Path(lake)))
    python, java = peak_mib(), sum(map(peak_mib, java_processes()))
    row.peak_mib, row.note = python + java, f"driver: {python:.0f} MiB of Python and {java:.0f} MiB of Java"
    print(json.dumps(asdict(row)))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
