"""The few requests that an object store has to answer.

The store's `Storage` and the commit to a store are written against these alone, so that the same code runs over S3 and
over a store in memory that can delay, lose and reorder (`tests/s3/memory.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class StoreError(OSError):
    """A store refused a request or cannot be reached. What it is about may be whole."""


class UnansweredError(StoreError):
    """No answer came: the request may have been carried out, may be so later, or never."""


class RefusedError(StoreError, PermissionError):
    """Wrong credentials, or no right to do this. It is an answer: asking again would not help."""


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

    `size` and `parts` (the ETags of its parts, in order) are those of a finished one. `etag` is that of the object that
    it becomes, where the store's ETags are hashes of the content; else it cannot be told before.
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
        """Where the store answers: two stores may have buckets of one name."""

    def get(self, key: str) -> tuple[bytes, str] | None:
        """An object and its ETag."""

    def put(self, key: str, data: Any) -> None:
        """Write an object: bytes or an open file."""

    def put_if(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Write if the object has this ETag, or with `None` if there is no object; the new ETag, or `None` if refused.

        Raises `UnansweredError` if it is not known whether the object was written. Never tried twice.
        """

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        """Bytes of the very object that has this ETag, else `ObjectChangedError`."""

    def read_tail(self, key: str, count: int) -> tuple[bytes, Entry]:
        """The last bytes of an object, and what it is."""

    def stat(self, key: str) -> Entry | None: ...

    def list_all(self, prefix: str) -> list[Entry]:
        """Everything below a folder, in order."""

    def list_names(self, prefix: str) -> list[str]:
        """The names right in a folder, those of folders included, in order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over."""

    def create_upload(self, key: str) -> str: ...

    def put_part(self, key: str, upload_id: str, number: int, data: bytes, md5: bytes) -> str:
        """Send a part with its hash; its ETag."""

    def complete(self, upload: Upload) -> str | None:
        """Make the object of an upload's parts. Its ETag, empty if the store did not say; `None`: no such upload."""

    def abort(self, upload: Upload) -> None:
        """Give an upload up; one that is not there is passed over."""

    def list_uploads(self, key: str) -> list[Upload]:
        """Uploads to this very key that are neither completed nor aborted. MinIO cannot list those below a folder."""
