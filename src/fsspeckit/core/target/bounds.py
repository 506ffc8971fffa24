"""What a footer's statistics prove of a column in a row group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow.parquet as pq

from fsspeckit.core.model import Bounds, RowGroup
from fsspeckit.core.target.thrift import Damaged
from fsspeckit.core.values.calendars import Calendar, days_of

_EXACT = Context(prec=80)
_NANOS = {"MILLIS": 1_000_000, "MICROS": 1_000, "NANOS": 1}
_UNORDERED = ("INTERVAL", "FLOAT16", "VARIANT", "GEOMETRY", "GEOGRAPHY")


@dataclass(frozen=True, slots=True)
class Leaf:
    """The Parquet column that holds a flat top-level column, in values of Python: PyArrow makes anew what it is asked.

    `order` brings a statistic to an order value (see `keys`), `None` for types whose order is not defined. `hybrid` are
    days of the hybrid calendar.
    """

    column: str
    index: int
    name: str
    path: str
    physical_type: str
    length: int
    max_repetition_level: int
    max_definition_level: int
    order: Callable[[Any], Any]
    hybrid: bool

    @classmethod
    def of(cls, column: str, index: int, schema: pq.ColumnSchema, calendar: Calendar) -> Leaf:
        return cls(
            column,
            index,
            schema.name,
            schema.path,
            schema.physical_type,
            schema.length or 0,
            schema.max_repetition_level,
            schema.max_definition_level,
            _order(schema),
            calendar.dates and schema.logical_type.type == "DATE",
        )


def row_group(group: pq.RowGroupMetaData, leaves: Iterable[Leaf]) -> RowGroup:
    rows = group.num_rows
    bounds = {leaf.column: _bounds(group.column(leaf.index), leaf, rows) for leaf in leaves}
    return RowGroup(rows, group.total_byte_size, {name: known for name, known in bounds.items() if known is not None})


def _bounds(chunk: pq.ColumnChunkMetaData, leaf: Leaf, rows: int) -> Bounds | None:
    """Bounds that hold for every non-null value, or `None` if the statistics prove nothing."""
    if chunk.physical_type != leaf.physical_type:  # PyArrow takes one for the other, and ends the process
        raise Damaged(f"a chunk of column {leaf.path!r} is {chunk.physical_type}, and its schema {leaf.physical_type}")
    stats = chunk.statistics if chunk.is_stats_set else None
    if stats is None:
        return None
    nulls = stats.null_count if stats.has_null_count else None
    if nulls == rows:
        return Bounds(None, None, nulls)
    if not stats.has_min_max:
        return None
    lower, upper = leaf.order(stats.min_raw), leaf.order(stats.max_raw)
    if lower is None or upper is None or lower != lower or upper != upper:
        return None
    if leaf.hybrid:  # such days keep their order
        lower, upper = days_of([lower, upper]).tolist()
    return Bounds(lower, upper, nulls)


def _order(column: pq.ColumnSchema) -> Callable[[Any], Any]:
    physical, logical = column.physical_type, column.logical_type
    if physical == "INT96" or logical.type in _UNORDERED:
        return lambda raw: None
    if logical.type == "DECIMAL":
        scale = column.scale
        return lambda raw: _EXACT.scaleb(Decimal(_unscaled(raw)), -scale)
    if logical.type in ("TIMESTAMP", "TIME"):
        nanos = _NANOS[_unit(logical)]
        return lambda raw: raw * nanos
    if logical.type == "INT" and column.converted_type.startswith("UINT"):
        beyond = 1 << (32 if physical == "INT32" else 64)
        return lambda raw: raw + beyond if raw < 0 else raw
    return int if physical == "BOOLEAN" else lambda raw: raw


def _unscaled(raw: Any) -> int:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw


def _unit(logical: Any) -> str:
    text = str(logical)
    if "nano" in text:
        return "NANOS"
    return "MICROS" if "micro" in text else "MILLIS"
