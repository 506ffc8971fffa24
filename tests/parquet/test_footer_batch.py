"""Footers of one writer that are parsed as one: whatever they say, each file has what it says alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.dataset import footers
from fsspeckit.core.dataset.footers import FooterTemplates, read_footers, read_planned
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.errors import UnreadableFileError
from fsspeckit.core.model import Footer
from fsspeckit.core.parquet import footer_batch, thrift
from fsspeckit.core.parquet.footer_batch import FooterBatch
from fsspeckit.core.parquet.footer_io import footer_bytes
from fsspeckit.core.storage import locate

FILES = 6


def table(number: int) -> pa.Table:
    ids = range(number * 10, number * 10 + 10)
    return pa.table({"id": ids, "name": [f"name {i}" for i in ids], "x": [None if i % 3 else i / 2 for i in ids]})


def by_pyarrow(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, row_group_size=4)


def by_polars(rows: pa.Table, path: Path) -> None:
    pl.DataFrame(rows).write_parquet(path, row_group_size=5)


def by_duckdb(rows: pa.Table, path: Path) -> None:
    duckdb.from_arrow(rows).write_parquet(str(path))


WRITERS = [by_pyarrow, by_polars, by_duckdb]


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "_MANY", 0)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many footers were parsed as one, each time."""
    counts: list[int] = []

    class Counting(FooterBatch):
        @classmethod
        def of(cls, head: bytes, rest: bytes, footers: list[bytes]) -> FooterBatch:  # type: ignore[override]
            read = FooterBatch.of(head, rest, footers)
            counts.append(len(footers))
            return read

    monkeypatch.setattr(footers, "FooterBatch", Counting)
    return counts


def lake_by(write: Callable[[pa.Table, Path], None], folder: Path) -> Path:
    folder.mkdir()
    for number in range(FILES):
        write(table(number), folder / f"f{number}.parquet")
    return folder


def outcome(read: Callable[..., list[Footer]], lake: Path) -> list[Footer] | str:
    location = locate(lake)
    try:
        infos = list(list_files(location))
        return [replace(footer, metadata=None) for footer in read(location, infos, ["id", "name"])]
    except UnreadableFileError as error:
        return str(error)


@pytest.mark.parametrize("write", WRITERS)
def test_each_file_has_what_it_says_alone(
    tmp_path: Path, write: Callable[[pa.Table, Path], None], batches: list[int]
) -> None:
    lake = lake_by(write, tmp_path / "lake")
    read = outcome(read_planned, lake)
    assert read == outcome(read_footers, lake)
    assert batches == [FILES - 1], "all but the first"
    assert [footer.row_groups[0].bounds["id"].lower for footer in read if isinstance(footer, Footer)] == [
        number * 10 for number in range(FILES)
    ]


def test_files_of_many_writers_in_one_folder(tmp_path: Path, batches: list[int]) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    for number in range(12):
        WRITERS[number % 3](table(number), lake / f"f{number:02d}.parquet")
    pq.write_table(table(12).slice(0, 0), lake / "f12.parquet")
    pq.write_table(table(13).drop_columns(["x"]), lake / "f13.parquet")
    assert outcome(read_planned, lake) == outcome(read_footers, lake)
    assert sorted(batches) == [3, 3, 4], "one of each is read alone, and so is the one with another schema"


@pytest.mark.parametrize("damaged", ["f0", "f3"])
@pytest.mark.parametrize("write", WRITERS)
def test_damaged_footers_say_what_they_say_alone(
    tmp_path: Path,
    write: Callable[[pa.Table, Path], None],
    damaged: str,
    batches: list[int],
    pytestconfig: pytest.Config,
) -> None:
    """The first of a lake is what others are compared with."""
    lake, chosen = lake_by(write, tmp_path / "lake"), random.Random(7)
    path = lake / f"{damaged}.parquet"
    whole = path.read_bytes()
    with pa.OSFile(str(path)) as source:
        begin = len(whole) - 8 - len(footer_bytes(source))
    refused = 0
    for _ in range(pytestconfig.getoption("examples") or 150):
        data = bytearray(whole)
        for _ in range(chosen.randint(1, 3)):
            data[chosen.randrange(begin, len(whole) - 8)] = chosen.randrange(256)
        path.write_bytes(data)
        alone = outcome(read_footers, lake)
        assert outcome(read_planned, lake) == alone, bytes(data[begin:])
        refused += isinstance(alone, str)
    assert refused, "some damage is an error"
    assert batches, "and some is not"


@pytest.mark.parametrize("write", WRITERS)
def test_row_groups_that_shift_are_noticed(
    tmp_path: Path, write: Callable[[pa.Table, Path], None], batches: list[int]
) -> None:
    """A footer with a row group more than it counts, and the next one with one less: together they would fit."""
    lake = lake_by(write, tmp_path / "lake")
    location = locate(lake)
    raws = []
    for info in list_files(location):
        with pa.OSFile(location.at(info.path)) as source:
            raws.append(footer_bytes(source))
    known = FooterTemplates()
    first = pq.ParquetFile(lake / "f0.parquet")
    template = known.add(raws[0], first.schema_arrow, first.metadata)
    _, count, groups = footer_batch._row_groups(raws[1], template.head, template.rest or b"")
    begin = raws[1].index(groups)
    listed = thrift.list_header(thrift.STRUCT, count)
    assert raws[1][begin - len(listed) : begin] == listed
    more = raws[1][: begin - len(listed)] + thrift.list_header(thrift.STRUCT, count + 1) + raws[1][begin:]
    less = raws[2].replace(listed, thrift.list_header(thrift.STRUCT, count - 1), 1)
    assert len(FooterBatch.of(template.head, template.rest or b"", raws[1:3]).ranges) == 2
    for odd in ([more, raws[2]], [raws[1], less], [more, less], [less, more]):
        with pytest.raises((ValueError, OSError, pa.ArrowException)):
            FooterBatch.of(template.head, template.rest or b"", odd)


@pytest.mark.parametrize("odd", ["f0", "f3"])
def test_a_footer_that_only_pyarrow_makes_sense_of(tmp_path: Path, odd: str) -> None:
    """A field that stands there twice: the last one counts for PyArrow, and we refuse to go by such bytes."""
    lake = lake_by(by_duckdb, tmp_path / "lake")
    path = lake / f"{odd}.parquet"
    data, schema = path.read_bytes(), pq.ParquetFile(path)
    with pa.OSFile(str(path)) as source:
        raw = footer_bytes(source)
    rest = FooterTemplates().add(raw, schema.schema_arrow, schema.metadata).rest
    assert rest is not None and schema.num_row_groups == 1
    again = b"\x06\x06" + bytes([10 << 1])  # num_rows of the row group, before the byte that ends it
    twice = raw[: len(raw) - len(rest) - 1] + again + b"\0" + rest
    path.write_bytes(data[: -8 - len(raw)] + twice + len(twice).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(thrift.CorruptFile, match="field 3 twice"):
        thrift.decode(twice)
    alone = outcome(read_footers, lake)
    assert isinstance(alone, list) and outcome(read_planned, lake) == alone
