"""The checks of the conformance suite find what they are for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import chunk_of, edit_footer
from fsspeckit.api import dataset_io
from fsspeckit.core.parquet import thrift
from readers.check import Tally, all_readers, differences
from readers.lakes import Counts, read_all, unreadable


def test_bounds_that_exclude_values_are_seen_by_every_reader(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 3.0]}), old)
    pq.write_table(pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 9.0]}), new)
    tally = Tally()
    assert differences(str(new), str(old), all_readers(), tally) == []
    assert min(tally.filters.values()) > 10
    _set_bounds(new, 0, 0)
    found = differences(str(new), str(old), all_readers(), Tally())
    assert {text.partition(",")[0] for text in found} == {"duckdb", "polars", "datafusion"}
    _set_bounds(new, 1, 2)
    found = differences(str(new), str(old), all_readers(), Tally())
    assert any(text.startswith("polars, id >= the greatest value: 0 rows") for text in found)


def _set_bounds(path: Path, least: int, greatest: int) -> None:
    bounds = {number: (thrift.BINARY, value.to_bytes(8, "little")) for number, value in ((6, least), (5, greatest))}
    edit_footer(path, lambda footer: chunk_of(footer)[12][1].update(bounds))


def test_bounds_that_leave_out_nan_are_seen_but_where_the_old_file_has_them(tmp_path: Path) -> None:
    """PyArrow's own bounds leave NaN out."""
    nan, path = float("nan"), tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": [1, 2], "x": [1.0, nan]}), path)
    found = differences(str(path), None, all_readers(), Tally())
    assert any(text.startswith("duckdb, x = nan: 0 rows [] pushed down, 1 rows") for text in found)
    assert differences(str(path), str(path), all_readers(), Tally()) == []


def test_a_lake_that_is_no_longer_read_is_seen(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": [1], "x": ["a"]}), tmp_path / name / "a.parquet")
    pq.write_table(pa.table({"id": [2], "x": [[1]]}), tmp_path / "after" / "b.parquet")
    before, after = read_all(tmp_path / "before"), read_all(tmp_path / "after")
    found = unreadable(before, after, Counts(1, 1, 0, 0))
    assert {text.partition(" ")[0] for text in found} >= {"pyarrow", "pandas", "polars"}
    assert unreadable(before, before, Counts(1, 0, 0, 0)) == []
    assert len(unreadable(before, before, Counts(1, 1, 0, 0))) == 4


@pytest.mark.parametrize("write_statistics", [False, ["id"]])
def test_no_bounds_are_added_to_one_of_several_row_groups(tmp_path: Path, write_statistics: bool | list[str]) -> None:
    """DataFusion took the bounds of one row group for those of the file, and did not find the rows of the others."""
    table = pa.table({"id": range(6), "n": range(6), "s": [f"s{i}" for i in range(6)]})
    (tmp_path / "lake").mkdir()
    pq.write_table(table, tmp_path / "lake/f.parquet", row_group_size=2, write_statistics=write_statistics)
    shutil.copy(tmp_path / "lake/f.parquet", tmp_path / "old.parquet")
    source = pa.table({"id": [3], "n": [33], "s": ["new"]})
    dataset_io("pyarrow").merge(source, str(tmp_path / "lake"), "update", ["id"])
    metadata = pq.read_metadata(tmp_path / "lake/f.parquet")
    chunks = [metadata.row_group(group).column(column) for group in range(3) for column in (1, 2)]
    assert not any(chunk.statistics is not None and chunk.statistics.has_min_max for chunk in chunks)
    new, old = str(tmp_path / "lake/f.parquet"), str(tmp_path / "old.parquet")
    assert differences(new, old, all_readers(), Tally()) == []
