"""The works of the Spark benchmark: a lake of Parquet files, and a source with keys of some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CHANGED = "quantity"
"""Negative in rows of the source, and nowhere else, so that they can be counted after the merge."""
OPERATION, SEQUENCE = "op", "at"
# A feed has one change a key. Of the changes of existing rows, one in so many deletes its row, and one in so many is
# older than its row and must change nothing. Some are both. Deletes have values in these columns only, and in the key.
DELETE_EVERY, OLDER_EVERY = 5, 9
DAY = 86_400_000_000
Kind = Literal["upsert", "delete", "feed"]


@dataclass(frozen=True)
class Counts:
    """What rows are known by: how many, and how many came from the source; and the sums of their keys."""

    rows: int
    keys: int
    new_rows: int = 0
    new_keys: int = 0

    SQL: ClassVar = (
        "count(*)",
        "sum(id)",
        f"count_if({CHANGED} < 0)",
        f"coalesce(sum(id) FILTER (WHERE {CHANGED} < 0), 0)",
    )


@dataclass(frozen=True)
class Work:
    """`files` of `rows` each, of which `touched` hold `matched` keys of the source; `inserts` rows with new keys.

    An upsert replaces the matched rows, a delete removes them, and a feed does both.
    """

    name: str
    about: str
    files: int
    rows: int
    touched: int
    matched: int
    inserts: int
    one_column: bool = False
    repeated: int = 1
    kind: Kind = "upsert"
    spark_options: tuple[tuple[str, str], ...] | None = None
    """With these options Spark writes the lake, with nulls; without them PyArrow does, without nulls."""

    def scaled(self, scale: float) -> Work:
        """Fewer rows in large files, or fewer small files."""
        if self.rows > 10_000:
            matched, inserts = max(self.touched, int(self.matched * scale)), int(self.inserts * scale)
            return replace(self, rows=int(self.rows * scale), matched=matched, inserts=inserts)
        return self if self.files < 100 else replace(self, files=max(self.touched, int(self.files * scale)))


_USUAL = "200,000 rows a file; 10,000 updates, 1,000 inserts"
_WRITTEN = f"written by Spark: page indexes, one value in twenty is null; {_USUAL}"
# Names and sizes are those of the benchmark of one machine.
WORKS = [
    Work("tiny", "5 files of 2,000 rows, 1 touched; 100 updates, 10 inserts", 5, 2_000, 1, 100, 10, repeated=3),
    Work("2,000 files, 5 touched", "of 2,000 rows; 1,000 updates, 100 inserts", 2_000, 2_000, 5, 1_000, 100),
    Work("5 of 50 files", _USUAL, 50, 200_000, 5, 10_000, 1_000),
    Work("all 50 files, all columns change", _USUAL, 50, 200_000, 50, 10_000, 1_000),
    Work("all 50 files, 1 column of 9 changes", _USUAL, 50, 200_000, 50, 10_000, 1_000, one_column=True),
    Work("Spark's lake, 5 of 50 files", _WRITTEN, 50, 200_000, 5, 10_000, 1_000, spark_options=()),
    Work("Spark's lake, all 50 files", _WRITTEN, 50, 200_000, 50, 10_000, 1_000, spark_options=()),
    Work("Spark's lake, 1 column of 9", _WRITTEN, 50, 200_000, 50, 10_000, 1_000, one_column=True, spark_options=()),
    Work(
        "Spark's lake, zstd, all 50 files",
        f"{_WRITTEN}; zstd, row groups of 4 MiB",
        50,
        200_000,
        50,
        10_000,
        1_000,
        spark_options=(("compression", "zstd"), ("parquet.block.size", str(4 << 20))),
    ),
    Work("10,000 deletes in 5 of 50 files", "200,000 rows a file; by key", 50, 200_000, 5, 10_000, 0, kind="delete"),
    Work(
        "feed with deletes, all 50 files",
        "7,200 updates, 1,800 deletes, 1,000 inserts; 1,000 are older than the row",
        50,
        200_000,
        50,
        9_000,
        1_000,
        kind="feed",
    ),
    Work(
        "100 keys erased from 2,000 files",
        "of 2,000 rows, 100 touched; by key",
        2_000,
        2_000,
        100,
        100,
        0,
        kind="delete",
    ),
]


def table(work: Work, ids: Any, chance: Any) -> pa.Table:
    """Nine columns: a key, numbers, a text of many and one of few values, a time and a flag.

    In lakes that Spark writes, one value in twenty is null, but not in the key and in `quantity`.
    """
    count = len(ids)
    names = pc.cast(pa.array(chance.integers(0, 1 << 40, count)), pa.string())
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "quantity": pa.array(chance.integers(0, 1000, count), pa.int32()),
            "units": pa.array(chance.integers(0, 1 << 30, count), pa.int64()),
            "amount": chance.random(count),
            "price": np.round(chance.random(count) * 100, 2),
            "name": pc.binary_join_element_wise(pa.scalar("customer"), names, "-"),
            "city": pa.array([f"city {n}" for n in range(50)]).take(pa.array(chance.integers(0, 50, count))),
            "at": pa.array(chance.integers(0, 1 << 50, count), pa.timestamp("us", "UTC")),
            "flag": pa.array(chance.random(count) < 0.5),
        }
    )
    if work.spark_options is None:
        return rows
    for number, name in enumerate(rows.column_names):
        if name not in ("id", CHANGED):
            null = pa.array(chance.integers(0, 20, count) == 0)
            rows = rows.set_column(number, name, pc.if_else(null, None, rows.column(name)))
    return rows


def _file(work: Work, number: int) -> pa.Table:
    ids = np.arange(number * work.rows, (number + 1) * work.rows)
    return table(work, ids, np.random.default_rng(number))


def make_lake(spark: Any, root: Path, work: Work) -> None:
    root.mkdir()
    for number in range(work.files):
        path = root / f"part-{number:05d}.parquet"
        pq.write_table(_file(work, number), path)
        if work.spark_options is not None:
            frame = spark.read.parquet(str(path)).coalesce(1)
            frame.write.options(**dict(work.spark_options)).mode("append").parquet(str(root / "written"))
            path.unlink()
    if work.spark_options is not None:
        for path in (root / "written").iterdir():
            path.rename(root / path.name)
        (root / "written").rmdir()


def make_source(root: Path, work: Work) -> Counts:
    """Keys spread evenly over the touched files, which lie spread over the lake, and keys beyond all of them.

    Returns what the rows have to be after the merge.
    """
    chance, each = np.random.default_rng(4711), work.matched // work.touched
    pieces = []
    for number in range(0, work.touched * (work.files // work.touched), work.files // work.touched):
        known = _file(work, number).take(np.sort(chance.choice(work.rows, each, replace=False)))
        new = known if work.one_column else table(work, known.column("id").to_numpy(), chance)
        pieces.append(_as_feed(known, new) if work.kind == "feed" else new)
    first = work.files * work.rows
    added = table(work, np.arange(first, first + work.inserts), chance)
    if work.kind == "feed":
        added = added.append_column(OPERATION, pa.array(["I"] * work.inserts, pa.string()))
    rows = pa.concat_tables([*pieces, added])
    negative = pc.subtract(pc.negate(rows.column(CHANGED)), pa.scalar(1, pa.int32()))
    rows = rows.set_column(rows.column_names.index(CHANGED), CHANGED, negative)
    root.mkdir()
    pq.write_table(rows.select(["id"]) if work.kind == "delete" else rows, root / "source.parquet")
    return _counts_after(work, rows, each)


def _as_feed(known: pa.Table, new: pa.Table) -> pa.Table:
    """The new rows as changes of the known ones."""
    numbers = np.arange(known.num_rows)
    deleted, days = numbers % DELETE_EVERY == 0, np.where(numbers % OLDER_EVERY == 0, -DAY, DAY)
    moments = pa.array(known.column(SEQUENCE).cast(pa.int64()).to_numpy() + days, known.column(SEQUENCE).type)
    new = new.set_column(new.column_names.index(SEQUENCE), SEQUENCE, moments)
    for number, name in enumerate(new.column_names):
        if name not in ("id", SEQUENCE):
            new = new.set_column(number, name, pc.if_else(pa.array(deleted), None, new.column(name)))
    return new.append_column(OPERATION, pa.array(np.where(deleted, "D", "U")))


def _counts_after(work: Work, source: pa.Table, each: int) -> Counts:
    """What the rows are after the merge: `each` touched file has so many changes, and inserted rows come last."""
    keys, numbers = source.column("id").to_numpy(), np.arange(source.num_rows)
    inserted, of_file = numbers >= each * work.touched, numbers % each
    deletes = of_file % DELETE_EVERY == 0 if work.kind == "feed" else np.full(len(keys), work.kind == "delete")
    older = of_file % OLDER_EVERY == 0 if work.kind == "feed" else np.zeros(len(keys), dtype=bool)
    deleted, new = deletes & ~older & ~inserted, inserted | ~deletes & ~older
    before = work.files * work.rows
    return Counts(
        before + int(inserted.sum() - deleted.sum()),
        before * (before - 1) // 2 + int(keys[inserted].sum() - keys[deleted].sum()),
        int(new.sum()),
        int(keys[new].sum()),
    )
