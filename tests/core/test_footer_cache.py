"""The cache of footers: it spares opening files, and no change of a file, nor of the cache, makes a row be missed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.api import dataset_io
from fsspeckit.core.dataset import footer_cache
from fsspeckit.core.dataset import footers as footers_module
from fsspeckit.core.dataset.footer_cache import CachedFooters, encode
from fsspeckit.core.dataset.footers import read_footers, read_planned
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import UnreadableFileError
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.storage import LocalStorage, cache, locate
from support import rows, write_lake

MANY = 80


def table(number: int) -> pa.Table:
    return pa.table({"id": range(number * 10, number * 10 + 10), "x": ["old"] * 10})


def name(number: int) -> str:
    return f"f{number:03d}.parquet"


def tables_in(data: bytes | None) -> list[pa.Table]:
    source = pa.BufferReader(data or b"")
    tables = []
    while source.tell() < source.size():
        tables.append(pa.ipc.open_stream(source).read_all())
    return tables


def in_bytes(tables: Iterable[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def lake(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """So many files that it pays; they count as old enough at once, except in the test of that rule."""
    monkeypatch.setattr(footer_cache, "_RACY", 0)
    return Path(write_lake(tmp_path / "lake", {name(n): table(n) for n in range(MANY)}))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files that are opened from now on."""
    paths: list[str] = []
    for verb in ("open_input", "open_input_end"):
        monkeypatch.setattr(LocalStorage, verb, _noting(getattr(LocalStorage, verb), paths))
    return paths


def _noting(really: Callable[[LocalStorage, str], Any], paths: list[str]) -> Callable[[LocalStorage, str], Any]:
    def opening(self: LocalStorage, path: str) -> Any:
        paths.append(os.path.basename(path))
        return really(self, path)

    return opening


def source(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "x": ["new"] * len(ids)})


def plan(lake: Path, *ids: int, by: Any = "pyarrow") -> Any:
    return dataset_io(by).plan(source(*ids), str(lake), "upsert", ["id"])


def footers(lake: Path, columns: tuple[str, ...] = ("id",)) -> list[Footer]:
    """As a merge gets them, without what the cache does not hold."""
    location = locate(lake)
    read = footer_cache.cached_footers(
        location, list_files(location), columns, lambda infos: read_footers(location, infos, columns)
    )
    return [replace(footer, metadata=None) for footer in read]


@pytest.mark.parametrize("by", ["pyarrow", "duckdb"])
def test_a_second_plan_opens_what_the_keys_touch(lake: Path, opened: list[str], by: Any) -> None:
    first = plan(lake, 123, by=by)
    assert set(opened) == {name(n) for n in range(MANY)}
    opened.clear()
    assert plan(lake, 123, by=by) == first
    assert set(opened) == {name(12)}
    opened.clear()
    result = dataset_io(by).merge(source(123, 9_000), str(lake), "upsert", ["id"])
    touched = {path for path in opened if path.startswith("f0")}
    assert (result.updated, result.inserted, len(result.files)) == (1, 1, MANY + 1)
    assert touched <= {name(12), name(MANY - 1)}, "the file that is rewritten, and the one that new files are like"
    assert [r for r in rows(lake) if r["x"] == "new"] == [{"id": 123, "x": "new"}, {"id": 9_000, "x": "new"}]


def test_of_many_files_no_metadata_is_held(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, "off")
    location = locate(lake)
    infos = list(list_files(location))
    monkeypatch.setattr(footers_module, "_MANY", MANY)
    whole = read_planned(location, infos, ["id"])
    assert all(footer.metadata is not None for footer in whole)
    monkeypatch.setattr(footers_module, "_MANY", MANY - 1)
    assert read_planned(location, infos, ["id"]) == [replace(footer, metadata=None) for footer in whole]
    result = dataset_io("pyarrow").merge(source(123, 9_000), str(lake), "upsert", ["id"])
    assert (result.updated, result.inserted, len(rows(lake))) == (1, 1, MANY * 10 + 1)


def test_another_key_has_bounds_of_its_own(lake: Path, opened: list[str]) -> None:
    plan(lake, 5)
    opened.clear()
    by_text = dataset_io("pyarrow").plan(pa.table({"id": [1], "x": ["other"]}), str(lake), "upsert", ["x"])
    assert (by_text.inserted, len(set(opened))) == (1, MANY)
    assert len(plan(lake, 5).by_action("rewrite")) == 1


def in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)


def by_rename(path: Path, data: bytes) -> None:
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


def removed_first(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("change", [in_place, by_rename, removed_first])
def test_a_file_of_the_same_size_and_time_is_noticed(lake: Path, change: Callable[[Path, bytes], None]) -> None:
    path, other = lake / name(7), lake.parent / "other.parquet"
    pq.write_table(table(500), other)
    before = path.stat()
    assert other.stat().st_size == before.st_size
    assert plan(lake, 5003).inserted == 1
    change(path, other.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert (plan(lake, 5003).inserted, plan(lake, 5003).updated) == (0, 1)
    assert plan(lake, 73).inserted == 1


def test_a_file_that_was_changed_just_now_is_not_trusted(
    tmp_path: Path, cache_folder: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Path(write_lake(tmp_path / "lake", {name(n): table(n) for n in range(MANY)}))
    for _ in range(2):
        opened.clear()
        plan(lake, 5)
        assert len(set(opened)) == MANY
        assert not cache_folder.exists()
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + 10 * 10**9)
    (lake / name(3)).touch()
    os.utime(lake / name(3), ns=(clock() + 20 * 10**9,) * 2)
    plan(lake, 5)
    opened.clear()
    plan(lake, 5)
    assert set(opened) == {name(0), name(3)}, "the file with the key, and the one whose time lies ahead"


def test_what_is_read_of_another_file_than_the_listed_one_is_not_kept(
    lake: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is swapped while footers are read, and swapped back: nothing of the listed files has changed."""
    other = Path(write_lake(lake.parent / "other", {name(n): table(n + 500) for n in range(MANY)}))
    location = locate(lake)
    infos = list_files(location)
    lake.rename(lake.parent / "aside")
    other.rename(lake)
    read = footer_cache.cached_footers(location, infos, ["id"], lambda some: read_footers(location, some, ["id"]))
    assert not any(footer.certain for footer in read)
    lake.rename(other)
    (lake.parent / "aside").rename(lake)
    assert plan(lake, 5).updated == 1


@pytest.mark.parametrize("way", ["copy", "move", "recreate", "link"])
def test_another_folder_of_the_name_and_the_same_under_another(lake: Path, way: str) -> None:
    assert plan(lake, 5).updated == 1
    elsewhere = lake.parent / "elsewhere"
    if way == "copy":
        shutil.copytree(lake, elsewhere, copy_function=shutil.copy2)
        pq.write_table(table(500), elsewhere / name(0))
        assert (plan(elsewhere, 5, 5003).updated, plan(lake, 5, 5003).updated) == (1, 1)
    elif way == "link":
        elsewhere.symlink_to(lake)
        assert plan(elsewhere, 5).updated == 1
    else:
        lake.rename(elsewhere)
        assert plan(elsewhere, 5).updated == 1
    if way == "recreate":
        write_lake(lake, {name(n): table(n + 100) for n in range(MANY)})
        assert [plan(lake, key).updated for key in (5, 1005)] == [0, 1]


def cache_file(folder: Path) -> Path:
    (only,) = folder.iterdir()
    return only


def test_whatever_happens_to_the_cache_file_footers_are_right(lake: Path, cache_folder: Path) -> None:
    expected = footers(lake)
    file = cache_file(cache_folder)
    good = file.read_bytes()
    assert footers(lake) == expected
    assert file.read_bytes() == good
    spoiled = [good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :] for at in range(0, len(good), 331)]
    cut = [good[:length] for length in (0, 1, 15, 16, 17, 100, len(good) // 2, len(good) - 1)]
    for data in (*spoiled, *cut, good + b" ", bytes(len(good)), os.urandom(4000)):
        file.write_bytes(data)
        assert footers(lake) == expected
        assert file.read_bytes() == good, "it is written anew"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[" * 200_000,
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"ARROW1\0\0" * 9,
        in_bytes([pa.table({"x": [1]})]),
        in_bytes([pa.table({"x": [1]})] * 3),
    ],
)
def test_bytes_that_are_whole_and_say_nothing(lake: Path, cache_folder: Path, data: bytes) -> None:
    expected = footers(lake)
    called = repr((str(lake), ["id"]))
    assert cache.load(called)
    cache.save(called, data)
    assert cache.load(called) == data
    assert footers(lake) == expected


def with_column(table: pa.Table, column: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(column), column, values)


def one_less(table: pa.Table, column: str) -> pa.Table:
    return table.slice(1)


def missing(table: pa.Table, column: str) -> pa.Table:
    return with_column(table, column, pa.array([None, *table[column].to_pylist()[1:]], table[column].type))


def of_text(table: pa.Table, column: str) -> pa.Table:
    return with_column(table, column, pa.array([str(value) for value in table[column].to_pylist()]))


def of_a_dictionary(table: pa.Table, column: str) -> pa.Table:
    return with_column(table, column, table[column].dictionary_encode())


def renamed(table: pa.Table, column: str) -> pa.Table:
    return table.rename_columns([f"{name}!" if name == column else name for name in table.column_names])


def without(table: pa.Table, column: str) -> pa.Table:
    return table.drop_columns([column])


def below_zero(table: pa.Table, column: str) -> pa.Table:
    return with_column(table, column, pa.array([-1, *table[column].to_pylist()[1:-1], 3], table[column].type))


def beyond(table: pa.Table, column: str) -> pa.Table:
    return with_column(table, column, pa.array([1 + value for value in table[column].to_pylist()], table[column].type))


FILES_TABLE = ["path", "size", "etag", "mtime_ns", "ctime_ns", "inode", "device", "template", "row_groups"]
WRONG = [
    *((change, 1, column) for change in (missing, renamed, of_a_dictionary, without) for column in FILES_TABLE),
    *((of_text, 1, column) for column in FILES_TABLE if column not in ("path", "etag")),
    *((change, 1, column) for change in (one_less, below_zero, beyond) for column in ("template", "row_groups")),
    *(
        (change, 2, column)
        for change in (renamed, of_a_dictionary, without)
        for column in ("rows", "bytes", "0", "1", "2")
    ),
    *((missing, 2, column) for column in ("rows", "bytes")),
    *((of_text, 2, column) for column in ("rows", "bytes", "0", "1", "2")),
    (one_less, 2, "rows"),
    (one_less, 0, "schema"),
    *((change, 0, column) for change in (missing, renamed) for column in ("schema", "by_spark")),
    (of_a_dictionary, 0, "schema"),
    *((missing, 0, column) for column in ("ledger", "int96", "collated", "hybrid_dates")),
]


def test_tables_that_do_not_fit_are_no_cache(lake: Path, opened: list[str]) -> None:
    """Whole, by its digest, and of no use: nobody asks for a footer of it and gets half of one."""
    expected = footers(lake)
    called = repr((str(lake), ["id"]))
    good = tables_in(cache.load(called))
    assert [table.num_rows for table in good] == [1, MANY, MANY]
    assert good[1].column_names == FILES_TABLE
    for change, number, column in WRONG:
        tables = [change(table, column) if place == number else table for place, table in enumerate(good)]
        cache.save(called, in_bytes(tables))
        opened.clear()
        assert footers(lake) == expected
        assert len(set(opened)) == MANY, (change, column)
    for tables in (good[:2], [*good, good[2]], good[::-1]):
        assert CachedFooters.decode(in_bytes(tables), ["id"]) is None
    assert CachedFooters.decode(in_bytes(good), ["id"]) is not None
    assert CachedFooters.decode(in_bytes(good), ["x"]) is None
    opened.clear()
    assert footers(lake) == expected
    assert not opened


def test_bounds_that_are_no_values_are_no_cache(lake: Path) -> None:
    footers(lake)
    good = tables_in(cache.load(repr((str(lake), ["id"]))))
    for bound in ("fnan", "dNaN", "dsNaN", "x1", "", "i", "b0", "i1.5"):
        wrong = with_column(good[2], "0", pa.array([bound] * MANY))
        assert CachedFooters.decode(in_bytes([*good[:2], wrong]), ["id"]) is None, bound
    wrong = with_column(good[2], "0", pa.array([float("nan"), *[1.0] * (MANY - 1)]))
    assert CachedFooters.decode(in_bytes([*good[:2], wrong]), ["id"]) is None
    right = with_column(good[2], "0", pa.array(["i-5"] * MANY))
    read = CachedFooters.decode(in_bytes([*good[:2], right]), ["id"])
    assert read is not None
    assert read.bounds["id"][0] == [-5] * MANY


def test_bytes_that_are_changed_behind_a_true_digest(lake: Path) -> None:
    """The process survives, and a footer is made as a whole or not at all."""
    expected = footers(lake)
    called = repr((str(lake), ["id"]))
    good, infos = cache.load(called), list_files(locate(lake))
    assert good
    chosen = random.Random(1)
    for _ in range(400):
        data = bytearray(good)
        for _ in range(chosen.choice([1, 1, 2, 8])):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        cached = CachedFooters.decode(bytes(data), ["id"])
        if cached is not None:
            assert len(cached.paths) == MANY
            for footer in cached.recall(infos):
                assert isinstance(footer.rows, int)
                assert footer.schema.names
    assert footers(lake) == expected


def test_only_footers_that_are_asked_for_are_made(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = plan(lake, 123)
    made: list[int] = []
    really = CachedFooters.footer

    def making(self: CachedFooters, number: int, info: FileInfo) -> Footer:
        made.append(number)
        return really(self, number, info)

    monkeypatch.setattr(CachedFooters, "footer", making)
    assert plan(lake, 123) == first
    assert sorted(made) == [0, 12], "one of each kind, and the one with the key"


def test_what_is_known_of_all_files_is_what_each_footer_says(lake: Path) -> None:
    marked = table(3).replace_schema_metadata({"another": "kind"})
    pq.write_table(marked, lake / name(3), row_group_size=4)
    pq.write_table(table(9).slice(0, 0), lake / name(9))
    location = locate(lake)
    infos = list(list_files(location))
    plan(lake, 5)
    recalled = footer_cache.cached_footers(location, infos, ["id"], lambda missing: pytest.fail(f"{missing} are read"))
    each = Footers(read_footers(location, infos, ["id"]))
    assert (recalled.rows, recalled.infos, recalled.group_counts) == (each.rows, each.infos, each.group_counts)
    assert (recalled.group_counts[2:5], recalled.rows[9]) == ([1, 3, 1], 0)
    assert (recalled.group_rows, recalled.bounds("id")) == (each.group_rows, each.bounds("id"))
    assert (
        [footer.path for footer in recalled.templates]
        == [footer.path for footer in each.templates]
        == [name(0), name(3)]
    )
    assert recalled[-1] is recalled[MANY - 1]
    assert recalled[2:4] == [replace(footer, metadata=None) for footer in each[2:4]]
    assert recalled.bounds("x") == ([None] * len(each.group_rows),) * 3


def test_a_cache_of_another_version_is_none(lake: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plan(lake, 5)
    for patched in ((footer_cache, "FORMAT", 99), (pa, "__version__", "99.0")):
        monkeypatch.setattr(*patched)
        opened.clear()
        assert plan(lake, 5).updated == 1
        assert len(set(opened)) == MANY


def test_a_file_that_others_may_write_is_not_read(lake: Path, cache_folder: Path, opened: list[str]) -> None:
    plan(lake, 5)
    file = cache_file(cache_folder)
    assert (file.stat().st_mode & 0o777, cache_folder.stat().st_mode & 0o777) == (0o600, 0o700)
    file.chmod(0o666)
    opened.clear()
    plan(lake, 5)
    assert len(set(opened)) == MANY
    file.rename(cache_folder.parent / "aside")
    file.symlink_to(cache_folder.parent / "aside")
    opened.clear()
    plan(lake, 5)
    assert len(set(opened)) == MANY


def test_bounds_are_kept(lake: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILE_BYTES", 100)
    plan(lake, 5)
    assert not cache_folder.exists()
    monkeypatch.setattr(cache, "MAX_FILE_BYTES", 1 << 20)
    plan(lake, 5)
    first = cache_file(cache_folder)
    os.utime(first, (1, 1))
    (cache_folder / "dead.unfinished").touch()
    os.utime(cache_folder / "dead.unfinished", (1, 1))
    (cache_folder / "mine.txt").write_text("not ours")
    monkeypatch.setattr(cache, "MAX_TOTAL_BYTES", 2 * first.stat().st_size - 10)
    footers(lake, ("id", "x"))
    left = sorted(path.suffix for path in cache_folder.iterdir())
    assert left == [".footers", ".txt"]
    assert not first.exists()


def nowhere(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    patch.setenv(cache.VARIABLE, str(tmp_path / "file" / "cache"))


def full(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Iterator[None]:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(os, "replace", fail)


def homeless(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv(cache.VARIABLE)
    patch.delenv("XDG_CACHE_HOME", raising=False)
    patch.setattr(os.path, "expanduser", lambda path: path)


def off(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv(cache.VARIABLE, "off")


@pytest.mark.parametrize("trouble", [nowhere, full, homeless, off])
def test_without_a_cache_folder_everything_is_read(
    lake: Path, tmp_path: Path, trouble: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble(tmp_path, monkeypatch)
    assert [plan(lake, 5).updated for _ in range(2)] == [1, 1]
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == "/home/ada/.cache/fsspeckit"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache.folder() == "/caches/fsspeckit"


def test_the_variable_is_no_cause_for_a_warning(tmp_path: Path) -> None:
    program = "import fsspeckit, fsspeckit.api, fsspec; print(fsspec.config.conf)"
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{}\n", "")


def test_what_no_file_refers_to_any_more_is_forgotten(lake: Path) -> None:
    called = repr((str(lake), ["id"]))
    for turn in range(3):
        marked = {name(n): table(n).replace_schema_metadata({"turn": str(turn)}) for n in range(2 + turn)}
        write_lake(lake, marked)
        plan(lake, 5)
    kept = CachedFooters.decode(cache.load(called), ["id"])
    assert kept is not None
    assert len(kept.templates) == 2
    assert footers(lake) == [
        replace(f, metadata=None) for f in read_footers(locate(lake), list_files(locate(lake)), ["id"])
    ]


def test_few_files_leave_the_cache_alone(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footer_cache, "_RACY", 0)
    monkeypatch.setattr(cache, "load", lambda name: pytest.fail("a small data set asks the cache"))
    lake = Path(write_lake(tmp_path / "lake", {name(n): table(n) for n in range(63)}))
    assert plan(lake, 5).updated == 1
    assert not cache_folder.exists()


def test_writers_at_once(lake: Path, cache_folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: plan(lake, 5).updated, range(12))) == {1}
    assert [path.suffix for path in cache_folder.iterdir()] == [".footers"]
    kept = CachedFooters.decode(cache.load(repr((str(lake), ["id"]))), ["id"])
    assert kept is not None
    assert len(kept.paths) == MANY


def test_a_touched_file_has_to_be_what_was_remembered(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a change ever missed, the file itself contradicts."""
    plan(lake, 5)
    monkeypatch.setattr(footer_cache, "_identities", lambda infos: [[v] * len(infos) for v in (1, "", 1, 1, 1, 1)])
    plan(lake, 5)
    (lake / name(79)).unlink()
    footers(lake)
    pq.write_table(table(0).slice(0, 7), lake / name(0))
    with pytest.raises(UnreadableFileError, match=r"f000\.parquet.* was changed or replaced since its footer was read"):
        plan(lake, 5)


def test_footers_come_back_as_they_were(tmp_path: Path) -> None:
    when = datetime(2024, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    columns = {
        "int": pa.array([-(2**63), 2**63 - 1, None]),
        "uint": pa.array([0, 2**64 - 1, 1], pa.uint64()),
        "float": pa.array([-0.0, float("inf"), 1e-320]),
        "nan": pa.array([1.0, float("nan"), None]),
        "text": pa.array(["", "\u0000ü€\U0001f600", "z"]),
        "binary": pa.array([b"\x00\xff", b"\x80", None]),
        "decimal": pa.array([Decimal("-1.10"), Decimal("123456.78"), None], pa.decimal128(20, 2)),
        "date": pa.array([date(1, 1, 1), date(9999, 1, 1), None]),
        "when": pa.array([when, None, when], pa.timestamp("us", "UTC")),
        "flag": pa.array([True, False, None]),
        "nothing": pa.array([None, None, None], pa.int32()),
        "list": pa.array([[1], [], None]),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
    }
    fields = [pa.field(n, c.type, metadata={"k": n}) for n, c in columns.items()]
    data = pa.table(list(columns.values()), schema=pa.schema(fields, {"made": "by a test"}))
    lake = write_lake(tmp_path / "lake", {"a=1/f.parquet": data, "a=2/g.parquet": data.slice(0, 0)}, row_group_size=2)
    pq.write_table(data.select(["when"]), f"{lake}/old.parquet", use_deprecated_int96_timestamps=True)
    location = locate(lake)
    read = read_footers(location, list_files(location), list(columns))
    assert all(footer.certain for footer in read)
    infos: list[FileInfo] = [footer.info for footer in read]
    recalled = CachedFooters.decode(encode(read, list(columns)), list(columns))
    assert recalled is not None
    back = list(recalled.recall(infos))
    assert back == [replace(footer, metadata=None) for footer in read]
    floats = [[g.bounds.get("float") for footer in some for g in footer.row_groups] for some in (back, read)]
    assert repr(floats[0]) == repr(floats[1]), "-0.0 and 0.0 are different"
    assert all(ours.schema.equals(theirs.schema, check_metadata=True) for ours, theirs in zip(back, read))
