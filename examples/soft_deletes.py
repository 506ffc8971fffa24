"""Soft deletes: the flag is an ordinary column, so that changes may arrive in any order.

A hard delete leaves nothing that an older row could be compared with. A soft delete keeps the key, the sequence and the
flag, and an older upsert that arrives later is skipped. Readers leave out flagged rows. When no older change can arrive
any more, a filter removes them for good.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import fsspeckit

SCHEMA = pa.schema({"id": pa.int64(), "state": pa.string(), "ts": pa.int64(), "deleted": pa.bool_()})
FEEDS = [
    [{"id": 1, "state": "new", "ts": 10, "deleted": False}, {"id": 2, "state": "new", "ts": 11, "deleted": False}],
    [{"id": 1, "state": "paid", "ts": 20, "deleted": False}],
    [{"id": 2, "state": None, "ts": 21, "deleted": True}],
]


def main() -> None:
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        for number, feeds in enumerate(itertools.permutations(FEEDS)):
            lake = str(Path(folder) / f"orders{number}")
            for feed in feeds:
                fsspeckit.merge(pa.Table.from_pylist(feed, SCHEMA), lake, key_columns=["id"], sequence_by="ts")
            ends.append(sorted(fsspeckit.read(lake).to_pylist(), key=lambda row: row["id"]))
        print(len(ends), "orders of the feeds, all with the same end:", all(end == ends[0] for end in ends))
        for row in ends[0]:
            print("in the lake:", row)
        for row in fsspeckit.read(lake, filter=~pc.field("deleted")).to_pylist():
            print("readers see:", row)
        purged = fsspeckit.delete(lake, filters=[("deleted", "=", True), ("ts", "<", 100)])
        print("purged:", purged.deleted, "row")


if __name__ == "__main__":
    main()
