"""Merge change events that Debezium's ExtractNewRecordState has flattened.

The connector is set to `delete.tombstone.handling.mode=rewrite` and `add.fields=op,lsn`. A delete is then a row with
the key and `__deleted = "true"`, as text and not as a Boolean; its other columns may be null. `__lsn` is the position
in the database's log and orders the events of a row.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import fsspeckit

EVENTS = [
    {"id": 1, "name": "Ada", "city": "London", "__op": "c", "__lsn": 100, "__deleted": "false"},
    {"id": 2, "name": "Bob", "city": "Paris", "__op": "c", "__lsn": 101, "__deleted": "false"},
    {"id": 1, "name": "Ada", "city": "Turin", "__op": "u", "__lsn": 102, "__deleted": "false"},
    {"id": 3, "name": "Cy", "city": "Rome", "__op": "r", "__lsn": 103, "__deleted": "false"},
    {"id": 2, "name": None, "city": None, "__op": "d", "__lsn": 104, "__deleted": "true"},
]


def merge_events(events: pa.Table, lake: str) -> fsspeckit.MergeResult:
    """The columns of the table, `lsn` to order later events by, and the flag, which is not stored."""
    changes = events.drop_columns(["__op"]).rename_columns({"__lsn": "lsn"})
    return fsspeckit.merge(
        changes,
        lake,
        key_columns=["id"],
        delete_column="__deleted",
        delete_values=["true"],
        sequence_by="lsn",
        on_duplicates="latest",
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = str(Path(folder) / "customers")
        first = merge_events(pa.Table.from_pylist(EVENTS[:2]), lake)
        print("first feed:", first.inserted, "inserted")
        second = merge_events(pa.Table.from_pylist(EVENTS[2:]), lake)
        print(f"second feed: {second.inserted} inserted, {second.updated} updated, {second.deleted} deleted")
        again = merge_events(pa.Table.from_pylist(EVENTS), lake)
        print("all events again:", again.changed, "rows changed")
        for row in sorted(fsspeckit.read(lake).to_pylist(), key=lambda row: row["id"]):
            print(row)


if __name__ == "__main__":
    main()
