"""Small numbers as pages hold them: packed bit by bit, in runs.

The definition levels of a page and the numbers of its values in a dictionary are written so. A reader unpacks them all;
who wants to know or change a few hundred of them needs only to know where each one lies. That is understood here of
runs of packed numbers that are all as long as the first one, but for the last: so writers pack numbers that do not
repeat. A run may repeat one number instead, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

# A number begins anywhere in a byte, and has to end within the four that are looked at together.
_WIDEST, _TOGETHER = 25, 4
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
    def layout(self) -> tuple[int, ...]:
        """The same of others whose numbers lie in the same places."""
        return self.begin, self.width, self.groups

    def places(self, positions: Any) -> tuple[Any, Any]:
        """Where the numbers at some positions are: the byte in which each begins, and the bit of it."""
        run, within = np.divmod(positions, self.groups * _GROUP)
        bits = (self.begin + 1 + run * (1 + self.groups * self.width)) * 8 + within * self.width
        return bits >> 3, (bits & 7).astype(np.uint32)

    def at(self, places: tuple[Any, Any]) -> Any:
        begin, shift = places
        return (_together(self.data + bytes(_TOGETHER))[begin] >> shift) & np.uint32((1 << self.width) - 1)

    def every(self) -> Any:
        """All of the numbers."""
        return self.at(_every_place(*self.layout, self.count))

    def replaced(self, places: tuple[Any, Any], old: Any, new: Any) -> bytes:
        """The data with other numbers at ascending places; `new` have to be as narrow as all others."""
        begin, shift = places
        data = bytearray(self.data + bytes(_TOGETHER))
        bits = (old ^ new) << shift
        if (np.diff(begin) >= _TOGETHER).all():
            _together(data)[begin] ^= bits
        else:  # neighbours share a byte
            single = np.frombuffer(data, np.uint8)
            for byte in range(_TOGETHER):
                np.bitwise_xor.at(single, begin + byte, (bits >> np.uint32(8 * byte)).astype(np.uint8))
        return bytes(data[:-_TOGETHER])


def _together(data: bytes | bytearray) -> Any:
    """Each byte, together with those that follow it."""
    return np.ndarray(len(data) - _TOGETHER + 1, "<u4", data, strides=(1,))


@lru_cache(maxsize=64)
def _every_place(begin: int, width: int, groups: int, count: int) -> tuple[Any, Any]:
    return Packed(b"", begin, width, count, groups).places(np.arange(count))
