"""The encodings in which a file's columns ended up, so that a rewritten file does not try again what failed.

Writers try a dictionary for every column, and fall back where it grows too large. That attempt is most of what encoding
costs: a file of nine columns took 115 ms with dictionaries everywhere, 38 ms with those that had paid, and was smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.core.target import thrift

# Field numbers of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and PageEncodingStats in parquet.thrift
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATS, _SIZES = 4, 1, 3, 13, 16
_PAGE_TYPE, _ENCODING = 1, 2
_DATA_PAGES = (0, 3)
DICTIONARY = {2, 8}
# Encodings that PyArrow writes when told to, and of what. PLAIN need not be told.
_KEPT = {5: "DELTA_BINARY_PACKED", 6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 9: "BYTE_STREAM_SPLIT"}
_WRITES = {
    "INT32": {5, 9},
    "INT64": {5, 9},
    "FLOAT": {9},
    "DOUBLE": {9},
    "BYTE_ARRAY": {6, 7},
    "FIXED_LEN_BYTE_ARRAY": {7, 9},
}
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# A dictionary that spares less than this, of the size of plain values, is not worth its while: it may have held only
# because the row group is not large. In tiny ones it costs nothing, and stays.
_PAYS_BELOW = 0.9
_TINY = 64 << 10
# Of a new data set nothing is known but its rows. If more than this share of a sample are distinct, the row group has
# more distinct values than a writer's dictionary holds (1 MiB, some 130,000 numbers), or about as many as rows.
_SAMPLE, _SLICES, _DISTINCT = 50_000, 4, 0.8
_FEW_ROWS = 5_000


def encoding_options(footer: thrift.Struct, metadata: pq.FileMetaData, paths: Sequence[str]) -> dict[str, Any]:
    """What PyArrow's writer is told so that the columns at `paths` are encoded as those of the largest row group."""
    largest = max(range(metadata.num_row_groups), key=lambda i: metadata.row_group(i).num_rows)
    raw = thrift.structs(footer, _ROW_GROUPS)[largest]
    chunks = [thrift.field(chunk, _META_DATA, thrift.STRUCT) for chunk in thrift.structs(raw, _COLUMNS)]
    group = metadata.row_group(largest)
    dictionary, others = [], {}
    for index, path in enumerate(paths):
        chunk = group.column(index)
        used = data_encodings(chunks[index])
        if _takes_dictionary(metadata, chunk, used, _plain_bytes(chunk, chunks[index])):
            dictionary.append(path)
        elif kept := (used or _named(chunk)) & _WRITES.get(chunk.physical_type, set()):
            others[path] = _KEPT[min(kept)]
    return {"use_dictionary": dictionary, "column_encoding": others or None}


def repeats(column: pa.ChunkedArray) -> bool:
    """Will a dictionary of a flat column pay, as far as a sample tells? In few rows it costs nothing."""
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
    """The encodings of the data pages, where the writer tells; Polars does not."""
    pages = thrift.structs(chunk, _STATS) if _STATS in chunk else []
    told = [(thrift.field(p, _PAGE_TYPE, thrift.I32), thrift.field(p, _ENCODING, thrift.I32)) for p in pages]
    return {encoding for page, encoding in told if page in _DATA_PAGES}


def _named(chunk: pq.ColumnChunkMetaData) -> set[int]:
    return {number for number, name in _KEPT.items() if name in chunk.encodings}


def _plain_bytes(chunk: pq.ColumnChunkMetaData, raw: thrift.Struct) -> int:
    """How large the values would be without a dictionary, or 0 where nothing tells; nulls are counted as values."""
    sizes = thrift.field(raw, _SIZES, thrift.STRUCT) if _SIZES in raw else {}
    if chunk.physical_type == "BYTE_ARRAY" and 1 in sizes:
        return int(thrift.field(sizes, 1, thrift.I64)) + 4 * int(chunk.num_values)
    return int(chunk.num_values) * _WIDTHS.get(chunk.physical_type, 0)


def _takes_dictionary(metadata: pq.FileMetaData, chunk: pq.ColumnChunkMetaData, used: set[int], plain: int) -> bool:
    """As before, where it paid, unless fastparquet wrote it: it reads all row groups with one dictionary (seen)."""
    if (metadata.created_by or "").startswith("fastparquet"):
        return False
    if not chunk.num_values:
        return True
    if not chunk.has_dictionary_page or not used <= DICTIONARY:
        return False
    return plain < _TINY or bool(chunk.total_uncompressed_size < _PAYS_BELOW * plain)
