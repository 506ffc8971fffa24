"""Text that a file keeps in dictionaries is read, patched and written as numbers of their values.

To decode such a column is to make a text for every row, to encode it to look up every one of them again: 17 ms of CPU
time for 200,000 rows of fifty cities, where the numbers take 4. Of a large dictionary PyArrow looks up every value when
it is read and when it is written: then text is cheaper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.rewrite.encodings import DICTIONARY, data_encodings
from fsspeckit.core.rewrite.patch import patched
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.common import leaf_indexes
from fsspeckit.core.values import arrays

# Rows for each value, below which text is cheaper.
_ROWS_PER_VALUE = 16


@dataclass(frozen=True, slots=True)
class NumberedText:
    """The columns of a file that can be read as numbers into dictionaries, and the size of each dictionary."""

    sizes: dict[tuple[str, int], int]

    @classmethod
    def of(cls, source: Any, footer: thrift.Struct, file: pq.ParquetFile, groups: Collection[int]) -> NumberedText:
        """Columns of text or bytes all of whose pages, in these row groups, go by a small dictionary."""
        schema, metadata = file.schema_arrow, file.metadata
        chunks = {group: thrift.structs(thrift.structs(footer, spans.ROW_GROUPS)[group], 1) for group in groups}
        rows = {group: metadata.row_group(group).num_rows for group in groups}
        sizes: dict[tuple[str, int], int] = {}
        for name, leaf in leaf_indexes(schema, metadata.num_columns).items():
            if _is_text(schema.field(name).type) and "." not in name:  # PyArrow would take it for a path
                of_column = {group: _dictionary_size(source, chunks[group][leaf]) for group in groups}
                if all(size and size * _ROWS_PER_VALUE <= rows[group] for group, size in of_column.items()):
                    sizes |= {(name, group): size for group, size in of_column.items()}
        return cls(sizes)

    @property
    def columns(self) -> list[str]:
        return sorted({name for name, _ in self.sizes})

    def were_read(self, group: int, columns: Mapping[str, pa.ChunkedArray]) -> bool:
        """Can the numbers be relied upon?

        PyArrow numbers the *distinct* values of a dictionary: if one stands there twice, as damage may have it, the
        numbers in the pages mean others.
        """
        sizes = {name: size for (name, of), size in self.sizes.items() if of == group and name in columns}
        dictionaries = [(columns[name].chunks, size) for name, size in sizes.items()]
        return all(len(chunks) == 1 and len(chunks[0].dictionary) == size for chunks, size in dictionaries)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(t.is_string(dtype) or t.is_binary(dtype))


def _dictionary_size(source: Any, entry: thrift.Struct) -> int:
    """How many values the dictionary of a chunk has; 0 if a page of it does without."""
    chunk = spans.Chunk.of(entry)
    encodings = data_encodings(chunk.metadata)
    if not encodings or not encodings <= DICTIONARY:
        return 0
    return spans.dictionary_size(spans.reader_of(source), chunk)


def is_numbered(column: pa.ChunkedArray | None, dtype: pa.DataType) -> TypeGuard[pa.ChunkedArray]:
    return column is not None and column.type == pa.dictionary(pa.int32(), dtype)


def patched_numbers(old: pa.ChunkedArray, positions: Any, new: pa.ChunkedArray) -> pa.ChunkedArray:
    """`old` with the values `new` at ascending positions, and a dictionary of just the values that are there."""
    old, new = old.chunk(0), arrays.one_array(new)
    dictionary = old.dictionary
    numbers = pc.index_in(new, dictionary)
    if numbers.null_count > new.null_count:
        unknown = new.filter(pc.and_(new.is_valid(), numbers.is_null())).unique()
        dictionary = pa.concat_arrays([dictionary, unknown])
        numbers = pc.index_in(new, dictionary)
    rows = arrays.one_array(patched(pa.chunked_array([old.indices]), positions, pa.chunked_array([numbers])))
    used = np.bincount(rows.drop_null().to_numpy(), minlength=len(dictionary)) > 0
    if not used.all():  # what no row has any more must not stay in the file
        renumbered = pa.array(np.cumsum(used) - 1, pa.int32())
        rows, dictionary = renumbered.take(rows), dictionary.filter(pa.array(used))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(rows, dictionary)])
