"""A new file on its way into an object store: the parts of an upload that nobody sees until the commit completes it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tempfile
from typing import Any

from fsspeckit.core.storage.objects import Objects, Upload

PART = 8 << 20
# A store takes 10,000 parts: after every thousand they become larger.
_STEP = 1000
# Scratch files up to this size are held in memory.
_HELD = 8 << 20
INTENT = ".upload"


class UploadFile(io.RawIOBase):
    """A file to write to, which becomes the parts of an upload to `key`.

    What it is about to do is written down first, as an object beside the data set: whoever clears up after a dead
    writer finds its uploads by these intents, and never touches those of other programs.
    """

    def __init__(self, objects: Objects, intent: str, key: str, *, keeps_tail: bool = False) -> None:
        self._objects, self._intent, self._key, self._keeps_tail = objects, intent, key, keeps_tail
        self._buffer, self._parts, self._hashes, self._last = bytearray(), list[str](), list[bytes](), b""
        self._is_given_up = False
        self.size = 0
        self.upload: Upload | None = None
        self._intend({"key": key})
        self._upload_id = objects.create_upload(key)

    @property
    def begun(self) -> Upload:
        """The upload, whole or not."""
        return Upload(self._key, self._upload_id)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        self.size += view.nbytes
        self._last = bytes(view)
        while len(self._buffer) >= (part := PART * (1 + len(self._parts) // _STEP)):
            self._send(bytes(self._buffer[:part]))
            del self._buffer[:part]
        return view.nbytes

    def close(self) -> None:
        """Send what is left. The upload is whole now, and still nothing that a reader could see."""
        if self.closed:
            return
        super().close()
        if self._is_given_up:
            return
        if self._buffer or not self._parts:
            self._send(bytes(self._buffer))
        if self._keeps_tail:  # the driver reads the footer before it commits
            self._intend({"key": self._key, "size": self.size, "tail": base64.b64encode(self.tail).decode()})
        self.upload = Upload(self._key, self._upload_id, tuple(self._parts), self.size, self._etag)
        self._buffer.clear()

    def _intend(self, words: dict[str, Any]) -> None:
        self._objects.put(self._intent, json.dumps(words).encode())

    def give_up(self) -> None:
        """Send nothing more, also not when it is closed: after a part that could not be sent, or the session's end."""
        self._is_given_up = True
        self._buffer.clear()

    @property
    def tail(self) -> bytes:
        """The footer: the end of what was written last, if that is Parquet."""
        length = int.from_bytes(self._last[-8:-4], "little") + 8
        return self._last[-length:] if length <= len(self._last) else self._last

    @property
    def _etag(self) -> str:
        """A hash of the hashes of the parts, in stores that take the hash of a part as its ETag."""
        if [part.strip('"') for part in self._parts] != [md5.hex() for md5 in self._hashes]:
            return ""
        return f"{hashlib.md5(b''.join(self._hashes), usedforsecurity=False).hexdigest()}-{len(self._parts)}"

    def _send(self, data: bytes) -> None:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        try:
            self._parts.append(self._objects.put_part(self._key, self._upload_id, len(self._parts) + 1, data, md5))
            self._hashes.append(md5)
        except BaseException:
            self.give_up()
            raise


def tail_of(objects: Objects, intent: str) -> tuple[int, bytes] | None:
    """The size and the footer of a file that another process uploads, if it is whole."""
    answer = objects.get(intent)
    words = json.loads(answer[0]) if answer is not None else {}
    return (int(words["size"]), base64.b64decode(words["tail"])) if "tail" in words else None


class ScratchFile(io.RawIOBase):
    """An object of our own beside the data set, stored when it is closed."""

    def __init__(self, objects: Objects, key: str) -> None:
        self._objects, self._key = objects, key
        self._held = tempfile.SpooledTemporaryFile(_HELD)  # noqa: SIM115 (closed by `close`)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._held.write(view)
        return view.nbytes

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        with self._held:
            self._held.seek(0)
            self._objects.put(self._key, self._held)
