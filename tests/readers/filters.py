"""Filters for every column of a file: on an old value, a new one, NaN, null, and ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as t

MOST_ROWS = 5_000
_MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Leaf:
    """A column, or a field of a struct column."""

    path: tuple[str, ...]
    floating: bool = False
    nested: bool = False

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class Position:
    """Where a value of the filter stands; each reader takes it from there, in its own type."""

    row: int
    old: bool = False


@dataclass(frozen=True)
class Filter:
    """`leaf operator value`. The operators `null`, `not null`, `= nan` and `bounds` (min, max, count) need no value."""

    leaf: Leaf
    operator: str
    value: Position | None = None
    meaning: str = ""

    def __str__(self) -> str:
        return f"{self.leaf} {self.operator} {self.meaning}".strip()


def leaves(schema: pa.Schema) -> list[Leaf]:
    """Names that stand twice cannot be filtered by; neither can `s.id` in a struct beside a column `s.id`, in Spark."""
    found = [leaf for f in schema if schema.names.count(f.name) == 1 for leaf in _leaves(f, (f.name,))]
    names = [str(leaf) for leaf in found]
    return [leaf for leaf in found if names.count(str(leaf)) == 1]


def _leaves(field: pa.Field, path: tuple[str, ...]) -> Iterator[Leaf]:
    if t.is_struct(field.type):
        yield Leaf(path, nested=True)
        for inner in field.type:
            yield from _leaves(inner, (*path, inner.name))
    else:
        yield Leaf(path, t.is_floating(field.type), t.is_nested(field.type) or t.is_null(field.type))


def filters_of(new: pa.Table, old: pa.Table | None) -> list[Filter]:
    """The filters for a file, and its old version if there is one; of very many columns, for some of them."""
    found = leaves(new.schema)
    step = 1 + 16 * len(found) * max(1, new.num_rows) * new.num_columns // _MOST_CELLS
    return [f for leaf in found[::step] for f in _filters(leaf, new, old)]


def _filters(leaf: Leaf, new: pa.Table, old: pa.Table | None) -> Iterator[Filter]:
    yield Filter(leaf, "null")
    yield Filter(leaf, "not null")
    if leaf.nested:
        return
    if new.num_rows:  # Spark's pushed count of a file without rows is null, whoever wrote the file
        yield Filter(leaf, "bounds")
    values = _values(new, leaf)
    before = _values(old, leaf) if old is not None else []
    now, then = set(values), set(before)
    changed = next((i for i, v in enumerate(values) if v is not None and v not in then), None)
    kept = next((i for i, v in enumerate(values) if v is not None and (v in then or i != changed)), changed)
    gone = next((i for i, v in enumerate(before) if v is not None and v not in now), None)
    if changed is not None and old is not None:
        yield Filter(leaf, "=", Position(changed), "a new value")
        yield Filter(leaf, "!=", Position(changed), "a new value")
    if gone is not None:
        yield Filter(leaf, "=", Position(gone, old=True), "an old value")
    if kept is not None and not (changed is not None and old is not None):
        yield Filter(leaf, "=", Position(kept), "a value")
        yield Filter(leaf, "!=", Position(kept), "a value")
    least, greatest = _ends(new, leaf)
    if least is not None and greatest is not None:
        yield Filter(leaf, "<=", Position(least), "the least value")
        yield Filter(leaf, ">=", Position(greatest), "the greatest value")
    if leaf.floating:
        yield Filter(leaf, "= nan")
        if greatest is not None:
            yield Filter(leaf, ">", Position(greatest), "the greatest number")


def _values(table: pa.Table, leaf: Leaf) -> list[str | None]:
    """As texts. Zeros are one value: parquet-mr's dictionary filter finds no 0.0 by -0.0, whoever wrote the file."""
    column = column_of(table, leaf)
    if column is None:
        return []
    try:
        texts = [str(v) if v.is_valid else None for v in column.slice(0, MOST_ROWS)]
        return ["0.0" if text == "-0.0" else text for text in texts]
    except (ValueError, OverflowError):  # no day that Python knows
        return []


def _ends(table: pa.Table, leaf: Leaf) -> tuple[int | None, int | None]:
    """Where the least and the greatest value stand, apart from NaN."""
    column = column_of(table, leaf)
    try:
        values = [] if column is None else column.slice(0, MOST_ROWS).to_pylist()
        known = {i: v for i, v in enumerate(values) if v is not None and v == v}
        return (min(known, key=lambda i: known[i]), max(known, key=lambda i: known[i])) if known else (None, None)
    except (TypeError, ValueError, OverflowError):  # no order, or no value that Python can hold
        return None, None


def column_of(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray | None:
    """The values of a leaf; a null struct has null fields."""
    if leaf.path[0] not in table.column_names:
        return None
    column = table.column(leaf.path[0])
    for name in leaf.path[1:]:
        if not t.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        parts = [_field(chunk, name) for chunk in column.chunks]
        column = pa.chunked_array(parts, column.type.field(name).type)
    return column


def _field(chunk: pa.StructArray, name: str) -> pa.Array:
    index = chunk.type.get_field_index(name)
    return pa.StructArray.flatten(chunk)[index]


def read(path: str) -> pa.Table | None:
    """The rows of a file, or nothing if PyArrow does not read it."""
    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None
