"""The record of an undoable commit: what it did, what it left, and what it kept. It is untrusted input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from fsspeckit.core.commit.shared import check_data_paths
from fsspeckit.core.model import FileInfo

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FileState:
    """A file of the data set. `name` is that of its kept copy; `added`: the commit wrote it."""

    path: str
    size: int
    mtime_ns: int
    etag: str = ""
    name: str = ""
    added: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """What a commit did. `files` are all data files that it left, `kept` those that it replaced or removed.

    `root` and `inode` are those of the data set's folder, `number` counts the kept commits.
    """

    commit: str
    number: int
    at: float
    operation: str
    counts: Mapping[str, int]
    files: tuple[FileState, ...]
    kept: tuple[FileState, ...]
    root: str = ""
    inode: int = 0
    folder: str = field(default="", compare=False)

    def to_bytes(self) -> bytes:
        raw = {"format": _FORMAT, **asdict(self)}
        del raw["folder"]
        return json.dumps(raw).encode()

    def changes(self, files: Sequence[FileInfo]) -> list[str]:
        """How the data set differs from what this commit left. Copies have other inodes, so they are not compared."""
        left, now = {f.path: f for f in self.files}, {f.path: f for f in files}
        changes = [f"{path} is new" for path in sorted(now.keys() - left.keys())]
        for path, file in sorted(left.items()):
            info = now.get(path)
            if info is None:
                changes.append(f"{path} is gone")
            elif not _is_same(file, info):
                changes.append(f"{path} was changed")
        return changes


def _is_same(file: FileState, info: FileInfo) -> bool:
    """ETags or times decide. Without them (time 0), where a rename changes the time, only the size does."""
    if file.etag and info.etag:
        return (file.size, file.etag.strip('"')) == (info.size, info.etag.strip('"'))
    return file.size == info.size and file.mtime_ns in (0, info.mtime_ns)


def parse(data: bytes, folder: str) -> Record:
    """Read a record. Raises `ValueError` or the like if it is not one of ours."""
    raw = json.loads(data)
    if raw["format"] != _FORMAT:
        raise ValueError(f"unknown format {raw['format']!r}")
    files, kept = (tuple(FileState(**file) for file in raw[key]) for key in ("files", "kept"))
    check_data_paths([f.path for f in files])
    check_data_paths([f.path for f in kept])
    if not all(f.name.replace("-", "").isalnum() for f in kept):
        raise ValueError("a kept file has the name of none of ours")
    counts = {str(name): int(count) for name, count in raw["counts"].items()}
    place = str(raw["root"]), int(raw["inode"])
    commit, number, at, operation = str(raw["commit"]), int(raw["number"]), float(raw["at"]), str(raw["operation"])
    return Record(commit, number, at, operation, counts, files, kept, *place, folder)
