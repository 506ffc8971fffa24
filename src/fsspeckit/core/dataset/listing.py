"""The data files of a data set, and the refusal of directories that are not plain Parquet."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter

from fsspeckit.core.errors import FsspeckitError, StorageError, TargetError, os_reason
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage import Location
from fsspeckit.core.storage.location import not_utf8_advice
from fsspeckit.core.suggestions import closest

SUMMARY_FILES = ("_metadata", "_common_metadata")
# `part-00000-<uuid>_00003.c000.snappy.parquet`: the file of bucket 3, as Spark writes it.
_BUCKET = re.compile(r"part-\d{5,}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}_\d{5,}\.c\d{3,}\.")
BUCKETED_ADVICE = (
    "Spark finds the bucket of a row by its file's name, so joins would miss merged rows, or fail. Rewrite the table "
    "without CLUSTERED BY (bucketBy), or merge the rows in Spark and overwrite it."
)


def is_data_file(name: str) -> bool:
    """Is this the name of a data file: `.parquet` or `.parq`, and not hidden by a dot or an underscore?"""
    return name.lower().endswith((".parquet", ".parq")) and not name.startswith((".", "_"))


@contextlib.contextmanager
def listing_errors(location: Location) -> Iterator[None]:
    """Turn errors of the file system into a `StorageError`, for callers that change nothing."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        message = f"Cannot list {location.shown}: {os_reason(error)}. Nothing was changed."
        raise StorageError(message, error, operation="list") from error


def list_files(location: Location) -> tuple[FileInfo, ...]:
    """The data files, sorted by path. An absent data set has none."""
    with listing_errors(location), location.storage.one_listing(location.root):
        check_plain(location)
        if not location.storage.is_dir(location.root):
            return ()
        infos = [f for f in location.storage.walk(location.root) if is_data_file(f.path.rsplit("/", 1)[-1])]
    _check_names(location, infos)
    return tuple(sorted(infos, key=attrgetter("path")))


def is_utf8(name: str) -> bool:
    """Is a name UTF-8? Python writes other bytes as surrogates."""
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)


def _check_names(location: Location, infos: Iterable[FileInfo]) -> None:
    """Refuse names that are not UTF-8: Arrow cannot open such files, and their rows must not be skipped."""
    unsupported = next((info.path for info in infos if not is_utf8(info.path)), None)
    if unsupported is not None:
        raise TargetError(
            f"{location.shown} has a file whose name is not UTF-8: {os.fsencode(unsupported)!r}. {not_utf8_advice()}"
        )


def check_not_bucketed(location: Location, files: Iterable[FileInfo]) -> None:
    """Refuse to change a bucketed table of Spark. Its files are recognised by their names."""
    bucket = next((f.path for f in files if "part-" in f.path and _BUCKET.match(f.path.rpartition("/")[2])), None)
    if bucket is not None:
        raise TargetError(f"{location.shown} holds files of a bucketed Spark table, e.g. {bucket}. {BUCKETED_ADVICE}")


def check_distinct(location: Location, files: Iterable[FileInfo]) -> None:
    """Refuse to change a data set that has one file under two names: a merge would double its rows."""
    seen: dict[tuple[int, ...], str] = {}
    for info in files:
        # Some file systems give all files one inode, or none. Two names of one file have all of these in common.
        identity = (info.device, info.inode, info.size, info.mtime_ns, info.ctime_ns)
        first = seen.setdefault(identity, info.path)
        if info.inode and first != info.path:
            raise TargetError(
                f"{location.show(first)} and {location.show(info.path)} are one file under two names: "
                f"{_why_twice(location, first, info.path)}. Its rows are read twice, and a merge would double them. "
                "Remove one of the names, or move it out of the data set. Nothing was changed."
            )


def _why_twice(location: Location, *paths: str) -> str:
    parts = [path.split("/") for path in paths]
    folders = ["/".join(names[:end]) for names in parts for end in range(1, len(names) + 1)]
    link = next((folder for folder in folders if location.storage.is_link(location.at(folder))), None)
    return "a hard link or a mount" if link is None else f"{location.show(link)} is a link"


def summary_files(location: Location) -> list[str]:
    """`_metadata` and `_common_metadata` in the data set's folder. They are out of date after any change."""
    return location.storage.present(location.root, SUMMARY_FILES)


def check_plain(location: Location) -> None:
    """Refuse a file, and the directories of table formats, whose logs would no longer match the files."""
    storage, root = location.storage, location.root
    if root == "/" and location.on_disk() is not None:
        raise TargetError("/ is the root of the file system. A data set is a folder in it; name that folder.")
    if storage.is_file(root):
        raise TargetError(f"{location.shown} is a file. A target is a directory of Parquet files; name its folder.")
    names = storage.present(root, ("_delta_log", ".hoodie", "metadata"))
    for marker, table_format in (("_delta_log", "Delta Lake"), (".hoodie", "Hudi")):
        if marker in names:
            raise _not_plain(location, table_format, marker)
    if "metadata" in names and any(n.endswith(".metadata.json") for n in storage.names(location.at("metadata"))):
        raise _not_plain(location, "Iceberg", "metadata/*.metadata.json")


def _not_plain(location: Location, table_format: str, marker: str) -> TargetError:
    return TargetError(
        f"{location.shown} is a {table_format} table (it has {marker}). Writing Parquet files behind its log would "
        f"corrupt it; use {table_format}'s own MERGE."
    )


def no_dataset(location: Location) -> TargetError:
    """The error for a target that does not exist, with a folder beside it if its name is alike."""
    meant = ""
    with contextlib.suppress(OSError, FsspeckitError):
        # Not hidden ones: a commit that is about to begin has a folder with the name of the data set in it.
        beside = [n for n in location.storage.names(location.parent) if n != location.name and n[0] != "."]
        similar = closest(location.name, beside)
        if similar is not None:
            meant = f" Did you mean {posixpath.join(posixpath.dirname(location.shown.rstrip('/')), similar)}?"
    return TargetError(f"There is no data set at {location.shown}. Check the path.{meant}")
