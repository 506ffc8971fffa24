"""A bucket as a storage. Its folders are the prefixes of its keys.

There are no renames, modes or locks. A staged file is an upload to its final key (`uploading`). Nobody sees it until
the commit completes it.
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
from fsspeckit.core.storage.objects import Entry, Objects, Upload
from fsspeckit.core.storage.pinned import PinnedFile, PinnedSource, TailFile
from fsspeckit.core.storage.uploading import INTENT, ScratchFile, UploadFile, tail_of


class StoreStorage(Storage):
    """The objects of a bucket. Every range that is read of a file is of the version that was listed."""

    commits_by = "upload"

    def __init__(self, objects: Objects, lease: float = 20, heartbeat: float = 5) -> None:
        self.lease_options = (lease, heartbeat)
        self.objects = objects
        self._is_copy = False
        self._data_sets: dict[str, str] = {}
        self._process = os.getpid()
        self._known: dict[str, Entry] = {}
        self._staged: dict[str, UploadFile] = {}
        self._looks = threading.local()

    def __repr__(self) -> str:
        return f"StoreStorage({self.objects.place!r})"

    def __reduce__(self) -> Any:
        return _in_other_process, (self.objects, *self.lease_options, self._data_sets)

    def url(self, key: str) -> str:
        return f"{self.objects.place}/{key}"

    @contextlib.contextmanager
    def look(self, root: str) -> Iterator[None]:
        """All questions about one folder are answered from one listing."""
        if getattr(self._looks, "root", None) == root:
            yield
            return
        self._looks.root, self._looks.entries = root, self.objects.list_all(root)
        try:
            yield
        finally:
            self._looks.root = None

    def walk(self, root: str) -> Iterator[FileInfo]:
        """The files below a folder, those in skipped folders left out."""
        entries = self._entries(root)
        folders = {posixpath.dirname(e.key) for e in entries}
        for entry in entries:
            path = entry.key[len(root) + 1 :] if root else entry.key
            is_folder_mark = not entry.size and entry.key in folders
            if path and not is_folder_mark and not any(map(skipped_folder, path.split("/")[:-1])):
                self._known[entry.key] = entry
                yield _info(path, entry)

    def folders(self, root: str) -> Iterator[str]:
        """The folders below a folder. Skipped ones are named, but not looked into."""
        named: set[str] = set()
        for entry in self._entries(root):
            parts = entry.key[len(root) + 1 :].split("/")[:-1]
            for depth, part in enumerate(parts):
                named.add("/".join(parts[: depth + 1]))
                if skipped_folder(part):
                    break
        return iter(sorted(named))

    def stat(self, path: str) -> FileInfo | None:
        entry = self.objects.stat(path)
        if entry is None:
            return None
        self._known[path] = entry
        return _info(path, entry)

    def is_dir(self, path: str) -> bool:
        return bool(self._entries(path)) if self._is_looked_at(path) else bool(self.objects.list_names(path))

    def is_file(self, path: str) -> bool:
        """Is there an object of that name? One with others below it is the mark of a folder."""
        return not self.is_dir(path) and self.objects.stat(path) is not None

    def names(self, folder: str) -> list[str]:
        if not self._is_looked_at(folder):
            return self.objects.list_names(folder)
        start = len(folder) + 1
        return sorted({e.key[start:].partition("/")[0] for e in self._entries(folder)} - {""})

    def _is_looked_at(self, root: str) -> bool:
        seen: str | None = getattr(self._looks, "root", None)
        return seen is not None and (root == seen or root.startswith(f"{seen}/"))

    def _entries(self, root: str) -> list[Entry]:
        if not self._is_looked_at(root):
            return self.objects.list_all(root)
        return [e for e in self._looks.entries if e.key.startswith(f"{root}/")]

    def open_input(self, path: str) -> Any:
        staged = self._staged.get(path)
        if staged is not None:
            return pa.PythonFile(TailFile(staged.size, staged.tail), mode="r")
        if posixpath.dirname(path) in self._data_sets:
            elsewhere = tail_of(self.objects, f"{path}{INTENT}")
            if elsewhere is not None:
                return pa.PythonFile(TailFile(*elsewhere), mode="r")
        return PinnedSource(PinnedFile(self.objects, path, self._known.get(path)))

    def will_read(self, source: Any, ranges: Iterable[tuple[int, int]]) -> None:
        source.expect(ranges)

    def is_listed(self, path: str, source: Any, info: FileInfo) -> bool:
        """Every range is asked for by the ETag that is known, so it remains to see whether that is still this one."""
        known = self._known.get(path)
        return bool(info.etag) and known is not None and (known.etag, known.size) == (info.etag, info.size)

    def identity(self, root: str) -> str | None:
        return f"{self.objects.endpoint} {self.url(root)}"

    def expect(self, path: str, info: FileInfo) -> None:
        """As if it had been listed here: executors are told of files that the driver listed."""
        if info.etag:
            self._known.setdefault(path, Entry(path, info.size, info.etag, info.mtime_ns))

    def stage(self, staging: str, root: str) -> None:
        """Files that are written into the folder `staging` are uploads to the data set at `root`."""
        self._data_sets[staging] = root

    def open_output(self, path: str, final: str = "") -> Any:
        """A file of a session. With `final`, its place in the data set, an upload that the session commits."""
        if os.getpid() != self._process:
            raise OSError("a forked child cannot commit its parent's merge")
        if not final:
            return ScratchFile(self.objects, path)
        root = self._data_sets.get(posixpath.dirname(path))
        if root is None:
            raise OSError(f"{self.url(path)} belongs to no session that is under way")
        if posixpath.join(root, final) in self._known:
            raise ArgumentError(
                f"{self.url(root)}/{final} is there already, and in an object store a file is not written in place: "
                "readers would mix the old one and the new. Leave out replace='in_place'."
            )
        earlier = self._staged.pop(path, None)
        if earlier is not None:  # a file that is begun again, in another way; nobody would know of the first upload
            earlier.give_up()
            self.objects.abort(earlier.begun)
        key = posixpath.join(root, final)
        self._staged[path] = UploadFile(self.objects, f"{path}{INTENT}", key, keeps_tail=self._is_copy)
        return self._staged[path]

    def receipt(self, path: str) -> str | None:
        staged = self._staged.get(path)
        upload = staged.upload if staged is not None else None
        if upload is None:
            return None
        return json.dumps([upload.key, upload.upload_id, upload.parts, upload.size, upload.etag])

    def end_staging(self, staging: str) -> list[Upload]:
        """Write no more to the files of a session; returns the uploads that it began in this process."""
        self._data_sets.pop(staging, None)
        files = [self._staged.pop(p) for p in list(self._staged) if posixpath.dirname(p) == staging]
        for file in files:
            file.give_up()
        return [file.begun for file in files]

    def remove(self, path: str) -> None:
        self.objects.delete([path])

    def remove_all(self, folder: str) -> None:
        self.objects.delete([entry.key for entry in self.objects.list_all(folder)])

    def filesystem(self) -> pyarrow.fs.FileSystem:
        return pyarrow.fs.PyFileSystem(_Handler(self))


def _in_other_process(objects: Objects, lease: float, heartbeat: float, data_sets: dict[str, str]) -> StoreStorage:
    copy = StoreStorage(objects, lease, heartbeat)
    copy._is_copy, copy._data_sets = True, dict(data_sets)
    return copy


def upload_of(receipt: str) -> Upload:
    key, upload_id, parts, size, etag = json.loads(receipt)
    return Upload(key, upload_id, tuple(parts), size, etag)


def _info(path: str, entry: Entry) -> FileInfo:
    return FileInfo(path, entry.size, entry.mtime_ns, etag=entry.etag)


class _Handler(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]
    """What PyArrow's scan asks for: what is there, and files opened for reading."""

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
        return [self._about(path) for path in paths]

    def _about(self, path: str) -> pyarrow.fs.FileInfo:
        known = self._storage._known.get(path)
        info = _info(path, known) if known else self._storage.stat(path)
        if info is None:
            return pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.NotFound)
        return pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File, size=info.size)

    def open_input_file(self, path: str) -> Any:
        return self._storage.open_input(path)

    open_input_stream = open_input_file

    def get_file_info_selector(self, selector: Any) -> NoReturn:
        raise io.UnsupportedOperation("list")

    def _written(self, *arguments: Any, **options: Any) -> NoReturn:
        raise io.UnsupportedOperation("write")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _written
    move = copy_file = open_output_stream = open_append_stream = _written
