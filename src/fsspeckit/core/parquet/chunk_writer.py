"""Write a Parquet file chunk by chunk: chunks of other files are copied, new ones are encoded in memory and placed.

A column chunk holds no offsets: only the footer and the offset index do, and these are written again. So the bytes of
a chunk can be copied to another place in another file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet import chunk_layout, thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, NotSpliceable
from fsspeckit.core.parquet.footer_io import END_BYTES, footer_bytes, with_end
from fsspeckit.core.parquet.format import (
    MAGIC,
    BloomFilterHeader,
    ColumnChunk,
    ColumnMetaData,
    OffsetIndex,
    PageLocation,
    RowGroup,
)
from fsspeckit.core.parquet.layout import Layout
from fsspeckit.core.parquet.statistics import nan_counts
from fsspeckit.core.parquet.writer import Writer, storable
from fsspeckit.core.storage import Storage

_PAGE_OFFSETS = (
    ColumnMetaData.DATA_PAGE_OFFSET,
    ColumnMetaData.INDEX_PAGE_OFFSET,
    ColumnMetaData.DICTIONARY_PAGE_OFFSET,
)
# The sizes of a row group, and the sizes of its chunks that they are the sum of.
TOTALS = (
    (RowGroup.TOTAL_BYTE_SIZE, ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE),
    (RowGroup.TOTAL_COMPRESSED_SIZE, ColumnMetaData.TOTAL_COMPRESSED_SIZE),
)


class Origin(Protocol):
    """The bytes that a chunk is copied from."""

    def read(self, offset: int, length: int) -> bytes: ...
    def copy(self, sink: Any, offset: int, length: int) -> None: ...


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """An open file."""

    storage: Storage
    file: Any
    read: chunk_layout.ReadAt

    @classmethod
    def of(cls, storage: Storage, file: Any) -> Self:
        return cls(storage, file, chunk_layout.reader_of(file))

    def copy(self, sink: Any, offset: int, length: int) -> None:
        self.storage.copy_range(self.file, sink, offset, length)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Columns encoded as a Parquet file in memory, and the number of NaN in each leaf."""

    buffer: pa.Buffer
    nans: Sequence[int | None] = ()

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.buffer.slice(offset, length))

    def copy(self, sink: Any, offset: int, length: int) -> None:
        sink.write(self.buffer.slice(offset, length))

    def footer(self) -> thrift.Struct:
        return thrift.decode(footer_bytes(pa.BufferReader(self.buffer)))


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk for the new file, and the bytes that it is copied from."""

    origin: Origin
    chunk: Chunk


def encode(layout: Layout, table: pa.Table) -> Encoded:
    """Encode columns of one row group, given in the layout's plain types."""
    stored = layout.store(table)
    sink = pa.BufferOutputStream()
    with storable(), pq.ParquetWriter(sink, stored.schema, **layout.unsorted().options) as writer:
        writer.write_table(stored, row_group_size=max(1, stored.num_rows))
    return Encoded(sink.getvalue(), nan_counts(stored))


class ChunkWriter(Writer):
    """A Parquet file that is written chunk by chunk. Subclasses make its footer."""

    _first_bytes: ClassVar[bytes] = MAGIC

    def __init__(self, storage: Storage, path: str, final: str) -> None:
        self._storage, self._path = storage, path
        self._waiting: tuple[Origin, int, int] | None = None
        self._indexes: list[tuple[tuple[int, int], thrift.Struct, bytes]] = []
        self._at = len(self._first_bytes)
        self.rows = self.copied = 0
        self._sink = storage.open_output(path, final)
        self._sink.write(self._first_bytes)

    def _place_row_group(
        self, pieces: Sequence[Piece], old: thrift.Struct, rows: int, ordinal: int, *, is_new: bool
    ) -> thrift.Struct:
        """Append the chunks of a row group. Returns its entry in the new footer: that of `old`, with new offsets.

        `is_new`: chunks are not those of `old`, so that the sizes change, too.
        """
        begin = self._at
        entries = [self._place(piece) for piece in pieces]
        for piece, entry in zip(pieces, entries, strict=True):
            self._place_bloom_filter(piece, entry)
        totals = {
            number: (thrift.I64, sum(piece.chunk.metadata[field][1] for piece in pieces))
            for number, field in TOTALS
            if is_new and number in old
        }
        offset = {RowGroup.FILE_OFFSET: (thrift.I64, begin)} if RowGroup.FILE_OFFSET in old else {}
        number = {RowGroup.ORDINAL: (thrift.I16, ordinal)} if RowGroup.ORDINAL in old else {}
        counted = {RowGroup.NUM_ROWS: (thrift.I64, rows), RowGroup.COLUMNS: thrift.struct_list(entries)}
        return {**old, **totals, **offset, **number, **counted}

    def _place(self, piece: Piece) -> thrift.Struct:
        """Append a chunk to the file. Returns its entry in the new footer."""
        chunk, moved = piece.chunk, self._at - piece.chunk.start
        self._put(piece.origin, chunk.start, chunk.size)
        metadata = chunk.metadata
        offsets = {page: metadata[page][1] for page in _PAGE_OFFSETS if page in metadata}
        new_offsets = {page: (thrift.I64, offset + moved) for page, offset in offsets.items() if offset > 0}
        entry = chunk_layout.with_metadata(chunk.entry, new_offsets)
        if entry[ColumnChunk.FILE_OFFSET][1]:
            entry[ColumnChunk.FILE_OFFSET] = thrift.I64, chunk.start + moved
        if not isinstance(piece.origin, Encoded):
            self.copied += chunk.size
        self._keep_indexes(piece, entry, moved)
        return entry

    def _keep_indexes(self, piece: Piece, entry: thrift.Struct, moved: int) -> None:
        """Keep the page indexes of a chunk until `close` writes them. Only offset indexes contain offsets."""
        for fields in (chunk_layout.COLUMN_INDEX, chunk_layout.OFFSET_INDEX):
            offset, length = fields
            if offset in entry:
                index = piece.origin.read(entry[offset][1], entry[length][1])
                if fields == chunk_layout.OFFSET_INDEX:
                    index = _moved_index(index, piece.chunk, moved)
                self._indexes.append((fields, entry, index))

    def _place_bloom_filter(self, piece: Piece, entry: thrift.Struct) -> None:
        metadata = chunk_layout.metadata_of(entry)
        if ColumnMetaData.BLOOM_FILTER_OFFSET not in metadata:
            return
        start = metadata[ColumnMetaData.BLOOM_FILTER_OFFSET][1]
        length = _bloom_length(piece.origin, start, metadata)
        metadata[ColumnMetaData.BLOOM_FILTER_OFFSET] = thrift.I64, self._at
        self._put(piece.origin, start, length)

    def _put(self, origin: Origin, start: int, length: int) -> None:
        """Copy bytes. Adjacent ranges are copied together."""
        if self._waiting is not None:
            before, begin, size = self._waiting
            if before is origin and begin + size == start:
                self._waiting = origin, begin, size + length
                self._at += length
                return
            before.copy(self._sink, begin, size)
        self._waiting = origin, start, length
        self._at += length

    def _flush(self) -> None:
        """Copy what waits for adjacent bytes, before the file that it comes from is closed."""
        if self._waiting is not None:
            origin, begin, size = self._waiting
            origin.copy(self._sink, begin, size)
            self._waiting = None

    def _finish(self, footer: Callable[[], thrift.Struct]) -> int:
        """Write page indexes and the footer, and sync the file. Returns its size."""
        self._flush()
        for fields in (chunk_layout.COLUMN_INDEX, chunk_layout.OFFSET_INDEX):
            for (offset, length), entry, index in (kept for kept in self._indexes if kept[0] == fields):
                entry[offset], entry[length] = (thrift.I64, self._at), (thrift.I32, len(index))
                self._at += self._sink.write(index)
        raw = thrift.encode(footer())
        self._sink.write(with_end(raw))
        self._sink.close()
        self._storage.sync_file(self._path)
        return self._at + len(raw) + END_BYTES

    def abandon(self) -> None:
        self._sink.close()


def _moved_index(index: bytes, chunk: Chunk, moved: int) -> bytes:
    """An offset index with the new offsets of its pages."""
    fields = thrift.decode(index)
    pages = [dict(page) for page in thrift.structs(fields, OffsetIndex.PAGE_LOCATIONS)]
    for page in pages:
        offset = thrift.field(page, PageLocation.OFFSET, thrift.I64)
        if not chunk.start <= offset < chunk.end:
            raise NotSpliceable(f"An offset index names a page at {offset}, outside of its column chunk")
        page[PageLocation.OFFSET] = thrift.I64, offset + moved
    return thrift.encode({**fields, OffsetIndex.PAGE_LOCATIONS: thrift.struct_list(pages)})


def _bloom_length(origin: Origin, start: int, metadata: thrift.Struct) -> int:
    """The length of a bloom filter. Old writers do not record it; then the filter's own header does."""
    if ColumnMetaData.BLOOM_FILTER_LENGTH in metadata:
        return int(metadata[ColumnMetaData.BLOOM_FILTER_LENGTH][1])
    header, end = chunk_layout.read_struct(origin.read, start, start + 64)
    return int(end - start + thrift.field(header, BloomFilterHeader.NUM_BYTES, thrift.I32))
