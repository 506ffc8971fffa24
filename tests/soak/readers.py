"""A reader of the soak: `python -m soak.readers <lake>` reads until its standard input ends, and prints what it saw.

Every file is old or new, never half: what can be opened can be read, and each row is one that some writer wrote whole.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import fsspeckit
from fsspeckit.core.errors import FsspeckitError
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO


def look(lake: Path, seen: Counter[str]) -> None:
    # `rglob` fails if a folder is removed while it lists; `walk` goes on.
    files = [Path(folder, name) for folder, _, names in os.walk(lake) for name in names if name.endswith(".parquet")]
    for path in sorted(files):
        try:
            with open(path, "rb") as file:
                table = pq.ParquetFile(file).read()
        except FileNotFoundError:  # replaced under another name since the folder was read
            continue
        except (OSError, pa.ArrowException) as error:
            seen[f"difference: {path.name}: {error}"] += 1
            continue
        seen["files"] += 1
        if any(row["x"] != text_of(row["id"], row["n"]) for row in table.to_pylist()):
            seen[f"difference: {path.name} has torn rows"] += 1


def look_as_a_user(lake: Path, seen: Counter[str]) -> None:
    """Our own `read` may meet a file that goes away, and then says so; it changes nothing and never gives torn rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            table = PyArrowDatasetIO().read(str(lake))
        except (FsspeckitError, FileNotFoundError):
            seen["refused reads"] += 1
            return
    seen["reads"] += 1
    if any(row["x"] != text_of(row["id"], row["n"]) for row in table.to_pylist()):
        seen["difference: read gave torn rows"] += 1


def look_at_a_snapshot(lake: Path, seen: Counter[str]) -> None:
    """All files are of one version: each key once, and the same columns everywhere."""
    keys, columns = Counter[int](), set()
    try:
        folder = lake.stat().st_ino
        with fsspeckit.snapshot(str(lake)) as files:
            for path in files:
                with open(path, "rb") as file:
                    table = pq.ParquetFile(file).read()
                keys.update(table["id"].to_pylist())
                columns.add(tuple(map(str, table.schema)))
            if lake.stat().st_ino != folder:  # the soak itself put a copy in its place
                return
    except (FsspeckitError, FileNotFoundError):
        seen["refused snapshots"] += 1
        return
    seen["snapshots"] += 1
    if twice := [key for key, count in keys.items() if count > 1]:
        seen[f"difference: a snapshot has the keys {twice[:5]} twice"] += 1
    if len(columns) > 1:
        seen[f"difference: a snapshot has files with {columns}"] += 1


def text_of(key: int, number: int) -> str:
    """The text of a row, which tells whether its columns belong together."""
    return f"{key}:{number}:" + "x" * (number % 40)


if __name__ == "__main__":
    seen: Counter[str] = Counter()
    while not select.select([sys.stdin], [], [], 0)[0]:
        lake = Path(sys.argv[1])
        if lake.is_dir():
            look(lake, seen)
            look_as_a_user(lake, seen)
            look_at_a_snapshot(lake, seen)
        time.sleep(0.05)  # the writers need the machine more
    print(json.dumps(seen))
