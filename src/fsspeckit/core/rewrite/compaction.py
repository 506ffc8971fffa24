"""Which files a compaction joins, cuts and sorts, and which row groups are encoded again. Nothing here reads a file.

The choice depends on sizes and statistics, and a compaction goes on until nothing is chosen any more. So a second one
finds nothing to do: joined files are too large to be joined with the next one, and sorted ones do not overlap.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.core.model import Footer, RowGroup

FULL_ROWS = 100_000
"""A row group with fewer rows is encoded again, together with its neighbours."""
FULL_BYTES = 32 << 20
"""A row group of this many bytes before compression is full, whatever its rows, and so is one as large as a file."""
MAX_ROWS = 200_000
MAX_BYTES = 64 << 20
"""The most rows and bytes of a row group that is encoded. With 300,000 rows the process had 60 MiB more."""
# Shares of the target size. Smaller files are joined while their sum is not above the limit; larger ones are cut.
SMALL, LIMIT, LARGE = 0.75, 1.25, 2.0

Reason = Literal["small files", "large file", "small row groups", "not sorted"]


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that are rewritten together, in the order of their rows. `sort`: their rows are sorted."""

    files: tuple[Footer, ...]
    reason: Reason
    sort: bool = False

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.files[0].path)

    @property
    def bytes(self) -> int:
        return sum(file.info.size for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def new_files(self, target_size: int) -> int:
        """About how many files it becomes."""
        return max(1, round(self.bytes / target_size))


IsSorted = Callable[[Sequence[Footer]], bool]
"""Are the rows of these files, one file after the other, in order? Reads the sort columns."""


def choose_bins(
    files: Sequence[Footer],
    target_size: int,
    sort_by: Sequence[str],
    is_sorted: IsSorted | None = None,
    owner_of: Callable[[Footer], str] = lambda file: "",
) -> list[Bin]:
    """The files to rewrite, in bins that each become one file or more. `files` are sorted by path.

    Files with another `owner_of` (owner, group and ACL) are not joined.
    """
    bins: list[Bin] = []
    for group in _joinable(files, owner_of):
        runs, own = [group], [name for name in sort_by if name in group[0].schema.names]  # nulls are in order
        if own:
            assert is_sorted is not None
            runs, unsorted = _sorted_files(group, own, is_sorted)
            bins += [Bin(tuple(part), "not sorted", sort=True) for part in unsorted]
        for chosen in (chosen for run in runs for chosen in _bins(run, target_size, in_order=bool(own))):
            cut_unsorted = own and chosen.reason == "large file" and not (is_sorted and is_sorted(chosen.files))
            bins.append(replace(chosen, sort=True) if cut_unsorted else chosen)
    return sorted(bins, key=lambda chosen: chosen.files[0].path)


def _joinable(files: Sequence[Footer], owner_of: Callable[[Footer], str]) -> Iterator[list[Footer]]:
    """The files of each folder that can be in one file: with the same columns, calendar, collations and owner.

    A file that lacks a column is not joined with others: DuckDB expects the columns of the first file in all files.
    """

    def identity(file: Footer) -> str:
        columns = sorted(file.schema.names)
        int96 = str(file.schema.remove_metadata()) if file.int96 else ""
        collated = sorted(file.collated.items())
        return repr((posixpath.dirname(file.path), columns, int96, file.calendar, collated, owner_of(file)))

    identities = {id(file): identity(file) for file in files}
    ordered = sorted(files, key=lambda file: identities[id(file)])  # stable: by path within a group
    for _, group in groupby(ordered, key=lambda file: identities[id(file)]):
        yield list(group)


def _bins(files: Sequence[Footer], target_size: int, *, in_order: bool) -> Iterator[Bin]:
    """With `in_order`, only neighbours are joined: others would overlap the files between them."""
    small, size = list[Footer](), 0
    for file in files:
        if in_order and file.info.size >= SMALL * target_size:
            yield from _joined(small, target_size)
            small, size = [], 0
        if file.info.size < SMALL * target_size:
            if small and size + data_bytes(file) > LIMIT * target_size:
                yield from _joined(small, target_size)
                small, size = [], 0
            small.append(file)
            size += data_bytes(file)
        elif file.info.size > LARGE * target_size and file.rows > 1:
            yield Bin((file,), "large file")
        elif _is_fragmented(file, target_size):
            yield Bin((file,), "small row groups")
    yield from _joined(small, target_size)


def _joined(files: Sequence[Footer], target_size: int) -> Iterator[Bin]:
    if len(files) > 1:
        yield Bin(tuple(files), "small files")
    elif files and _is_fragmented(files[0], target_size):
        yield Bin(tuple(files), "small row groups")


def data_bytes(file: Footer) -> int:
    """An estimate of the bytes of a file without its footer, which is most of a tiny file."""
    return min(file.info.size, sum(group.bytes for group in file.row_groups))


def _is_fragmented(file: Footer, target_size: int) -> bool:
    """Would at most half as many row groups hold the rows of the file?"""
    groups = [RowGroupOf(file, number) for number in range(len(file.row_groups))]
    return len(groups) > 1 and 2 * len(list(divide(groups, target_size))) <= len(groups)


# -- row groups


@dataclass(frozen=True, slots=True)
class RowGroupOf:
    file: Footer
    number: int

    @property
    def group(self) -> RowGroup:
        return self.file.row_groups[self.number]

    @property
    def stored_bytes(self) -> int:
        """An estimate of the bytes in the file: footers that are read in batches have the uncompressed size only."""
        whole = sum(group.bytes for group in self.file.row_groups)
        return self.file.info.size * self.group.bytes // max(1, whole)


@dataclass(frozen=True, slots=True)
class Unit:
    """Row groups that become one. A single one that is full is `copied`, if its file allows that."""

    groups: tuple[RowGroupOf, ...]
    copied: bool = False

    @property
    def bytes(self) -> int:
        return sum(group.group.bytes for group in self.groups)


def row_groups_of(chosen: Bin) -> list[RowGroupOf]:
    return [RowGroupOf(file, n) for file in chosen.files for n, group in enumerate(file.row_groups) if group.rows]


def divide(groups: Sequence[RowGroupOf], target_size: int) -> Iterator[Unit]:
    """Full row groups, and those between them joined to row groups of about equal size."""
    waiting: list[RowGroupOf] = []
    for group in groups:
        if _is_full(group, target_size):
            yield from _encoded(waiting, max_bytes(target_size))
            waiting = []
            yield Unit((group,), copied=group.stored_bytes <= LIMIT * target_size)
        elif group.group.rows:
            waiting.append(group)
    yield from _encoded(waiting, max_bytes(target_size))


def _is_full(group: RowGroupOf, target_size: int) -> bool:
    return group.group.rows >= FULL_ROWS or group.group.bytes >= min(FULL_BYTES, target_size)


def max_bytes(target_size: int) -> int:
    """The most bytes of a row group that is encoded, before compression."""
    return min(MAX_BYTES, target_size)


def _encoded(groups: Sequence[RowGroupOf], most: int) -> Iterator[Unit]:
    """Row groups that become as few as possible, of about equal size."""
    rows, size = sum(g.group.rows for g in groups), sum(g.group.bytes for g in groups)
    count = max(-(-rows // MAX_ROWS), -(-size // most), 1)
    middles, before = list[int](), 0
    for group in groups:
        weight = group.group.rows * size + group.group.bytes * rows
        middles.append(2 * before + weight)
        before += weight
    units = [middle * count // max(1, 2 * before) for middle in middles]
    for _, members in groupby(zip(units, groups, strict=True), key=lambda pair: pair[0]):
        yield Unit(tuple(group for _, group in members))


# -- sort order


_Value = tuple[Any, ...]
"""A value of the sort column that can be compared: nulls come last."""
_NULL: _Value = (1,)


def _range(groups: Sequence[RowGroup], column: str) -> tuple[_Value, _Value] | None:
    """The least and the greatest value in some row groups; `None` if statistics are missing."""
    bounds = [group.bounds.get(column) for group in groups if group.rows]
    known = [b for b in bounds if b is not None]
    if not known or len(known) < len(bounds):
        return None
    lower = min(_NULL if b.lower is None else (0, b.lower) for b in known)
    return lower, max(_NULL if b.lower is None or b.nulls != 0 else (0, b.upper) for b in known)


def _sorted_files(
    files: Sequence[Footer], sort_by: Sequence[str], is_sorted: IsSorted
) -> tuple[list[list[Footer]], list[list[Footer]]]:
    """Runs of files in order: their rows are, they overlap no other file, and none is between them. And the others."""
    column = sort_by[0]
    # Statistics of floats leave out NaN, which may be anywhere.
    with_nan = any(_is_floating(file, column) for file in files)
    ranges = [None if with_nan else _range(file.row_groups, column) for file in files]
    known = [(file, r) for file, r in zip(files, ranges, strict=True) if r is not None and file.rows]
    empty = [file for file in files if not file.rows]
    if len(known) + len(empty) < len(files):  # statistics are missing for one of them
        rest = [file for file in files if file.rows]
        return ([[*empty, *rest]], []) if is_sorted(rest) else ([], [[*empty, *rest]])
    known.sort(key=lambda item: (*item[1], item[0].path))
    runs, unsorted = [list[Footer]()], list[list[Footer]]()
    for component in _overlapping(known, strict=len(sort_by) > 1):
        if (len(component) == 1 and _groups_in_order(component[0], sort_by)) or is_sorted(component):
            runs[-1] += component
        else:
            unsorted.append(component)
            runs.append([])
    (unsorted or runs)[0][:0] = empty
    return runs, unsorted


def _is_floating(file: Footer, column: str) -> bool:
    number = file.schema.get_field_index(column)
    return number >= 0 and bool(pa.types.is_floating(file.schema.field(number).type))


def _overlapping(files: Sequence[tuple[Footer, tuple[_Value, _Value]]], *, strict: bool) -> Iterator[list[Footer]]:
    """Files whose ranges overlap. With `strict`, ranges that share a bound overlap, too."""
    component: list[Footer] = []
    upper = _NULL
    for file, (low, high) in files:
        apart = bool(component) and (upper < low if strict else upper <= low)
        if component and not apart:
            upper = max(upper, high)
        else:
            if component:
                yield component
            component, upper = [], high
        component.append(file)
    if component:
        yield component


def _groups_in_order(file: Footer, sort_by: Sequence[str]) -> bool:
    """Do statistics prove that no row group begins before the end of the one before?"""
    ranges = [_range([group], sort_by[0]) for group in file.row_groups if group.rows]
    if len(ranges) < 2:
        return True
    pairs = pairwise(ranges)
    if len(sort_by) > 1:
        return all(a is not None and b is not None and a[1] < b[0] for a, b in pairs)
    return all(a is not None and b is not None and a[1] <= b[0] for a, b in pairs)
