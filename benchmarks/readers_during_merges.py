"""What other programs see of a data set while it is merged into, in a loop: errors, mixed versions, wrong row counts.

Every merge updates every row to the same number, so that a reader who sees two numbers sees two versions.
`python benchmarks/readers_during_merges.py [seconds]`
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

ROWS, FILES = 8_000, 8
WRITER = """
import sys, itertools, pyarrow as pa
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
lake, replace, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
for n in itertools.count(1):
    PyArrowDatasetIO().merge(pa.table({"id": range(rows), "n": [n] * rows}), lake, "update", ["id"], replace=replace)
"""


def with_pyarrow(lake: str) -> list[int]:
    return list(pq.read_table(lake)["n"].to_pylist())


def with_pandas(lake: str) -> list[int]:
    import pandas

    return list(pandas.read_parquet(lake)["n"])


def with_duckdb(lake: str) -> list[int]:
    import duckdb

    with duckdb.connect() as connection:
        return [row[0] for row in connection.execute(f"select n from read_parquet('{lake}/**/*.parquet')").fetchall()]


def with_polars(lake: str) -> list[int]:
    import polars

    numbers: list[int] = polars.read_parquet(f"{lake}/*.parquet")["n"].to_list()
    return numbers


def watch(read: Callable[[str], list[int]], replace: str, seconds: float) -> Counter[str]:
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        lake.mkdir()
        for i in range(FILES):
            pq.write_table(pa.table({"id": range(i, ROWS, FILES), "n": [0] * (ROWS // FILES)}), lake / f"f{i}.parquet")
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(lake), replace, str(ROWS)])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            look(read, str(lake), seen)
        writer.kill()
        writer.wait()
    return seen


def look(read: Callable[[str], list[int]], lake: str, seen: Counter[str]) -> None:
    seen["reads"] += 1
    try:
        numbers = read(lake)
    except BaseException as error:  # Polars panics with a BaseException
        if isinstance(error, KeyboardInterrupt):
            raise
        seen["errors"] += 1
        return
    seen["mixed"] += len(set(numbers)) > 1
    seen["rows"] += len(numbers) != ROWS


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"{'reader':10} {'replace':10} {'reads':>7} {'errors':>7} {'two versions':>13} {'wrong row count':>16}")
    for replace in ("in_place", "new_file"):
        for read in (with_pyarrow, with_pandas, with_duckdb, with_polars):
            seen = watch(read, replace, seconds)
            name = read.__name__.removeprefix("with_")
            print(
                f"{name:10} {replace:10} {seen['reads']:7} {seen['errors']:7} {seen['mixed']:13} {seen['rows']:16}",
                flush=True,
            )
