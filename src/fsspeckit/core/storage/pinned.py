"""Read one object in ranges, all of them of one version: a change in between is an error, never a mixture."""

from __future__ import annotations

import atexit
import io
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa

from fsspeckit.core.storage.objects import Entry, Objects

# What is read at once of the end of a file: a footer is one request.
TAIL = 64 << 10
# Columns of one row group that lie closer together than this are one request, up to the largest.
AHEAD, LARGEST = 512 << 10, 32 << 20


class Tails:
    """The ends of objects that were read last, by key and ETag: a footer is asked for by several steps of a merge."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit, self._size = limit, 0
        self._held: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, place: str, entry: Entry) -> bytes | None:
        with self._guard:
            found = self._held.get((place, entry.key, entry.etag))
            if found is not None:
                self._held.move_to_end((place, entry.key, entry.etag))
            return found

    def keep(self, place: str, entry: Entry, tail: bytes) -> None:
        with self._guard:
            name = (place, entry.key, entry.etag)
            self._size += len(tail) - len(self._held.get(name, b""))
            self._held[name] = tail
            self._held.move_to_end(name)
            while self._size > self._limit:
                self._size -= len(self._held.popitem(last=False)[1])


TAILS = Tails()
# How long the end of a process waits for threads of PyArrow's.
_PATIENCE = 1.0


class _RangeFile(io.RawIOBase):
    """A file, for `pa.PythonFile`, of bytes that are had by their place."""

    _position = 0
    living: ClassVar[weakref.WeakSet[_RangeFile]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.living.add(self)

    @property
    def _size(self) -> int:
        raise NotImplementedError

    def _range(self, start: int, end: int) -> bytes:
        """Bytes that lie within the file."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size if whence == io.SEEK_END else 0}
        self._position = max(0, base[whence] + offset)
        return self._position

    def read(self, count: int | None = -1) -> bytes:
        end = self._size if count is None or count < 0 else min(self._size, self._position + count)
        data = self._range(self._position, end) if end > self._position else b""
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class PinnedFile(_RangeFile):
    """An object as a file. `entry` is what a listing said of it, if there was one."""

    def __init__(self, objects: Objects, key: str, entry: Entry | None) -> None:
        super().__init__()
        self._objects, self._key = objects, key
        self._entry = entry if entry is not None and entry.etag else None
        self._block, self._block_start = b"", 0
        self._runs: list[tuple[int, int]] = []

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """These bytes will be read, each from its start to its end: what lies together is asked for at once."""
        self._runs = []
        for start, end in sorted(ranges):
            first, last = self._runs[-1] if self._runs else (start, -AHEAD - 1)
            if start - last <= AHEAD and end - first <= LARGEST:
                self._runs[-1] = first, max(last, end)
            else:
                self._runs.append((start, end))

    @property
    def _size(self) -> int:
        return self._pinned().size

    def _pinned(self) -> Entry:
        if self._entry is None:
            tail, self._entry = self._objects.read_tail(self._key, TAIL)
            TAILS.keep(self._objects.place, self._entry, tail)
        return self._entry

    def _range(self, start: int, end: int) -> bytes:
        entry = self._pinned()
        if start >= entry.size - TAIL:
            tail = TAILS.get(self._objects.place, entry)
            if tail is None:
                tail = self._objects.read(self._key, max(0, entry.size - TAIL), entry.size, entry.etag)
                TAILS.keep(self._objects.place, entry, tail)
            first = entry.size - len(tail)
            return tail[start - first : end - first]
        if not self._block_start <= start <= end <= self._block_start + len(self._block):
            run = next((last for first, last in self._runs if first <= start < last), 0)
            until = min(entry.size, max(end, run, start + AHEAD))
            self._block = self._objects.read(self._key, start, until, entry.etag)
            self._block_start = start
        return self._block[start - self._block_start : end - self._block_start]


class PinnedSource(pa.PythonFile):  # type: ignore[misc]
    """The same for PyArrow, which takes the file before this."""

    def __init__(self, file: PinnedFile) -> None:
        self.expect = file.expect


class TailFile(_RangeFile):
    """The end of a file that cannot be read yet: an upload, of which its writer remembers the footer.

    What lies before the footer reads as zeros: whoever looks for the footer looks at the end.
    """

    def __init__(self, size: int, tail: bytes) -> None:
        super().__init__()
        self._length, self._tail = size, tail

    @property
    def _size(self) -> int:
        return self._length

    def _range(self, start: int, end: int) -> bytes:
        first = self._length - len(self._tail)
        missing = max(0, min(end, first) - start)
        return bytes(missing) + self._tail[max(0, start - first) : max(0, end - first)]


def _let_go() -> None:
    """Wait until PyArrow's threads have let go of what they read.

    A scan reads files in threads, and whichever comes last frees the file. When the interpreter has begun to end, a
    thread that asks for its lock is ended instead, and C++ does not survive that: the process ended by SIGABRT, all
    its work done (seen once in twenty on a busy machine).
    """
    deadline = time.monotonic() + _PATIENCE
    while _RangeFile.living and time.monotonic() < deadline:
        time.sleep(0.002)


atexit.register(_let_go)
