"""Statistics of column chunks: what those of a footer prove, and what must not stand in those that are written.

PyArrow leaves NaN out of minimum and maximum, as the format allows. DuckDB and Spark take NaN for the greatest value,
skip a row group by such bounds, and miss its NaN. So a chunk that holds NaN is written without bounds, as they do.

DataFusion takes the bounds of some row groups for those of the whole file, and skips the file. So a chunk gets no
bounds if the chunk that it replaces had none, and a column that loses its bounds in one row group has none in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.model import Bounds, RowGroup
from fsspeckit.core.parquet import format, thrift
from fsspeckit.core.parquet.chunk_layout import COLUMN_INDEX, metadata_of, with_metadata
from fsspeckit.core.parquet.format import ColumnMetaData, Statistics
from fsspeckit.core.parquet.schema import leaf_count
from fsspeckit.core.values import arrays, nested
from fsspeckit.core.values.calendars import Calendar, hybrid_to_gregorian_days

_EXACT = Context(prec=80)
_NANOS = {"MILLIS": 1_000_000, "MICROS": 1_000, "NANOS": 1}
# UNDEFINED: a logical type of a later format version.
_UNORDERED = ("INTERVAL", "VARIANT", "GEOMETRY", "GEOGRAPHY", "UNDEFINED")
_BOUNDS = (Statistics.MAX, Statistics.MIN, Statistics.MAX_VALUE, Statistics.MIN_VALUE)
_BOUNDS_AND_FLAGS = (*_BOUNDS, Statistics.IS_MAX_VALUE_EXACT, Statistics.IS_MIN_VALUE_EXACT)


@dataclass(frozen=True, slots=True)
class Leaf:
    """The leaf that stores a flat top-level column, as Python values: PyArrow makes new objects at every access.

    `order` turns a statistic into an order value (see `values.keys`), or `None` if the type has no defined order.
    `hybrid` leaves hold days of the hybrid calendar.
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
    """A row group with the bounds of some leaves. The leaves must have passed `footer_checks`."""
    rows = group.num_rows
    bounds = {leaf.column: _bounds(group.column(leaf.index), leaf, rows) for leaf in leaves}
    return RowGroup(rows, group.total_byte_size, {name: known for name, known in bounds.items() if known is not None})


def _bounds(chunk: pq.ColumnChunkMetaData, leaf: Leaf, rows: int) -> Bounds | None:
    """Bounds that hold for every non-null value, or `None` if the statistics prove nothing."""
    if chunk.physical_type != leaf.physical_type:  # PyArrow would read one type as the other, and end the process
        raise thrift.CorruptFile(
            f"a chunk of column {leaf.path!r} is {chunk.physical_type}, and its schema {leaf.physical_type}"
        )
    stats = chunk.statistics if chunk.is_stats_set else None
    if stats is None:
        return None
    nulls = stats.null_count if stats.has_null_count else None
    if nulls is not None and not 0 <= nulls <= (rows if leaf.max_definition_level else 0):
        return None
    if nulls == rows:  # bounds of nothing but nulls contradict themselves
        return None if rows and stats.has_min_max else Bounds(None, None, nulls)
    if not stats.has_min_max:
        return None
    lower, upper = leaf.order(stats.min_raw), leaf.order(stats.max_raw)
    if lower is None or upper is None or not lower <= upper:  # NaN, or a damaged bit
        return None
    if leaf.hybrid:  # conversion keeps the order of days
        lower, upper = hybrid_to_gregorian_days([lower, upper]).tolist()
    return Bounds(lower, upper, nulls)


def is_ordered(column: pq.ColumnSchema) -> bool:
    """Does the format define an order for this leaf? If not, bounds mean nothing, and some readers use them."""
    if column.physical_type == "INT96" or column.converted_type == "INTERVAL":  # PyArrow gives no logical type
        return False
    return column.logical_type.type not in _UNORDERED


def _order(column: pq.ColumnSchema) -> Callable[[Any], Any]:
    physical, logical = column.physical_type, column.logical_type
    if not is_ordered(column) or logical.type == "FLOAT16":  # PyArrow gives the two bytes of a float16
        return lambda raw: None
    if logical.type == "DECIMAL":
        scale = column.scale
        return lambda raw: _EXACT.scaleb(Decimal(_unscaled(raw)), -scale)
    if logical.type in ("TIMESTAMP", "TIME"):
        nanos = _NANOS[_unit(logical)]
        return lambda raw: raw * nanos
    if logical.type == "INT" and column.converted_type.startswith("UINT"):
        modulus = 1 << (32 if physical == "INT32" else 64)
        return lambda raw: raw + modulus if raw < 0 else raw
    return int if physical == "BOOLEAN" else lambda raw: raw


def _unscaled(raw: Any) -> int:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw


def _unit(logical: Any) -> str:
    text = str(logical)
    if "nano" in text:
        return "NANOS"
    return "MICROS" if "micro" in text else "MILLIS"


def nan_counts(table: pa.Table) -> list[int | None]:
    """The number of NaN in each leaf, in the order of the file; `None` for leaves of other types."""
    counts: list[int | None] = []
    for column in table.columns:
        dtype = arrays.plain_type(column.type)
        if nested.contains(dtype, t.is_floating):
            chunks = arrays.plain(column).chunks or [pa.array([], dtype)]
            counts += [_sum(leaf) for leaf in zip(*map(_nan_counts, chunks), strict=True)]
        else:
            counts += [None] * leaf_count(dtype)
    return counts


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)


def _nan_counts(array: pa.Array) -> Iterator[int | None]:
    """The number of NaN in each leaf of one array."""
    if t.is_nested(array.type):
        for part in nested.decompose(array)[1]:
            yield from _nan_counts(part)
    elif t.is_floating(array.type):
        values = array.cast(pa.float32()) if t.is_float16(array.type) else array
        yield pc.sum(pc.is_nan(values)).as_py() or 0
    else:
        yield None


def with_safe_bounds(
    entries: Sequence[thrift.Struct], nans: Sequence[int | None], old: Sequence[thrift.Struct] | None = None
) -> list[thrift.Struct]:
    """Column chunks as PyArrow wrote them, without bounds that would mislead a reader: see the top of this module.

    `nans` are the `nan_counts` of the chunks, `old` the chunks that they replace.
    """
    replaced = [None] * len(entries) if old is None else old
    return [_with_safe_bounds(*chunk) for chunk in zip(entries, nans, replaced, strict=True)]


def _with_safe_bounds(entry: thrift.Struct, nans: int | None, old: thrift.Struct | None) -> thrift.Struct:
    metadata = metadata_of(entry)
    has_bounds = any(number in _statistics(metadata) for number in _BOUNDS)
    adds_bounds = has_bounds and old is not None and lacks_bounds(metadata_of(old))
    if ColumnMetaData.STATISTICS not in metadata or (nans is None and not adds_bounds):
        return entry  # no statistics are added: some readers take a missing null count for no nulls
    if nans or adds_bounds:
        entry = _drop_bounds(entry)
    if nans is None or old is None or Statistics.NAN_COUNT not in _statistics(metadata_of(old)):
        return entry
    statistics = {**_statistics(metadata_of(entry)), Statistics.NAN_COUNT: (thrift.I64, nans)}
    return with_metadata(entry, {ColumnMetaData.STATISTICS: (thrift.STRUCT, statistics)})


def leaves_without_bounds(nans: Sequence[int | None], old: Sequence[thrift.Struct] | None = None) -> set[int]:
    """The leaves of a row group that lose their bounds because of NaN; `old` are the chunks that it replaces."""
    with_nan = {leaf for leaf, count in enumerate(nans) if count}
    return {leaf for leaf in with_nan if old is None or not lacks_bounds(metadata_of(old[leaf]))}


def without_bounds(groups: Sequence[thrift.Struct], leaves: Collection[int]) -> list[thrift.Struct]:
    """The row groups of a footer without bounds and column indexes of some leaves."""
    if not leaves:
        return list(groups)
    changed = []
    for group in groups:
        entries = enumerate(thrift.structs(group, format.RowGroup.COLUMNS))
        chunks = [_drop_bounds(entry) if leaf in leaves else entry for leaf, entry in entries]
        changed.append({**group, format.RowGroup.COLUMNS: thrift.struct_list(chunks)})
    return changed


def _drop_bounds(entry: thrift.Struct) -> thrift.Struct:
    """A column chunk without bounds and column index. It keeps its other statistics, such as the null count."""
    metadata = metadata_of(entry)
    if ColumnMetaData.STATISTICS not in metadata:
        return entry
    kept = {number: value for number, value in entry.items() if number not in COLUMN_INDEX}
    statistics = {n: value for n, value in _statistics(metadata).items() if n not in _BOUNDS_AND_FLAGS}
    return with_metadata(kept, {ColumnMetaData.STATISTICS: (thrift.STRUCT, statistics)})


def _statistics(metadata: thrift.Struct) -> thrift.Struct:
    fields: thrift.Struct = thrift.field(metadata, ColumnMetaData.STATISTICS, thrift.STRUCT, default={})
    return fields


def lacks_bounds(metadata: thrift.Struct) -> bool:
    """Has a chunk no bounds, although it may have values?"""
    statistics = _statistics(metadata)
    has_values = statistics.get(Statistics.NULL_COUNT) != metadata[ColumnMetaData.NUM_VALUES]
    return has_values and not any(number in statistics for number in _BOUNDS)
