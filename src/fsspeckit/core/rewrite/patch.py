"""New columns of a row group: some rows replaced, some deleted, the others copied once.

Concatenating old and new values and taking them in order costs several times as much: of 200,000 rows a copy with some
places overwritten took 0.1 ms where that took 0.6, the bytes of text joined 0.3 ms where that took 1.2. Thousands of
pieces take as long, and beyond that Python's collector goes through them: 7 ms of a merge.

Text that a file keeps in dictionaries is read, patched and written as indices into them. To decode such a column is to
make a text for every row, to encode it to look up every one of them again: 17 ms of CPU time for 200,000 rows of fifty
cities, where the indices take 4. Of a large dictionary PyArrow looks up every value when it is read and when it is
written: then text is cheaper.
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

from fsspeckit.core.parquet import chunk_layout, thrift
from fsspeckit.core.parquet.schema import leaf_indexes
from fsspeckit.core.parquet.writer_options import DICTIONARY, data_encodings
from fsspeckit.core.values import arrays

# From so many rows between replaced ones on, on average, pieces are quicker than `take`.
_LONG_PIECES = 400
_OFFSETS_END = 2**31 - 1
# Rows for each value of a dictionary, below which text is cheaper.
_ROWS_PER_VALUE = 16


def patched(old: pa.ChunkedArray, positions: Any, new: pa.ChunkedArray) -> pa.ChunkedArray:
    """`old` with the values `new`, of the same type, at ascending positions."""
    if len(positions) == len(old):
        return new
    if not len(positions):
        return old
    if old.num_chunks == 1 and (_has_fixed_width(old.type) or t.is_boolean(old.type)):
        return pa.chunked_array([_overwritten(old.chunk(0), positions, arrays.one_array(new))])
    if old.num_chunks == 1 and old.nbytes + new.nbytes < _OFFSETS_END:
        cuts = np.flatnonzero(np.diff(positions) != 1) + 1
        if _LONG_PIECES * len(cuts) < len(old):
            is_text = arrays.family(old.type) in ("text", "binary") and not t.is_fixed_size_binary(old.type)
            put = _joined if is_text else _in_slices
            return pa.chunked_array([put(old.chunk(0), positions, cuts, arrays.one_array(new))])
    order = np.arange(len(old), dtype=np.int64)
    order[positions] = len(old) + np.arange(len(positions))
    return pa.chunked_array([*old.chunks, *new.chunks], old.type).take(pa.array(order))


def without_rows(column: pa.ChunkedArray, deleted: Any) -> pa.ChunkedArray:
    """A column without the values at some positions."""
    return column.filter(pa.array(_kept(len(column), deleted))) if len(deleted) else column


def _kept(rows: int, deleted: Any) -> Any:
    kept = np.ones(rows, dtype=bool)
    kept[np.asarray(deleted, dtype=np.int64)] = False
    return kept


def _has_fixed_width(dtype: pa.DataType) -> bool:
    """Whole bytes per value in one buffer: not bits, not extensions."""
    flat = t.is_primitive(dtype) or t.is_decimal(dtype) or t.is_fixed_size_binary(dtype)
    return bool(flat) and not t.is_boolean(dtype) and not t.is_null(dtype) and dtype.bit_width > 0


def _overwritten(old: pa.Array, positions: Any, new: pa.Array) -> pa.Array:
    if t.is_boolean(old.type):
        bits = _bits(old)
        bits[positions] = _bits(new)
        return pa.Array.from_buffers(old.type, len(old), [_mask(old, positions, new), _packed(bits)])
    width = old.type.bit_width // 8
    data = arrays.allocate(len(old) * width, np.uint8)
    values = _as_numbers(data, width)
    values[:] = _values(old, width)
    values[positions] = _values(new, width)
    return pa.Array.from_buffers(old.type, len(old), [_mask(old, positions, new), pa.py_buffer(data)])


def _joined(old: pa.Array, positions: Any, cuts: Any, new: pa.Array) -> pa.Array:
    """Text or bytes: runs of new values, and what stands between them, byte by byte."""
    before, after = _offsets(old), _offsets(new)
    lengths = np.diff(before)
    lengths[positions] = np.diff(after)
    offsets = np.zeros_like(before)
    np.cumsum(lengths, out=offsets[1:])
    starts, ends = np.append(0, cuts), np.append(cuts, len(positions))
    runs = (before[positions[starts]], before[positions[ends - 1] + 1], after[starts], after[ends])
    old_bytes, new_bytes = (memoryview(array.buffers()[2] or b"") for array in (old, new))
    pieces, at = [], int(before[0])
    for begin, end, new_begin, new_end in zip(*(numbers.tolist() for numbers in runs), strict=True):
        pieces += [old_bytes[at:begin], new_bytes[new_begin:new_end]]
        at = end
    data = b"".join([*pieces, old_bytes[at : int(before[-1])]])
    buffers = [_mask(old, positions, new), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(old.type, len(old), buffers)


def _offsets(array: pa.Array) -> Any:
    large = t.is_large_string(array.type) or t.is_large_binary(array.type)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64 if large else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def _mask(old: pa.Array, positions: Any, new: pa.Array) -> pa.Buffer | None:
    """Which values are not null."""
    if not old.null_count and not new.null_count:
        return None
    valid = _is_valid(old)
    valid[positions] = _is_valid(new)
    return _packed(valid)


def _packed(bits: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _bits(array: pa.Array) -> Any:
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return np.unpackbits(data, count=array.offset + len(array), bitorder="little")[array.offset :]


def _values(array: pa.Array, width: int) -> Any:
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    return _as_numbers(data[array.offset * width : (array.offset + len(array)) * width], width)


def _as_numbers(data: Any, width: int) -> Any:
    return data.view(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")


def _is_valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False).copy()


def _in_slices(old: pa.Array, positions: Any, cuts: Any, new: pa.Array) -> pa.Array:
    """Runs of new values, and what stands between them."""
    pieces, at = [], 0
    starts, ends = np.concatenate([[0], cuts]).tolist(), np.concatenate([cuts, [len(positions)]]).tolist()
    for start, end in zip(starts, ends, strict=True):
        place = int(positions[start])
        pieces += [old.slice(at, place - at), new.slice(start, end - start)]
        at = place + end - start
    return pa.concat_arrays([*pieces, old.slice(at)])


# -- text in dictionaries


@dataclass(frozen=True, slots=True)
class DictionaryText:
    """The columns of a file that can be read as indices into dictionaries, and the size of each dictionary."""

    sizes: dict[tuple[str, int], int]

    @classmethod
    def of(cls, source: Any, footer: thrift.Struct, file: pq.ParquetFile, groups: Collection[int]) -> DictionaryText:
        """Columns of text or bytes all of whose pages, in these row groups, go by a small dictionary."""
        schema, metadata = file.schema_arrow, file.metadata
        chunks = {group: chunk_layout.chunk_entries(footer, group) for group in groups}
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

    def is_as_stored(self, group: int, columns: Mapping[str, pa.ChunkedArray]) -> bool:
        """Have the dictionaries the size that the file says?

        PyArrow counts the *distinct* values of a dictionary. If one is there twice, as damage may have it, indices in
        the pages mean other values.
        """
        sizes = {name: size for (name, of), size in self.sizes.items() if of == group and name in columns}
        dictionaries = [(columns[name].chunks, size) for name, size in sizes.items()]
        return all(len(chunks) == 1 and len(chunks[0].dictionary) == size for chunks, size in dictionaries)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(t.is_string(dtype) or t.is_binary(dtype))


def _dictionary_size(source: Any, entry: thrift.Struct) -> int:
    """How many values the dictionary of a chunk has; 0 if a page of it does without."""
    chunk = chunk_layout.Chunk.of(entry)
    encodings = data_encodings(chunk.metadata)
    if not encodings or not encodings <= DICTIONARY:
        return 0
    return chunk_layout.dictionary_size(chunk_layout.reader_of(source), chunk)


def is_dictionary(column: pa.ChunkedArray | None, dtype: pa.DataType) -> TypeGuard[pa.ChunkedArray]:
    return column is not None and column.type == pa.dictionary(pa.int32(), dtype)


def patched_dictionary(
    old: pa.ChunkedArray, positions: Any, new: pa.ChunkedArray, deleted: Any = ()
) -> pa.ChunkedArray:
    """`old` with the values `new` at ascending positions, without the `deleted` rows.

    The dictionary has just the values that are left: what no row has any more must not stay in the file.
    """
    old, new = old.chunk(0), arrays.one_array(new)
    dictionary = old.dictionary
    indices = pc.index_in(new, dictionary)
    if indices.null_count > new.null_count:
        unknown = new.filter(pc.and_(new.is_valid(), indices.is_null())).unique()
        dictionary = pa.concat_arrays([dictionary, unknown])
        indices = pc.index_in(new, dictionary)
    column = patched(pa.chunked_array([old.indices]), positions, pa.chunked_array([indices]))
    rows = arrays.one_array(without_rows(column, deleted))
    used = np.bincount(rows.drop_null().to_numpy(), minlength=len(dictionary)) > 0
    if not used.all():
        new_indices = pa.array(np.cumsum(used) - 1, pa.int32())
        rows, dictionary = new_indices.take(rows), dictionary.filter(pa.array(used))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(rows, dictionary)])
