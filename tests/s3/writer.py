"""A process that merges again and again into one data set, until it is killed or done.

    python -m s3.writer <engine> <url> <number> <first> <last>

Merge m of writer w upserts the row of key w (counting up) and inserts a row of its own. A line is printed after each
that was acknowledged; who starts it may kill or stop it at any time.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from fsspeckit.api import dataset_io
from fsspeckit.core.errors import CommitUnfinishedError, DatasetLockedError


def opened(engine: str) -> Any:
    if engine != "spark":
        return dataset_io(engine)
    from spark_session import local_session

    return dataset_io(engine, spark=local_session("local[1]"))


def main(engine: str, url: str, number: int, first: int, last: int) -> None:
    io = opened(engine)
    for turn in range(first, last):
        source = pa.table({"id": [number, 1000 * (number + 1) + turn], "n": [turn + 1, turn]})
        while True:
            try:
                io.merge(source, url, "upsert", ["id"], lock_timeout=300)
            except DatasetLockedError:  # it was silent for too long, and has committed nothing
                print(f"again {number} {turn}", flush=True)
                continue
            except CommitUnfinishedError:
                print(f"unsure {number} {turn}", flush=True)
                raise
            print(f"done {number} {turn}", flush=True)
            break


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
