"""Give a new file the old one's words: schema elements, column paths and key-value metadata, byte for byte.

PyArrow writes the pages and computes offsets and statistics, but it spells a schema its own way: it drops DuckDB's
integer annotations, Spark's legacy list names, ENUM and INTERVAL. Pages depend only on the physical type and the
levels of a leaf, so where those are equal the old footer's words can stand over the new pages.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsspeckit.core.rewrite import loosen
from fsspeckit.core.target import thrift
from fsspeckit.core.target.tail import MAGIC

# Entries that repeat the schema in a writer's own words: they go where the schema goes.
_SPARK_ROW = b"org.apache.spark.sql.parquet.row.metadata"
_OF_THE_SCHEMA = (b"ARROW:schema", b"pandas", _SPARK_ROW)

# Field numbers of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData in parquet.thrift
_SCHEMA, _ROW_GROUPS, _KEY_VALUE, _CREATED_BY = 2, 4, 5, 6
_COLUMNS, _SORTING, _META_DATA, _PATH = 1, 4, 3, 3
_TYPE, _INT96 = 1, (thrift.I32, 3)
_DEEPEST = 200


@dataclass(frozen=True, slots=True)
class Graft:
    """What is taken over from an existing footer.

    `created_by` only of a file with INT96 of the Hadoop world: that type does not say what it holds, so readers
    (Spark's `int96TimestampConversion`, our own `int96_unit`) go by who wrote it. Elsewhere it would be a lie.
    """

    schema: tuple[int, Any]
    key_value: tuple[int, Any] | None
    paths: tuple[Any, ...]
    created_by: tuple[int, Any] | None = None

    @classmethod
    def of(cls, fields: thrift.Struct) -> Graft:
        """From a footer, decoded."""
        elements = thrift.structs(fields, _SCHEMA)
        _check_entries(fields)
        writer = fields.get(_CREATED_BY)
        int96_by_parquet_mr = (
            writer
            and writer[0] == thrift.BINARY
            and writer[1].startswith(b"parquet-mr")
            and any(e.get(_TYPE) == _INT96 for e in elements)
        )
        paths = tuple(_leaf_paths(elements))
        return cls(fields[_SCHEMA], fields.get(_KEY_VALUE), paths, writer if int96_by_parquet_mr else None)

    def stamped(self, entries: Mapping[str, str]) -> Graft:
        """The same with entries added to the key-value metadata."""
        return replace(self, key_value=_added(self.key_value, entries))

    def loosened(self) -> Graft:
        """The same for values any of which may be null."""
        list_type, (element_type, elements) = self.schema
        pairs = [
            {**pair, 2: (thrift.BINARY, loosen.loosened_row(pair[2][1]))} if pair[1][1] == _SPARK_ROW else pair
            for pair in _pairs(self.key_value)
        ]
        entries = (thrift.LIST, (thrift.STRUCT, pairs)) if pairs else None
        return replace(self, schema=(list_type, (element_type, loosen.loosened(elements))), key_value=entries)

    @property
    def levels(self) -> list[tuple[int, int]]:
        return loosen.levels(self.schema[1][1])

    def without(self, names: Collection[bytes]) -> Graft:
        """The same with entries taken out of the key-value metadata."""
        kept = [pair for pair in _pairs(self.key_value) if pair[1][1] not in names]
        return replace(self, key_value=(thrift.LIST, (thrift.STRUCT, kept)) if kept else None)

    @property
    def entries(self) -> dict[bytes, bytes]:
        return {pair[1][1]: pair[2][1] if 2 in pair else b"" for pair in _pairs(self.key_value)}

    def with_metadata_of(self, other: Graft) -> Graft:
        """This schema, with the other's key-value metadata but for the entries that describe a schema."""
        ours = [pair for pair in _pairs(self.key_value) if pair[1][1] in _OF_THE_SCHEMA]
        theirs = [pair for pair in _pairs(other.key_value) if pair[1][1] not in _OF_THE_SCHEMA]
        both = [*theirs, *ours]
        return replace(self, key_value=(thrift.LIST, (thrift.STRUCT, both)) if both else None)

    def apply(self, footer: bytes, *, in_order: bool = True) -> bytes:
        """The footer of a new file in these words; without sorting columns unless its rows are `in_order`."""
        whole = thrift.decode_whole(footer)
        fields = {**whole, _SCHEMA: self.schema}
        fields.pop(_KEY_VALUE, None)
        if self.key_value is not None:
            fields[_KEY_VALUE] = self.key_value
        if self.created_by is not None:
            fields[_CREATED_BY] = self.created_by
        groups = thrift.structs(whole, _ROW_GROUPS)
        if any(self._renames(group) or (not in_order and _SORTING in group) for group in groups):
            kept = [{n: value for n, value in group.items() if in_order or n != _SORTING} for group in groups]
            fields[_ROW_GROUPS] = thrift.LIST, (thrift.STRUCT, [self._renamed(group) for group in kept])
        return thrift.encode(fields, whole)

    def _renames(self, group: thrift.Struct) -> bool:
        """Does a writer spell a path otherwise?"""
        chunks = zip(thrift.structs(group, _COLUMNS), self.paths, strict=True)
        return any(chunk[_META_DATA][1][_PATH] != path for chunk, path in chunks)

    def _renamed(self, group: thrift.Struct) -> thrift.Struct:
        chunks = [
            {**chunk, _META_DATA: (thrift.STRUCT, {**chunk[_META_DATA][1], _PATH: path})}
            for chunk, path in zip(thrift.structs(group, _COLUMNS), self.paths, strict=True)
        ]
        return {**group, _COLUMNS: (thrift.LIST, (thrift.STRUCT, chunks))}


def _check_entries(fields: thrift.Struct) -> None:
    """Key-value metadata are pairs of texts, of which the second may be left out."""
    for pair in thrift.structs(fields, _KEY_VALUE) if _KEY_VALUE in fields else ():
        thrift.field(pair, 1, thrift.BINARY)


def _leaf_paths(elements: list[thrift.Struct]) -> list[tuple[int, Any]]:
    """The `path_in_schema` of every leaf, from the flattened schema tree."""
    paths: list[tuple[int, Any]] = []

    def visit(position: int, above: list[bytes]) -> int:
        if position >= len(elements) or len(above) > _DEEPEST:
            raise thrift.Damaged("its schema is no tree")
        element = elements[position]
        children = thrift.field(element, 5, thrift.I32) if 5 in element else 0
        here = [*above, thrift.field(element, 4, thrift.BINARY)] if position else above
        if not children and position:
            paths.append((thrift.LIST, (thrift.BINARY, here)))
        position += 1
        for _ in range(children):
            position = visit(position, here)
        return position

    visit(0, [])
    return paths


def without_entry(footer: bytes, name: str) -> bytes:
    """A footer without one entry of its key-value metadata."""
    fields = thrift.decode_whole(footer)
    _check_entries(fields)
    kept = [pair for pair in _pairs(fields.get(_KEY_VALUE)) if pair[1][1] != name.encode()]
    fields[_KEY_VALUE] = thrift.LIST, (thrift.STRUCT, kept)
    return thrift.encode(fields)


def _pairs(key_value: tuple[int, Any] | None) -> list[thrift.Struct]:
    return list(key_value[1][1]) if key_value else []


def _added(key_value: tuple[int, Any] | None, entries: Mapping[str, str]) -> tuple[int, Any]:
    names = {name.encode() for name in entries}
    kept = [pair for pair in _pairs(key_value) if pair[1][1] not in names]
    new = [{1: (thrift.BINARY, n.encode()), 2: (thrift.BINARY, v.encode())} for n, v in entries.items()]
    return thrift.LIST, (thrift.STRUCT, [*kept, *new])


class GraftingSink(io.RawIOBase):
    """A sink that holds back what is written after `hold()`, and grafts the footer found in it when closed."""

    def __init__(self, sink: Any, graft: Graft | None) -> None:
        self._sink, self._graft = sink, graft
        self._held: bytearray | None = None
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._held is not None:
            self._held += view
        else:
            self._sink.write(view)
        self.size += view.nbytes
        return view.nbytes

    def hold(self) -> None:
        self._held = bytearray()

    def finish(self, *, in_order: bool = True) -> int:
        """Write the tail, grafted; returns the size of the file."""
        held = bytes(self._held or b"")
        if self._graft is not None:
            length = int.from_bytes(held[-8:-4], "little")
            footer = self._graft.apply(held[-8 - length : -8], in_order=in_order)
            held = held[: -8 - length] + footer + len(footer).to_bytes(4, "little") + MAGIC
        self.size += len(held) - len(self._held or b"")
        self._sink.write(held)
        self._sink.close()
        return self.size

    def abandon(self) -> None:
        self._sink.close()
