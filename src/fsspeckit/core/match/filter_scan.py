"""Find the rows that a filter selects.

Partition values and footer statistics decide most row groups: no row is selected, or, by partition values, every row.
Of the others only the columns of the filter are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from pyarrow import types as t

from fsspeckit.core.dataset.footers import open_planned
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.match.filters import Condition, RowFilter
from fsspeckit.core.match.key_index import match_step, scan_bytes
from fsspeckit.core.model import Footer, Scan, Target
from fsspeckit.core.parquet.reader import check_int96, read_row_group
from fsspeckit.core.progress import Progress
from fsspeckit.core.rows.exchange import Runner
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays
from fsspeckit.core.values.calendars import SAME_SINCE, from_file_calendar
from fsspeckit.core.values.conform import to_common_type

Mask = npt.NDArray[np.bool_]

# Instants of the legacy calendar differ before 1900, in the zones of the world by less than a day at its end.
_SAME_SINCE_NANOS = (SAME_SINCE + 86_400) * 10**9


@dataclass(frozen=True, slots=True)
class FilterScan:
    """The row groups of one file: those of which every row is `selected`, and those in which rows must be `read`."""

    selected: tuple[int, ...]
    read: tuple[int, ...]
    reason: str


def match_filter(
    runner: Runner, location: Location, target: Target, row_filter: RowFilter
) -> tuple[Mapping[str, Mapping[int, int]], list[FilterScan]]:
    """The number of selected rows by path and row group, and how they were found in each file."""
    decided = prune_filter(target.files, row_filter)
    scans = [Scan(target.files[number], file.read) for number, file in enumerate(decided) if file.read]
    counts: dict[str, dict[int, int]] = {}
    for number, file in enumerate(decided):
        if file.selected:
            footer = target.files[number]
            counts[footer.path] = {group: footer.row_groups[group].rows for group in file.selected}
    count = partial(_count, location, row_filter, runner.progress)
    runner.progress.expect(len(scans), sum(map(scan_bytes, scans)))
    counted = runner.map(match_step(scans), count, scans, partial(_weight, row_filter)) if scans else []
    for scan, groups in zip(scans, counted, strict=True):
        if groups:
            counts[scan.footer.path] = dict(sorted({**counts.get(scan.footer.path, {}), **groups}.items()))
    return counts, decided


def _count(location: Location, row_filter: RowFilter, progress: Progress, scan: Scan) -> dict[int, int]:
    """The selected rows of each row group that has some."""
    location.expect(scan.footer.info)
    meter, counts = progress.meter(scan_bytes(scan)), dict[int, int]()
    with open_planned(location, scan.footer) as file:
        for number, group in enumerate(scan.row_groups, 1):
            counts[group] = len(selected_rows(location, scan.footer, file, group, row_filter))
            meter.reach(number / len(scan.row_groups))
    meter.finish()
    return {group: count for group, count in counts.items() if count}


def _weight(row_filter: RowFilter, scan: Scan) -> int:
    """Bytes in memory at once: the columns of the filter, about their part of the largest row group."""
    columns = max(1, len(scan.footer.schema.names))
    largest = max(scan.footer.row_groups[group].bytes for group in scan.row_groups)
    return largest * min(columns, len(row_filter.columns)) // columns


# -- read


def selected_rows(
    location: Location, footer: Footer, file: pq.ParquetFile, group: int, row_filter: RowFilter
) -> npt.NDArray[np.int64]:
    """The positions of the selected rows of a row group. Only the columns of the filter are read."""
    rows = footer.row_groups[group].rows
    columns = _read_columns(location, footer, file, group, row_filter)
    selected = np.zeros(rows, dtype=bool)
    for conditions in row_filter.any_of:
        all_hold = np.ones(rows, dtype=bool)
        for condition in conditions:
            decided = _of_file(condition, footer, row_filter)
            if decided in (_NONE, _ALL):
                all_hold &= decided == _ALL
            elif all_hold.any():
                all_hold &= condition.mask(columns[condition.column])
        selected |= all_hold
    return np.flatnonzero(selected)


def _read_columns(
    location: Location, footer: Footer, file: pq.ParquetFile, group: int, row_filter: RowFilter
) -> dict[str, Any]:
    """The stored columns of a filter in their types, in today's calendar."""
    conditions = [c for c in row_filter.conditions if _of_file(c, footer, row_filter) not in (_NONE, _ALL)]
    types = {condition.column: condition.dtype for condition in conditions}
    table = read_row_group(location, footer.path, file, group, list(types))
    if int96 := footer.int96.intersection(types):
        check_int96(location, footer.path, file, [group], int96)
    uncertain = {c.column for c in conditions if _is_uncertain(c, footer)}
    for name in types:
        if name in uncertain or t.is_date(table.schema.field(name).type):
            corrected = from_file_calendar(
                table.select([name]), footer.calendar, location.show(footer.path), footer.int96
            )
            table = table.set_column(table.schema.get_field_index(name), name, corrected.column(0))
    where = location.show(footer.path)
    return {name: to_common_type(table.column(name), dtype, name, where) for name, dtype in types.items()}


# -- prune

_Decision = tuple[bool, bool]
"""May a condition hold for some rows of a row group, and does it hold for every row?"""
_NONE, _ALL, _UNKNOWN = (False, False), (True, True), (True, False)


def prune_filter(files: Footers, row_filter: RowFilter) -> list[FilterScan]:
    """Decide for each file which row groups must be read."""
    has_rows = np.array(files.group_rows, dtype=np.int64) > 0
    some, every = (np.zeros(len(has_rows), dtype=bool) for _ in range(2))
    for conditions in row_filter.any_of:
        some_of_all, every_of_all = has_rows.copy(), has_rows.copy()
        for condition in conditions:
            some_hold, every_holds = _decide(condition, files, row_filter)
            some_of_all &= some_hold
            every_of_all &= every_holds
        some |= some_of_all
        every |= every_of_all
    ranges = pairwise(accumulate(files.group_counts, initial=0))
    return [_scan(some[start:end], every[start:end], bool(has_rows[start:end].any())) for start, end in ranges]


def _scan(some: Mask, every: Mask, has_rows: bool) -> FilterScan:
    selected, read = (tuple(np.flatnonzero(groups).tolist()) for groups in (every, some & ~every))
    if read:
        reason = "the filter may select rows"
    elif selected:
        reason = "partition values select every row"
    else:
        reason = "partition values or statistics exclude every row" if has_rows else "no rows"
    return FilterScan(selected, read, reason)


def _decide(condition: Condition, files: Footers, row_filter: RowFilter) -> tuple[Mask, Mask]:
    """The decision of a condition for each row group."""
    decisions = [_by_bounds(condition, *bounds) for bounds in zip(*files.bounds(condition.column), strict=True)]
    in_paths = condition.column in row_filter.partitions
    if in_paths or any(_of_file(condition, footer, row_filter) is not None for footer in files.templates):
        start = 0
        for footer in files:
            end, decision = start + len(footer.row_groups), _of_file(condition, footer, row_filter)
            if decision is not None:
                decisions[start:end] = [decision] * (end - start)
            start = end
    both = np.array(decisions, dtype=bool).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _of_file(condition: Condition, footer: Footer, row_filter: RowFilter) -> _Decision | None:
    """The decision for all row groups of a file; `None` if their bounds decide.

    The path gives the value of a partition column, whatever the file stores. `_UNKNOWN`: bounds are of no use.
    """
    name = condition.column
    if name in row_filter.partitions and name in footer.partition:
        value = row_filter.path_value(condition, footer.partition[name])
        return _NONE if value is None else condition.decide(value, value)
    if name not in footer.schema.names:
        return _NONE
    own, dtype = arrays.plain_type(footer.schema.field(name).type), condition.dtype
    if t.is_null(own):
        return _NONE
    rounded = t.is_decimal(own) and t.is_floating(dtype)  # 0.10 becomes 0.1, which is slightly above the bound
    return _UNKNOWN if rounded or _is_uncertain(condition, footer) else None


def _is_uncertain(condition: Condition, footer: Footer) -> bool:
    """May the calendar of a file change the order of its instants and the literals? Then old instants are refused."""
    own = arrays.plain_type(footer.schema.field(condition.column).type)
    if not t.is_timestamp(own) or not footer.calendar.applies_to(own, condition.column in footer.int96):
        return False
    return bool(condition.literals[0].order < _SAME_SINCE_NANOS)


def _by_bounds(condition: Condition, lower: Any, upper: Any, nulls: int | None) -> _Decision:
    """The decision for a row group by its statistics, which exclude rows and never select them: a row is only deleted
    for a value that was read.

    Bounds of text may be cut. Those of floats leave out NaN, which is greater than any other value.
    """
    if lower is None:
        return _UNKNOWN if nulls is None else _NONE
    some, _ = condition.decide(lower, upper)
    if t.is_floating(condition.dtype):
        has_nan = any(literal.order != literal.order for literal in condition.literals)
        some = some or has_nan or condition.operator in (">", ">=", "not in")
    elif arrays.family(condition.dtype) in ("text", "binary"):
        some = some or condition.operator == "not in"
    return some, False
