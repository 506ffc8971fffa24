"""Add columns of nulls to a file: its bytes are copied as they are, and the new chunks come behind them.

No byte of the old chunks, page indexes and bloom filters moves, so their offsets in the footer stay true, and nothing
of them is read. Any file that PyArrow can open can get a column in this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet import chunk_layout, thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, NotSpliceable
from fsspeckit.core.parquet.chunk_writer import PAGE_OFFSETS, TOTALS, moved_index
from fsspeckit.core.parquet.footer_io import footer_bytes, with_end
from fsspeckit.core.parquet.footer_override import with_entries
from fsspeckit.core.parquet.format import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from fsspeckit.core.parquet.writer import storable
from fsspeckit.core.parquet.writer_options import codec_of
from fsspeckit.core.storage import Storage
from fsspeckit.core.values import arrays
from fsspeckit.core.values.schema import plain_schema


@dataclass(frozen=True, slots=True)
class _Nulls:
    """Chunks of nulls, encoded as a Parquet file in memory: the entry of each leaf in its footer, and its bytes."""

    entries: Sequence[thrift.Struct]
    buffer: pa.Buffer

    @classmethod
    def of(cls, columns: pa.Schema, rows: int, options: Mapping[str, Any]) -> _Nulls:
        table = pa.table([arrays.null_array(rows, field.type) for field in columns], schema=columns)
        sink = pa.BufferOutputStream()
        with storable(), pq.ParquetWriter(sink, columns, **options) as writer:
            writer.write_table(table, row_group_size=max(1, rows))
        buffer = sink.getvalue()
        groups = thrift.structs(thrift.decode(footer_bytes(pa.BufferReader(buffer))), FileMetaData.ROW_GROUPS)
        if len(groups) != 1:
            raise NotSpliceable("PyArrow splits a row group of that many rows")
        return cls(thrift.structs(groups[0], RowGroup.COLUMNS), buffer)


@dataclass(frozen=True, slots=True)
class AppendedTo:
    """The open file that gets columns. Its footer begins at `end`."""

    file: Any
    end: int
    metadata: pq.FileMetaData


def append_columns(
    storage: Storage,
    old: AppendedTo,
    footer: thrift.Struct,
    columns: Sequence[pa.Field],
    entries: Mapping[str, str],
    path: str,
    final: str,
) -> tuple[int, int]:
    """Copy an open file with more columns, which are null, and with entries added to its key-value metadata.

    `footer` is the decoded footer with the new columns (`retype.fields_with_columns`). Returns the size of the new
    file, and how many of its bytes were copied. `NotSpliceable` if a column is not stored as PyArrow stores it.
    """
    groups, schema = thrift.structs(footer, FileMetaData.ROW_GROUPS), plain_schema(columns)
    options, encoded, placed = _options(groups, old.metadata), dict[int, _Nulls](), _Placed(old.end)
    new_groups = []
    for group in groups:
        rows = thrift.field(group, RowGroup.NUM_ROWS, thrift.I64)
        if rows not in encoded:
            encoded[rows] = _Nulls.of(schema, rows, options)
        new_groups.append(placed.group(group, encoded[rows]))
    indexes = b"".join(placed.indexes())
    changed = {**footer, FileMetaData.ROW_GROUPS: thrift.struct_list(new_groups)}
    raw = with_end(thrift.encode(with_entries(changed, entries)))
    with storage.open_output(path, final) as sink:
        storage.copy_range(old.file, sink, 0, old.end)
        sink.write(b"".join([*placed.pages, indexes, raw]))
    storage.sync_file(path)
    return placed.at + len(raw), old.end


def _options(groups: Sequence[thrift.Struct], old: pq.FileMetaData) -> dict[str, Any]:
    """The codec of the file, and whether its chunks have statistics and page indexes."""
    chunks = [chunk for group in groups[:1] for chunk in thrift.structs(group, RowGroup.COLUMNS)[: old.num_columns]]
    return {
        "compression": codec_of(old),
        "use_dictionary": False,
        "store_schema": False,
        "version": "2.6",
        "write_statistics": any(ColumnMetaData.STATISTICS in chunk[ColumnChunk.META_DATA][1] for chunk in chunks),
        "write_page_index": any(ColumnChunk.OFFSET_INDEX_OFFSET in chunk for chunk in chunks),
    }


class _Placed:
    """Chunks at their place in the new file, from the offset `at` on."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.pages: list[bytes] = []
        self._indexes: list[tuple[tuple[int, int], thrift.Struct, bytes]] = []

    def group(self, group: thrift.Struct, nulls: _Nulls) -> thrift.Struct:
        """A row group whose last chunks are replaced by chunks of nulls."""
        chunks = thrift.structs(group, RowGroup.COLUMNS)
        kept, described = chunks[: -len(nulls.entries)], chunks[-len(nulls.entries) :]
        new = [self._chunk(entry, like, nulls) for entry, like in zip(nulls.entries, described, strict=True)]
        totals = {
            number: (thrift.I64, group[number][1] + sum(entry[ColumnChunk.META_DATA][1][size][1] for entry in new))
            for number, size in TOTALS
            if number in group
        }
        return {**group, **totals, RowGroup.COLUMNS: thrift.struct_list([*kept, *new])}

    def _chunk(self, entry: thrift.Struct, described: thrift.Struct, nulls: _Nulls) -> thrift.Struct:
        chunk, wanted = Chunk.of(entry), described[ColumnChunk.META_DATA][1]
        if chunk.metadata[ColumnMetaData.TYPE] != wanted[ColumnMetaData.TYPE]:
            raise NotSpliceable("A column is stored in another physical type than PyArrow's")
        moved = self.at - chunk.start
        self.pages.append(bytes(nulls.buffer.slice(chunk.start, chunk.size)))
        self.at += chunk.size
        path = {ColumnMetaData.PATH_IN_SCHEMA: wanted[ColumnMetaData.PATH_IN_SCHEMA]}
        offsets = {n: (thrift.I64, chunk.metadata[n][1] + moved) for n in PAGE_OFFSETS if n in chunk.metadata}
        new = {**entry, ColumnChunk.META_DATA: (thrift.STRUCT, {**chunk.metadata, **path, **offsets})}
        if entry[ColumnChunk.FILE_OFFSET][1]:
            new[ColumnChunk.FILE_OFFSET] = thrift.I64, chunk.start + moved
        for fields in (chunk_layout.COLUMN_INDEX, chunk_layout.OFFSET_INDEX):
            offset, length = fields
            if offset in entry:
                index = bytes(nulls.buffer.slice(entry[offset][1], entry[length][1]))
                is_offsets = fields == chunk_layout.OFFSET_INDEX
                self._indexes.append((fields, new, moved_index(index, chunk, moved) if is_offsets else index))
        return new

    def indexes(self) -> Iterator[bytes]:
        """The page indexes of the new chunks, whose places are put into the entries of the chunks."""
        for fields in (chunk_layout.COLUMN_INDEX, chunk_layout.OFFSET_INDEX):
            for (offset, length), entry, index in (kept for kept in self._indexes if kept[0] == fields):
                entry[offset], entry[length] = (thrift.I64, self.at), (thrift.I32, len(index))
                self.at += len(index)
                yield index
