"""Erased means erased: deleted values are in no byte of the lake, whoever wrote its files."""

from __future__ import annotations

import datetime as dt
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet import thrift
from support import data_files, rows, write_lake

DATA = Path(__file__).parent.parent / "data"
WRITERS = ["pyarrow", "duckdb", "polars", "fastparquet", "spark", "spark_legacy"]
WORDS = ("alpha", "béta", "gamma", "日本語")
START = dt.datetime(2024, 1, 1, 12, 30, 15, 123456)
GONE = (10, 17, 19, 30, 44, 59)
"""Ids without nulls, at the borders of row groups and within: their values are bounds of statistics and pages."""
WAYS = pytest.mark.parametrize("way", ["keys", "filters"])


@pytest.fixture(params=WRITERS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "polars" and pa.__version__.startswith("25."):
        pytest.skip("PyArrow 25 does not read lists of fixed size that are null; such a file is refused")
    shutil.copytree(DATA / request.param, tmp_path / "lake")
    return str(tmp_path / "lake")


def delete(io: Any, lake: str, way: str, ids: Any) -> Any:
    if way == "keys":
        return io.delete(lake, keys=pa.table({"id": pa.array(ids)}), key_columns=["id"])
    return io.delete(lake, filters=[("id", "in", list(ids))])


# What a file holds


def contents(folder: str) -> Iterator[tuple[str, bytes]]:
    """The bytes of every file in a folder, and those of every page, without compression."""
    for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
        raw = path.read_bytes()
        yield str(path), raw
        if raw[:4] == b"PAR1" and raw[-4:] == b"PAR1":
            yield from ((f"{path}, {where}", page) for where, page in pages(path, raw))


def pages(path: Path, raw: bytes) -> Iterator[tuple[str, bytes]]:
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(leaf)
            starts = [chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None]
            at = min(start for start in starts if start)
            end = at + chunk.total_compressed_size
            while at < end:
                decoded = thrift.decode_at(raw, at)
                assert decoded is not None
                header, begin = decoded
                at = begin + header[3][1]
                yield f"row group {group}, {chunk.path_in_schema}", page(header, raw[begin:at], chunk.compression)


def page(header: Any, body: bytes, codec: str) -> bytes:
    """A page's values; in version 2 its levels are not compressed."""
    levels = 0
    if 8 in header:
        second = header[8][1]
        levels = second[5][1] + second[6][1]
        if 7 in second and second[7][0] == thrift.FALSE:
            return body
    if codec == "UNCOMPRESSED" or len(body) == levels:
        return body
    plain = pa.Codec(codec.lower()).decompress(body[levels:], header[2][1] - levels)
    return body[:levels] + (plain if isinstance(plain, bytes) else plain.to_pybytes())


def found_in(folder: Path | str, wanted: dict[str, bytes]) -> dict[str, str]:
    """The values whose bytes are in a folder, and a place of each."""
    places: dict[str, str] = {}
    for where, held in contents(str(folder)):
        places |= {name: where for name, value in wanted.items() if value in held}
    return places


def patterns(ids: Any) -> dict[str, bytes]:
    """The bytes of values that a row of the samples has, and no other row."""
    found = {f"text {i}": f"{WORDS[i % 4]} {i}".encode() for i in ids}
    for i in ids:
        moment = START + dt.timedelta(days=i)
        micros = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
        nanos_of_day = (micros % 86_400_000_000) * 1000
        found[f"microseconds {i}"] = struct.pack("<q", micros)
        found[f"milliseconds {i}"] = struct.pack("<q", micros // 1000)
        found[f"nanoseconds {i}"] = struct.pack("<q", micros * 1000)
        found[f"duckdb's nanoseconds {i}"] = struct.pack("<q", 1704112215123456789 + i)
        found[f"INT96 {i}"] = struct.pack("<qi", nanos_of_day, micros // 86_400_000_000 + 2440588)
    return found


# The samples


@WAYS
def test_samples_of_every_writer(io: Any, lake: str, way: str) -> None:
    parent = Path(lake).parent
    there, others = found_in(parent, patterns(GONE)), found_in(parent, patterns((11, 18, 31)))
    assert {name for name in there if name.startswith("text")} == {f"text {i}" for i in GONE}
    assert any(not name.startswith("text") for name in there), "numbers too"
    assert delete(io, lake, way, GONE).deleted == len(GONE)
    assert found_in(parent, patterns(GONE)) == {}
    assert found_in(parent, patterns((11, 18, 31))).keys() == others.keys(), "other rows keep their values"


@WAYS
def test_all_rows_of_the_samples(io: Any, lake: str, way: str) -> None:
    """The file that stays has no row, and no value."""
    assert delete(io, lake, way, range(60)).deleted == 60
    assert len(data_files(lake)) == 1
    assert found_in(Path(lake).parent, patterns(range(10, 60))) == {}


def test_a_feed_erases_too(io: Any, lake: str) -> None:
    source = pa.table({"id": list(GONE), "gone": [True] * len(GONE)})
    assert io.merge(source, lake, "upsert", ["id"], delete_column="gone").deleted == len(GONE)
    assert found_in(Path(lake).parent, patterns(GONE)) == {}


# What writers keep beside the values


SECRET, NUMBER = "Erika Mustermann, Heidestraße 17", 0x5EC2E7_0DD5
WANTED = {"text": SECRET.encode(), "number": struct.pack("<q", NUMBER)}
KINDS: dict[str, dict[str, Any]] = {
    "dictionary": {},
    "plain": {"use_dictionary": False},
    "no compression": {"compression": "none"},
    "page index": {"write_page_index": True, "data_page_size": 64},
    "pages of version 2": {"data_page_version": "2.0"},
    "no statistics": {"write_statistics": False},
    "bloom filter": {"bloom_filter_options": {"x": {"ndv": 100, "fpp": 0.001}, "n": {"ndv": 100, "fpp": 0.001}}},
    "delta": {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"}},
}


def secret_table(kind: str) -> pa.Table:
    """A secret in the middle row; it is the least text and the greatest number of its row group."""
    texts = [f"plain text {i % 7}" for i in range(40)]
    texts[21] = SECRET
    numbers = [i % 5 for i in range(40)]
    numbers[21] = NUMBER
    x = pa.array(texts)
    return pa.table({"id": range(40), "x": x.dictionary_encode() if kind == "dictionary" else x, "n": numbers})


@WAYS
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_files(io: Any, tmp_path: Path, kind: str, way: str) -> None:
    """A dictionary keeps no value that no row has, statistics no bound, a bloom filter no hash."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": secret_table(kind)}, row_group_size=10, **KINDS[kind])
    assert found_in(tmp_path, WANTED) or kind == "delta"
    assert delete(io, lake, way, [21]).deleted == 1
    assert found_in(tmp_path, WANTED) == {}
    assert not maybe_in_bloom_filters(lake)
    assert len(rows(lake)) == 39
    assert all(row["id"] != 21 and row["n"] != NUMBER for row in rows(lake))


def maybe_in_bloom_filters(lake: str) -> list[Any]:
    """Row groups whose bloom filter does not exclude the secret."""
    found: list[Any] = []
    with duckdb.connect() as connection:
        for name in data_files(lake):
            path = str(Path(lake, name))
            offsets = (
                "SELECT count(*) FROM parquet_metadata(?) WHERE path_in_schema = ? AND bloom_filter_offset IS NOT NULL"
            )
            for column, value in (("x", SECRET), ("n", NUMBER)):
                row = connection.execute(offsets, [path, column]).fetchone()
                if row is not None and row[0]:
                    probe = f"SELECT * FROM parquet_bloom_probe(?, '{column}', ?)"
                    found += [r for r in connection.execute(probe, [path, value]).fetchall() if not r[-1]]
    return found


def test_the_bloom_filter_knows_the_secret_before(tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing."""
    lake = write_lake(
        tmp_path / "lake", {"f.parquet": secret_table("plain")}, row_group_size=10, **KINDS["bloom filter"]
    )
    assert len(maybe_in_bloom_filters(lake)) == 2


@WAYS
def test_a_file_that_is_removed_leaves_nothing(io: Any, tmp_path: Path, way: str) -> None:
    files = {"a.parquet": secret_table("plain").slice(0, 21), "b.parquet": secret_table("plain").slice(21, 1)}
    lake = write_lake(tmp_path / "lake", files)
    assert found_in(tmp_path, WANTED).keys() == WANTED.keys()
    assert delete(io, lake, way, [21]).deleted == 1
    assert data_files(lake) == ["a.parquet"]
    assert found_in(tmp_path, WANTED) == {}


@pytest.mark.parametrize("options", [{"on_move": "move"}, {"delete_missing": "all"}], ids=str)
def test_moves_and_missing_rows_leave_no_old_values(io: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    table = secret_table("plain")
    lake = write_lake(tmp_path / "lake", {"day=a/f.parquet": table, "day=b/f.parquet": table.slice(0, 1)})
    day = "b" if "on_move" in options else "a"
    source = pa.table({"id": [21 if "on_move" in options else 5], "x": ["clean"], "n": [1], "day": [day]})
    first = pa.table({"id": [0]})
    io.merge(first, lake, "delete", ["id"])
    io.merge(source, lake, "upsert", ["id"], **options)
    assert found_in(tmp_path, WANTED) == {}
