"""Copy schema elements, column paths and key-value entries from one footer to another, byte for byte.

PyArrow writes the pages and computes offsets and statistics, but it writes a schema in its own way: it drops DuckDB's
integer annotations, Spark's legacy list names, ENUM and INTERVAL. Pages depend only on the physical type and the levels
of a leaf. If these are equal, the old schema describes the new pages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fsspeckit import __version__
from fsspeckit.core.parquet import schema, thrift
from fsspeckit.core.parquet.chunk_layout import metadata_of, with_metadata
from fsspeckit.core.parquet.footer_checks import check_entries
from fsspeckit.core.parquet.format import (
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
    Type,
)
from fsspeckit.core.parquet.metadata_entries import NewValues, is_of_schema, updated_entry
from fsspeckit.core.values.schema import SPARK_ROW

WRITER = f"fsspeckit {__version__} with parquet-cpp-arrow {pa.__version__}"
_INT96 = (thrift.I32, Type.INT96)


@dataclass(frozen=True, slots=True)
class FooterOverride:
    """The fields of an existing footer that a new footer gets. `paths` are the paths of its leaves.

    `created_by` is that of old files only if they are of parquet-mr and have INT96. That type has no unit, so readers
    (Spark's `int96TimestampConversion`, our own `int96_unit`) derive it from the writer. The build is ours then.
    """

    schema: tuple[int, Any]
    key_value: tuple[int, Any] | None
    paths: tuple[Any, ...]
    created_by: tuple[int, Any] | None = None

    @classmethod
    def of(cls, fields: thrift.Struct) -> FooterOverride:
        """From a decoded footer."""
        elements = thrift.structs(fields, FileMetaData.SCHEMA)
        check_entries(fields)
        wire_type, writer = fields.get(FileMetaData.CREATED_BY, (thrift.BINARY, b""))
        int96_by_parquet_mr = (
            wire_type == thrift.BINARY
            and writer.startswith(b"parquet-mr")
            and any(element.get(SchemaElement.TYPE) == _INT96 for element in elements)
        )
        paths = tuple(leaf.path for leaf in schema.leaf_elements(elements))
        entries = fields.get(FileMetaData.KEY_VALUE_METADATA)
        created_by = (thrift.BINARY, _own_build(writer)) if int96_by_parquet_mr else None
        return cls(fields[FileMetaData.SCHEMA], entries, paths, created_by)

    def with_entries(self, entries: Mapping[str, str]) -> FooterOverride:
        """The same with entries added to the key-value metadata; an entry of the same name is replaced."""
        return replace(self, key_value=_with_entries(self.key_value, entries))

    def without(self, names: Collection[bytes]) -> FooterOverride:
        """The same without some entries of the key-value metadata."""
        return self._with_pairs([pair for pair in _pairs(self.key_value) if _key(pair) not in names])

    def make_nullable(self) -> FooterOverride:
        """The same with a schema in which every column is nullable."""
        pairs = [
            _with_value(pair, schema.make_spark_schema_nullable(pair[KeyValue.VALUE][1]))
            if _key(pair) == SPARK_ROW
            else pair
            for pair in _pairs(self.key_value)
        ]
        return replace(self._with_pairs(pairs), schema=thrift.struct_list(schema.make_nullable(self._elements)))

    @property
    def _elements(self) -> list[thrift.Struct]:
        _, (_, elements) = self.schema
        return list(elements)

    @property
    def levels(self) -> list[tuple[int, int]]:
        return [leaf.levels for leaf in schema.leaf_elements(self._elements)]

    @property
    def entries(self) -> dict[bytes, bytes]:
        pairs = _pairs(self.key_value)
        return {_key(pair): pair[KeyValue.VALUE][1] if KeyValue.VALUE in pair else b"" for pair in pairs}

    def with_metadata_of(self, other: FooterOverride) -> FooterOverride:
        """This schema with the entries that describe it, and all other entries of another file."""
        ours = [pair for pair in _pairs(self.with_true_entries(NewValues()).key_value) if is_of_schema(_key(pair))]
        theirs = [pair for pair in _pairs(other.key_value) if not is_of_schema(_key(pair))]
        return self._with_pairs([*theirs, *ours])

    def with_true_entries(self, values: NewValues) -> FooterOverride:
        """The same with entries that are true for the new values."""
        pairs = []
        for pair in _pairs(self.key_value):
            value = updated_entry(_key(pair), pair[KeyValue.VALUE][1], values) if KeyValue.VALUE in pair else b""
            if value is not None:
                pairs.append(_with_value(pair, value) if KeyValue.VALUE in pair else pair)
        return self._with_pairs(pairs)

    def _with_pairs(self, pairs: list[thrift.Struct]) -> FooterOverride:
        return replace(self, key_value=thrift.struct_list(pairs) if pairs else None)

    def apply(self, footer: thrift.Struct, *, in_order: bool = True) -> thrift.Struct:
        """A new file's footer with these fields; without sorting columns unless its rows are `in_order`."""
        fields = self.replace_fields(footer)
        groups = thrift.structs(footer, FileMetaData.ROW_GROUPS)
        if any(self._renames(group) or (not in_order and RowGroup.SORTING_COLUMNS in group) for group in groups):
            renamed = [self._renamed(group) for group in groups]
            kept = [{n: v for n, v in group.items() if in_order or n != RowGroup.SORTING_COLUMNS} for group in renamed]
            fields[FileMetaData.ROW_GROUPS] = thrift.struct_list(kept)
        return fields

    def replace_fields(self, footer: thrift.Struct) -> thrift.Struct:
        """A footer with this schema, these entries, and this writer if there is one."""
        fields = {**footer, FileMetaData.SCHEMA: self.schema}
        fields.pop(FileMetaData.KEY_VALUE_METADATA, None)
        if self.key_value is not None:
            fields[FileMetaData.KEY_VALUE_METADATA] = self.key_value
        if self.created_by is not None:
            fields[FileMetaData.CREATED_BY] = self.created_by
        return fields

    def _renames(self, group: thrift.Struct) -> bool:
        """Does a column of the new row group have another path?"""
        chunks = zip(thrift.structs(group, RowGroup.COLUMNS), self.paths, strict=True)
        return any(metadata_of(chunk)[ColumnMetaData.PATH_IN_SCHEMA] != path for chunk, path in chunks)

    def _renamed(self, group: thrift.Struct) -> thrift.Struct:
        chunks = with_paths(thrift.structs(group, RowGroup.COLUMNS), self.paths)
        return {**group, RowGroup.COLUMNS: thrift.struct_list(chunks)}


def with_paths(entries: Sequence[thrift.Struct], paths: Sequence[Any]) -> list[thrift.Struct]:
    """The column chunks of a row group with other column paths."""
    pairs = zip(entries, paths, strict=True)
    return [with_metadata(entry, {ColumnMetaData.PATH_IN_SCHEMA: path}) for entry, path in pairs]


def with_entries(fields: thrift.Struct, entries: Mapping[str, str]) -> thrift.Struct:
    """A decoded footer with entries added to its key-value metadata; an entry of the same name is replaced."""
    check_entries(fields)
    key_value = _with_entries(fields.get(FileMetaData.KEY_VALUE_METADATA), entries)
    return {**fields, FileMetaData.KEY_VALUE_METADATA: key_value}


def _with_entries(key_value: tuple[int, Any] | None, entries: Mapping[str, str]) -> tuple[int, Any]:
    names = {name.encode() for name in entries}
    kept = [pair for pair in _pairs(key_value) if _key(pair) not in names]
    new: list[thrift.Struct] = [
        {KeyValue.KEY: (thrift.BINARY, name.encode()), KeyValue.VALUE: (thrift.BINARY, value.encode())}
        for name, value in entries.items()
    ]
    return thrift.struct_list([*kept, *new])


def without_entry(footer: bytes, name: str) -> bytes:
    """A raw footer without one entry of its key-value metadata."""
    fields = thrift.decode_whole(footer)
    check_entries(fields)
    pairs = _pairs(fields.get(FileMetaData.KEY_VALUE_METADATA))
    kept = [pair for pair in pairs if _key(pair) != name.encode()]
    fields[FileMetaData.KEY_VALUE_METADATA] = thrift.struct_list(kept)
    return thrift.encode(fields)


def _pairs(key_value: tuple[int, Any] | None) -> list[thrift.Struct]:
    _, (_, pairs) = key_value or thrift.struct_list([])
    return list(pairs)


def _key(pair: thrift.Struct) -> bytes:
    key: bytes = pair[KeyValue.KEY][1]
    return key


def _with_value(pair: thrift.Struct, value: bytes) -> thrift.Struct:
    return {**pair, KeyValue.VALUE: (thrift.BINARY, value)}


def _own_build(created_by: bytes) -> bytes:
    """The same writer and version, with our name as the build, in the form that readers parse.

    >>> _own_build(b"parquet-mr version 1.17.0 (build 87e26f)").decode()  # doctest: +ELLIPSIS
    'parquet-mr version 1.17.0 (build fsspeckit ... with parquet-cpp-arrow ...)'
    """
    return created_by.partition(b" (build ")[0] + f" (build {WRITER})".encode()
