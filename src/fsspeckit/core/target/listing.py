"""The data files of a data set, and the refusal of directories that are not plain Parquet."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter

from fsspeckit.core.errors import StorageError, TargetError
from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage import Location

SUMMARY_FILES = ("_metadata", "_common_metadata")
# `part-00000-<uuid>_00003.c000.snappy.parquet`: the file of bucket 3, as Spark writes it.
_BUCKET = re.compile(r"part-\d{5,}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}_\d{5,}\.c\d{3,}\.")
BUCKETED_ADVICE = (
    "Spark finds the bucket of a row by its file's name, so rows merged into its files would be missed by joins, or "
    "make them fail. Write the table anew without CLUSTERED BY (bucketBy), or merge the rows in Spark and overwrite it."
)


def is_data_file(name: str) -> bool:
    """`.parquet` and `.parq` files that are not hidden; `_metadata` and its kin are not data."""
    return name.lower().endswith((".parquet", ".parq")) and not name.startswith((".", "_"))


@contextlib.contextmanager
def looking(location: Location) -> Iterator[None]:
    """Errors of the file system in our words, for those who only look."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        message = f"Cannot look into {location.shown}: {error}. Nothing was changed."
        raise StorageError(message, error, operation="list") from error


def list_files(location: Location) -> tuple[FileInfo, ...]:
    """The data files, sorted by path. An absent data set has none."""
    with looking(location), location.storage.look(location.root):
        check_plain(location)
        if not location.storage.is_dir(location.root):
            return ()
        infos = [f for f in location.storage.walk(location.root) if is_data_file(f.path.rsplit("/", 1)[-1])]
    _check_names(location, infos)
    return tuple(sorted(infos, key=attrgetter("path")))


def is_utf8(name: str) -> bool:
    """Python stands a surrogate for each byte of a name that is not UTF-8."""
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)


def _check_names(location: Location, infos: Iterable[FileInfo]) -> None:
    """Arrow takes paths as UTF-8; the rows of a file that it cannot open may not be passed over."""
    odd = next((info.path for info in infos if not is_utf8(info.path)), None)
    if odd is not None:
        raise TargetError(f"{location.shown} has a file whose name is not UTF-8: {os.fsencode(odd)!r}. Rename it.")


def check_not_bucketed(location: Location, files: Iterable[FileInfo]) -> None:
    """Refuse to change the files of a bucketed table, which their names tell."""
    bucket = next((f.path for f in files if "part-" in f.path and _BUCKET.match(f.path.rpartition("/")[2])), None)
    if bucket is not None:
        raise TargetError(f"{location.shown} holds files of a bucketed Spark table, e.g. {bucket}. {BUCKETED_ADVICE}")


def summary_files(location: Location) -> list[str]:
    """`_metadata` and `_common_metadata` in the data set's folder: stale after any change of the data."""
    return location.storage.present(location.root, SUMMARY_FILES)


def check_plain(location: Location) -> None:
    """Refuse a file, and the directories of table formats: their logs would no longer match the files."""
    storage, root = location.storage, location.root
    if storage.is_file(root):
        raise TargetError(f"{location.shown} is a file. A target is a directory of Parquet files; name its folder.")
    names = storage.present(root, ("_delta_log", ".hoodie", "metadata"))
    for marker, kind in (("_delta_log", "Delta Lake"), (".hoodie", "Hudi")):
        if marker in names:
            raise _not_plain(location, kind, marker)
    if "metadata" in names and any(n.endswith(".metadata.json") for n in storage.names(location.at("metadata"))):
        raise _not_plain(location, "Iceberg", "metadata/*.metadata.json")


def _not_plain(location: Location, kind: str, marker: str) -> TargetError:
    return TargetError(
        f"{location.shown} is a {kind} table (it has {marker}). Writing Parquet files behind its log would corrupt it; "
        f"use {kind}'s own MERGE."
    )
