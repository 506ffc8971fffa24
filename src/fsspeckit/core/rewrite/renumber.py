"""Some rows of a column changed within its pages, where the column's dictionary has the new values already.

Then only numbers of values change, and nothing has to be looked up or encoded: of 200,000 rows in which 2,000 change
that takes a third of the time. It is done if the column still has all the values that it had, and no others: so its
dictionary and its statistics are true of it as they are, and nothing that was overwritten stays in the file. Flags are
such numbers by themselves.

The column is not decoded, not even to be compared. All of its pages are opened, and every number in them has to mean a
value: where one does not, PyArrow is left to read the column and tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.cached import cached_property
from fsspeckit.core.rewrite.encodings import DICTIONARY, data_encodings
from fsspeckit.core.rewrite.packed import Packed, PackedPages
from fsspeckit.core.rewrite.page_bytes import (
    FLAG,
    PLAIN,
    TEXT,
    TYPE,
    WIDTHS,
    ChunkPages,
    PatchedChunk,
    Unknown,
    may_be_opened,
    opened,
)
from fsspeckit.core.target import spans, thrift
from fsspeckit.core.target.spans import Chunk, Page, ReadAt
from fsspeckit.core.values.equality import identical

# Rows for each value of a dictionary, below which some value will hardly stay.
_ROWS_PER_VALUE = 16
# Of text it is not known how long it is.
_LARGEST = 1 << 62


def goes_by_numbers(chunk: Chunk, dtype: pa.DataType) -> bool:
    """May a chunk be a small dictionary and numbers of its values, without nulls, as far as the footer tells?"""
    if not may_be_opened(chunk, dtype):
        return False
    metadata = chunk.metadata
    is_flag = metadata[TYPE][1] == FLAG
    dictionary = metadata.get(spans.DICTIONARY_PAGE, (thrift.I64, 0))[1]
    return bool(dictionary == (0 if is_flag else chunk.start) and (is_flag or _encodings(metadata) <= DICTIONARY))


def _encodings(metadata: thrift.Struct) -> set[int]:
    try:
        return data_encodings(metadata)
    except thrift.Damaged:  # who reads the file will tell
        return {PLAIN}


def small_chunks(chunks: Mapping[str, Chunk], rows: int) -> set[str]:
    """The columns that are small enough to have a small dictionary: a quick look, for files of hundreds of columns."""
    dictionary = rows // _ROWS_PER_VALUE
    others = rows * dictionary.bit_length() // 8 + rows // 8 + 1024  # the numbers, and the headers of pages
    limits = {physical: dictionary * width + others for physical, width in WIDTHS.items()}
    return {
        name
        for name, chunk in chunks.items()
        if (metadata := chunk.metadata)[spans.UNCOMPRESSED][1] <= limits.get(metadata[TYPE][1], _LARGEST)
    }


def renumbered(read: ReadAt, chunk: Chunk, positions: Any, values: pa.Array, *, optional: bool) -> PatchedChunk | None:
    """The chunk with these values at ascending positions; `None` if it has them already.

    The column is flat, and `optional` if it may hold nulls. If that takes more than other numbers, it is `Unknown`."""
    with opened(read, chunk, values, optional=optional) as stored:
        return _Column(stored).with_values(positions, values)


@dataclass(frozen=True, slots=True)
class _OpenPage:
    """A data page: the numbers in its decompressed body, and the levels that stand before that."""

    page: Page
    levels: bytes
    numbers: Packed


@dataclass(frozen=True)
class _Column:
    stored: ChunkPages

    def with_values(self, positions: Any, values: pa.Array) -> PatchedChunk | None:
        if self._distinct * _ROWS_PER_VALUE > sum(page.values for page in self._data_pages):
            raise Unknown
        new = self._numbers_of(values)
        pages = [self._open(page) for page in self._data_pages]
        numbers = PackedPages([page.numbers for page in pages])
        if not numbers.are_below(self._distinct):
            raise Unknown
        places = numbers.places(positions)
        old = numbers.at(places)
        if np.array_equal(old, new) or self._mean(old, values):
            return None
        if (new > places.masks).any():
            raise Unknown
        self._check_all_stay(numbers, positions, old, new)
        placed = [self.stored.kept(page) for page in self.stored.pages if page.is_dictionary]
        for page, body in zip(pages, numbers.replace(places, old, new), strict=True):
            placed.append(self.stored.changed(page.page, page.levels, body, page.page.encoding))
        return self.stored.put_together(placed, {}, self._gained(old, new))

    @property
    def _is_flag(self) -> bool:
        return self.stored.physical == FLAG

    @property
    def _is_text(self) -> bool:
        return self.stored.physical == TEXT

    @cached_property
    def _data_pages(self) -> list[Page]:
        """All pages but the dictionary, which is the first one; all of them hold numbers."""
        first, pages = 0 if self._is_flag else 1, self.stored.pages
        data_pages, encodings = pages[first:], {PLAIN} if self._is_flag else DICTIONARY
        if not all(page.is_dictionary for page in pages[:first]) or not data_pages:
            raise Unknown
        if any(page.is_dictionary or page.encoding not in encodings for page in data_pages):
            raise Unknown
        return data_pages

    @property
    def _distinct(self) -> int:
        return 2 if self._is_flag else self.stored.pages[0].values

    def _numbers_of(self, values: pa.Array) -> Any:
        if self._is_flag:
            return values.cast(pa.uint32()).to_numpy()
        values = values.cast(pa.binary()) if self._is_text else values.view(self._dictionary.type)
        numbers = pc.index_in(values, self._dictionary)
        if numbers.null_count:
            raise Unknown
        return numbers.to_numpy().astype(np.uint32)

    def _mean(self, numbers: Any, values: pa.Array) -> bool:
        """Do numbers mean these values? One may have several of them, and NaN has many bits."""
        if self._is_flag:
            return False
        meant = self._dictionary.take(pa.array(numbers))
        return identical(meant.cast(values.type) if self._is_text else meant.view(values.type), values)

    @cached_property
    def _dictionary(self) -> pa.Array:
        """Text, or the bits of numbers."""
        page = self.stored.pages[0]
        data = self.stored.decompressed(page)
        if not self._is_text:
            return pa.array(np.frombuffer(data, f"u{WIDTHS[self.stored.physical]}", page.values))
        texts, at = [], 0
        for _ in range(page.values):
            begin = at + 4
            at = begin + int.from_bytes(data[at:begin], "little")
            texts.append(data[begin:at])
        if at > len(data):
            raise Unknown
        return pa.array(texts, pa.binary())

    def _open(self, page: Page) -> _OpenPage:
        levels, body, at = self.stored.open(page)
        if self._is_flag:
            numbers = Packed.one_run(body, at, 1, page.values)
        else:
            numbers = Packed.of(body, at + 1, body[at], page.values)
        if numbers is None:
            raise Unknown
        return _OpenPage(page, levels, numbers)

    def _check_all_stay(self, numbers: PackedPages, positions: Any, old: Any, new: Any) -> None:
        """Every value that comes or goes has to be in a row that does not change, which few pages tell as a rule."""
        count, begin = self._distinct, 0
        sought = np.zeros(count, dtype=bool)
        sought[old] = sought[new] = True
        for position, some in numbers.every():
            end = int(np.searchsorted(positions, position))
            left = np.bincount(some, minlength=count) - np.bincount(old[begin:end], minlength=count)
            sought &= left == 0
            if not sought.any():
                return
            begin = end
        raise Unknown

    def _gained(self, old: Any, new: Any) -> int:
        """The bytes of text that the column has more than before."""
        if not self._is_text:
            return 0
        lengths = pc.binary_length(self._dictionary).to_numpy()
        return int(lengths[new].sum() - lengths[old].sum())
