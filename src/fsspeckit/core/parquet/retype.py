"""The footer that a file would have if some of its columns were of another type, or if it had more columns.

A file that takes the common type of a column keeps everything else: the other columns' schema and bytes, codecs,
encodings, row groups, indexes and entries. `layout` and `splice` follow a footer, so they get this one. Columns
that the file lacks come after the others.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.errors import LayoutError
from fsspeckit.core.model import Footer
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.chunk_layout import metadata_of
from fsspeckit.core.parquet.footer_io import footer_bytes, with_end
from fsspeckit.core.parquet.footer_override import FooterOverride
from fsspeckit.core.parquet.format import (
    MAGIC,
    ColumnChunk,
    ColumnMetaData,
    ColumnOrder,
    Encoding,
    FileMetaData,
    KeyValue,
    Repetition,
    RowGroup,
    SchemaElement,
    Statistics,
)
from fsspeckit.core.parquet.metadata_entries import ARROW_SCHEMA, is_of_schema
from fsspeckit.core.parquet.reader import raw_footer
from fsspeckit.core.parquet.schema import merged_elements, top_level
from fsspeckit.core.parquet.spark_types import spark_type
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays
from fsspeckit.core.values.schema import SPARK_ROW

_KEPT = (SchemaElement.REPETITION_TYPE, SchemaElement.NAME, SchemaElement.FIELD_ID)


@dataclass(frozen=True, slots=True)
class _Column:
    """The schema elements of a column: as they are, and as they are to be."""

    old: Sequence[thrift.Struct]
    new: Sequence[thrift.Struct]
    was_null: bool

    @property
    def changes(self) -> bool:
        return self.new is not self.old


@dataclass(frozen=True, slots=True)
class NewColumns:
    """The changes of a file's columns: new `types` of some, and fields that are `added`.

    Added fields come with a file that has them, or with `None`; they are stored as they are there.
    """

    types: Mapping[str, pa.DataType]
    added: Sequence[tuple[pa.Field, Footer | None]] = ()

    def of_schema(self, schema: pa.Schema) -> pa.Schema:
        if not self.types and not self.added:
            return schema
        fields = [f.with_type(self.types.get(f.name, f.type)) for f in schema]
        return pa.schema([*fields, *(field for field, _ in self.added)], schema.metadata)


def footer_with_columns(
    location: Location, footer: Footer, fields: thrift.Struct, new: NewColumns, template: Footer | None
) -> tuple[Footer, thrift.Struct]:
    """The file's footer with other types and columns, as we know it and decoded; see `fields_with_columns`."""
    raw = thrift.encode(fields_with_columns(location, footer, fields, new, template))
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + with_end(raw)))
    return replace(footer, schema=new.of_schema(footer.schema), metadata=metadata), thrift.decode_whole(raw)


def fields_with_columns(
    location: Location, footer: Footer, fields: thrift.Struct, new: NewColumns, template: Footer | None
) -> thrift.Struct:
    """A decoded footer with other types and columns.

    `template` is a file of the target that has these types; its flat columns show how they are stored.
    """
    columns = _columns(location, footer, fields, new.types, template)
    columns += [_added(location, field, example) for field, example in new.added]
    root = {**thrift.structs(fields, FileMetaData.SCHEMA)[0], SchemaElement.NUM_CHILDREN: (thrift.I32, len(columns))}
    schema = [root, *(element for column in columns for element in column.new)]
    changed = {**fields, FileMetaData.SCHEMA: thrift.struct_list(schema)}
    paths = FooterOverride.of(changed).paths
    groups = [_group(group, columns, paths) for group in thrift.structs(fields, FileMetaData.ROW_GROUPS)]
    changed[FileMetaData.ROW_GROUPS] = thrift.struct_list(groups)
    if FileMetaData.KEY_VALUE_METADATA in fields:
        entries = _entries(thrift.structs(fields, FileMetaData.KEY_VALUE_METADATA), new)
        changed[FileMetaData.KEY_VALUE_METADATA] = thrift.struct_list(list(entries))
    if FileMetaData.COLUMN_ORDERS in fields:
        orders: list[thrift.Struct] = [{ColumnOrder.TYPE_ORDER: (thrift.STRUCT, {})} for _ in paths]
        changed[FileMetaData.COLUMN_ORDERS] = thrift.struct_list(orders)
    return changed


def _columns(
    location: Location, footer: Footer, fields: thrift.Struct, types: Mapping[str, pa.DataType], template: Footer | None
) -> list[_Column]:
    elements = thrift.structs(fields, FileMetaData.SCHEMA)
    template_elements = (
        thrift.structs(thrift.decode(raw_footer(location, template.path)), FileMetaData.SCHEMA) if template else []
    )
    columns = []
    for place, field in zip(top_level(elements), footer.schema, strict=True):
        old = new = elements[place.start : place.stop]
        if field.name in types and t.is_nested(types[field.name]) and t.is_nested(arrays.plain_type(field.type)):
            before, after = (_elements(field.name, dtype, []) for dtype in (field.type, types[field.name]))
            try:
                first, *rest = merged_elements(old, before, after)
                new = [{**first, **{number: old[0][number] for number in _KEPT if number in old[0]}}, *rest]
            except thrift.CorruptFile as error:
                raise LayoutError(
                    f"{location.show(footer.path)}: column {field.name!r} cannot get new fields: {error.args[0]}. "
                    "Rewrite the file with another writer first; nothing was changed.",
                    operation="rewrite",
                    path=footer.path,
                ) from error
        elif field.name in types:
            first, *rest = _elements(field.name, types[field.name], template_elements)
            kept = {number: old[0][number] for number in _KEPT if number in old[0]}
            new = [{**{n: v for n, v in first.items() if n != SchemaElement.FIELD_ID}, **kept}, *rest]
        columns.append(_Column(old, new, t.is_null(field.type)))
    return columns


def _added(location: Location, field: pa.Field, example: Footer | None) -> _Column:
    """A new column as the `example` stores it, but nullable. Without an example, as PyArrow writes it."""
    elements = thrift.structs(thrift.decode(raw_footer(location, example.path)), FileMetaData.SCHEMA) if example else []
    for place in top_level(elements) if elements else []:
        first, *rest = elements[place.start : place.stop]
        repetition = first[SchemaElement.REPETITION_TYPE][1]
        if first[SchemaElement.NAME][1] == field.name.encode() and repetition != Repetition.REPEATED:
            optional = {**first, SchemaElement.REPETITION_TYPE: (thrift.I32, int(Repetition.OPTIONAL))}
            return _Column([], [optional, *rest], was_null=True)
    return _Column([], _elements(field.name, arrays.plain_type(field.type), []), was_null=True)


def _elements(name: str, dtype: pa.DataType, template: list[thrift.Struct]) -> list[thrift.Struct]:
    """The schema elements of a column: as the template has them, or as PyArrow writes them."""
    for place in top_level(template) if template and not t.is_nested(dtype) else []:
        if template[place.start][SchemaElement.NAME][1] == name.encode():
            return template[place.start : place.stop]
    buffer = io.BytesIO()
    pq.ParquetWriter(buffer, pa.schema([pa.field(name, dtype)]), store_schema=False).close()
    return thrift.structs(thrift.decode(footer_bytes(pa.BufferReader(buffer.getvalue()))), FileMetaData.SCHEMA)[1:]


def _group(group: thrift.Struct, columns: Sequence[_Column], paths: Sequence[Any]) -> thrift.Struct:
    """A row group with chunks for the new leaves, which say how the old ones were compressed and encoded."""
    known = thrift.structs(group, RowGroup.COLUMNS)
    old, new, added = iter(known), list[thrift.Struct](), 0
    for column in columns:
        chunks = [next(old) for _ in _leaves(column.old)]
        if column.changes:
            leaves, templates = _leaves(column.new), chunks
            added += 0 if chunks else len(leaves)
            if len(chunks) != len(leaves):
                old_paths = {_path(chunk): chunk for chunk in chunks}
                empty = _without_values((chunks or known)[0], group[RowGroup.NUM_ROWS])
                new_paths = paths[len(new) : len(new) + len(leaves)]
                templates = [old_paths.get(tuple(names), empty) for _, (_, names) in new_paths]
            chunks = [
                _chunk(chunk, leaf, paths[len(new) + n], column.was_null)
                for n, (chunk, leaf) in enumerate(zip(templates, leaves, strict=True))
            ]
        new += chunks
    moved = len(new) - added != len(known)  # then sorting columns have other numbers
    kept = {n: value for n, value in group.items() if n != RowGroup.SORTING_COLUMNS or not moved}
    return {**kept, RowGroup.COLUMNS: thrift.struct_list(new)}


def _path(chunk: thrift.Struct) -> tuple[bytes, ...]:
    return tuple(metadata_of(chunk)[ColumnMetaData.PATH_IN_SCHEMA][1][1])


def _leaves(elements: Sequence[thrift.Struct]) -> list[thrift.Struct]:
    return [element for element in elements if SchemaElement.TYPE in element]


def _without_values(chunk: thrift.Struct, rows: Any) -> thrift.Struct:
    """A chunk of nulls with the codec of another, and with statistics and indexes if that has any. It has no bytes."""
    old = metadata_of(chunk)
    encodings = [int(encoding) for encoding in (Encoding.PLAIN, Encoding.RLE, Encoding.RLE_DICTIONARY)]
    metadata = {
        ColumnMetaData.ENCODINGS: (thrift.LIST, (thrift.I32, encodings)),
        ColumnMetaData.CODEC: old[ColumnMetaData.CODEC],
        ColumnMetaData.NUM_VALUES: rows,
        ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE: (thrift.I64, 0),
        ColumnMetaData.TOTAL_COMPRESSED_SIZE: (thrift.I64, 0),
        ColumnMetaData.DATA_PAGE_OFFSET: old[ColumnMetaData.DATA_PAGE_OFFSET],
    }
    if ColumnMetaData.STATISTICS in old:
        metadata[ColumnMetaData.STATISTICS] = thrift.STRUCT, {Statistics.NULL_COUNT: rows}
    return {**chunk, ColumnChunk.META_DATA: (thrift.STRUCT, metadata)}


def _chunk(chunk: thrift.Struct, leaf: thrift.Struct, path: Any, was_null: bool) -> thrift.Struct:
    """A chunk is described by its codec and encodings, and whether it has statistics. It is never copied."""
    metadata = dict(metadata_of(chunk))
    metadata |= {ColumnMetaData.TYPE: leaf[SchemaElement.TYPE], ColumnMetaData.PATH_IN_SCHEMA: path}
    if was_null:  # nothing is known of how values will repeat: writers try a dictionary then
        metadata.setdefault(ColumnMetaData.DICTIONARY_PAGE_OFFSET, metadata[ColumnMetaData.DATA_PAGE_OFFSET])
        metadata.pop(ColumnMetaData.ENCODING_STATS, None)
    return {**chunk, ColumnChunk.META_DATA: (thrift.STRUCT, metadata)}


def _entries(pairs: list[thrift.Struct], new: NewColumns) -> Iterator[thrift.Struct]:
    for pair in pairs:
        text = _entry(pair[KeyValue.KEY][1], pair.get(KeyValue.VALUE, (thrift.BINARY, b""))[1], new)
        if text is not None:
            yield {**pair, KeyValue.VALUE: (thrift.BINARY, text)} if KeyValue.VALUE in pair else pair


def _entry(name: bytes, text: bytes, new: NewColumns) -> bytes | None:
    """An entry for the new types; `None` for one that repeats the schema in words that are not known here."""
    if name in (ARROW_SCHEMA, b"gdal:schema"):
        return _arrow_entry(text, new)
    if name == b"pandas":
        return _pandas_entry(text, new)
    if name == SPARK_ROW:
        return _spark_entry(text, new)
    return None if is_of_schema(name) else text


def _arrow_entry(text: bytes, new: NewColumns) -> bytes | None:
    """The schema as Arrow has it, with a copy of other entries."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (ValueError, pa.ArrowException, OSError):
        return None
    copies = {name: _entry(name, copy, new) for name, copy in (schema.metadata or {}).items()}
    entries = {name: copy for name, copy in copies.items() if copy is not None}
    return base64.b64encode(new.of_schema(schema).with_metadata(entries or None).serialize().to_pybytes())


def _pandas_entry(text: bytes, new: NewColumns) -> bytes | None:
    try:
        entry = json.loads(text)
        for column in entry["columns"]:
            dtype = new.types.get(column.get("field_name") or column["name"])
            if dtype is not None:
                column |= _pandas_column(dtype)
        for field, _ in new.added:
            described = _pandas_column(arrays.plain_type(field.type))
            entry["columns"].append({"name": field.name, "field_name": field.name, **described})
        return json.dumps(entry).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _pandas_column(dtype: pa.DataType) -> dict[str, Any]:
    """What pandas says of a column of this type."""
    if t.is_integer(dtype) or t.is_floating(dtype):
        name = str(np.dtype(dtype.to_pandas_dtype()))
        return {"pandas_type": name, "numpy_type": name, "metadata": None}
    if t.is_timestamp(dtype):
        zone = {"timezone": dtype.tz} if dtype.tz else None
        return {"pandas_type": "datetimetz" if zone else "datetime", "numpy_type": "datetime64[ns]", "metadata": zone}
    decimal = {"precision": dtype.precision, "scale": dtype.scale} if t.is_decimal(dtype) else None
    names = {"text": "unicode", "binary": "bytes", "date": "date", "bool": "bool"}
    name = "decimal" if decimal else names.get(arrays.family(dtype), "object")
    return {"pandas_type": name, "numpy_type": "object", "metadata": decimal}


def _spark_entry(text: bytes, new: NewColumns) -> bytes | None:
    try:
        entry = json.loads(text)
        for field in entry["fields"]:
            dtype = new.types.get(field["name"])
            if dtype is not None:
                field["type"] = spark_type(dtype, field["type"])
        for column, _ in new.added:
            dtype = spark_type(arrays.plain_type(column.type))
            entry["fields"].append({"name": column.name, "type": dtype, "nullable": True, "metadata": {}})
        return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
