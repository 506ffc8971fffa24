"""Dictionaries of column chunks: which columns can be read as indices, and which dictionaries may hold stale values.

Text that a file stores in dictionaries is read, patched and written as indices into them. Decoding such a column makes
one string per row, and encoding it looks up every one of them again: 17 ms of CPU time for 200,000 rows of fifty
cities, where the indices take 4. PyArrow looks up every value of a dictionary when it is read and when it is written,
so for a large dictionary text is cheaper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.chunk_layout import Chunk, chunk_entries, dictionary_size, reader_of
from fsspeckit.core.parquet.format import ColumnMetaData, Encoding
from fsspeckit.core.parquet.metadata_entries import ARROW_SCHEMA
from fsspeckit.core.parquet.schema import leaf_count, leaf_indexes
from fsspeckit.core.parquet.writer_options import DICTIONARY, data_encodings
from fsspeckit.core.values import nested

# With fewer rows per value of a dictionary, text is cheaper.
_ROWS_PER_VALUE = 16
# The dictionaries of these writers have only values of their own row group, if a column is not of an enumeration type.
# PyArrow, Polars and fastparquet store the whole dictionary of such a column in every row group.
_WRITE_OWN_DICTIONARIES = ("parquet-mr", "DuckDB")
_ENUM_OF_DUCKDB = [Encoding.RLE_DICTIONARY]


@dataclass(frozen=True, slots=True)
class DictionaryColumns:
    """The columns of a file that can be read as dictionary indices: `sizes` of dictionaries by column and row group."""

    sizes: Mapping[tuple[str, int], int]

    @classmethod
    def of(cls, source: Any, footer: thrift.Struct, file: pq.ParquetFile, groups: Collection[int]) -> DictionaryColumns:
        """Columns of text or bytes, if all of their pages in these row groups use a small dictionary."""
        schema, metadata = file.schema_arrow, file.metadata
        chunks = {group: chunk_entries(footer, group) for group in groups}
        rows = {group: metadata.row_group(group).num_rows for group in groups}
        sizes: dict[tuple[str, int], int] = {}
        for name, leaf in leaf_indexes(schema, metadata.num_columns).items():
            dtype = schema.field(name).type
            if (t.is_string(dtype) or t.is_binary(dtype)) and "." not in name:  # PyArrow takes a dot for a path
                of_column = {group: _dictionary_size(source, chunks[group][leaf]) for group in groups}
                if all(size and size * _ROWS_PER_VALUE <= rows[group] for group, size in of_column.items()):
                    sizes |= {(name, group): size for group, size in of_column.items()}
        return cls(sizes)

    @property
    def names(self) -> list[str]:
        return sorted({name for name, _ in self.sizes})

    def is_as_stored(self, group: int, table: pa.Table) -> bool:
        """Do the dictionaries that PyArrow read have the sizes that the file stores?

        PyArrow drops duplicates from a dictionary. If damage duplicated a value, the indices mean other values.
        """
        sizes = {name: size for (name, g), size in self.sizes.items() if g == group and name in table.column_names}
        dictionaries = [(table.column(name).chunks, size) for name, size in sizes.items()]
        return all(len(chunks) == 1 and len(chunks[0].dictionary) == size for chunks, size in dictionaries)


def _dictionary_size(source: Any, entry: thrift.Struct) -> int:
    """The number of values in the dictionary of a chunk; 0 if one of its pages does not use the dictionary."""
    chunk = Chunk.of(entry)
    encodings = data_encodings(chunk.metadata)
    return dictionary_size(reader_of(source), chunk) if encodings and encodings <= DICTIONARY else 0


def shared_dictionaries(footer: thrift.Struct, metadata: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    """The columns whose dictionaries may hold values of other row groups. A deleted value would stay in them."""
    if ARROW_SCHEMA in (metadata.metadata or {}):
        return [column.name for column in schema if nested.contains(column.type, t.is_dictionary)]
    created_by = metadata.created_by or ""
    may_share = _may_be_enum if created_by.startswith(_WRITE_OWN_DICTIONARIES) else _uses_dictionary
    chunks = (chunk_entries(footer, group) for group in range(metadata.num_row_groups))
    shared = {leaf for entries in chunks for leaf, entry in enumerate(entries) if may_share(Chunk.of(entry).metadata)}
    names, leaf = [], 0
    for column in schema:
        leaves = range(leaf, leaf + leaf_count(column.type))
        if not shared.isdisjoint(leaves):
            names.append(column.name)
        leaf = leaves.stop
    return names


def _uses_dictionary(chunk: thrift.Struct) -> bool:
    encodings = chunk[ColumnMetaData.ENCODINGS][1][1]
    return ColumnMetaData.DICTIONARY_PAGE_OFFSET in chunk or not DICTIONARY.isdisjoint(encodings)


def _may_be_enum(chunk: thrift.Struct) -> bool:
    """May it be a chunk of DuckDB's ENUM? Such a chunk has this one encoding, and no bloom filter.

    Text has an older encoding in files of version 1, and a bloom filter unless it was switched off.
    """
    encodings = chunk[ColumnMetaData.ENCODINGS][1][1]
    return encodings == _ENUM_OF_DUCKDB and ColumnMetaData.BLOOM_FILTER_OFFSET not in chunk
