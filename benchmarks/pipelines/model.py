"""A lake that Spark wrote, one folder a day, and what must be in it: every row is compared with the model."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Model:
    """The version of every id, -1 if there is no such row; values follow from both. The lake began with `rows` rows a
    day; greater ids were inserted by a batch."""

    days: int
    rows: int
    versions: Ids

    @classmethod
    def new(cls, days: int, rows: int) -> Model:
        return cls(days, rows, np.zeros(days * rows, dtype=np.int64))

    @property
    def total(self) -> int:
        return self.days * self.rows

    def day_of(self, ids: Ids) -> Ids:
        return np.where(ids < self.total, ids // self.rows, ids % self.days)

    def table(self, ids: Ids, versions: Ids) -> pa.Table:
        """Six columns and the day."""
        mixed = (ids * 2_654_435_761 + versions * 40_503) % (1 << 31)
        return pa.table(
            {
                "id": ids,
                "version": versions,
                "quantity": pa.array(mixed % 1000, pa.int32()),
                "amount": mixed / 7.0,
                "customer": pc.binary_join_element_wise("customer", pa.array(mixed).cast(pa.string()), "-"),
                "at": pa.array(mixed * 1_000_000, pa.timestamp("us", "UTC")),
                "day": pa.array(self.day_of(ids), pa.int32()),
            }
        )

    def batch(self, first_day: int, updates: int, inserts: int, seed: int) -> tuple[Model, pa.Table]:
        """Random rows of the days from `first_day` on, and new ones: the model after the batch, and its rows."""
        chance = np.random.default_rng(seed)
        old = np.sort(chance.choice(np.arange(first_day * self.rows, self.total), updates, replace=False))
        new = np.arange(self.total, self.total + self.days * math.ceil(inserts / (self.days - first_day)))
        new = new[new % self.days >= first_day][:inserts]
        ids, versions = np.concatenate([old, new]), np.full(int(new[-1]) + 1, -1)
        versions[: self.total] = self.versions
        versions[ids] = seed
        return Model(self.days, self.rows, versions), self.table(ids, np.full(len(ids), seed))

    def problem(self, lake: Path) -> str:
        """What is wrong with the lake, row by row; empty if nothing is."""
        ids = np.flatnonzero(self.versions >= 0)
        expected = self.table(ids, self.versions[ids])
        found = ds.dataset(lake, partitioning="hive").to_table(columns=expected.schema.names).sort_by("id")
        found = found.cast(expected.schema)  # Spark writes INT96
        if found.num_rows != expected.num_rows:
            return f"{found.num_rows:,} rows, not {expected.num_rows:,}"
        wrong = [name for name in expected.schema.names if found.column(name) != expected.column(name)]
        return f"other values in {', '.join(wrong)}" if wrong else ""


def write_with_spark(spark: Any, model: Model, lake: Path, files: int) -> None:
    """As a Spark job writes it: `files` files a day, in each of them rows of the whole day."""
    staged = lake.with_name(f"{lake.name}-staged")
    staged.mkdir(parents=True)
    for day in range(model.days):
        ids = np.arange(day * model.rows, (day + 1) * model.rows)
        pq.write_table(model.table(ids, np.zeros(model.rows, dtype=np.int64)), staged / f"{day:05d}.parquet")
    frame = spark.read.parquet(str(staged)).repartition(files)
    frame.write.partitionBy("day").parquet(str(lake))
    shutil.rmtree(staged)


def write_small_files(model: Model, lake: Path, rows: int) -> None:
    """Files of so many rows, as a stream leaves them; a day has whole files."""
    assert model.rows % rows == 0
    for start in range(0, model.total, rows):
        ids = np.arange(start, min(start + rows, model.total))
        folder = lake / f"day={start // model.rows}"
        folder.mkdir(parents=True, exist_ok=True)
        table = model.table(ids, np.zeros(len(ids), dtype=np.int64)).drop_columns(["day"])
        pq.write_table(table, folder / f"part-{start // rows:05d}.parquet")
