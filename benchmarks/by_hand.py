"""What someone writes who knows Polars or DuckDB well and has no MERGE: each touched file is read, joined, written.

The statistics in the footers show which files have keys of the source. A file is written beside the old one and renamed
over it, rows that no file has go to a new one. Deleted rows are left out by an anti join, or by a filter if the source
is a feed. Nothing is synced, locked or undone: half a rewrite stays half.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from works import OPERATION, SEQUENCE, Work


def touched_files(folder: Path, source: pa.Table, key: str) -> Iterator[tuple[Path, int, Any, Any]]:
    """Files in whose range of the key the source has one; with the rows of their row groups and the range."""
    keys = sorted(source[key].to_pylist())
    for path in sorted(folder.rglob("*.parquet")):
        footer = pq.read_metadata(path)
        column = footer.schema.names.index(key)
        groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
        ranges = [group.column(column).statistics for group in groups]
        low, high = min(range.min for range in ranges), max(range.max for range in ranges)
        if bisect_left(keys, low) < bisect_right(keys, high):
            yield path, groups[0].num_rows, low, high


def by_polars(folder: Path, source: pa.Table, work: Work) -> None:
    import polars as pl

    keys, first = list(work.lake.keys), work.lake.keys[0]
    codec: Any = work.lake.codec
    changes = pl.from_arrow(source)
    assert isinstance(changes, pl.DataFrame)
    others = value_columns(work, source)
    new = changes.filter(pl.col(OPERATION) != "D") if work.kind == "feed" else changes
    for path, rows, low, high in touched_files(folder, source, first):
        old = pl.read_parquet(path, hive_partitioning=False)
        near = changes.filter(pl.col(first).is_between(pl.lit(low), pl.lit(high)))
        beside = path.with_suffix(".new")
        if work.kind == "delete":
            merged = old.join(near, on=keys, how="anti", maintain_order="left")
        else:
            merged = patched_by_polars(old, near, work, others)
            new = new.join(old.select(keys), on=keys, how="anti")
        merged.write_parquet(beside, compression=codec, row_group_size=rows)
        beside.replace(path)
    if work.kind == "delete":
        return
    for day, rows_of_day in new.partition_by("day", as_dict=True).items() if work.lake.days else [((None,), new)]:
        if rows_of_day.height:
            rows_of_day.select(*keys, *others).write_parquet(new_file(folder, day[0]), compression=codec)


def patched_by_polars(old: Any, near: Any, work: Work, others: list[str]) -> Any:
    """The rows of a file with the changes that are for them."""
    import polars as pl

    keys = list(work.lake.keys)
    feed = work.kind == "feed"
    near = near.select(*keys, *others, *([OPERATION] if feed else []), pl.lit(True).alias("hit"))
    joined = old.join(near, on=keys, how="left", maintain_order="left", suffix=" new")
    if feed:
        newer = pl.col("hit") & (pl.col(f"{SEQUENCE} new") >= pl.col(SEQUENCE))
        joined = joined.with_columns(newer.fill_null(False).alias("hit"))
        joined = joined.filter(~(pl.col("hit") & (pl.col(OPERATION) == "D").fill_null(False)))
    patched = [pl.when("hit").then(pl.col(f"{name} new")).otherwise(pl.col(name)).alias(name) for name in others]
    return joined.select(*keys, *patched)


def by_duckdb(folder: Path, source: pa.Table, work: Work) -> None:
    import duckdb

    keys, first, codec = work.lake.keys, work.lake.keys[0], work.lake.codec
    others = value_columns(work, source)
    using, columns = ", ".join(keys), ", ".join([*keys, *others])
    newer = f"coalesce(s.{SEQUENCE} >= t.{SEQUENCE}, false)" if work.kind == "feed" else "s.hit"
    patched = ", ".join(f"CASE WHEN {newer} THEN s.{name} ELSE t.{name} END AS {name}" for name in others)
    kept = f"WHERE NOT ({newer} AND coalesce(s.{OPERATION} = 'D', false))" if work.kind == "feed" else ""
    with duckdb.connect() as connection:
        connection.register("given", source)
        connection.execute("CREATE TABLE changes AS SELECT *, true AS hit FROM given")
        connection.execute(f"CREATE TABLE seen AS SELECT {using} FROM changes LIMIT 0")
        for path, rows, low, high in touched_files(folder, source, first):
            beside = path.with_suffix(".new")
            old = f"read_parquet('{path}', hive_partitioning = false)"
            near = f"(SELECT * FROM changes WHERE {first} BETWEEN '{low}' AND '{high}')"
            joined = f"SELECT {using}, {patched} FROM {old} t LEFT JOIN {near} s USING ({using}) {kept}"
            if work.kind == "delete":
                joined = f"SELECT * FROM {old} ANTI JOIN {near} USING ({using})"
            connection.execute(
                f"COPY ({joined}) TO '{beside}' (FORMAT parquet, COMPRESSION {codec}, ROW_GROUP_SIZE {rows})"
            )
            if work.kind != "delete":
                connection.execute(f"INSERT INTO seen SELECT {using} FROM {near} SEMI JOIN {old} USING ({using})")
            beside.replace(path)
        if work.kind == "delete":
            return
        inserted = f"(FROM changes WHERE {OPERATION} <> 'D')" if work.kind == "feed" else "changes"
        new = f"{inserted} ANTI JOIN seen USING ({using})"
        for day in connection.execute(f"SELECT DISTINCT {'day' if work.lake.days else 'NULL'} FROM {new}").fetchall():
            only = f"WHERE day = '{day[0]}'" if day[0] else ""
            into = new_file(folder, day[0])
            connection.execute(
                f"COPY (SELECT {columns} FROM {new} {only}) TO '{into}' (FORMAT parquet, COMPRESSION {codec})"
            )


def value_columns(work: Work, source: pa.Table) -> list[str]:
    return [name for name in source.column_names if name not in (*work.lake.keys, "day", OPERATION)]


def new_file(folder: Path, day: str | None) -> Path:
    place = folder / f"day={day}" if day else folder
    place.mkdir(exist_ok=True)
    return place / f"new-{uuid.uuid4().hex}.parquet"
