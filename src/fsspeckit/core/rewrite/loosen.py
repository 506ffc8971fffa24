"""A footer's schema in which everything may be null.

Spark writes a column as REQUIRED because it was a literal, and reads every column as one that may be null. So what it
wrote is no promise, and a file of its own may be widened where a null comes in.
"""

from __future__ import annotations

import json
from typing import Any

from fsspeckit.core.target import thrift

# Of a SchemaElement in parquet.thrift
_TYPE, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 3, 4, 5, 6, 10
_REQUIRED, _OPTIONAL, _REPEATED = ((thrift.I32, n) for n in range(3))
_MAP = (thrift.I32, 1)
_BYTES = (thrift.I32, 6)


def loosened(elements: list[thrift.Struct]) -> list[thrift.Struct]:
    """Schema elements with OPTIONAL for REQUIRED, but for the keys of maps and the insides of variants."""
    changed = [dict(element) for element in elements]

    def visit(position: int) -> None:
        children = _children(elements, position)
        if _is_variant([elements[c] for c in children]):
            return
        for child in children:
            if changed[child].get(_REPETITION) == _REQUIRED and not _is_key(elements, position, child):
                changed[child][_REPETITION] = _OPTIONAL
            visit(child)

    visit(0)
    return changed


def levels(elements: list[thrift.Struct]) -> list[tuple[int, int]]:
    """The greatest definition and repetition level of every leaf."""
    leaves: list[tuple[int, int]] = []

    def visit(position: int, definition: int, repetition: int) -> None:
        repetition_type = elements[position].get(_REPETITION, _REQUIRED) if position else _REQUIRED
        definition += repetition_type != _REQUIRED
        repetition += repetition_type == _REPEATED
        children = _children(elements, position)
        if not children and position:
            leaves.append((definition, repetition))
        for child in children:
            visit(child, definition, repetition)

    visit(0, 0, 0)
    return leaves


def _children(elements: list[thrift.Struct], position: int) -> list[int]:
    places, at = [], position + 1
    for _ in range(elements[position].get(_CHILDREN, (thrift.I32, 0))[1]):
        places.append(at)
        at = _end(elements, at)
    return places


def _end(elements: list[thrift.Struct], position: int) -> int:
    at = position + 1
    for _ in range(elements[position].get(_CHILDREN, (thrift.I32, 0))[1]):
        at = _end(elements, at)
    return at


def _is_variant(children: list[thrift.Struct]) -> bool:
    named = {child[_NAME][1]: child.get(_TYPE) for child in children}
    plain = {name: physical for name, physical in named.items() if name in (b"metadata", b"value")}
    return len(plain) == 2 and set(plain.values()) == {_BYTES} and named.keys() <= {*plain, b"typed_value"}


def _is_key(elements: list[thrift.Struct], parent: int, child: int) -> bool:
    """The first field of the repeated group of a map."""
    if child != parent + 1 or not parent or elements[parent].get(_REPETITION) != _REPEATED:
        return False
    above = elements[parent - 1]  # a map has no other child than this group
    logical = above.get(_LOGICAL)
    return above.get(_CONVERTED) == _MAP or (logical is not None and 2 in logical[1])


def loosened_row(text: bytes) -> bytes:
    """Spark's own words for the schema, changed alike."""
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
