"""Row groups that lose all rows, files without rows, and files that only get another ledger."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from damage import edit_footer, raw_footer
from fsspeckit.core.model import Rewritten, WriteOptions
from fsspeckit.core.parquet import thrift
from rewriting import SAMPLES, cannot_be_copied, change, new_file, read_pyarrow, rewrite
from spliced_files import FILES

LEDGER = {"fsspeckit.stream.app": '{"batch": 3}'}
WAYS = ["spliced", "re-encoded", "as new files"]
ALL_FILES: dict[str, Callable[[Path], Any]] = {
    **FILES,
    **{name: partial(shutil.copyfile, sample) for name, sample in SAMPLES.items()},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake" / "f.parquet"


def write(path: Path, way: str = "spliced") -> dict[str, Any]:
    """A file with three row groups, and the options of a job that writes it in this way."""
    table = pa.table({"id": range(60), "name": [f"name {i % 3}" for i in range(60)]})
    pq.write_table(table, path, row_group_size=20)
    if way == "re-encoded":
        edit_footer(path, cannot_be_copied)
    return {"as_new_files": WriteOptions()} if way == "as new files" else {}


def staged(path: Path, done: Rewritten) -> Path:
    (new,) = done.staged
    return path.parent.parent / new.staged


# -- deleted row groups


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("gone", [{0}, {1}, {0, 2}, {1, 2}])
def test_the_changes_of_deleted_row_groups_are_not_asked_for(path: Path, way: str, gone: set[int]) -> None:
    """`rewrite` has no change for them, and would fail."""
    job = write(path, way)
    kept = min({0, 1, 2} - gone)
    changes = {kept: change([2], pa.table({"name": ["new"]}), [5])}
    done = rewrite(path, changes, deleted_groups=frozenset(gone), **job)
    before = read_pyarrow(path)
    before[kept * 20 + 2]["name"] = "new"
    expected = [row for i, row in enumerate(before) if i // 20 not in gone and i != kept * 20 + 5]
    assert read_pyarrow(staged(path, done)) == expected
    assert (done.changed, done.staged[0].rows, done.removed) == (1, len(expected), False)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_but_deleted_row_groups_changes(path: Path, way: str) -> None:
    job = write(path, way)
    done = rewrite(path, {}, deleted_groups=frozenset({1}), **job)
    before = read_pyarrow(path)
    assert read_pyarrow(staged(path, done)) == before[:20] + before[40:]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_without_kept_row_groups_is_removed(path: Path, way: str) -> None:
    job = write(path, way)
    done = rewrite(path, {}, deleted_groups=frozenset(range(3)), **job)
    assert done == Rewritten("f.parquet", (), removed=True)
    assert [entry.name for entry in path.parent.parent.iterdir()] == ["lake"]


# -- a file without rows

COLUMNS: dict[str, Callable[[Path], Iterable[str]]] = {
    "pyarrow": lambda path: pq.read_table(path, partitioning=None).column_names,
    "duckdb": lambda path: duckdb.read_parquet(str(path)).columns,
    "polars": lambda path: pl.read_parquet(path, hive_partitioning=False).columns,
    "pandas": lambda path: pd.read_parquet(path, partitioning=None).columns,
    "fastparquet": lambda path: importlib.import_module("fastparquet").ParquetFile(str(path)).to_pandas().columns,
}


def columns(path: Path, readers: Iterable[str]) -> dict[str, list[str]]:
    """The columns by reader. fastparquet cannot read some of the files."""
    found = {}
    for reader in readers:
        try:
            found[reader] = list(COLUMNS[reader](path))
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            assert reader == "fastparquet"
    return found


@pytest.mark.parametrize("name", ALL_FILES)
def test_every_reader_sees_the_columns_of_a_file_without_rows(path: Path, name: str) -> None:
    ALL_FILES[name](path)
    groups = pq.read_metadata(path).num_row_groups
    done = rewrite(path, {}, deleted_groups=frozenset(range(groups)), keep_empty=True, ledger=LEDGER)
    new, old = new_file(path), raw_footer(path)
    assert (done.staged[0].rows, done.staged[0].path, done.staged[0].size) == (0, "f.parquet", new.stat().st_size)
    assert (done.removed, pq.read_metadata(new).num_rows) == (False, 0)
    assert raw_footer(new)[2] == old[2], "the schema is the same to the byte"
    readers = [reader for reader in COLUMNS if reader != "polars" or "duckdb/" not in name]  # it cannot read intervals
    seen = columns(path, readers)
    assert columns(new, seen) == seen
    assert pq.read_schema(new).remove_metadata() == pq.read_schema(path).remove_metadata()
    entries, before = pq.read_metadata(new).metadata, pq.read_metadata(path).metadata or {}
    assert entries[b"fsspeckit.stream.app"] == b'{"batch": 3}'
    assert entries.keys() == {*before, b"fsspeckit.stream.app"}
    assert {name for name in before if entries[name] != before[name]} <= {b"pandas", b"ARROW:schema"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by_position", [True, False])
def test_a_file_without_rows_has_the_schema(path: Path, way: str, by_position: bool) -> None:
    job: dict[str, Any] = {**write(path, way), "keep_empty": True}
    if by_position:
        done = rewrite(path, {group: change(deleted=range(20)) for group in range(3)}, **job)
    else:
        done = rewrite(path, {}, deleted_groups=frozenset(range(3)), **job)
    table = pq.read_table(staged(path, done))
    assert (table.num_rows, table.schema) == (0, pq.read_schema(path))


@pytest.mark.parametrize("name", ["codec zstd", "duckdb", "polars", "fastparquet", "spark_legacy"])
def test_rows_are_merged_into_a_file_without_rows(path: Path, name: str) -> None:
    ALL_FILES[next(file for file in ALL_FILES if file.startswith(name))](path)
    rows = pq.read_table(path)
    rewrite(path, {}, deleted_groups=frozenset(range(pq.read_metadata(path).num_row_groups)), keep_empty=True)
    shutil.copyfile(new_file(path), path)
    result = fsspeckit.merge(rows, str(path.parent), key_columns=["id"])
    assert (result.inserted, fsspeckit.read(str(path.parent)).num_rows) == (rows.num_rows, rows.num_rows)
    assert pq.read_table(path.parent).to_pylist() == rows.to_pylist()


def test_a_file_that_keeps_rows_is_written_as_usual(path: Path) -> None:
    write(path)
    done = rewrite(path, {}, deleted_groups=frozenset({0, 1}), keep_empty=True)
    assert (done.staged[0].rows, read_pyarrow(new_file(path))) == (20, read_pyarrow(path)[40:])


# -- another ledger


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("name", ALL_FILES)
def test_a_file_that_gets_a_ledger_keeps_its_other_bytes(path: Path, name: str, copied: bool) -> None:
    """Also a file whose chunks cannot be spliced."""
    ALL_FILES[name](path)
    if not copied:
        edit_footer(path, cannot_be_copied)
    done = rewrite(path, {}, keeps_rows=True, ledger=LEDGER, deletes=False)
    new = new_file(path)
    length = len(thrift.encode(raw_footer(path))) + 8
    assert new.read_bytes().startswith(path.read_bytes()[:-length])
    old, footer = raw_footer(path), raw_footer(new)
    assert {number: footer[number] for number in footer if number != 5} == {n: old[n] for n in old if n != 5}
    metadata = pq.read_metadata(new)
    assert metadata.metadata == {**(pq.read_metadata(path).metadata or {}), b"fsspeckit.stream.app": b'{"batch": 3}'}
    assert (done.staged[0].rows, done.staged[0].size) == (metadata.num_rows, new.stat().st_size)
    assert (done.keeps_rows, done.changed, done.copied) == (True, 0, path.stat().st_size - length)


def test_a_ledger_replaces_the_one_before(path: Path) -> None:
    write(path)
    rewrite(path, {}, keeps_rows=True, ledger=LEDGER)
    shutil.copyfile(new_file(path), path)
    rewrite(path, {}, keeps_rows=True, ledger={"fsspeckit.stream.app": '{"batch": 4}'})
    assert pq.read_metadata(new_file(path)).metadata[b"fsspeckit.stream.app"] == b'{"batch": 4}'
    assert read_pyarrow(new_file(path)) == read_pyarrow(path)
