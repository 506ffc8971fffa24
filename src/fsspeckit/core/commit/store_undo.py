"""What undoable commits keep in an object store: `.fsspeckit-<data set>/undo/<session>/`, copied within the store.

The copies and a draft of the record are made before the commit point. Whoever finishes the commit turns the draft into
the record, before the head is free. Copies without a record belong to a session that died, and are removed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fsspeckit.core.commit.head import Journal
from fsspeckit.core.commit.record import FileState, Record, parse
from fsspeckit.core.commit.shared import MALFORMED, CommitNote, home_of
from fsspeckit.core.errors import StorageError
from fsspeckit.core.model import FileInfo, Staged
from fsspeckit.core.rewrite.files import new_name
from fsspeckit.core.storage import StoreLocation
from fsspeckit.core.storage.base import copy_bytes
from fsspeckit.core.storage.objects import Objects

_RECORD, _DRAFT, _RENAMED = "record.json", "draft.json", "renamed.json"


def undo_folder(root: str, session: str = "") -> str:
    return f"{home_of(root)}/undo/{session}".rstrip("/")


def keep(
    location: StoreLocation, session: str, journal: Journal, expected: Sequence[FileInfo], note: CommitNote, each: Any
) -> None:
    """Copy the files that the commit removes, and write the draft of the record. `each` maps several at a time."""
    objects, folder = location.storage.objects, undo_folder(location.root, session)
    infos = {info.path: info for info in expected}
    removed = [infos[r.path] for r in journal.removals if r.path in infos]
    kept = [FileState(f.path, f.size, f.mtime_ns, f.etag, f"file-{n:05d}") for n, f in enumerate(removed)]
    each(lambda file: objects.copy_object(location.at(file.path), f"{folder}/{file.name}", file.etag), kept)
    removed_paths = {file.path for file in removed}
    files = [FileState(f.path, f.size, f.mtime_ns, f.etag) for f in expected if f.path not in removed_paths]
    files += [FileState(a.path, a.size, 0, a.etag, added=True) for a in journal.additions]
    number = max((record.number for record in records(location)), default=0) + 1
    left, kept_files = tuple(sorted(files, key=lambda file: file.path)), tuple(kept)
    record = Record(session, number, note.at, note.operation, note.counts, left, kept_files, location.root)
    objects.put(f"{folder}/{_DRAFT}", record.to_bytes())


def mark_undone(location: StoreLocation, session: str, record: Record, staged: Sequence[Staged]) -> None:
    """Note the new names of files that are put back, for the records of earlier commits."""
    names = {file.path: new.path for file, new in zip(record.kept, staged, strict=True)}
    key = f"{undo_folder(location.root, session)}/{_RENAMED}"
    location.storage.objects.put(key, json.dumps(names).encode())


def publish(location: StoreLocation, objects: Objects, session: str, journal: Journal) -> None:
    """All new files are in place: turn the draft into the record, and drop that of the commit that is undone."""
    folder = undo_folder(location.root, session)
    draft = objects.get(f"{folder}/{_DRAFT}") if journal.keeps else None
    if draft is not None:
        with contextlib.suppress(*MALFORMED):
            record = _with_etags(location, objects, parse(draft[0], folder), journal)
            objects.put(f"{folder}/{_RECORD}", record.to_bytes())
        objects.delete([f"{folder}/{_DRAFT}"])
    if journal.undoes:
        _remove(objects, undo_folder(location.root, journal.undoes))
        renamed = objects.get(f"{folder}/{_RENAMED}")
        if renamed is not None:
            with contextlib.suppress(*MALFORMED):
                _rename(location, objects, json.loads(renamed[0]), journal)
            objects.delete([f"{folder}/{_RENAMED}"])


def _with_etags(location: StoreLocation, objects: Objects, record: Record, journal: Journal) -> Record:
    """With the ETags of new files, which some stores give only when an upload is completed."""
    unknown = {a.path for a in journal.additions if not a.etag}
    files = []
    for file in record.files:
        entry = objects.stat(location.at(file.path)) if file.path in unknown else None
        files.append(replace(file, etag=entry.etag) if entry is not None else file)
    return replace(record, files=tuple(files))


def _rename(location: StoreLocation, objects: Objects, names: dict[str, str], journal: Journal) -> None:
    """Earlier commits left files that now have other names."""
    sizes = {a.path: a.size for a in journal.additions}
    new = {old: objects.stat(location.at(path)) for old, path in names.items() if path in sizes}
    for record in records(location, objects):
        files = []
        for file in record.files:
            entry = new.get(file.path)
            is_put_back = entry is not None and entry.size == file.size
            files.append(replace(file, path=names[file.path], etag=entry.etag) if entry and is_put_back else file)
        if tuple(files) != record.files:
            objects.put(f"{record.folder}/{_RECORD}", replace(record, files=tuple(files)).to_bytes())


def records(location: StoreLocation, objects: Objects | None = None) -> list[Record]:
    """The kept commits, the oldest first. What is not a record of ours is ignored."""
    objects, kept = objects or location.storage.objects, []
    for entry in objects.list_all(undo_folder(location.root)):
        folder, _, name = entry.key.rpartition("/")
        answer = objects.get(entry.key) if name == _RECORD else None
        if answer is not None:
            with contextlib.suppress(*MALFORMED):
                record = parse(answer[0], folder)
                kept += [record] if folder == undo_folder(location.root, record.commit) else []
    return sorted(kept, key=lambda record: record.number)


def put_back(location: StoreLocation, staging: str, record: Record) -> list[Staged]:
    """Upload the kept files under new names; they appear with the commit."""
    storage, staged = location.storage, []
    for file in record.kept:
        source, target, final = f"{record.folder}/{file.name}", f"{staging}/{file.name}", new_name(file.path)
        entry = storage.objects.stat(source)
        if entry is None or entry.size != file.size:
            raise StorageError(
                f"Cannot undo the last commit to {location.shown}: the kept copy {storage.url(source)} of {file.path} "
                "is missing or damaged. Nothing was changed.",
                operation="undo",
            )
        with storage.open_input(source) as kept, storage.open_output(target, final) as sink:
            copy_bytes(kept, sink, 0, file.size)
        staged.append(Staged(file.name, final, 0, file.size, file.path, storage.receipt(target)))
    return staged


def drop(location: StoreLocation, records: Iterable[Record]) -> None:
    for record in records:
        _remove(location.storage.objects, record.folder)


def remove_kept(location: StoreLocation, objects: Objects, session: str) -> None:
    """Remove the copies of a commit that was given up."""
    _remove(objects, undo_folder(location.root, session))


def _remove(objects: Objects, folder: str) -> None:
    """Remove the record first: a record without its files would be wrong."""
    keys = [entry.key for entry in objects.list_all(folder)]
    if f"{folder}/{_RECORD}" in keys:
        objects.delete([f"{folder}/{_RECORD}"])
    if keys:
        objects.delete(keys)


def without_records(location: StoreLocation, keys: Sequence[str], has: Callable[[str], bool]) -> tuple[str, ...]:
    """The keys that are not of a kept commit. `has` checks whether there is an object of that name."""
    prefix, known = f"{undo_folder(location.root)}/", dict[str, bool]()

    def is_kept(key: str) -> bool:
        if not key.startswith(prefix):
            return False
        folder = f"{prefix}{key[len(prefix) :].partition('/')[0]}"
        if folder not in known:
            known[folder] = has(f"{folder}/{_RECORD}")
        return known[folder]

    return tuple(key for key in keys if not is_kept(key))
