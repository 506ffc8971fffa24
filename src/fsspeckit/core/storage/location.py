"""Where a data set is."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import fsspec
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.core.errors import ArgumentError, TargetError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import Storage
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.core.storage.remote import FsspecStorage
from fsspeckit.core.storage.s3_options import S3Options, missing_client
from fsspeckit.core.storage.store import StoreStorage

# As Hadoop reads paths: what stands before the first colon is a scheme, unless a slash stands before it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!:)")
_LOCAL = ("file", "local")
_REACHED = ("memory", "http", "https")
_S3 = ("s3", "s3a")
_STORES = ("hdfs", "viewfs", "abfs", "abfss", "az", "wasb", "wasbs", "adl", "gs", "gcs", "s3n", "dbfs", "oss", "cosn")


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

    def expect(self, info: FileInfo) -> None:
        """What is read of this file from now on has to be of the version that `info` tells of, in a store."""
        if isinstance(self.storage, StoreStorage):
            self.storage.expect(self.at(info.path), info)

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


@dataclass(frozen=True)
class Access:
    """How paths are reached: through a file system, or a store by its options. Neither is in a `repr`.

    Options are for every path of a store, sources too; paths on disks have no use for them.
    """

    filesystem: Any = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        options = self.storage_options
        if options is not None and not isinstance(options, Mapping):
            raise ArgumentError(f"storage_options are a mapping of names to values, not {type(options).__name__}.")
        if options and self.filesystem is not None:
            raise ArgumentError("A file system knows its own options: give filesystem= or storage_options=, not both.")

    def locate(self, path: str | os.PathLike[str]) -> Location:
        return locate(path, self.filesystem, self.storage_options)


def locate(
    path: str | os.PathLike[str], filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> Location:
    """Find the data set that `path` names: a local path, a `file:/`, `s3://` or other URL, or a path in `filesystem`.

    `storage_options` say how a store is reached; a local path has no use for them.

    >>> locate("memory://lake/events").root, locate("file:/lake/events").root
    ('/lake/events', '/lake/events')
    """
    shown = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not isinstance(shown, str) or not shown:
        given = f"{type(path).__name__} (rows come first, then the path)" if hasattr(path, "schema") else repr(path)
        raise ArgumentError(f"A data set path must be a non-empty string, not {given}.")
    if "\0" in shown:
        raise ArgumentError(f"A path has no null character: {shown!r}.")
    filesystem, shown = _unwrapped(filesystem, shown)
    if filesystem is None or isinstance(filesystem, (LocalFileSystem, pyarrow.fs.LocalFileSystem)):
        scheme = scheme_of(shown)
        if scheme is None or scheme in _LOCAL:
            local = _local_path(shown) if scheme else shown
            return Location(LocalStorage(), _resolved(local), local)
        if scheme in _S3:
            return _in_s3(shown.partition(":")[2], storage_options)
        fs, root = _reached(shown, scheme)
    elif "s3" in _protocols(filesystem):
        return _in_s3(f"//{filesystem._strip_protocol(shown)}", None, filesystem)
    else:
        fs, root = _inside(filesystem, shown)
    return Location(FsspecStorage(fs), root.rstrip("/") or "/", shown)


def _unwrapped(filesystem: Any, path: str) -> tuple[Any, str]:
    """The file system within those that only show a folder of it, or translate its calls."""
    while True:
        if isinstance(filesystem, DirFileSystem):
            filesystem, path = filesystem.fs, _below(filesystem.path, path)
        elif isinstance(filesystem, pyarrow.fs.SubTreeFileSystem):
            filesystem, path = filesystem.base_fs, _below(filesystem.base_path, path)
        elif isinstance(filesystem, ArrowFSWrapper):
            filesystem = filesystem.fs
        elif isinstance(filesystem, pyarrow.fs.PyFileSystem) and isinstance(
            filesystem.handler, pyarrow.fs.FSSpecHandler
        ):
            filesystem = filesystem.handler.fs
        else:
            return filesystem, path


def _below(folder: str, path: str) -> str:
    if ".." in path.split("/"):
        raise ArgumentError(f"{path!r} leads out of the folder {folder!r} that its file system shows.")
    return posixpath.join(folder, path.lstrip("/"))


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = getattr(filesystem, "protocol", ())
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _in_s3(path: str, storage_options: Mapping[str, Any] | None, filesystem: Any = None) -> Location:
    """`//bucket/folder`."""
    bucket, _, key = path.removeprefix("//").partition("/")
    if not path.startswith("//") or not bucket:
        raise ArgumentError(f"s3:{path} names no bucket. Write s3://bucket/folder.")
    if "@" in bucket or ":" in bucket:
        raise ArgumentError("Credentials and ports do not belong into the path s3://…; give them as storage_options.")
    url, root = f"s3://{bucket}/{key.strip('/')}", key.strip("/")
    if not root:
        raise TargetError(
            f"{url} is a bucket's root. A data set is a folder in it: what is written down of a commit lies beside it."
        )
    if any(part in ("", ".", "..") or not part.isprintable() for part in root.split("/")):
        raise ArgumentError(
            f"{url!r} has a folder that is empty, '.' or '..', or has characters that cannot be printed."
        )
    try:
        from fsspeckit.core.storage.s3 import connect
    except ImportError as error:
        raise missing_client(url, error) from None
    options = S3Options.of(storage_options) if filesystem is None else S3Options.of_s3fs(filesystem)
    return Location(StoreStorage(connect(bucket, options), options.lease, options.heartbeat), root, url)


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
    known = scheme in (*_LOCAL, *_REACHED, *_S3, *_STORES)
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
