"""Healthy files to break: those of five writers in `tests/data`, and one of each thing that Parquet can hold."""

from __future__ import annotations

import datetime as dt
import decimal
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent.parent / "data"
ROWS = 12


@dataclass(frozen=True)
class Sample:
    """A file to break, and a healthy one of the same columns that holds other values of the key `id`."""

    name: str
    file: bytes
    companion: bytes


def samples() -> list[Sample]:
    return [*_of_writers(), *_of_kinds()]


def _of_writers() -> list[Sample]:
    found = []
    for folder in sorted(path for path in DATA.iterdir() if path.is_dir() and path.name != "__pycache__"):
        first, second = sorted(folder.rglob("*.parquet"))[:2]
        found.append(Sample(folder.name, first.read_bytes(), second.read_bytes()))
    return found


def _of_kinds() -> list[Sample]:
    flat, codecs = {"id": _whole, "x": _text}, ("none", "snappy", "gzip", "zstd", "brotli", "lz4")
    made = [_sample(f"codec {codec}", flat, compression=codec) for codec in codecs]
    made += [
        _sample("plain", {"id": _whole, "x": _text, "y": _real}, use_dictionary=False),
        _sample("pages of version 2", flat, data_page_version="2.0", write_page_checksum=True),
        _sample("page index", flat, write_page_index=True, data_page_size=8),
        _sample("bloom filter", flat, bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}}),
        _sample(
            "delta", flat, use_dictionary=False, column_encoding={"id": "DELTA_BINARY_PACKED", "x": "DELTA_BYTE_ARRAY"}
        ),
        _sample("split", {"id": _whole, "y": _real}, use_dictionary=False, column_encoding={"y": "BYTE_STREAM_SPLIT"}),
        _sample("no statistics", flat, write_statistics=False),
        _sample("sorted", flat, sorting_columns=[pq.SortingColumn(0)]),
        _sample("text key", {"id": lambda i: f"key {i:03d}", "x": _text}),
        _sample("decimal key", {"id": lambda i: decimal.Decimal(i).scaleb(-2), "x": _money}),
        _sample("day key", {"id": lambda i: dt.date(2024, 1, 1) + dt.timedelta(days=i), "x": _text}),
        _sample("time key", {"id": _instant, "x": _text, "z": _instant}),
        _sample(
            "int96",
            {"id": _whole, "t": lambda i: _instant(i).replace(tzinfo=None)},
            use_deprecated_int96_timestamps=True,
        ),
        _sample("small decimals", {"id": _whole, "x": _money}, store_decimal_as_integer=True),
        _sample("lists", {"id": _whole, "l": lambda i: [i, None, i][: i % 4] if i % 5 else None}),
        _sample("structs", {"id": _whole, "s": lambda i: {"id": -i, "t": {"u": str(i)}} if i % 4 else None}),
        _sample("maps", pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.list_(pa.int32())))]), _map_rows),
        _sample("dictionary", pa.schema([("id", pa.int32()), ("d", pa.dictionary(pa.int8(), pa.string()))]), _words),
        _sample("flags", {"id": _whole, "b": lambda i: i % 3 == 0 if i % 4 else None}),
        *(_sample(f"few values, {name}", _few_values(), **options) for name, options in _PAGES.items()),
        *(_sample(f"values, {name}", _values(), use_dictionary=False, **_SMALL, **o) for name, o in _PAGES.items()),
        _sample("values after a dictionary", _values(), dictionary_pagesize_limit=8, **_SMALL),
        _sample("empty texts", {"id": _whole, "x": lambda i: "" if i % 2 else None}),
        _ledger(),
    ]
    return made


_PAGES: dict[str, dict[str, Any]] = {
    "compressed": {},
    "plain": {"compression": "none"},
    "with checksums": {"write_page_checksum": True},
    "version 2": {"data_page_version": "2.0", "compression": "zstd"},
}


_SMALL: dict[str, Any] = {"write_batch_size": 2, "data_page_size": 1}


def _values() -> dict[str, Any]:
    """Columns that hardly repeat, without nulls, in several pages."""
    return {
        "id": _whole,
        "x": lambda i: f"name {i * i}",
        "y": lambda i: i / 4 - 1,
        "k": lambda i: i * 1000,
        "t": _instant,
    }


def _few_values() -> dict[str, Any]:
    """Columns whose dictionaries have the values of other rows, too."""
    return {
        "id": _whole,
        "n": lambda i: i % 2 + 0.5,
        "w": lambda i: ("one", "other")[i % 2],
        "k": lambda i: i % 2 * 1000,
        "b": lambda i: i % 2 == 0,
    }


def _whole(i: int) -> int:
    return i


def _text(i: int) -> str | None:
    return None if i % 5 == 4 else ("béta", "x", "日本")[i % 3] * (i % 4)


def _real(i: int) -> float:
    return float("nan") if i % 6 == 5 else i / 4


def _money(i: int) -> decimal.Decimal | None:
    return None if i % 4 == 3 else decimal.Decimal(i * 101 * (-1) ** i).scaleb(-2)


def _instant(i: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC) + dt.timedelta(hours=i, microseconds=i)


def _map_rows(i: int) -> dict[str, Any]:
    return {"id": i, "m": None if i % 5 == 4 else [(f"k{j}", [j] * j) for j in range(i % 3)]}


def _words(i: int) -> dict[str, Any]:
    return {"id": i, "d": ("red", "green", None)[i % 3]}


def _sample(name: str, columns: Any, row: Any = None, **options: Any) -> Sample:
    def table(ids: range) -> pa.Table:
        if row is not None:
            return pa.Table.from_pylist([row(i) for i in ids], schema=columns)
        return pa.table({c: [make(i) for i in ids] for c, make in columns.items()})

    file = table(range(ROWS))
    companion = table(range(ROWS, 2 * ROWS)).cast(file.schema)
    return Sample(name, _written(file, **options), _written(companion, **options))


def _written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=ROWS // 2, **options)
    return sink.getvalue()


def _ledger() -> Sample:
    """Files that a stream has committed to."""
    entry = {"fsspeckit.stream.app": '{"batch": 7, "query": "3f0e"}'}
    schema = pa.schema([("id", pa.int64()), ("x", pa.string())], metadata=entry)
    return _sample("ledger", schema, lambda i: {"id": i, "x": _text(i)})
