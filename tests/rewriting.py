"""Rewrite one file with changes that a test makes up, and read the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.dataset.footers import read_footer
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.model import Rewritten, Shape
from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet import thrift
from fsspeckit.core.rewrite.file import rewrite_file
from fsspeckit.core.rewrite.job import Job, RowGroupChange
from fsspeckit.core.storage import locate
from fsspeckit.core.values.schema import plain_schema

NO_ROWS = pa.table({})
DATA = Path(__file__).parent / "data"
SAMPLES = {path.relative_to(DATA).as_posix(): path for path in sorted(DATA.rglob("*.parquet"))}
"""Files of all writers, with several row groups and the key `id`."""


@dataclass
class Changes:
    """Changes by row group, and how often each was asked for."""

    by_group: Mapping[int, RowGroupChange]
    asked: Counter[int] = field(default_factory=Counter)

    def row_group(self, group: int) -> RowGroupChange:
        self.asked[group] += 1
        return self.by_group[group]


def change(positions: Sequence[int] = (), rows: pa.Table = NO_ROWS, deleted: Sequence[int] = ()) -> RowGroupChange:
    return RowGroupChange(np.array(positions, dtype=np.int64), rows, np.array(deleted, dtype=np.int64))


def rewrite(
    path: Path,
    changes: Mapping[int, RowGroupChange],
    *,
    keys: Sequence[str] = ("id",),
    schema: pa.Schema | None = None,
    threads: int = 1,
    **job: Any,
) -> Rewritten:
    """Rewrite a file that is alone in its folder. The new file is `new` beside that folder: see `new_file`."""
    location = locate(str(path.parent))
    footer = read_footer(location, list_files(location)[0], list(keys))
    schema = plain_schema(footer.schema if schema is None else schema)
    made = Job(footer, tuple(sorted(changes)), str(path.parent.parent), "new", path.name, **{"deletes": True, **job})
    with Pool.of(threads) as pool:
        shape = Shape(schema, tuple(schema.names), tuple(keys), ())
        return rewrite_file(location, shape, made, Changes(changes), pool)


def new_file(path: Path) -> Path:
    return path.parent.parent / "new"


def cannot_be_copied(footer: thrift.Struct) -> None:
    """For `edit_footer`: a field that no version of the format has, so that the file is re-encoded."""
    footer[4][1][1][-1][1][1][1][0][3][1][60] = thrift.I64, 4


def read_pyarrow(path: Path) -> list[Any]:
    """By row group: PyArrow does not join nested dictionaries."""
    file = pq.ParquetFile(path)
    return [row for group in range(file.num_row_groups) for row in file.read_row_group(group).to_pylist()]


def read_duckdb(path: Path) -> list[Any]:
    with duckdb.connect() as connection:
        return list(connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall())


READERS: dict[str, Callable[[Path], list[Any]]] = {
    "pyarrow": read_pyarrow,
    "duckdb": read_duckdb,
    "polars": lambda path: pl.read_parquet(path).rows(),
}
