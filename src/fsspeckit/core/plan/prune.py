"""Pruning: prove from partition values and footer statistics that no source key is in a row group.

Conservative throughout: `MIGHT_MATCH` unless proven `CANNOT_MATCH`. The classes of spec 001 at the end are views on
the same two predicates that the pipeline uses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.core.errors import ArgumentError, UnreadableFileError
from fsspeckit.core.model import Bounds, FileInfo, Footer, Profile, RowGroup, Shape
from fsspeckit.core.plan.validate import key_names
from fsspeckit.core.storage import locate
from fsspeckit.core.target.footers import read_footer
from fsspeckit.core.target.listing import list_files
from fsspeckit.core.target.partitions import PartitionMap, Unreadable, identities, read_value
from fsspeckit.core.values import arrays, keys

MIGHT_MATCH = True
CANNOT_MATCH = False

Intervals = Sequence[tuple[Any, Any]] | None


def bounds_might_match(bounds: Bounds | None, intervals: Intervals) -> bool:
    """Could a value within `bounds` lie in one of the (sorted, disjoint) intervals?"""
    if bounds is None or intervals is None:
        return MIGHT_MATCH
    if bounds.lower is None:  # nothing but nulls, and nulls match nothing
        return CANNOT_MATCH
    try:
        first = bisect_left(intervals, bounds.lower, key=lambda interval: interval[1])
        return first < len(intervals) and bool(intervals[first][0] <= bounds.upper)
    except TypeError:  # types that do not compare prove nothing
        return MIGHT_MATCH


def row_group_might_match(group: RowGroup, intervals: Mapping[str, Intervals]) -> bool:
    """A composite key cannot be in a row group if any one of its columns excludes it."""
    return group.rows > 0 and all(
        bounds_might_match(group.bounds.get(name), found) for name, found in intervals.items()
    )


@dataclass(frozen=True, slots=True)
class Pruned:
    """What is left of one file: row groups to scan, and whether its partition is one of the source's."""

    footer: Footer
    row_groups: tuple[int, ...]
    reason: str
    guard: bool


def prune(files: Iterable[Footer], shape: Shape, profile: Profile, partitions: PartitionMap) -> list[Pruned]:
    return [_prune_file(footer, shape, profile, partitions) for footer in files]


def _prune_file(footer: Footer, shape: Shape, profile: Profile, partitions: PartitionMap) -> Pruned:
    values = partitions.values(footer)
    elsewhere = values is not None and not _partition_might_match(values, profile.partitions)
    if elsewhere and shape.partition_in_key:
        return Pruned(footer, (), "partition holds no source row", guard=False)
    intervals = {n: found for n, found in profile.intervals.items() if not _tells_nothing(footer, shape, n)}
    survivors = tuple(i for i, group in enumerate(footer.row_groups) if row_group_might_match(group, intervals))
    if not survivors:
        reason = "no rows" if footer.rows == 0 else "statistics exclude every source key"
        return Pruned(footer, (), reason, guard=False)
    reason = "another partition: guard against moved keys" if elsewhere else "statistics admit source keys"
    return Pruned(footer, survivors, reason, guard=elsewhere)


def _tells_nothing(footer: Footer, shape: Shape, name: str) -> bool:
    """Do a column's bounds say nothing of its values?

    The path's word counts for a partition column, whatever the file stores. Decimals of a file whose target is a
    float are rounded: 0.10 becomes 0.1, which is a little more than the bound says.
    """
    if name in shape.partitions and name in footer.partition:
        return True
    if name not in footer.schema.names:
        return False
    own, common = (arrays.plain_type(s.field(name).type) for s in (footer.schema, shape.schema))
    return bool(pa.types.is_decimal(own) and pa.types.is_floating(common))


def _partition_might_match(values: tuple[Any, ...], wanted: frozenset[tuple[Any, ...]]) -> bool:
    """`Unreadable` values equal nothing but prove nothing either."""
    return any(isinstance(v, Unreadable) for v in values) or values in wanted


@dataclass
class ParquetFileMetadata:
    """Metadata for a single Parquet file; `column_stats` maps a column to `min`, `max` and `null_count`.

    A column without an entry has statistics that prove nothing. Text bounds are bytes, since a bound may be cut
    within a character; times are nanoseconds and dates are days since 1970.
    """

    path: str
    row_group_count: int
    total_rows: int
    column_stats: dict[str, dict[str, Any]]
    partition_values: dict[str, Any] | None = None


class ParquetMetadataAnalyzer:
    """Extract and analyze Parquet file metadata for incremental rewrite planning."""

    def analyze_dataset_files(self, dataset_path: str, filesystem: Any = None) -> list[ParquetFileMetadata]:
        """Analyze all Parquet files of a data set; a file whose footer cannot be read has no statistics."""
        location = locate(dataset_path, filesystem)
        return [self._analyze(location, info) for info in list_files(location)]

    def _analyze(self, location: Any, info: FileInfo) -> ParquetFileMetadata:
        try:
            footer = read_footer(location, info, None)
        except UnreadableFileError:
            footer = Footer(info, pa.schema([]), ())
        stats = {n: s for n in footer.schema.names if (s := _file_stats(footer, n)) is not None}
        shown, groups = location.show(info.path), len(footer.row_groups)
        return ParquetFileMetadata(shown, groups, footer.rows, stats, dict(footer.partition) or None)


def _file_stats(footer: Footer, column: str) -> dict[str, Any] | None:
    bounds = [group.bounds.get(column) for group in footer.row_groups if group.rows]
    known = [b for b in bounds if b is not None]
    if not known or len(known) < len(bounds):
        return None
    nulls = None if any(b.nulls is None for b in known) else sum(b.nulls or 0 for b in known)
    filled = [b for b in known if b.lower is not None]
    if not filled:
        return {"min": None, "max": None, "null_count": nulls}
    return {"min": min(b.lower for b in filled), "max": max(b.upper for b in filled), "null_count": nulls}


class ConservativeMembershipChecker:
    """Conservative pruning using column statistics."""

    def file_might_contain_keys(
        self, file_metadata: ParquetFileMetadata, key_columns: Sequence[str] | str, source_keys: Iterable[Any]
    ) -> bool:
        """Could the file contain any of the source keys? Only statistics that prove the contrary say no."""
        if isinstance(source_keys, Iterator):  # the next file would be asked for no keys at all
            raise ArgumentError("source_keys can be read only once, and every file is asked for them; give a list.")
        found = key_intervals(key_columns, source_keys)
        stats, rows = file_metadata.column_stats, file_metadata.total_rows
        return all(bounds_might_match(_as_bounds(stats.get(n), rows), intervals) for n, intervals in found.items())


def _as_bounds(stats: Mapping[str, Any] | None, rows: int) -> Bounds | None:
    """Bounds out of a caller's statistics; missing and unordered ones (NaN) prove nothing."""
    if stats is None or "min" not in stats or "max" not in stats:
        return None
    lower, upper = (_order_value(stats[k]) for k in ("min", "max"))
    if lower is None and upper is None and stats.get("null_count") == rows:
        return Bounds(None, None, rows)
    known = None not in (lower, upper) and lower == lower and upper == upper
    return Bounds(lower, upper, stats.get("null_count")) if known else None


def _order_value(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):  # also beyond 64 bits with a sign
        return value
    return keys.order_values(arrays.plain(pa.array([value])))[0]


class PartitionPruner:
    """Identify candidate files based on partition values."""

    def identify_candidate_files(
        self,
        file_metadata: Iterable[ParquetFileMetadata],
        key_columns: Sequence[str] | str,
        source_keys: Iterable[Any],
        partition_schema: pa.Schema | None = None,
    ) -> list[str]:
        """Keep the files whose partition values admit a source key.

        Partition columns that are key columns are compared; of the others the keys say nothing, and nothing is
        pruned by them. Without a `partition_schema`, values in paths are compared as text.
        """
        wanted = key_table(key_columns, source_keys)
        return [f.path for f in file_metadata if self._admits(f.partition_values or {}, wanted, partition_schema)]

    def _admits(self, values: Mapping[str, Any], wanted: pa.Table, schema: pa.Schema | None) -> bool:
        for name in wanted.column_names:
            if name in values and not _column_admits(values[name], wanted.column(name), schema, name):
                return CANNOT_MATCH
        return MIGHT_MATCH


def _column_admits(text: Any, column: pa.ChunkedArray, schema: pa.Schema | None, name: str) -> bool:
    kind = schema.field(name).type if schema is not None and name in schema.names else column.type
    value = read_value(None if text is None else str(text), arrays.plain_type(kind))
    if isinstance(value, Unreadable):
        return MIGHT_MATCH
    try:
        wanted = column.cast(kind)
    except pa.ArrowException:
        return MIGHT_MATCH
    return value in identities(arrays.plain(wanted))


def key_table(key_columns: Sequence[str] | str, source_keys: Iterable[Any]) -> pa.Table:
    """Keys given as Python values (tuples or mappings for composite keys) as a table."""
    names = key_names(key_columns)
    if isinstance(source_keys, pa.Table):
        return source_keys.select(list(names))
    if isinstance(source_keys, (str, bytes)):
        raise ArgumentError(f"source_keys takes the keys to look for, not the text {source_keys!r}; give a list.")
    found = list(source_keys)  # it is gone through more than once, and a generator gives its keys only once
    if len(names) == 1 and not any(isinstance(k, (tuple, list, Mapping)) for k in found):
        found = [(key,) for key in found]
    rows = [k if isinstance(k, Mapping) else dict(zip(names, k, strict=True)) for k in found]
    return pa.table({name: _key_array([row[name] for row in rows]) for name in names})


def _key_array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # integers beyond 63 bits
        return pa.array(values, pa.uint64())


def key_intervals(key_columns: Sequence[str] | str, source_keys: Iterable[Any]) -> dict[str, Intervals]:
    table = key_table(key_columns, source_keys)
    return {name: keys.intervals(arrays.plain(table.column(name))) for name in table.column_names}
