"""The requests that an object store must answer.

`StoreStorage` and the commit to a store send no others. So the same code runs on S3 and on a store in memory that
delays, loses and reorders requests (`tests/s3/memory.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class StoreError(OSError):
    """A store refused a request or cannot be reached. The object itself may be intact."""


class UnansweredError(StoreError):
    """There was no answer. The request may have been carried out, may be carried out later, or never."""


class RefusedError(StoreError, PermissionError):
    """Wrong credentials, or no permission. This is an answer, so a retry is useless."""


class MissingError(StoreError, FileNotFoundError):
    """There is no such object or upload."""


class ObjectChangedError(StoreError):
    """An object is no longer the one that was listed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as a listing shows it."""

    key: str
    size: int
    etag: str
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload: invisible until it is completed, and completed or aborted once only.

    A finished upload has `size` and `parts`, the ETags of its parts in order. `etag` is that of the future object, or
    empty if the store's ETags are not hashes of the content.
    """

    key: str
    upload_id: str
    parts: tuple[str, ...] = ()
    size: int = 0
    etag: str = ""


class Objects(Protocol):
    """One bucket. Keys have no leading slash; a prefix is a whole folder, without its last slash."""

    @property
    def place(self) -> str:
        """The bucket as a URL, for messages."""

    @property
    def endpoint(self) -> str:
        """The URL of the store: two stores may have buckets of the same name."""

    def get(self, key: str) -> tuple[bytes, str] | None:
        """An object and its ETag."""

    def put(self, key: str, data: Any) -> None:
        """Write an object: bytes or an open file."""

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Write if the object has this ETag, or with `None` if there is no object; the new ETag, or `None` if refused.

        Raises `UnansweredError` if it is unknown whether the object was written. It is never retried.
        """

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        """Bytes of the version with this ETag, or `ObjectChangedError`."""

    def read_tail(self, key: str, count: int) -> tuple[bytes, Entry]:
        """The last bytes of an object, and its entry."""

    def stat(self, key: str) -> Entry | None: ...

    def list_all(self, prefix: str) -> list[Entry]:
        """All objects below a folder, sorted by key."""

    def list_names(self, prefix: str) -> list[str]:
        """The sorted names of objects and folders directly in a folder."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing ones are ignored."""

    def copy_object(self, source: str, target: str, etag: str) -> None:
        """Copy the version of an object with this ETag within the store, or raise an `OSError`."""

    def create_upload(self, key: str) -> str: ...

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, md5: bytes) -> str:
        """Send a part with its hash; its ETag."""

    def complete(self, upload: Upload) -> str | None:
        """Turn an upload into its object. Returns the ETag, empty if the store gives none; `None`: no such upload."""

    def abort(self, upload: Upload) -> None:
        """Abort an upload. A missing one is ignored."""

    def list_uploads(self, key: str) -> list[Upload]:
        """Uploads to exactly this key that are not completed or aborted. MinIO cannot list those below a folder."""
