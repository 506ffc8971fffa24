"""Damaged Parquet: a reader that gives fewer rows than the footer promises, or would end the process, is foreseen."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from damage import chunk_of, edit_footer, hide_page, nothing_changes
from fsspeckit.cli.sources import read_stream
from fsspeckit.core.errors import ArgumentError, UnreadableFileError
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_io import footer_bytes
from fsspeckit.core.parquet.format import FileMetaData
from fsspeckit.report.inspection import inspect
from support import multiset, read_rows, rows, write_lake

HEALTHY = pa.table({"id": [0, 1, 2, 3], "x": ["a", "b", "c", "d"]})
SOURCE = pa.table({"id": [1, 9], "x": ["B", "Z"]})


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return write_lake(tmp_path / "lake", {"f.parquet": HEALTHY}, row_group_size=2)


def _source(folder: Path, form: str) -> Any:
    """A source of which one file, `bad.parquet`, has a page that cannot be seen."""
    tables = {"bad.parquet": SOURCE}
    if form != "file":
        tables["good.parquet"] = pa.table({"id": [7], "x": ["y"]})
    if form == "types":
        tables["other.parquet"] = pa.table({"id": pa.array([8], pa.int32()), "x": ["y"]})
    names = {f"p=1/{name}" if form == "partitions" else name: table for name, table in tables.items()}
    root = Path(write_lake(folder / "source", names))
    hide_page(next(root.rglob("bad.parquet")))
    if form in ("file", "files"):
        paths = [str(root / name) for name in names]
        return paths[0] if form == "file" else paths
    return str(root)


@pytest.mark.parametrize("form", ["file", "files", "folder", "partitions", "types"])
def test_a_source_of_which_a_page_cannot_be_seen_is_not_an_empty_one(io: Any, tmp_path: Path, form: str) -> None:
    table = HEALTHY.append_column("p", pa.array([1] * 4, pa.int32())) if form == "partitions" else HEALTHY
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    source = _source(tmp_path, form)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"bad\.parquet"):
        io.merge(source, lake, "upsert", ["id"])


WRITES: dict[str, Callable[[Any, Any, str], Any]] = {
    "plan": lambda io, source, lake: io.plan(source, lake, "upsert", ["id"]),
    "insert": lambda io, source, lake: io.merge(source, lake, "insert", ["id"]),
    "update": lambda io, source, lake: io.merge(source, lake, "update", ["id"]),
    "full_merge": lambda io, source, lake: io.write_parquet_dataset(source, lake, "full_merge", ["id"]),
    "deduplicate": lambda io, source, lake: io.write_parquet_dataset(source, lake, "deduplicate", ["id"]),
    "append": lambda io, source, lake: io.write_dataset(source, lake, "append"),
    "overwrite": lambda io, source, lake: io.write_dataset(source, lake, "overwrite"),
}


@pytest.mark.parametrize("column", [0, 1], ids=["key", "payload"])
def test_no_way_to_write_takes_a_damaged_source_for_an_empty_one(
    io: Any, lake: str, tmp_path: Path, column: int
) -> None:
    path = tmp_path / "s.parquet"
    pq.write_table(SOURCE, path)
    hide_page(path, column)
    for write in WRITES.values():
        with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"s\.parquet"):
            write(io, str(path), lake)


def test_a_source_and_a_target_that_fsspec_reaches(io: Any, engine: str, lake: str) -> None:
    if engine == "spark":
        pytest.skip("executors do not see the memory of this process")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/damage/source/s.parquet", _hidden(SOURCE))
    memory.pipe_file("/damage/lake/f.parquet", _hidden(HEALTHY))
    for source in ("memory://damage/source/s.parquet", "memory://damage/source"):
        with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"damage/source/s\.parquet"):
            io.merge(source, lake, "upsert", ["id"])
    for act in ("merge", "plan", "read"):
        with pytest.raises(UnreadableFileError, match=r"damage/lake/f\.parquet"):
            ACTS[act](io, "memory://damage/lake")
    assert memory.find("/damage") == ["/damage/lake/f.parquet", "/damage/source/s.parquet"]
    memory.rm("/damage", recursive=True)


def _hidden(table: pa.Table) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(table, file.name)
        hide_page(file.name)
        return Path(file.name).read_bytes()


def test_standard_input_is_counted() -> None:
    with pytest.raises(ArgumentError, match=r"Standard input cannot be read: .*(0|expected length)"):
        read_stream(BytesIO(_hidden(SOURCE)))
    with pytest.raises(ArgumentError, match="it has 0 rows, and its footer says 2"):
        read_stream(BytesIO(_hidden(SOURCE.select(["id"]))))


def test_standard_input_in_the_unit_of_its_writer() -> None:
    """INT96 of Spark holds years that nanoseconds do not reach."""
    path = next((Path(__file__).parent.parent / "data" / "spark_legacy").glob("*.parquet"))
    units = {f.type.unit for f in read_stream(BytesIO(path.read_bytes())).schema if pa.types.is_timestamp(f.type)}
    assert units == {"us"}


@pytest.mark.parametrize("write", [w for w in WRITES if w not in ("append", "overwrite", "update")])
def test_keys_of_the_target_that_cannot_be_seen_are_not_new(io: Any, lake: str, write: str) -> None:
    hide_page(Path(lake, "f.parquet"), 0, row_group=0)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet.* 0 rows of row group 0"):
        WRITES[write](io, SOURCE, lake)


@pytest.mark.parametrize("row_group", [0, 1], ids=["touched", "untouched"])
def test_a_row_group_that_cannot_be_seen_is_not_written_away(io: Any, lake: str, row_group: int) -> None:
    hide_page(Path(lake, "f.parquet"), 1, row_group)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet"):
        io.merge(SOURCE, lake, "update", ["id"])


READS: dict[str, dict[str, Any]] = {
    "all": {},
    "one column": {"columns": ["id"]},
    "filter": {"filter": pc.field("id") > 1},
    "filter of another column": {"columns": ["x"], "filter": pc.field("id") > 1},
}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("files", [1, 2])
def test_read_counts(io: Any, engine: str, lake: str, how: str, files: int) -> None:
    if engine == "spark":
        pytest.skip("Spark reads by itself")
    if files == 2:  # of another schema, so that they are read one by one
        write_lake(lake, {"g.parquet": pa.table({"id": pa.array([5], pa.int32()), "x": ["e"]})})
    hide_page(Path(lake, "f.parquet"), 0, row_group=1)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet"):
        io.read(lake, **READS[how])


def test_read_with_a_filter_reads_only_what_it_admits(io: Any, engine: str, tmp_path: Path) -> None:
    """Partitions and row groups that cannot hold such a row are passed over, damaged or not."""
    if engine == "spark":
        pytest.skip("Spark reads by itself")
    files = {f"day={day}/f.parquet": pa.table({"id": [1, 2, 3, 4], "x": [None, "b", "c", "d"]}) for day in (1, 2)}
    lake = write_lake(tmp_path / "lake", files, row_group_size=2)
    hide_page(Path(lake, "day=1/f.parquet"))
    hide_page(Path(lake, "day=2/f.parquet"), 0, row_group=1)
    found = read_rows(io, lake, filter=(pc.field("day") == 2) & (pc.field("id") < 3))
    assert found == [{"id": 1, "x": None, "day": 2}, {"id": 2, "x": "b", "day": 2}]
    assert read_rows(io, lake, ["x"], (pc.field("day") == 2) & (pc.field("id") < 2)) == [{"x": None}]
    assert read_rows(io, lake, ["x"], pc.field("id") > 99) == []


ACTS: dict[str, Callable[[Any, str], Any]] = {
    "merge": lambda io, lake: io.merge(SOURCE, lake, "upsert", ["id"]),
    "plan": lambda io, lake: io.plan(SOURCE, lake, "upsert", ["id"]),
    "append": lambda io, lake: io.write_dataset(SOURCE, lake, "append"),
    "read": lambda io, lake: io.read(lake),
    "inspect": lambda io, lake: inspect(lake, ["id"]),
}


def _refused(io: Any, lake: str, act: str, match: str) -> None:
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=rf"lake/f\.parquet.*{match}"):
        ACTS[act](io, lake)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("where", ["file", "row group"])
def test_row_groups_that_do_not_add_up(io: Any, lake: str, act: str, where: str) -> None:
    def change(footer: thrift.Struct) -> None:
        if where == "file":
            footer[3] = (thrift.I64, 3)
        else:
            footer[4][1][1][1][3] = (thrift.I64, 1)

    edit_footer(Path(lake, "f.parquet"), change)
    _refused(io, lake, act, "rows, and")


def _other_type(footer: thrift.Struct) -> None:
    chunk_of(footer)[1] = (thrift.I32, 1)


def _other_levels(footer: thrift.Struct) -> None:
    chunk_of(footer)[16] = (thrift.STRUCT, {3: (thrift.LIST, (thrift.I64, [0, 1, 1]))})


def _no_codec(footer: thrift.Struct) -> None:
    chunk_of(footer)[4] = (thrift.I32, 99)


@pytest.mark.parametrize("act", ["merge", "plan", "inspect"])
@pytest.mark.parametrize("change", [_other_type, _other_levels, _no_codec])
def test_chunks_at_which_pyarrow_would_end_the_process(
    io: Any, lake: str, act: str, change: Callable[[thrift.Struct], None]
) -> None:
    edit_footer(Path(lake, "f.parquet"), change)
    _refused(io, lake, act, "column 'id'")


def test_a_bound_that_is_cut_proves_nothing(io: Any, engine: str, tmp_path: Path) -> None:
    """At its statistics PyArrow would end the process. Some writers cut the bounds of long fixed-length values."""
    table = pa.table({"id": pa.array([b"aaa1", b"aaa2", b"aaa3"], pa.binary(4)), "x": [1, 2, 3]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table}, row_group_size=2)

    def change(footer: thrift.Struct) -> None:
        chunk_of(footer)[12][1][5] = (thrift.BINARY, b"aa")

    edit_footer(Path(lake, "f.parquet"), change)
    assert not inspect(lake, ["id"]).files[0].keys["id"].known
    if engine != "spark":  # which reads by itself
        assert read_rows(io, lake, ["x"], pc.field("x") == 2) == [{"x": 2}]
    result = io.merge(table.slice(1).set_column(1, "x", pa.array([7, 8])), lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (0, 2)
    assert {r["id"]: r["x"] for r in rows(lake)} == {b"aaa1": 1, b"aaa2": 7, b"aaa3": 8}


def test_a_name_that_stands_elsewhere_in_the_footer_is_no_chunk(io: Any, tmp_path: Path) -> None:
    """The key's chunks are looked for by their name, which may also be a value's bytes."""
    table = pa.table({"id": [1, 2], "x": [b"\x19\x18\x02id\xff", b"\x19\x18\x02id"]})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    assert io.merge(table.slice(1), lake, "upsert", ["id"]).updated == 1
    edit_footer(Path(lake, "f.parquet"), _other_levels)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet.*column 'id'"):
        io.merge(table.slice(1), lake, "upsert", ["id"])


@pytest.mark.parametrize("act", ACTS)
def test_a_name_that_is_no_text(io: Any, lake: str, act: str) -> None:
    def change(footer: thrift.Struct) -> None:
        footer[2][1][1][2][4] = (thrift.BINARY, b"\xffx")
        for group in range(2):
            chunk_of(footer, 1, group)[3] = (thrift.LIST, (thrift.BINARY, [b"\xffx"]))

    edit_footer(Path(lake, "f.parquet"), change)
    _refused(io, lake, act, "utf-8")


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("act", ACTS)
def test_a_time_zone_that_is_no_text(io: Any, tmp_path: Path, act: str, nested: bool) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    instants = pa.array([0, 1], pa.timestamp("us", "Europe/Berlin"))
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), instants) if nested else instants
    pq.write_table(pa.table({"id": [1, 2], "value": column}), lake / "f.parquet")

    def change(footer: thrift.Struct) -> None:
        (entry,) = footer[5][1][1]
        schema = base64.b64decode(entry[2][1]).replace(b"Europe/Berlin", b"Europe/\xf4erlin")
        entry[2] = thrift.BINARY, base64.b64encode(schema)

    edit_footer(lake / "f.parquet", change)
    _refused(io, str(lake), act, "utf-8")


@pytest.mark.parametrize("kind", [0, 13, 14, 15])
def test_wire_types_that_do_not_exist(io: Any, lake: str, kind: int) -> None:
    path = Path(lake, "f.parquet")
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -9] + bytes([0xF0 | kind, 0, 0, 0])
    path.write_bytes(content[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet"):
        io.merge(SOURCE, lake, "upsert", ["id"])


def test_entries_that_are_no_list(io: Any, lake: str) -> None:
    """PyArrow skips a field of another wire type. Whoever writes the footer anew must not."""
    entries = FileMetaData.KEY_VALUE_METADATA
    edit_footer(Path(lake, "f.parquet"), lambda footer: footer.update({entries: (thrift.BINARY, b"no list")}))
    source = SOURCE.append_column("new", pa.array([1] * SOURCE.num_rows))
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet.*field 5 of its footer"):
        io.merge(source, lake, "insert", ["id"], on_schema_change="evolve")


def test_a_map_in_the_schema_survives_a_rewrite(io: Any, lake: str) -> None:
    """A field of a future version of the format, of a wire type that Parquet does not use today."""
    path, extra = Path(lake, "f.parquet"), (thrift.MAP, (thrift.BINARY, thrift.I32, [(b"a", 1), (b"b", -2)]))

    def change(footer: thrift.Struct) -> None:
        footer[2][1][1][1][60] = extra

    edit_footer(path, change)
    assert io.merge(SOURCE, lake, "update", ["id"]).updated == 1
    (rewritten,) = Path(lake).glob("*.parquet")
    with pa.OSFile(str(rewritten), "rb") as file:
        assert thrift.decode(footer_bytes(file))[2][1][1][1][60] == extra
    assert {r["id"]: r["x"] for r in rows(lake)} == {0: "a", 1: "B", 2: "c", 3: "d"}


BROKEN = {
    "no text": b"\xff\xfe",
    "no json": b"batch 7",
    "no object": b"[7]",
    "no batch": b'{"query": "q"}',
    "batch as text": b'{"batch": "7", "query": null}',
    "query as number": b'{"batch": 7, "query": 1}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("act", ACTS)
def test_a_broken_entry_of_a_stream(io: Any, tmp_path: Path, act: str) -> None:
    for name, value in BROKEN.items():
        table = HEALTHY.replace_schema_metadata({"fsspeckit.stream.app": value})
        lake = write_lake(tmp_path / name / "lake", {"f.parquet": table})
        with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet"):
            ACTS[act](io, lake)
        if act == "append":
            io.write_dataset(SOURCE, lake, "overwrite")  # owes nothing to the old files
            assert multiset(rows(lake)) == multiset(SOURCE.to_pylist())


def test_a_sound_entry_of_a_stream_is_carried_on(io: Any, tmp_path: Path) -> None:
    entry = {"fsspeckit.stream.app": json.dumps({"batch": 7, "query": "q"})}
    lake = write_lake(tmp_path / "lake", {"f.parquet": HEALTHY.replace_schema_metadata(entry)})
    io.merge(SOURCE, lake, "upsert", ["id"])
    for path in Path(lake).glob("*.parquet"):
        assert pq.read_metadata(path).metadata[b"fsspeckit.stream.app"] == entry["fsspeckit.stream.app"].encode()


@pytest.mark.parametrize("nested", [False, True])
def test_a_decimal_of_more_digits_than_its_type_has(io: Any, lake: str, tmp_path: Path, nested: bool) -> None:
    """PyArrow reads it, and writes another number."""
    kind = pa.decimal128(5, 2)
    column = pa.array([[Decimal("1.00")]], pa.list_(kind)) if nested else pa.array([Decimal("1.00")], kind)
    table = pa.table({"id": [1], "d": column})
    lake = write_lake(tmp_path / "money", {"f.parquet": table.slice(0, 0)})
    options = {"store_decimal_as_integer": True, "use_dictionary": False, "compression": "none"}
    path = Path(write_lake(tmp_path / "source", {"s.parquet": table}, **options), "s.parquet")
    at = pq.read_metadata(path).row_group(0).column(1)
    content = bytearray(path.read_bytes())
    end = at.data_page_offset + at.total_compressed_size
    assert content[end - 4 : end] == (100).to_bytes(4, "little")
    content[end - 4 : end] = (100_000_000).to_bytes(4, "little")
    path.write_bytes(content)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"s\.parquet.*precision"):
        io.merge(str(path), lake, "upsert", ["id"])


def test_indexes_into_no_dictionary(io: Any, tmp_path: Path) -> None:
    """PyArrow reads them, and fails when it looks a value up."""
    table = pa.table({"id": [1, 2], "d": pa.array(["red", "green"]).dictionary_encode()})
    lake = write_lake(tmp_path / "lake", {"f.parquet": table})
    path = Path(write_lake(tmp_path / "source", {"s.parquet": table}), "s.parquet")
    content = bytearray(path.read_bytes())
    count = content.index(b"\x4c\x15", pq.read_metadata(path).row_group(0).column(1).dictionary_page_offset) + 2
    assert content[count] == 4, "two values"
    content[count] = 0
    path.write_bytes(content)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"s\.parquet.*dictionary of 0 values"):
        io.merge(str(path), lake, "upsert", ["id"])
    Path(lake, "f.parquet").write_bytes(content)
    with nothing_changes(lake), pytest.raises(UnreadableFileError, match=r"lake/f\.parquet.*dictionary of 0 values"):
        io.merge(table.slice(1).set_column(1, "d", pa.array(["blue"])), lake, "upsert", ["id"])
