"""A slowly changing dimension of type 2 on top of `merge`: every version of a row stays, with its time of validity.

A version is one row with the key (`customer_id`, `valid_from`); the current one has no `valid_to`. The recipe reads the
current versions and merges two kinds of rows in one commit: current versions that end now, and versions that begin.
It reads before it merges, so run one at a time for a lake. Applying the same changes again changes nothing. A second,
different change of a customer on the same day is refused, because both versions would have the same key: take
timestamps instead of days if that happens.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import fsspeckit

SCHEMA = pa.schema({"customer_id": pa.int64(), "city": pa.string(), "valid_from": pa.date32(), "valid_to": pa.date32()})


def apply(changes: pa.Table, lake: str, day: dt.date) -> fsspeckit.MergeResult:
    """`changes` has one row per customer: `customer_id` and `city`."""
    current = fsspeckit.read(lake, filter=pc.field("valid_to").is_null())
    both = current.join(changes, "customer_id", join_type="inner", right_suffix="_new")
    is_same = pc.fill_null(pc.equal(both["city"], both["city_new"]), False)
    ended = both.filter(pc.invert(is_same)).drop_columns(["city_new", "valid_to"])
    ended = ended.append_column("valid_to", pa.array([day] * ended.num_rows, pa.date32()))
    begun = changes.join(both.filter(is_same).select(["customer_id"]), "customer_id", join_type="left anti")
    begun = begun.append_column("valid_from", pa.array([day] * begun.num_rows, pa.date32()))
    begun = begun.append_column("valid_to", pa.nulls(begun.num_rows, pa.date32()))
    versions = pa.concat_tables([ended.select(SCHEMA.names), begun.select(SCHEMA.names)])
    return fsspeckit.merge(versions, lake, "upsert", ["customer_id", "valid_from"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = str(Path(folder) / "customers")
        begin = dt.date(2026, 1, 1)
        start = [{"customer_id": n, "city": city, "valid_from": begin} for n, city in [(1, "Rome"), (2, "Bonn")]]
        fsspeckit.merge(pa.Table.from_pylist(start, SCHEMA), lake, key_columns=["customer_id", "valid_from"])
        changes = pa.table({"customer_id": [1, 2, 3], "city": ["Turin", "Bonn", "Graz"]})
        for attempt in ("first", "again"):
            result = apply(changes, lake, dt.date(2026, 2, 1))
            print(f"{attempt}: {result.updated} ended, {result.inserted} begun")
        for row in sorted(fsspeckit.read(lake).to_pylist(), key=lambda row: (row["customer_id"], row["valid_from"])):
            print(row["customer_id"], row["city"], row["valid_from"], row["valid_to"] or "-")


if __name__ == "__main__":
    main()
