"""The encodings in which a file's columns ended up, so that a rewritten file does not try again what failed.

Writers try a dictionary for every column, and fall back where it grows too large. That attempt is most of what encoding
costs: a file of nine columns took 115 ms with dictionaries everywhere, 38 ms with those that had paid, and was smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.core.target import thrift

# Field numbers of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and PageEncodingStats in parquet.thrift
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_TYPE, _ENCODINGS, _VALUES, _UNCOMPRESSED, _DICTIONARY_PAGE, _STATS, _SIZES = 1, 2, 5, 6, 11, 13, 16
_PAGE_TYPE, _ENCODING, _COUNT = 1, 2, 3
_DATA_PAGES = (0, 3)
DICTIONARY = {2, 8}
# Encodings that PyArrow writes when told to, and of which physical types. PLAIN need not be told.
_KEPT = {5: "DELTA_BINARY_PACKED", 6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 9: "BYTE_STREAM_SPLIT"}
_INT32, _INT64, _INT96, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED_LEN_BYTE_ARRAY = range(1, 8)
_WRITES = {
    _INT32: {5, 9},
    _INT64: {5, 9},
    _FLOAT: {9},
    _DOUBLE: {9},
    _BYTE_ARRAY: {6, 7},
    _FIXED_LEN_BYTE_ARRAY: {7, 9},
}
_WIDTHS = {_INT32: 4, _INT64: 8, _INT96: 12, _FLOAT: 4, _DOUBLE: 8}
# A dictionary that spares less than this, of the size of plain values, is not worth its while: it may have held only
# because the row group is not large. In tiny ones it costs nothing, and stays.
_PAYS_BELOW = 0.9
_TINY = 64 << 10
# Of a new data set nothing is known but its rows. If more than this share of a sample are distinct, the row group has
# more distinct values than a writer's dictionary holds (1 MiB, some 130,000 numbers), or about as many as rows.
_SAMPLE, _SLICES, _DISTINCT = 50_000, 4, 0.8
_FEW_ROWS = 5_000


def encoding_options(footer: thrift.Struct, metadata: pq.FileMetaData, paths: Sequence[str]) -> dict[str, Any]:
    """What PyArrow's writer is told so that the columns at `paths` are encoded as those of the largest row group.

    PyArrow has looked at the footer, and could be asked; of hundreds of columns that takes several times as long.
    """
    largest = max(range(metadata.num_row_groups), key=lambda i: metadata.row_group(i).num_rows)
    chunks = thrift.structs(thrift.structs(footer, _ROW_GROUPS)[largest], _COLUMNS)
    by_fastparquet = (metadata.created_by or "").startswith("fastparquet")  # reads all row groups with one dictionary
    dictionary, others = [], {}
    for path, entry in zip(paths, chunks, strict=True):
        chunk = thrift.field(entry, _META_DATA, thrift.STRUCT)
        used = data_encodings(chunk)
        if not by_fastparquet and _takes_dictionary(chunk, used):
            dictionary.append(path)
        elif kept := (used or set(chunk[_ENCODINGS][1][1])) & _WRITES.get(chunk[_TYPE][1], set()):
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
    return set(data_pages(chunk))


def data_pages(chunk: thrift.Struct) -> Counter[int]:
    """How many data pages there are of each encoding, where the writer tells."""
    told: Counter[int] = Counter()
    for pages in thrift.structs(chunk, _STATS) if _STATS in chunk else []:
        page, encoding, count = (thrift.field(pages, number, thrift.I32) for number in (_PAGE_TYPE, _ENCODING, _COUNT))
        if page in _DATA_PAGES:
            told[encoding] += count
    return told


def _plain_bytes(chunk: thrift.Struct) -> int:
    """How large the values would be without a dictionary, or 0 where nothing tells; nulls are counted as values."""
    values = int(chunk[_VALUES][1])
    sizes = thrift.field(chunk, _SIZES, thrift.STRUCT) if _SIZES in chunk else {}
    if chunk[_TYPE][1] == _BYTE_ARRAY and 1 in sizes:
        return int(thrift.field(sizes, 1, thrift.I64)) + 4 * values
    return values * _WIDTHS.get(chunk[_TYPE][1], 0)


def _takes_dictionary(chunk: thrift.Struct, used: set[int]) -> bool:
    """As before, where it paid."""
    if not chunk[_VALUES][1]:
        return True
    if _DICTIONARY_PAGE not in chunk or not used <= DICTIONARY:
        return False
    plain = _plain_bytes(chunk)
    return plain < _TINY or bool(chunk[_UNCOMPRESSED][1] < _PAYS_BELOW * plain)
