"""A stream of changes into a table, by `spark/jobs/table_stream.py`: its source, its runs and kills, and its rows."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spark_process import kill, start

NEW_KEYS, UPDATES = 10, 10
BATCHES_PER_DAY = 5


def changes_of(batch: int) -> list[dict[str, Any]]:
    """Two changes each of new keys and of random earlier ones, out of order."""
    chance = random.Random(batch)
    earlier = chance.sample(range(batch * NEW_KEYS), min(UPDATES, batch * NEW_KEYS))
    found = []
    for key in [*range(batch * NEW_KEYS, (batch + 1) * NEW_KEYS), *earlier]:
        day = f"d{key // NEW_KEYS // BATCHES_PER_DAY:03d}"
        found += [{"id": key, "seq": 2 * batch + n, "x": f"batch {batch}, {n}", "day": day} for n in range(2)]
    chance.shuffle(found)
    return found


def write_changes(raw: Path, batches: int) -> dict[int, tuple[str, str]]:
    """One file per batch. Returns what the table must hold in the end: of every key the last change and its day."""
    raw.mkdir(parents=True)
    last: dict[int, tuple[str, str]] = {}
    for batch in range(batches):
        rows = changes_of(batch)
        (raw / f"{batch:05d}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(raw / f"{batch:05d}.json", (batch, batch))  # Spark takes the oldest file first
        last |= {row["id"]: (row["x"], row["day"]) for row in sorted(rows, key=lambda row: row["seq"])}
    return last


def table_folder(root: Path) -> Path:
    return root / "warehouse" / "lake.db" / "events"


def run(root: Path, compact_every: int, last: str = "") -> tuple[list[int], Any]:
    """The batches of a run, and what SQL sees at its end; `None` if it was killed after the `last` batch."""
    process = start("table_stream", str(root), str(compact_every), *[last] * bool(last))
    try:
        out, problems = process.communicate(timeout=3000)
    finally:
        kill(process)
    assert process.returncode in (0, -signal.SIGKILL), problems[-4000:]
    lines = [line for line in out.splitlines() if line != "started"]
    end = json.loads(lines.pop()) if process.returncode == 0 else None
    return [int(line) for line in lines], end


def kill_at_random(root: Path, compact_every: int, batches: int, chance: random.Random) -> None:
    """Kill a run some moment after so many batches: while it reads, merges, changes the catalog or compacts."""
    process = start("table_stream", str(root), str(compact_every))
    try:
        assert process.stdout is not None
        for _ in range(batches + 1):
            assert process.stdout.readline()
        time.sleep(chance.uniform(0, 1.5))
    finally:
        kill(process)


def rows_of_files(table: Path) -> dict[int, tuple[str, str, str]]:
    """Of every key its text, its day and what was drawn when its batch was computed."""
    files = [(path.parent.name.removeprefix("day="), pq.ParquetFile(path)) for path in table.rglob("*.parquet")]
    found = [(row["id"], (row["x"], day, row["drawn"])) for day, file in files for row in file.read().to_pylist()]
    assert len(dict(found)) == len(found), "a key is in the files twice"
    return dict(found)
