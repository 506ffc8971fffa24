"""Where new files wait for the commit.

`<parent>/.fsspeckit-<data set>/.staging_<uuid>/`, or `<data set>/.fsspeckit/.staging_<uuid>/` where the parent cannot
be written or a rename from it does not work. Both are empty of ours when no writer is at work. Staged names do not
end in `.parquet`: DuckDB's and Polars' `**/*.parquet` look into hidden folders.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fsspeckit.core.commit import owner
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.storage import Location, Storage, locate

PREFIX = ".staging_"
PROBE = ".fsspeckit-probe-"


def homes(location: Location) -> list[str]:
    """The folders that may hold this data set's staging, the preferred one first. Links would lead us elsewhere."""
    beside = [posixpath.join(location.parent, f".fsspeckit-{location.name}")] if location.name else []
    return [home for home in [*beside, location.at(".fsspeckit")] if not location.storage.is_link(home)]


def create(location: Location, folders: Sequence[str]) -> str:
    """Make a staging folder from which a rename into every one of `folders` works: tried, not inferred."""
    problems = []
    for home in homes(location):
        staging = posixpath.join(home, f"{PREFIX}{uuid.uuid4().hex}")
        try:
            location.storage.make_folder(staging)
            location.storage.copy_mode(location.root, staging)  # as private, and with a setgid folder's group
            for folder in folders:
                _probe(location.storage, staging, location.at(folder))
            return staging
        except OSError as error:
            problems.append(f"{home}: {error}")
            remove_probes(location, folders)
            with contextlib.suppress(OSError):
                remove(location.storage, staging)
            with contextlib.suppress(OSError):
                location.storage.remove_folder(home)
    raise DatasetMergeError(
        f"Cannot write to {location.shown}: {'; '.join(problems)}. Check the permissions, and that the data set is on "
        "one file system; nothing was changed.",
        operation="stage",
    )


def check_reach(location: Location, staging: str, folders: Iterable[str]) -> None:
    """Refuse if a rename from `staging` into one of the folders does not work."""
    for folder in folders:
        try:
            _probe(location.storage, staging, location.at(folder))
        except OSError as error:
            raise DatasetMergeError(
                f"Cannot move files into {location.show(folder)}: {error}. Check its permissions and that it is on the "
                "data set's file system; nothing was changed.",
                operation="stage",
            ) from error


def _probe(storage: Storage, staging: str, folder: str) -> None:
    """Rename an empty, hidden file into the folder and away again. Equal devices do not prove that a rename works."""
    name = f"{PROBE}{uuid.uuid4().hex}"
    storage.write_bytes(posixpath.join(staging, name), b"")
    try:
        storage.rename(posixpath.join(staging, name), posixpath.join(folder, name))
    finally:
        storage.remove(posixpath.join(folder, name))


def remove_probes(location: Location, folders: Iterable[str]) -> None:
    """Remove probes that could not be taken away again, as far as that works now."""
    for folder in map(location.at, folders):
        with contextlib.suppress(OSError):
            for name in [n for n in location.storage.names(folder) if n.startswith(PROBE)]:
                location.storage.remove(posixpath.join(folder, name))


def check_names(location: Location, staging: str, folders: Iterable[str]) -> None:
    """Refuse folders that could not be made: after the journal is written it would be too late."""
    for folder in sorted(folders):
        trial = posixpath.join(staging, "name", posixpath.basename(folder))
        try:
            if location.storage.is_file(location.at(folder)):
                raise NotADirectoryError(errno.ENOTDIR, "a file of that name is in the way")
            location.storage.make_folder(trial)
            location.storage.remove_folder(trial)
        except OSError as error:
            raise DatasetMergeError(
                f"Cannot make the folder {location.show(folder)}: {error}. Nothing was changed.", operation="stage"
            ) from error


def leftovers(location: Location) -> Iterator[str]:
    """Staging folders of this data set, finished or not."""
    for home in homes(location):
        found = [posixpath.join(home, n) for n in location.storage.names(home) if n.startswith(PREFIX)]
        yield from (path for path in found if not location.storage.is_link(path))


def remove(storage: Storage, staging: str) -> None:
    """Remove a staging folder and what is in it. A task that Spark gave up on may still put a file there."""
    for patience in (0.1, 0.3, 1.0):
        try:
            return _remove(storage, staging)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            time.sleep(patience)
    return _remove(storage, staging)


def _remove(storage: Storage, staging: str) -> None:
    for name in storage.names(staging):
        path = posixpath.join(staging, name)
        if storage.is_dir(path) and not storage.is_link(path):
            _remove(storage, path)
        else:
            storage.remove(path)
    storage.remove_folder(staging)


def remove_homes(location: Location) -> None:
    """Remove the folders that held staging, once they are empty of it."""
    for home in homes(location):
        if location.storage.is_dir(home):
            location.storage.remove(posixpath.join(home, owner.NAME))
            with contextlib.suppress(OSError):
                location.storage.remove_folder(home)


class IncrementalFileManager:
    """Manage file operations for incremental rewrite: stage, replace, clean up.

    The pipeline itself commits through a journal; this is the same staging and the same journalled replacement for
    callers who bring their own files.
    """

    def __init__(self) -> None:
        self._created: list[tuple[Storage, str]] = []

    def create_staging_directory(self, base_path: str, filesystem: Any = None) -> str:
        """Make `<base>/.staging_<uuid>` and return its path."""
        location = locate(base_path, filesystem)
        name = f"{PREFIX}{uuid.uuid4().hex}"
        location.storage.make_folder(location.at(name))
        self._created.append((location.storage, location.at(name)))
        return location.show(name)

    def atomic_replace_files(self, source_files: list[str], target_files: list[str], filesystem: Any = None) -> None:
        """Replace each target file by its source file: all of them are checked first, then each is one rename."""
        if len(source_files) != len(target_files):
            raise ValueError(
                f"{len(source_files)} source files for {len(target_files)} target files; give one for each."
            )
        pairs = [
            (locate(s, filesystem), locate(t, filesystem)) for s, t in zip(source_files, target_files, strict=True)
        ]
        missing = [source.shown for source, _ in pairs if source.storage.stat(source.root) is None]
        if missing:
            raise FileNotFoundError(f"Staged files not found: {missing}; nothing was replaced.")
        for source, _ in pairs:
            source.storage.sync_file(source.root)
        for source, target in pairs:
            target.storage.rename(source.root, target.root)
        for folder in {target.parent for _, target in pairs}:
            pairs[0][1].storage.sync_folder(folder)

    def cleanup_staging_files(self) -> None:
        """Remove every staging directory that this object created."""
        while self._created:
            storage, path = self._created.pop()
            if storage.is_dir(path):
                remove(storage, path)
