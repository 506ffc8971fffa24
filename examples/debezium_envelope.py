"""Merge Debezium's change events as they are: an envelope with `op`, `before`, `after` and `source`.

`op` is c (create), u (update), d (delete) or r (read, of a snapshot). A delete has its row in `before`, every other
event has it in `after`. Other kinds of events, such as t (truncate), are refused here: handle them by hand. The empty
messages (tombstones) that follow deletes in Kafka carry no row and must be left out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import fsspeckit

ROW = pa.struct({"id": pa.int64(), "name": pa.string(), "city": pa.string()})
ENVELOPE = pa.schema({"op": pa.string(), "before": ROW, "after": ROW, "source": pa.struct({"lsn": pa.int64()})})
ADA, BOB = {"id": 1, "name": "Ada", "city": "London"}, {"id": 2, "name": "Bob", "city": "Paris"}
EVENTS = [
    {"op": "r", "before": None, "after": ADA, "source": {"lsn": 100}},
    {"op": "c", "before": None, "after": BOB, "source": {"lsn": 101}},
    {"op": "u", "before": ADA, "after": {**ADA, "city": "Turin"}, "source": {"lsn": 102}},
    {"op": "d", "before": {"id": 2, "name": None, "city": None}, "after": None, "source": {"lsn": 103}},
]


def flattened(events: pa.Table) -> pa.Table:
    """One row per event: the columns of the table, `op`, and `lsn` to order by."""
    others = set(events["op"].to_pylist()) - {"c", "u", "d", "r"}
    if others:
        raise ValueError(f"Events of the kinds {sorted(others)} are not changes of rows.")
    is_delete = pc.equal(events["op"], "d")
    columns = {
        field.name: pc.if_else(
            is_delete, pc.struct_field(events["before"], field.name), pc.struct_field(events["after"], field.name)
        )
        for field in ROW
    }
    return pa.table({**columns, "lsn": pc.struct_field(events["source"], "lsn"), "op": events["op"]})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = str(Path(folder) / "customers")
        for batch in (EVENTS[:2], EVENTS[2:]):
            result = fsspeckit.merge(
                flattened(pa.Table.from_pylist(batch, ENVELOPE)),
                lake,
                key_columns=["id"],
                delete_column="op",
                delete_values=["d"],
                sequence_by="lsn",
                on_duplicates="latest",
            )
            print(f"{result.inserted} inserted, {result.updated} updated, {result.deleted} deleted")
        print(fsspeckit.read(lake).to_pylist())


if __name__ == "__main__":
    main()
