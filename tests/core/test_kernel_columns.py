"""New rows with some of the columns: the others keep their values, and are neither read nor encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.model import Rewritten, WriteOptions
from fsspeckit.core.rewrite import row_group
from fsspeckit.core.values.schema import plain_schema
from rewriting import READERS, cannot_be_copied, change, new_file, read_pyarrow, rewrite
from spliced_files import FILES, halves

ROWS, SIZE = 60, 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake" / "f.parquet"


@pytest.fixture
def columns_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns that were read, in all row groups."""
    read: list[str] = []
    original = row_group.read_row_group  # type: ignore[attr-defined]

    def observed(*args: Any, **named: Any) -> pa.Table:
        table = original(*args, **named)
        read.extend(table.column_names)
        return table

    monkeypatch.setattr(row_group, "read_row_group", observed)
    return read


def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "x": pa.array([i / 4 for i in range(ROWS)]),
            "name": pa.array([f"name {i % 3}" for i in range(ROWS)]),
            "tags": pa.array([[i, None][: i % 3] for i in range(ROWS)], pa.list_(pa.int64())),
        }
    )


def written(path: Path, rows: pa.Table | None = None) -> list[dict[str, Any]]:
    rows = table() if rows is None else rows
    pq.write_table(rows, path, row_group_size=SIZE)
    return list(rows.to_pylist())


# -- every writer


@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_every_reader_sees_old_values_in_the_other_columns(path: Path, name: str, deletes: bool) -> None:
    """In the middle row group some rows take some columns of rows of the last, and others are deleted."""
    FILES[name](path)
    old, taken = pq.ParquetFile(path), halves(name)[1]
    size = old.metadata.row_group(0).num_rows
    rows = old.read().cast(plain_schema(old.schema_arrow)).select(taken)
    positions, sources, gone = [1, 2, 9], [2 * size + 16, 2 * size + 3, 2 * size], [0, 3, 10] if deletes else []
    done = rewrite(path, {1: change(positions, rows.take(pa.array(sources)), gone)}, deletes=deletes)
    assert done.staged[0].rows == 3 * size - len(gone)
    assert done.spliced or name.startswith("fastparquet"), "it needs dictionaries in all row groups, or in none"
    for reader, read in READERS.items():
        before, names = read(path), old.schema_arrow.names
        expected = [list(row.values() if isinstance(row, dict) else row) for row in before]
        for position, source in zip(positions, sources, strict=True):
            for index in map(names.index, taken):
                expected[size + position][index] = expected[source][index]
        expected = [row for place, row in enumerate(expected) if place - size not in gone]
        seen = [list(row.values() if isinstance(row, dict) else row) for row in read(new_file(path))]
        assert repr(seen) == repr(expected), reader


# -- what is read, and what is copied


def test_only_columns_of_the_new_rows_are_read(path: Path, columns_read: list[str]) -> None:
    before = written(path)
    done = rewrite(path, {1: change([3], pa.table({"x": [9.5]}))}, deletes=False)
    assert columns_read == ["x"]
    before[23]["x"] = 9.5
    assert read_pyarrow(new_file(path)) == before
    old = pq.read_metadata(path)
    chunks = [old.row_group(g).column(c) for g in range(3) for c in range(4) if (g, c) != (1, 1)]
    assert done.copied == sum(chunk.total_compressed_size for chunk in chunks)


def test_rows_whose_columns_are_equal_change_nothing(path: Path, columns_read: list[str]) -> None:
    written(path)
    assert rewrite(path, {1: change([3], pa.table({"x": [23 / 4]}))}, deletes=False) == Rewritten("f.parquet", ())
    assert columns_read == ["x"]


@pytest.mark.parametrize("verify", [True, False])
def test_keys_are_compared_if_the_new_rows_have_them(path: Path, columns_read: list[str], verify: bool) -> None:
    written(path)
    new = pa.table({"id": [23], "x": [9.5]})
    rewrite(path, {1: change([3], new)}, verify_keys=verify, deletes=False)
    assert set(columns_read) == ({"id", "x"} if verify else {"x"})
    with pytest.raises(DatasetMergeError, match="rows of other keys"):
        rewrite(path, {1: change([4], new)}, deletes=False)


@pytest.mark.parametrize("way", ["re-encoded", "as new files"])
def test_files_that_are_written_whole(path: Path, way: str) -> None:
    before = written(path)
    if way == "re-encoded":
        edit_footer(path, cannot_be_copied)
    job: dict[str, Any] = {"as_new_files": WriteOptions()} if way == "as new files" else {}
    new = pa.table({"tags": pa.array([[7], None], pa.list_(pa.int64()))})
    done = rewrite(path, {0: change([4, 5], new, [6, 7])}, **job)
    before[4]["tags"], before[5]["tags"] = [7], None
    assert read_pyarrow(path.parent.parent / done.staged[0].staged) == before[:6] + before[8:]


# -- columns that the file lacks


def wider() -> pa.Schema:
    return table().schema.append(pa.field("new", pa.int32()))


def test_a_column_that_neither_the_file_nor_the_new_rows_have(path: Path) -> None:
    before = written(path)
    done = rewrite(path, {0: change([4], pa.table({"x": [9.5]}))}, schema=wider())
    before[4]["x"] = 9.5
    assert (done.spliced, read_pyarrow(new_file(path))) == (True, before)


@pytest.mark.parametrize("added", [True, False])
def test_a_column_that_only_the_new_rows_have(path: Path, added: bool) -> None:
    before = written(path)
    new = pa.table({"new": pa.array([5, None], pa.int32())})
    done = rewrite(path, {0: change([4, 6], new)}, schema=wider(), added={"new": None} if added else {})
    assert done.spliced is added
    expected = [{**row, "new": 5 if row["id"] == 4 else None} for row in before]
    assert read_pyarrow(new_file(path)) == expected
