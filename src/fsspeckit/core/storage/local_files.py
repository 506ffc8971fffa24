"""Files and folders of a disk, by the system's own calls: every plan lists and opens thousands of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Self

from fsspeckit.core.model import FileInfo
from fsspeckit.core.storage.base import skipped_folder

_Folder = tuple[str, list["os.DirEntry[str]"]]


def files_below(root: str) -> Iterator[FileInfo]:
    """The files below a folder, those in skipped folders left out."""
    for prefix, entries in _folders(root):
        for entry in entries:
            if entry.is_file():
                try:
                    yield file_info(prefix + entry.name, entry.stat())
                except FileNotFoundError:  # gone since the folder was read
                    continue


def folders_below(root: str) -> Iterator[str]:
    """The folders below a folder. Skipped ones are named, but not looked into."""
    for prefix, entries in _folders(root):
        yield from sorted([prefix + entry.name for entry in entries if entry.is_dir()])


def file_info(path: str, found: os.stat_result) -> FileInfo:
    return FileInfo(path, found.st_size, found.st_mtime_ns, found.st_ino, "", found.st_ctime_ns, found.st_dev)


def _folders(folder: str, prefix: str = "", above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[_Folder]:
    """A folder and those below it that are not skipped: how the paths in it begin, and what is in it.

    It is open while it is looked at: its files are then asked for by name alone, which spares the system their path.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # gone since the folder above was read
        return
    try:
        here = os.fstat(descriptor)
        if (here.st_dev, here.st_ino) in above:  # a link that leads back up
            return
        with os.scandir(descriptor) as scan:
            entries = list(scan)
        yield prefix, entries
        below = sorted([e.name for e in entries if e.is_dir() and not skipped_folder(e.name)])
    finally:
        os.close(descriptor)
    for name in below:
        yield from _folders(f"{folder}/{name}", f"{prefix}{name}/", above | {(here.st_dev, here.st_ino)})


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Bytes of an open file, fewer at its end: the system may give them in pieces."""
    data = os.pread(descriptor, length, offset)
    while 0 < len(data) < length and (more := os.pread(descriptor, length - len(data), offset + len(data))):
        data += more
    return data


class FileEnd:
    """As much of an open file as finding its footer takes. PyArrow's file costs twice as much to open and close."""

    at_once = 8 << 10
    """A second read costs little here, and few footers are longer."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._position = 0

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def seek(self, position: int) -> None:
        self._position = position

    def read(self, count: int) -> bytes:
        return read_at(self._descriptor, self._position, count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
