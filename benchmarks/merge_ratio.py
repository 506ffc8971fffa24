"""How much a merge costs beside the bare minimum: PyArrow reading and writing the same files.

    python benchmarks/merge_ratio.py [--rows 100000] [--files 100] [--repeat 3]

Ratios are taken within one run, each the best of a few repeats, since the machine is shared.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.datasets.pyarrow import PyArrowDatasetIO


def table(ids: np.ndarray, seed: int) -> pa.Table:
    """Nine columns: numbers, text of low and high cardinality, times."""
    rng, n = np.random.default_rng(seed), len(ids)
    return pa.table(
        {
            "id": ids,
            "a": rng.integers(0, 1000, n),
            "b": rng.random(n),
            "c": rng.random(n).astype("float32"),
            "d": pa.array(rng.integers(0, 50, n)).cast(pa.string()),
            "e": pa.array(rng.integers(0, 10**12, n)).cast(pa.string()),
            "f": pa.array(rng.integers(0, 10**15, n), pa.timestamp("us")),
            "g": pa.array(rng.integers(0, 20_000, n).astype("int32"), pa.date32()),
            "h": rng.integers(0, 2, n).astype(bool),
        }
    )


def build(root: Path, files: int, rows: int) -> None:
    root.mkdir(parents=True)
    for i in range(files):
        rows_of_file = table(np.arange(i * rows, (i + 1) * rows), i)
        pq.write_table(rows_of_file, root / f"f{i:04d}.parquet", row_group_size=rows // 4)


def best(run: Callable[[], object], prepare: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        prepare()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def read_and_write(root: Path, names: list[str]) -> None:
    for name in names:
        old = pq.ParquetFile(root / name)
        pq.write_table(old.read(), root / f"{name}.new", row_group_size=old.metadata.row_group(0).num_rows)
        (root / f"{name}.new").replace(root / name)


def measure(lake: Path, work: Path, keys: int, touched: int, rows: int, repeat: int) -> tuple[float, float]:
    """Seconds for a merge of `keys` keys in `touched` files, and for reading and writing those files."""
    rng = np.random.default_rng(7)
    starts = np.linspace(0, len(list(lake.iterdir())) - 1, touched).astype(int)
    per_file = keys // touched
    ids = np.concatenate([s * rows + np.sort(rng.choice(rows, per_file, replace=False)) for s in starts])
    source = table(ids, 99)
    names = [f"f{s:04d}.parquet" for s in starts]

    def fresh() -> None:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(lake, work)

    io = PyArrowDatasetIO()
    merge = best(lambda: io.merge(source, str(work), "upsert", ["id"]), fresh, repeat)
    bare = best(lambda: read_and_write(work, names), fresh, repeat)
    return merge, bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        build(lake, options.files, options.rows)
        print(f"{options.files} files x {options.rows:,} rows x 9 columns")
        for keys, touched, limit in ((1_000_000, 10, 3.0), (10_000, 5, 2.0)):
            merge, bare = measure(lake, Path(folder) / "work", keys, touched, options.rows, options.repeat)
            print(
                f"{keys:>9,} keys in {touched:>2} files: merge {merge:.3f} s, PyArrow read+write {bare:.3f} s, "
                f"ratio {merge / bare:.2f} (goal: at most {limit:g})"
            )


if __name__ == "__main__":
    main()
