"""Look for a value in all bytes of a Parquet file, also in compressed pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from damage import raw_footer
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, chunk_entries, dictionary_size, read_struct
from fsspeckit.core.parquet.format import Codec, ColumnMetaData, DataPageHeaderV2, PageHeader
from fsspeckit.core.values import arrays, nested


def contents(path: Path, groups: set[int] | None = None) -> bytes:
    """The bytes of a file, and of its pages without compression; with `groups`, the pages of these row groups only."""
    raw, footer = path.read_bytes(), raw_footer(path)
    wanted = range(pq.read_metadata(path).num_row_groups) if groups is None else sorted(groups)
    pages = [page for group in wanted for entry in chunk_entries(footer, group) for page in _pages(raw, entry)]
    return b"\n".join([raw, *pages] if groups is None else pages)


def _pages(raw: bytes, entry: Any) -> Iterator[bytes]:
    chunk = Chunk.of(entry)
    codec, at = Codec(chunk.metadata[ColumnMetaData.CODEC][1]).name.lower(), chunk.start
    while at < chunk.end:
        header, begin = read_struct(lambda offset, length: raw[offset : offset + length], at, chunk.end)
        at = begin + header[PageHeader.COMPRESSED_PAGE_SIZE][1]
        body, size = raw[begin:at], header[PageHeader.UNCOMPRESSED_PAGE_SIZE][1]
        levels, packed = 0, codec != "uncompressed"
        if PageHeader.DATA_PAGE_HEADER_V2 in header:  # its levels are not compressed
            fields = header[PageHeader.DATA_PAGE_HEADER_V2][1]
            lengths = (DataPageHeaderV2.DEFINITION_LEVELS_BYTE_LENGTH, DataPageHeaderV2.REPETITION_LEVELS_BYTE_LENGTH)
            levels = sum(fields[length][1] for length in lengths)
            packed = packed and fields.get(DataPageHeaderV2.IS_COMPRESSED, (thrift.TRUE, None))[0] == thrift.TRUE
        yield _unpacked(codec, body[levels:], size - levels) if packed else body


def _unpacked(codec: str, body: bytes, size: int) -> bytes:
    return pa.Codec(codec).decompress(body, size, asbytes=True) if body else b""


def unused_dictionary_values(path: Path) -> list[tuple[int, str]]:
    """The row groups and leaves whose dictionary has more values than there are distinct ones in the row group."""
    file, footer, raw = pq.ParquetFile(path), raw_footer(path), path.read_bytes()
    found = []
    for group in range(file.num_row_groups):
        leaves = [leaf for column in file.read_row_group(group).columns for leaf in _leaves(column)]
        for number, entry in enumerate(chunk_entries(footer, group)):
            chunk = Chunk.of(entry)
            if chunk.metadata.get(ColumnMetaData.DICTIONARY_PAGE_OFFSET, (0, 0))[1]:
                size = dictionary_size(lambda offset, length: raw[offset : offset + length], chunk)
                if size > len(leaves[number].drop_null().unique()):
                    found.append((group, file.metadata.schema.column(number).path))
    return found


def _leaves(column: Any) -> Iterator[pa.Array]:
    column = arrays.one_array(arrays.plain(column))
    if pa.types.is_nested(column.type):
        for child in nested.decompose(column)[1]:
            yield from _leaves(child)
    else:
        yield column
