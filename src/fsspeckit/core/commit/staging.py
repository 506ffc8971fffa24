"""The staging folder, in which new files wait for the commit, and the checks that the commit will be able to move them.

It is `<parent>/.fsspeckit-<data set>/.staging_<uuid>/`, or `<data set>/.fsspeckit/.staging_<uuid>/` if the parent is
read-only or a rename from it does not work. Both are removed after the merge. Staged names do not end in `.parquet`:
`**/*.parquet` in DuckDB and Polars also finds files in hidden folders.
"""

from __future__ import annotations

import contextlib
import errno
import json
import posixpath
import time
import unicodedata
import uuid
from collections.abc import Iterable, Iterator, Sequence

from fsspeckit.core.commit.shared import home_of, owner_text, storage_errors, this_process
from fsspeckit.core.errors import StorageError, TargetError, os_reason
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.storage import Disk, DiskLocation

PREFIX = ".staging_"
PROBE = ".fsspeckit-probe-"
JOURNAL = "journal.json"
OWNER = "owner"


def homes(location: DiskLocation) -> list[str]:
    """The folders that may contain the staging folder, the preferred one first. Links are not followed."""
    beside = [home_of(location.root)] if location.name else []
    return [home for home in [*beside, location.at(".fsspeckit")] if not location.storage.is_link(home)]


def create(location: DiskLocation, folders: Sequence[str]) -> str:
    """Make a staging folder from which files can be renamed into all of `folders`; this is tried, not inferred."""
    with storage_errors(f"Cannot write to {location.shown}", "stage"):
        location.storage.check_replaceable([location.root])
    problems: dict[str, OSError] = {}
    for home in homes(location):
        staging = posixpath.join(home, f"{PREFIX}{uuid.uuid4().hex}")
        try:
            location.storage.make_private_folder(staging, location.root)
            for folder in folders:
                _probe(location.storage, staging, location.at(folder))
            return staging
        except BaseException as error:
            remove_probes(location, folders)
            with contextlib.suppress(OSError):
                remove(location.storage, staging)
            with contextlib.suppress(OSError):
                location.storage.remove_folder(home)
            if not isinstance(error, OSError):
                raise
            problems[home] = error
    reasons = "; ".join(f"{home}: {os_reason(error)}" for home, error in problems.items())
    raise StorageError(
        f"Cannot write to {location.shown}: {reasons}. Check the permissions, and that the data set is on "
        "one file system; nothing was changed.",
        list(problems.values())[-1],
        operation="stage",
    )


def check_renames(location: DiskLocation, staging: str, folders: Iterable[str]) -> None:
    """Refuse if a file cannot be renamed from `staging` into one of the folders."""
    advice = "Check its permissions and that it is on the data set's file system;"
    for folder in folders:
        failed = f"Cannot move files into {location.show(folder)}"
        with storage_errors(failed, "stage", advice, "nothing was changed."):
            _probe(location.storage, staging, location.at(folder))


def _probe(storage: Disk, staging: str, folder: str) -> None:
    """Rename an empty, hidden file into the folder and remove it. On one device, a rename may still not work."""
    name = f"{PROBE}{uuid.uuid4().hex}"
    storage.check_replaceable([folder])  # the probe could not be removed from an append-only folder
    storage.write_bytes(posixpath.join(staging, name), b"")
    try:
        storage.rename(posixpath.join(staging, name), posixpath.join(folder, name))
    finally:
        storage.remove(posixpath.join(folder, name))


def remove_probes(location: DiskLocation, folders: Iterable[str]) -> None:
    """Remove probes that are still in the folders, where that is possible."""
    for folder in map(location.at, folders):
        with contextlib.suppress(OSError):
            for name in [n for n in location.storage.names(folder) if n.startswith(PROBE)]:
                location.storage.remove(posixpath.join(folder, name))


def remove_stray_probes(location: DiskLocation) -> None:
    """Remove the probes that a killed writer left anywhere in the data set."""
    for info in location.storage.walk(location.root):
        if posixpath.basename(info.path).startswith(PROBE) and info.size == 0:
            location.storage.remove(location.at(info.path))


def check_names(location: DiskLocation, staging: str, folders: Iterable[str], files: Iterable[str]) -> None:
    """Refuse names of folders and files that cannot be created. After the commit is recorded it would be too late."""
    storage = location.storage
    for folder in sorted(folders):
        trial = posixpath.join(staging, "name", posixpath.basename(folder))
        with storage_errors(f"Cannot make the folder {location.show(folder)}", "stage"):
            if storage.is_file(location.at(folder)):
                raise NotADirectoryError(errno.ENOTDIR, "a file of that name is in the way")
            storage.make_folder(trial)
            made = storage.names(posixpath.dirname(trial))
            storage.remove_folder(trial)
            if posixpath.basename(folder) not in made:
                raise OSError(errno.EINVAL, f"the disk changes its name to {made}, and so the partition value")
    for file in sorted(files):
        # As long as the real name, but readers do not take it for data.
        trial = posixpath.join(staging, "name", f"{posixpath.basename(file)[:-1]}_")
        advice = "Its name or path is too long: shorten that of the file it replaces, or merge with replace='in_place'."
        with storage_errors(f"Cannot make the file {location.show(file)}", "stage", {errno.ENAMETOOLONG: advice}):
            storage.make_folder(posixpath.dirname(trial))
            storage.write_bytes(trial, b"")
            storage.remove(trial)
            storage.check_replaceable([location.at(file)])


def check_distinct_names(location: DiskLocation, paths: Iterable[str]) -> None:
    """Refuse a new file if the disk takes its name, or that of one of its folders, for another existing or new name.

    Examples on exFAT, macOS and SMB are `p=a` and `p=A`, or two Unicode forms of `p=ü`. Two partitions would share a
    folder, and the rows of one of them would get the value of the other.
    """
    for folder, name, similar in _similar_names(location, paths):
        if _is_same_name(location, folder, name, similar):
            first, second = (location.show(posixpath.join(folder, each)) for each in (name, similar))
            raise TargetError(
                f"The disk of {location.shown} does not tell {first} and {second} apart: the rows of both would share "
                "one place, and the value in one of the names would be lost. Use one spelling for the values, or move "
                "the data set to a disk that tells them apart (not exFAT, SMB or macOS's default). Nothing was changed."
            )


def _similar_names(location: DiskLocation, paths: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """A folder, a new name in it, and another name there that some disks take for the same."""
    names_by_folder: dict[str, set[str]] = {}
    for path in paths:
        parts = path.split("/")
        for end, name in enumerate(parts):
            names_by_folder.setdefault("/".join(parts[:end]), set()).add(name)
    for folder, names in sorted(names_by_folder.items()):
        existing = set(location.storage.names(location.at(folder)))
        similar: dict[str, list[str]] = {}
        for name in sorted(existing | names):
            similar.setdefault(_folded(name), []).append(name)
        for new in sorted(names - existing):
            yield from ((folder, new, name) for name in similar[_folded(new)] if name != new)


def _folded(name: str) -> str:
    """A name without what some disk ignores: case, Unicode form, and blanks and dots at the end."""
    if not name.isascii():
        name = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
    return name.lower().rstrip(" .")


def _is_same_name(location: DiskLocation, folder: str, name: str, similar: str) -> bool:
    """Create an empty, hidden file and look for it under the other name. The common prefix of the two is left out."""
    storage = location.storage
    start = len(posixpath.commonprefix([name, similar]))
    probe = posixpath.join(location.at(existing_folder(location, folder)), f"{PROBE}{uuid.uuid4().hex[:8]}")
    first, second = (f"{probe}{_first_bytes(each[start:])}" for each in (name, similar))
    storage.write_bytes(first, b"")
    try:
        return storage.stat(second) is not None
    finally:
        storage.remove(first)


def _first_bytes(name: str) -> str:
    """As much of a name as fits into the name of a probe. Two forms of one name differ in length, so little is cut."""
    return name.encode()[: 255 - len(PROBE) - 8].decode(errors="ignore")


def check_replaceable(location: DiskLocation, files: Iterable[str]) -> None:
    """Refuse files that cannot be replaced or removed, or whose checksum files cannot."""
    storage = location.storage
    paths = [location.at(file) for file in files]
    checksums = [posixpath.join(folder, f".{name}.crc") for folder, name in map(posixpath.split, paths)]
    advice = "Merge as its owner, take its attribute away (chattr -i or -a), or take the file out of the data set."
    with storage_errors(f"Cannot replace a file of {location.shown}", "stage", advice):
        storage.check_replaceable([*paths, *(checksum for checksum in checksums if storage.stat(checksum) is not None)])


def existing_folder(location: DiskLocation, folder: str) -> str:
    """The folder, or the nearest one above it that exists."""
    while folder and not location.storage.is_dir(location.at(folder)):
        folder = posixpath.dirname(folder)
    return folder


def missing_folders(location: DiskLocation, paths: Iterable[str]) -> list[str]:
    """The folders that have to be made for these files, outer folders first."""
    missing: set[str] = set()
    for folder in {posixpath.dirname(path) for path in paths}:
        while folder and folder not in missing and not location.storage.is_dir(location.at(folder)):
            missing.add(folder)
            folder = posixpath.dirname(folder)
    return sorted(missing)


def give_rights(
    location: DiskLocation, staging: str, files: Iterable[Staged], neighbours: Sequence[FileInfo] = ()
) -> None:
    """Give new files the mode and group of a neighbour: the last file of their folder, or of the data set.

    If their folder has a default ACL, or there is no neighbour, they get the rights that the system gives to a file
    created there, by default ACL and umask. A folder that does not exist yet will have the rights of the one above it.
    """
    by_neighbour = {posixpath.dirname(info.path): info.path for info in neighbours}
    last = neighbours[-1].path if neighbours else None
    storage, by_folder = location.storage, dict[str, list[Staged]]()
    for file in files:
        by_folder.setdefault(existing_folder(location, posixpath.dirname(file.path)), []).append(file)
    for folder, staged in by_folder.items():
        probe = posixpath.join(location.at(folder), f"{PROBE}{uuid.uuid4().hex}")
        storage.write_bytes(probe, b"")
        try:
            for file in staged:
                path = posixpath.join(staging, file.staged)
                neighbour = by_neighbour.get(posixpath.dirname(file.path), last)
                if neighbour is None or not storage.take_rights(location.at(neighbour), path, location.at(folder)):
                    storage.copy_mode(probe, path)
                storage.sync_file(path)
        finally:
            storage.remove(probe)


def leftovers(location: DiskLocation) -> Iterator[str]:
    """The staging folders of this data set, finished or not."""
    for home in homes(location):
        folders = [posixpath.join(home, n) for n in location.storage.names(home) if n.startswith(PREFIX)]
        yield from (folder for folder in folders if not location.storage.is_link(folder))


def commit_of(staging: str) -> str:
    """The id of the commit that a staging folder belongs to. The marker is named after it."""
    return posixpath.basename(staging).removeprefix(PREFIX)


@contextlib.contextmanager
def claimed(location: DiskLocation, staging: str) -> Iterator[bool]:
    """Lock a staging folder. Yields false if its writer is still running."""
    locks = location.storage.locks
    release = locks.claim(staging) if locks is not None else None
    try:
        yield release is not None
    finally:
        if release is not None:
            release()


def discard(location: DiskLocation, staging: str) -> None:
    """Remove a staging folder. The journal is removed first, durably: without it the rest has no effect."""
    path = posixpath.join(staging, JOURNAL)
    if location.storage.stat(path) is not None:
        location.storage.remove(path)
        location.storage.sync_folder(staging)
    remove(location.storage, staging)


def remove(storage: Disk, staging: str) -> None:
    """Remove a staging folder and its files. An abandoned Spark task may still write a file there, so try again."""
    for pause in (0.1, 0.3, 1.0):
        try:
            return _remove(storage, staging)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            time.sleep(pause)
    return _remove(storage, staging)


def _remove(storage: Disk, staging: str) -> None:
    for name in storage.names(staging):
        path = posixpath.join(staging, name)
        if storage.is_dir(path) and not storage.is_link(path):
            _remove(storage, path)
        else:
            storage.remove(path)
    storage.remove_folder(staging)


def remove_homes(location: DiskLocation) -> None:
    """Remove the folders that contained staging folders, if they are empty now."""
    for home in homes(location):
        remove_home(location.storage, home)


def remove_home(storage: Disk, home: str) -> None:
    if storage.is_dir(home):
        storage.remove(posixpath.join(home, OWNER))
        with contextlib.suppress(OSError):
            storage.remove_folder(home)


def announce(storage: Disk, home: str, since: float) -> bool:
    """Write which process holds the data set into the folder beside it; false if that is not possible."""
    with contextlib.suppress(OSError):
        storage.make_folder(home)
        storage.write_bytes(posixpath.join(home, OWNER), json.dumps(this_process(since)).encode())
        return True
    return False


def owner_of(location: DiskLocation) -> str:
    """Process, host and age of the writer that holds the data set, if they are known."""
    for home in homes(location):
        try:
            return owner_text(json.loads(location.storage.read_bytes(posixpath.join(home, OWNER))))
        except (OSError, ValueError):
            continue
    return "another process"
