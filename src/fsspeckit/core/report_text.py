"""Plans and results as a few lines of text or HTML: what Python and notebooks show of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

LABELS = {
    "rewrite": "rewrite",
    "scan": "keys read",
    "guard": "keys checked",
    "prune": "not read",
    "rewritten": "rewritten",
    "inserted": "new",
    "preserved": "untouched",
    "removed": "removed",
}
"""For people: the actions of a plan and the operations of a result. JSON has the names on the left."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count(number: int, noun: str = "") -> str:
    """A number with thousands separators, and its noun in the singular or plural.

    >>> count(1234567), count(1, "file"), count(2, "file")
    ('1,234,567', '1 file', '2 files')
    """
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(bytes_: int) -> str:
    """A size in decimal units.

    >>> size(999), size(1_234_567), size(999_999)
    ('999 B', '1.2 MB', '1.0 MB')
    """
    value, unit = float(bytes_), 0
    while unit < len(_UNITS) - 1 and (value if unit == 0 else round(value, 1)) >= 1000:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


class Counted(Protocol):
    """A plan or a result."""

    @property
    def inserted(self) -> int: ...
    @property
    def updated(self) -> int: ...
    @property
    def deleted(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def moved(self) -> int: ...
    @property
    def target_count_before(self) -> int: ...
    @property
    def target_count_after(self) -> int: ...
    @property
    def creates_target(self) -> bool: ...


def counts(report: Counted) -> str:
    """`3 updated (1 moved), 1 inserted; 100 → 101 rows`"""
    moved = f" ({count(report.moved)} moved)" if report.moved else ""
    parts = [
        (f"updated{moved}", report.updated),
        ("inserted", report.inserted),
        ("deleted", report.deleted),
        ("skipped as older", report.skipped),
    ]
    done = ", ".join(f"{count(n)} {word}" for word, n in parts if n) or "nothing changes"
    before, after = count(report.target_count_before), count(report.target_count_after)
    if report.creates_target:
        return f"{done}; NEW DATA SET of {count(report.target_count_after, 'row')}"
    return f"{done}; {before} rows" if before == after else f"{done}; {before} → {after} rows"


Line = tuple[str, int, int, int]
"""A label with its number of files, rows and bytes."""


def lines_of(names: Sequence[str], files: Iterable[tuple[str, int, int]]) -> list[Line]:
    """The files, given as name of their action, rows and bytes, summed up by action."""
    grouped: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for name, rows, bytes_ in files:
        grouped[name].append((rows, bytes_))
    return [
        (LABELS[name], len(group), sum(rows for rows, _ in group), sum(bytes_ for _, bytes_ in group))
        for name, group in grouped.items()
        if group
    ]


@dataclass(frozen=True, slots=True)
class Summary:
    """A report in a few lines: a title, a table of files by action, and notes."""

    title: str
    lines: Sequence[Line] = ()
    notes: Sequence[str] = ()


class Report:
    """Plans and results: Python and notebooks show a summary, since a report may name thousands of files."""

    def _summary(self) -> Summary:
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(self._summary())

    def _repr_html_(self) -> str:
        return as_html(self._summary())


def as_text(summary: Summary) -> str:
    """A title and a table of the files, right-aligned."""
    title, lines, notes = summary.title, summary.lines, summary.notes
    cells = [(label, count(files, "file"), count(rows, "row"), size(bytes_)) for label, files, rows, bytes_ in lines]
    widths = [max(map(len, column)) for column in zip(*cells)]
    table = [
        "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]) for row in cells
    ]
    return "\n".join([title, *table, *(f"  {note}" for note in notes)])


def as_html(summary: Summary) -> str:
    """The same for notebooks: no styles but alignment, so that it fits any theme."""
    title, lines, notes = summary.title, summary.lines, summary.notes
    right = ' style="text-align: right"'
    rows = [
        f"<tr><td>{escape(label)}</td><td{right}>{count(files, 'file')}</td><td{right}>{count(rows, 'row')}</td>"
        f"<td{right}>{size(bytes_)}</td></tr>"
        for label, files, rows, bytes_ in lines
    ]
    table = f"<table>{''.join(rows)}</table>" if rows else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div><p><strong>{escape(title)}</strong></p>{table}{below}</div>"
