"""Where new files wait for the commit.

`<parent>/.fsspeckit-<data set>/.staging_<uuid>/`, or `<data set>/.fsspeckit/.staging_<uuid>/` where the parent cannot
be written or a rename from it does not work. Both are empty of ours when no writer is at work. Staged names do not
end in `.parquet`: DuckDB's and Polars' `**/*.parquet` look into hidden folders.
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

from fsspeckit.core.commit.shared import home_beside, owner_text, this_process
from fsspeckit.core.errors import StorageError, TargetError
from fsspeckit.core.model import Staged
from fsspeckit.core.storage import Disk, DiskLocation

PREFIX = ".staging_"
PROBE = ".fsspeckit-probe-"
JOURNAL = "journal.json"
OWNER = "owner"


def homes(location: DiskLocation) -> list[str]:
    """The folders that may hold this data set's staging, the preferred one first. Links would lead us elsewhere."""
    beside = [home_beside(location)] if location.name else []
    return [home for home in [*beside, location.at(".fsspeckit")] if not location.storage.is_link(home)]


def create(location: DiskLocation, folders: Sequence[str]) -> str:
    """Make a staging folder from which a rename into every one of `folders` works: tried, not inferred."""
    with _refusing(f"Cannot write to {location.shown}"):
        location.storage.check_replaceable([location.root])
    problems: list[str] = []
    last: OSError | None = None
    for home in homes(location):
        staging = posixpath.join(home, f"{PREFIX}{uuid.uuid4().hex}")
        try:
            location.storage.make_private_folder(staging, location.root)
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


def _abandon(location: DiskLocation, staging: str, folders: Iterable[str]) -> None:
    remove_probes(location, folders)
    with contextlib.suppress(OSError):
        remove(location.storage, staging)
    with contextlib.suppress(OSError):
        location.storage.remove_folder(posixpath.dirname(staging))


def check_reach(location: DiskLocation, staging: str, folders: Iterable[str]) -> None:
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


def _probe(storage: Disk, staging: str, folder: str) -> None:
    """Rename an empty, hidden file into the folder and away again. Equal devices do not prove that a rename works."""
    name = f"{PROBE}{uuid.uuid4().hex}"
    storage.check_replaceable([folder])  # from an append-only folder it could not be taken away
    storage.write_bytes(posixpath.join(staging, name), b"")
    try:
        storage.rename(posixpath.join(staging, name), posixpath.join(folder, name))
    finally:
        storage.remove(posixpath.join(folder, name))


def remove_probes(location: DiskLocation, folders: Iterable[str]) -> None:
    """Remove probes that could not be taken away again, as far as that works now."""
    for folder in map(location.at, folders):
        with contextlib.suppress(OSError):
            for name in [n for n in location.storage.names(folder) if n.startswith(PROBE)]:
                location.storage.remove(posixpath.join(folder, name))


def remove_stray_probes(location: DiskLocation) -> None:
    """Probes that a killed writer left anywhere in the data set."""
    for info in location.storage.walk(location.root):
        if posixpath.basename(info.path).startswith(PROBE) and info.size == 0:
            location.storage.remove(location.at(info.path))


def check_names(location: DiskLocation, staging: str, folders: Iterable[str], files: Iterable[str]) -> None:
    """Refuse folders and files that could not be made: after the commit is recorded it would be too late."""
    storage = location.storage
    for folder in sorted(folders):
        trial = posixpath.join(staging, "name", posixpath.basename(folder))
        with _refusing(f"Cannot make the folder {location.show(folder)}"):
            if storage.is_file(location.at(folder)):
                raise NotADirectoryError(errno.ENOTDIR, "a file of that name is in the way")
            storage.make_folder(trial)
            made = storage.names(posixpath.dirname(trial))
            storage.remove_folder(trial)
            if posixpath.basename(folder) not in made:
                raise OSError(errno.EINVAL, f"the disk changes its name to {made}, and so the value in it")
    for file in sorted(files):
        # as long as the name, but no reader takes it for data
        trial = posixpath.join(staging, "name", f"{posixpath.basename(file)[:-1]}_")
        advice = "Its name or path is too long: shorten that of the file it replaces, or merge with replace='in_place'."
        with _refusing(f"Cannot make the file {location.show(file)}", advice, errno.ENAMETOOLONG):
            storage.make_folder(posixpath.dirname(trial))
            storage.write_bytes(trial, b"")
            storage.remove(trial)
            storage.check_replaceable([location.at(file)])


def check_distinct_names(location: DiskLocation, paths: Iterable[str]) -> None:
    """Refuse new files whose names, or those of their folders, the disk does not tell from others.

    On exFAT, macOS or SMB these are `p=a` and `p=A`, or two Unicode forms of `p=ü`. Rows of two partitions would share
    a folder, and those of one of them would change their value.
    """
    for folder, one, other in _similar_names(location, paths):
        if _is_one_name(location, folder, one, other):
            first, second = (location.show(posixpath.join(folder, name)) for name in (one, other))
            raise TargetError(
                f"The disk of {location.shown} does not tell {first} and {second} apart: rows of both would lie in one "
                "place, and the value in one of the names would be lost. Spell the values alike, or move the data set "
                "to a disk that tells them apart (not exFAT, SMB or macOS's default). Nothing was changed."
            )


def _similar_names(location: DiskLocation, paths: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Two names in one folder, at least one of them new, that some disks take for the same."""
    wanted: dict[str, set[str]] = {}
    for path in paths:
        parts = path.split("/")
        for end, name in enumerate(parts):
            wanted.setdefault("/".join(parts[:end]), set()).add(name)
    for folder, names in sorted(wanted.items()):
        there = set(location.storage.names(location.at(folder)))
        similar: dict[str, list[str]] = {}
        for name in sorted(there | names):
            similar.setdefault(_folded(name), []).append(name)
        for name in sorted(names - there):
            yield from ((folder, name, other) for other in similar[_folded(name)] if other != name)


def _folded(name: str) -> str:
    """What the least exact disks go by: neither case, nor Unicode form, nor blanks and dots at the end."""
    if not name.isascii():
        name = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
    return name.lower().rstrip(" .")


def _is_one_name(location: DiskLocation, folder: str, one: str, other: str) -> bool:
    """Make an empty, hidden file and look for it under the other name. Where these begin alike is left out."""
    storage = location.storage
    while folder and not storage.is_dir(location.at(folder)):
        folder = posixpath.dirname(folder)
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    token = posixpath.join(location.at(folder), f"{PROBE}{uuid.uuid4().hex}")
    storage.write_bytes(token + one[start : start + 30], b"")
    try:
        return storage.stat(token + other[start : start + 30]) is not None
    finally:
        storage.remove(token + one[start : start + 30])


def check_replaceable(location: DiskLocation, files: Iterable[str]) -> None:
    """Refuse files that could not be replaced or removed, with their checksums."""
    storage = location.storage
    paths = [location.at(file) for file in files]
    checksums = [posixpath.join(folder, f".{name}.crc") for folder, name in map(posixpath.split, paths)]
    advice = "Merge as its owner, take its attribute away (chattr -i or -a), or take the file out of the data set."
    with _refusing(f"Cannot replace a file of {location.shown}", advice):
        storage.check_replaceable([*paths, *(checksum for checksum in checksums if storage.stat(checksum) is not None)])


@contextlib.contextmanager
def _refusing(what: str, advice: str = "", code: int | None = None) -> Iterator[None]:
    """An error of the file system in our words. The advice is for errors of this code, or for all."""
    try:
        yield
    except OSError as error:
        helpful = f"{advice} " if advice and code in (None, error.errno) else ""
        raise StorageError(f"{what}: {error}. {helpful}Nothing was changed.", error, operation="stage") from error


def give_rights(location: DiskLocation, staging: str, files: Iterable[Staged]) -> None:
    """Give new files the rights that the system gives to a file made in their folder: by umask and default ACL."""
    storage, by_folder = location.storage, dict[str, list[Staged]]()
    for file in files:
        folder = posixpath.dirname(file.path)
        while folder and not storage.is_dir(location.at(folder)):  # a folder that is made later is made alike
            folder = posixpath.dirname(folder)
        by_folder.setdefault(folder, []).append(file)
    for folder, staged in by_folder.items():
        probe = posixpath.join(location.at(folder), f"{PROBE}{uuid.uuid4().hex}")
        storage.write_bytes(probe, b"")
        try:
            for file in staged:
                storage.copy_mode(probe, posixpath.join(staging, file.staged))
                storage.sync_file(posixpath.join(staging, file.staged))
        finally:
            storage.remove(probe)


def leftovers(location: DiskLocation) -> Iterator[str]:
    """Staging folders of this data set, finished or not."""
    for home in homes(location):
        folders = [posixpath.join(home, n) for n in location.storage.names(home) if n.startswith(PREFIX)]
        yield from (folder for folder in folders if not location.storage.is_link(folder))


def commit_of(staging: str) -> str:
    """The commit that a staging folder belongs to, as its marker is named after."""
    return posixpath.basename(staging).removeprefix(PREFIX)


@contextlib.contextmanager
def claimed(location: DiskLocation, staging: str) -> Iterator[bool]:
    """Hold a staging folder that a writer left; false if that writer lives."""
    locks = location.storage.locks
    release = locks.claim(staging) if locks is not None else None
    try:
        yield release is not None
    finally:
        if release is not None:
            release()


def discard(location: DiskLocation, staging: str) -> None:
    """Remove staging. The journal goes first, and for good: without it the rest is only litter."""
    if location.storage.stat(posixpath.join(staging, JOURNAL)) is not None:
        location.storage.remove(posixpath.join(staging, JOURNAL))
        location.storage.sync_folder(staging)
    remove(location.storage, staging)


def remove(storage: Disk, staging: str) -> None:
    """Remove a staging folder and what is in it. A task that Spark gave up on may still put a file there."""
    for patience in (0.1, 0.3, 1.0):
        try:
            return _remove(storage, staging)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            time.sleep(patience)
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
    """Remove the folders that held staging, once they are empty of it."""
    for home in homes(location):
        remove_home(location.storage, home)


def remove_home(storage: Disk, home: str) -> None:
    if storage.is_dir(home):
        storage.remove(posixpath.join(home, OWNER))
        with contextlib.suppress(OSError):
            storage.remove_folder(home)


def announce(storage: Disk, home: str, since: float) -> bool:
    """Write this process down in a folder beside the data set, if that can be; the file goes with the folder."""
    with contextlib.suppress(OSError):
        storage.make_folder(home)
        storage.write_bytes(posixpath.join(home, OWNER), json.dumps(this_process(since)).encode())
        return True
    return False


def owner_of(location: DiskLocation) -> str:
    """The process, host and age of the writer that holds the data set, as far as they are known."""
    for home in homes(location):
        try:
            return owner_text(json.loads(location.storage.read_bytes(posixpath.join(home, OWNER))))
        except (OSError, ValueError):
            continue
    return "another process"
