"""Small numbers as pages hold them: packed bit by bit, in runs.

The numbers that the values of a page have in a dictionary are written so. A reader unpacks them all; who wants to know
or change a few hundred of them needs only to know where each one lies. That is understood here of runs that are all as
long as the first one, but for the last: so writers pack numbers that do not repeat. Others are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from fsspeckit.core.values import arrays

# A number begins anywhere in a byte, and has to end within the four that are looked at together.
_WIDEST, _TOGETHER = 25, 4
# What is done with many numbers at once is done with eight bytes of them.
_WORD = 8
# A run's header has one byte, the lowest bit of which is set. It counts numbers by eight.
_GROUP, _LONG_HEADER = 8, 0x80


@dataclass(frozen=True, slots=True)
class Packed:
    """`count` numbers of `width` bits, in runs of `groups` eights, the first of which begins at a byte of `data`."""

    data: bytes
    begin: int
    width: int
    count: int
    groups: int

    @classmethod
    def of(cls, data: bytes, begin: int, width: int, count: int) -> Packed | None:
        """The numbers that begin at a byte, if they are in such runs."""
        header = data[begin]
        if not header & 1 or header >= _LONG_HEADER or width > _WIDEST or header == 1:
            return None
        groups = header >> 1
        full, rest = divmod(count, groups * _GROUP)
        stride = 1 + groups * width
        end = begin + full * stride
        if rest:
            last = -(-rest // _GROUP)
            if end >= len(data) or data[end] != last << 1 | 1:
                return None
            end += 1 + last * width
        headers = np.frombuffer(data, np.uint8, offset=begin)[: full * stride : stride]
        if end > len(data) or not (headers == header).all():
            return None
        return cls(data, begin, width, count, groups)

    @classmethod
    def one_run(cls, data: bytes, begin: int, width: int, count: int) -> Packed | None:
        """Numbers that are packed from a byte on, without a header."""
        groups = -(-count // _GROUP)
        return cls(data, begin - 1, width, count, groups) if begin + groups * width <= len(data) else None

    @property
    def run_bytes(self) -> int:
        return 1 + self.groups * self.width

    def every(self) -> Any:
        """All of the numbers, in order."""
        data = np.frombuffer(self.data + bytes(self.run_bytes + _TOGETHER), np.uint8)
        return _unpacked(self, 1, data, self.begin).reshape(_GROUP, -1).T.ravel()[: self.count]


@dataclass(frozen=True, slots=True)
class Places:
    """Where some numbers are: the byte in which each begins, the bit of it, and the ones that it may have."""

    bytes: Any
    shifts: Any
    masks: Any


class PackedPages:
    """The numbers of one page after the other. What is done with all of them at once takes less than page by page."""

    def __init__(self, pages: Sequence[Packed]) -> None:
        sizes, counts = ([len(page.data) for page in pages], [page.count for page in pages])
        self._pages = pages
        self._ends, self.firsts = np.cumsum(sizes), np.cumsum([0, *counts])
        beyond = bytes(max(page.run_bytes for page in pages) + _WORD)
        self._data = arrays.room(int(self._ends[-1]) + len(beyond), np.uint8)
        whole = memoryview(self._data)
        whole[-len(beyond) :] = beyond
        for page, end in zip(pages, self._ends.tolist(), strict=True):
            whole[end - len(page.data) : end] = page.data
        self._begins = self._ends - sizes + [page.begin for page in pages]
        self._widths, self._groups = (np.array(n) for n in zip(*((p.width, p.groups) for p in pages), strict=True))

    def are_below(self, limit: int) -> bool:
        """Is every number below the limit?"""
        ends = self.firsts[1:].tolist()
        rests = [p for end, page in zip(ends, self._pages, strict=True) for p in range(end - page.count % _GROUP, end)]
        if rests and self.at(self.places(np.array(rests))).max() >= limit:
            return False
        return all(
            limit >> page.width or not _reach(page, len(alike), self._data, int(self._begins[first]), limit)
            for alike in self._alike()
            for first, page in alike[:1]
        )

    def _alike(self) -> Iterator[list[tuple[int, Packed]]]:
        for _, alike in groupby(enumerate(self._pages), key=_looks):
            yield list(alike)

    def every(self) -> Iterator[tuple[int, Any]]:
        """All of the numbers, in whatever order: up to which position, and those since. The first page, which may tell
        enough, comes alone; others that look alike come together."""
        for numbered in self._alike():
            first, page = numbered[0]
            unpacked = _unpacked(page, len(numbered), self._data, int(self._begins[first]))
            eights, rest = divmod(page.count, _GROUP)
            numbers = arrays.room((_GROUP, len(numbered), eights), np.intp)
            numbers[:] = unpacked[..., :eights]
            some = np.append(numbers, unpacked[:rest, :, eights]) if rest else numbers.ravel()
            yield int(self.firsts[first + len(numbered)]), some

    def places(self, positions: Any) -> Places:
        """Where the numbers at some positions are."""
        pages = np.searchsorted(self.firsts, positions, side="right") - 1
        widths = self._widths[pages]
        bits = _first_bits(self._begins[pages], widths, self._groups[pages], positions - self.firsts[pages])
        return Places(bits >> 3, (bits & 7).astype(np.uint32), ((1 << widths) - 1).astype(np.uint32))

    def at(self, places: Places) -> Any:
        return (_together(self._data)[places.bytes] >> places.shifts) & places.masks

    def replace(self, places: Places, old: Any, new: Any) -> list[memoryview]:
        """Put other numbers at ascending places, `new` ones as narrow as all others. The data of the pages then."""
        bits = (old ^ new) << places.shifts
        near = np.diff(places.bytes, prepend=-_TOGETHER, append=places.bytes[-1:] + _TOGETHER) < _TOGETHER
        shared = near[:-1] | near[1:]  # neighbours have a byte in common
        _together(self._data)[places.bytes[~shared]] ^= bits[~shared]
        for byte in range(_TOGETHER):
            parts = (bits[shared] >> np.uint32(8 * byte)).astype(np.uint8)
            np.bitwise_xor.at(self._data, places.bytes[shared] + byte, parts)
        whole = memoryview(self._data)
        return [whole[begin:end] for begin, end in pairwise([0, *self._ends.tolist()])]


def _looks(numbered: tuple[int, Packed]) -> tuple[int, ...]:
    """What pages that are unpacked together have in common."""
    number, page = numbered
    return number == 0, len(page.data), page.begin, page.width, page.count, page.groups


def _unpacked(page: Packed, pages: int, data: Any, begin: int) -> Any:
    """The numbers of some pages like this one, by their place in an eight of them, by page, and by eight."""
    shape, strides = _eights(page, pages)
    numbers = arrays.room((_GROUP, *shape), np.uint32)
    for place in range(_GROUP):
        byte, shift = divmod(place * page.width, 8)
        np.right_shift(np.ndarray(shape, "<u4", data, begin + 1 + byte, strides), shift, numbers[place])
    numbers &= np.uint32((1 << page.width) - 1)
    return numbers.reshape(_GROUP, pages, -1)


def _eights(page: Packed, pages: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Of some pages like this one: how many pages, runs and eights there are, and how many bytes lie between them."""
    runs = -(-page.count // (page.groups * _GROUP))
    return (pages, runs, page.groups), (len(page.data), page.run_bytes, page.width)


def _reach(page: Packed, pages: int, data: Any, begin: int, limit: int) -> bool:
    """Does a number in a whole eight of some pages like this one reach the limit?

    Numbers that stand side by side in a word are looked at together: every second one has the room of the next for
    what it has too much, once so much is added that the limit makes it wider.
    """
    width, (shape, strides) = page.width, _eights(page, pages)
    together = next(n for n in (8, 4, 2) if n * width + 7 <= 8 * _WORD)
    ones = sum(1 << 2 * width * n for n in range(together // 2))
    each, more, beyond = (np.uint64(ones * n) for n in ((1 << width) - 1, (1 << width) - limit, 1 << width))
    even, odd = arrays.room((2, *shape), np.uint64)
    for first in range(0, _GROUP, together):
        byte, shift = divmod(first * width, 8)
        np.right_shift(np.ndarray(shape, "<u8", data, begin + 1 + byte, strides), np.uint64(shift), even)
        np.right_shift(even, np.uint64(width), odd)
        for numbers in (even, odd):
            numbers &= each
            numbers += more
        even |= odd
        even &= beyond
        if even.reshape(pages, -1)[:, : page.count // _GROUP].any():
            return True
    return False


def _first_bits(begins: Any, widths: Any, groups: Any, positions: Any) -> Any:
    """Where numbers at positions begin: behind the header of their run, and the runs before it."""
    run, within = np.divmod(positions, groups * _GROUP)
    return (begins + 1 + run * (1 + groups * widths)) * 8 + within * widths


def _together(data: Any) -> Any:
    """Each byte, together with those that follow it."""
    return np.ndarray(len(data) - _TOGETHER + 1, "<u4", data, strides=(1,))
