"""What files sorted by key, or smaller row groups, would save a merge that changes few rows in many files.

Estimated from the footers and the intervals of the source's keys: rows are assumed to be spread evenly between the
bounds of their row group. No file is read.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from fsspeckit.core.execution_plan import ExecutionPlan
from fsspeckit.core.model import Footer

MIN_FILES = 10
"""A plan that rewrites fewer files gets no hint."""
MAX_SHARE = 0.1
"""The matched part of the rewritten rows, above which a rewrite costs little more than it must."""
SMALL_GROUP = 10_000
"""Rows of a small row group. Smaller ones make files larger and scans slower."""

Numbers = npt.NDArray[np.float64]


def layout_hints(path: str, planned: ExecutionPlan) -> Iterator[str]:
    """At most one sentence about sorting, and one about row groups."""
    columns = [name for name in planned.shape.keys if name not in planned.shape.partitions]
    touched = [footer for footer in planned.touched if planned.match.rows_in(footer.path).changed]
    rewrites_anyway = planned.request.rewrite_mode == "full" or planned.request.actions.missing == "delete"
    if rewrites_anyway or len(touched) < MIN_FILES or not columns:
        return
    matched = {footer.path: planned.match.rows_in(footer.path).changed for footer in touched}
    rows = sum(footer.rows for footer in touched)
    share = sum(matched.values()) / rows
    if share > MAX_SHARE:
        return
    files, name = len(planned.target.files), columns[0]
    where = f"Matched rows are in {len(touched):,} of {files:,} files, {100 * share:.2g} % of their rows."
    when_sorted = sorted_files(touched, planned, name)
    if when_sorted is not None and 2 * when_sorted <= len(touched):
        command = f"fsspeckit compact {shlex.quote(path)} --sort-by {shlex.quote(name)}"
        yield f"{where} Sorted by {name} they would be in about {when_sorted:,}: {command}"
        return
    large = max(group.rows for footer in touched for group in footer.row_groups)
    encoded = sum(min(footer.rows, matched[footer.path] * SMALL_GROUP) for footer in touched)
    if large > 2 * SMALL_GROUP and 2 * encoded <= rows:
        yield (
            f"{where} Their row groups have up to {large:,} rows. With {SMALL_GROUP:,} rows in a row group (when files "
            f"are written: row_group_size, or Spark's parquet.block.size), at most {100 * encoded / rows:.2g} % of "
            "these files would be encoded again."
        )
    elif when_sorted is not None:
        yield f"{where} The keys are spread over all of {name}, so sorting the files by it would not help."


def sorted_files(touched: Sequence[Footer], planned: ExecutionPlan, name: str) -> int | None:
    """In about how many files matched rows would be if the files of each folder were sorted by a key column; `None` if
    there is no estimate."""
    intervals, files, total = planned.profile.intervals.get(name), planned.target.files, 0
    by_folder: dict[str, list[int]] = {posixpath.dirname(footer.path): [] for footer in touched}
    for number, info in enumerate(files.infos):
        if (folder := posixpath.dirname(info.path)) in by_folder and files.rows[number]:
            by_folder[folder].append(number)
    bounds, starts = files.bounds(name), [*accumulate(files.group_counts, initial=0)]
    for numbers in by_folder.values():
        groups = [g for n in numbers for g in range(starts[n], starts[n + 1]) if files.group_rows[g]]
        lower, upper, rows = ([column[g] for g in groups] for column in (bounds[0], bounds[1], files.group_rows))
        count = None if not intervals else _files_of_intervals(len(numbers), lower, upper, rows, intervals)
        if count is None:
            return None
        total += count
    return total


def _files_of_intervals(
    files: int,
    lower_bounds: Sequence[Any],
    upper_bounds: Sequence[Any],
    group_rows: Sequence[int],
    intervals: Sequence[tuple[Any, Any]],
) -> int | None:
    """How many of the sorted files of a folder have a value in the intervals. The bounds are those of row groups."""
    ends = [value for bounds in zip(lower_bounds, upper_bounds, strict=True) for value in bounds]
    if None in ends:
        return None
    numbers = _as_numbers([*ends, *(value for interval in intervals for value in interval)])
    if numbers is None:
        return None
    lower, upper = numbers[0 : len(ends) : 2], numbers[1 : len(ends) : 2]
    starts, stops = numbers[len(ends) :: 2], numbers[len(ends) + 1 :: 2]
    overlaps = (stops >= lower.min()) & (starts <= upper.max())
    rows = np.array(group_rows, dtype=np.float64)
    first, last = (_rows_below(values, lower, upper, rows) for values in (starts[overlaps], stops[overlaps]))
    per_file = rows.sum() / files
    numbers_of_files = [np.minimum(places // per_file, files - 1).astype(int) for places in (first, last)]
    hit = np.zeros(files, dtype=bool)
    for begin, end in zip(*numbers_of_files, strict=True):
        hit[begin : end + 1] = True
    return int(hit.sum())


def _rows_below(values: Numbers, lower: Numbers, upper: Numbers, rows: Numbers) -> Numbers:
    """How many rows are below each value: the sum of a ramp for each row group, found by its corners."""
    width = np.maximum(upper - lower, 1e-9 * (upper.max() - lower.min()) or 1.0)  # a single key is a steep ramp
    corners = np.concatenate([lower, lower + width])
    order = np.argsort(corners, kind="stable")
    slopes = np.cumsum(np.concatenate([rows / width, -rows / width])[order])
    corners = corners[order]
    heights = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(corners))])
    below: Numbers = np.clip(np.interp(values, corners, heights), 0, rows.sum())
    return below


def _as_numbers(values: Sequence[Any]) -> Numbers | None:
    """Order values as numbers: of text and binaries the eight bytes behind their common prefix."""
    if all(isinstance(value, bytes) for value in values):
        start = len(posixpath.commonprefix([min(values), max(values)]))
        values = [int.from_bytes(value[start : start + 8].ljust(8, b"\0"), "big") for value in values]
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError, OverflowError):
        return None
