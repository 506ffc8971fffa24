"""The values of a plain page where they lie: some are looked at, some exchanged, and the others stay bytes.

Numbers stand side by side. A text stands behind its length, so that to find the last one of a page all others have to
be passed. In Python that would take far too long. But a length below 256 ends in three zeros, which text hardly ever
has: where these are, and the lengths lead from each to the next and to the page's end, nothing was missed. Other pages
are `Unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from fsspeckit.core.rewrite.page_bytes import Unknown

# A text's length has four bytes; of those that are understood the last three are zero.
_LENGTH, _LONG = 4, 256
_LENGTHS = [length.to_bytes(_LENGTH, "little") for length in range(_LONG)]
# Of a page that goes by a dictionary: if fewer rows on average have values that follow each other there, so that they
# can be taken in one piece, other ways are quicker.
_ROWS_PER_PIECE = 32
NOWHERE: Any = np.zeros(0, np.int64)


class Values(Protocol):
    """The values of a page, in its bytes."""

    def at(self, rows: Any) -> list[Any]:
        """Some of them, as pages have them."""

    def replaced(self, rows: Any, values: list[Any]) -> bytes:
        """The bytes with other values at ascending rows."""

    def but(self, rows: Any) -> pa.Array:
        """All but some of them."""

    def by_number(self, numbers: Any, before: bytes) -> Any:
        """These are a dictionary's: the values of a page that has numbers of them, behind its first bytes."""


class Kind(Protocol):
    """How values of a type stand in pages, and which of them comes first."""

    def stored(self, values: pa.Array) -> list[Any]:
        """Values as pages have them: texts with their lengths, the bits of numbers."""

    def in_page(self, data: bytes, begin: int, count: int) -> Values:
        """The values that fill the bytes from one on."""

    def ordered(self, stored: list[Any]) -> list[Any]:
        """The same as values that Python compares as Parquet does."""

    def text_bytes(self, stored: list[Any]) -> int:
        """How many bytes these have as text."""

    def bound(self, data: bytes) -> Any:
        """The value of a bound in statistics."""

    def bytes_of(self, value: Any, *, is_max: bool) -> bytes:
        """A bound in statistics of a value."""


def kind_of(dtype: pa.DataType) -> Kind:
    if t.is_string(dtype) or t.is_binary(dtype):
        return TextKind()
    sign = "f" if t.is_floating(dtype) else "u" if t.is_unsigned_integer(dtype) else "i"
    return NumberKind(np.dtype(f"<u{dtype.bit_width // 8}"), np.dtype(f"<{sign}{dtype.bit_width // 8}"))


@dataclass(frozen=True, slots=True)
class TextKind:
    def stored(self, values: pa.Array) -> list[bytes]:
        texts: list[bytes] = values.cast(pa.binary()).to_pylist()
        return [_LENGTHS[len(text)] + text for text in texts]

    def in_page(self, data: bytes, begin: int, count: int) -> Texts:
        if begin == len(data) and not count:
            return Texts(data, NOWHERE, NOWHERE)
        body = np.frombuffer(data, np.uint8)[begin:]
        behind = body[1:-2] | body[2:-1]
        behind |= body[3:]
        begins = np.flatnonzero(behind == 0)
        ends = begins + body[begins] + _LENGTH
        if len(begins) != count:  # what stands before an empty text is followed by zeros, too, but leads nowhere
            leads = np.isin(ends, begins) | (ends == len(body))
            begins, ends = begins[leads], ends[leads]
        if len(begins) != count or begins[0] or ends[-1] != len(body) or not np.array_equal(ends[:-1], begins[1:]):
            raise Unknown
        return Texts(data, begins + begin, ends + begin)

    def ordered(self, stored: list[bytes]) -> list[bytes]:
        return [text[_LENGTH:] for text in stored]

    def text_bytes(self, stored: list[bytes]) -> int:
        return sum(map(len, stored)) - _LENGTH * len(stored)

    def bound(self, data: bytes) -> bytes:
        return data

    def bytes_of(self, value: bytes, *, is_max: bool) -> bytes:
        return value


@dataclass(frozen=True, slots=True)
class Texts:
    """Where texts lie, one behind the other, from the first byte of their lengths on."""

    data: bytes
    begins: Any
    ends: Any

    def at(self, rows: Any) -> list[bytes]:
        places = zip(self.begins[rows].tolist(), self.ends[rows].tolist(), strict=True)
        return [self.data[begin:end] for begin, end in places]

    def replaced(self, rows: Any, values: list[bytes]) -> bytes:
        view, at = memoryview(self.data), 0
        pieces: list[bytes | memoryview] = []
        for begin, end, text in zip(self.begins[rows].tolist(), self.ends[rows].tolist(), values, strict=True):
            pieces += [view[at:begin], text]
            at = end
        return b"".join([*pieces, view[at:]])

    def but(self, rows: Any) -> pa.Array:
        is_text = np.ones(len(self.data), bool)
        is_text[: self.begins[0] if len(self.begins) else None] = False
        is_text[self.begins[:, None] + np.arange(_LENGTH)] = False
        texts = np.frombuffer(self.data, np.uint8)[is_text]
        offsets = np.cumsum([0, *(self.ends - self.begins - _LENGTH)], dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
        everyone = pa.Array.from_buffers(pa.binary(), len(self.begins), buffers)
        return everyone.take(pa.array(np.delete(np.arange(len(everyone)), rows)))

    def by_number(self, numbers: Any, before: bytes) -> Texts:
        if not len(numbers):
            return Texts(before, NOWHERE, NOWHERE)
        begins, ends = self.begins[numbers], self.ends[numbers]
        cuts = np.flatnonzero(begins[1:] != ends[:-1])
        if len(cuts) * _ROWS_PER_PIECE > len(numbers):
            raise Unknown
        view, starts, stops = memoryview(self.data), [0, *(cuts + 1).tolist()], [*cuts.tolist(), len(numbers) - 1]
        runs = zip(begins[starts].tolist(), ends[stops].tolist(), strict=True)
        data = b"".join([before, *(view[begin:end] for begin, end in runs)])
        placed = np.cumsum(ends - begins) + len(before)
        return Texts(data, placed - (ends - begins), placed)


@dataclass(frozen=True, slots=True)
class NumberKind:
    """Numbers as `bits`, which compare as `order`."""

    bits: np.dtype[Any]
    order: np.dtype[Any]

    def stored(self, values: pa.Array) -> list[int]:
        data = values.buffers()[1]
        numbers = np.frombuffer(data, self.bits, offset=values.offset * self.bits.itemsize, count=len(values))
        self.check_told_apart(numbers)
        return list(numbers.tolist())

    def in_page(self, data: bytes, begin: int, count: int) -> Numbers:
        if len(data) - begin != count * self.bits.itemsize:
            raise Unknown
        return Numbers(self, data, begin)

    def ordered(self, stored: list[int]) -> list[Any]:
        numbers = np.array(stored, self.bits)
        self.check_told_apart(numbers)
        return list(numbers.view(self.order).tolist())

    def text_bytes(self, stored: list[int]) -> int:
        return 0

    def bound(self, data: bytes) -> Any:
        if len(data) != self.order.itemsize:
            raise Unknown
        return self.ordered([int.from_bytes(data, "little")])[0]

    def bytes_of(self, value: Any, *, is_max: bool) -> bytes:
        if self.order.kind == "f" and value == 0:  # readers may not tell one zero from the other
            value = 0.0 if is_max else -0.0
        return np.array([value], self.order).tobytes()

    def check_told_apart(self, numbers: Any) -> None:
        """One NaN is as good as another, and in no order."""
        if self.order.kind == "f" and np.isnan(numbers.view(self.order)).any():
            raise Unknown


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers side by side, from a byte on."""

    kind: NumberKind
    data: bytes
    begin: int

    @property
    def _all(self) -> Any:
        return np.frombuffer(self.data, self.kind.bits, offset=self.begin)

    def at(self, rows: Any) -> list[int]:
        return list(self._all[rows].tolist())

    def replaced(self, rows: Any, values: list[int]) -> bytes:
        numbers = self._all.copy()
        numbers[rows] = np.array(values, self.kind.bits)
        return self.data[: self.begin] + bytes(numbers.tobytes())

    def but(self, rows: Any) -> pa.Array:
        numbers = np.delete(self._all, rows)
        self.kind.check_told_apart(numbers)
        return pa.array(numbers.view(self.kind.order))

    def by_number(self, numbers: Any, before: bytes) -> Numbers:
        return Numbers(self.kind, before + self._all[numbers].tobytes(), len(before))
