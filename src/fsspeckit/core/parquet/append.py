"""Add columns of nulls to a file: its bytes are copied as they are, and the new chunks come behind them.

No byte of the old chunks, page indexes and bloom filters moves, so their offsets in the footer stay true, and nothing
of them is read. Any file that PyArrow can open can get a column in this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, NotSpliceable, metadata_of, with_metadata
from fsspeckit.core.parquet.chunk_writer import TOTALS, ChunkWriter, Encoded, FileOrigin, Piece, encode
from fsspeckit.core.parquet.footer_override import with_entries
from fsspeckit.core.parquet.format import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from fsspeckit.core.parquet.layout import Layout
from fsspeckit.core.parquet.writer_options import codec_of
from fsspeckit.core.storage import Storage
from fsspeckit.core.values import arrays
from fsspeckit.core.values.schema import plain_schema


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
    layout, encoded = Layout(schema, schema, _options(groups, old.metadata)), dict[int, Encoded]()
    with _AppendedFile(storage, path, final, old) as writer:
        new_groups = []
        for group in groups:
            rows = thrift.field(group, RowGroup.NUM_ROWS, thrift.I64)
            if rows not in encoded:
                nulls = [arrays.null_array(rows, field.type) for field in schema]
                encoded[rows] = encode(layout, pa.table(nulls, schema=schema))
            new_groups.append(writer.add_nulls(group, encoded[rows]))
        return writer.close({**footer, FileMetaData.ROW_GROUPS: thrift.struct_list(new_groups)}, entries), writer.copied


def _options(groups: Sequence[thrift.Struct], old: pq.FileMetaData) -> dict[str, Any]:
    """The codec of the file, and whether its chunks have statistics and page indexes.

    They come from the largest row group: one without rows has none.
    """
    largest = max(groups, key=lambda group: group[RowGroup.NUM_ROWS][1], default=None)
    chunks = [] if largest is None else thrift.structs(largest, RowGroup.COLUMNS)[: old.num_columns]
    return {
        "compression": codec_of(old),
        "use_dictionary": False,
        "store_schema": False,
        "version": "2.6",
        "write_statistics": any(ColumnMetaData.STATISTICS in metadata_of(chunk) for chunk in chunks),
        "write_page_index": any(ColumnChunk.OFFSET_INDEX_OFFSET in chunk for chunk in chunks),
    }


class _AppendedFile(ChunkWriter):
    """The bytes of an old file without its footer, and new chunks behind them."""

    _first_bytes = b""

    def __init__(self, storage: Storage, path: str, final: str, old: AppendedTo) -> None:
        super().__init__(storage, path, final)
        self._put(FileOrigin.of(storage, old.file), 0, old.end)
        self.copied = old.end

    def add_nulls(self, group: thrift.Struct, nulls: Encoded) -> thrift.Struct:
        """A row group whose last chunks are replaced by the encoded nulls."""
        encoded = thrift.structs(nulls.footer(), FileMetaData.ROW_GROUPS)
        if len(encoded) != 1:
            raise NotSpliceable("PyArrow splits a row group of that many rows")
        entries, chunks = thrift.structs(encoded[0], RowGroup.COLUMNS), thrift.structs(group, RowGroup.COLUMNS)
        kept, described = chunks[: -len(entries)], chunks[-len(entries) :]
        new = [self._add(nulls, entry, like) for entry, like in zip(entries, described, strict=True)]
        totals = {
            number: (thrift.I64, group[number][1] + sum(metadata_of(entry)[size][1] for entry in new))
            for number, size in TOTALS
            if number in group
        }
        return {**group, **totals, RowGroup.COLUMNS: thrift.struct_list([*kept, *new])}

    def _add(self, nulls: Encoded, entry: thrift.Struct, described: thrift.Struct) -> thrift.Struct:
        wanted = metadata_of(described)
        if metadata_of(entry)[ColumnMetaData.TYPE] != wanted[ColumnMetaData.TYPE]:
            raise NotSpliceable("A column is stored in another physical type than PyArrow's")
        path = {ColumnMetaData.PATH_IN_SCHEMA: wanted[ColumnMetaData.PATH_IN_SCHEMA]}
        return self._place(Piece(nulls, Chunk.of(with_metadata(entry, path))))

    def close(self, footer: thrift.Struct, entries: Mapping[str, str]) -> int:
        """Write page indexes and the footer with entries added to it. Returns the size of the file."""
        return self._finish(lambda: with_entries(footer, entries))
