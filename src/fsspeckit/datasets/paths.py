"""Paths of sources: patterns, and the format by the ending of a name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.storage import Access, Location, Storage

_MAGIC = re.compile(r"[*?\[]")
_FORMATS = {
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "arrows": "arrow",
    "feather": "arrow",
    "ipc": "arrow",
}
_COMPRESSED = re.compile(r"\.(gz|bz2|zst)$")
_OTHER = {
    "xlsx": "pandas.read_excel",
    "xls": "pandas.read_excel",
    "orc": "pyarrow.orc.read_table",
    "avro": "polars.read_avro",
    "xml": "pandas.read_xml",
    "pkl": "pandas.read_pickle",
    "zip": "unzip",
}


def file_format(location: Location) -> str:
    """The format by the ending of a name: `csv`, `tsv`, `json` or `arrow`, else `parquet`, also for folders."""
    name = location.name.lower()
    ending = _COMPRESSED.sub("", name).rpartition(".")[2]
    if ending not in _FORMATS and ending not in _OTHER:
        return "parquet"
    if location.storage.is_dir(location.root):
        return "parquet"
    if ending in _OTHER:
        raise ArgumentError(f"Cannot read {location.shown}: .{ending} is not supported. Open it with {_OTHER[ending]}.")
    if location.storage.stat(location.root) is None:
        raise ArgumentError(f"{location.shown} does not exist.")
    return _FORMATS[ending]


def expanded(path: str | os.PathLike[str], access: Access) -> list[str | os.PathLike[str]]:
    """The files and folders that a pattern matches, sorted. A path that exists is not a pattern.

    `*`, `?` and `[…]` match within one name, `**` any folders.
    """
    pattern = os.fspath(path)
    if not isinstance(pattern, str) or not _MAGIC.search(pattern):
        return [path]
    location = access.locate(pattern)
    if location.storage.is_dir(location.root) or location.storage.stat(location.root) is not None:
        return [path]
    segments = pattern.split("/")
    first = next(number for number, segment in enumerate(segments) if _MAGIC.search(segment))
    base = "/".join(segments[:first])
    folder = access.locate(base or ("/" if pattern.startswith("/") else "."))
    prefix = f"{base}/" if base or pattern.startswith("/") else ""
    paths = sorted(f"{prefix}{match}" for match in _matches(folder.storage, folder.root, segments[first:]))
    if not paths:
        raise ArgumentError(f"No file matches {pattern}.")
    return list(paths)


def _matches(storage: Storage, folder: str, segments: list[str]) -> Iterator[str]:
    """Paths below a folder, relative to it, that match a pattern given as its segments."""
    head, *rest = segments
    if head == "**":
        wanted = [segment for segment in rest if segment != "**"] or ["*"]
        for info in storage.walk(folder):
            names = info.path.split("/")
            if len(names) >= len(wanted) and all(map(fnmatchcase, names[-len(wanted) :], wanted)):
                yield info.path
        return
    if not storage.is_dir(folder):
        return
    for name in storage.names(folder):
        if not fnmatchcase(name, head) or (name.startswith(".") and not head.startswith(".")):
            continue
        if not rest:
            yield name
        else:
            yield from (f"{name}/{match}" for match in _matches(storage, f"{folder.rstrip('/')}/{name}", rest))
