"""A column chunk opened page by page, and put together again with other bytes in some of its pages.

Only of flat columns without nulls, and of codecs that tell how long their data are. What is not plainly of this kind is
`Unknown`, which is no damage: PyArrow reads it, and tells of damage where there is any.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.cached import cached_property
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.spans import Chunk, Page, ReadAt

# Field numbers of PageHeader and of the headers of data pages, ColumnMetaData and Statistics
_PAGE_TYPE, _PLAIN_SIZE, _COMPRESSED_SIZE, _CHECKSUM = 1, 2, 3, 4
_LEVELS_ENCODING, _REPETITIONS_ENCODING = 3, 4
_PAGE_NULLS, _PAGE_ROWS, _LEVELS_SIZE, _REPETITIONS_SIZE, _IS_COMPRESSED = 2, 3, 5, 6, 7
TYPE, _CODEC, STATISTICS, _ENCODING_STATS, _SIZES = 1, 4, 12, 13, 16
NULLS, _TEXT_BYTES = 3, 1
PLAIN, _RLE, _BIT_PACKED, _UNSIGNED = 0, 3, 4, 0xFFFFFFFF
_OF_LEVELS = {_RLE, _BIT_PACKED}
# Fields that the headers of data pages of either version have to have.
_NUMBERS = range(1, 5)
# By physical type, the bytes of a value; text has its length before it.
WIDTHS, TEXT, FLAG = {1: 4, 2: 8, 4: 4, 5: 8}, 6, 0
# Codecs whose data tell how long they are when decompressed: PyArrow leaves open what they do not fill.
_PLAINLY, _SNAPPY, _GZIP, _ZSTD = 0, 1, 2, 6
_CODECS = {_PLAINLY: None, _SNAPPY: "snappy", _GZIP: "gzip", _ZSTD: "zstd"}
# A chunk that stands nowhere yet is said to begin here: an offset of 0 would mean that there is none.
_BEGIN = 4
# Chunks of up to this size are read at once.
_AT_ONCE = 1 << 20

Bytes = bytes | memoryview | pa.Buffer


class Unknown(Exception):
    """A column is not of the kind that is understood here."""


# What odd or damaged pages may raise; whoever reads them in another way will tell.
_NOT_UNDERSTOOD = (spans.CannotCopy, pa.ArrowException, OSError, ValueError, LookupError)


@dataclass(frozen=True, slots=True)
class PatchedChunk:
    """The bytes of a column chunk in which some rows were changed, in pieces, and its entry in a footer; so many of the
    bytes were copied."""

    pieces: list[Bytes]
    chunk: Chunk
    copied: int


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page to put into a chunk: its header and what follows it, the size of that when decompressed; its type and
    encoding."""

    pieces: tuple[Bytes, ...]
    plain_size: int
    kind: tuple[int, int]
    is_copy: bool = False


def may_be_opened(chunk: Chunk, dtype: pa.DataType) -> bool:
    """May pages of a chunk be opened and changed, as far as the footer tells?

    Values of the type have to be the same in memory as in pages. Page indexes tell of single pages, and a bloom filter
    lies elsewhere.
    """
    metadata = chunk.metadata
    if not _is_same_in_pages(dtype, metadata[TYPE][1]) or metadata[_CODEC][1] not in _CODECS:
        return False
    if not {*spans.OFFSET_INDEX, *spans.COLUMN_INDEX}.isdisjoint(chunk.entry):
        return False
    if not {spans.BLOOM_FILTER, spans.INDEX_PAGE}.isdisjoint(metadata):
        return False
    statistics = metadata[STATISTICS][1] if STATISTICS in metadata else {}
    return not statistics.get(NULLS, (thrift.I64, 0))[1]


def _is_same_in_pages(dtype: pa.DataType, physical: int) -> bool:
    if t.is_boolean(dtype):
        return physical == FLAG
    if t.is_string(dtype) or t.is_binary(dtype):
        return physical == TEXT
    is_number = t.is_integer(dtype) or t.is_float32(dtype) or t.is_float64(dtype)
    is_time = t.is_timestamp(dtype) or t.is_date32(dtype)
    return bool((is_number or is_time) and WIDTHS.get(physical, 0) * 8 == dtype.bit_width)


@contextlib.contextmanager
def opened(read: ReadAt, chunk: Chunk, values: pa.Array, *, optional: bool) -> Iterator[ChunkPages]:
    """The pages of a flat column, for values that are to be put into it; whatever goes wrong with them is `Unknown`."""
    if values.null_count:
        raise Unknown
    try:
        if chunk.size <= _AT_ONCE:
            read = partial(_part_of, read(chunk.start, chunk.size), chunk.start)
        yield ChunkPages(read, chunk, spans.pages_of(read, chunk), optional)
    except _NOT_UNDERSTOOD as why:
        raise Unknown from why


@dataclass(frozen=True)
class ChunkPages:
    """The pages of a chunk; the column is `optional` if it may hold nulls."""

    read: ReadAt
    chunk: Chunk
    pages: list[Page]
    optional: bool

    @property
    def physical(self) -> int:
        return int(self.chunk.metadata[TYPE][1])

    def open(self, page: Page) -> tuple[bytes, bytes, int]:
        """Of a page that has a value for every row: the levels that stand apart, what is decompressed, and where in it
        the values begin. Pages of the first version have their levels compressed together with the values."""
        levels = _all_present(page.values) if self.optional else b""
        if any(isinstance(page.own[number], bool) for number in _NUMBERS):  # one bit makes a number one
            raise Unknown
        if page.is_second_version:
            told = [page.own[number] for number in (_PAGE_NULLS, _PAGE_ROWS, _LEVELS_SIZE, _REPETITIONS_SIZE)]
            if told != [0, page.values, len(levels), 0] or self.read(page.begin, len(levels)) != levels:
                raise Unknown
            return levels, self.decompressed(page, len(levels)), 0
        body = self.decompressed(page)
        inside = len(levels).to_bytes(4, "little") + levels if self.optional else b""
        if not body.startswith(inside) or page.own[_REPETITIONS_ENCODING] not in _OF_LEVELS:
            raise Unknown
        if page.own[_LEVELS_ENCODING] not in (_OF_LEVELS if not self.optional else {_RLE}):
            raise Unknown
        return b"", body, len(inside)

    def decompressed(self, page: Page, behind: int = 0) -> bytes:
        """What is stored of a page, behind its first bytes. Its checksum has to be right, if it has one."""
        whole = self.read(page.begin, page.end - page.begin)
        if page.checksum is not None and zlib.crc32(whole) != page.checksum & _UNSIGNED:
            raise Unknown
        stored, size, codec = whole[behind:], page.plain_size - behind, self._codec_of(page)
        if (
            size < 0
            or (len(stored) if codec is None else decompressed_size(stored, self.chunk.metadata[_CODEC][1])) != size
        ):
            raise Unknown
        return stored if codec is None else bytes(codec.decompress(stored, size, asbytes=True))

    def _codec_of(self, page: Page) -> pa.Codec | None:
        """A page of the second version may do without."""
        return self._codec if page.own.get(_IS_COMPRESSED, True) else None

    @cached_property
    def _codec(self) -> pa.Codec | None:
        name = _CODECS[self.chunk.metadata[_CODEC][1]]
        return None if name is None else pa.Codec(name)

    # -- pages for the new chunk

    def kept(self, page: Page) -> NewPage:
        """A page as it is."""
        whole = self.read(page.at, page.end - page.at)
        return NewPage((whole,), page.begin - page.at + page.plain_size, _kind(page), is_copy=True)

    def changed(self, page: Page, levels: bytes, body: bytes | memoryview, encoding: int) -> NewPage:
        """A page with another body: its header, without statistics, and what follows it."""
        codec = self._codec_of(page)
        stored = body if codec is None else codec.compress(body)
        header = {number: value for number, value in page.header.items() if number > 0}
        header[_PLAIN_SIZE], header[_COMPRESSED_SIZE] = len(levels) + len(body), len(levels) + len(stored)
        if page.checksum is not None:
            checksum = zlib.crc32(stored, zlib.crc32(levels))
            header[_CHECKSUM] = checksum - (_UNSIGNED + 1 if checksum > _UNSIGNED // 2 else 0)
        own = {number: value for number, value in page.own.items() if number > 0}
        own[page.encoding_field] = encoding
        written = thrift.of_numbers({**header, -page.own_field: own})
        plain_size = len(written) + len(levels) + len(body)
        return NewPage((written, levels, stored), plain_size, (page.header[_PAGE_TYPE], encoding))

    def put_together(self, pages: Iterable[NewPage], changes: thrift.Struct, text_bytes: int = 0) -> PatchedChunk:
        """The chunk of these pages, with these changes of its metadata; its text has some bytes more than before."""
        pages = list(pages)
        pieces = [piece for page in pages for piece in page.pieces]
        sizes = [sum(map(len, page.pieces)) for page in pages]
        before_data = sum(size for size, page in zip(sizes, pages, strict=True) if page.kind[0] == spans.DICTIONARY)
        metadata = {
            **self.chunk.metadata,
            **changes,
            spans.COMPRESSED: (thrift.I64, sum(sizes)),
            spans.UNCOMPRESSED: (thrift.I64, sum(page.plain_size for page in pages)),
            spans.DATA_PAGE: (thrift.I64, _BEGIN + before_data),
        }
        metadata.pop(spans.DICTIONARY_PAGE, None)
        if before_data:
            metadata[spans.DICTIONARY_PAGE] = thrift.I64, _BEGIN
        if _SIZES in metadata and _TEXT_BYTES in metadata[_SIZES][1]:
            told = metadata[_SIZES][1]
            grown = thrift.I64, thrift.field(told, _TEXT_BYTES, thrift.I64) + text_bytes
            metadata[_SIZES] = thrift.STRUCT, {**told, _TEXT_BYTES: grown}
        entry = {**self.chunk.entry, spans.META_DATA: (thrift.STRUCT, metadata)}
        copied = sum(size for size, page in zip(sizes, pages, strict=True) if page.is_copy)
        return PatchedChunk(pieces, Chunk(entry, _BEGIN, sum(sizes)), copied)

    def encodings_of(self, pages: Iterable[NewPage]) -> thrift.Struct:
        """What the metadata say of how pages are encoded."""
        counted = Counter(page.kind for page in pages)
        told = {encoding for _, encoding in counted} | {_RLE}
        changes: thrift.Struct = {spans.ENCODINGS: (thrift.LIST, (thrift.I32, sorted(told)))}
        if _ENCODING_STATS in self.chunk.metadata:
            stats = [
                {number: (thrift.I32, value) for number, value in enumerate((*kind, count), 1)}
                for kind, count in sorted(counted.items())
            ]
            changes[_ENCODING_STATS] = thrift.LIST, (thrift.STRUCT, stats)
        return changes


def _kind(page: Page) -> tuple[int, int]:
    return page.header[_PAGE_TYPE], page.encoding


def _part_of(data: bytes, start: int, offset: int, length: int) -> bytes:
    return data[offset - start : offset - start + length]


def decompressed_size(data: bytes, codec: int) -> int:
    """What compressed data say of themselves; -1 if they do not."""
    if codec == _SNAPPY:
        return thrift.varint_at(data, 0)[0]
    if codec == _GZIP:
        return int.from_bytes(data[-4:], "little")
    flags = data[4]  # behind zstd's magic number: which fields follow
    single = flags >> 5 & 1
    begin, size = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6]
    return int.from_bytes(data[begin : begin + size], "little") + (256 if size == 2 else 0) if size else -1


@lru_cache(maxsize=64)
def _all_present(count: int) -> bytes:
    """The definition levels of values none of which is null, as writers have them: one run."""
    header = thrift.of_numbers({1: count})[1:-1]  # twice the count, as a number of seven bits a byte
    return header + b"\1"
