"""Do readers find with a filter pushed down what they find without?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.parquet as pq

from readers.attempt import attempt
from readers.engines import DataFusionReader, DuckDBReader, Opened, PolarsReader, Reader, Rows
from readers.filters import MOST_ROWS, Filter, Position, filters_of, read


def fast_readers() -> list[Reader]:
    return [DuckDBReader()]


def all_readers() -> list[Reader]:
    """PyArrow is not among them: it hangs at the statistics of some damaged files. Spark reads many files at once."""
    return [DuckDBReader(), PolarsReader(), DataFusionReader()]


@dataclass
class Tally:
    """How much was checked."""

    files: int = 0
    filters: Counter[str] = field(default_factory=Counter)
    excused: list[str] = field(default_factory=list)


def differences(new: str, old: str | None, readers: Sequence[Reader], tally: Tally) -> list[str]:
    """What readers find in the file `new` only without a filter pushed down, or only with it.

    A difference that the reader sees in the file's `old` version as well is none of the merge's making: its chunks may
    have been copied. Even then, every row that was found before and did not change is still found.
    """
    table, before = read(new), read(old) if old else None
    if table is None or table.num_rows > MOST_ROWS:
        return []
    tally.files += 1
    filters = filters_of(table, before)
    found = []
    for reader in readers:
        opened: Opened | None = _open(reader, new)
        opened_old: Opened | None = _open(reader, old) if old else None
        misread = opened_old is not None and attempt(opened_old.is_misread) is not False
        if opened is not None and not misread:
            for one in filters:
                seen = list(filter_differences(reader, opened, opened_old, one, tally))
                found += [] if seen and reader.name == "datafusion" and old and _mixed(old, one) else seen
    return found


def _mixed(path: str, filter: Filter) -> bool:
    """Have some chunks of a column bounds, and some none? DataFusion takes those of some for those of the whole file,
    with any writer: DuckDB and Spark leave out the bounds of chunks with NaN."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    known = [
        c.statistics for c in chunks if c.path_in_schema.split(".")[: len(filter.leaf.path)] == [*filter.leaf.path]
    ]
    return len({stats is not None and stats.has_min_max for stats in known if stats is None or stats.num_values}) > 1


def _open(reader: Reader, path: str) -> Opened | None:
    """A file that a reader does not read has no filters; lakes that were read before are checked elsewhere."""
    opened = attempt(lambda: reader.open(path))
    return None if isinstance(opened, str) else opened


def filter_differences(reader: Reader, new: Opened, old: Opened | None, filter: Filter, tally: Tally) -> Iterator[str]:
    """What one reader finds by one filter only pushed down, or only in memory."""
    needs_old = filter.value is not None and filter.value.old
    if needs_old and old is None:
        return
    expected = attempt(lambda: new.in_memory(filter, old))
    if isinstance(expected, str):  # not a filter for this reader, or values that Python cannot hold
        return
    tally.filters[reader.name] += 1
    found = attempt(lambda: new.pushed(filter, old))
    if found == expected:
        return
    text = f"{reader.name}, {filter}: {_said(found)} pushed down, {_said(expected)} in memory"
    if old is None or not _same_before(old, filter, new):
        yield text
    elif isinstance(found, Counter):
        tally.excused.append(text)
        yield from _lost(reader, filter, new, old, found)


def _same_before(old: Opened, filter: Filter, new: Opened) -> bool:
    """Does the reader see a difference in the old file, too?"""
    swapped = _swapped(filter)
    expected = attempt(lambda: old.in_memory(swapped, new))
    return not isinstance(expected, str) and attempt(lambda: old.pushed(swapped, new)) != expected


def _swapped(filter: Filter) -> Filter:
    """The same filter for the old file, opened beside the new one."""
    if filter.value is None:
        return filter
    return replace(filter, value=Position(filter.value.row, not filter.value.old))


def _lost(reader: Reader, filter: Filter, new: Opened, old: Opened, found: Rows) -> Iterator[str]:
    """Rows that did not change, and that the filter found before the merge only."""
    before = attempt(lambda: old.pushed(_swapped(filter), new))
    if filter.operator == "bounds" or not isinstance(before, Counter):
        return
    lost = before - found - (old.rows() - new.rows())
    if lost:
        yield f"{reader.name}, {filter}: no longer finds {_said(lost)} that the merge did not change"


def _said(found: Rows | str) -> str:
    return found if isinstance(found, str) else f"{found.total()} rows {list(found)[:1]}"[:300]
