"""A bucket as a storage. Its folders are the prefixes of its keys.

There are no renames, modes or locks. A staged file is an upload to its final key (see `object_files`). Readers do not
see it until the commit completes it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import posixpath
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import Storage, skipped_folder
from fsspeckit.core.storage.object_files import (
    INTENT,
    PinnedFile,
    PinnedSource,
    ScratchFile,
    TailFile,
    UploadFile,
    tail_of,
)
from fsspeckit.core.storage.objects import Entry, Objects, Upload


class StoreStorage(Storage):
    """The objects of a bucket. All ranges of a file are read from the version that was listed."""

    commits_by = "upload"

    def __init__(self, objects: Objects, lease: float = 20, heartbeat: float = 5) -> None:
        self.lease_options = (lease, heartbeat)
        self.objects = objects
        self._is_copy = False
        self._root_of_staging: dict[str, str] = {}
        self._process = os.getpid()
        self._listed: dict[str, Entry] = {}
        self._staged: dict[str, UploadFile] = {}
        self._listing = threading.local()

    def __repr__(self) -> str:
        return f"StoreStorage({self.objects.place!r})"

    def __reduce__(self) -> Any:
        return _in_other_process, (self.objects, *self.lease_options, self._root_of_staging)

    def url(self, key: str) -> str:
        return f"{self.objects.place}/{key}"

    @contextlib.contextmanager
    def one_listing(self, root: str) -> Iterator[None]:
        if getattr(self._listing, "root", None) == root:
            yield
            return
        self._listing.root, self._listing.entries = root, self.objects.list_all(root)
        try:
            yield
        finally:
            self._listing.root = None

    def walk(self, root: str) -> Iterator[FileInfo]:
        entries = self._entries(root)
        folders = {posixpath.dirname(e.key) for e in entries}
        for entry in entries:
            path = entry.key[len(root) + 1 :] if root else entry.key
            is_folder = not entry.size and entry.key in folders  # some programs make an empty object for a folder
            if path and not is_folder and not any(map(skipped_folder, path.split("/")[:-1])):
                self._listed[entry.key] = entry
                yield _info(path, entry)

    def folders(self, root: str) -> Iterator[str]:
        folders: set[str] = set()
        for entry in self._entries(root):
            parts = entry.key[len(root) + 1 :].split("/")[:-1]
            for depth, part in enumerate(parts):
                folders.add("/".join(parts[: depth + 1]))
                if skipped_folder(part):
                    break
        return iter(sorted(folders))

    def stat(self, path: str) -> FileInfo | None:
        entry = self.objects.stat(path)
        if entry is None:
            return None
        self._listed[path] = entry
        return _info(path, entry)

    def is_dir(self, path: str) -> bool:
        return bool(self._entries(path)) if self._has_listing(path) else bool(self.objects.list_names(path))

    def is_file(self, path: str) -> bool:
        """Is there an object of that name? One with objects below it stands for a folder."""
        return not self.is_dir(path) and self.objects.stat(path) is not None

    def names(self, folder: str) -> list[str]:
        if not self._has_listing(folder):
            return self.objects.list_names(folder)
        start = len(folder) + 1
        return sorted({e.key[start:].partition("/")[0] for e in self._entries(folder)} - {""})

    def _has_listing(self, folder: str) -> bool:
        root: str | None = getattr(self._listing, "root", None)
        return root is not None and (folder == root or folder.startswith(f"{root}/"))

    def _entries(self, root: str) -> list[Entry]:
        if not self._has_listing(root):
            return self.objects.list_all(root)
        return [e for e in self._listing.entries if e.key.startswith(f"{root}/")]

    def open_input(self, path: str) -> Any:
        staged = self._staged.get(path)
        if staged is not None:
            return pa.PythonFile(TailFile(staged.size, staged.tail), mode="r")
        if posixpath.dirname(path) in self._root_of_staging:
            size_and_tail = tail_of(self.objects, f"{path}{INTENT}")
            if size_and_tail is not None:
                return pa.PythonFile(TailFile(*size_and_tail), mode="r")
        return PinnedSource(PinnedFile(self.objects, path, self._listed.get(path)))

    def will_read(self, source: Any, ranges: Iterable[tuple[int, int]]) -> None:
        source.will_read(ranges)

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Every range is read with the ETag of the last listing, so that ETag is compared."""
        entry = self._listed.get(path)
        return bool(info.etag) and entry is not None and (entry.etag, entry.size) == (info.etag, info.size)

    def identity(self, root: str) -> str | None:
        return f"{self.objects.endpoint} {self.url(root)}"

    def expect(self, path: str, info: FileInfo) -> None:
        """Executors read files that only the driver has listed."""
        if info.etag:
            self._listed.setdefault(path, Entry(path, info.size, info.etag, info.mtime_ns))

    def stage(self, staging: str, root: str) -> None:
        """From now on, files that are written into the folder `staging` are uploads to the data set at `root`."""
        self._root_of_staging[staging] = root

    def open_output(self, path: str, final: str = "") -> Any:
        """A file of a session. With `final`, its path in the data set, it is an upload that the session commits."""
        if os.getpid() != self._process:
            raise OSError("a forked child cannot commit its parent's merge")
        if not final:
            return ScratchFile(self.objects, path)
        root = self._root_of_staging.get(posixpath.dirname(path))
        if root is None:
            raise OSError(f"{self.url(path)} belongs to no running session")
        key = posixpath.join(root, final)
        if key in self._listed:
            raise ArgumentError(
                f"{self.url(root)}/{final} exists already, and in an object store a file is not written in place: "
                "readers would mix the old one and the new. Leave out replace='in_place'."
            )
        earlier = self._staged.pop(path, None)
        if earlier is not None:  # the file is written again, and nothing else refers to its first upload
            earlier.abandon()
            self.objects.abort(earlier.open_upload)
        self._staged[path] = UploadFile(self.objects, f"{path}{INTENT}", key, keeps_tail=self._is_copy)
        return self._staged[path]

    def receipt(self, path: str) -> str | None:
        staged = self._staged.get(path)
        upload = staged.upload if staged is not None else None
        if upload is None:
            return None
        return json.dumps([upload.key, upload.upload_id, upload.parts, upload.size, upload.etag])

    def end_staging(self, staging: str) -> list[Upload]:
        """Stop writing the files of a session. Returns the uploads that it began in this process."""
        self._root_of_staging.pop(staging, None)
        files = [self._staged.pop(p) for p in list(self._staged) if posixpath.dirname(p) == staging]
        for file in files:
            file.abandon()
        return [file.open_upload for file in files]

    def remove(self, path: str) -> None:
        self.objects.delete([path])

    def remove_all(self, folder: str) -> None:
        self.objects.delete([entry.key for entry in self.objects.list_all(folder)])

    def filesystem(self) -> pyarrow.fs.FileSystem:
        return pyarrow.fs.PyFileSystem(_Handler(self))


def _in_other_process(
    objects: Objects, lease: float, heartbeat: float, root_of_staging: dict[str, str]
) -> StoreStorage:
    copy = StoreStorage(objects, lease, heartbeat)
    copy._is_copy, copy._root_of_staging = True, dict(root_of_staging)
    return copy


def upload_of(receipt: str) -> Upload:
    key, upload_id, parts, size, etag = json.loads(receipt)
    return Upload(key, upload_id, tuple(parts), size, etag)


def _info(path: str, entry: Entry) -> FileInfo:
    return FileInfo(path, entry.size, entry.mtime_ns, etag=entry.etag)


class _Handler(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]
    """What PyArrow's scan of a data set needs: file sizes, and files opened for reading."""

    def __init__(self, storage: StoreStorage) -> None:
        self._storage = storage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other._storage is self._storage

    def __hash__(self) -> int:
        return id(self._storage)

    def get_type_name(self) -> str:
        return "fsspeckit"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[pyarrow.fs.FileInfo]:
        return [self._file_info(path) for path in paths]

    def _file_info(self, path: str) -> pyarrow.fs.FileInfo:
        entry = self._storage._listed.get(path)
        info = _info(path, entry) if entry else self._storage.stat(path)
        if info is None:
            return pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.NotFound)
        return pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File, size=info.size)

    def open_input_file(self, path: str) -> Any:
        return self._storage.open_input(path)

    open_input_stream = open_input_file

    def get_file_info_selector(self, selector: Any) -> NoReturn:
        raise io.UnsupportedOperation("list")

    def _unsupported(self, *arguments: Any, **options: Any) -> NoReturn:
        raise io.UnsupportedOperation("write")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _unsupported
    move = copy_file = open_output_stream = open_append_stream = _unsupported
