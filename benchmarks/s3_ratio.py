"""A merge on an object store beside the same merge by `deltalake` on the same server.

    python benchmarks/s3_ratio.py [--rows 100000] [--files 50] [--repeat 3]

Times are taken on SeaweedFS on loopback, each the best of a few repeats in turn, since the machine is shared. Requests
are counted by moto, with the same files but fewer rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from collections import Counter
from functools import partial
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
from works import PLAIN, make_rows

from fsspeckit.core.storage.object_files import TAILS
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from s3 import servers
from s3.bucket import Bucket

KEYS, TOUCHED = 10_000, 5


def source(files: int, rows: int) -> pa.Table:
    """Keys in a few of the files."""
    chosen = [i * files // TOUCHED for i in range(TOUCHED)]
    each = min(KEYS // TOUCHED, rows)
    return make_rows(PLAIN, np.concatenate([np.arange(i * rows, i * rows + each) for i in chosen]), 4711)


def build(bucket: Bucket, files: int, rows: int, options: dict[str, str]) -> tuple[str, str]:
    """The same rows in as many files: a plain lake and a Delta table."""
    prefix = uuid.uuid4().hex[:12]
    parts = {f"f{i:04d}.parquet": make_rows(PLAIN, np.arange(i * rows, (i + 1) * rows), i) for i in range(files)}
    plain = bucket.write(f"{prefix}/plain", parts, row_group_size=max(1, rows // 4))
    delta = f"s3://{bucket.name}/{prefix}/delta"
    for part in parts.values():
        deltalake.write_deltalake(delta, part, mode="append", storage_options=options)
    return plain, delta


def merge_plain(url: str, rows: pa.Table) -> None:
    TAILS.__init__()  # type: ignore[misc]
    assert PyArrowDatasetIO().merge(rows, url, "upsert", ["id"]).updated == rows.num_rows


def merge_delta(url: str, rows: pa.Table, options: dict[str, str]) -> None:
    target = deltalake.DeltaTable(url, storage_options=options)
    merge = target.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert metrics["num_target_rows_updated"] == rows.num_rows


def options_of(endpoint: str) -> dict[str, str]:
    """The options with which `deltalake` commits safely on such a store."""
    return {**servers.environment(endpoint), "conditional_put": "etag"}


def times(files: int, rows: int, repeat: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder, servers.seaweed(Path(folder)) as endpoint:
        os.environ.update(servers.environment(endpoint))
        options, wanted = options_of(endpoint), source(files, rows)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(repeat):
            plain, delta = build(Bucket(servers.client_of(endpoint)), files, rows, options)
            start = time.perf_counter()
            merge_plain(plain, wanted)
            between = time.perf_counter()
            merge_delta(delta, wanted, options)
            ours.append(between - start)
            theirs.append(time.perf_counter() - between)
        return min(ours), min(theirs)


def requests(files: int) -> tuple[Counter[str], Counter[str]]:
    with servers.Moto().running() as server:
        os.environ.update(servers.environment(server.endpoint))
        options, wanted = options_of(server.endpoint), source(files, 1000)
        plain, delta = build(Bucket(servers.client_of(server.endpoint)), files, 1000, options)
        counted = []
        for merge in (partial(merge_plain, plain, wanted), partial(merge_delta, delta, wanted, options)):
            server.requests.clear()
            merge()
            counted.append(Counter(request.method for request in server.requests))
        return counted[0], counted[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    ours, theirs = times(options.files, options.rows, options.repeat)
    print(f"{KEYS:,} keys in {TOUCHED} of {options.files} files of {options.rows:,} rows")
    print(f"  fsspeckit {ours:.2f} s, deltalake {deltalake.__version__} {theirs:.2f} s: ratio {ours / theirs:.2f}")
    for name, counts in zip(("fsspeckit", "deltalake"), requests(options.files), strict=True):
        print(f"  requests of {name}: {counts.total()} ({', '.join(f'{v} {k}' for k, v in sorted(counts.items()))})")


if __name__ == "__main__":
    main()
