"""Compaction beside a copy of the bytes, DuckDB's COPY and delta-rs, as ratios of one run.

    python benchmarks/compaction.py [--scale 1.0] [--repeat 3]

The programs take turns and the best time of each counts, since the machine may be shared. Each runs in a process of its
own, whose peak memory is reported. The ratios are saved for `report.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from file_results import Part, Ratio
from works import PLAIN, make_rows

LIMITS = {"joined": 1.5, "joined, four row groups and page indexes": 2.0, "encoded, to DuckDB": 1.0}
LIMITS["encoded, to delta-rs"] = 0.65
MEMORY = 400
"""The limit of peak memory in MiB."""


def write_lake(folder: Path, files: int, rows: int, **options: object) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        table = make_rows(PLAIN, np.arange(number * rows, (number + 1) * rows), number)
        pq.write_table(table, folder / f"f{number:05d}.parquet", **options)


def run(program: str, lake: Path, work: Path) -> dict[str, float]:
    """The seconds, also of processors, and the peak memory in MiB of one program on a fresh copy of the lake."""
    copy = work / "lake"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(lake, copy)
    subprocess.run(["sync"], check=True)
    command = [sys.executable, __file__, "--program", program, "--lake", str(copy)]
    done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    return dict(done)


def copy_bytes(lake: str) -> None:
    target = Path(lake).with_name("copied")
    target.mkdir(exist_ok=True)
    for file in sorted(Path(lake).glob("*.parquet")):
        shutil.copyfile(file, target / file.name)
        with open(target / file.name, "rb") as copied:
            os.fsync(copied.fileno())
    shutil.rmtree(target)


def compact(lake: str) -> None:
    import fsspeckit

    fsspeckit.compact(lake)


def duckdb_copy(lake: str) -> None:
    import duckdb

    target = Path(lake).with_name("out.parquet")
    duckdb.sql(f"COPY (SELECT * FROM '{lake}/*.parquet') TO '{target}' (FORMAT parquet)")
    target.unlink()


def delta_compact(lake: str) -> None:
    import deltalake

    deltalake.DeltaTable(lake).optimize.compact(target_size=256_000_000)


PROGRAMS = {"copy": copy_bytes, "fsspeckit": compact, "duckdb": duckdb_copy, "delta": delta_compact}


def measured(program: str, lake: str) -> None:
    """In a process of its own: imports are not timed."""
    __import__(
        {"copy": "shutil", "fsspeckit": "fsspeckit.datasets.pyarrow", "delta": "deltalake"}.get(program, program)
    )
    started, cpu = time.perf_counter(), time.process_time()
    PROGRAMS[program](lake)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "cpu": cpu, "memory": int(peak.split()[1]) >> 10}))


def delta_lake(folder: Path, files: int, rows: int) -> None:
    import deltalake

    for number in range(files):
        table = make_rows(PLAIN, np.arange(number * rows, (number + 1) * rows), number)
        deltalake.write_deltalake(str(folder), table, mode="append")


Best = dict[str, dict[str, float]]
"""The least of each figure by program; of memory the most."""


def report(name: str, best: Best, against: str) -> Ratio:
    ours, theirs = best["fsspeckit"], best[against]
    detail = f"{ours['seconds']:.2f} s, {against} {theirs['seconds']:.2f} s; {ours['memory']:.0f} MiB"
    ratio = Ratio(name, ours["seconds"] / theirs["seconds"], LIMITS[name], ours["cpu"] / theirs["cpu"], detail)
    print(f"{name}: {ratio.ratio:.2f}, {ratio.cpu:.2f} of processor time (at most {ratio.limit}): {detail}", flush=True)
    return ratio


def compare(lakes: dict[str, Path], work: Path, repeat: int) -> Best:
    best: Best = {}
    for _ in range(repeat):
        for program, lake in lakes.items():
            found = run(program, lake, work)
            before = best.setdefault(program, found)
            most = max(found["memory"], before["memory"])
            best[program] = {name: min(found[name], before[name]) for name in found} | {"memory": most}
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--program", choices=list(PROGRAMS))
    parser.add_argument("--lake")
    arguments = parser.parse_args()
    if arguments.program:
        measured(arguments.program, arguments.lake)
        return
    files = max(4, int(20 * arguments.scale))
    with tempfile.TemporaryDirectory(prefix="compaction-") as folder:
        work = Path(folder)
        write_lake(work / "large", files, 200_000)
        write_lake(work / "indexed", max(4, files // 4), 800_000, row_group_size=200_000, write_page_index=True)
        small = int(1000 * arguments.scale)
        write_lake(work / "small", small, 10_000)
        has_delta = importlib.util.find_spec("deltalake") is not None
        if has_delta:
            delta_lake(work / "delta", small, 10_000)
        large, indexed, tiny = work / "large", work / "indexed", work / "small"
        ours = {"copy": large, "fsspeckit": large}
        best = [compare(ours, work / "run", arguments.repeat)]
        ratios = [report("joined", best[-1], "copy")]
        best.append(compare(dict.fromkeys(ours, indexed), work / "run", arguments.repeat))
        ratios.append(report("joined, four row groups and page indexes", best[-1], "copy"))
        programs = {"fsspeckit": tiny, "duckdb": tiny, **({"delta": work / "delta"} if has_delta else {})}
        best.append(compare(programs, work / "run", arguments.repeat))
        ratios.append(report("encoded, to DuckDB", best[-1], "duckdb"))
        if has_delta:
            ratios.append(report("encoded, to delta-rs", best[-1], "delta"))
        peak = max(found["fsspeckit"]["memory"] for found in best)
    ratios.append(Ratio("peak memory, MiB", peak, MEMORY))
    called = f"compaction.py --scale {arguments.scale:g} --repeat {arguments.repeat}"
    whole = arguments.scale == 1 and arguments.repeat >= 3
    Part("compaction", called, ratios, whole, ("duckdb", "deltalake") if has_delta else ("duckdb",)).save()


if __name__ == "__main__":
    main()
