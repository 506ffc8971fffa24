"""Replacing files by files that the caller wrote: one commit of `commit.session`, as a merge makes it."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fsspeckit.core.commit import staging
from fsspeckit.core.commit.session import writing
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Staged
from fsspeckit.core.storage import Location, Storage, locate
from fsspeckit.core.target.listing import is_data_file, list_files

_CHUNK = 8 << 20


class IncrementalFileManager:
    """Stage, replace and clean up files, for callers who bring their own."""

    def __init__(self) -> None:
        self._created: list[tuple[Storage, str]] = []

    def create_staging_directory(self, base_path: str, filesystem: Any = None) -> str:
        """Make `<base>/.staging_<uuid>` and return its path."""
        location = locate(base_path, filesystem)
        name = f"{staging.PREFIX}{uuid.uuid4().hex}"
        location.storage.make_folder(location.at(name))
        self._created.append((location.storage, location.at(name)))
        return location.show(name)

    def atomic_replace_files(
        self, source_files: Sequence[str], target_files: Sequence[str], filesystem: Any = None
    ) -> None:
        """Replace each target file by its source file, all of them or none: one commit to the folder they share.

        Sources are gone afterwards, unless they are targets too.
        """
        sources, targets = ([locate(f, filesystem) for f in files] for files in (source_files, target_files))
        if len(sources) != len(targets):
            raise ArgumentError(f"{len(sources)} source files for {len(targets)} target files; give one for each.")
        foreign = [target.shown for target in targets if not is_data_file(target.name)]
        if foreign:
            raise ArgumentError(f"Not names of data files: {foreign}; nothing was replaced.")
        missing = [source.shown for source in sources if not source.storage.is_plain(source.root)]
        if missing:
            raise FileNotFoundError(f"Staged files not found: {missing}; nothing was replaced.")
        if targets:
            _replace_in_one_commit(sources, targets)

    def cleanup_staging_files(self) -> None:
        """Remove every staging directory that this object created."""
        while self._created:
            storage, path = self._created.pop()
            if storage.is_dir(path):
                staging.remove(storage, path)


def _replace_in_one_commit(sources: Sequence[Location], targets: Sequence[Location]) -> None:
    """Copies of the sources are committed: until then they are the caller's, whatever happens."""
    root = posixpath.commonpath([target.parent for target in targets])
    if root == "/":
        raise ArgumentError(f"{[t.shown for t in targets]} have no folder in common; nothing was replaced.")
    shared = Location(targets[0].storage, root, root)
    with writing(shared) as session:
        files = {info.path: info for info in list_files(shared)}
        folder, staged = session.stage(()), []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            staged.append(Staged(f"file-{number:05d}", posixpath.relpath(target.root, root), rows=0, size=0))
            copy = posixpath.join(folder, staged[-1].staged)
            _copy(source, replace(shared, root=copy))
            if staged[-1].path in files:
                shared.storage.copy_mode(target.root, copy)
        session.commit(staged, [], tuple(files.values()))
    for source in {s.root: s for s in sources}.values():
        if source.root not in {target.root for target in targets}:
            with contextlib.suppress(OSError):
                source.storage.remove(source.root)


def _copy(source: Location, target: Location) -> None:
    with source.storage.open_input(source.root) as file, target.storage.open_output(target.root) as sink:
        while chunk := file.read(_CHUNK):
            sink.write(chunk)
    target.storage.sync_file(target.root)
