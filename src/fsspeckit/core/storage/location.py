"""Where a data set is, and which storage a scheme leads to (`SCHEMES`)."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, cast
from urllib.parse import unquote

import fsspec
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from fsspeckit.core.errors import ArgumentError, TargetError, os_reason
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import Disk, Storage
from fsspeckit.core.storage.local import LocalStorage
from fsspeckit.core.storage.remote import FsspecStorage
from fsspeckit.core.storage.s3_options import S3Options, missing_client
from fsspeckit.core.storage.store import StoreStorage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    AnyStorage = TypeVar("AnyStorage", bound=Storage, covariant=True, default=Storage)
else:
    from typing import TypeVar

    AnyStorage = TypeVar("AnyStorage")

# As Hadoop reads paths: what stands before the first colon is a scheme, unless a slash stands before it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!:)")
# Schemes that nothing here leads to: a path that begins with one is an error, not the name of a local file.
_HADOOP = ("hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "adl", "s3n", "dbfs", "oss", "cosn")
_UNSUPPORTED = (*_HADOOP, "az", "gs", "gcs")


@dataclass(frozen=True)
class Location(Generic[AnyStorage]):
    """A data set: its storage, its resolved folder, and the path as the user wrote it."""

    storage: AnyStorage
    root: str
    shown: str

    def at(self, path: str) -> str:
        return posixpath.join(self.root, path) if path else self.root

    def show(self, path: str) -> str:
        return f"{self.shown.rstrip('/')}/{path}" if self.shown else path

    def expect(self, info: FileInfo) -> None:
        """What is read of this file from now on must be of the version that `info` describes, if versions are known."""
        self.storage.expect(self.at(info.path), info)

    def on_disk(self) -> DiskLocation | None:
        """The data set, if its files can be renamed; `None` in an object store."""
        return cast("DiskLocation", self) if isinstance(self.storage, Disk) else None

    def in_store(self) -> StoreLocation | None:
        """The data set, if it is in an object store."""
        return cast("StoreLocation", self) if isinstance(self.storage, StoreStorage) else None

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


DiskLocation: TypeAlias = Location[Disk]
StoreLocation: TypeAlias = Location[StoreStorage]


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
            raise ArgumentError(f"storage_options must be a mapping of names to values, not {type(options).__name__}.")
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
        return SCHEMES.get(scheme_of(shown) or "file", _refused)(shown, storage_options)
    if "s3" in _protocols(filesystem):
        return _in_s3(f"s3://{filesystem._strip_protocol(shown)}", None, filesystem)
    if isinstance(filesystem, pyarrow.fs.FileSystem):
        return _through_fsspec(ArrowFSWrapper(filesystem), shown, shown)
    return _through_fsspec(filesystem, filesystem._strip_protocol(shown), shown)


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


def _on_this_machine(path: str, storage_options: Mapping[str, Any] | None) -> Location:
    local = _local_path(path) if scheme_of(path) else os.path.expanduser(path)
    return Location(LocalStorage(), _resolved(local), local)


def _in_s3(path: str, storage_options: Mapping[str, Any] | None, filesystem: Any = None) -> Location:
    def connect(bucket: str, url: str) -> StoreStorage:
        try:
            from fsspeckit.core.storage.s3 import connect as s3_bucket
        except ImportError as error:
            raise missing_client(url, error) from None
        options = S3Options.of(storage_options) if filesystem is None else S3Options.of_s3fs(filesystem)
        return StoreStorage(s3_bucket(bucket, options), options.lease, options.heartbeat)

    return in_bucket("s3", path, connect)


def in_bucket(scheme: str, path: str, connect: Callable[[str, str], StoreStorage]) -> Location:
    """The data set at `scheme://bucket/folder` in an object store. `connect` takes the bucket and the whole URL."""
    path = path.partition(":")[2]
    bucket, _, key = path.removeprefix("//").partition("/")
    if not path.startswith("//") or not bucket:
        raise ArgumentError(f"{scheme}:{path} names no bucket. Write {scheme}://bucket/folder.")
    if "@" in bucket or ":" in bucket:
        raise ArgumentError(
            f"Credentials and ports do not belong in the path {scheme}://…; give them as storage_options."
        )
    url, root = f"{scheme}://{bucket}/{key.strip('/')}", key.strip("/")
    if not root:
        raise TargetError(
            f"{url} is a bucket's root. A data set is a folder in it, with the records of its commits beside it."
        )
    if any(part in ("", ".", "..") or not part.isprintable() for part in root.split("/")):
        raise ArgumentError(
            f"{url!r} has a folder that is empty, '.' or '..', or has characters that cannot be printed."
        )
    return Location(connect(bucket, url), root, url)


def _through_fsspec(filesystem: Any, root: str, shown: str) -> Location:
    return Location(FsspecStorage(filesystem), root.rstrip("/") or "/", shown)


def _by_url(url: str, storage_options: Mapping[str, Any] | None) -> Location:
    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        packages = "aiohttp requests" if "aiohttp" in str(error) else error.name or "the package that the message names"
        raise ArgumentError(
            f"Cannot reach {url}: this needs packages that are not installed. Run: pip install {packages}, or download "
            "the file."
        ) from error
    except ValueError as error:
        raise ArgumentError(f"Cannot reach {url}: {str(error).rstrip('.')}.") from error
    return _through_fsspec(filesystem, root, url)


def _refused(url: str, storage_options: Mapping[str, Any] | None) -> NoReturn:
    scheme = scheme_of(url)
    mounted = f" (on Databricks /dbfs/{url.partition(':')[2].lstrip('/')})" if scheme == "dbfs" else ""
    raise ArgumentError(
        f"Cannot reach {url}: {scheme}: is not supported. Use a path that is mounted on this machine{mounted}, or give "
        f"the file system that it is in by filesystem=. Write a local path that begins like this as ./{url}"
    )


SCHEMES: dict[str, Callable[[str, Mapping[str, Any] | None], Location]] = {
    "file": _on_this_machine,
    "local": _on_this_machine,
    "s3": _in_s3,
    "s3a": _in_s3,
    "memory": _by_url,
    "http": _by_url,
    "https": _by_url,
    "::": _by_url,
}
"""Every scheme, with the function that makes the location of a URL and the storage options."""


def _resolved(path: str) -> str:
    try:
        resolved = os.path.realpath(path)
        resolved.encode()  # Arrow takes paths as UTF-8
        return resolved
    except UnicodeEncodeError as error:
        raise ArgumentError(f"Cannot reach {path!a}: its name is not UTF-8. {not_utf8_advice()}") from error
    except OSError as error:
        raise ArgumentError(
            f"The working directory is gone, and {path} is relative to it: {os_reason(error)}."
        ) from error


def not_utf8_advice() -> str:
    """What to do about names that Python cannot pass to Arrow or the system."""
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8":
        return "Rename it."
    return (
        f"This Python treats file names as {encoding}. Run it with PYTHONUTF8=1, or in a UTF-8 locale (LC_ALL=C.UTF-8)."
    )


def scheme_of(path: str) -> str | None:
    """The scheme of a URL. A file name may hold a colon: `a:b` is one, `a:/b` and `hdfs:b` are not.

    >>> scheme_of("dbfs:/mnt/lake"), scheme_of("./dbfs:/mnt/lake"), scheme_of("12:30")
    ('dbfs', None, None)
    """
    if "::" in path.partition("://")[0]:  # a chain of file systems, as fsspec writes it
        return "::"
    match = _SCHEME.match(path)
    if match is None:
        return None
    scheme = match[1].lower()
    known = scheme in SCHEMES or scheme in _UNSUPPORTED
    return scheme if known or path.startswith("/", match.end()) else None


def _local_path(url: str) -> str:
    """The path in `file:/x`, `file:///x` or `file://localhost/x`, with percent escapes that mean something.

    Hadoop does not decode `%20`, other programs take it for a blank. So the path that exists is taken.
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
