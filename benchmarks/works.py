"""The works of the benchmark: lakes of plain Parquet files and the rows to merge, reproducible by seeds.

A file has 200,000 rows of nine columns unless said otherwise: a key, two integers, two doubles, a name of high and a
city of low cardinality, a timestamp and a flag; snappy, one row group. PyArrow writes most lakes, without nulls and
without page indexes. Two lakes look like users' lakes: Polars and DuckDB write them with their own defaults, one value
in twenty is null, and a file has two row groups. The expected rows after the merge are computed here, from the
generated rows, and not by any contender.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Rows that replace others are drawn by seeds from here on; below it are those of the lake's files.
CHANGES = 1_000_000
CITIES = pa.array([f"city {n}" for n in range(50)])
PER_STORE = 1_000
# One value in so many is null in lakes that PyArrow did not write; none in the key.
NULL_EVERY = 20
# A feed has one change a key. Of the changes of existing rows, one in so many deletes its row, and one in so many is
# older than its row and must change nothing. Some are both. Deletes have values in these columns only, and in the key.
DELETE_EVERY, OLDER_EVERY = 5, 9
OPERATION, SEQUENCE = "op", "sold_at"
DAY = 86_400_000_000


@dataclass(frozen=True)
class Lake:
    name: str
    files: int
    rows: int
    groups: int = 1
    columns: int = 9
    keys: tuple[str, ...] = ("id",)
    days: int = 0
    writer: Literal["PyArrow", "Polars", "DuckDB"] = "PyArrow"

    @property
    def codec(self) -> str:
        """The default of the writer."""
        return "zstd" if self.writer == "Polars" else "snappy"

    def ids(self, file: int) -> np.ndarray:
        return np.arange(file * self.rows, (file + 1) * self.rows)

    def path(self, file: int) -> str:
        folder = f"day={day(file % self.days)}/" if self.days else ""
        return f"{folder}f{file:04d}.parquet"

    def rows_of(self, file: int) -> pa.Table:
        return make_rows(self, self.ids(file), file)


@dataclass(frozen=True)
class Work:
    """`matched` rows of the lake, evenly in `touched` files and in one row group of each; `inserts` rows with new keys.

    An upsert replaces the matched rows, a delete removes them, and a feed does both.
    """

    name: str
    about: str
    lake: Lake
    touched: int
    matched: int
    inserts: int
    changed: tuple[str, ...] = ()
    kind: Literal["upsert", "delete", "feed"] = "upsert"

    def touched_files(self) -> list[int]:
        return [i * self.lake.files // self.touched for i in range(self.touched)]

    def scaled(self, scale: float) -> Work:
        """The same with fewer rows, and with fewer files where there are thousands; each touched file keeps a key."""
        lake, touched = self.lake, self.touched
        files = max(50, int(lake.files * scale)) if lake.files > 100 else lake.files
        rows = max(100 * lake.groups, int(lake.rows * scale))
        matched = max(touched, int(self.matched * scale))
        inserts = int(self.inserts * scale) or min(self.inserts, 1)
        return replace(self, lake=replace(lake, files=files, rows=rows), matched=matched, inserts=inserts)

    def small(self) -> Work:
        """Just enough to import and start all that a contender needs."""
        rows = 100 * self.lake.groups
        inserts = 0 if self.kind == "delete" else 10
        return replace(self, lake=replace(self.lake, files=3, rows=rows), touched=1, matched=10, inserts=inserts)


PLAIN = Lake("plain", 50, 200_000)
GROUPS = Lake("groups", 10, 1_000_000, groups=10)
MANY = Lake("many", 2_000, 2_000)
TINY = Lake("tiny", 5, 2_000)
WIDE = Lake("wide", 10, 20_000, columns=200)
TEXT = Lake("text", 50, 200_000, keys=("code",))
PAIRS = Lake("pairs", 50, 200_000, keys=("store", "number"))
DAYS = Lake("days", 50, 200_000, days=10)
POLARS = Lake("polars", 50, 200_000, writer="Polars")
DUCKDB = Lake("duckdb", 50, 200_000, writer="DuckDB")

USUAL = "10,000 updates, 1,000 inserts"
WORKS = [
    Work("5 of 50 files", USUAL, PLAIN, 5, 10_000, 1_000),
    Work("all 50 files, all columns change", USUAL, PLAIN, 50, 10_000, 1_000),
    Work("all 50 files, 1 column of 9 changes", USUAL, PLAIN, 50, 10_000, 1_000, ("quantity",)),
    Work("1 row group of 10", f"in each of 10 files of a million rows; {USUAL}", GROUPS, 10, 10_000, 1_000),
    Work("500,000 keys in 5 files", "of 50; 500,000 updates", PLAIN, 5, 500_000, 0),
    Work("2,000 files, 5 touched", "of 2,000 rows; 1,000 updates, 100 inserts", MANY, 5, 1_000, 100),
    Work("tiny", "5 files of 2,000 rows, 1 touched; 100 updates, 10 inserts", TINY, 1, 100, 10),
    Work(
        "200 columns, 3 change",
        f"10 files of 20,000 rows, all touched; {USUAL}",
        WIDE,
        10,
        10_000,
        1_000,
        ("quantity", "price", "city"),
    ),
    Work("text keys", f"5 of 50 files; {USUAL}", TEXT, 5, 10_000, 1_000),
    Work("composite keys", f"two integers; 5 of 50 files; {USUAL}", PAIRS, 5, 10_000, 1_000),
    Work("partitioned", f"5 of 50 files, in 10 folders; {USUAL}", DAYS, 5, 10_000, 1_000),
    Work("1 row into 10 million", "in 50 files; 1 update", PLAIN, 1, 1, 0),
    Work(
        "Polars' lake, 5 of 50 files", f"zstd, nulls, page indexes, two row groups; {USUAL}", POLARS, 5, 10_000, 1_000
    ),
    Work("Polars' lake, all 50 files", f"the same; {USUAL}", POLARS, 50, 10_000, 1_000),
    Work("Polars' lake, 1 column of 9", f"the same, all files; {USUAL}", POLARS, 50, 10_000, 1_000, ("quantity",)),
    Work("Polars' lake, 1 row", "the same; 1 update", POLARS, 1, 1, 0),
    Work("DuckDB's lake, 5 of 50 files", f"snappy, nulls, two row groups; {USUAL}", DUCKDB, 5, 10_000, 1_000),
    Work("DuckDB's lake, all 50 files", f"the same; {USUAL}", DUCKDB, 50, 10_000, 1_000),
    Work("DuckDB's lake, 1 column of 9", f"the same, all files; {USUAL}", DUCKDB, 50, 10_000, 1_000, ("quantity",)),
    Work("10,000 deletes in 5 of 50 files", "by key", PLAIN, 5, 10_000, 0, kind="delete"),
    Work(
        "feed with deletes, all 50 files",
        "7,200 updates, 1,800 deletes, 1,000 inserts; 1,000 are older than the row",
        PLAIN,
        50,
        9_000,
        1_000,
        kind="feed",
    ),
    Work("100 keys erased from 2,000 files", "of 2,000 rows, 100 touched; by key", MANY, 100, 100, 0, kind="delete"),
]


def day(number: int) -> str:
    return f"2026-01-{number + 1:02d}"


def make_rows(lake: Lake, ids: np.ndarray, seed: int) -> pa.Table:
    """Rows of these keys; all else is drawn by the seed."""
    rng, count = np.random.default_rng(seed), len(ids)
    columns: dict[str, Any] = key_columns(lake, ids) | {
        "quantity": rng.integers(0, 1_000_000, count),
        "stock": rng.integers(0, 1_000, count),
        "price": np.round(rng.random(count) * 100, 2),
        "weight": rng.random(count),
        "name": prefixed("customer ", rng.integers(0, 10**9, count)),
        "city": CITIES.take(pa.array(rng.integers(0, 50, count))),
        "sold_at": pa.array(rng.integers(0, 2**50, count), pa.timestamp("us")),
        "active": pa.array(rng.random(count) < 0.5),
    }
    columns |= {f"measure{n:03d}": rng.random(count) for n in range(lake.columns - 9)}
    if lake.writer != "PyArrow":
        for name in [name for name in columns if name not in lake.keys]:
            null = pa.array(rng.integers(0, NULL_EVERY, count) == 0)
            columns[name] = pc.if_else(null, None, pa.array(columns[name]))
    return pa.table(columns)


def key_columns(lake: Lake, ids: np.ndarray) -> dict[str, Any]:
    if lake.keys == ("code",):
        return {"code": prefixed("order-", ids + 10**11)}
    if lake.keys == ("store", "number"):
        return {"store": ids // PER_STORE, "number": ids % PER_STORE}
    return {"id": ids}


def prefixed(prefix: str, numbers: np.ndarray) -> pa.Array:
    joined: pa.Array = pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")
    return joined


def ids_of(lake: Lake, rows: pa.Table) -> np.ndarray:
    """The numbers that `key_columns` made keys of."""
    if lake.keys == ("code",):
        digits = pc.utf8_slice_codeunits(rows["code"].cast(pa.string()), 6)
        return np.asarray(digits.cast(pa.int64())) - 10**11
    if lake.keys == ("store", "number"):
        stores, numbers = np.asarray(rows["store"]), np.asarray(rows["number"])
        return np.asarray(stores * PER_STORE + numbers)
    return np.asarray(rows["id"])


@dataclass(frozen=True)
class Sums:
    """What rows are known by: how many, and which key has which quantity and price."""

    rows: int = 0
    quantity: int = 0
    price: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.rows + other.rows, self.quantity + other.quantity, self.price + other.price)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.rows - other.rows, self.quantity - other.quantity, self.price - other.price)


def sums(lake: Lake, rows: pa.Table) -> Sums:
    ids = ids_of(lake, rows) % 1_000 + 1
    quantity, price = (pc.fill_null(rows[name], -7).to_numpy() for name in ("quantity", "price"))
    cents = np.rint(price * 100).astype(np.int64)
    return Sums(rows.num_rows, int((ids * quantity).sum()), int((ids * cents).sum()))


def sums_of_files(lake: Lake, files: list[str]) -> Sums:
    read = [*lake.keys, "quantity", "price"]
    return sum((sums(lake, pq.ParquetFile(file).read(columns=read)) for file in files), Sums())


def build_lake(lake: Lake, folder: Path) -> Sums:
    total = Sums()
    for file in range(lake.files):
        rows = lake.rows_of(file)
        path = folder / lake.path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(lake, rows, path)
        total += sums(lake, rows)
    return total


def write_file(lake: Lake, rows: pa.Table, path: Path) -> None:
    """One file as the writer writes it by default, in two row groups or more where it is not PyArrow."""
    if lake.writer == "Polars":
        import polars as pl

        frame = pl.from_arrow(rows)
        assert isinstance(frame, pl.DataFrame)
        frame.write_parquet(path, row_group_size=max(1, lake.rows // 2))
    elif lake.writer == "DuckDB":
        import duckdb

        with duckdb.connect() as connection:
            connection.register("made", rows)
            connection.execute(f"COPY made TO '{path}' (FORMAT parquet)")  # 122,880 rows a row group
    else:
        pq.write_table(rows, path, row_group_size=lake.rows // lake.groups)


def build_source(work: Work, path: Path) -> Sums:
    """Write the source; what it adds to the sums of the lake."""
    lake, parts, gain = work.lake, [], Sums()
    for order, file in enumerate(work.touched_files()):
        old = lake.rows_of(file).take(chosen_rows(work, order, file))
        new, gained = changes_of(work, old, make_rows(lake, ids_of(lake, old), CHANGES + file))
        gain += gained
        parts.append(with_days(lake, new, np.full(new.num_rows, file)))
    first = lake.files * lake.rows
    added = make_rows(lake, np.arange(first, first + work.inserts), CHANGES - 1)
    gain += sums(lake, added)
    if work.kind == "feed":
        added = added.append_column(OPERATION, pa.array(["I"] * work.inserts, pa.string()))
    if work.kind != "delete":
        parts.append(with_days(lake, added, np.arange(work.inserts)))
    pq.write_table(pa.concat_tables(parts).combine_chunks(), path)
    return gain


def changes_of(work: Work, old: pa.Table, new: pa.Table) -> tuple[pa.Table, Sums]:
    """Source rows for these rows of the lake, and what they add to the sums of the lake."""
    lake = work.lake
    if work.kind == "delete":
        return old.select(lake.keys), Sums() - sums(lake, old)
    if work.kind == "feed":
        return feed_of(lake, old, new)
    for name in set(old.column_names) - set(work.changed or old.column_names):
        new = new.set_column(new.column_names.index(name), name, old[name])
    return new, sums(lake, new) - sums(lake, old)


def feed_of(lake: Lake, old: pa.Table, new: pa.Table) -> tuple[pa.Table, Sums]:
    numbers = np.arange(old.num_rows)
    deleted, older = numbers % DELETE_EVERY == 0, numbers % OLDER_EVERY == 0
    taken = pa.array(~older)
    gain = sums(lake, new.filter(pa.array(~older & ~deleted))) - sums(lake, old.filter(taken))
    moments = pa.array(old[SEQUENCE].cast(pa.int64()).to_numpy() + np.where(older, -DAY, DAY), pa.timestamp("us"))
    new = new.set_column(new.column_names.index(SEQUENCE), SEQUENCE, moments)
    for name in set(new.column_names) - {*lake.keys, SEQUENCE}:
        new = new.set_column(new.column_names.index(name), name, pc.if_else(pa.array(deleted), None, new[name]))
    return new.append_column(OPERATION, pa.array(np.where(deleted, "D", "U"))), gain


def chosen_rows(work: Work, order: int, file: int) -> pa.Array:
    """Positions of rows to replace, in one row group of the file."""
    group = work.lake.rows // work.lake.groups
    count = work.matched // work.touched + (order < work.matched % work.touched)
    chosen = np.random.default_rng(CHANGES + file).choice(group, min(count, group), replace=False)
    return pa.array(np.sort(chosen) + file % work.lake.groups * group)


def with_days(lake: Lake, rows: pa.Table, files: np.ndarray) -> pa.Table:
    if not lake.days:
        return rows
    return rows.append_column("day", pa.array([day(n) for n in files % lake.days], pa.string()))


def build(work: Work, root: Path) -> None:
    """The lake, unless another work made it, and beside the source what the rows have to be."""
    lake, place = root / "lakes" / work.lake.name, root / work.name
    known = lake.with_suffix(".json")
    if not known.exists():
        known.write_text(json.dumps(vars(build_lake(work.lake, lake))))
    place.mkdir()
    expected = Sums(**json.loads(known.read_text())) + build_source(work, place / "source.parquet")
    (place / "expected.json").write_text(json.dumps(vars(expected)))
