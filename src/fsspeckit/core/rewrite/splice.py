"""A new file out of the bytes of an old one: what did not change is copied, what did is encoded and put in its place.

Decoding and encoding are most of what a rewrite costs, and an update rarely changes every column of every row group.
A column chunk does not know where in the file it stands: only the footer and the offset index do, and these are
written anew. So a chunk can be copied as it is, page by page and bit by bit, beside others that are new.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.parallel import side_by_side
from fsspeckit.core.rewrite.layout import Layout
from fsspeckit.core.rewrite.page_bytes import STATISTICS, TYPE, Bytes, PatchedChunk
from fsspeckit.core.rewrite.writer import Writer, storable
from fsspeckit.core.storage import Storage
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.common import leaf_count
from fsspeckit.core.target.spans import CannotCopy, Chunk
from fsspeckit.core.target.tail import MAGIC, footer_bytes

# Further field numbers of FileMetaData, RowGroup and ColumnMetaData in parquet.thrift
_KEY_VALUE, _CREATED_BY, _ORDERS = 5, 6, 7
_BYTES, _SORTING, _GROUP_OFFSET, _GROUP_COMPRESSED = 2, 4, 5, 6
_PATH = 3
# For encoded columns beside their values: headers of pages, dictionaries, indexes. What takes more is encoded again.
_MORE_ROOM = 1 << 20
# Rows that are encoded at once: as many as PyArrow does by itself, and at most what it puts into a page; of long values
# fewer, so that they are a part of a page that may have 1 MiB.
_USUAL_BATCH, _LARGEST_BATCH, _BATCH_BYTES = 1024, 20_000, 256 << 10


@dataclass(frozen=True, slots=True)
class Bounded:
    """A column whose statistics are known: to look for them again takes a tenth of the time of writing text."""

    column: pa.Table
    statistics: thrift.Struct


Lot = Callable[[], Iterable[tuple[Sequence[str], pa.Table | Bounded | PatchedChunk]]]
"""How to get some columns: names in the file's order with their values, or one name with what it is stored as."""


class Origin(Protocol):
    """Bytes that chunks are taken from."""

    def read(self, offset: int, length: int) -> bytes: ...
    def copy(self, sink: Any, offset: int, length: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _OldFile:
    storage: Storage
    file: Any
    read: spans.ReadAt

    def copy(self, sink: Any, offset: int, length: int) -> None:
        self.storage.copy_range(self.file, sink, offset, length)


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Columns encoded as a Parquet file in memory, and the statistics that were known before."""

    buffer: pa.Buffer
    statistics: thrift.Struct | None = None

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.buffer.slice(offset, length))

    def copy(self, sink: Any, offset: int, length: int) -> None:
        sink.write(self.buffer.slice(offset, length))

    def footer(self) -> thrift.Struct:
        return thrift.decode(footer_bytes(pa.BufferReader(self.buffer)))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """A chunk in pieces, which is only ever wanted whole."""

    pieces: list[Bytes]

    def read(self, offset: int, length: int) -> bytes:
        raise CannotCopy("Parts of a chunk in pieces are not to be had")

    def copy(self, sink: Any, offset: int, length: int) -> None:
        sink.writelines(self.pieces)


@dataclass(frozen=True, slots=True)
class OldFile:
    """An open file whose chunks can be copied; `leaves` are the chunks that each column is stored in.

    `optional` tells of flat leaves whether they may hold nulls. Of chunks whose beginning and size are in `walked`,
    the pages are known to be what the footer promises.
    """

    file: Any
    footer: thrift.Whole
    chunks: list[list[Chunk]]
    leaves: Mapping[str, range]
    optional: Mapping[int, bool]
    created_by: str
    walked: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def of(cls, file: Any, footer: thrift.Whole, end: int, metadata: pq.FileMetaData, columns: pa.Schema) -> OldFile:
        """`footer` begins at `end`. What cannot be copied from is `CannotCopy`."""
        leaves, position = {}, 0
        for column in columns:
            leaves[column.name] = range(position, position + leaf_count(column.type))
            position = leaves[column.name].stop
        if position != metadata.num_columns or len(leaves) != len(columns):
            raise CannotCopy("Columns cannot be told by their leaves")
        schema = [metadata.schema.column(i) for i in range(position)]
        levels = {i: leaf.max_definition_level for i, leaf in enumerate(schema) if leaf.max_repetition_level == 0}
        chunks = spans.copyable_chunks(footer, end, levels)
        optional = {i: bool(level) for i, level in levels.items() if level < 2}
        return cls(file, footer, chunks, leaves, optional, metadata.created_by or "")

    def chunks_of(self, group: int, names: Iterable[str]) -> list[Chunk]:
        """The chunks that columns of a row group are stored in."""
        return [self.chunks[group][leaf] for name in names for leaf in self.leaves.get(name, ())]

    def flat_chunks(self, group: int) -> dict[str, Chunk]:
        """The chunks of columns that have one value a row, or a null."""
        chunks, optional = self.chunks[group], self.optional
        return {name: chunks[of.start] for name, of in self.leaves.items() if len(of) == 1 and of.start in optional}

    def may_be_null(self, name: str) -> bool:
        return self.optional[self.leaves[name].start]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chunk to put into the new file, and where it comes from."""

    origin: Origin
    chunk: Chunk


class SplicedFile(Writer):
    """One Parquet file, like an old one but for the columns that are replaced; synced to disk when it is closed."""

    def __init__(self, storage: Storage, path: str, layout: Layout, old: OldFile, final: str, threads: int = 1) -> None:
        self._storage, self._path, self._layout, self._old, self._threads = storage, path, layout, old, threads
        self._origin = _OldFile(storage, old.file, spans.reader_of(old.file))
        self._by_fastparquet = old.created_by.startswith("fastparquet")
        self._seen: spans.SeenHeaders = {}
        self._patched = False
        self._groups: list[thrift.Struct] = []
        self._orders: dict[int, thrift.Struct] = {}
        self._writer = (thrift.BINARY, b"")
        self._waiting: tuple[Origin, int, int] | None = None
        self._indexes: list[tuple[tuple[int, int], thrift.Struct, bytes]] = []
        self._at = len(MAGIC)
        self.rows = self.copied = 0
        self._sink = storage.open_output(path, final)
        self._sink.write(MAGIC)

    def keep(self, group: int) -> None:
        """Copy a row group."""
        self._add(group, {})

    def replace(self, group: int, lots: Iterable[Lot]) -> None:
        """Copy a row group but for some columns, which are given whole and in the layout's plain types; one thread
        encodes a lot of them before it takes the next one."""
        new: dict[int, _Piece] = {}
        for encoded in side_by_side(self._encode, lots, self._threads):
            for names, columns in encoded:
                new.update(self._lifted(group, names, columns))
        self._add(group, new)

    def _encode(self, lot: Lot) -> list[tuple[Sequence[str], _Encoded | PatchedChunk]]:
        return [(n, part if isinstance(part, PatchedChunk) else self._encoded(part)) for n, part in lot()]

    def _encoded(self, part: pa.Table | Bounded) -> _Encoded:
        if isinstance(part, Bounded):
            return _Encoded(self._written(part.column, write_statistics=False), part.statistics)
        return _Encoded(self._written(part))

    def _add(self, group: int, new: Mapping[int, _Piece]) -> None:
        old = self._old.footer[spans.ROW_GROUPS][1][1][group]
        for leaf, chunk in enumerate(self._old.chunks[group]):
            if leaf not in new and (chunk.start, chunk.size) not in self._old.walked:
                spans.pages_of(self._origin.read, chunk, self._seen)
        pieces = [new.get(leaf) or _Piece(self._origin, chunk) for leaf, chunk in enumerate(self._old.chunks[group])]
        begin = self._at
        entries = [self._place(piece) for piece in pieces]
        for piece, entry in zip(pieces, entries, strict=True):
            self._place_bloom_filter(piece, entry)
        totals = {
            number: (thrift.I64, sum(piece.chunk.metadata[field][1] for piece in pieces))
            for number, field in ((_BYTES, spans.UNCOMPRESSED), (_GROUP_COMPRESSED, spans.COMPRESSED))
            if new and number in old
        }
        offset = {_GROUP_OFFSET: (thrift.I64, begin)} if _GROUP_OFFSET in old else {}
        self._groups.append({**old, **totals, **offset, spans.COLUMNS: (thrift.LIST, (thrift.STRUCT, entries))})
        self.rows += old[spans.ROWS][1]

    def _written(self, columns: pa.Table, **more: Any) -> pa.Buffer:
        stored = self._layout.store(columns)
        options = {name: value for name, value in self._layout.options.items() if name != "sorting_columns"}
        options |= {"write_batch_size": _rows_at_once(stored), **more}
        room = pa.allocate_buffer(stored.nbytes + stored.nbytes // 8 + _MORE_ROOM, resizable=True)
        with contextlib.suppress(pa.ArrowException, OSError):  # a buffer that grows is copied again and again
            with pa.FixedSizeBufferWriter(room) as sink:
                _write(stored, sink, options)
                size = sink.tell()
            room.resize(size, shrink_to_fit=True)  # what compression spared is of use to the next lot
            return room
        sink = pa.BufferOutputStream()
        with storable():
            _write(stored, sink, options)
        return sink.getvalue()

    def _lifted(self, group: int, names: Sequence[str], encoded: _Encoded | PatchedChunk) -> dict[int, _Piece]:
        if isinstance(encoded, PatchedChunk):
            (leaf,) = self._old.leaves[names[0]]
            self._check_dictionary(self._old.chunks[group][leaf], encoded.chunk)
            self._patched = True
            self.copied += encoded.copied
            return {leaf: _Piece(_Pieces(encoded.pieces), encoded.chunk)}
        footer = encoded.footer()
        leaves = [leaf for name in names for leaf in self._old.leaves[name]]
        groups = footer[spans.ROW_GROUPS][1][1]
        if len(groups) != 1:
            raise CannotCopy("The writer does not make row groups of that many rows")
        orders = footer[_ORDERS][1][1] if _ORDERS in footer else []
        self._orders.update(zip(leaves, orders, strict=False))
        self._writer = footer[_CREATED_BY]
        lifted = {}
        for leaf, entry in zip(leaves, groups[0][spans.COLUMNS][1][1], strict=True):
            chunk, old = Chunk.of(entry), self._old.chunks[group][leaf]
            if chunk.metadata[TYPE] != old.metadata[TYPE]:  # some readers do not bear a mixture
                raise CannotCopy(f"A column would be stored as two physical types, {chunk.metadata[TYPE][1]} is new")
            self._check_dictionary(old, chunk)
            known = {} if encoded.statistics is None else {STATISTICS: (thrift.STRUCT, encoded.statistics)}
            entry[spans.META_DATA] = thrift.STRUCT, {**chunk.metadata, **known, _PATH: old.metadata[_PATH]}
            lifted[leaf] = _Piece(encoded, chunk)
        return lifted

    def _check_dictionary(self, old: Chunk, new: Chunk) -> None:
        if self._by_fastparquet and spans.DICTIONARY_PAGE in old.metadata.keys() - new.metadata.keys():
            raise CannotCopy("fastparquet reads a column with dictionaries in all row groups, or in none")

    def _place(self, piece: _Piece) -> thrift.Struct:
        """Put a chunk at the end of the file; returns its entry in the new footer."""
        chunk, moved = piece.chunk, self._at - piece.chunk.start
        self._put(piece.origin, chunk.start, chunk.size)
        metadata, entry = dict(chunk.metadata), dict(chunk.entry)
        for page in (spans.DATA_PAGE, spans.INDEX_PAGE, spans.DICTIONARY_PAGE):
            if page in metadata and metadata[page][1] > 0:
                metadata[page] = thrift.I64, metadata[page][1] + moved
        entry[spans.META_DATA] = thrift.STRUCT, metadata
        if entry[spans.FILE_OFFSET][1]:
            entry[spans.FILE_OFFSET] = thrift.I64, chunk.start + moved
        if piece.origin is self._origin:
            self.copied += chunk.size
        self._hold_index(piece, entry, moved)
        return entry

    def _hold_index(self, piece: _Piece, entry: thrift.Struct, moved: int) -> None:
        """Page indexes come after all row groups. Column indexes have no offsets in them, offset indexes do."""
        for fields in (spans.COLUMN_INDEX, spans.OFFSET_INDEX):
            offset, length = fields
            if offset in entry:
                index = piece.origin.read(entry[offset][1], entry[length][1])
                if fields == spans.OFFSET_INDEX:
                    index = _moved_index(index, piece.chunk, moved)
                self._indexes.append((fields, entry, index))

    def _place_bloom_filter(self, piece: _Piece, entry: thrift.Struct) -> None:
        metadata = entry[spans.META_DATA][1]
        if spans.BLOOM_FILTER not in metadata:
            return
        start = metadata[spans.BLOOM_FILTER][1]
        length = _bloom_length(piece.origin, start, metadata)
        metadata[spans.BLOOM_FILTER] = thrift.I64, self._at
        self._put(piece.origin, start, length)

    def _put(self, origin: Origin, start: int, length: int) -> None:
        """Bytes that follow each other are copied in one go."""
        if self._waiting is not None:
            before, begin, size = self._waiting
            if before is origin and begin + size == start:
                self._waiting = origin, begin, size + length
                self._at += length
                return
            before.copy(self._sink, begin, size)
        self._waiting = origin, start, length
        self._at += length

    def close(self, *, in_order: bool) -> int:
        """Write page indexes and the footer; without its sorting columns, unless rows are still in their order."""
        self._put(_Encoded(pa.py_buffer(b"")), 0, 0)
        for kind in (spans.COLUMN_INDEX, spans.OFFSET_INDEX):
            for (offset, length), entry, index in (held for held in self._indexes if held[0] == kind):
                entry[offset], entry[length] = (thrift.I64, self._at), (thrift.I32, len(index))
                self._at += self._sink.write(index)
        footer = thrift.encode(self._footer(in_order), self._old.footer)
        self._sink.write(footer + len(footer).to_bytes(4, "little") + MAGIC)
        self._sink.close()
        self._storage.sync_file(self._path)
        return self._at + len(footer) + 8

    def _footer(self, in_order: bool) -> thrift.Struct:
        footer, graft = dict(self._old.footer), self._layout.graft
        assert graft is not None
        groups = [{n: v for n, v in g.items() if in_order or n != _SORTING} for g in self._groups]
        footer[spans.ROW_GROUPS] = thrift.LIST, (thrift.STRUCT, groups)
        footer.pop(_KEY_VALUE, None)
        if graft.key_value is not None:
            footer[_KEY_VALUE] = graft.key_value
        if (
            not self.copied and not self._patched and self._orders
        ):  # all of it is ours, as in a file that is written from the start
            footer[_CREATED_BY] = graft.created_by or self._writer
            footer[_ORDERS] = thrift.LIST, (thrift.STRUCT, [self._orders[leaf] for leaf in sorted(self._orders)])
        return footer

    def abandon(self) -> None:
        self._sink.close()


def _write(stored: pa.Table, sink: Any, options: Mapping[str, Any]) -> None:
    with pq.ParquetWriter(sink, stored.schema, **options) as writer:
        writer.write_table(stored, row_group_size=max(1, stored.num_rows))


def _rows_at_once(columns: pa.Table) -> int:
    """Pages end only between two batches of rows. Large batches are quicker, and should not make large pages."""
    longest = max(map(_longest, columns.columns), default=_BATCH_BYTES)
    return min(_LARGEST_BATCH, max(_USUAL_BATCH, _BATCH_BYTES // max(1, longest)))


def _longest(column: pa.ChunkedArray) -> int:
    """The bytes of the longest value; of nested ones nobody knows."""
    if t.is_primitive(column.type) or t.is_decimal(column.type):
        return int(column.type.bit_width) // 8
    if t.is_string(column.type) or t.is_binary(column.type):
        return pc.max(pc.binary_length(column)).as_py() or 0
    return _BATCH_BYTES


def _moved_index(index: bytes, chunk: Chunk, moved: int) -> bytes:
    """An offset index for pages that lie elsewhere."""
    fields = thrift.decode(index)
    pages = [dict(page) for page in thrift.structs(fields, 1)]
    for page in pages:
        offset = thrift.field(page, 1, thrift.I64)
        if not chunk.start <= offset < chunk.end:
            raise CannotCopy(f"An offset index names a page at {offset}, outside of its column chunk")
        page[1] = thrift.I64, offset + moved
    return thrift.encode({**fields, 1: (thrift.LIST, (thrift.STRUCT, pages))})


def _bloom_length(origin: Origin, start: int, metadata: thrift.Struct) -> int:
    """Old writers do not tell; then the filter's own header does."""
    if spans.BLOOM_LENGTH in metadata:
        return int(metadata[spans.BLOOM_LENGTH][1])
    header, end = spans.read_struct(origin.read, start, start + 64)
    return int(end - start + thrift.field(header, 1, thrift.I32))
