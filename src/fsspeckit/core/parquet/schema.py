"""The schema of a Parquet file: which leaves store an Arrow column, and the schema elements of a footer.

A footer lists its schema elements depth first: the root, then each column with its children. Only leaves have values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.format import ConvertedType, LogicalType, Repetition, SchemaElement, Type

_REQUIRED, _OPTIONAL, _REPEATED = ((thrift.I32, repetition) for repetition in Repetition)
_MAP = (thrift.I32, ConvertedType.MAP)
_BYTE_ARRAY = (thrift.I32, Type.BYTE_ARRAY)
_INT96 = (thrift.I32, Type.INT96)
_MAX_DEPTH = 200


def leaf_count(dtype: pa.DataType) -> int:
    """The number of leaves that store a column of an Arrow type."""
    if isinstance(dtype, pa.BaseExtensionType):
        return leaf_count(dtype.storage_type)
    if t.is_nested(dtype):
        return sum(leaf_count(dtype.field(i).type) for i in range(dtype.num_fields))
    return 1


def leaf_indexes(schema: pa.Schema, leaves: int) -> dict[str, int]:
    """The leaf that stores each flat top-level column; empty if the schema does not have this number of `leaves`.

    By counting, not by name: a struct `s` with a leaf `id` and a column called `s.id` have the same path.
    """
    indexes, position = {}, 0
    for column in schema:
        width = leaf_count(column.type)
        # Only the Arrow schema knows the unit of a duration.
        if width == 1 and not t.is_nested(column.type) and not t.is_duration(column.type):
            indexes[column.name] = position
        position += width
    return indexes if position == leaves else {}


def has_int96(metadata: pq.FileMetaData) -> bool:
    return any(metadata.schema.column(i).physical_type == "INT96" for i in range(metadata.num_columns))


def int96_columns(schema: pa.Schema, metadata: pq.FileMetaData) -> frozenset[str]:
    """The top-level columns with INT96 leaves."""
    if not has_int96(metadata):
        return frozenset()
    names = [field.name for field in schema for _ in range(leaf_count(field.type))]
    return frozenset(n for i, n in enumerate(names) if metadata.schema.column(i).physical_type == "INT96")


def int96_unit(metadata: pq.FileMetaData) -> str:
    """The unit in which INT96 is read. Spark and Hive write microseconds, of years that nanoseconds cannot reach."""
    return "us" if (metadata.created_by or "").startswith("parquet-mr") else "ns"


@dataclass(frozen=True, slots=True)
class LeafElement:
    """A leaf: its `path_in_schema`, as a Thrift field, and its maximum definition and repetition levels."""

    path: tuple[int, Any]
    levels: tuple[int, int]


def leaf_elements(elements: list[thrift.Struct]) -> list[LeafElement]:
    """The leaves of a schema. `CorruptFile` if its elements are no tree."""
    leaves: list[LeafElement] = []

    def visit(position: int, parents: list[bytes], definition: int, repetition: int) -> int:
        if position >= len(elements) or len(parents) > _MAX_DEPTH:
            raise thrift.CorruptFile("its schema is not a tree")
        element, path = elements[position], parents
        children = thrift.field(element, SchemaElement.NUM_CHILDREN, thrift.I32, default=0)
        if position:
            path = [*parents, thrift.field(element, SchemaElement.NAME, thrift.BINARY)]
            repetition_type = element.get(SchemaElement.REPETITION_TYPE, _REQUIRED)
            definition += repetition_type != _REQUIRED
            repetition += repetition_type == _REPEATED
            if not children:
                leaves.append(LeafElement((thrift.LIST, (thrift.BINARY, path)), (definition, repetition)))
        position += 1
        for _ in range(children):
            position = visit(position, path, definition, repetition)
        return position

    visit(0, [], 0, 0)
    return leaves


def top_level(elements: list[thrift.Struct]) -> list[range]:
    """The positions of the elements of each top-level column."""
    return [range(start, _end(elements, start)) for start in _children(elements, 0)]


def _children(elements: list[thrift.Struct], position: int) -> list[int]:
    children, child = [], position + 1
    for _ in range(_child_count(elements[position])):
        children.append(child)
        child = _end(elements, child)
    return children


def _end(elements: list[thrift.Struct], position: int) -> int:
    """The position after an element and all of its children."""
    end = position + 1
    for _ in range(_child_count(elements[position])):
        end = _end(elements, end)
    return end


def _child_count(element: thrift.Struct) -> int:
    return int(element.get(SchemaElement.NUM_CHILDREN, (thrift.I32, 0))[1])


def merged_elements(
    own: list[thrift.Struct], before: list[thrift.Struct], after: list[thrift.Struct]
) -> list[thrift.Struct]:
    """The schema elements `own` of a column, changed as PyArrow's elements `before` changed to those `after`.

    Parts that did not change keep what PyArrow does not write: INT96, field ids, names and annotations of other
    writers. A part that another writer nests in another way, such as a legacy list, gets PyArrow's elements.
    """
    if before == after:
        return own
    if len(own) == len(after) and _without_repetition(before) == _without_repetition(after):
        return [_with_repetition(element, new) for element, new in zip(own, after, strict=True)]
    own_parts, before_parts, after_parts = (_subtrees(part) for part in (own, before, after))
    if not own_parts or len(own_parts) != len(before_parts) or len(after_parts) < len(before_parts):
        if any(element.get(SchemaElement.TYPE) == _INT96 for element in own):
            raise thrift.CorruptFile("a nested column with INT96 has another layout than PyArrow's")
        kept = (SchemaElement.NAME, SchemaElement.FIELD_ID)
        return [{**after[0], **{n: own[0][n] for n in kept if n in own[0]}}, *after[1:]]
    children = [merged_elements(*three) for three in zip(own_parts, before_parts, after_parts, strict=False)]
    children += after_parts[len(before_parts) :]
    root = {**_with_repetition(own[0], after[0]), SchemaElement.NUM_CHILDREN: (thrift.I32, len(children))}
    return [root, *(element for child in children for element in child)]


def _with_repetition(element: thrift.Struct, like: thrift.Struct) -> thrift.Struct:
    """An element that is required, optional or repeated as another one is."""
    repetition = like.get(SchemaElement.REPETITION_TYPE)
    return element if repetition is None else {**element, SchemaElement.REPETITION_TYPE: repetition}


def _without_repetition(elements: list[thrift.Struct]) -> list[thrift.Struct]:
    return [{n: v for n, v in element.items() if n != SchemaElement.REPETITION_TYPE} for element in elements]


def _subtrees(elements: list[thrift.Struct]) -> list[list[thrift.Struct]]:
    """The elements of each child of the first element, with all that is below it."""
    return [elements[child : _end(elements, child)] for child in _children(elements, 0)]


def make_nullable(elements: list[thrift.Struct]) -> list[thrift.Struct]:
    """Schema elements with OPTIONAL for REQUIRED, except for the keys of maps and the parts of variants.

    Spark writes a column as REQUIRED because it was a literal, and reads every column as nullable. So REQUIRED in a
    file of Spark's is no promise, and the file may take nulls.
    """
    changed = [dict(element) for element in elements]

    def visit(position: int) -> None:
        children = _children(elements, position)
        if _is_variant([elements[child] for child in children]):
            return
        for child in children:
            is_required = changed[child].get(SchemaElement.REPETITION_TYPE) == _REQUIRED
            if is_required and not _is_map_key(elements, position, child):
                changed[child][SchemaElement.REPETITION_TYPE] = _OPTIONAL
            visit(child)

    visit(0)
    return changed


def _is_variant(children: list[thrift.Struct]) -> bool:
    types = {child[SchemaElement.NAME][1]: child.get(SchemaElement.TYPE) for child in children}
    parts = {name: physical for name, physical in types.items() if name in (b"metadata", b"value")}
    return len(parts) == 2 and set(parts.values()) == {_BYTE_ARRAY} and types.keys() <= {*parts, b"typed_value"}


def _is_map_key(elements: list[thrift.Struct], parent: int, child: int) -> bool:
    """Is the child the first field of the repeated group of a map?"""
    if child != parent + 1 or not parent or elements[parent].get(SchemaElement.REPETITION_TYPE) != _REPEATED:
        return False
    grandparent = elements[parent - 1]  # a map has one child, this group
    logical = grandparent.get(SchemaElement.LOGICAL_TYPE)
    is_map = logical is not None and LogicalType.MAP in logical[1]
    return is_map or grandparent.get(SchemaElement.CONVERTED_TYPE) == _MAP


def make_spark_schema_nullable(text: bytes) -> bytes:
    """The schema in Spark's own key-value entry, with the same change; text that is not JSON stays as it is."""
    try:
        return json.dumps(_nullable(json.loads(text)), separators=(",", ":"), ensure_ascii=False).encode()
    except ValueError:
        return text


def _nullable(node: Any) -> Any:
    if isinstance(node, list):
        return [_nullable(item) for item in node]
    if not isinstance(node, dict):
        return node
    flags = ("nullable", "containsNull", "valueContainsNull")
    return {k: True if k in flags and v is False else v if k == "metadata" else _nullable(v) for k, v in node.items()}
