"""What a source may be: every kind gives the same merge, and a broken one is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import DatasetMergeError, MergeValidationError
from support import fingerprint, rows, write_lake

SOURCE = pa.table({"id": [1, 5], "x": ["A", "B"]})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": [0, 1, 2], "x": ["a", "b", "c"]})})


def files(folder: Path, *tables: pa.Table) -> list[str]:
    for number, table in enumerate(tables):
        write_lake(folder / "source", {f"s{number}.parquet": table})
    return [str(folder / "source" / f"s{number}.parquet") for number in range(len(tables))]


KINDS = {
    "table": lambda _: SOURCE,
    "batch": lambda _: SOURCE.to_batches()[0],
    "reader": lambda _: SOURCE.to_reader(),
    "pandas": lambda _: pd.DataFrame({"id": [1, 5], "x": ["A", "B"]}),
    "polars": lambda _: pl.DataFrame({"id": [1, 5], "x": ["A", "B"]}),
    "file": lambda folder: files(folder, SOURCE)[0],
    "path object": lambda folder: Path(files(folder, SOURCE)[0]),
    "folder": lambda folder: str(Path(files(folder, SOURCE.slice(0, 1), SOURCE.slice(1))[0]).parent),
    "several files": lambda folder: files(folder, SOURCE.slice(0, 1), SOURCE.slice(1)),
    "several types": lambda folder: files(
        folder, SOURCE.slice(0, 1).cast(pa.schema([("id", pa.int32()), ("x", pa.large_string())])), SOURCE.slice(1)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source(io: Any, lake: str, tmp_path: Path, kind: str) -> None:
    result = io.merge(KINDS[kind](tmp_path), lake, "upsert", ["id"])
    assert (result.source_count, result.inserted, result.updated) == (2, 1, 1)
    assert {row["id"]: row["x"] for row in rows(lake)} == {0: "a", 1: "A", 2: "c", 5: "B"}


def test_a_corrupt_source_is_named(io: Any, lake: str, tmp_path: Path) -> None:
    numbers = list(range(10_000))
    (path,) = files(tmp_path, pa.table({"id": numbers, "x": [f"{n:>40}" for n in numbers]}))
    start = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    content = bytearray(Path(path).read_bytes())
    content[start + 40 : start + 4000] = b"\xff" * 3960
    Path(path).write_bytes(content)
    before = fingerprint(lake)
    with pytest.raises(DatasetMergeError, match=r"s0\.parquet"):
        io.merge(path, lake, "upsert", ["id"])
    assert fingerprint(lake) == before


@pytest.mark.parametrize("second", [pa.table({"id": ["1"], "x": ["A"]}), pa.table({"id": [1], "y": ["A"]})])
def test_files_of_a_source_that_do_not_go_together(io: Any, lake: str, tmp_path: Path, second: pa.Table) -> None:
    before = fingerprint(lake)
    with pytest.raises(MergeValidationError, match="source"):
        io.merge(files(tmp_path, SOURCE, second), lake, "upsert", ["id"])
    assert fingerprint(lake) == before


def test_something_else_is_refused(io: Any, lake: str) -> None:
    with pytest.raises(MergeValidationError, match="Cannot read a source of type int"):
        io.merge(5, lake, "upsert", ["id"])
    with pytest.raises(MergeValidationError, match="does not exist"):
        io.merge("nowhere.parquet", lake, "upsert", ["id"])
