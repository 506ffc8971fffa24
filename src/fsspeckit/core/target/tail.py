"""The end of a Parquet file, where its footer is."""

from __future__ import annotations

from typing import Any

from fsspeckit.core.target import thrift

MAGIC = b"PAR1"
# What PyArrow reads at once of the end of a file, too.
_TAIL = 64 << 10


def footer_bytes(source: Any) -> bytes:
    """The raw footer of an open Parquet file."""
    return footer_of(tail_bytes(source))


def tail_bytes(source: Any) -> bytes:
    """The end of an open file with all of its footer in it, as far as the file is that long."""
    size = source.size()
    tail = _last(source, size, getattr(source, "at_once", _TAIL))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    return tail if length <= len(tail) or tail[-4:] != MAGIC else _last(source, size, length)


def _last(source: Any, size: int, count: int) -> bytes:
    source.seek(max(0, size - count))
    return bytes(source.read(min(size, count)))


def footer_of(tail: bytes) -> bytes:
    length = int.from_bytes(tail[-8:-4], "little")
    if length > len(tail) - 8:
        raise thrift.Damaged(f"a footer of {length} bytes does not fit into the file")
    return tail[-8 - length : -8]
