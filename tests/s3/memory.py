"""An object store in memory. ETags are a hash of the content, as in S3: equal bodies have equal ETags.

All of them are as of uploads of one part, which are all that the model makes; and uploads are listed by their very key,
as in MinIO.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from typing import Any

from fsspeckit.core.storage.objects import Entry, ObjectChangedError, Upload


def etag_of(data: bytes) -> str:
    return f'"{hashlib.md5(hashlib.md5(data).digest()).hexdigest()}-1"'


class MemoryObjects:
    """One bucket; `writer` marks the upload ids of a writer, so that they do not depend on the order of writers."""

    place = "s3://memory"
    endpoint = ""

    def __init__(self, writer: str = "w", of: MemoryObjects | None = None) -> None:
        self.writer, self._count = writer, itertools.count()
        self.objects: dict[str, bytes] = of.objects if of else {}
        self.pending: dict[tuple[str, str], dict[int, bytes]] = of.pending if of else {}

    def get(self, key: str) -> tuple[bytes, str] | None:
        data = self.objects.get(key)
        return None if data is None else (data, etag_of(data))

    def put(self, key: str, data: Any) -> None:
        self.objects[key] = data if isinstance(data, bytes) else data.read()

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        old = self.objects.get(key)
        if (None if old is None else etag_of(old)) != etag:
            return None
        self.objects[key] = data
        return etag_of(data)

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        if key not in self.objects:
            raise FileNotFoundError(key)
        if etag_of(self.objects[key]) != etag:
            raise ObjectChangedError(key)
        return self.objects[key][start:end]

    def read_tail(self, key: str, count: int) -> tuple[bytes, Entry]:
        entry = self.stat(key)
        if entry is None:
            raise FileNotFoundError(key)
        return self.objects[key][-count:], entry

    def stat(self, key: str) -> Entry | None:
        data = self.objects.get(key)
        return None if data is None else Entry(key, len(data), etag_of(data))

    def list_all(self, prefix: str) -> list[Entry]:
        inside = sorted(key for key in self.objects if key.startswith(f"{prefix}/"))
        return [Entry(key, len(self.objects[key]), etag_of(self.objects[key])) for key in inside]

    def list_names(self, prefix: str) -> list[str]:
        return sorted({e.key[len(prefix) + 1 :].partition("/")[0] for e in self.list_all(prefix)})

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def copy_object(self, source: str, target: str, etag: str) -> None:
        found = self.get(source)
        if found is None or found[1] != etag:
            raise ObjectChangedError(f"{source} is another object now")
        self.put(target, found[0])

    def create_upload(self, key: str) -> str:
        upload_id = f"{self.writer}-{next(self._count)}"
        self.pending[key, upload_id] = {}
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, md5: bytes) -> str:
        if (key, upload_id) not in self.pending:
            raise FileNotFoundError(key)
        self.pending[key, upload_id][number] = data
        return md5.hex()

    def complete(self, upload: Upload) -> str | None:
        parts = self.pending.pop((upload.key, upload.upload_id), None)
        if parts is None:
            return None
        self.objects[upload.key] = b"".join(parts[n] for n in sorted(parts))
        return etag_of(self.objects[upload.key])

    def abort(self, upload: Upload) -> None:
        self.pending.pop((upload.key, upload.upload_id), None)

    def list_uploads(self, key: str) -> list[Upload]:
        return [Upload(*name) for name in sorted(self.pending) if name[0] == key]

    def copy(self) -> MemoryObjects:
        twin = MemoryObjects(self.writer)
        twin.objects = dict(self.objects)
        twin.pending = {name: dict(parts) for name, parts in self.pending.items()}
        return twin
