"""What other programs see of a data set while it is merged into: errors, mixed versions, wrong row counts.

Every merge updates every row to the same number, so that a reader who sees two numbers sees two versions. Each reader
runs in a loop while another process merges, and lists the files itself or holds a snapshot. The ratio compares the time
of the merges with and without snapshots.
`python benchmarks/readers_during_merges.py [merges]`
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from file_results import Part, Ratio

import fsspeckit

ROWS, FILES = 8_000, 8
WRITER = """
import sys, time, pyarrow as pa
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
lake, replace, rows, merges = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
start = time.perf_counter()
for n in range(1, merges + 1):
    PyArrowDatasetIO().merge(pa.table({"id": range(rows), "n": [n] * rows}), lake, "update", ["id"], replace=replace)
print(time.perf_counter() - start, flush=True)
"""
Reader = Callable[[list[str]], list[int]]


def with_pyarrow(files: list[str]) -> list[int]:
    return [n for file in files for n in pq.read_table(file)["n"].to_pylist()]


def with_pandas(files: list[str]) -> list[int]:
    import pandas

    return list(pandas.read_parquet(files)["n"])


def with_duckdb(files: list[str]) -> list[int]:
    import duckdb

    with duckdb.connect() as connection:
        return [row[0] for row in connection.execute("select n from read_parquet(?)", [files]).fetchall()]


def with_polars(files: list[str]) -> list[int]:
    import polars

    numbers: list[int] = polars.read_parquet(files)["n"].to_list()
    return numbers


def watch(read: Reader | None, replace: str, merges: int, *, snapshots: bool) -> tuple[Counter[str], float]:
    """What a reader saw, and how long the merges took."""
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        lake.mkdir()
        for i in range(FILES):
            pq.write_table(pa.table({"id": range(i, ROWS, FILES), "n": [0] * (ROWS // FILES)}), lake / f"f{i}.parquet")
        command = [sys.executable, "-c", WRITER, str(lake), replace, str(ROWS), str(merges)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None and writer.stdout is not None
            writer.stdout.readline()
            writer.stdin.write("\n")
            writer.stdin.flush()
            while read is not None and writer.poll() is None:
                look(read, lake, seen, snapshots=snapshots)
            return seen, float(writer.stdout.readline())


def look(read: Reader, lake: Path, seen: Counter[str], *, snapshots: bool) -> None:
    seen["reads"] += 1
    try:
        if snapshots:
            with fsspeckit.snapshot(str(lake)) as files:
                numbers = read(files)
        else:
            numbers = read(sorted(map(str, lake.glob("*.parquet"))))
    except BaseException as error:  # Polars panics with a BaseException
        if isinstance(error, KeyboardInterrupt):
            raise
        seen["errors"] += 1
        return
    seen["mixed"] += len(set(numbers)) > 1
    seen["rows"] += len(numbers) != ROWS


if __name__ == "__main__":
    merges = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{merges} merges each, {time.strftime('%Y-%m-%d')}")
    print("| reader | replace | files | reads | errors | two versions | wrong row count | merges, seconds | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios: list[Ratio] = []
    mixed: Counter[bool] = Counter()
    for replace in ("in_place", "new_file"):
        for read in (with_pyarrow, with_pandas, with_duckdb, with_polars):
            name = read.__name__.removeprefix("with_")
            _, listed_time = plain = watch(read, replace, merges, snapshots=False)
            for files, (seen, seconds) in (
                ("listed", plain),
                ("snapshot", watch(read, replace, merges, snapshots=True)),
            ):
                counts = " | ".join(f"{seen[key]:,}" for key in ("reads", "errors", "mixed", "rows"))
                ratio = seconds / listed_time
                print(f"| {name} | `{replace}` | {files} | {counts} | {seconds:.1f} | {ratio:.2f} |", flush=True)
                mixed[files == "snapshot"] += seen["errors"] + seen["mixed"] + seen["rows"]
                if files == "snapshot":
                    text = f"time of {merges} merges (`{replace}`) beside {name} with snapshots, to one without"
                    ratios.append(Ratio(text, ratio, 1.5, detail=f"{seen['reads']:,} reads"))
    text = "errors, mixed versions and wrong row counts in all reads with snapshots"
    ratios.append(Ratio(text, mixed[True], 0, detail=f"without snapshots {mixed[False]:,}"))
    Part("readers", f"readers_during_merges.py {merges}", ratios, merges >= 200, ("duckdb", "polars", "pandas")).save()
