"""The kernel: one pass over a file, and what it spares, guards and falls back to."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer, raw_footer
from fsspeckit.core.dataset.footers import read_footer
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.model import Footer, Rewritten, Shape, WriteOptions
from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet import thrift
from fsspeckit.core.rewrite import row_group
from fsspeckit.core.rewrite.file import rewrite_file
from fsspeckit.core.rewrite.job import Job, RowGroupChange
from fsspeckit.core.storage import LocalStorage, Location, locate

GROUPS, SIZE = 10, 50


@dataclass
class Updates:
    """Positions and rows by row group, and how often each was asked for."""

    by_group: dict[int, tuple[list[int], pa.Table]]
    asked: Counter[int] = field(default_factory=Counter)

    def row_group(self, group: int) -> RowGroupChange:
        self.asked[group] += 1
        positions, rows = self.by_group[group]
        return RowGroupChange(np.array(positions), rows)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each row group was read."""
    counted: Counter[int] = Counter()
    original = row_group.read_row_group  # type: ignore[attr-defined]

    def counting(location: Any, path: str, file: Any, group: int, *rest: Any, **named: Any) -> pa.Table:
        counted[group] += 1
        return original(location, path, file, group, *rest, **named)

    monkeypatch.setattr(row_group, "read_row_group", counting)
    return counted


def table(rows: int = GROUPS * SIZE) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "x": pa.array([i / 4 for i in range(rows)]),
            "name": pa.array([f"name {i % 97}" for i in range(rows)]),
            "tags": pa.array([[i, None][: i % 3] for i in range(rows)], pa.list_(pa.int64())),
        }
    )


class Scene:
    """One file, and the jobs that rewrite it."""

    def __init__(self, folder: Path, rows: pa.Table | None = None, **options: Any) -> None:
        self.lake, self.staging = folder / "lake", folder / "staging"
        self.lake.mkdir()
        self.staging.mkdir()
        self.table = table() if rows is None else rows
        self.path = self.lake / "f.parquet"
        pq.write_table(self.table, self.path, **{"row_group_size": SIZE, **options})

    @property
    def location(self) -> Location:
        return locate(str(self.lake))

    @property
    def footer(self) -> Footer:
        return read_footer(self.location, list_files(self.location)[0], ["id"])

    def updates(self, changes: dict[int, dict[str, Any]], schema: pa.Schema | None = None) -> Updates:
        """`changes[row]` are the columns of a row that differ."""
        found: dict[int, tuple[list[int], list[dict[str, Any]]]] = {}
        for row, change in sorted(changes.items()):
            positions, rows = found.setdefault(row // SIZE, ([], []))
            positions.append(row % SIZE)
            rows.append({**self.table.slice(row, 1).to_pylist()[0], **change})
        schema = schema or self.table.schema
        return Updates({g: (p, pa.Table.from_pylist(r, schema)) for g, (p, r) in found.items()})

    def rewrite(self, updates: Updates, shape: Shape | None = None, threads: int = 1, **job: Any) -> Rewritten:
        schema = self.table.schema
        shape = shape or Shape(schema, tuple(schema.names), ("id",), ())
        touched = tuple(sorted(updates.by_group))
        made = Job(self.footer, touched, str(self.staging), "new", "f.parquet", **job)
        with Pool.of(threads) as pool:
            return rewrite_file(self.location, shape, made, updates, pool)

    @property
    def new(self) -> pq.ParquetFile:
        return pq.ParquetFile(self.staging / "new")

    def expected(self, changes: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return [{**row, **changes.get(i, {})} for i, row in enumerate(rows)]


def test_a_touched_row_group_is_read_once_and_its_rows_are_asked_for_once(tmp_path: Path, reads: Counter[int]) -> None:
    scene = Scene(tmp_path)
    changes: dict[int, dict[str, Any]] = {g * SIZE + 3: {"x": -1.0, "name": f"new {g}"} for g in range(GROUPS)}
    updates = scene.updates(changes)
    scene.rewrite(updates)
    assert reads == dict.fromkeys(range(GROUPS), 1)
    assert updates.asked == dict.fromkeys(range(GROUPS), 1)
    assert scene.new.read().to_pylist() == scene.expected(changes)


def test_untouched_and_identical_row_groups_are_copied_unread(tmp_path: Path, reads: Counter[int]) -> None:
    """Row groups 1 and 6 are touched and the same, 4 differs, the others are not touched."""
    scene = Scene(tmp_path)
    changes: dict[int, dict[str, Any]] = {SIZE + 1: {}, 4 * SIZE: {"name": "new"}, 6 * SIZE + 9: {}}
    updates = scene.updates(changes)
    done = scene.rewrite(updates)
    assert (reads, updates.asked) == ({1: 1, 4: 1, 6: 1}, {1: 1, 4: 1, 6: 1})
    assert scene.new.read().to_pylist() == scene.expected(changes)
    old, new = pq.read_metadata(scene.path), scene.new.metadata
    chunks = [(g, c) for g in range(GROUPS) for c in range(4) if (g, c) != (4, 2)]
    assert all(pages(scene.path, old, *at) == pages(scene.staging / "new", new, *at) for at in chunks)
    assert pages(scene.path, old, 4, 2) != pages(scene.staging / "new", new, 4, 2)
    assert done.copied == sum(old.row_group(g).column(c).total_compressed_size for g, c in chunks)
    assert done.staged[0].size == (scene.staging / "new").stat().st_size


def pages(path: Path, metadata: pq.FileMetaData, group: int, column: int) -> bytes:
    chunk = metadata.row_group(group).column(column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return path.read_bytes()[start : start + chunk.total_compressed_size]


def test_identical_rows_spare_the_file(tmp_path: Path, reads: Counter[int]) -> None:
    scene = Scene(tmp_path)
    updates = scene.updates({row: {} for row in range(0, GROUPS * SIZE, 7)})
    assert scene.rewrite(updates) == Rewritten("f.parquet", ())
    assert list(scene.staging.iterdir()) == []
    assert reads == updates.asked == dict.fromkeys(range(GROUPS), 1)


def test_a_row_of_another_key_replaces_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    updates = scene.updates({5: {"x": 1.5}, 3 * SIZE + 7: {"id": 8}})
    with pytest.raises(DatasetMergeError, match=r"f\.parquet would be replaced by rows of other keys"):
        scene.rewrite(updates)


@pytest.mark.parametrize(
    ("name", "verified", "read_again"),
    [("id", False, False), ("name", False, False), ("x", False, True), ("id", True, True), ("name", True, True)],
)
def test_a_key_that_can_only_be_the_same_is_not_read_again(
    tmp_path: Path, name: str, verified: bool, read_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal floats need not be the same: 0.0 and -0.0 are one key."""
    scene, read = Scene(tmp_path), set()
    original = row_group.read_row_group  # type: ignore[attr-defined]

    def observed(*args: Any, **named: Any) -> pa.Table:
        read.update(named["columns"])
        return original(*args, **named)

    monkeypatch.setattr(row_group, "read_row_group", observed)
    changes: dict[int, dict[str, Any]] = {7: {"tags": [9]}}
    shape = Shape(scene.table.schema, tuple(scene.table.column_names), (name,), ())
    scene.rewrite(scene.updates(changes), shape, verify_keys=verified)
    assert read == {"id", "x", "name", "tags"} - (set() if read_again else {name})
    assert scene.new.read().to_pylist() == scene.expected(changes)


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_threads_write_the_same_bytes(tmp_path: Path, threads: int) -> None:
    scene = Scene(tmp_path, write_page_index=True, bloom_filter_options={"name": {"ndv": 100, "fpp": 0.01}})
    changes = {g * SIZE: {"x": 7.5, "name": "new", "tags": [1, 2, 3]} for g in range(0, GROUPS, 3)}
    scene.rewrite(scene.updates(changes))
    alone = scene.new.read()
    one = (scene.staging / "new").stat().st_size
    scene.rewrite(scene.updates(changes), threads=threads)
    assert scene.new.read().equals(alone)
    assert scene.new.read().to_pylist() == scene.expected(changes)
    assert (scene.staging / "new").stat().st_size == one


@pytest.mark.parametrize("splices", [True, False])
def test_columns_read_one_by_one_make_the_same_file(
    tmp_path: Path, splices: bool, reads: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among them a column named like a leaf of another, which PyArrow brings along, and one that differs in a file
    that cannot be copied, so that all of it is read once more."""
    numbers = range(GROUPS * SIZE)
    nested = pa.array([{"id": i, "odd": None} for i in numbers], pa.struct({"id": pa.int64(), "odd": pa.string()}))
    named = table().append_column("s", nested).append_column("s.id", pa.array([-i for i in numbers]))
    scene = Scene(tmp_path, named)
    if not splices:
        edit_footer(scene.path, _too_small)
    changes: dict[int, dict[str, Any]] = {
        5: {"s": {"id": 5, "odd": "new"}},
        2 * SIZE: {"s.id": 77, "name": "new"},
        3 * SIZE: {},
        9 * SIZE: {"x": None},
    }
    done = scene.rewrite(scene.updates(changes))
    data, counted = (scene.staging / "new").read_bytes(), reads.total()
    monkeypatch.setattr(row_group, "_BATCH_BYTES", 1)
    assert scene.rewrite(scene.updates(changes)) == done
    assert (scene.staging / "new").read_bytes() == data
    assert scene.new.read().to_pylist() == scene.expected(changes)
    assert (done.copied > 0) == splices
    assert reads.total() > 2 * counted, "the second time column by column"


def _elsewhere(footer: thrift.Struct) -> None:
    footer[4][1][1][2][1][1][1][1][1] = thrift.BINARY, b""


def _later_field(footer: thrift.Struct) -> None:
    footer[4][1][1][2][1][1][1][1][3][1][60] = thrift.I64, 4


def _too_small(footer: thrift.Struct) -> None:
    """As old parquet-mr did; PyArrow reads on a little beyond the end."""
    chunk = footer[4][1][1][9][1][1][1][3][3][1]
    chunk[7] = thrift.I64, chunk[7][1] - 3
    footer[6] = thrift.BINARY, b"parquet-mr version 1.2.8 (build 0)"


ODD = [
    (_elsewhere, "A column chunk has fields [1]"),
    (_later_field, "The metadata of a column chunk has fields [60]"),
    (_too_small, "Pages with 66 values"),
]


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What the logger of rewrites says to users who ask for INFO."""
    with caplog.at_level("INFO", "fsspeckit.rewrite"):
        yield lambda: [r.getMessage() for r in caplog.records if r.levelname == "INFO"]


@pytest.mark.parametrize(("spoil", "reason"), ODD, ids=[spoil.__name__.strip("_") for spoil, _ in ODD])
def test_what_cannot_be_copied_is_reencoded_and_the_reason_is_logged(
    tmp_path: Path, spoil: Any, reason: str, reads: Counter[int], messages: Callable[[], list[str]]
) -> None:
    scene = Scene(tmp_path)
    edit_footer(scene.path, spoil)
    changes: dict[int, dict[str, Any]] = {5: {"x": 1.5}, 3 * SIZE + 7: {"name": "new"}}
    done = scene.rewrite(scene.updates(changes))
    assert (done.copied, done.spliced) == (0, False)
    (message,) = messages()
    assert message.startswith(f"{scene.path} is re-encoded, not spliced: {reason}")
    assert reads.keys() == set(range(GROUPS))
    assert scene.new.read().to_pylist() == scene.expected(changes)


def test_new_files_are_never_spliced(tmp_path: Path, reads: Counter[int]) -> None:
    scene = Scene(tmp_path)
    changes: dict[int, dict[str, Any]] = {5: {"x": 1.5}, 3 * SIZE + 7: {"name": "new"}}
    updates = scene.updates(changes)
    done = scene.rewrite(updates, as_new_files=WriteOptions())
    assert (done.copied, done.spliced) == (0, False)
    assert (reads, updates.asked) == (dict.fromkeys(range(GROUPS), 1), {0: 1, 3: 1})
    (staged,) = done.staged
    assert pq.read_table(scene.staging / staged.staged).to_pylist() == scene.expected(changes)


def test_rows_that_fit_are_spliced_and_rows_that_do_not_change_the_layout(
    tmp_path: Path, messages: Callable[[], list[str]]
) -> None:
    """The target's type is wider than the file's; the last row group tells that the file has to follow."""
    narrow = table().set_column(1, "x", pa.array([i % 100 for i in range(GROUPS * SIZE)], pa.int8()))
    wide = narrow.schema.set(1, pa.field("x", pa.int32()))
    shape = Shape(wide, tuple(wide.names), ("id",), ())
    for value, dtype, copied in ((100, pa.int8(), True), (1000, pa.int32(), False)):
        scene = Scene(_folder(tmp_path, str(value)), narrow)
        changes: dict[int, dict[str, Any]] = {5: {"x": 7}, 9 * SIZE: {"x": value}}
        done = scene.rewrite(scene.updates(changes, wide), shape)
        assert scene.new.schema_arrow.field("x").type == dtype
        assert scene.new.read().to_pylist() == scene.expected(changes)
        assert bool(done.copied) is done.spliced is copied
    (message,) = messages()
    assert message.endswith("not spliced: new values of column 'x' do not fit the file's own schema")


@pytest.mark.parametrize("mode", ["new files", "one file"])
def test_the_layout_changes_in_every_mode_and_leaves_nothing_behind(tmp_path: Path, mode: str) -> None:
    narrow = table().set_column(1, "x", pa.array([i % 100 for i in range(GROUPS * SIZE)], pa.int8()))
    wide = narrow.schema.set(1, pa.field("x", pa.int32()))
    scene = Scene(tmp_path, narrow)
    changes: dict[int, dict[str, Any]] = {5: {"x": 7}, 9 * SIZE: {"x": 1000}}
    job: dict[str, Any] = {"as_new_files": WriteOptions(max_rows_per_file=60)} if mode == "new files" else {}
    done = scene.rewrite(scene.updates(changes, wide), Shape(wide, tuple(wide.names), ("id",), ()), **job)
    assert sorted(p.name for p in scene.staging.iterdir()) == sorted(s.staged for s in done.staged)
    tables = [pq.read_table(scene.staging / s.staged) for s in done.staged]
    assert pa.concat_tables(tables).to_pylist() == scene.expected(changes)


@pytest.mark.parametrize("splices", [True, False])
def test_a_declared_order_goes_if_a_sorting_column_changed(tmp_path: Path, splices: bool) -> None:
    order = (pq.SortingColumn(0), pq.SortingColumn(1))
    cases: list[tuple[dict[int, dict[str, Any]], bool]] = [({5: {"name": "new"}}, True), ({5: {"x": 99.5}}, False)]
    for changes, kept in cases:
        scene = Scene(_folder(tmp_path, str(kept)), sorting_columns=order)
        if not splices:
            edit_footer(scene.path, _later_field)
        done = scene.rewrite(scene.updates(changes))
        assert bool(done.copied) is splices
        declared = {scene.new.metadata.row_group(g).sorting_columns for g in range(GROUPS)}
        assert declared == ({order} if kept else {()})


def test_the_writer_is_named_by_who_wrote_the_bytes(tmp_path: Path) -> None:
    """A file of which something was copied is still its writer's; one of which nothing was is ours."""
    scene = Scene(tmp_path)
    edit_footer(scene.path, lambda footer: footer.update({6: (thrift.BINARY, b"someone else")}))
    scene.rewrite(scene.updates({5: {"x": 1.5}}))
    assert scene.new.metadata.created_by == "someone else"
    one_row = Scene(_folder(tmp_path, "whole"), pa.table({"id": [0.0], "x": [1.0]}))
    edit_footer(one_row.path, lambda footer: footer.update({6: (thrift.BINARY, b"someone else")}))
    done = one_row.rewrite(one_row.updates({0: {"id": -0.0, "x": 2.5}}))
    assert done.copied == 0
    assert one_row.new.metadata.created_by.startswith("parquet-cpp-arrow")
    assert len(raw_footer(one_row.staging / "new")[7][1][1]) == 2


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def test_a_system_that_does_not_copy_within_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> int:
        raise OSError(errno.EXDEV, "another file system")

    scene = Scene(tmp_path)
    changes: dict[int, dict[str, Any]] = {5: {"x": 1.5}, 9 * SIZE: {"name": "new"}}
    scene.rewrite(scene.updates(changes))
    expected = (scene.staging / "new").read_bytes()
    monkeypatch.setattr(os, "copy_file_range", refuse)
    scene.rewrite(scene.updates(changes))
    assert (scene.staging / "new").read_bytes() == expected
    monkeypatch.delattr(os, "copy_file_range")
    scene.rewrite(scene.updates(changes))
    assert (scene.staging / "new").read_bytes() == expected


def test_bytes_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"0123456789")
    storage = LocalStorage()
    with storage.open_input(str(source)) as opened, storage.open_output(str(target)) as sink:
        sink.write(b"<")
        storage.copy_range(opened, sink, 2, 5)
        sink.write(b">")
        with pytest.raises(OSError, match="ends before"):
            storage.copy_range(opened, sink, 8, 5)
    assert target.read_bytes()[:7] == b"<23456>"


def test_a_ledger_is_stamped_into_spliced_files(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    done = scene.rewrite(scene.updates({5: {"x": 1.5}}), ledger={"fsspeckit.stream.app": '{"batch": 3}'})
    assert done.copied > 0
    entries = scene.new.metadata.metadata
    assert entries[b"fsspeckit.stream.app"] == b'{"batch": 3}'
    assert entries[b"ARROW:schema"] == pq.read_metadata(scene.path).metadata[b"ARROW:schema"]


def test_a_footer_that_was_not_shipped(tmp_path: Path) -> None:
    """Executors get footers without PyArrow's metadata."""
    scene = Scene(tmp_path)
    updates = scene.updates({5: {"x": 1.5}})
    schema = scene.table.schema
    bare = replace(scene.footer, metadata=None)
    job = Job(bare, (0,), str(scene.staging), "new", "f.parquet")
    done = rewrite_file(scene.location, Shape(schema, tuple(schema.names), ("id",), ()), job, updates)
    assert done.copied > 0
    assert scene.new.read().to_pylist() == scene.expected({5: {"x": 1.5}})
