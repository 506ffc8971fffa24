"""Write one file from the row groups of several: large row groups are copied as bytes, others are encoded.

A row group can be copied if its file has the schema, the codecs, the writer and the column orders of the new file.
Readers decide by the writer's name which statistics and pages they trust, so a file has row groups of one writer, and
those that are encoded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from fsspeckit.core.errors import LayoutError
from fsspeckit.core.parquet import chunk_layout, thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, NotSpliceable
from fsspeckit.core.parquet.chunk_writer import ChunkWriter, Encoded, FileOrigin, Piece
from fsspeckit.core.parquet.footer_override import with_paths
from fsspeckit.core.parquet.format import ColumnMetaData, FileMetaData, RowGroup, SchemaElement
from fsspeckit.core.parquet.layout import Layout
from fsspeckit.core.parquet.metadata_entries import NewValues, differing_entry
from fsspeckit.core.parquet.splice import OldFile
from fsspeckit.core.parquet.statistics import lacks_bounds, leaves_without_bounds, with_safe_bounds, without_bounds
from fsspeckit.core.storage import Storage

_ROOT_NAME = {SchemaElement.NAME: (thrift.BINARY, b"")}
# The fields of a footer that files must share for their row groups to be copied into one file.
_SHARED = (FileMetaData.COLUMN_ORDERS, FileMetaData.CREATED_BY)
# A row group has its number in 16 bits.
MAX_ROW_GROUPS = 1 << 15
# A file is synced whenever it has grown by this many bytes, so that the disk writes while the next ones are encoded.
_SYNC_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Template:
    """The footer of the file whose layout a joined file gets; `codecs` are those of its largest row group."""

    footer: thrift.Struct
    codecs: tuple[int, ...]

    @classmethod
    def of(cls, footer: thrift.Struct, metadata: pq.FileMetaData, layout: Layout) -> Template:
        """From the decoded footer of a file, with the schema of the layout, which may have more nullable columns."""
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        schema = footer[FileMetaData.SCHEMA] if layout.override is None else layout.override.schema
        codecs = _codecs(footer, rows.index(max(rows))) if rows else ()
        return cls({**footer, FileMetaData.SCHEMA: schema}, codecs)

    @property
    def copies(self) -> bool:
        """Can row groups be copied at all? fastparquet reads a column with dictionaries everywhere, or nowhere."""
        writer = self.footer.get(FileMetaData.CREATED_BY, (thrift.BINARY, b""))[1]
        return bool(self.codecs) and not writer.startswith(b"fastparquet")

    def check_copyable(self, footer: thrift.Struct, group: int) -> None:
        """`NotSpliceable` unless a row group of the file with this footer fits into a file of this template."""
        if not self.copies:
            raise NotSpliceable("Files of this writer are encoded whole")
        if _elements(footer) != _elements(self.footer):
            raise NotSpliceable("It has another Parquet schema")
        if any(footer.get(field) != self.footer.get(field) for field in _SHARED):
            raise NotSpliceable("It has another writer or other column orders")
        if _codecs(footer, group) != self.codecs:
            raise NotSpliceable("It has other codecs")


def _elements(footer: thrift.Struct) -> list[thrift.Struct]:
    """The schema elements; the name of the root is the writer's own, and no reader uses it."""
    root, *columns = thrift.structs(footer, FileMetaData.SCHEMA)
    return [{**root, **_ROOT_NAME}, *columns]


def _codecs(footer: thrift.Struct, group: int) -> tuple[int, ...]:
    entries = chunk_layout.chunk_entries(footer, group)
    return tuple(chunk_layout.metadata_of(entry)[ColumnMetaData.CODEC][1] for entry in entries)


def check_row_group(storage: Storage, old: OldFile, group: int) -> None:
    """`NotSpliceable` unless the pages of a row group are where its footer says."""
    origin, seen = FileOrigin.of(storage, old.file), dict[int, tuple[bytes, dict[int, Any]]]()
    for chunk in old.chunks[group]:
        chunk_layout.check_pages(origin.read, chunk, seen)


class JoinedFile(ChunkWriter):
    """A Parquet file with row groups of several files. `template` is `None` if no file has its schema."""

    def __init__(self, storage: Storage, path: str, final: str, layout: Layout, template: Template | None) -> None:
        self._layout, self._template = layout, template
        self._groups: list[thrift.Struct] = []
        self._without_bounds: set[int] = set()
        self._encoded_footer: thrift.Struct | None = None
        self._entries: list[tuple[str, Mapping[bytes, bytes]]] = []
        self._synced = 0
        super().__init__(storage, path, final)

    @property
    def size(self) -> int:
        """The bytes so far, without the footer."""
        return self._at

    @property
    def row_groups(self) -> int:
        return len(self._groups)

    def add_source(self, path: str, entries: Mapping[bytes, bytes]) -> None:
        """Rows of this file follow; its key-value entries must agree with those of the others."""
        if not self._entries or self._entries[-1][0] != path:
            self._entries.append((path, entries))

    def copy_row_group(self, old: OldFile, group: int) -> None:
        """Copy a row group of an open file, which may be closed afterwards. The caller has checked it."""
        origin = FileOrigin.of(self._storage, old.file)
        entry = thrift.structs(old.footer, FileMetaData.ROW_GROUPS)[group]
        rows = thrift.field(entry, RowGroup.NUM_ROWS, thrift.I64)
        self._add([Piece(origin, chunk) for chunk in old.chunks[group]], entry, rows)

    def add_row_group(self, encoded: Encoded) -> None:
        """Add a row group that was encoded with the layout."""
        footer = encoded.footer()
        groups = thrift.structs(footer, FileMetaData.ROW_GROUPS)
        entries = with_safe_bounds(thrift.structs(groups[0], RowGroup.COLUMNS), encoded.nans)
        self._without_bounds |= leaves_without_bounds(encoded.nans)
        self._encoded_footer = footer
        rows = thrift.field(groups[0], RowGroup.NUM_ROWS, thrift.I64)
        self._add([Piece(encoded, Chunk.of(entry)) for entry in self._with_paths(entries)], groups[0], rows)

    def _with_paths(self, entries: Sequence[thrift.Struct]) -> list[thrift.Struct]:
        """With the column paths of the layout's schema, where PyArrow writes others."""
        if self._layout.override is None:
            return list(entries)
        return with_paths(entries, self._layout.override.paths)

    def _add(self, pieces: Sequence[Piece], entry: thrift.Struct, rows: int) -> None:
        unbounded = (leaf for leaf, piece in enumerate(pieces) if lacks_bounds(piece.chunk.metadata))
        self._without_bounds.update(unbounded)  # bounds of some row groups mislead DataFusion: see `statistics`
        self._groups.append(self._place_row_group(pieces, entry, rows, len(self._groups), is_new=False))
        self.rows += rows
        self._flush()
        if self._at - self._synced >= _SYNC_BYTES:
            self._storage.sync_file(self._path)
            self._synced = self._at

    def close(self) -> int:
        """Write page indexes and the footer, and return the size of the file."""
        return self._finish(self._footer)

    def _footer(self) -> thrift.Struct:
        template, override = self._template, self._layout.with_true_entries(NewValues()).override
        self._check_entries()
        own = template.footer if template is not None and self.copied else self._encoded_footer
        assert own is not None, "a joined file has row groups"
        footer = dict(own)
        footer[FileMetaData.NUM_ROWS] = thrift.I64, self.rows
        footer[FileMetaData.ROW_GROUPS] = thrift.struct_list(without_bounds(self._groups, self._without_bounds))
        return footer if override is None else override.replace_fields(footer)

    def _check_entries(self) -> None:
        differing = differing_entry([entries for _, entries in self._entries])
        if differing is not None:
            name, other = differing
            raise different_entries(name, self._entries[0][0], self._entries[other][0])


def different_entries(name: bytes, first: str, second: str) -> LayoutError:
    return LayoutError(
        f"{first} and {second} have different key-value entries {name.decode(errors='replace')!r}, and one file cannot "
        "have both. Remove the entry from the files, or rewrite them; nothing was changed.",
        operation="compact",
    )
