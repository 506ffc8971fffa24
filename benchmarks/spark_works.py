"""The works of the Spark benchmark: a lake of Parquet files, and a source with keys of some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CHANGED = "quantity"
"""Negative in rows of the source, and nowhere else, so that they can be counted after the merge."""


@dataclass(frozen=True)
class Work:
    """`files` of `rows` each, of which `touched` hold `updates` keys of the source; a tenth as many keys are new."""

    name: str
    about: str
    files: int
    rows: int
    touched: int
    updates: int
    one_column: bool = False
    repeated: int = 1
    spark_options: tuple[tuple[str, str], ...] | None = None
    """With these options Spark writes the lake, with nulls; without them PyArrow does, without nulls."""

    @property
    def rows_after(self) -> tuple[int, int]:
        """All rows, and those that came from the source."""
        return self.files * self.rows + self.updates // 10, self.updates + self.updates // 10

    def scaled(self, scale: float) -> Work:
        """Fewer rows in large files, or fewer small files."""
        if self.rows > 10_000:
            return replace(self, rows=int(self.rows * scale), updates=int(self.updates * scale))
        return self if self.files < 100 else replace(self, files=max(self.touched, int(self.files * scale)))


_USUAL = "200,000 rows a file; 10,000 updates, 1,000 inserts"
_WRITTEN = f"written by Spark: page indexes, one value in twenty is null; {_USUAL}"
# Names and sizes are those of the benchmark of one machine.
WORKS = [
    Work("tiny", "5 files of 2,000 rows, 1 touched; 100 updates, 10 inserts", 5, 2_000, 1, 100, repeated=3),
    Work("2,000 files, 5 touched", "of 2,000 rows; 1,000 updates, 100 inserts", 2_000, 2_000, 5, 1_000),
    Work("5 of 50 files", _USUAL, 50, 200_000, 5, 10_000),
    Work("all 50 files, all columns change", _USUAL, 50, 200_000, 50, 10_000),
    Work("all 50 files, 1 column of 9 changes", _USUAL, 50, 200_000, 50, 10_000, one_column=True),
    Work("Spark's lake, 5 of 50 files", _WRITTEN, 50, 200_000, 5, 10_000, spark_options=()),
    Work("Spark's lake, all 50 files", _WRITTEN, 50, 200_000, 50, 10_000, spark_options=()),
    Work("Spark's lake, 1 column of 9", _WRITTEN, 50, 200_000, 50, 10_000, one_column=True, spark_options=()),
    Work(
        "Spark's lake, zstd, all 50 files",
        f"{_WRITTEN}; zstd, row groups of 4 MiB",
        50,
        200_000,
        50,
        10_000,
        spark_options=(("compression", "zstd"), ("parquet.block.size", str(4 << 20))),
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


def make_source(root: Path, work: Work) -> None:
    """Keys spread evenly over the touched files, which lie spread over the lake, and keys beyond all of them."""
    chance, each = np.random.default_rng(4711), work.updates // work.touched
    pieces = []
    for number in range(0, work.touched * (work.files // work.touched), work.files // work.touched):
        known = _file(work, number).take(np.sort(chance.choice(work.rows, each, replace=False)))
        pieces.append(known if work.one_column else table(work, known.column("id").to_numpy(), chance))
    first = work.files * work.rows
    pieces.append(table(work, np.arange(first, first + work.updates // 10), chance))
    rows = pa.concat_tables(pieces)
    negative = pc.subtract(pc.negate(rows.column(CHANGED)), pa.scalar(1, pa.int32()))
    rows = rows.set_column(rows.column_names.index(CHANGED), CHANGED, negative)
    root.mkdir()
    pq.write_table(rows, root / "source.parquet")
