"""Erase people from several lakes by their keys, and show that no byte of them is left.

The plan comes first: it reads only the key columns. A key that a lake does not have is no error, so one list serves all
lakes. The deleted values are in no page, dictionary, statistic or bloom filter of the files that had them. Copies
elsewhere are yours to erase: backups, older versions of objects in a bucket, the source's own files. If columns are
stored as categories, see docs/guarantees.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import fsspeckit

ERASE = ["mia@example.org", "tom@example.org"]


def build(folder: Path) -> list[str]:
    """Two lakes with the same people; one has a folder per country. Without compression, text is found in the bytes."""
    people = ["ada@example.org", "mia@example.org", "tom@example.org", "zoe@example.org"]
    customers = pa.table({"email": people, "country": ["it", "fr", "de", "it"], "name": ["Ada", "Mia", "Tom", "Zoe"]})
    orders = pa.table({"order_id": range(8), "email": people * 2, "note": [f"for {p}" for p in people * 2]})
    lakes = [str(folder / "customers"), str(folder / "orders")]
    fsspeckit.merge(customers, lakes[0], key_columns=["email"], partition_columns=["country"], compression="none")
    fsspeckit.merge(orders, lakes[1], key_columns=["order_id"], compression="none")
    return lakes


def bytes_of(lake: str) -> bytes:
    return b"".join(path.read_bytes() for path in Path(lake).rglob("*") if path.is_file())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for lake in build(Path(folder)):
            name = Path(lake).name
            assert all(person.encode() in bytes_of(lake) for person in ERASE)
            plan = fsspeckit.plan_delete(lake, keys=[*ERASE, "unknown@example.org"], key_columns=["email"])
            print(f"{name}: {plan.deleted} rows to delete, partitions that go: {list(plan.emptied_partitions)}")
            fsspeckit.delete(lake, keys=[*ERASE, "unknown@example.org"], key_columns=["email"])
            left = [person for person in ERASE if person.encode() in bytes_of(lake)]
            print(f"{name}: {fsspeckit.read(lake).num_rows} rows left, bytes of erased people: {left}")


if __name__ == "__main__":
    main()
