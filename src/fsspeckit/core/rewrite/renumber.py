"""Some rows of a column changed within its pages, where the column's dictionary has the new values already.

Then only numbers of values change, and nothing has to be decoded, looked up or encoded: of 200,000 rows in which 2,000
change that takes a third of the time. It is done if the column still has all the values that it had, and no others: so
its dictionary and its statistics are true of it as they are, and nothing that was overwritten stays in the file. Flags
are such numbers by themselves.

The column was read before, to be compared: so it is PyArrow that tells of damaged pages. What is not plainly of this
kind is encoded by PyArrow, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from fsspeckit.core.rewrite.encodings import DICTIONARY, data_encodings
from fsspeckit.core.rewrite.packed import Packed, PackedPages
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.spans import Chunk, Page, ReadAt

# Field numbers of PageHeader and of the headers of data pages, ColumnMetaData, Statistics, SizeStatistics
_LEVELS_ENCODING = 3
_LEVELS_SIZE, _REPETITIONS_SIZE, _IS_COMPRESSED = 5, 6, 7
_TYPE, _CODEC, _STATISTICS, _SIZES = 1, 4, 12, 16
_NULLS, _TEXT_BYTES = 3, 1
_COMPRESSED_SIZE, _CHECKSUM = 3, 4
_PLAIN, _RLE, _UNSIGNED = 0, 3, 0xFFFFFFFF
# By physical type, the bytes of a value; text has its length before it.
_WIDTHS, _TEXT, _FLAG = {1: 4, 2: 8, 4: 4, 5: 8}, 6, 0
# Codecs whose data tell how long they are when decompressed: PyArrow leaves open what they do not fill.
_PLAINLY, _SNAPPY, _GZIP, _ZSTD = 0, 1, 2, 6
_CODECS = {_PLAINLY: None, _SNAPPY: "snappy", _GZIP: "gzip", _ZSTD: "zstd"}
# Rows for each value of a dictionary, below which some value will hardly stay.
_ROWS_PER_VALUE = 16
# A chunk that stands nowhere yet is said to begin here: an offset of 0 would mean that there is none.
_BEGIN = 4
# Chunks of up to this size are read at once. Of text it is not known how long it is.
_AT_ONCE, _LARGEST = 1 << 20, 1 << 62


@dataclass(frozen=True, slots=True)
class PatchedChunk:
    """The bytes of a column chunk in which some rows were changed, in pieces, and its entry in a footer."""

    pieces: list[bytes]
    chunk: Chunk


class _Unknown(Exception):
    """A column is not of the kind that is understood here."""


def goes_by_numbers(chunk: Chunk, dtype: pa.DataType) -> bool:
    """May a chunk consist of a small dictionary and numbers of its values, without nulls, as far as the footer tells?

    Values of the type have to be the same in memory as in pages. Page indexes tell of single pages, and a bloom filter
    lies elsewhere.
    """
    metadata = chunk.metadata
    physical = metadata[_TYPE][1]
    if not _is_same_in_pages(dtype, physical) or metadata[_CODEC][1] not in _CODECS:
        return False
    if not {*spans.OFFSET_INDEX, *spans.COLUMN_INDEX}.isdisjoint(chunk.entry):
        return False
    if not {spans.BLOOM_FILTER, spans.INDEX_PAGE}.isdisjoint(metadata):
        return False
    dictionary = metadata.get(spans.DICTIONARY_PAGE, (thrift.I64, 0))[1]
    if dictionary != (0 if physical == _FLAG else chunk.start):
        return False
    if physical != _FLAG and not _encodings(metadata) <= DICTIONARY:
        return False
    statistics = metadata[_STATISTICS][1] if _STATISTICS in metadata else {}
    return not statistics.get(_NULLS, (thrift.I64, 0))[1]


def _encodings(metadata: thrift.Struct) -> set[int]:
    try:
        return data_encodings(metadata)
    except thrift.Damaged:  # who reads the file will tell
        return {_PLAIN}


def small_chunks(chunks: Mapping[str, Chunk], rows: int) -> set[str]:
    """The columns that are small enough to have a small dictionary: a quick look, for files of hundreds of columns."""
    dictionary = rows // _ROWS_PER_VALUE
    others = rows * dictionary.bit_length() // 8 + rows // 8 + 1024  # the numbers, and the headers of pages
    limits = {physical: dictionary * width + others for physical, width in _WIDTHS.items()}
    return {
        name
        for name, chunk in chunks.items()
        if (metadata := chunk.metadata)[spans.UNCOMPRESSED][1] <= limits.get(metadata[_TYPE][1], _LARGEST)
    }


def _is_same_in_pages(dtype: pa.DataType, physical: int) -> bool:
    if t.is_boolean(dtype):
        return physical == _FLAG
    if t.is_string(dtype) or t.is_binary(dtype):
        return physical == _TEXT
    is_number = t.is_integer(dtype) or t.is_float32(dtype) or t.is_float64(dtype)
    is_time = t.is_timestamp(dtype) or t.is_date32(dtype)
    return bool((is_number or is_time) and _WIDTHS.get(physical, 0) * 8 == dtype.bit_width)


def renumbered(read: ReadAt, chunk: Chunk, positions: Any, values: pa.Array, *, optional: bool) -> PatchedChunk | None:
    """The chunk with these values at ascending positions; `None` if that takes more than other numbers.

    The column is flat, and `optional` if it may hold nulls."""
    if values.null_count:
        return None
    try:
        if chunk.size <= _AT_ONCE:
            read = partial(_part_of, read(chunk.start, chunk.size), chunk.start)
        return _Column(read, chunk, spans.pages_of(read, chunk), optional).with_values(positions, values)
    except (_Unknown, spans.CannotCopy, pa.ArrowException, OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class _OpenPage:
    """A data page: the numbers in its decompressed body, and the levels that stand before that."""

    page: Page
    levels: bytes
    numbers: Packed


@dataclass(frozen=True)
class _Column:
    read: ReadAt
    chunk: Chunk
    pages: list[Page]
    optional: bool

    def with_values(self, positions: Any, values: pa.Array) -> PatchedChunk:
        if self._distinct * _ROWS_PER_VALUE > sum(page.values for page in self._data_pages):
            raise _Unknown
        new = self._numbers_of(values)
        opened = [self._open(page) for page in self._data_pages]
        numbers = PackedPages([page.numbers for page in opened])
        places = numbers.places(positions)
        old = numbers.at(places)
        if (new > places.masks).any():
            raise _Unknown
        self._check_all_stay(opened, np.split(positions, np.searchsorted(positions, numbers.firsts[1:-1])), old, new)
        bodies = numbers.replaced(places, old, new)
        pages = [self._stored(page, body) for page, body in zip(opened, bodies, strict=True)]
        return self._put_together(pages, old, new)

    @property
    def _is_flag(self) -> bool:
        return bool(self.chunk.metadata[_TYPE][1] == _FLAG)

    @property
    def _is_text(self) -> bool:
        return bool(self.chunk.metadata[_TYPE][1] == _TEXT)

    @cached_property
    def _data_pages(self) -> list[Page]:
        """All pages but the dictionary, which is the first one; all of them hold numbers."""
        first = 0 if self._is_flag else 1
        data_pages, encodings = self.pages[first:], {_PLAIN} if self._is_flag else DICTIONARY
        if not all(page.is_dictionary for page in self.pages[:first]) or not data_pages:
            raise _Unknown
        if any(page.is_dictionary or page.encoding not in encodings for page in data_pages):
            raise _Unknown
        return data_pages

    @property
    def _distinct(self) -> int:
        return 2 if self._is_flag else self.pages[0].values

    def _numbers_of(self, values: pa.Array) -> Any:
        if self._is_flag:
            return values.cast(pa.uint32()).to_numpy()
        if self._is_text:
            values, dictionary = values.cast(pa.binary()), pa.array(self._dictionary)
        else:
            dictionary = pa.array(self._dictionary)
            values = values.view(dictionary.type)
        numbers = pc.index_in(values, dictionary)
        if numbers.null_count:
            raise _Unknown
        return numbers.to_numpy().astype(np.uint32)

    @cached_property
    def _dictionary(self) -> Any:
        """Text, or the bits of numbers."""
        page = self.pages[0]
        data = self._decompressed(page, page.begin, page.plain_size)
        if not self._is_text:
            return np.frombuffer(data, f"u{_WIDTHS[self.chunk.metadata[_TYPE][1]]}", page.values)
        texts, at = [], 0
        for _ in range(page.values):
            begin = at + 4
            at = begin + int.from_bytes(data[at:begin], "little")
            texts.append(data[begin:at])
        if at > len(data):
            raise _Unknown
        return texts

    # -- pages

    def _open(self, page: Page) -> _OpenPage:
        levels, body, at = self._parts(page)
        if self._is_flag:
            numbers = Packed.one_run(body, at, 1, page.values)
        else:
            numbers = Packed.of(body, at + 1, body[at], page.values)
        if numbers is None:
            raise _Unknown
        return _OpenPage(page, levels, numbers)

    def _parts(self, page: Page) -> tuple[bytes, bytes, int]:
        """Of a page that has a value for every row: the levels that stand apart, what is decompressed, and where in it
        the values begin. Pages of the first version have their levels compressed together with the values."""
        levels = _all_present(page.values) if self.optional else b""
        if page.is_second_version:
            sizes = page.own[_LEVELS_SIZE], page.own[_REPETITIONS_SIZE]
            if sizes != (len(levels), 0) or self.read(page.begin, len(levels)) != levels:
                raise _Unknown
            return levels, self._decompressed(page, page.begin + len(levels), page.plain_size - len(levels)), 0
        body = self._decompressed(page, page.begin, page.plain_size)
        inside = len(levels).to_bytes(4, "little") + levels if self.optional else b""
        if not body.startswith(inside) or (self.optional and page.own[_LEVELS_ENCODING] != _RLE):
            raise _Unknown
        return b"", body, len(inside)

    def _decompressed(self, page: Page, begin: int, size: int) -> bytes:
        """What is stored of a page from a byte on. Its checksum has to be right, if it has one."""
        stored = self.read(begin, page.end - begin)
        if page.checksum is not None:
            whole = self.read(page.begin, begin - page.begin) + stored
            if zlib.crc32(whole) != page.checksum & _UNSIGNED:
                raise _Unknown
        codec = self._codec_of(page)
        if (len(stored) if codec is None else _decompressed_size(stored, self.chunk.metadata[_CODEC][1])) != size:
            raise _Unknown
        return stored if codec is None else bytes(codec.decompress(stored, size, asbytes=True))

    def _codec_of(self, page: Page) -> pa.Codec | None:
        """A page of the second version may do without."""
        return self._codec if page.own.get(_IS_COMPRESSED, True) else None

    @cached_property
    def _codec(self) -> pa.Codec | None:
        name = _CODECS[self.chunk.metadata[_CODEC][1]]
        return None if name is None else pa.Codec(name)

    def _stored(self, opened: _OpenPage, body: bytes) -> tuple[bytes, bytes]:
        """A page with other numbers: its header, without statistics, and what follows it."""
        page, codec = opened.page, self._codec_of(opened.page)
        stored = opened.levels + (body if codec is None else bytes(codec.compress(body, asbytes=True)))
        header = {number: value for number, value in page.header.items() if number > 0}
        header[_COMPRESSED_SIZE] = len(stored)
        if page.checksum is not None:
            checksum = zlib.crc32(stored)
            header[_CHECKSUM] = checksum - (_UNSIGNED + 1 if checksum > _UNSIGNED // 2 else 0)
        own = {number: value for number, value in page.own.items() if number > 0}
        fields = {**_fields(header), page.own_field: (thrift.STRUCT, _fields(own))}
        return thrift.encode(fields), stored

    # -- the chunk

    def _check_all_stay(self, opened: list[_OpenPage], positions: list[Any], old: Any, new: Any) -> None:
        """Every value that comes or goes has to be in a row that does not change. Few pages tell, as a rule."""
        nobody, first = self._distinct, 0
        sought = np.zeros(nobody + 1, dtype=bool)
        sought[old] = sought[new] = True
        for page, changed in zip(opened, positions, strict=True):
            others = page.numbers.every()
            others[changed - first] = nobody
            sought[others] = False
            if not sought[:nobody].any():
                return
            first += page.numbers.count
        raise _Unknown

    def _put_together(self, pages: list[tuple[bytes, bytes]], old: Any, new: Any) -> PatchedChunk:
        """The dictionary as it was, and the data pages."""
        data_pages = self._data_pages
        dictionary = self.read(self.chunk.start, data_pages[0].at - self.chunk.start)
        kept = sum(page.begin - page.at + page.plain_size for page in self.pages if page.is_dictionary)
        pieces = [dictionary, *(part for page in pages for part in page)]
        size = sum(map(len, pieces))
        plain = sum(len(header) + page.plain_size for (header, _), page in zip(pages, data_pages, strict=True))
        metadata = {
            **self.chunk.metadata,
            spans.COMPRESSED: (thrift.I64, size),
            spans.UNCOMPRESSED: (thrift.I64, kept + plain),
            spans.DATA_PAGE: (thrift.I64, _BEGIN + len(dictionary)),
        }
        if dictionary:
            metadata[spans.DICTIONARY_PAGE] = thrift.I64, _BEGIN
        if _SIZES in metadata and _TEXT_BYTES in metadata[_SIZES][1]:
            sizes, lengths = metadata[_SIZES][1], np.array([len(text) for text in self._dictionary])
            gained = int(lengths[new].sum() - lengths[old].sum())
            text_bytes = thrift.I64, thrift.field(sizes, _TEXT_BYTES, thrift.I64) + gained
            metadata[_SIZES] = thrift.STRUCT, {**sizes, _TEXT_BYTES: text_bytes}
        entry = {**self.chunk.entry, spans.META_DATA: (thrift.STRUCT, metadata)}
        return PatchedChunk(pieces, Chunk(entry, _BEGIN, size))


def _part_of(data: bytes, start: int, offset: int, length: int) -> bytes:
    return data[offset - start : offset - start + length]


def _decompressed_size(data: bytes, codec: int) -> int:
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
    header = thrift.encode({1: (thrift.I32, count)})[1:-1]  # twice the count, as a number of seven bits a byte
    return header + b"\1"


def _fields(numbers: Mapping[int, int | bool]) -> thrift.Struct:
    return {
        number: (thrift.TRUE if value else thrift.FALSE, None) if isinstance(value, bool) else (thrift.I32, value)
        for number, value in numbers.items()
    }
