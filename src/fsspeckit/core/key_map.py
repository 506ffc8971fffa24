"""Where the keys of files and of the source lie: small data for the map on a report's page.

Everything here comes from the footers and from the source's profile, which a merge has read anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any

from fsspeckit.core.execution_plan import ExecutionPlan
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.match.filters import filter_names
from fsspeckit.core.model import Footer, Rewritten, Staged
from fsspeckit.core.reports import KeyMap, KeySpan
from fsspeckit.core.storage import Location
from fsspeckit.core.values.keys import merge_intervals

MAX_FILES = 10_000
MAX_MARKS = 1000

NO_VALUES: KeySpan = (None, None)


def map_column(planned: ExecutionPlan) -> str | None:
    """The first column of the key, or of the filters, that is in the files; one in the path has no range."""
    filters = planned.request.filters
    names = planned.shape.keys if filters is None else filter_names(filters)
    stored = [name for name in names if name not in planned.target.partition_columns]
    return stored[0] if stored else None


def map_of_plan(location: Location, planned: ExecutionPlan) -> KeyMap | None:
    """The files as they are, those that change first, and the source's keys."""
    column = map_column(planned)
    if column is None:
        return None
    infos = planned.target.files.infos
    spans = file_spans(planned.target.files, column)
    touched = {footer.path for footer in planned.touched}
    order = sorted(range(len(infos)), key=lambda number: infos[number].path not in touched)
    ranges = {location.show(infos[n].path): spans[n] for n in islice(order, MAX_FILES)}
    return KeyMap(column, _type_of(planned, column), planned.shape.keys, ranges, _marks(planned, column))


def map_of_result(
    location: Location,
    planned: ExecutionPlan,
    rewritten: Sequence[Rewritten],
    inserted: Sequence[Staged],
    staged_footers: Iterable[Footer],
) -> KeyMap | None:
    """The files as they are after the merge. The ranges of new files are those of the footers that were checked."""
    column = map_column(planned)
    if column is None:
        return None
    paths = [info.path for info in planned.target.files.infos]
    old = dict(zip(paths, file_spans(planned.target.files, column), strict=True))
    written = list(staged_footers)
    new = dict(zip((f.path for f in written), file_spans(Footers(written), column), strict=True))
    same_keys = planned.request.small_files == "new"
    # In a store no footer is read again: a file that only loses or replaces rows stays in its range, and a new one has
    # none.
    known = new | {s.staged: old[r.path] for r in rewritten for s in r.staged if s.staged not in new and same_keys}
    staged = [*(s for r in rewritten for s in r.staged), *inserted]
    spans = [(s.path, known[s.staged]) for s in staged if s.staged in known]
    if planned.request.rewrite_mode != "full":
        replaced = {r.path for r in rewritten if r.staged or r.removed}
        spans += [(path, span) for path, span in old.items() if path not in replaced]
    ranges = {location.show(path): span for path, span in spans[:MAX_FILES]}
    return KeyMap(column, _type_of(planned, column), planned.shape.keys, ranges, _marks(planned, column))


def _type_of(planned: ExecutionPlan, column: str) -> str:
    schema = planned.shape.schema
    return str(schema.field(column).type) if column in schema.names else ""


def _marks(planned: ExecutionPlan, column: str) -> tuple[KeySpan, ...] | None:
    """At most `MAX_MARKS` intervals that cover the source's keys."""
    intervals = planned.profile.intervals.get(column, ())
    return None if intervals is None else tuple(merge_intervals([intervals], MAX_MARKS) or ())


def file_spans(files: Footers, column: str) -> list[KeySpan | None]:
    """The smallest and greatest value of a column in each file; `None` where statistics are missing."""
    lower, upper, nulls = files.bounds(column)
    groups = list(zip(lower, upper, nulls, files.group_rows, strict=True))
    return [_span(groups[begin:end]) for begin, end in pairwise(accumulate(files.group_counts, initial=0))]


def _span(groups: Sequence[tuple[Any, Any, int | None, int]]) -> KeySpan | None:
    filled = [(lower, upper, nulls) for lower, upper, nulls, rows in groups if rows]
    if any(lower is None and nulls is None for lower, _, nulls in filled):
        return None
    values = [(lower, upper) for lower, upper, _ in filled if lower is not None]
    if not values:
        return NO_VALUES
    try:
        return min(lower for lower, _ in values), max(upper for _, upper in values)
    except TypeError:  # values of two types
        return None
