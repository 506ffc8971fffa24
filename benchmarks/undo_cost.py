"""What `undoable=True` adds to a merge into 50 files: processor time and time, with and without it in turn, as ratios.

`python benchmarks/undo_cost.py [rounds]`
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from file_results import Part, Ratio

import fsspeckit

FILES, ROWS = 50, 50_000


def make(lake: Path) -> None:
    lake.mkdir()
    rng = np.random.default_rng(0)
    for i in range(FILES):
        ids = np.arange(i * ROWS, (i + 1) * ROWS)
        columns = {f"c{n}": rng.random(ROWS) for n in range(4)}
        pq.write_table(pa.table({"id": ids, "n": np.zeros(ROWS, np.int64), **columns}), lake / f"f{i:02d}.parquet")


def measured(lake: Path, number: int, *, undoable: bool) -> tuple[float, float]:
    """Processor time and time of one merge that rewrites every file."""
    keys = np.arange(0, FILES * ROWS, ROWS // 10)
    old = pq.read_table(lake, filters=[("id", "in", keys.tolist())])
    source = old.set_column(1, "n", pa.array(np.full(len(old), number), pa.int64()))
    cpu, wall = time.process_time(), time.perf_counter()
    result = fsspeckit.merge(source, str(lake), "update", ["id"], undoable=undoable)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert len(result.rewritten_files) == FILES
    fsspeckit.history(str(lake), keep=0)
    return cpu, wall


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        make(lake)
        measured(lake, -1, undoable=True)
        for number in range(rounds):
            for undoable in (False, True) if number % 2 else (True, False):
                times[undoable].append(measured(lake, 2 * number + undoable, undoable=undoable))
    found = {}
    for name, index in (("processor time", 0), ("time", 1)):
        plain, kept = (statistics.median(t[index] for t in times[undoable]) for undoable in (False, True))
        print(f"{name}: {plain:.3f} s without, {kept:.3f} s with undoable=True, ratio {kept / plain:.3f}")
        found[name] = kept / plain
    text, detail = "a merge of 50 files with undoable=True, to one without", f"medians of {rounds} rounds"
    ratio = Ratio(text, found["time"], 1.02, found["processor time"], detail)
    Part(
        "undo",
        f"undo_cost.py {rounds}",
        [Ratio(text, found["time"], 1.02, found["processor time"], detail)],
        rounds >= 10,
    ).save()
