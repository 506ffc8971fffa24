"""Lakes as common readers see them with their default options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from readers.attempt import attempt

MOST_ROWS = 20_000
# pandas reads no lake in which one partition value is null and another is not, with any writer.
NULL_PARTITION = "Cannot yet unify dictionaries with nulls"


@dataclass(frozen=True)
class Read:
    """What one reader makes of a lake."""

    count: int
    schema: str
    rows: Counter[str] | None = None


def read_all(lake: Path) -> dict[str, Read | str]:
    """What every reader reads, or its error."""
    return {name: attempt(partial(reader, lake)) for name, reader in READERS.items()}


def _pyarrow(lake: Path) -> Read:
    table = pq.read_table(lake)
    rows = Counter(map(repr, table.to_pylist())) if table.num_rows <= MOST_ROWS else None
    return Read(table.num_rows, str(table.schema), rows)


def _pandas(lake: Path) -> Read:
    """Its types follow from the values of all rows: only their number is compared."""
    import pandas as pd

    return Read(len(pd.read_parquet(lake)), "")


def _polars(lake: Path) -> Read:
    import polars as pl

    frame = pl.read_parquet(lake)
    return Read(len(frame), str(frame.schema), Counter(map(repr, frame.rows())) if len(frame) <= MOST_ROWS else None)


def _duckdb(lake: Path) -> Read:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        found: Any = connection.execute("SELECT * FROM read_parquet(?)", [f"{lake}/**/*.parquet"])
        schema = str([column[:2] for column in found.description])
        rows = found.fetchall()
    return Read(len(rows), schema, Counter(map(repr, rows)) if len(rows) <= MOST_ROWS else None)


READERS: dict[str, Callable[[Path], Read]] = {
    "pyarrow": _pyarrow,
    "pandas": _pandas,
    "polars": _polars,
    "duckdb": _duckdb,
}


@dataclass(frozen=True)
class Counts:
    """What a merge says that it did, and how many rows it found."""

    before: int
    inserted: int
    updated: int
    deleted: int


def unreadable(before: dict[str, Read | str], after: dict[str, Read | str], counts: Counts) -> list[str]:
    """Readers that read the lake before the merge and do not afterwards, or read other rows than it should have.

    Some readers see no files in `_hidden` folders, or see those of a dead writer: they did not read the lake before.
    """
    found = []
    for name, old in before.items():
        new = after[name]
        if isinstance(old, str) or old.count != counts.before:
            continue
        if isinstance(new, str):
            if NULL_PARTITION in new:
                continue
            found.append(f"{name} read the lake before the merge, and now: {new}")
        elif new.count != old.count + counts.inserted - counts.deleted:
            found.append(f"{name} read {old.count} rows before the merge ({counts}), and now {new.count}")
        elif old.rows is not None and new.rows is not None and old.schema == new.schema:
            gone, come = (old.rows - new.rows).total(), (new.rows - old.rows).total()
            if gone > counts.updated + counts.deleted or come > counts.updated + counts.inserted:
                found.append(f"{name} lost {gone} rows and found {come} others ({counts})")
    return found
