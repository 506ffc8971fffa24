"""Where the column chunks of a file lie, and whether their bytes can be copied.

A reader notices when a footer's offsets and sizes are wrong; a copy does not. So chunks are copied only if they lie
within the file, do not overlap, and consist of pages that fill them and hold the number of values in the footer.
Otherwise the file is `NotSpliceable`. That is no damage: a reader may still read it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.format import (
    MAGIC,
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
)
from fsspeckit.core.storage.local_files import read_at

ReadAt = Callable[[int, int], bytes]
"""Bytes of a file, by offset and length; fewer at its end."""

# The offset and the length of a page index.
OFFSET_INDEX = (ColumnChunk.OFFSET_INDEX_OFFSET, ColumnChunk.OFFSET_INDEX_LENGTH)
COLUMN_INDEX = (ColumnChunk.COLUMN_INDEX_OFFSET, ColumnChunk.COLUMN_INDEX_LENGTH)


def _fields(first: int, last: int) -> frozenset[int]:
    return frozenset(range(first, last + 1))


# The fields that a copy may have: not those of encryption and of chunks in other files, and none that a later version
# of the format adds, as it may hold an offset.
_OF_FILE = _fields(FileMetaData.VERSION, FileMetaData.COLUMN_ORDERS)
_OF_GROUP = _fields(RowGroup.COLUMNS, RowGroup.ORDINAL)
_OF_COLUMN = _fields(ColumnChunk.FILE_OFFSET, ColumnChunk.COLUMN_INDEX_LENGTH)
_OF_CHUNK = _fields(ColumnMetaData.TYPE, ColumnMetaData.GEOSPATIAL_STATISTICS)
# Page headers are short. One that is longer, because of long bounds in it, is read a second time.
_HEADER, _LONGEST_HEADER = 256, 16 << 20
_OF_HEADERS = _fields(PageHeader.TYPE, PageHeader.COMPRESSED_PAGE_SIZE)
_OF_DICTIONARIES = (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY)
# By page type: the field of the header for this type, the fields that it must have, and which of these are the number
# of values and the encoding. Index pages are not in use.
_PAGES: Mapping[int, tuple[int, frozenset[int], int, int]] = {
    PageType.DATA_PAGE: (
        PageHeader.DATA_PAGE_HEADER,
        _fields(DataPageHeader.NUM_VALUES, DataPageHeader.REPETITION_LEVEL_ENCODING),
        DataPageHeader.NUM_VALUES,
        DataPageHeader.ENCODING,
    ),
    PageType.DICTIONARY_PAGE: (
        PageHeader.DICTIONARY_PAGE_HEADER,
        _fields(DictionaryPageHeader.NUM_VALUES, DictionaryPageHeader.ENCODING),
        DictionaryPageHeader.NUM_VALUES,
        DictionaryPageHeader.ENCODING,
    ),
    PageType.DATA_PAGE_V2: (
        PageHeader.DATA_PAGE_HEADER_V2,
        _fields(DataPageHeaderV2.NUM_VALUES, DataPageHeaderV2.REPETITION_LEVELS_BYTE_LENGTH),
        DataPageHeaderV2.NUM_VALUES,
        DataPageHeaderV2.ENCODING,
    ),
}


def reader_of(file: Any) -> ReadAt:
    """Read from an open file of PyArrow's; on disks by `pread`: PyArrow would release Python's lock for a few bytes."""
    if isinstance(file, pa.OSFile):
        return partial(read_at, file.fileno())
    return lambda offset, length: bytes(file.read_at(length, offset))


def metadata_of(entry: thrift.Struct) -> thrift.Struct:
    """The metadata of a column chunk, given its entry in the footer."""
    metadata: thrift.Struct = entry[ColumnChunk.META_DATA][1]
    return metadata


def with_metadata(entry: thrift.Struct, changes: thrift.Struct) -> thrift.Struct:
    """The entry of a column chunk with some fields of its metadata changed."""
    return {**entry, ColumnChunk.META_DATA: (thrift.STRUCT, {**metadata_of(entry), **changes})}


class NotSpliceable(Exception):
    """The column chunks of a file cannot be copied; `args[0]` says why."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk: its entry in the footer, and the bytes of its pages."""

    entry: thrift.Struct
    start: int
    size: int

    @property
    def metadata(self) -> thrift.Struct:
        return metadata_of(self.entry)

    @property
    def uncompressed_size(self) -> int:
        return int(self.metadata[ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE][1])

    @property
    def end(self) -> int:
        return self.start + self.size

    @classmethod
    def of(cls, entry: thrift.Struct) -> Chunk:
        """As readers find it: a chunk begins with its dictionary page, if it has one. Readers ignore `file_offset`."""
        metadata = thrift.field(entry, ColumnChunk.META_DATA, thrift.STRUCT)
        start = thrift.field(metadata, ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64)
        dictionary = thrift.field(metadata, ColumnMetaData.DICTIONARY_PAGE_OFFSET, thrift.I64, default=0)
        start = dictionary if 0 < dictionary < start else start
        return cls(entry, start, thrift.field(metadata, ColumnMetaData.TOTAL_COMPRESSED_SIZE, thrift.I64))


def chunk_entries(footer: thrift.Struct, group: int) -> list[thrift.Struct]:
    """The column chunks of a row group, as the footer has them."""
    return thrift.structs(thrift.structs(footer, FileMetaData.ROW_GROUPS)[group], RowGroup.COLUMNS)


def copyable_chunks(footer: thrift.Struct, end: int, flat: Collection[int]) -> list[list[Chunk]]:
    """The chunks of every row group of a file whose footer begins at `end`; `flat` leaves have one value per row."""
    _check_known(footer, _OF_FILE, "The footer")
    groups = []
    for group in thrift.structs(footer, FileMetaData.ROW_GROUPS):
        _check_known(group, _OF_GROUP, "A row group")
        chunks = [_checked(entry, end) for entry in thrift.structs(group, RowGroup.COLUMNS)]
        rows = thrift.field(group, RowGroup.NUM_ROWS, thrift.I64)
        if any(thrift.field(chunks[leaf].metadata, ColumnMetaData.NUM_VALUES, thrift.I64) != rows for leaf in flat):
            raise NotSpliceable(f"A flat column does not have one value for each of the {rows} rows of its row group")
        groups.append(chunks)
    _check_apart([chunk for chunks in groups for chunk in chunks if chunk.size])
    return groups


def _check_known(struct: thrift.Struct, known: frozenset[int], where: str) -> None:
    if not struct.keys() <= known:
        raise NotSpliceable(f"{where} has fields {sorted(struct.keys() - known)}")


def _checked(entry: thrift.Struct, end: int) -> Chunk:
    _check_known(entry, _OF_COLUMN, "A column chunk")
    chunk = Chunk.of(entry)
    _check_known(chunk.metadata, _OF_CHUNK, "The metadata of a column chunk")
    if not len(MAGIC) <= chunk.start <= chunk.end <= end:
        raise NotSpliceable(f"A column chunk from {chunk.start} to {chunk.end} lies outside of the pages")
    for page in (ColumnMetaData.DICTIONARY_PAGE_OFFSET, ColumnMetaData.INDEX_PAGE_OFFSET):
        at = thrift.field(chunk.metadata, page, thrift.I64, default=0)
        if at > 0 and not chunk.start <= at <= chunk.end:
            raise NotSpliceable(f"A page lies at {at}, outside of its column chunk")
    for offset, length in (OFFSET_INDEX, COLUMN_INDEX):
        if (offset in entry) != (length in entry):
            raise NotSpliceable("A page index has an offset without a length")
        if offset in entry:
            _check_within(thrift.field(entry, offset, thrift.I64), thrift.field(entry, length, thrift.I32), end)
    if ColumnMetaData.BLOOM_FILTER_OFFSET in chunk.metadata:
        length = thrift.field(chunk.metadata, ColumnMetaData.BLOOM_FILTER_LENGTH, thrift.I32, default=0)
        _check_within(thrift.field(chunk.metadata, ColumnMetaData.BLOOM_FILTER_OFFSET, thrift.I64), length, end)
    return chunk


def _check_within(start: int, length: int, end: int) -> None:
    if length < 0 or not len(MAGIC) <= start <= start + length <= end:
        raise NotSpliceable(f"{length} bytes at {start} lie outside of the file")


def _check_apart(chunks: list[Chunk]) -> None:
    chunks.sort(key=lambda chunk: chunk.start)
    for before, after in itertools.pairwise(chunks):
        if after.start < before.end:
            raise NotSpliceable(f"Column chunks overlap at {after.start}")


SeenHeaders = dict[int, tuple[bytes, dict[int, Any]]]
"""For the first page of a chunk, the second one and so on: the last header that was read, raw and decoded."""


def check_pages(read: ReadAt, chunk: Chunk, seen: SeenHeaders | None = None) -> None:
    """Check the page headers of a chunk; `NotSpliceable` unless the pages fill the chunk and hold its values.

    Old writers understate the size of a chunk, and readers pass over a page whose header is damaged. A header with the
    same bytes as one `seen` in another chunk is not decoded again.
    """
    seen = {} if seen is None else seen
    at, end, pages, values, plain = chunk.start, chunk.end, 0, 0, 0
    encodings = thrift.field(chunk.metadata, ColumnMetaData.ENCODINGS, thrift.LIST)[1]
    while at < end:
        header, length = _page_header(read, at, end, seen, pages)
        page_type = header.get(PageHeader.TYPE, -1)
        if page_type not in _PAGES or not header.keys() >= _OF_HEADERS:
            raise NotSpliceable(f"There is no page at {at}")
        number, required, of_values, of_encoding = _PAGES[page_type]
        page = header.get(-number, {})
        if not page.keys() >= required:
            raise NotSpliceable(f"There is no page at {at}")
        is_dictionary = page_type == PageType.DICTIONARY_PAGE
        size, count, encoding = header[PageHeader.COMPRESSED_PAGE_SIZE], page[of_values], page[of_encoding]
        if min(size, count) < 0 or encoding not in (_OF_DICTIONARIES if is_dictionary else encodings):
            raise NotSpliceable(f"A page at {at} has {size} bytes in encoding {encoding}")
        pages, values = pages + 1, values + (0 if is_dictionary else count)
        plain += length + header[PageHeader.UNCOMPRESSED_PAGE_SIZE]
        at += length + size
    promised_values = thrift.field(chunk.metadata, ColumnMetaData.NUM_VALUES, thrift.I64)
    promised_bytes = thrift.field(chunk.metadata, ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, thrift.I64)
    if at != end or (values, plain) != (promised_values, promised_bytes):
        raise NotSpliceable(f"Pages with {values} values in {plain} bytes end at {at}, and their chunk at {end}")


def dictionary_size(read: ReadAt, chunk: Chunk) -> int:
    """The number of values in the dictionary of a chunk; 0 if it has none."""
    if chunk.size <= 0 or chunk.start < 0:
        return 0
    header, _ = thrift.numbers_at(read(chunk.start, min(_HEADER, chunk.size)), 0) or ({}, 0)
    if header.get(PageHeader.TYPE) != PageType.DICTIONARY_PAGE:
        return 0
    page = header.get(-PageHeader.DICTIONARY_PAGE_HEADER, {})
    return max(0, int(page.get(DictionaryPageHeader.NUM_VALUES, 0)))


def _page_header(read: ReadAt, at: int, end: int, seen: SeenHeaders, order: int) -> tuple[dict[int, Any], int]:
    """A page header, as of `thrift.numbers_at`, and its length."""
    for size in (_HEADER, _LONGEST_HEADER):
        data = read(at, min(size, end - at))
        if order in seen and data.startswith(seen[order][0]):
            return seen[order][1], len(seen[order][0])
        header = thrift.numbers_at(data, 0)
        if header is not None:
            seen[order] = data[: header[1]], header[0]
            return header
    raise NotSpliceable(f"A Thrift struct at {at} does not end")


def read_struct(read: ReadAt, at: int, end: int) -> tuple[thrift.Struct, int]:
    """Read a Thrift struct at an offset, such as a page header. Returns also where it ends."""
    for size in (_HEADER, _LONGEST_HEADER):
        decoded = thrift.decode_at(read(at, min(size, end - at)), 0)
        if decoded is not None:
            return decoded[0], at + decoded[1]
    raise NotSpliceable(f"A Thrift struct at {at} does not end")
