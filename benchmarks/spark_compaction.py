"""Spark: our compaction, Delta's OPTIMIZE and Iceberg's `rewrite_data_files`, warmed up, in one session.

    scripts/bench-spark --compaction [--files 400] [--rows 10000] [--rounds 3]

All begin with the same small files, and the target size is 256 MB for all. Jars are fetched as by `bench_spark.py`; a
program whose jars cannot be fetched is left out. The fastest round of each counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_spark import PACKAGES, fetched, session_conf, versions
from file_results import Part, Ratio
from processes import cpu_seconds
from spark_contenders import Delta, Iceberg, _Folder
from spark_works import Counts, Work, make_lake

from fsspeckit.datasets.spark import SparkDatasetIO, start_session

TARGET = 256_000_000


class Ours(_Folder):
    name = "fsspeckit"

    def compact(self) -> None:
        SparkDatasetIO(self.spark).compact(str(self._table), target_size=TARGET)

    def files(self) -> int:
        return len(list(self._table.rglob("*.parquet")))


class Optimize(Delta):
    def __init__(self, spark: Any, root: Path) -> None:
        super().__init__(spark, root, vectors=False)
        self.name = "Delta's OPTIMIZE"

    def compact(self) -> None:
        self.spark.sql(f"OPTIMIZE delta.`{self._table}`").collect()

    def files(self) -> int:
        return int(self.spark.sql(f"DESCRIBE DETAIL delta.`{self._table}`").first()["numFiles"])


class RewriteDataFiles(Iceberg):
    def __init__(self, spark: Any) -> None:
        super().__init__(spark, "copy-on-write")
        self.name = "Iceberg's rewrite_data_files"

    def compact(self) -> None:
        options = f"map('target-file-size-bytes', '{TARGET}')"
        self.spark.sql(f"CALL ice.system.rewrite_data_files(table => '{self._short}', options => {options})").collect()

    def files(self) -> int:
        return int(self.spark.sql(f"SELECT count(*) FROM {self._table}.files").first()[0])


def timed(program: Any, rows: int) -> tuple[float, float]:
    """Wall time and CPU time of one compaction, whose result is checked."""
    program.reset()
    before = program.files()
    os.sync()
    wall, cpu = time.perf_counter(), cpu_seconds()
    program.compact()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    counted = program.rows().selectExpr(*Counts.SQL).first()
    assert program.files() < before and counted[0] == rows, f"{program.name}: {program.files()} files, {counted}"
    return wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("files", 400), ("rows", 10_000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-") as folder:
        root = Path(folder)
        packages = {name: jars for name in PACKAGES if (jars := fetched(name))}
        conf = session_conf(root, packages) | {"spark.databricks.delta.optimize.maxFileSize": str(TARGET)}
        spark = start_session("local[*]", conf)
        lake = root / "lake"
        make_lake(spark, lake, Work("compaction", "", options.files, options.rows, 1, 1, 0))
        programs: list[Any] = [Ours(spark, root)]
        programs += [Optimize(spark, root)] if "delta" in packages else []
        programs += [RewriteDataFiles(spark)] if "iceberg" in packages else []
        for program in programs:
            program.prepare(lake)
        found: dict[str, list[tuple[float, float]]] = {program.name: [] for program in programs}
        for number in range(options.rounds + 1):  # the first round warms up
            for program in programs:
                measured = timed(program, options.files * options.rows)
                found[program.name] += [measured] if number else []
        best = {name: (min(t[0] for t in times), min(t[1] for t in times)) for name, times in found.items()}
        spark.stop()
    wall, cpu = best.pop(Ours.name)
    ratios = []
    for name, (their_wall, their_cpu) in best.items():
        text = f"{options.files:,} files of {options.rows:,} rows joined, to {name}"
        ratios.append(Ratio(text, wall / their_wall, 1.0, cpu / their_cpu, f"{wall:.2f} s, {their_wall:.2f} s"))
        print(f"{text}: {ratios[-1].ratio:.2f}, {ratios[-1].cpu:.2f} of processor time ({ratios[-1].detail})")
    called = f"spark_compaction.py --files {options.files} --rows {options.rows} --rounds {options.rounds}"
    whole = options.files >= 400 and options.rounds >= 3
    Part("compaction with Spark", called, ratios, whole, versions=versions(packages)).save()


if __name__ == "__main__":
    main()
