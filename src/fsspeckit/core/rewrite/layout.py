"""A file's layout: what the writer has to be told so that a rewritten file is laid out like the old one.

`Layout.like` reads it off an existing file and makes sure, by writing no rows into memory, that the physical type
and the levels of every leaf come out the same; what cannot be reproduced is a `LayoutError`, never a silent change.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.errors import LayoutError
from fsspeckit.core.model import Footer, WriteOptions
from fsspeckit.core.rewrite.encodings import encoding_options, repeats
from fsspeckit.core.rewrite.graft import Graft
from fsspeckit.core.target import thrift
from fsspeckit.core.target.common import leaf_count
from fsspeckit.core.values import arrays, schema
from fsspeckit.core.values.calendars import flags

# The widest decimal whose minimal fixed length is n bytes.
_DECIMAL_DIGITS = {n: len(str(2 ** (8 * n - 1) - 1)) - 1 for n in range(1, 33)}
# Of ColumnChunk and ColumnMetaData in parquet.thrift: field numbers, and the writer's names of codecs
_ROW_GROUPS, _COLUMNS, _META_DATA, _OFFSET_INDEX, _CODEC, _BLOOM_FILTER = 4, 1, 3, 4, 4, 14
_CODECS = ("NONE", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4")


@dataclass(frozen=True)
class Layout:
    """`rows` are the plain columns of the file; `storage` is what the Parquet writer is given for them."""

    rows: pa.Schema
    storage: pa.Schema
    options: Mapping[str, Any]
    graft: Graft | None = None

    @classmethod
    def new(cls, columns: pa.Schema, options: WriteOptions) -> Layout:
        """The layout of a file that has no model: Arrow's own."""
        rows = schema.plain_schema(columns)
        fields = [field if _encodes(field.type) else plain for field, plain in zip(columns, rows, strict=True)]
        return cls(rows, pa.schema(fields, columns.metadata), {"compression": options.compression})

    @classmethod
    def like(cls, footer: Footer, fields: thrift.Whole, *, loose: bool = False) -> Layout:
        """The layout of an existing file, whose raw footer is `fields`, decoded.

        `loose` if nulls come in that the file does not mean to exclude.
        """
        old, graft = footer.metadata, Graft.of(fields)
        assert old is not None
        if loose:
            footer, graft = replace(footer, schema=schema.declared(footer)), graft.loosened()
        words = footer.schema.serialize().to_pybytes() + thrift.encode({1: graft.schema}, fields)
        stored = _stored_like(_Schema(words, footer.schema, old.schema, graft))
        if stored.problem is not None:
            raise LayoutError(
                f"{footer.path}: cannot be rewritten with its Parquet schema unchanged: {stored.problem}. "
                "Convert the file to a common layout first; nothing was changed.",
                operation="rewrite",
                path=footer.path,
            )
        options = {**stored.flags, **_column_options(old, fields, stored.paths)}
        if kept := options.get("column_encoding"):  # PyArrow reads no dictionaries out of delta encodings
            categories = {field.name for field in footer.schema if t.is_dictionary(field.type)}
            options["column_encoding"] = {path: e for path, e in kept.items() if path not in categories} or None
        return cls(stored.rows, stored.storage, options, graft)

    def sampled(self, rows: pa.Table) -> Layout:
        """With dictionaries where they will pay, by a sample of rows, if there was no file to learn it from."""
        if self.graft is not None or "use_dictionary" in self.options:
            return self
        paths = iter(leaf.path for leaf in _written_leaves(self.storage, {}))
        dictionaries = []
        for field in self.storage:
            leaves = [next(paths) for _ in range(leaf_count(field.type))]
            if t.is_nested(field.type) or repeats(rows.column(field.name)):
                dictionaries += leaves
        return replace(self, options={**self.options, "use_dictionary": dictionaries})

    def compressed(self, options: WriteOptions) -> Layout:
        """The same columns in a new file, compressed as asked for."""
        kept = {k: v for k, v in self.options.items() if k != "sorting_columns"}
        return replace(self, options={**kept, "compression": options.compression})

    def today(self) -> Layout:
        """For rows that are new: not in the calendar of old, if the model was."""
        return self if self.graft is None else replace(self, graft=self.graft.without(flags(self.graft.entries)))

    def with_metadata_of(self, other: Layout, codec: str) -> Layout:
        """These columns, with the codec and the key-value metadata of another file."""
        index = other.options.get("write_page_index", False)
        graft = self.graft and other.graft and self.graft.with_metadata_of(other.graft)
        kept = {k: v for k, v in self.options.items() if k != "sorting_columns"}
        return replace(self, options={**kept, "compression": codec, "write_page_index": index}, graft=graft)

    def stamped(self, entries: Mapping[str, str]) -> Layout:
        """The same with entries added to the file's key-value metadata."""
        if not entries:
            return self
        if self.graft is not None:
            return replace(self, graft=self.graft.stamped(entries))
        return replace(self, storage=self.storage.with_metadata({**(self.storage.metadata or {}), **entries}))

    def holds(self, table: pa.Table) -> bool:
        """Is there no null where the file may have none?"""
        columns = zip((table.column(f.name) for f in self.rows), self.rows, strict=True)
        return all((f.nullable or not c.null_count) and _fits(c, f.type) for c, f in columns)

    def store(self, table: pa.Table) -> pa.Table:
        """Plain columns, all or some, in the types that the writer is given; numbered text stays as it is."""
        present = set(table.column_names)
        fields = [f for f in self.storage if f.name in present]
        columns = [_stored(table.column(f.name), f.type) for f in fields]
        fields = [f.with_type(column.type) for f, column in zip(fields, columns, strict=True)]
        return pa.table(columns, schema=pa.schema(fields, self.storage.metadata))


@dataclass(frozen=True, slots=True)
class _Schema:
    """The schema of a file, as Arrow has it and in its own words; `words` have all that tells it from others."""

    words: bytes
    columns: pa.Schema = dataclasses.field(compare=False)
    leaves: pq.ParquetSchema = dataclasses.field(compare=False)
    graft: Graft = dataclasses.field(compare=False)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the writer has to be told for a schema: `paths` are its leaves; or the `problem` with it."""

    rows: pa.Schema
    storage: pa.Schema
    flags: Mapping[str, Any]
    paths: tuple[str, ...]
    problem: str | None


@lru_cache(maxsize=8)
def _stored_like(known: _Schema) -> _Stored:
    """Files of one data set have few schemas, and of each of hundreds of columns it takes milliseconds."""
    physical = [known.leaves.column(i) for i in range(len(known.leaves.names))]
    flags = _flags(physical)
    rows = schema.plain_schema(known.columns)
    storage = _storage_schema(rows, physical)
    written = _written_leaves(storage, flags)
    paths = tuple(leaf.path for leaf in written)
    return _Stored(rows, storage, flags, paths, _problem(physical, written, known.graft.levels))


def _flags(physical: Sequence[pq.ColumnSchema]) -> dict[str, Any]:
    return {
        "version": "2.6",
        "use_deprecated_int96_timestamps": any(c.physical_type == "INT96" for c in physical),
        "store_decimal_as_integer": any(_is_integer_decimal(c) for c in physical),
    }


def _is_integer_decimal(column: pq.ColumnSchema) -> bool:
    return column.logical_type.type == "DECIMAL" and column.physical_type in ("INT32", "INT64")


def _storage_schema(rows: pa.Schema, physical: Sequence[pq.ColumnSchema]) -> pa.Schema:
    """Plain types, except where the writer would choose another physical type for a flat column."""
    fields, leaf = [], 0
    mixed = any(c.physical_type == "INT96" for c in physical)
    for column in rows:
        dtype = column.type
        width = leaf_count(dtype)
        if not t.is_nested(dtype) and leaf < len(physical):
            dtype = _storage_type(dtype, physical[leaf], mixed)
        leaf += width
        fields.append(pa.field(column.name, dtype, column.nullable))
    return pa.schema(fields)


def _storage_type(dtype: pa.DataType, leaf: pq.ColumnSchema, mixed_timestamps: bool) -> pa.DataType:
    if t.is_timestamp(dtype) and leaf.physical_type == "INT64" and mixed_timestamps:
        return pa.int64()
    if t.is_decimal(dtype) and leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
        digits = _DECIMAL_DIGITS.get(leaf.length, 0)
        if digits >= dtype.precision:
            return pa.decimal128(digits, dtype.scale) if digits <= 38 else pa.decimal256(digits, dtype.scale)
    if dtype == pa.uint32() and leaf.physical_type == "INT64":
        return pa.int64()
    return dtype


def _written_leaves(storage: pa.Schema, flags: Mapping[str, Any]) -> list[pq.ColumnSchema]:
    buffer = io.BytesIO()
    pq.ParquetWriter(buffer, storage, store_schema=False, **flags).close()
    written = pq.ParquetFile(buffer).schema
    return [written.column(i) for i in range(len(written.names))]


def _problem(
    old: Sequence[pq.ColumnSchema], new: Sequence[pq.ColumnSchema], levels: Sequence[tuple[int, int]]
) -> str | None:
    """The pages that the writer makes of `new` are to stand beneath the schema of `old`, with these levels."""
    if not len(old) == len(new) == len(levels):
        return f"{len(old)} leaf columns, of which the writer would make {len(new)}"
    leaves = zip(old, new, levels, strict=True)
    wrong = next((o for o, n, both in leaves if (_physical(o), both) != (_physical(n), _levels(n))), None)
    return None if wrong is None else f"column {wrong.path!r} ({wrong.physical_type}, {wrong.logical_type})"


def _physical(leaf: pq.ColumnSchema) -> tuple[Any, ...]:
    length = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else None
    return leaf.physical_type, length


def _levels(leaf: pq.ColumnSchema) -> tuple[int, int]:
    return leaf.max_definition_level, leaf.max_repetition_level


def _column_options(old: pq.FileMetaData, fields: thrift.Struct, paths: Sequence[str]) -> dict[str, Any]:
    """Codec, encodings, statistics, bloom filters, page index and sort order of the old file."""
    if old.num_row_groups == 0:
        return {"compression": "snappy"}
    groups = [old.row_group(i) for i in range(old.num_row_groups)]
    entries = thrift.structs(thrift.structs(fields, _ROW_GROUPS)[0], _COLUMNS)
    by_path = [(path, entry[_META_DATA][1]) for path, entry in zip(paths, entries, strict=True)]
    blooms = [path for path, chunk in by_path if _BLOOM_FILTER in chunk]
    largest = max(group.num_rows for group in groups)
    return {
        "compression": {path: _CODECS[chunk[_CODEC][1]] for path, chunk in by_path},
        **encoding_options(fields, old, paths),
        "write_statistics": [p for i, p in enumerate(paths) if old.schema.column(i).logical_type.type != "INTERVAL"],
        "write_page_index": any(_OFFSET_INDEX in entry for entry in entries),
        "bloom_filter_options": {path: {"ndv": largest, "fpp": 0.01} for path in blooms} or None,
        "sorting_columns": _sorting(groups),
        "store_schema": False,
    }


def _sorting(groups: Sequence[pq.RowGroupMetaData]) -> Any:
    first = tuple(groups[0].sorting_columns)
    return first if first and all(tuple(g.sorting_columns) == first for g in groups) else None


def _stored(column: Any, dtype: pa.DataType) -> Any:
    if column.type == dtype or (t.is_dictionary(column.type) and column.type.value_type == dtype):
        return column
    if t.is_timestamp(column.type) and t.is_integer(dtype):
        return column.cast(pa.int64())
    if arrays.plain_type(dtype) == column.type:
        return _encoded(column, dtype)
    if t.is_nested(dtype):  # a VARIANT that is not shredded, into a file where others are
        return arrays.cast(column, dtype)
    return column.cast(dtype)


def _fits(column: Any, dtype: pa.DataType) -> bool:
    try:
        return not t.is_nested(dtype) or arrays.cast(column, dtype) is not None
    except arrays.DoesNotFit:
        return False


def _encodes(dtype: pa.DataType) -> bool:
    """Can plain values be brought back to this type, and be written? Arrow has no way to some dictionaries."""
    if t.is_dictionary(dtype) and arrays.plain_type(dtype.value_type) != dtype.value_type:
        return False
    try:
        _stored(pa.chunked_array([], arrays.plain_type(dtype)), dtype)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _encoded(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """Back from the plain type to the one asked for: dictionaries, views, extension names."""
    if isinstance(dtype, pa.BaseExtensionType):
        chunks = [pa.ExtensionArray.from_storage(dtype, chunk) for chunk in column.cast(dtype.storage_type).chunks]
        return pa.chunked_array(chunks, dtype)
    return column.cast(dtype)
