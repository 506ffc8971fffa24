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

from fsspeckit.core.commit import owner
from fsspeckit.core.errors import StorageError
from fsspeckit.core.storage import Location, Storage

HOME = ".fsspeckit-"
PREFIX = ".staging_"
PROBE = ".fsspeckit-probe-"
JOURNAL = "journal.json"


def homes(location: Location) -> list[str]:
    """The folders that may hold this data set's staging, the preferred one first. Links would lead us elsewhere."""
    beside = [posixpath.join(location.parent, f"{HOME}{location.name}")] if location.name else []
    return [home for home in [*beside, location.at(".fsspeckit")] if not location.storage.is_link(home)]


def create(location: Location, folders: Sequence[str]) -> str:
    """Make a staging folder from which a rename into every one of `folders` works: tried, not inferred."""
    problems: list[str] = []
    last: OSError | None = None
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
            last = error
            _abandon(location, staging, folders)
        except BaseException:
            _abandon(location, staging, folders)
            raise
    raise StorageError(
        f"Cannot write to {location.shown}: {'; '.join(problems)}. Check the permissions, and that the data set is on "
        "one file system; nothing was changed.",
        last,
        operation="stage",
    )


def _abandon(location: Location, staging: str, folders: Iterable[str]) -> None:
    remove_probes(location, folders)
    with contextlib.suppress(OSError):
        remove(location.storage, staging)
    with contextlib.suppress(OSError):
        location.storage.remove_folder(posixpath.dirname(staging))


def check_reach(location: Location, staging: str, folders: Iterable[str]) -> None:
    """Refuse if a rename from `staging` into one of the folders does not work."""
    for folder in folders:
        try:
            _probe(location.storage, staging, location.at(folder))
        except OSError as error:
            raise StorageError(
                f"Cannot move files into {location.show(folder)}: {error}. Check its permissions and that it is on the "
                "data set's file system; nothing was changed.",
                error,
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


def remove_stray_probes(location: Location) -> None:
    """Probes that a killed writer left anywhere in the data set."""
    for info in location.storage.walk(location.root):
        if posixpath.basename(info.path).startswith(PROBE) and info.size == 0:
            location.storage.remove(location.at(info.path))


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
            raise StorageError(
                f"Cannot make the folder {location.show(folder)}: {error}. Nothing was changed.",
                error,
                operation="stage",
            ) from error


def leftovers(location: Location) -> Iterator[str]:
    """Staging folders of this data set, finished or not."""
    for home in homes(location):
        folders = [posixpath.join(home, n) for n in location.storage.names(home) if n.startswith(PREFIX)]
        yield from (folder for folder in folders if not location.storage.is_link(folder))


def commit_of(staging: str) -> str:
    """The commit that a staging folder belongs to, as its marker is named after."""
    return posixpath.basename(staging).removeprefix(PREFIX)


@contextlib.contextmanager
def claimed(location: Location, staging: str) -> Iterator[bool]:
    """Hold a staging folder that a writer left; false if that writer lives."""
    release = location.storage.claim(staging)
    try:
        yield release is not None
    finally:
        if release is not None:
            release()


def discard(location: Location, staging: str) -> None:
    """Remove staging. The journal goes first, and for good: without it the rest is only litter."""
    if location.storage.stat(posixpath.join(staging, JOURNAL)) is not None:
        location.storage.remove(posixpath.join(staging, JOURNAL))
        location.storage.sync_folder(staging)
    remove(location.storage, staging)


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
        remove_home(location.storage, home)


def remove_home(storage: Storage, home: str) -> None:
    if storage.is_dir(home):
        storage.remove(posixpath.join(home, owner.NAME))
        with contextlib.suppress(OSError):
            storage.remove_folder(home)
