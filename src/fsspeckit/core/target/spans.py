"""Where the column chunks of a file lie, for those who copy their bytes without reading them.

A reader finds out by itself when a footer's offsets and sizes are wrong; a copy does not. So chunks are only taken as
they are if they lie within the file, apart from each other, and consist of pages that fill them and hold the values
that the footer promises. Everything else is `CannotCopy`, which is no damage: a reader may still make sense of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from fsspeckit.core.storage.end import read_at
from fsspeckit.core.target import thrift

ReadAt = Callable[[int, int], bytes]
"""Bytes of a file, by offset and length; fewer at its end."""

# Field numbers in parquet.thrift: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData
ROW_GROUPS, COLUMNS, ROWS = 4, 1, 3
FILE_OFFSET, META_DATA = 2, 3
OFFSET_INDEX, COLUMN_INDEX = (4, 5), (6, 7)
ENCODINGS, VALUES, UNCOMPRESSED, COMPRESSED = 2, 5, 6, 7
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = 9, 10, 11
BLOOM_FILTER, BLOOM_LENGTH = 14, 15

# What is known of these structs, without encryption and files apart. A field that came later may hold an offset.
_OF_FILE, _OF_GROUP, _OF_COLUMN, _OF_CHUNK = (frozenset(r) for r in (range(1, 8), range(1, 8), range(2, 8), range(18)))
_MAGIC = 4
# Headers of pages are short; one with long bounds in it is read again.
_HEADER, _LONGEST_HEADER = 256, 16 << 20
# By type: the field of the page's own header, the fields it must have, the first being the number of values, and
# which of these is the encoding. An index page is of no known use.
DICTIONARY, _OF_DICTIONARIES, _SECOND_VERSION = 2, (0, 2), 3
_OF_HEADERS = frozenset({1, 2, 3})
_PAGES = {
    0: (5, frozenset(range(1, 5)), 2),
    DICTIONARY: (7, frozenset((1, 2)), 2),
    _SECOND_VERSION: (8, frozenset(range(1, 7)), 4),
}
_NO_PAGE = (0, frozenset((1,)), 0)


def reader_of(file: Any) -> ReadAt:
    """Of an open file of PyArrow's. On disks by the system's own call: for a few bytes, a thread would have to wait for
    Python's lock twice."""
    if isinstance(file, pa.OSFile):
        return partial(read_at, file.fileno())
    return lambda offset, length: bytes(file.read_at(length, offset))


class CannotCopy(Exception):
    """The bytes of a file are not where its footer lets us copy them from; `args[0]` says why."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk: its entry in the footer, and the bytes of its pages."""

    entry: thrift.Struct
    start: int
    size: int

    @property
    def metadata(self) -> thrift.Struct:
        metadata: thrift.Struct = self.entry[META_DATA][1]
        return metadata

    @property
    def end(self) -> int:
        return self.start + self.size

    @classmethod
    def of(cls, entry: thrift.Struct) -> Chunk:
        """As readers find it: pages begin with the dictionary, where there is one. `file_offset` may say anything."""
        metadata = thrift.field(entry, META_DATA, thrift.STRUCT)
        start = thrift.field(metadata, DATA_PAGE, thrift.I64)
        if DICTIONARY_PAGE in metadata and 0 < thrift.field(metadata, DICTIONARY_PAGE, thrift.I64) < start:
            start = metadata[DICTIONARY_PAGE][1]
        return cls(entry, start, thrift.field(metadata, COMPRESSED, thrift.I64))


def copyable_chunks(footer: thrift.Struct, end: int, flat: Collection[int]) -> list[list[Chunk]]:
    """The chunks of every row group of a file whose footer begins at `end`; `flat` leaves have a value a row."""
    _check_known(footer, _OF_FILE, "The footer")
    groups = []
    for group in thrift.structs(footer, ROW_GROUPS):
        _check_known(group, _OF_GROUP, "A row group")
        chunks = [_checked(entry, end) for entry in thrift.structs(group, COLUMNS)]
        rows = thrift.field(group, ROWS, thrift.I64)
        if any(thrift.field(chunks[leaf].metadata, VALUES, thrift.I64) != rows for leaf in flat):
            raise CannotCopy(f"A flat column has another number of values than the {rows} of its row group")
        groups.append(chunks)
    _check_apart([chunk for chunks in groups for chunk in chunks if chunk.size])
    return groups


def _check_known(struct: thrift.Struct, known: frozenset[int], where: str) -> None:
    if not struct.keys() <= known:
        raise CannotCopy(f"{where} has fields {sorted(struct.keys() - known)}")


def _checked(entry: thrift.Struct, end: int) -> Chunk:
    _check_known(entry, _OF_COLUMN, "A column chunk")
    chunk = Chunk.of(entry)
    _check_known(chunk.metadata, _OF_CHUNK, "The metadata of a column chunk")
    if not _MAGIC <= chunk.start <= chunk.end <= end:
        raise CannotCopy(f"A column chunk from {chunk.start} to {chunk.end} lies outside of the pages")
    for page in (DICTIONARY_PAGE, INDEX_PAGE):
        at = thrift.field(chunk.metadata, page, thrift.I64) if page in chunk.metadata else 0
        if at > 0 and not chunk.start <= at <= chunk.end:
            raise CannotCopy(f"A page lies at {at}, outside of its column chunk")
    for offset, length in (OFFSET_INDEX, COLUMN_INDEX):
        if (offset in entry) != (length in entry):
            raise CannotCopy("A page index has an offset without a length")
        if offset in entry:
            _check_within(thrift.field(entry, offset, thrift.I64), thrift.field(entry, length, thrift.I32), end)
    if BLOOM_FILTER in chunk.metadata:
        length = thrift.field(chunk.metadata, BLOOM_LENGTH, thrift.I32) if BLOOM_LENGTH in chunk.metadata else 0
        _check_within(thrift.field(chunk.metadata, BLOOM_FILTER, thrift.I64), length, end)
    return chunk


def _check_within(start: int, length: int, end: int) -> None:
    if length < 0 or not _MAGIC <= start <= start + length <= end:
        raise CannotCopy(f"{length} bytes at {start} lie outside of the file")


def _check_apart(chunks: list[Chunk]) -> None:
    chunks.sort(key=lambda chunk: chunk.start)
    for before, after in itertools.pairwise(chunks):
        if after.start < before.end:
            raise CannotCopy(f"Column chunks overlap at {after.start}")


SeenHeaders = dict[int, tuple[bytes, dict[int, Any]]]
"""Of the first page of chunks, the second one and so on: the last header, and the numbers in it."""


class Page(NamedTuple):
    """A page of a chunk: the numbers in its header, where that begins, and where what follows it begins and ends."""

    header: dict[int, Any]
    own: dict[int, Any]
    own_field: int
    encoding: int
    at: int
    begin: int
    end: int

    @property
    def is_dictionary(self) -> bool:
        return bool(self.header[1] == DICTIONARY)

    @property
    def encoding_field(self) -> int:
        """The number of the field that tells the encoding, in the page's own header."""
        return _PAGES[self.header[1]][2]

    @property
    def is_second_version(self) -> bool:
        return bool(self.header[1] == _SECOND_VERSION)

    @property
    def values(self) -> int:
        return int(self.own[1])

    @property
    def plain_size(self) -> int:
        """How many bytes follow the header when they are decompressed."""
        return int(self.header[2])

    @property
    def checksum(self) -> int | None:
        return self.header.get(4)


def pages_of(read: ReadAt, chunk: Chunk, seen: SeenHeaders | None = None) -> list[Page]:
    """The pages of a chunk, by their headers alone; `CannotCopy` unless they fill the chunk and hold its values.

    Old writers understate the size of a chunk; and a page whose header is damaged is passed over by readers. What was
    `seen` in other chunks is not read again where it is the same byte for byte.
    """
    seen = {} if seen is None else seen
    at, end, values, plain = chunk.start, chunk.end, 0, 0
    pages: list[Page] = []
    encodings = thrift.field(chunk.metadata, ENCODINGS, thrift.LIST)[1]
    while at < end:
        header, length = _page_header(read, at, end, seen, len(pages))
        own, required, encoding = _PAGES.get(header.get(1, -1), _NO_PAGE)
        page = header.get(-own, {})
        if not header.keys() >= _OF_HEADERS or not page.keys() >= required:
            raise CannotCopy(f"What begins at {at} is no page")
        is_dictionary = header[1] == DICTIONARY
        if min(header[3], page[1]) < 0 or page[encoding] not in (_OF_DICTIONARIES if is_dictionary else encodings):
            raise CannotCopy(f"A page at {at} has {header[3]} bytes in encoding {page[encoding]}")
        values, plain = values + (0 if is_dictionary else page[1]), plain + length + header[2]
        pages.append(Page(header, page, own, page[encoding], at, at + length, at + length + header[3]))
        at += length + header[3]
    promised = [thrift.field(chunk.metadata, number, thrift.I64) for number in (VALUES, UNCOMPRESSED)]
    if at != end or [values, plain] != promised:
        raise CannotCopy(f"Pages with {values} values in {plain} bytes end at {at}, and their chunk at {end}")
    return pages


def dictionary_size(read: ReadAt, chunk: Chunk) -> int:
    """How many values the dictionary of a chunk has; 0 if it does not begin with one."""
    header = (
        thrift.numbers_at(read(chunk.start, min(_HEADER, chunk.size)), 0) if chunk.size > 0 <= chunk.start else None
    )
    page = header[0].get(-_PAGES[DICTIONARY][0], {}) if header and header[0].get(1) == DICTIONARY else {}
    return max(0, int(page.get(1, 0)))


def _page_header(read: ReadAt, at: int, end: int, seen: SeenHeaders, order: int) -> tuple[dict[int, Any], int]:
    """The numbers in a page's header, and its length."""
    for size in (_HEADER, _LONGEST_HEADER):
        data = read(at, min(size, end - at))
        if order in seen and data.startswith(seen[order][0]):
            return seen[order][1], len(seen[order][0])
        header = thrift.numbers_at(data, 0)
        if header is not None:
            seen[order] = data[: header[1]], header[0]
            return header
    raise CannotCopy(f"What begins at {at} does not end")


def read_struct(read: ReadAt, at: int, end: int) -> tuple[thrift.Struct, int]:
    """A struct that stands alone in the file, and where it ends."""
    for size in (_HEADER, _LONGEST_HEADER):
        decoded = thrift.decode_at(read(at, min(size, end - at)), 0)
        if decoded is not None:
            return decoded[0], at + decoded[1]
    raise CannotCopy(f"What begins at {at} does not end")
