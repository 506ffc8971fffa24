"""Peak memory of a merge of 10,000 keys into 1, 4 and 16 files of a million rows each.

    python benchmarks/peak_memory.py [--rows 1000000]

Each merge runs in a process of its own; the peak is what the kernel counted for it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from merge_ratio import table

from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

KEYS = 10_000


def merge(lake: str, source: str) -> None:
    """In a child: merge and print the peak in MiB."""
    result = PyArrowDatasetIO().merge(source, lake, "upsert", ["id"])
    assert (result.updated, result.inserted) == (KEYS, 0)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def peak(folder: Path, files: int, rows: int) -> int:
    lake = folder / f"lake{files}"
    lake.mkdir()
    for i in range(files):
        rows_of_file = table(np.arange(i * rows, (i + 1) * rows), i)
        pq.write_table(rows_of_file, lake / f"f{i:02d}.parquet", row_group_size=rows // 8)
    source = folder / f"source{files}.parquet"
    pq.write_table(table(np.linspace(0, files * rows - 1, KEYS).astype(np.int64), 99), source)
    child = [sys.executable, __file__, "--child", str(lake), str(source)]
    return int(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        merge(*options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        peaks = {files: peak(Path(folder), files, options.rows) for files in (1, 4, 16)}
    for files, mib in peaks.items():
        print(f"{KEYS:,} keys into {files:>2} files of {options.rows:,} rows: peak {mib} MiB")
    print(f"from 4 to 16 files: {peaks[16] / peaks[4] - 1:+.1%} (goal: at most +20%)")


if __name__ == "__main__":
    main()
