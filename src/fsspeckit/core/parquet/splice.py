"""Write a new file from the bytes of an old one: unchanged column chunks are copied, changed ones are encoded.

Decoding and encoding are most of the cost of a rewrite, and an update rarely changes every column of every row group.
A column chunk holds no offsets: only the footer and the offset index do, and these are written again. So the bytes of
a chunk can be copied to another place in another file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parallel import Pool
from fsspeckit.core.parquet import chunk_layout, thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, NotSpliceable
from fsspeckit.core.parquet.chunk_writer import ChunkWriter, Encoded, FileOrigin, Piece, encode
from fsspeckit.core.parquet.footer_io import with_end
from fsspeckit.core.parquet.format import ColumnMetaData, FileMetaData, RowGroup
from fsspeckit.core.parquet.layout import Layout
from fsspeckit.core.parquet.metadata_entries import NewValues
from fsspeckit.core.parquet.schema import leaf_count
from fsspeckit.core.parquet.statistics import leaves_without_bounds, with_safe_bounds, without_bounds
from fsspeckit.core.storage import Storage

ColumnBatch = Callable[[], Iterable[tuple[Sequence[str], pa.Table]]]
"""Computes columns of a row group: their names in the file's order, and their values."""


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


class SplicedFile(ChunkWriter):
    """A Parquet file with the row groups of an old one, in which some columns are replaced. `close` syncs it."""

    def __init__(self, storage: Storage, path: str, layout: Layout, old: OldFile, final: str, pool: Pool) -> None:
        self._layout, self._old, self._pool = layout, old, pool
        self._origin = FileOrigin.of(storage, old.file)
        self._by_fastparquet = old.created_by.startswith("fastparquet")
        self._seen: chunk_layout.SeenHeaders = {}
        self._old_groups = thrift.structs(old.footer, FileMetaData.ROW_GROUPS)
        self._groups: list[thrift.Struct] = []
        self._orders: dict[int, thrift.Struct] = {}
        self._without_bounds: set[int] = set()
        self._writer = (thrift.BINARY, b"")
        super().__init__(storage, path, final)

    def copy_row_group(self, group: int) -> None:
        """Copy a row group."""
        self._add(group, {}, self._old_rows(group))

    def _old_rows(self, group: int) -> int:
        return int(thrift.field(self._old_groups[group], RowGroup.NUM_ROWS, thrift.I64))

    def replace_columns(self, group: int, batches: Iterable[ColumnBatch], rows: int) -> None:
        """Copy a row group except for the columns in `batches`, which have the layout's plain types.

        Batches are encoded in parallel, one batch per thread at a time. If the number of `rows` changes, the batches
        must have all columns.
        """
        new: dict[int, Piece] = {}
        for encoded in self._pool.map(self._encode, batches):
            for names, columns in encoded:
                new.update(self._new_pieces(group, names, columns))
        assert rows == self._old_rows(group) or len(new) == len(self._old.chunks[group])
        self._add(group, new, rows)

    def _encode(self, batch: ColumnBatch) -> list[tuple[Sequence[str], Encoded]]:
        return [(names, encode(self._layout, columns)) for names, columns in batch()]

    def _add(self, group: int, new: Mapping[int, Piece], rows: int) -> None:
        for leaf, chunk in enumerate(self._old.chunks[group]):
            if leaf not in new:
                chunk_layout.check_pages(self._origin.read, chunk, self._seen)
        pieces = [new.get(leaf) or Piece(self._origin, chunk) for leaf, chunk in enumerate(self._old.chunks[group])]
        old, ordinal = self._old_groups[group], len(self._groups)
        self._groups.append(self._place_row_group(pieces, old, rows, ordinal, is_new=bool(new)))
        self.rows += rows

    def _new_pieces(self, group: int, names: Sequence[str], encoded: Encoded) -> dict[int, Piece]:
        footer = encoded.footer()
        leaves = [leaf for name in names for leaf in self._old.leaves[name]]
        groups = thrift.structs(footer, FileMetaData.ROW_GROUPS)
        if len(groups) != 1:
            raise NotSpliceable("PyArrow splits a row group of that many rows")
        orders = thrift.structs(footer, FileMetaData.COLUMN_ORDERS) if FileMetaData.COLUMN_ORDERS in footer else []
        self._orders.update(zip(leaves, orders, strict=False))
        self._writer = footer[FileMetaData.CREATED_BY]
        pieces = {}
        replaced = [self._old.chunks[group][leaf] for leaf in leaves]
        old_entries = [old.entry for old in replaced]
        entries = with_safe_bounds(thrift.structs(groups[0], RowGroup.COLUMNS), encoded.nans, old_entries)
        self._without_bounds.update(leaves[i] for i in leaves_without_bounds(encoded.nans, old_entries))
        for leaf, old, entry in zip(leaves, replaced, entries, strict=True):
            chunk = Chunk.of(entry)
            new_type, old_type = chunk.metadata[ColumnMetaData.TYPE], old.metadata[ColumnMetaData.TYPE]
            if new_type != old_type:  # some readers refuse a column with two physical types
                raise NotSpliceable(f"A column would be stored as two physical types, {new_type[1]} is new")
            self._check_dictionary(old, chunk)
            path = {ColumnMetaData.PATH_IN_SCHEMA: old.metadata[ColumnMetaData.PATH_IN_SCHEMA]}
            pieces[leaf] = Piece(encoded, Chunk.of(chunk_layout.with_metadata(entry, path)))
        return pieces

    def _check_dictionary(self, old: Chunk, new: Chunk) -> None:
        if self._by_fastparquet and ColumnMetaData.DICTIONARY_PAGE_OFFSET in old.metadata.keys() - new.metadata.keys():
            raise NotSpliceable("fastparquet reads a column with dictionaries in all row groups, or in none")

    def close(self, *, in_order: bool, changed: Collection[str]) -> int:
        """Write page indexes and the footer, and return the size of the file.

        Sorting columns are kept if rows are still `in_order`; key-value entries about `changed` columns are dropped.
        """
        return self._finish(lambda: self._footer(in_order, NewValues(changed, self.rows)))

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


def copy_with_footer(storage: Storage, file: Any, end: int, footer: bytes, path: str, final: str) -> int:
    """Copy an open file, whose footer begins at `end`, with another raw footer. Returns the size of the new file.

    Pages keep their offsets, so nothing else in the footer has to change.
    """
    raw = with_end(footer)
    with storage.open_output(path, final) as sink:
        storage.copy_range(file, sink, 0, end)
        sink.write(raw)
    storage.sync_file(path)
    return end + len(raw)
