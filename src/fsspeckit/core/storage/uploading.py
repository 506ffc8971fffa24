"""A new file on its way into an object store: the parts of an upload that nobody sees until the commit completes it."""

from __future__ import annotations

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

    def __init__(self, objects: Objects, intent: str, key: str) -> None:
        self._objects, self._key = objects, key
        self._buffer, self._parts, self._last = bytearray(), list[str](), b""
        self._is_given_up = False
        self.size = 0
        self.upload: Upload | None = None
        objects.put(intent, json.dumps({"key": key}).encode())
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
        self.upload = Upload(self._key, self._upload_id, tuple(self._parts), self.size)
        self._buffer.clear()

    def give_up(self) -> None:
        """Send nothing more, also not when it is closed: after a part that could not be sent, or the session's end."""
        self._is_given_up = True
        self._buffer.clear()

    @property
    def tail(self) -> bytes:
        """What was written last, in which the footer is."""
        return self._last

    def _send(self, data: bytes) -> None:
        try:
            self._parts.append(self._objects.put_part(self._key, self._upload_id, len(self._parts) + 1, data))
        except BaseException:
            self.give_up()
            raise


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
