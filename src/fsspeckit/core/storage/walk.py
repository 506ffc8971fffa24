"""What is below a folder of a disk. Thousands of files are listed by every plan, so this is kept short."""

from __future__ import annotations

import os
from collections.abc import Iterator

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
