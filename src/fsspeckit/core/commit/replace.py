"""Files that a caller wrote: where they are staged, and how they replace others, all of them or none."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fsspeckit.core.commit import staging
from fsspeckit.core.commit.session import writing
from fsspeckit.core.dataset.listing import is_data_file, list_files
from fsspeckit.core.errors import ArgumentError, StorageError, os_reason
from fsspeckit.core.model import Staged
from fsspeckit.core.storage import DiskLocation, Location, Storage
from fsspeckit.core.storage.base import copy_bytes


def create_staging(location: Location) -> Location:
    """Make a hidden folder in the data set's folder, for files that a caller writes."""
    name = f"{staging.PREFIX}{uuid.uuid4().hex}"
    if (disk := location.on_disk()) is not None:
        disk.storage.make_folder(location.at(name))
    return replace(location, root=location.at(name), shown=location.show(name))


def remove_staging(location: Location) -> None:
    if (disk := location.on_disk()) is None:
        location.storage.remove_all(location.root)
    elif disk.storage.is_dir(disk.root):
        staging.remove(disk.storage, disk.root)


def replace_files(sources: Sequence[Location], targets: Sequence[Location]) -> None:
    """Put a copy of each source in the place of its target, then remove the sources that are no targets.

    Until all targets are replaced the sources stay as they are. Data files are replaced in one commit, as by a merge:
    a process that is killed leaves all old or all new ones. A journal names data files only. So where a target is no
    data file, files are renamed one after the other, and an error renames the old ones back.
    """
    root = posixpath.commonpath([target.parent for target in targets])
    shared = Location(targets[0].storage, root, root)
    disk = shared.on_disk()
    foreign = [target.shown for target in targets if not is_data_file(target.name)]
    if root == "/":
        raise ArgumentError(f"{[t.shown for t in targets]} have no folder in common; nothing was replaced.")
    counts = Counter(target.root for target in targets)
    if len(counts) < len(targets):
        twice = [target for target, count in counts.items() if count > 1]
        raise ArgumentError(f"The target files name {twice} twice; nothing was replaced.")
    if foreign and not shared.storage.renames_atomically:
        raise ArgumentError(f"Only data files can be replaced here, not {foreign}; nothing was replaced.")
    with writing(shared) as session:
        files, folder, staged = list_files(shared), session.stage(()), list[Staged]()
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            staged.append(Staged(f"file-{number:05d}", posixpath.relpath(target.root, root), rows=0, size=0))
            copy = posixpath.join(folder, staged[-1].staged)
            _copy(source, shared.storage, copy, staged[-1].path)
            if disk is not None and disk.storage.is_file(target.root):
                disk.storage.copy_mode(target.root, copy)
        if disk is not None and foreign:
            _rename_all(disk, folder, staged)
        else:
            session.commit(staged, [], files)
    kept = {target.root for target in targets}
    for source in {s.root: s for s in sources if s.root not in kept}.values():
        with contextlib.suppress(OSError):
            source.storage.remove(source.root)


def _copy(source: Location, storage: Storage, path: str, final: str) -> None:
    with source.storage.open_input(source.root) as file, storage.open_output(path, final) as sink:
        copy_bytes(file, sink, 0, file.size())
    storage.sync_file(path)


def _rename_all(shared: DiskLocation, folder: str, staged: Sequence[Staged]) -> None:
    """Rename staged files into place. Copies of the old files wait in `folder`, in case that one rename fails."""
    storage, old = shared.storage, dict[str, str]()
    for file in staged:
        target = shared.at(file.path)
        storage.make_folder(posixpath.dirname(target))
        if storage.is_file(target):
            old[target] = posixpath.join(folder, f"{file.staged}-old")
            _copy(replace(shared, root=target), storage, old[target], file.path)
            storage.copy_mode(target, old[target])
    staging.give_rights(shared, folder, [file for file in staged if shared.at(file.path) not in old])
    done: list[str] = []
    try:
        for file in staged:
            storage.rename(posixpath.join(folder, file.staged), shared.at(file.path))
            done.append(shared.at(file.path))
        for parent in {posixpath.dirname(target) for target in done}:
            storage.sync_folder(parent)
    except OSError as error:
        for target in done:
            if target in old:
                storage.rename(old[target], target)
            else:
                storage.remove(target)
        message = f"Cannot replace files in {shared.shown}: {os_reason(error)}. Nothing was changed."
        raise StorageError(message, error, operation="replace") from error
