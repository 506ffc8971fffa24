"""Fewer small files to begin with: new rows join small files, and streams compact now and then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.errors import ArgumentError
from support import data_files, fingerprint, multiset, rows, write_lake


def batch(number: int, count: int = 10) -> pa.Table:
    return pa.table({"id": range(number * count, (number + 1) * count), "x": [f"x{number}"] * count})


def test_new_rows_join_the_smallest_file(io: Any, tmp_path: Path) -> None:
    big = pa.table({"id": range(-5_000, 0), "x": [f"big{i}" for i in range(5_000)]})
    lake = write_lake(tmp_path / "lake", {"a.parquet": big, "b.parquet": batch(0)})
    before = fingerprint(lake)["a.parquet"]
    result = io.merge(batch(1), lake, "upsert", ["id"], small_files="append")
    assert (result.inserted, result.updated, result.target_count_after) == (10, 0, 5_020)
    assert len(data_files(lake)) == 2
    assert fingerprint(lake)["a.parquet"] == before
    assert [Path(name).name for name in result.removed_files] == ["b.parquet"]
    new = Path(lake, data_files(lake)[1])
    assert new.name.startswith("b.fk")
    assert pq.ParquetFile(new).read().column("id").to_pylist() == list(range(20))
    assert pq.read_metadata(new).num_row_groups == 1


def test_full_row_groups_are_copied(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"a.parquet": batch(0, 100_000)})
    io.merge(pa.table({"id": [-1], "x": ["new"]}), lake, "upsert", ["id"], small_files="append")
    metadata = pq.read_metadata(Path(lake, data_files(lake)[0]))
    assert [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)] == [100_000, 1]


def test_partitions_with_and_without_a_small_file(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"p=1/a.parquet": batch(0), "p=2/a.parquet": batch(1)})
    source = pa.table({"id": [100, 200, 300], "x": ["n"] * 3, "p": [1, 2, 3]})
    result = io.merge(source, lake, "upsert", ["id"], small_files="append")
    assert result.inserted == 3
    assert [len([n for n in data_files(lake) if n.startswith(f"p={p}/")]) for p in (1, 2, 3)] == [1, 1, 1]
    assert len(rows(lake)) == 23


def test_a_file_that_is_updated_takes_no_new_rows(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"a.parquet": batch(0)})
    source = pa.table({"id": [0, 50], "x": ["changed", "new"]})
    result = io.merge(source, lake, "upsert", ["id"], small_files="append")
    assert (result.inserted, result.updated) == (1, 1)
    assert multiset(rows(lake)) == multiset(
        [*batch(0).slice(1).to_pylist(), {"id": 0, "x": "changed"}, {"id": 50, "x": "new"}]
    )


def test_other_strategies_are_refused(io: Any, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", {"a.parquet": batch(0)})
    with pytest.raises(ArgumentError, match="needs strategy='upsert', not 'insert'"):
        io.merge(batch(1), lake, "insert", ["id"], small_files="append")
    with pytest.raises(ArgumentError, match="Unknown small_files 'join'"):
        io.merge(batch(1), lake, "upsert", ["id"], small_files="join")


@pytest.mark.slow
@pytest.mark.disk
@pytest.mark.parametrize("way", ["append", "compact"])
def test_300_micro_batches(io: Any, engine: str, tmp_path: Path, way: str) -> None:
    lake, batches = str(tmp_path / "lake"), 30 if engine == "spark" else 300
    options = {"small_files": "append"} if way == "append" else {}
    for number in range(batches):
        source, named = batch(number), Batch("events", number)
        assert io.merge(source, lake, "upsert", ["id"], batch=named, **options).inserted == 10
        if number % 50 == 7:  # a batch that is repeated is skipped
            assert io.merge(source, lake, "upsert", ["id"], batch=named, **options).inserted == 0
        if way == "compact" and (number + 1) % 50 == 0:
            io.compact(lake)
    if way == "compact":
        io.compact(lake)
    assert len(data_files(lake)) == 1
    assert sorted(row["id"] for row in rows(lake)) == list(range(10 * batches))
