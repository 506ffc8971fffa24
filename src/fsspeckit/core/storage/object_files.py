"""Objects of a store as files: reads of one version of an object, and uploads of new files.

All ranges of an object are read from one version: a change in between is an error, never a mixture. A new file becomes
the parts of an upload, which readers do not see until the commit completes it.
"""

from __future__ import annotations

import atexit
import base64
import hashlib
import io
import json
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa

from fsspeckit.core.storage.objects import Entry, Objects, Upload

# The bytes at the end of a file that are read at once, so that a footer takes one request.
TAIL = 64 << 10
# Ranges closer than this are read in one request of at most this size.
MAX_GAP, MAX_REQUEST = 512 << 10, 32 << 20
PART = 8 << 20
# A store takes at most 10,000 parts. Parts grow after every thousand.
_PARTS_OF_ONE_SIZE = 1000
# Scratch files up to this size stay in memory.
_MAX_IN_MEMORY = 8 << 20
# How long the process waits at its end for threads of PyArrow, in seconds.
_EXIT_TIMEOUT = 1.0
INTENT = ".upload"
"""The suffix of the object that names an upload before the upload begins."""


class Tails:
    """The ends of the objects that were read last, up to `limit` bytes."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit, self._size = limit, 0
        self._tails: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, objects: Objects, entry: Entry) -> bytes | None:
        name = (objects.endpoint, objects.place, entry.key, entry.etag)
        with self._guard:
            tail = self._tails.get(name)
            if tail is not None:
                self._tails.move_to_end(name)
            return tail

    def put(self, objects: Objects, entry: Entry, tail: bytes) -> None:
        name = (objects.endpoint, objects.place, entry.key, entry.etag)
        with self._guard:
            self._size += len(tail) - len(self._tails.get(name, b""))
            self._tails[name] = tail
            self._tails.move_to_end(name)
            while self._size > self._limit:
                self._size -= len(self._tails.popitem(last=False)[1])


TAILS = Tails()
"""One for the process: a merge reads a footer in several steps, and the next merge reads the same footers again.

The ETag of an object is part of the key, so an entry never becomes invalid.
"""


class _RangeFile(io.RawIOBase):
    """A read-only file for `pa.PythonFile`; subclasses read ranges of bytes."""

    _position = 0
    # All files of the process, for `_wait_for_readers`.
    open_files: ClassVar[weakref.WeakSet[_RangeFile]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.open_files.add(self)

    @property
    def _size(self) -> int:
        raise NotImplementedError

    def _range(self, start: int, end: int) -> bytes:
        """Read bytes; the range is within the file."""
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
    """An object as a file. `entry` is its version in a listing, if it was listed."""

    def __init__(self, objects: Objects, key: str, entry: Entry | None) -> None:
        super().__init__()
        self._objects, self._key = objects, key
        self._entry = entry if entry is not None and entry.etag else None
        self._block, self._block_start = b"", 0
        self._requests: list[tuple[int, int]] = []

    def will_read(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce the ranges that will be read, so that neighbouring ones take one request."""
        self._requests = []
        for start, end in sorted(ranges):
            first, last = self._requests[-1] if self._requests else (start, -MAX_GAP - 1)
            if start - last <= MAX_GAP and end - first <= MAX_REQUEST:
                self._requests[-1] = first, max(last, end)
            else:
                self._requests.append((start, end))

    @property
    def _size(self) -> int:
        return self._pinned().size

    def _pinned(self) -> Entry:
        if self._entry is None:
            tail, self._entry = self._objects.read_tail(self._key, TAIL)
            TAILS.put(self._objects, self._entry, tail)
        return self._entry

    def _range(self, start: int, end: int) -> bytes:
        entry = self._pinned()
        if start >= entry.size - TAIL:
            tail = TAILS.get(self._objects, entry)
            if tail is None:
                tail = self._objects.read(self._key, max(0, entry.size - TAIL), entry.size, entry.etag)
                TAILS.put(self._objects, entry, tail)
            first = entry.size - len(tail)
            return tail[start - first : end - first]
        if not self._block_start <= start <= end <= self._block_start + len(self._block):
            request_end = next((last for first, last in self._requests if first <= start < last), 0)
            until = min(entry.size, max(end, request_end, start + MAX_GAP))
            self._block = self._objects.read(self._key, start, until, entry.etag)
            self._block_start = start
        return self._block[start - self._block_start : end - self._block_start]


class PinnedSource(pa.PythonFile):  # type: ignore[misc]
    """A `PinnedFile` for PyArrow, whose constructor takes the file, with its `will_read`."""

    def __init__(self, file: PinnedFile) -> None:
        self.will_read = file.will_read


class TailFile(_RangeFile):
    """A file that is not readable yet: an upload whose writer kept the footer. All bytes before it read as zeros."""

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


def _wait_for_readers() -> None:
    """Wait until PyArrow's threads have released their files.

    A scan reads files in threads, and the last thread frees the file. While the interpreter shuts down, Python ends a
    thread that asks for its lock, and PyArrow's C++ code then aborts the process (seen once in twenty runs on a busy
    machine, after all work was done).
    """
    deadline = time.monotonic() + _EXIT_TIMEOUT
    while _RangeFile.open_files and time.monotonic() < deadline:
        time.sleep(0.002)


atexit.register(_wait_for_readers)


class UploadFile(io.RawIOBase):
    """A file to write to, which becomes the parts of an upload to `key`.

    An intent, an object beside the data set that names the key, is written before the upload begins. Recovery finds
    the uploads of dead writers by their intents, and never touches uploads of other programs.
    """

    def __init__(self, objects: Objects, intent: str, key: str, *, keeps_tail: bool = False) -> None:
        self._objects, self._intent, self._key, self._keeps_tail = objects, intent, key, keeps_tail
        self._buffer, self._parts, self._hashes, self._last_write = bytearray(), list[str](), list[bytes](), b""
        self._is_abandoned = False
        self.size = 0
        self.upload: Upload | None = None
        self._write_intent({"key": key})
        self._upload_id = objects.create_upload(key)

    @property
    def open_upload(self) -> Upload:
        """The upload, complete or not."""
        return Upload(self._key, self._upload_id)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        self.size += view.nbytes
        self._last_write = bytes(view)
        while len(self._buffer) >= (part := PART * (1 + len(self._parts) // _PARTS_OF_ONE_SIZE)):
            self._send(bytes(self._buffer[:part]))
            del self._buffer[:part]
        return view.nbytes

    def close(self) -> None:
        """Send the rest. All parts are in the store now, and readers still do not see the file."""
        if self.closed:
            return
        super().close()
        if self._is_abandoned:
            return
        if self._buffer or not self._parts:
            self._send(bytes(self._buffer))
        if self._keeps_tail:  # the driver reads the footer before it commits
            self._write_intent({"key": self._key, "size": self.size, "tail": base64.b64encode(self.tail).decode()})
        self.upload = Upload(self._key, self._upload_id, tuple(self._parts), self.size, self._etag)
        self._buffer.clear()

    def _write_intent(self, content: dict[str, Any]) -> None:
        self._objects.put(self._intent, json.dumps(content).encode())

    def abandon(self) -> None:
        """Send nothing more, not even on close: a part could not be sent, or the session ended."""
        self._is_abandoned = True
        self._buffer.clear()

    @property
    def tail(self) -> bytes:
        """The footer of a Parquet file, which is the end of the last write."""
        last = self._last_write
        length = int.from_bytes(last[-8:-4], "little") + 8
        return last[-length:] if length <= len(last) else last

    @property
    def _etag(self) -> str:
        """The hash of the parts' hashes, in stores whose ETag of a part is its hash; else empty."""
        if [part.strip('"') for part in self._parts] != [md5.hex() for md5 in self._hashes]:
            return ""
        return f"{hashlib.md5(b''.join(self._hashes), usedforsecurity=False).hexdigest()}-{len(self._parts)}"

    def _send(self, data: bytes) -> None:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        try:
            self._parts.append(self._objects.put_part(self._key, self._upload_id, len(self._parts) + 1, data, md5))
            self._hashes.append(md5)
        except BaseException:
            self.abandon()
            raise


def tail_of(objects: Objects, intent: str) -> tuple[int, bytes] | None:
    """Size and footer of a file that another process has uploaded completely."""
    answer = objects.get(intent)
    content = json.loads(answer[0]) if answer is not None else {}
    return (int(content["size"]), base64.b64decode(content["tail"])) if "tail" in content else None


class ScratchFile(io.RawIOBase):
    """A temporary object beside the data set, stored when the file is closed."""

    def __init__(self, objects: Objects, key: str) -> None:
        self._objects, self._key = objects, key
        self._spool = tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY)  # noqa: SIM115 (closed by `close`)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._spool.write(view)
        return view.nbytes

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with self._spool:
            self._spool.seek(0)
            self._objects.put(self._key, self._spool)
