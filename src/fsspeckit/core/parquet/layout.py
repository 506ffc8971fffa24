"""The layout of a file: the schema and the options with which PyArrow writes a file like an existing one.

`Layout.like` derives the layout from an existing file. It writes a file without rows into memory and compares the
physical type and the levels of every leaf. If they differ, the layout cannot be reproduced: `LayoutError`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core import defaults
from fsspeckit.core.errors import LayoutError, SchemaMismatchError
from fsspeckit.core.model import Footer, WriteOptions
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_override import FooterOverride
from fsspeckit.core.parquet.format import FileMetaData
from fsspeckit.core.parquet.metadata_entries import NewValues
from fsspeckit.core.parquet.reader import checked_footer, open_parquet, raw_footer, reading
from fsspeckit.core.parquet.retype import NewColumns, footer_with_columns
from fsspeckit.core.parquet.schema import leaf_count
from fsspeckit.core.parquet.writer_options import WrittenLeaf, repeats, writer_options
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays, schema
from fsspeckit.core.values.calendars import calendar_entries

# The widest decimal whose minimal fixed length is n bytes.
_DECIMAL_DIGITS = {n: len(str(2 ** (8 * n - 1) - 1)) - 1 for n in range(1, 33)}


@dataclass(frozen=True)
class Layout:
    """How a file is written.

    `rows` are the columns in plain types, `storage` the types that PyArrow's writer gets, `options` its options, and
    `override` the fields of the footer that are replaced after writing.
    """

    rows: pa.Schema
    storage: pa.Schema
    options: Mapping[str, Any]
    override: FooterOverride | None = None
    categories: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    """Dictionary columns whose index type in the Arrow schema has less than 32 bits, such as pandas' categories."""

    @classmethod
    def new(cls, columns: pa.Schema, options: WriteOptions) -> Layout:
        """The layout of a file without a template: PyArrow's own."""
        rows = schema.plain_schema(columns)
        fields = [field if _encodes(field.type) else plain for field, plain in zip(columns, rows, strict=True)]
        return cls(
            rows, pa.schema(fields, columns.metadata), {"compression": options.compression or defaults.COMPRESSION}
        )

    @classmethod
    def like(cls, footer: Footer, fields: thrift.Struct, *, nullable: bool = False) -> Layout:
        """The layout of an existing file, whose decoded footer is `fields`.

        `nullable` makes every column nullable: see `schema.make_nullable`.
        """
        old, override = footer.metadata, FooterOverride.of(fields)
        assert old is not None
        if nullable:
            footer, override = replace(footer, schema=schema.effective_schema(footer)), override.make_nullable()
        identity = footer.schema.serialize().to_pybytes() + thrift.encode({FileMetaData.SCHEMA: override.schema})
        stored = _stored_like(_Schema(identity, footer.schema, old.schema, override))
        if stored.problem is not None:
            raise LayoutError(
                f"{footer.path}: cannot be rewritten with its Parquet schema unchanged: {stored.problem}. "
                "Convert the file to a common layout first; nothing was changed.",
                operation="rewrite",
                path=footer.path,
            )
        options = {**stored.flags, **writer_options(old, fields, stored.leaves)}
        if kept := options.get("column_encoding"):  # PyArrow cannot read dictionaries from delta encodings
            categories = {field.name for field in footer.schema if t.is_dictionary(field.type)}
            options["column_encoding"] = {path: e for path, e in kept.items() if path not in categories} or None
        return cls(stored.rows, stored.storage, options, override, _narrow_indexes(footer.schema))

    def sampled(self, rows: pa.Table, *, replaces_template: bool = False) -> Layout:
        """The same layout with dictionaries for columns whose values repeat.

        The layout of an existing file keeps its own dictionaries, unless `replaces_template`: the file has too few rows
        to show which columns repeat.
        """
        if not replaces_template and (self.override is not None or "use_dictionary" in self.options):
            return self
        paths = iter(leaf.path for leaf in _written_leaves(self.storage, {}))
        dictionaries, encoded = list[str](), self.options.get("column_encoding") or {}
        for field in self.storage:
            leaves = [next(paths) for _ in range(leaf_count(field.type))]
            if t.is_nested(field.type) or repeats(rows.column(field.name)):
                dictionaries += [path for path in leaves if path not in encoded]
        return replace(self, options={**self.options, "use_dictionary": dictionaries})

    def unsorted(self) -> Layout:
        """The same layout for rows in any order."""
        return replace(self, options={k: v for k, v in self.options.items() if k != "sorting_columns"})

    def compressed(self, options: WriteOptions) -> Layout:
        """The same layout for a new file with unsorted rows, with the codec of `options`, if they have one."""
        codec = {} if options.compression is None else {"compression": options.compression}
        return replace(self.unsorted().with_true_entries(NewValues()), options={**self.unsorted().options, **codec})

    def with_true_entries(self, values: NewValues) -> Layout:
        """The same layout with key-value entries that are true for the new values."""
        return self if self.override is None else replace(self, override=self.override.with_true_entries(values))

    def in_modern_calendar(self) -> Layout:
        """The same layout without the entries that declare the hybrid calendar."""
        override = self.override and self.override.without(calendar_entries(self.override.entries))
        return replace(self, override=override)

    def with_metadata_of(self, other: Layout, codec: str) -> Layout:
        """The same columns with this codec, and with the key-value entries and the page index of another layout."""
        index = other.options.get("write_page_index", False)
        override = self.override and other.override and self.override.with_metadata_of(other.override)
        kept = self.unsorted().options
        return replace(self, options={**kept, "compression": codec, "write_page_index": index}, override=override)

    def with_entries(self, entries: Mapping[str, str]) -> Layout:
        """The same layout with entries added to the key-value metadata."""
        if not entries:
            return self
        if self.override is not None:
            return replace(self, override=self.override.with_entries(entries))
        return replace(self, storage=self.storage.with_metadata({**(self.storage.metadata or {}), **entries}))

    def holds(self, table: pa.Table) -> bool:
        """Can a file of this layout store these rows? A column that is not nullable stores no nulls."""
        columns = zip((table.column(f.name) for f in self.rows), self.rows, strict=True)
        return all((f.nullable or not c.null_count) and _fits(c, f.type) for c, f in columns)

    def store(self, table: pa.Table) -> pa.Table:
        """Cast plain columns to the types that the writer gets. Dictionaries of plain values are kept."""
        present = set(table.column_names)
        for name in present & self.categories.keys():
            _check_categories(table.column(name), name, self.categories[name])
        fields = [self.storage.field(name) for name in self.storage.names if name in present]
        columns = [_stored(table.column(f.name), f.type) for f in fields]
        fields = [f.with_type(column.type) for f, column in zip(fields, columns, strict=True)]
        return pa.table(columns, schema=pa.schema(fields, self.storage.metadata))


def template_layout(
    location: Location, footer: Footer, columns: NewColumns | None = None, *, nullable: bool = False
) -> Layout:
    """The layout of an existing file for new files; `nullable` (see `Layout.like`) only if Spark wrote it.

    New files differ from it by `columns`.
    """
    raw = raw_footer(location, footer.path)
    if footer.metadata is None:
        with open_parquet(location, footer.path) as file:
            footer = replace(footer, metadata=file.metadata)
    assert footer.metadata is not None
    fields = checked_footer(location, footer.path, raw, footer.metadata)
    if columns is not None:
        footer, fields = footer_with_columns(location, footer, fields, columns, None)
    return file_layout(location, footer, fields, nullable and footer.by_spark)


def file_layout(location: Location, footer: Footer, fields: thrift.Struct, nullable: bool) -> Layout:
    """The layout of a file with the decoded footer `fields`; `nullable` (see `Layout.like`) if PyArrow can write it."""
    with reading(location, footer.path):
        if nullable:
            with contextlib.suppress(LayoutError):  # Spark's legacy lists cannot have null elements
                return Layout.like(footer, fields, nullable=True)
        return Layout.like(footer, fields)


def column_fits(column: pa.ChunkedArray, stored: pa.Field | None) -> bool:
    """Can a file with this field store these values? A file without the field can only store nulls."""
    if stored is None:
        return bool(column.null_count == len(column))
    if column.null_count and not stored.nullable:
        return False
    try:
        arrays.cast(column, stored.type)
    except arrays.ValueDoesNotFit:
        return False
    return True


def holds_all_rows(columns: pa.Schema, unified: pa.Schema) -> bool:
    """Can a file with these columns store every row of the unified schema?"""
    fields = {f.name: f for f in columns}
    return all(
        f.name in fields and f.type == fields[f.name].type and (fields[f.name].nullable or not f.nullable)
        for f in unified
    )


@dataclass(frozen=True, slots=True)
class _Schema:
    """The schema of a file as Arrow, PyArrow and the footer have it. Only `identity` is compared."""

    identity: bytes
    columns: pa.Schema = dataclasses.field(compare=False)
    leaves: pq.ParquetSchema = dataclasses.field(compare=False)
    override: FooterOverride = dataclasses.field(compare=False)


@dataclass(frozen=True, slots=True)
class _Stored:
    """How to call the writer for a schema. `problem` is why it cannot be written."""

    rows: pa.Schema
    storage: pa.Schema
    flags: Mapping[str, Any]
    leaves: tuple[WrittenLeaf, ...]
    problem: str | None


@lru_cache(maxsize=8)
def _stored_like(known: _Schema) -> _Stored:
    """Cached for the process: a data set has few schemas, and one of hundreds of columns takes milliseconds per file.

    The result depends on nothing but the schema, so an entry is never invalid.
    """
    physical = [known.leaves.column(i) for i in range(len(known.leaves.names))]
    flags = _flags(physical)
    rows = schema.plain_schema(known.columns)
    storage = _storage_schema(rows, physical)
    written = _written_leaves(storage, flags)
    leaves = tuple(WrittenLeaf.of(new.path, old) for new, old in zip(written, physical, strict=False))
    return _Stored(rows, storage, flags, leaves, _problem(physical, written, known.override.levels))


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
    """Why pages with the leaves `new` cannot be described by the schema `old` with these levels; `None` if they can."""
    if not len(old) == len(new) == len(levels):
        return f"it has {len(old)} leaf columns, and PyArrow would write {len(new)}"
    leaves = zip(old, new, levels, strict=True)
    wrong = next((o for o, n, both in leaves if (_physical(o), both) != (_physical(n), _levels(n))), None)
    return None if wrong is None else f"column {wrong.path!r} ({wrong.physical_type}, {wrong.logical_type})"


def _physical(leaf: pq.ColumnSchema) -> tuple[Any, ...]:
    length = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else None
    return leaf.physical_type, length


def _levels(leaf: pq.ColumnSchema) -> tuple[int, int]:
    return leaf.max_definition_level, leaf.max_repetition_level


def _narrow_indexes(columns: pa.Schema) -> dict[str, pa.DataType]:
    flat = [f for f in columns if t.is_dictionary(f.type) and not t.is_nested(f.type.value_type)]
    return {field.name: field.type.index_type for field in flat if field.type.index_type.bit_width < 32}


def _check_categories(column: pa.ChunkedArray, name: str, index: pa.DataType) -> None:
    """Refuse more distinct values than the index type of the Arrow schema takes: PyArrow and pandas cannot read them.

    A wider type in this file alone does not help: readers of all files take the type of the first one.
    """
    most = 1 << (index.bit_width - t.is_signed_integer(index))
    if len(column) > most and len(arrays.plain(column).drop_null().unique()) > most:
        raise SchemaMismatchError(
            f"Column {name!r} is a dictionary with indices of type {index}, and more than {most} different values "
            "would be in one row group: pandas and PyArrow could not read the file. Rewrite the data set with a "
            "wider index type, or with plain values (write_dataset, mode='overwrite'). Nothing was changed."
        )


def _stored(column: Any, dtype: pa.DataType) -> Any:
    if column.type == dtype or (t.is_dictionary(column.type) and column.type.value_type == dtype):
        return column
    if t.is_timestamp(column.type) and t.is_integer(dtype):
        return column.cast(pa.int64())
    if arrays.plain_type(dtype) == column.type:
        return _encoded(column, dtype)
    if t.is_nested(dtype) or t.is_null(dtype):  # an unshredded VARIANT where others are shredded, nulls without a type
        return arrays.cast(column, dtype)
    return column.cast(dtype)


def _fits(column: Any, dtype: pa.DataType) -> bool:
    try:
        return not t.is_nested(dtype) or arrays.cast(column, dtype) is not None
    except arrays.ValueDoesNotFit:
        return False


def _encodes(dtype: pa.DataType) -> bool:
    """Can plain values be cast to this type and be written? Arrow cannot cast to some dictionaries."""
    if t.is_dictionary(dtype) and arrays.plain_type(dtype.value_type) != dtype.value_type:
        return False
    try:
        _stored(pa.chunked_array([], arrays.plain_type(dtype)), dtype)
    except pa.ArrowNotImplementedError:
        return False
    return True


def _encoded(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """Plain values as dictionaries, views or extension types."""
    if isinstance(dtype, pa.BaseExtensionType):
        chunks = [pa.ExtensionArray.from_storage(dtype, chunk) for chunk in column.cast(dtype.storage_type).chunks]
        return pa.chunked_array(chunks, dtype)
    return column.cast(dtype)
