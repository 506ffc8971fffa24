"""Pipelines as companies run them: a daily batch, a stream with kills, a cluster that loses executors, many files.

    make bench-pipelines [ARGS="--scale 0.1 --rounds 1 --only daily,stream"]

After every merge, every row is compared with a model. Ratios to `fsspeckit, Spark` are printed; a part that is run
again replaces its rows in benchmarks/results/pipelines.json if the scale is the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyspark
from pipelines import cluster, contenders, daily, many_files, stream
from results import Row, Suite, load, our_version

PIPELINES = {
    "daily": (daily.run, daily.ABOUT),
    "stream": (stream.run_stream, stream.ABOUT),
    "cluster": (cluster.run, cluster.ABOUT),
    "files": (many_files.run, many_files.ABOUT),
}
ABOUT = {
    **contenders.ABOUT,
    cluster.KILLED: "the same, while executors are killed that rewrite files",
    stream.KILLED: "`foreach_batch(table=…)`, killed between a commit and Spark's checkpoint, and at random",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PIPELINES))
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        rows = PIPELINES[options.only][0](Path(options.folder), options.scale, options.rounds)
        print(json.dumps([asdict(row) for row in rows]))
        return
    works = {work: about for _, abouts in PIPELINES.values() for work, about in abouts.items()}
    versions = {"fsspeckit": our_version(), "pyspark": pyspark.__version__, "pyarrow": pa.__version__}
    suite = Suite("pipelines", [contenders.OURS], contenders.OVERWRITE, works, ABOUT, options.scale, versions=versions)
    before = load("pipelines")
    for name in options.only.split(","):
        rows = measured(name, options.scale, options.rounds)
        print_ratios(rows)
        suite.rows += rows
    run_now = {row.work for row in suite.rows}
    if before is not None and before.scale == options.scale:
        suite.rows += [row for row in before.rows if row.work not in run_now]
    suite.rows.sort(key=lambda row: list(works).index(row.work))
    suite.whole = options.scale == 1 and {row.work for row in suite.rows} == set(works)
    suite.save()


def measured(name: str, scale: float, rounds: int) -> list[Row]:
    """A pipeline in a process of its own, since each has its own Spark session."""
    folder = tempfile.mkdtemp(prefix="fsspeckit-pipelines-")
    command = [sys.executable, "-m", "pipelines.run", "--only", name, "--folder", folder]
    command += ["--scale", str(scale), "--rounds", str(rounds)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        shutil.rmtree(folder)
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def print_ratios(rows: list[Row]) -> None:
    ours = {row.work: row.wall for row in rows if row.contender == contenders.OURS}
    for row in rows:
        own = ours.get(row.work)
        ratio = f"{row.wall / own:5.2f} times ours" if row.wall and own else ""
        print(f"{row.work:26} {row.contender:40} {row.wall or 0:7.2f} s  {ratio}  {row.note}", flush=True)


if __name__ == "__main__":
    main()
