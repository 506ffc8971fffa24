"""Feeds that arrive late, twice or in another order: with `sequence_by`, the newest row of a key wins.

Rows that are older than the lake's change nothing and are counted as skipped. So a feed may be merged again, and
upserts may arrive in any order. Deletes are the exception: a deleted row leaves no trace, and an older upsert that
arrives later inserts it again. `soft_deletes.py` shows what to do about that.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import fsspeckit

MONDAY = pa.table({"id": [1, 2], "state": ["new", "new"], "ts": [10, 11], "gone": [False, False]})
TUESDAY = pa.table({"id": [1, 2], "state": ["paid", None], "ts": [20, 21], "gone": [False, True]})


def merge_feed(feed: pa.Table, lake: str) -> str:
    result = fsspeckit.merge(
        feed, lake, key_columns=["id"], delete_column="gone", sequence_by="ts", on_duplicates="latest"
    )
    return f"{result.inserted} inserted, {result.updated} updated, {result.deleted} deleted, {result.skipped} skipped"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = str(Path(folder) / "orders")
        print("Monday:       ", merge_feed(MONDAY, lake))
        print("Tuesday:      ", merge_feed(TUESDAY, lake))
        print("Tuesday again:", merge_feed(TUESDAY, lake))
        print("in the lake:  ", fsspeckit.read(lake).to_pylist())
        print("Monday again: ", merge_feed(MONDAY, lake))
        print("order 2 is back:", 2 in fsspeckit.read(lake)["id"].to_pylist())


if __name__ == "__main__":
    main()
