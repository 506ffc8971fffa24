"""Some rows of a column changed within its pages, where these hold the values themselves.

PyArrow makes a value of every row, and all of them are cut up into pages again. Here a page is decompressed, some of
its values are exchanged, and it is compressed before the next one is looked at, while it is still in the processor's
cache; pages in which no row changes are copied. That takes less if most pages are such.

A writer begins a column with a dictionary, and gives it up when that grows too large. If a row of such a page changes,
pages that go by the dictionary become plain ones, and the dictionary is left out: nothing that was overwritten stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.cached import cached_property
from fsspeckit.core.rewrite.bounds import are_exact, bounds_of, with_bounds
from fsspeckit.core.rewrite.encodings import DICTIONARY, data_pages
from fsspeckit.core.rewrite.packed import Packed
from fsspeckit.core.rewrite.page_bytes import (
    FLAG,
    PLAIN,
    STATISTICS,
    TEXT,
    TYPE,
    ChunkPages,
    NewPage,
    PatchedChunk,
    Unknown,
    may_be_opened,
    opened,
)
from fsspeckit.core.rewrite.plain_values import NOWHERE, Kind, Values, kind_of
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.spans import Chunk, Page, ReadAt

# Field number of ColumnMetaData
_GEOSPATIAL = 17
# PyArrow decodes and encodes all pages in two calls, and no thread waits for Python's lock meanwhile: with a change in
# more than one page of so many it is quicker. Small chunks are not worth a look.
_PAGES_PER_CHANGE, _SMALL = 4, 256 << 10


def has_plain_pages(chunk: Chunk, dtype: pa.DataType, positions: Any) -> bool:
    """May a chunk have pages of plain values, and so many that rows at these positions are in few of them, as far as
    the footer tells?"""
    metadata = chunk.metadata
    if metadata[TYPE][1] == FLAG or metadata[spans.UNCOMPRESSED][1] < _SMALL or _GEOSPATIAL in metadata:
        return False
    try:
        counts = data_pages(metadata)
    except thrift.Damaged:  # who reads the file will tell
        return False
    if PLAIN not in counts or not counts.keys() <= {PLAIN, *DICTIONARY} or not may_be_opened(chunk, dtype):
        return False
    pages = counts.total()
    rows = -(-metadata[spans.VALUES][1] // max(1, pages))
    return bool(len(np.unique(positions // max(1, rows))) * _PAGES_PER_CHANGE <= pages)


def with_values(read: ReadAt, chunk: Chunk, positions: Any, values: pa.Array, *, optional: bool) -> PatchedChunk | None:
    """The chunk with these values at ascending positions; `None` if it has them already.

    The column is flat, and `optional` if it may hold nulls. What is not understood is `Unknown`."""
    with opened(read, chunk, values, optional=optional) as stored:
        return _Change(stored, kind_of(values.type), positions, values).made()


@dataclass(frozen=True, slots=True)
class _OpenPage:
    """A data page: levels that stand apart, and its values as they are or would be in a plain page."""

    page: Page
    levels: bytes
    values: Values


@dataclass(frozen=True)
class _Change:
    """Values to put at ascending positions of a column."""

    stored: ChunkPages
    kind: Kind
    positions: Any
    values: pa.Array

    def made(self) -> PatchedChunk | None:
        self._check_pages()
        pages: dict[int, NewPage] = {}
        left: list[Any] = []
        came: list[Any] = []
        for number, (rows, new) in self._new.items():
            page = self._open(number)
            old = page.values.at(rows)
            left += old
            came += new
            if old != new:
                pages[number] = self._changed(page, rows, new)
        if not pages:
            return None
        changes, dictionary = self._statistics(left, came), self.stored.pages[: -len(self._data_pages)]
        numbered = {number for number, page in enumerate(self._data_pages) if page.encoding != PLAIN}
        keeps_dictionary = bool(numbered) and numbered.isdisjoint(pages)
        if not keeps_dictionary:
            pages |= {number: self._changed(self._open(number), NOWHERE, []) for number in numbered - pages.keys()}
        placed = [self.stored.kept(page) for page in dictionary if keeps_dictionary]
        placed += [pages.get(number) or self.stored.kept(page) for number, page in enumerate(self._data_pages)]
        if dictionary and not keeps_dictionary:
            changes |= self.stored.encodings_of(placed)
        return self.stored.put_together(placed, changes, self.kind.text_bytes(came) - self.kind.text_bytes(left))

    @cached_property
    def _data_pages(self) -> list[Page]:
        return [page for page in self.stored.pages if not page.is_dictionary]

    @cached_property
    def _new(self) -> dict[int, tuple[Any, list[Any]]]:
        """By number of the pages that have such positions: the rows in the page, and the new values."""
        firsts = np.cumsum([0, *(page.values for page in self._data_pages)])
        values, cuts = self.kind.stored(self.values), np.searchsorted(self.positions, firsts).tolist()
        return {
            number: (self.positions[low:high] - first, values[low:high])
            for number, (first, (low, high)) in enumerate(zip(firsts, pairwise(cuts), strict=False))
            if low < high
        }

    def _check_pages(self) -> None:
        """At most one dictionary, which is the first page, then pages that are plain or go by it."""
        encodings = {page.encoding for page in self._data_pages}
        if PLAIN not in encodings or not encodings <= {PLAIN, *DICTIONARY}:
            raise Unknown
        if any(page.is_dictionary for page in self.stored.pages[1:]):
            raise Unknown

    def _open(self, number: int) -> _OpenPage:
        page = self._data_pages[number]
        levels, body, begin = self.stored.open(page)
        if page.encoding == PLAIN:
            return _OpenPage(page, levels, self.kind.in_page(body, begin, page.values))
        packed = Packed.of(body, begin + 1, body[begin], page.values)
        if packed is None:
            raise Unknown
        return _OpenPage(page, levels, self._dictionary.by_number(packed.every(), body[:begin]))

    @cached_property
    def _dictionary(self) -> Values:
        page = self.stored.pages[0]
        if not page.is_dictionary:
            raise Unknown
        return self.kind.in_page(self.stored.decompressed(page), 0, page.values)

    def _changed(self, page: _OpenPage, rows: Any, values: list[Any]) -> NewPage:
        return self.stored.changed(page.page, page.levels, page.values.replaced(rows, values), PLAIN)

    # -- statistics

    def _statistics(self, left: list[Any], came: list[Any]) -> thrift.Struct:
        """Bounds stay, or become those of new values. If one was in a row that changed, all rows are looked at."""
        if STATISTICS not in self.stored.chunk.metadata:
            return {}
        told: thrift.Struct = self.stored.chunk.metadata[STATISTICS][1]
        gone, new = self.kind.ordered(left), self.kind.ordered(came)

        def bound(known: bytes | None, name: str, first: Callable[..., Any]) -> bytes | None:
            if known is None:
                return None
            value = self.kind.bound(known)
            if not are_exact(told) or (value in gone and value not in new):
                value = first(self._others[name])
            return self.kind.bytes_of(first(value, *new), is_max=first is max)

        low, high = bounds_of(told)
        fields = with_bounds(
            told, bound(low, "min", min), bound(high, "max", max), in_old_order=self.stored.physical != TEXT
        )
        return {STATISTICS: (thrift.STRUCT, fields)}

    @cached_property
    def _others(self) -> dict[str, list[Any]]:
        """The bounds, page by page, of rows that do not change."""
        bounds: dict[str, list[Any]] = {"min": [], "max": []}
        for number in range(len(self._data_pages)):
            rows = self._new[number][0] if number in self._new else NOWHERE
            others = pc.min_max(self._open(number).values.but(rows)).as_py()
            if others["min"] is not None:
                bounds["min"].append(others["min"])
                bounds["max"].append(others["max"])
        if not bounds["min"]:
            raise Unknown
        return bounds
