"""The end of a Parquet file: the footer, its length in four bytes, and the magic number."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.format import MAGIC, FileMetaData

# PyArrow reads as much of the end of a file at once, too.
_TAIL = 64 << 10
_LENGTH = 4
END_BYTES = _LENGTH + len(MAGIC)
"""The bytes after the footer."""


def footer_bytes(source: Any) -> bytes:
    """The raw footer of an open Parquet file."""
    return footer_of(tail_bytes(source))


def footer_start(source: Any, footer: bytes) -> int:
    """The offset of the raw footer in an open file."""
    return int(source.size()) - END_BYTES - len(footer)


def tail_bytes(source: Any) -> bytes:
    """The last bytes of an open file, with the whole footer in them if the file is long enough."""
    size = source.size()
    tail = _read_last(source, size, getattr(source, "at_once", _TAIL))
    length = _footer_length(tail) + END_BYTES
    return tail if length <= len(tail) or tail[-len(MAGIC) :] != MAGIC else _read_last(source, size, length)


def _read_last(source: Any, size: int, count: int) -> bytes:
    source.seek(max(0, size - count))
    return bytes(source.read(min(size, count)))


def _footer_length(tail: bytes) -> int:
    return int.from_bytes(tail[-END_BYTES : -len(MAGIC)], "little")


def footer_of(tail: bytes) -> bytes:
    """The raw footer in the last bytes of a file."""
    length = _footer_length(tail)
    if length > len(tail) - END_BYTES:
        raise thrift.CorruptFile(f"a footer of {length} bytes does not fit into the file")
    return tail[-END_BYTES - length : -END_BYTES]


def with_end(footer: bytes) -> bytes:
    """A raw footer with its length and the magic number: what a file ends with."""
    return footer + len(footer).to_bytes(_LENGTH, "little") + MAGIC


def bytes_before_row_groups(raw: bytes) -> bytes:
    """A raw footer up to the end of its schema."""
    return raw[: thrift.end_of_field(raw, FileMetaData.SCHEMA)]


def bytes_after_row_groups(raw: bytes) -> bytes | None:
    """A raw footer after its row groups; `None` if their end cannot be found."""
    try:
        return raw[thrift.end_of_field(raw, FileMetaData.ROW_GROUPS) :]
    except thrift.CorruptFile:
        return None


class FooterOverrideSink(io.RawIOBase):
    """A sink for a Parquet writer. It holds back what is written after `hold()`; `finish` changes the footer in it."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._held: bytearray | None = None
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._held is not None:
            self._held += view
        else:
            self._sink.write(view)
        self.size += view.nbytes
        return view.nbytes

    def hold(self) -> None:
        self._held = bytearray()

    def finish(self, change: Callable[[thrift.Struct], thrift.Struct]) -> int:
        """Write what was held back, with its footer changed. Returns the size of the file."""
        held = bytes(self._held or b"")
        old = footer_of(held)
        end = held[: -END_BYTES - len(old)] + with_end(thrift.encode(change(thrift.decode_whole(old))))
        self.size += len(end) - len(held)
        self._sink.write(end)
        self._sink.close()
        return self.size

    def abandon(self) -> None:
        self._sink.close()
