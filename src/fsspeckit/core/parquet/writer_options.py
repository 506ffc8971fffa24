"""Options for PyArrow's writer, read from an existing file, so that a rewritten file has the same layout.

A writer tries a dictionary for every column, and gives up where the dictionary grows too large. These attempts are most
of the cost of encoding: a file of nine columns took 115 ms with dictionaries everywhere, and 38 ms with dictionaries
only where the old file has kept them. It was smaller, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.format import (
    Codec,
    ColumnChunk,
    ColumnMetaData,
    Encoding,
    FileMetaData,
    PageEncodingStats,
    PageType,
    RowGroup,
    SizeStatistics,
    Type,
)
from fsspeckit.core.parquet.statistics import is_ordered

_DATA_BYTES = SizeStatistics.UNENCODED_BYTE_ARRAY_DATA_BYTES
_DATA_PAGES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
DICTIONARY = {Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY}
# The encodings that PyArrow's writer takes for each physical type, beside PLAIN and dictionaries.
_WRITABLE: Mapping[int, set[Encoding]] = {
    Type.INT32: {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Type.INT64: {Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT},
    Type.FLOAT: {Encoding.BYTE_STREAM_SPLIT},
    Type.DOUBLE: {Encoding.BYTE_STREAM_SPLIT},
    Type.BYTE_ARRAY: {Encoding.DELTA_LENGTH_BYTE_ARRAY, Encoding.DELTA_BYTE_ARRAY},
    Type.FIXED_LEN_BYTE_ARRAY: {Encoding.DELTA_BYTE_ARRAY, Encoding.BYTE_STREAM_SPLIT},
}
# The names of codecs that PyArrow's writer does not take as the format has them.
_CODEC_NAMES = {Codec.UNCOMPRESSED: "NONE", Codec.LZ4_RAW: "LZ4"}
_WIDTHS: Mapping[int, int] = {Type.INT32: 4, Type.INT64: 8, Type.INT96: 12, Type.FLOAT: 4, Type.DOUBLE: 8}
# A dictionary pays if the chunk has less than this share of the size of plain values. Above it, the writer may have
# kept the dictionary only because the row group is not large. In tiny chunks a dictionary costs nothing.
_PAYS_BELOW = 0.9
_TINY = 64 << 10
# A new data set has no old file to learn from. If more than this share of a sample of rows is distinct, the row group
# has more distinct values than a writer's dictionary holds (1 MiB, some 130,000 numbers), or nearly one for each row.
_SAMPLE, _SLICES, _DISTINCT = 50_000, 4, 0.8
_FEW_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class WrittenLeaf:
    """A leaf as PyArrow writes it. `has_order`: its statistics mean something."""

    path: str
    has_order: bool
    takes_filter: bool

    @classmethod
    def of(cls, path: str, old: pq.ColumnSchema) -> WrittenLeaf:
        """PyArrow writes no bloom filters for booleans, and DuckDB's filters for intervals hash normalised values."""
        return cls(path, is_ordered(old), old.physical_type != "BOOLEAN" and old.converted_type != "INTERVAL")


def writer_options(old: pq.FileMetaData, fields: thrift.Struct, leaves: Sequence[WrittenLeaf]) -> dict[str, Any]:
    """Codec, encodings, statistics, bloom filters, page index and sort order of the old file, whose decoded footer is
    `fields`.

    Codec and encodings come from the largest row group: writers record little for one without rows.
    """
    if old.num_row_groups == 0:
        return {"compression": "snappy"}
    groups = [old.row_group(i) for i in range(old.num_row_groups)]
    rows = [group.num_rows for group in groups]
    entries = [thrift.structs(group, RowGroup.COLUMNS) for group in thrift.structs(fields, FileMetaData.ROW_GROUPS)]
    chunks = [thrift.field(e, ColumnChunk.META_DATA, thrift.STRUCT) for e in entries[rows.index(max(rows))]]
    metadata = [[entry[ColumnChunk.META_DATA][1] for entry in leaf] for leaf in zip(*entries, strict=True)]
    has_filter = [any(ColumnMetaData.BLOOM_FILTER_OFFSET in chunk for chunk in leaf) for leaf in metadata]
    codecs = [_codec_name(chunk[ColumnMetaData.CODEC][1]) for chunk in chunks]
    blooms = [leaf.path for leaf, has in zip(leaves, has_filter, strict=True) if has and leaf.takes_filter]
    paths = [leaf.path for leaf in leaves]
    return {
        "compression": dict(zip(paths, codecs, strict=True)),
        **_encoding_options(chunks, old.created_by or "", paths),
        "write_statistics": [leaf.path for leaf in leaves if leaf.has_order],
        "write_page_index": any(ColumnChunk.OFFSET_INDEX_OFFSET in entry for group in entries for entry in group),
        "bloom_filter_options": {path: {"ndv": max(1, *rows), "fpp": 0.01} for path in blooms} or None,
        "sorting_columns": _sorting([group for group in groups if group.num_rows] or groups),
        "store_schema": False,
        "data_page_version": "2.0" if any(map(_has_pages_v2, chunks)) else "1.0",
    }


def _codec_name(codec: int) -> str:
    return _CODEC_NAMES.get(Codec(codec), Codec(codec).name)


def _sorting(groups: Sequence[pq.RowGroupMetaData]) -> Any:
    first = tuple(groups[0].sorting_columns)
    return first if first and all(tuple(g.sorting_columns) == first for g in groups) else None


def codec_of(metadata: pq.FileMetaData) -> str:
    """The codec of the largest row group, as PyArrow's writer names it."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    largest = max(groups, key=lambda group: group.num_rows, default=None)
    codec = largest.column(0).compression.lower() if largest is not None else "snappy"
    return "none" if codec == "uncompressed" else codec.replace("_raw", "")


def _encoding_options(chunks: Sequence[thrift.Struct], created_by: str, paths: Sequence[str]) -> dict[str, Any]:
    """The options that encode the columns at `paths` like these chunks.

    Read from the decoded footer: PyArrow takes several times as long to describe hundreds of column chunks.
    """
    by_fastparquet = created_by.startswith("fastparquet")  # it reads all row groups with one dictionary
    dictionary, others = [], {}
    for path, chunk in zip(paths, chunks, strict=True):
        used = data_encodings(chunk)
        if not by_fastparquet and _takes_dictionary(chunk, used):
            dictionary.append(path)
            continue
        _, encodings = chunk[ColumnMetaData.ENCODINGS][1]
        writable = _WRITABLE.get(chunk[ColumnMetaData.TYPE][1], set())
        if kept := writable & (used or set(encodings)):
            others[path] = Encoding(min(kept)).name
    return {"use_dictionary": dictionary, "column_encoding": others or None}


def repeats(column: pa.ChunkedArray) -> bool:
    """Will a dictionary pay for a flat column, as far as a sample shows? For few rows it costs nothing."""
    rows = len(column)
    if rows <= _FEW_ROWS:
        return True
    size = min(rows, _SAMPLE) // _SLICES
    starts = [(rows - size) * i // (_SLICES - 1) for i in range(_SLICES)]
    sample = pa.chunked_array([chunk for start in starts for chunk in column.slice(start, size).chunks], column.type)
    try:
        return bool(pc.count_distinct(sample, mode="all").as_py() <= _DISTINCT * len(sample))
    except pa.ArrowNotImplementedError:
        return True


def data_encodings(chunk: thrift.Struct) -> set[int]:
    """The encodings of the data pages; empty if the writer does not record them, as Polars."""
    counts = thrift.structs(chunk, ColumnMetaData.ENCODING_STATS) if ColumnMetaData.ENCODING_STATS in chunk else []
    return {
        thrift.field(pages, PageEncodingStats.ENCODING, thrift.I32)
        for pages in counts
        if thrift.field(pages, PageEncodingStats.PAGE_TYPE, thrift.I32) in _DATA_PAGES
    }


def _has_pages_v2(chunk: thrift.Struct) -> bool:
    """PyArrow does not record the version of pages: its files get pages of version 1, as by default."""
    pages = thrift.structs(chunk, ColumnMetaData.ENCODING_STATS) if ColumnMetaData.ENCODING_STATS in chunk else []
    return any(thrift.field(p, PageEncodingStats.PAGE_TYPE, thrift.I32) == PageType.DATA_PAGE_V2 for p in pages)


def _plain_bytes(chunk: thrift.Struct) -> int:
    """The size of the values without a dictionary, nulls counted as values; 0 if it is not known."""
    values = int(chunk[ColumnMetaData.NUM_VALUES][1])
    sizes = thrift.field(chunk, ColumnMetaData.SIZE_STATISTICS, thrift.STRUCT, default={})
    if chunk[ColumnMetaData.TYPE][1] == Type.BYTE_ARRAY and _DATA_BYTES in sizes:
        return int(thrift.field(sizes, _DATA_BYTES, thrift.I64)) + 4 * values
    return values * _WIDTHS.get(chunk[ColumnMetaData.TYPE][1], 0)


def _takes_dictionary(chunk: thrift.Struct, used: set[int]) -> bool:
    """Has the chunk a dictionary that paid? One without values tries again."""
    if not chunk[ColumnMetaData.NUM_VALUES][1]:
        return True
    if ColumnMetaData.DICTIONARY_PAGE_OFFSET not in chunk or not used <= DICTIONARY:
        return False
    plain = _plain_bytes(chunk)
    return plain < _TINY or bool(chunk[ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE][1] < _PAYS_BELOW * plain)
