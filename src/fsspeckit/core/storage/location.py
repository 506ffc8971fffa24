"""Where a data set is."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.storage.base import Storage
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.core.storage.remote import FsspecStorage

# As Hadoop reads paths: what stands before the first colon is a scheme, unless a slash stands before it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!:)")
_LOCAL = ("file", "local")
_REACHED = ("memory", "s3", "s3a", "http", "https")
_STORES = ("hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "adl", "gs", "s3n", "dbfs", "oss", "cosn")


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
    def quoted(self) -> str:
        """The path as a shell takes it."""
        return shlex.quote(self.shown)

    @property
    def parent(self) -> str:
        return posixpath.dirname(self.root)

    @property
    def name(self) -> str:
        return posixpath.basename(self.root)


def locate(path: str | os.PathLike[str], filesystem: Any = None) -> Location:
    """Find the data set that `path` names: a local path, a `file:/` or other URL, or a path in `filesystem`.

    >>> locate("memory://lake/events").root, locate("file:/lake/events").root
    ('/lake/events', '/lake/events')
    """
    shown = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not isinstance(shown, str) or not shown:
        raise ArgumentError(f"A data set path must be a non-empty string, not {path!r}.")
    if "\0" in shown:
        raise ArgumentError(f"A path has no null character: {shown!r}.")
    if filesystem is None or isinstance(filesystem, (LocalFileSystem, pyarrow.fs.LocalFileSystem)):
        scheme = scheme_of(shown)
        if scheme is None or scheme in _LOCAL:
            local = _local_path(shown) if scheme else shown
            return Location(LocalStorage(), _resolved(local), local)
        fs, root = _reached(shown, scheme)
    else:
        fs, root = _inside(filesystem, shown)
    return Location(FsspecStorage(fs), root.rstrip("/") or "/", shown)


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError as error:
        raise ArgumentError(f"The working directory is gone, and {path} is relative to it: {error}.") from error


def scheme_of(path: str) -> str | None:
    """The scheme of a URL. A file name may hold a colon: `a:b` is one, `a:/b` and `hdfs:b` are not.

    >>> scheme_of("dbfs:/mnt/lake"), scheme_of("./dbfs:/mnt/lake"), scheme_of("12:30")
    ('dbfs', None, None)
    """
    if "::" in path.partition("://")[0]:  # fsspec's chains of file systems
        return "chain"
    found = _SCHEME.match(path)
    if found is None:
        return None
    scheme = found[1].lower()
    known = scheme in (*_LOCAL, *_REACHED, *_STORES)
    return scheme if known or path.startswith("/", found.end()) else None


def _local_path(url: str) -> str:
    """The path in `file:/x`, `file:///x` or `file://localhost/x`, with percent escapes that mean something.

    Hadoop takes `%20` as it stands, other programs as a blank. So the folder that is there is meant.
    """
    path = url.partition(":")[2]
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        path = slash + path
        if host not in ("", "localhost"):
            raise ArgumentError(
                f"{url} names the host {host!r}, and only this machine's files can be reached. Write file:///{host}"
                f"{path} if {host!r} is a folder."
            )
    if not path.startswith("/"):
        raise ArgumentError(f"{url} is not absolute. Write file:/ and the whole path, or the path without file:.")
    decoded = unquote(path)
    if decoded == path or not os.path.exists(decoded):
        return path if decoded == path or os.path.exists(path) else decoded
    if os.path.exists(path):
        raise ArgumentError(f"{url} may mean {path!r} or {decoded!r}, and both exist. Give one of them without file:.")
    return decoded


def _reached(url: str, scheme: str | None) -> tuple[Any, str]:
    if scheme not in (*_REACHED, "chain"):
        raise ArgumentError(
            f"Cannot reach {url}: {scheme}: is not supported. Use a path that is mounted on this machine"
            f"{_mounted(url, scheme)}, or give the file system that it is in by filesystem=. A local path that begins "
            f"like this is written ./{url}"
        )
    try:
        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise ArgumentError(f"Cannot reach {url}: {error}.") from error


def _mounted(url: str, scheme: str | None) -> str:
    return f" (on Databricks /dbfs/{url.partition(':')[2].lstrip('/')})" if scheme == "dbfs" else ""


def _inside(filesystem: Any, path: str) -> tuple[Any, str]:
    if isinstance(filesystem, pyarrow.fs.FileSystem):
        return ArrowFSWrapper(filesystem), path
    return filesystem, filesystem._strip_protocol(path)
