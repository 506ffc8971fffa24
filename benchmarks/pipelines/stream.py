"""A stream of 100 micro-batches into a table of Hive's catalog, compacted every 20, without kills and with two."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

from results import Row

from change_stream import kill_at_random, rows_of_files, run, table_folder, write_changes

OURS, KILLED = "fsspeckit, Spark", "fsspeckit, Spark, killed twice"
WORK = "stream of 100 batches"
ABOUT = {
    WORK: "40 changes of 20 keys a batch, a new partition every 5 batches, compacted every 20; seconds with the starts "
    "of Spark"
}


def run_stream(root: Path, scale: float, rounds: int) -> list[Row]:
    batches = max(10, int(100 * scale))
    compact_every, found = max(5, batches // 5), []
    for contender in (OURS, KILLED):
        expected = write_changes(root / "raw", batches)
        started = time.perf_counter()
        if contender == KILLED:
            run(root, compact_every, str(batches // 3))
            kill_at_random(root, compact_every, batches // 3, random.Random(1))
        seen = run(root, compact_every)[1]
        wall = time.perf_counter() - started
        assert {key: (x, day) for key, x, day, _ in seen["rows"]} == expected, "SQL sees other rows"
        assert {key: row[:2] for key, row in rows_of_files(table_folder(root)).items()} == expected
        files, days = len(list(table_folder(root).rglob("*.parquet"))), len(seen["partitions"])
        found.append(Row(WORK, contender, wall, rounds=1, note=f"{files} files in {days} partitions"))
        for path in root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found
