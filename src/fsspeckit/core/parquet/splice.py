"""Write a new file from the bytes of an old one: unchanged column chunks are copied, changed ones are encoded.

Decoding and encoding are most of the cost of a rewrite, and an update rarely changes every column of every row group.
A column chunk holds no offsets: only the footer and the offset index do, and these are written again. So the bytes of
a chunk can be copied to another place in another file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet import chunk_layout, thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, NotSpliceable
from fsspeckit.core.parquet.footer_io import END_BYTES, footer_bytes, footer_start, with_end
from fsspeckit.core.parquet.footer_override import with_entries
from fsspeckit.core.parquet.format import (
    MAGIC,
    BloomFilterHeader,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    OffsetIndex,
    PageLocation,
    RowGroup,
)
from fsspeckit.core.parquet.layout import Layout
from fsspeckit.core.parquet.metadata_entries import NewValues
from fsspeckit.core.parquet.schema import leaf_count
from fsspeckit.core.parquet.statistics import leaves_without_bounds, nan_counts, with_safe_bounds, without_bounds
from fsspeckit.core.parquet.writer import Writer, storable
from fsspeckit.core.storage import Storage

PAGE_OFFSETS = (
    ColumnMetaData.DATA_PAGE_OFFSET,
    ColumnMetaData.INDEX_PAGE_OFFSET,
    ColumnMetaData.DICTIONARY_PAGE_OFFSET,
)
# The sizes of a row group, and the sizes of its chunks that they are the sum of.
TOTALS = (
    (RowGroup.TOTAL_BYTE_SIZE, ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE),
    (RowGroup.TOTAL_COMPRESSED_SIZE, ColumnMetaData.TOTAL_COMPRESSED_SIZE),
)
ColumnBatch = Callable[[], Iterable[tuple[Sequence[str], pa.Table]]]
"""Computes columns of a row group: their names in the file's order, and their values."""


class Origin(Protocol):
    """The bytes that a chunk is copied from."""

    def read(self, offset: int, length: int) -> bytes: ...
    def copy(self, sink: Any, offset: int, length: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _OldFile:
    storage: Storage
    file: Any
    read: chunk_layout.ReadAt

    def copy(self, sink: Any, offset: int, length: int) -> None:
        self.storage.copy_range(self.file, sink, offset, length)


@dataclass(frozen=True, slots=True)
class _Encoded:
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
class OldFile:
    """An open file whose chunks can be copied. `leaves` are the numbers of the leaves that store each column."""

    file: Any
    footer: thrift.Struct
    chunks: list[list[Chunk]]
    leaves: Mapping[str, range]
    created_by: str

    @classmethod
    def of(cls, file: Any, footer: thrift.Struct, end: int, metadata: pq.FileMetaData, columns: pa.Schema) -> OldFile:
        """The pages of the file end at `end`. `NotSpliceable` if its chunks cannot be copied."""
        leaves, position = {}, 0
        for column in columns:
            leaves[column.name] = range(position, position + leaf_count(column.type))
            position = leaves[column.name].stop
        if position != metadata.num_columns or len(leaves) != len(columns):
            raise NotSpliceable("The Arrow schema has other leaves than the Parquet schema")
        flat = [i for i in range(position) if metadata.schema.column(i).max_repetition_level == 0]
        return cls(file, footer, chunk_layout.copyable_chunks(footer, end, flat), leaves, metadata.created_by or "")

    def chunks_of(self, group: int, names: Iterable[str]) -> list[Chunk]:
        """The chunks that columns of a row group are stored in."""
        return [self.chunks[group][leaf] for name in names for leaf in self.leaves.get(name, ())]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chunk for the new file, and the bytes that it is copied from."""

    origin: Origin
    chunk: Chunk


class SplicedFile(Writer):
    """A Parquet file with the row groups of an old one, in which some columns are replaced. `close` syncs it."""

    def __init__(self, storage: Storage, path: str, layout: Layout, old: OldFile, final: str, pool: Pool) -> None:
        self._storage, self._path, self._layout, self._old, self._pool = storage, path, layout, old, pool
        self._origin = _OldFile(storage, old.file, chunk_layout.reader_of(old.file))
        self._by_fastparquet = old.created_by.startswith("fastparquet")
        self._seen: chunk_layout.SeenHeaders = {}
        self._groups: list[thrift.Struct] = []
        self._orders: dict[int, thrift.Struct] = {}
        self._without_bounds: set[int] = set()
        self._writer = (thrift.BINARY, b"")
        self._waiting: tuple[Origin, int, int] | None = None
        self._indexes: list[tuple[tuple[int, int], thrift.Struct, bytes]] = []
        self._at = len(MAGIC)
        self.rows = self.copied = 0
        self._sink = storage.open_output(path, final)
        self._sink.write(MAGIC)

    def copy_row_group(self, group: int) -> None:
        """Copy a row group."""
        self._add(group, {}, self._old_rows(group))

    def _old_rows(self, group: int) -> int:
        return int(self._old.footer[FileMetaData.ROW_GROUPS][1][1][group][RowGroup.NUM_ROWS][1])

    def replace_columns(self, group: int, batches: Iterable[ColumnBatch], rows: int) -> None:
        """Copy a row group except for the columns in `batches`, which have the layout's plain types.

        Batches are encoded in parallel, one batch per thread at a time. If the number of `rows` changes, the batches
        must have all columns.
        """
        new: dict[int, _Piece] = {}
        for encoded in self._pool.map(self._encode, batches):
            for names, columns in encoded:
                new.update(self._new_pieces(group, names, columns))
        assert rows == self._old_rows(group) or len(new) == len(self._old.chunks[group])
        self._add(group, new, rows)

    def _encode(self, batch: ColumnBatch) -> list[tuple[Sequence[str], _Encoded]]:
        stored = ((names, self._layout.store(columns)) for names, columns in batch())
        return [(names, _Encoded(self._written(columns), nan_counts(columns))) for names, columns in stored]

    def _add(self, group: int, new: Mapping[int, _Piece], rows: int) -> None:
        old = self._old.footer[FileMetaData.ROW_GROUPS][1][1][group]
        for leaf, chunk in enumerate(self._old.chunks[group]):
            if leaf not in new:
                chunk_layout.check_pages(self._origin.read, chunk, self._seen)
        pieces = [new.get(leaf) or _Piece(self._origin, chunk) for leaf, chunk in enumerate(self._old.chunks[group])]
        begin = self._at
        entries = [self._place(piece) for piece in pieces]
        for piece, entry in zip(pieces, entries, strict=True):
            self._place_bloom_filter(piece, entry)
        totals = {
            number: (thrift.I64, sum(piece.chunk.metadata[field][1] for piece in pieces))
            for number, field in TOTALS
            if new and number in old
        }
        offset = {RowGroup.FILE_OFFSET: (thrift.I64, begin)} if RowGroup.FILE_OFFSET in old else {}
        ordinal = {RowGroup.ORDINAL: (thrift.I16, len(self._groups))} if RowGroup.ORDINAL in old else {}
        counted = {RowGroup.NUM_ROWS: (thrift.I64, rows), RowGroup.COLUMNS: thrift.struct_list(entries)}
        self._groups.append({**old, **totals, **offset, **ordinal, **counted})
        self.rows += rows

    def _written(self, stored: pa.Table) -> pa.Buffer:
        options = {name: value for name, value in self._layout.options.items() if name != "sorting_columns"}
        sink = pa.BufferOutputStream()
        with storable(), pq.ParquetWriter(sink, stored.schema, **options) as writer:
            writer.write_table(stored, row_group_size=max(1, stored.num_rows))
        return sink.getvalue()

    def _new_pieces(self, group: int, names: Sequence[str], encoded: _Encoded) -> dict[int, _Piece]:
        footer = encoded.footer()
        leaves = [leaf for name in names for leaf in self._old.leaves[name]]
        groups = footer[FileMetaData.ROW_GROUPS][1][1]
        if len(groups) != 1:
            raise NotSpliceable("PyArrow splits a row group of that many rows")
        orders = footer[FileMetaData.COLUMN_ORDERS][1][1] if FileMetaData.COLUMN_ORDERS in footer else []
        self._orders.update(zip(leaves, orders, strict=False))
        self._writer = footer[FileMetaData.CREATED_BY]
        pieces = {}
        replaced = [self._old.chunks[group][leaf] for leaf in leaves]
        old_entries = [old.entry for old in replaced]
        entries = with_safe_bounds(groups[0][RowGroup.COLUMNS][1][1], encoded.nans, old_entries)
        self._without_bounds.update(leaves[i] for i in leaves_without_bounds(encoded.nans, old_entries))
        for leaf, old, entry in zip(leaves, replaced, entries, strict=True):
            chunk = Chunk.of(entry)
            new_type, old_type = chunk.metadata[ColumnMetaData.TYPE], old.metadata[ColumnMetaData.TYPE]
            if new_type != old_type:  # some readers refuse a column with two physical types
                raise NotSpliceable(f"A column would be stored as two physical types, {new_type[1]} is new")
            self._check_dictionary(old, chunk)
            path = {ColumnMetaData.PATH_IN_SCHEMA: old.metadata[ColumnMetaData.PATH_IN_SCHEMA]}
            entry[ColumnChunk.META_DATA] = thrift.STRUCT, {**chunk.metadata, **path}
            pieces[leaf] = _Piece(encoded, chunk)
        return pieces

    def _check_dictionary(self, old: Chunk, new: Chunk) -> None:
        if self._by_fastparquet and ColumnMetaData.DICTIONARY_PAGE_OFFSET in old.metadata.keys() - new.metadata.keys():
            raise NotSpliceable("fastparquet reads a column with dictionaries in all row groups, or in none")

    def _place(self, piece: _Piece) -> thrift.Struct:
        """Append a chunk to the file. Returns its entry in the new footer."""
        chunk, moved = piece.chunk, self._at - piece.chunk.start
        self._put(piece.origin, chunk.start, chunk.size)
        metadata, entry = dict(chunk.metadata), dict(chunk.entry)
        for page in PAGE_OFFSETS:
            if page in metadata and metadata[page][1] > 0:
                metadata[page] = thrift.I64, metadata[page][1] + moved
        entry[ColumnChunk.META_DATA] = thrift.STRUCT, metadata
        if entry[ColumnChunk.FILE_OFFSET][1]:
            entry[ColumnChunk.FILE_OFFSET] = thrift.I64, chunk.start + moved
        if piece.origin is self._origin:
            self.copied += chunk.size
        self._keep_indexes(piece, entry, moved)
        return entry

    def _keep_indexes(self, piece: _Piece, entry: thrift.Struct, moved: int) -> None:
        """Keep the page indexes of a chunk until `close` writes them. Only offset indexes contain offsets."""
        for fields in (chunk_layout.COLUMN_INDEX, chunk_layout.OFFSET_INDEX):
            offset, length = fields
            if offset in entry:
                index = piece.origin.read(entry[offset][1], entry[length][1])
                if fields == chunk_layout.OFFSET_INDEX:
                    index = moved_index(index, piece.chunk, moved)
                self._indexes.append((fields, entry, index))

    def _place_bloom_filter(self, piece: _Piece, entry: thrift.Struct) -> None:
        metadata = entry[ColumnChunk.META_DATA][1]
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

    def close(self, *, in_order: bool, changed: Collection[str]) -> int:
        """Write page indexes and the footer, and return the size of the file.

        Sorting columns are kept if rows are still `in_order`; key-value entries about `changed` columns are dropped.
        """
        self._put(_Encoded(pa.py_buffer(b"")), 0, 0)
        for fields in (chunk_layout.COLUMN_INDEX, chunk_layout.OFFSET_INDEX):
            for (offset, length), entry, index in (kept for kept in self._indexes if kept[0] == fields):
                entry[offset], entry[length] = (thrift.I64, self._at), (thrift.I32, len(index))
                self._at += self._sink.write(index)
        footer = thrift.encode(self._footer(in_order, NewValues(changed, self.rows)))
        self._sink.write(with_end(footer))
        self._sink.close()
        self._storage.sync_file(self._path)
        return self._at + len(footer) + END_BYTES

    def _footer(self, in_order: bool, values: NewValues) -> thrift.Struct:
        footer, override = dict(self._old.footer), self._layout.with_true_entries(values).override
        assert override is not None
        groups = [{n: v for n, v in g.items() if in_order or n != RowGroup.SORTING_COLUMNS} for g in self._groups]
        footer[FileMetaData.NUM_ROWS] = thrift.I64, self.rows
        footer[FileMetaData.ROW_GROUPS] = thrift.struct_list(without_bounds(groups, self._without_bounds))
        footer.pop(FileMetaData.KEY_VALUE_METADATA, None)
        if override.key_value is not None:
            footer[FileMetaData.KEY_VALUE_METADATA] = override.key_value
        if not self.copied and self._orders:  # every chunk is new, as in a file of `FileWriter`
            footer[FileMetaData.CREATED_BY] = override.created_by or self._writer
            orders = [self._orders[leaf] for leaf in sorted(self._orders)]
            footer[FileMetaData.COLUMN_ORDERS] = thrift.struct_list(orders)
        return footer

    def abandon(self) -> None:
        self._sink.close()


def copy_with_entries(
    storage: Storage, file: Any, footer: thrift.Struct, entries: Mapping[str, str], path: str, final: str
) -> tuple[int, int]:
    """Copy an open file, with entries added to the key-value metadata of its decoded `footer`. Nothing else changes.

    Returns the size of the new file, and how many of its bytes were copied.
    """
    end = footer_start(file, footer_bytes(file))
    raw = with_end(thrift.encode(with_entries(footer, entries)))
    with storage.open_output(path, final) as sink:
        storage.copy_range(file, sink, 0, end)
        sink.write(raw)
    storage.sync_file(path)
    return end + len(raw), end


def moved_index(index: bytes, chunk: Chunk, moved: int) -> bytes:
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
