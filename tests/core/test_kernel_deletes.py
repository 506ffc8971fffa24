"""The kernel deletes rows: row groups have fewer of them. `test_kernel_erased.py` looks for what is left of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, raw_footer
from fsspeckit.core.model import Rewritten, WriteOptions
from fsspeckit.core.values.schema import plain_schema
from rewriting import NO_ROWS, READERS, cannot_be_copied, change, new_file, read_pyarrow, rewrite
from spliced_files import FILES


def delete(
    path: Path,
    deleted: Mapping[int, Sequence[int]],
    replaced: Mapping[int, tuple[Sequence[int], pa.Table]] | None = None,
    **options: Any,
) -> Rewritten:
    """The positions to delete and to replace, by row group."""
    replaced = replaced or {}
    changes = {
        group: change(*replaced.get(group, ((), NO_ROWS)), deleted=deleted.get(group, ()))
        for group in {*deleted, *replaced}
    }
    return rewrite(path, changes, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake" / "f.parquet"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FILES)
def test_every_reader_sees_the_rows_that_are_left(path: Path, name: str, threads: int) -> None:
    """Of three row groups the first loses some rows and keeps one that is replaced, the second loses all."""
    FILES[name](path)
    old = pq.ParquetFile(path)
    size = old.metadata.row_group(0).num_rows
    table = old.read().cast(plain_schema(old.schema_arrow))
    deleted_rows = {0: [0, 6, 7, 12, size - 1], 1: list(range(size))}
    new_row = table.slice(2 * size + 3, 1).set_column(0, "id", table.column("id").slice(2, 1))
    done = delete(path, deleted_rows, {0: ([2], new_row)}, threads=threads, verify_keys=threads > 1)
    new, places = (
        new_file(path),
        [p for p in range(3 * size) if p not in deleted_rows[0] and p // size != 1],
    )
    (staged,) = done.staged
    assert (staged.rows, staged.size, done.removed) == (2 * size - 5, new.stat().st_size, False)
    metadata = pq.read_metadata(new)
    assert [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)] == [size - 5, size]
    assert (metadata.num_rows, metadata.schema) == (2 * size - 5, old.metadata.schema)
    assert [group[7][1] for group in raw_footer(new)[4][1][1] if 7 in group] in ([], [0, 1])
    for reader, read in READERS.items():
        before = read(path)
        replaced = _with_key_of(before[2], before[2 * size + 3])
        expected = [replaced if place == 2 else before[place] for place in places]
        assert repr(read(new)) == repr(expected), reader
    check_bounds(new)


def _with_key_of(row: Any, other: Any) -> Any:
    return {**other, "id": row["id"]} if isinstance(row, dict) else (row[0], *other[1:])


def check_bounds(path: Path) -> None:
    """Statistics of flat columns are those of the values that are there."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        for leaf, name in enumerate(file.metadata.schema.names):
            statistics = file.metadata.row_group(group).column(leaf).statistics
            if name not in ("id", "whole", "text", "word", "day") or statistics is None or not statistics.has_min_max:
                continue
            column = file.read_row_group(group, [name]).column(0).to_pylist()
            values = [value for value in column if value is not None]
            assert (statistics.min, statistics.max) == (min(values), max(values)), (group, name)
            assert statistics.null_count in (None, len(column) - len(values))


# -- what is copied


def rows() -> pa.Table:
    names = [("Anna", "Carl", None)[i % 3] for i in range(60)]
    return pa.table({"id": pa.array(range(60)), "name": names, "x": pa.array([None, *range(59)])})


def by_pyarrow(table: pa.Table, **options: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(table, path, **{"row_group_size": 20, "compression": "none", **options})


def test_row_groups_without_deletes_are_copied(path: Path) -> None:
    by_pyarrow(rows())(path)
    chunks = [pq.read_metadata(path).row_group(group).column(c) for group in (1, 2) for c in range(3)]
    assert delete(path, {0: [7]}).copied == sum(chunk.total_compressed_size for chunk in chunks)


# -- no rows left


@pytest.mark.parametrize("way", ["spliced", "re-encoded", "as new files"])
def test_a_file_that_loses_all_rows_is_removed(path: Path, way: str) -> None:
    by_pyarrow(rows())(path)
    if way == "re-encoded":
        edit_footer(path, cannot_be_copied)
    job: dict[str, Any] = {"as_new_files": WriteOptions()} if way == "as new files" else {}
    assert delete(path, dict.fromkeys(range(3), range(20)), **job) == Rewritten("f.parquet", (), removed=True)
    assert [entry.name for entry in path.parent.parent.iterdir()] == ["lake"]


@pytest.mark.parametrize("way", ["re-encoded", "as new files"])
def test_rows_are_deleted_from_files_that_are_written_whole(path: Path, way: str) -> None:
    by_pyarrow(rows(), write_page_index=True)(path)
    if way == "re-encoded":
        edit_footer(path, cannot_be_copied)
    job: dict[str, Any] = {"as_new_files": WriteOptions()} if way == "as new files" else {}
    done = delete(path, {0: range(20), 1: [0, 19]}, **job)
    assert (done.spliced, done.removed, done.staged[0].rows) == (False, False, 38)
    before = read_pyarrow(path)
    assert read_pyarrow(path.parent.parent / done.staged[0].staged) == before[21:39] + before[40:]


# -- what the footer says


@pytest.mark.parametrize("splices", [True, False])
def test_entries_and_order_are_true_for_the_rows_that_are_left(path: Path, splices: bool) -> None:
    """The order stays, row numbers and the extent of geometries that are no longer there go."""
    frame = pd.DataFrame({"id": range(60), "shape": [b"point"] * 60})
    table = pa.Table.from_pandas(frame)
    geo = {"columns": {"shape": {"encoding": "WKB", "geometry_types": ["Point"], "bbox": [1, 2, 3, 4]}}}
    table = table.replace_schema_metadata({**table.schema.metadata, b"geo": json.dumps(geo).encode()})
    by_pyarrow(table, sorting_columns=[pq.SortingColumn(0)])(path)
    if not splices:
        edit_footer(path, cannot_be_copied)
    assert delete(path, {1: [0, 5]}).spliced is splices
    new = pq.ParquetFile(new_file(path))
    assert {new.metadata.row_group(g).sorting_columns for g in range(3)} == {(pq.SortingColumn(0),)}
    entries = new.schema_arrow.metadata
    assert json.loads(entries[b"pandas"])["index_columns"] == []
    assert "bbox" not in json.loads(entries[b"geo"])["columns"]["shape"]
    assert new.read().to_pandas().index.tolist() == list(range(58))
