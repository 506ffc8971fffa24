"""Where a data set is."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.storage.base import Storage
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.core.storage.remote import FsspecStorage


@dataclass(frozen=True)
class Location:
    """A data set: its storage, its resolved folder, and the path as the user wrote it."""

    storage: Storage
    root: str
    shown: str

    def at(self, path: str) -> str:
        return posixpath.join(self.root, path) if path else self.root

    def show(self, path: str) -> str:
        return f"{self.shown.rstrip('/')}/{path}"

    @property
    def parent(self) -> str:
        return posixpath.dirname(self.root)

    @property
    def name(self) -> str:
        return posixpath.basename(self.root)


def locate(path: str | os.PathLike[str], filesystem: Any = None) -> Location:
    """Find the data set that `path` names: a local path, a `file://` or other fsspec URL, or a path in `filesystem`.

    >>> locate("memory://lake/events").root
    '/lake/events'
    """
    shown = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not isinstance(shown, str) or not shown:
        raise ArgumentError(f"A data set path must be a non-empty string, not {path!r}.")
    if filesystem is None and "://" not in shown:
        return Location(LocalStorage(), os.path.realpath(shown), shown)
    fs, root = _filesystem_of(shown, filesystem)
    if isinstance(fs, LocalFileSystem):
        return Location(LocalStorage(), os.path.realpath(root), root)
    return Location(FsspecStorage(fs), root.rstrip("/") or "/", shown)


def _filesystem_of(shown: str, filesystem: Any) -> tuple[Any, str]:
    if filesystem is None and shown.startswith("file://"):
        return LocalFileSystem(), unquote(urlsplit(shown).path)
    if filesystem is None:
        return fsspec.core.url_to_fs(shown)  # type: ignore[no-any-return]
    if isinstance(filesystem, pyarrow.fs.FileSystem):
        if isinstance(filesystem, pyarrow.fs.LocalFileSystem):
            return LocalFileSystem(), shown
        return ArrowFSWrapper(filesystem), shown
    return filesystem, filesystem._strip_protocol(shown)
