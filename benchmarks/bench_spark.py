"""Spark: our merge, Delta's MERGE, Iceberg's MERGE and read-join-overwrite, warmed up, in one session.

    make bench-spark [ARGS="--scale 0.1 --rounds 2 --works tiny --contenders fsspeckit,delta"]

Contenders take turns, and the fastest round of each counts. CPU seconds are printed too, for machines in use. The files
are the same for all: Delta converts a copy of the lake, Iceberg adds its files to a table. After every merge all rows
and the rows of the source are counted, and their keys summed up. A contender with wrong counts is reported without a
time. Jars are downloaded once, by `spark.jars.packages`; without them a contender is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from goals import GOALS
from processes import cpu_seconds
from results import Row, Suite, our_version
from spark_contenders import Contender, contenders
from spark_works import WORKS, Counts, Work, make_lake, make_source

from fsspeckit.datasets.spark import start_session

JARS = Path(sys.prefix) / "jars"
PACKAGES = {
    "delta": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
OURS = "fsspeckit, Spark"
LIMITS = {(goal.work, goal.against): goal.limit for goal in GOALS if goal.suite == "spark"}


@dataclass
class Timed:
    """The rounds of a contender on a work; `wrong` is the error in its rows."""

    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    wrong: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of rows in a large file, and of the number of small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", default="", help="names, or beginnings of names, separated by semicolons")
    parser.add_argument("--contenders", default="", help="as works")
    parser.add_argument("--fetch", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fetch:
        start_session("local[1]", CONF | {"spark.jars.packages": options.fetch[0], "spark.jars.ivy": options.fetch[1]})
        return
    whole = options.scale == 1 and not options.works and not options.contenders
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-") as folder:
        root = Path(folder)
        packages = {name: jars for name in PACKAGES if (jars := fetched(name))}
        spark = start_session("local[*]", session_conf(root, packages))
        taking_part = chosen(contenders(spark, root, set(packages)), options.contenders)
        works = chosen(WORKS, options.works)
        suite = Suite(
            "spark",
            ours=[OURS],
            floor="read-join-overwrite",
            works={work.name: work.about for work in works},
            contenders={contender.name: contender.about for contender in taking_part},
            scale=options.scale,
            whole=whole,
            versions=versions(packages),
        )
        warm_up(root, taking_part, works)
        for work in works:
            suite.rows += rows_of(work, compare(root, work.scaled(options.scale), taking_part, options.rounds))
        spark.stop()
    if whole:
        suite.save()


def versions(packages: Iterable[str]) -> dict[str, str]:
    ours = {"fsspeckit": our_version(), "pyspark": pyspark.__version__, "pyarrow": pa.__version__}
    return ours | {name: PACKAGES[name].rpartition(":")[2] for name in packages}


def chosen(all_of_them: Any, names: str) -> Any:
    return [one for one in all_of_them if one.name.lower().startswith(tuple(names.lower().split(";")))]


def fetched(name: str) -> list[Path]:
    """The jars of a package, which Spark downloads; none if it cannot."""
    folder = JARS / PACKAGES[name].replace(":", "_")
    if not list(folder.glob("jars/*.jar")):
        command = [sys.executable, __file__, "--fetch", PACKAGES[name], str(folder)]
        child = subprocess.run(command, capture_output=True, text=True)
        if child.returncode:
            said = [line for line in child.stderr.splitlines() if "unresolved" in line or "Exception" in line]
            print(f"{name} is left out, since its jars cannot be fetched: {(said or ['?'])[0].strip()}", flush=True)
            return []
    return sorted(folder.glob("jars/*.jar"))


def session_conf(root: Path, packages: dict[str, list[Path]]) -> dict[str, str]:
    """One session with all extensions, so that all contenders are equally warm."""
    conf = CONF | {"spark.local.dir": str(root / "spark"), "spark.sql.warehouse.dir": str(root / "tables")}
    if packages:
        conf["spark.jars"] = ",".join(str(jar) for jars in packages.values() for jar in jars)
        conf["spark.sql.extensions"] = ",".join(EXTENSIONS[name] for name in packages)
    if "delta" in packages:
        conf["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if "iceberg" in packages:
        conf |= {
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(root / "ice"),
        }
    return conf


def warm_up(root: Path, taking_part: list[Contender], works: list[Work]) -> None:
    """Java compiles code that runs often, so every contender first does each kind of merge twice, on a small lake."""
    for kind in sorted({work.kind for work in works}):
        inserts = 0 if kind == "delete" else 60
        compare(root, Work("warm-up", "", 6, 20_000, 3, 600, inserts, kind=kind), taking_part, 2)


def compare(root: Path, work: Work, taking_part: list[Contender], rounds: int) -> dict[str, Timed]:
    """Every contender in turn, for some rounds."""
    lake, source = root / "lake", root / "source"
    make_lake(taking_part[0].spark, lake, work)
    expected = make_source(source, work)
    timed = {contender.name: Timed() for contender in taking_part}
    for contender in taking_part:
        contender.prepare(lake)
    for _ in range(rounds * work.repeated):
        for contender in taking_part:
            if not timed[contender.name].wrong:
                run_once(contender, source, work, expected, timed[contender.name])
    for contender in taking_part:
        contender.clear()
    shutil.rmtree(lake)
    shutil.rmtree(source)
    return timed


def run_once(contender: Contender, source: Path, work: Work, expected: Counts, timed: Timed) -> None:
    contender.reset()
    changes = contender.spark.read.parquet(str(source))
    changes.createOrReplaceTempView("changes")
    os.sync()
    wall, cpu = time.perf_counter(), cpu_seconds()
    contender.merge(changes, work.kind)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    counts = Counts(*contender.rows().selectExpr(*Counts.SQL).first())
    if counts != expected:
        timed.wrong = f"has {counts}, not {expected}"
    timed.walls.append(wall)
    timed.cpus.append(cpu)


def rows_of(work: Work, timed: dict[str, Timed]) -> list[Row]:
    """The rows of the results, which are also printed."""
    print(f"\n{work.name} (load of the machine {os.getloadavg()[0]:.1f})", flush=True)
    ours = timed.get(OURS, Timed())
    rows = []
    for name, measured in timed.items():
        if measured.wrong:
            print(f"  {name:34} {measured.wrong}", flush=True)
            rows.append(Row(work.name, name, note=f"wrong: {measured.wrong}"))
            continue
        wall, cpu = min(measured.walls), min(measured.cpus)
        line = f"  {name:34} {wall:6.2f} s, median {statistics.median(measured.walls):6.2f}, CPU {cpu:6.2f}"
        if name != OURS and ours.walls and not ours.wrong:
            line += ratio_text(min(ours.walls) / wall, min(ours.cpus) / (cpu or 1), LIMITS.get((work.name, name)))
        print(line, flush=True)
        rows.append(Row(work.name, name, round(wall, 3), round(cpu, 2) or None, rounds=len(measured.walls)))
    return rows


def ratio_text(wall: float, cpu: float, goal: float | None) -> str:
    met = "" if goal is None else f", goal {goal}: {'met' if wall <= goal else 'NOT MET'}"
    return f"  ours is {wall:.2f} of it ({cpu:.2f} of its CPU{met})"


if __name__ == "__main__":
    main()
