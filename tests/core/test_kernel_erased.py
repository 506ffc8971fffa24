"""Erased means erased: deleted values are in no byte of the new file, and replaced ones not in their row group."""

from __future__ import annotations

import datetime as dt
import importlib
import shutil
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer
from erased import contents, unused_dictionary_values
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.parquet import thrift
from fsspeckit.core.values.schema import plain_schema
from fsspeckit.datasets.duckdb.version import parse_version
from rewriting import SAMPLES, cannot_be_copied, change, new_file, read_pyarrow, rewrite

OLD_DUCKDB = parse_version(duckdb.__version__) < (1, 2, 0)
SECRET = 7
"""The row with the secrets: the largest value of every column, and so in its statistics, too."""
WHEN = dt.datetime(2093, 5, 17, 13, 37, 42, 123457)
NANOS = ((WHEN.hour * 60 + WHEN.minute) * 60 + WHEN.second) * 10**9 + WHEN.microsecond * 1000
JULIAN = WHEN.toordinal() + 1_721_425
MICROS = (WHEN - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
DAY = dt.date(6543, 2, 1)
DAYS = (DAY - dt.date(1970, 1, 1)).days
REAL, SINGLE = struct.unpack("<df", bytes.fromhex("a1b2c3d4e5f63f72 a1b2c34b"))


def number(value: int, *widths: int) -> list[bytes]:
    """The bytes of an integer in all ways that a Parquet file may have it."""
    little = [value.to_bytes(width, "little", signed=True) for width in widths]
    return [*little, *(content[::-1] for content in little)]


COLUMNS: dict[str, tuple[pa.DataType, Any, Sequence[Any], list[bytes]]] = {
    "id": (pa.int64(), 0x0102030405060708, (), number(0x0102030405060708, 8)),
    "whole": (pa.int64(), 0x1122334455667788, (1, 2, None), number(0x1122334455667788, 8)),
    "small": (pa.int32(), 0x2A3B4C5D, (1, 2, None), number(0x2A3B4C5D, 4)),
    "real": (pa.float64(), REAL, (0.5, None, 1.5), [struct.pack("<d", REAL)]),
    "single": (pa.float32(), SINGLE, (0.5, None, 1.5), [struct.pack("<f", SINGLE)]),
    "text": (pa.string(), "Ähm Bertholdine", ("Anna", None, "Carl"), [b"Bertholdine"]),
    "raw": (pa.binary(), b"\xde\xad\xbe\xef\x13\x37", (b"a", b"b"), [b"\xde\xad\xbe\xef\x13\x37"]),
    "day": (pa.date32(), DAY, (dt.date(2024, 1, 1), None), number(DAYS, 4)),
    "at": (
        pa.timestamp("us"),
        WHEN,
        (dt.datetime(2024, 1, 1), None),
        [*number(MICROS, 8), *number(MICROS * 1000, 8), struct.pack("<qi", NANOS, JULIAN)],
    ),
    "money": (pa.decimal128(20, 2), Decimal(0x1122334455667).scaleb(-2), (Decimal(1),), number(0x1122334455667, 8, 9)),
    "coins": (pa.decimal128(9, 2), Decimal(0x2A3B4C5D).scaleb(-2), (Decimal(1), None), number(0x2A3B4C5D, 4)),
    "list": (pa.list_(pa.int64()), [1, 0x1A2B3C4D5E6F7081], ([], [1], None), number(0x1A2B3C4D5E6F7081, 8)),
    "struct": (
        pa.struct([("a", pa.struct([("b", pa.string())]))]),
        {"a": {"b": "Xantippe Kunz"}},
        (None, {"a": {"b": "B"}}),
        [b"Xantippe"],
    ),
    "map": (pa.map_(pa.string(), pa.float64()), [("Zacharias", REAL)], ([], [("k", 1.0)]), [b"Zacharias"]),
}
"""By column: the type, the secret, other values, and the bytes of the secret."""
FLAT = [name for name in COLUMNS if name not in ("list", "struct", "map")]
CATEGORIES = ["text"]


def table(names: Sequence[str] = tuple(COLUMNS), rows: int = 60) -> pa.Table:
    columns = {}
    for name in names:
        dtype, secret, others, _ = COLUMNS[name]
        values = [others[i % len(others)] if others else i for i in range(rows)]
        columns[name] = pa.array([secret if i == SECRET else value for i, value in enumerate(values)], dtype)
    return pa.table(columns)


def with_categories(rows: pa.Table) -> pa.Table:
    """Text in dictionaries that all row groups share."""
    text = rows.column("text").combine_chunks().dictionary_encode()
    parts = pa.StructArray.from_arrays([text], ["text"])
    return pa.table({"id": rows.column("id"), "text": text, "part": parts})


def by_pyarrow(rows: pa.Table | None = None, **options: Any) -> Callable[[Path], None]:
    rows = table() if rows is None else rows
    return lambda path: pq.write_table(rows, path, **{"row_group_size": 20, **options})


def by_duckdb(select: str = "*", **options: Any) -> Callable[[Path], None]:
    """DuckDB's row groups have 2,048 rows at least."""

    def write(path: Path) -> None:
        if "PARQUET_VERSION" in options and OLD_DUCKDB:
            pytest.skip("this DuckDB writes version 1 only")
        told = "".join(f", {name} {value}" for name, value in options.items())
        with duckdb.connect(config={"threads": 1}) as connection:
            rows = table(rows=3 * 2048).append_column("place", pa.array(range(3 * 2048)))
            connection.register("rows", rows)
            connection.execute("CREATE TYPE word AS ENUM ('Anna', 'Carl', 'Ähm Bertholdine')")
            query = f"SELECT {select} FROM (SELECT * FROM rows ORDER BY place)"
            connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048{told})")

    return write


def by_polars(rows: pa.Table, **options: Any) -> Callable[[Path], None]:
    return lambda path: pl.from_arrow(rows).write_parquet(path, row_group_size=20, **options)


def by_fastparquet(**options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        frame = frame_of(["id", "whole", "small", "real", "single", "text", "raw", "at"])
        importlib.import_module("fastparquet").write(str(path), frame, row_group_offsets=20, **options)

    return write


def by_pandas(path: Path) -> None:
    frame_of([name for name in FLAT if name != "money"]).to_parquet(path, row_group_size=20)


def frame_of(names: Sequence[str]) -> Any:
    """A data frame with categories, and without nulls in integers, which pandas would make floats."""
    rows = table(names)
    for name in ("whole", "small"):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, name, rows.column(name).fill_null(0))
    return rows.to_pandas().astype({"text": "category", "at": "datetime64[ns]"})


BLOOMS = {name: {"ndv": 100, "fpp": 0.001} for name in ("id", "whole", "real", "text")}
ENUM = "id, text::word AS text, {'text': text::word} AS part, [text::word] AS parts"
FILES: dict[str, Callable[[Path], None]] = {
    **{
        f"codec {codec}": by_pyarrow(compression=codec) for codec in ("none", "snappy", "gzip", "zstd", "brotli", "lz4")
    },
    "plain": by_pyarrow(use_dictionary=False, compression="none"),
    "page index": by_pyarrow(write_page_index=True, data_page_size=16, write_batch_size=4),
    "pages of version 2": by_pyarrow(data_page_version="2.0", compression="zstd"),
    "bloom filters": by_pyarrow(bloom_filter_options=BLOOMS),
    "delta": by_pyarrow(
        use_dictionary=False,
        column_encoding={"whole": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "real": "BYTE_STREAM_SPLIT"},
    ),
    "int96": by_pyarrow(use_deprecated_int96_timestamps=True),
    "decimals as integers": by_pyarrow(store_decimal_as_integer=True),
    "no statistics": by_pyarrow(write_statistics=False),
    "no arrow schema": by_pyarrow(store_schema=False),
    "duckdb": by_duckdb(),
    "duckdb version 2": by_duckdb(PARQUET_VERSION="V2", COMPRESSION="zstd"),
    "polars": by_polars(table([n for n in COLUMNS if n != "map"]), statistics="full"),
}
SHARED: dict[str, Callable[[Path], None]] = {
    "categories": by_pyarrow(with_categories(table())),
    "categories without a schema": by_pyarrow(with_categories(table()), store_schema=False),
    "pandas": by_pandas,
    "fastparquet": by_fastparquet(),
    "fastparquet int96": by_fastparquet(times="int96", compression="GZIP"),
    "categories of polars": by_polars(with_categories(table())),
    "enum of duckdb": by_duckdb(ENUM),
    "enum of duckdb, version 2": by_duckdb(ENUM, PARQUET_VERSION="V2"),
}
"""Files whose row groups share a dictionary, so that the secret is in all of them."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake" / "f.parquet"


def found(content: bytes, names: Sequence[str]) -> list[str]:
    """The columns whose secret is in the content."""
    return [name for name in names if any(trace in content for trace in COLUMNS[name][3])]


def written(path: Path, name: str) -> list[str]:
    """Write a file, and return the columns with a secret, after it was found."""
    {**FILES, **SHARED}[name](path)
    names = [column for column in pq.read_schema(path).names if column in COLUMNS]
    assert found(contents(path), names) == names
    return names


@pytest.mark.parametrize("way", ["spliced", "re-encoded", "as new files"])
@pytest.mark.parametrize("name", [*FILES, *SHARED])
def test_deleted_values_are_in_no_byte(path: Path, name: str, way: str) -> None:
    names = written(path, name)
    if way == "re-encoded":
        edit_footer(path, cannot_be_copied)
    job: dict[str, Any] = {"as_new_files": WriteOptions()} if way == "as new files" else {}
    done = rewrite(path, {0: change(deleted=[SECRET])}, **job)
    new = path.parent.parent / done.staged[0].staged
    assert found(contents(new), names) == []
    assert unused_dictionary_values(new) == []
    before = read_pyarrow(path)
    assert repr(read_pyarrow(new)) == repr(before[:SECRET] + before[SECRET + 1 :])
    if way != "as new files":  # their row groups are larger, so that the filters answer yes by chance
        check_bloom_filters(new, names)


@pytest.mark.parametrize("name", [*FILES, *SHARED])
def test_a_deleted_row_group_is_in_no_byte(path: Path, name: str) -> None:
    names = written(path, name)
    rewrite(path, {}, deleted_groups=frozenset({0}))
    assert found(contents(new_file(path)), names) == []
    assert unused_dictionary_values(new_file(path)) == []
    rewrite(path, {}, deleted_groups=frozenset({0, 1, 2}), keep_empty=True)
    assert found(contents(new_file(path)), names) == []


@pytest.mark.parametrize("way", ["spliced", "re-encoded"])
@pytest.mark.parametrize("name", [*FILES, *SHARED])
def test_replaced_values_are_gone_from_their_row_group(path: Path, name: str, way: str) -> None:
    names = written(path, name)
    if way == "re-encoded":
        edit_footer(path, cannot_be_copied)
    rows = pq.ParquetFile(path).read_row_group(0)
    rows = rows.cast(plain_schema(rows.schema)).slice(SECRET + 1, 1)
    others = [column for column in names if column != "id"]
    rewrite(path, {0: change([SECRET], rows.drop_columns(["id"]))}, deletes=False)
    new = new_file(path)
    assert found(contents(new, {0}), others) == []
    assert [place for place in unused_dictionary_values(new) if place[0] == 0] == []
    if name in FILES or way == "re-encoded":
        assert found(contents(new), others) == []
    check_bloom_filters(new, others)


def check_bloom_filters(path: Path, names: Sequence[str]) -> None:
    """DuckDB asks the filters for the secrets, unless it is too old."""
    if OLD_DUCKDB:
        return
    metadata = pq.read_metadata(path)
    with duckdb.connect() as connection:
        for name in set(names) & BLOOMS.keys():
            query = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?)"
            answers = connection.execute(query, [str(path), name, COLUMNS[name][1]]).fetchall()
            leaf = metadata.schema.names.index(name)
            has_filter = metadata.row_group(0).column(leaf).bloom_filter_offset is not None
            assert not has_filter or answers[0] == (True,), name


def test_a_writer_that_is_not_known_may_share_dictionaries(path: Path) -> None:
    by_pyarrow(with_categories(table()), store_schema=False)(path)
    edit_footer(path, lambda footer: footer.update({6: (thrift.BINARY, b"someone else")}))
    rewrite(path, {0: change(deleted=[SECRET])})
    assert found(contents(new_file(path)), CATEGORIES) == []


@pytest.mark.skipif(OLD_DUCKDB, reason="this DuckDB writes text like enumerations, so that it is encoded again, too")
def test_columns_without_shared_dictionaries_are_copied(path: Path) -> None:
    """Of the other row groups only the enumeration is encoded again."""
    by_duckdb("id, text::word AS text, whole, text AS word")(path)
    done = rewrite(path, {0: change(deleted=[SECRET])})
    metadata = pq.read_metadata(path)
    chunks = [metadata.row_group(group).column(leaf) for group in (1, 2) for leaf in (0, 2, 3)]
    assert done.copied == sum(chunk.total_compressed_size for chunk in chunks)


# -- files of all writers: the values of a row that no other row has


def traces(column: pa.ChunkedArray, row: int) -> list[bytes]:
    """The bytes of a value that no other row has, if they are long enough not to be found by chance."""
    value = column[row].as_py()
    if value is None or column.to_pylist().count(value) > 1:
        return []
    dtype = column.type
    if pa.types.is_timestamp(dtype):
        plain = column.cast(pa.timestamp(dtype.unit)).cast(pa.int64())[row].as_py()
        return number(plain, 8)
    if isinstance(value, Decimal):
        return number(int(value.scaleb(dtype.scale)), 8, (dtype.precision * 4 + 9) // 10)
    if isinstance(value, dict):
        return [value["name"].encode() + b"\0"] if len(value.get("name") or "") > 4 else []
    content = value.encode() if isinstance(value, str) else value
    return [content] if isinstance(content, bytes) and len(content) > 5 else []


@pytest.mark.parametrize("splices", [True, False])
@pytest.mark.parametrize("name", SAMPLES)
def test_deleted_rows_of_every_writer(path: Path, name: str, splices: bool) -> None:
    shutil.copyfile(SAMPLES[name], path)
    if not splices:
        edit_footer(path, cannot_be_copied)
    old = pq.ParquetFile(path).read()
    row = next(row for row in (3, 4) if old.column("text")[row].as_py() is not None)
    kinds = {column: traces(old.column(column), row) for column in old.column_names}
    before = contents(path)
    searched = {column: kind for column, kind in kinds.items() if any(trace in before for trace in kind)}
    assert len(searched) >= 2, kinds
    rewrite(path, {0: change(deleted=[row])})
    after = contents(new_file(path))
    assert [column for column, kind in searched.items() if any(trace in after for trace in kind)] == []
    assert unused_dictionary_values(new_file(path)) == []
    rows = read_pyarrow(path)
    assert repr(read_pyarrow(new_file(path))) == repr(rows[:row] + rows[row + 1 :])
