"""The public functions about commits: hold them off while files are read, undo them, list those that can be undone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from fsspeckit.api import dataset_io
from fsspeckit.core import defaults
from fsspeckit.core.commit import readers
from fsspeckit.core.commit import undo as undoing
from fsspeckit.core.progress import OnProgress
from fsspeckit.core.reports import KeptCommit, UndoResult
from fsspeckit.core.storage import Access
from fsspeckit.datasets.inputs import Path
from fsspeckit.datasets.options import EngineName


def undo(
    path: Path,
    filesystem: Any = None,
    lock_timeout: float = defaults.LOCK_TIMEOUT,
    *,
    engine: EngineName | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> UndoResult:
    """Undo the last commit that was made with `undoable=True`: put its old files back, byte for byte, in one commit.

    >>> import fsspeckit, pyarrow as pa
    >>> orders = pa.table({"id": [1, 2], "status": ["new", "new"]})
    >>> _ = fsspeckit.merge(orders, "memory://undo/orders", key_columns=["id"])
    >>> _ = fsspeckit.delete("memory://undo/orders", keys=[2], key_columns=["id"], undoable=True)
    >>> fsspeckit.undo("memory://undo/orders").operation
    'delete'
    >>> fsspeckit.read("memory://undo/orders").num_rows
    2

    Called again, it undoes the undoable commit before that. If the data set is not as the commit left it, because of
    another commit or another program, it raises a `FsspeckitError` that names the differences, and changes nothing. In
    object stores the files get new names. The record of streams goes back too: a batch that is undone may be merged
    again. With `engine="spark"` the active session forgets the files, as after a merge.
    """
    return dataset_io(engine or "pyarrow", filesystem, storage_options).undo(path, lock_timeout, on_progress)


def history(
    path: Path,
    filesystem: Any = None,
    lock_timeout: float = defaults.LOCK_TIMEOUT,
    *,
    storage_options: Mapping[str, Any] | None = None,
    keep: int | None = None,
    older_than: str | float | timedelta | None = None,
) -> list[KeptCommit]:
    """The commits that `undo` can undo, one after the other, the last one first.

    `keep` drops all but so many, `older_than` those of a greater age (`"7d"`, `"12h"`, a timedelta or seconds), with
    the files that they kept.

    >>> import fsspeckit, pyarrow as pa
    >>> _ = fsspeckit.merge(pa.table({"id": [1]}), "memory://history/orders", key_columns=["id"], undoable=True)
    >>> [(commit.operation, commit.counts["inserted"]) for commit in fsspeckit.history("memory://history/orders")]
    [('upsert', 1)]
    >>> fsspeckit.history("memory://history/orders", keep=0)
    []
    """
    return undoing.history(Access(filesystem, storage_options).locate(path), keep, older_than, lock_timeout)


@contextlib.contextmanager
def snapshot(
    path: Path,
    timeout: float = defaults.LOCK_TIMEOUT,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[list[str]]:
    """Hold off commits while any program reads the data files, whose full paths are yielded.

    >>> import fsspeckit, pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> lake = tempfile.mkdtemp()
    >>> _ = fsspeckit.merge(pa.table({"id": [1, 2]}), lake, key_columns=["id"])
    >>> with fsspeckit.snapshot(lake) as files:
    ...     sum(pq.read_metadata(file).num_rows for file in files)
    2

    Writers prepare their files meanwhile, and wait with the commit until the block ends, for up to their
    `lock_timeout`. A waiting writer goes before later snapshots. Permission to read is enough. Merging into the data
    set inside the block, in the same thread, is an error.

    In object stores nothing is held off. If there was a commit, the end of the block raises `TargetChangedError`: read
    again. So it does on disks without such locks (macOS, some network mounts) if a file was replaced; a warning says so
    first.

    Args:
        path: a directory of Parquet files.
        timeout: seconds to wait for a commit that is being applied.
        filesystem, storage_options: as in `merge`.

    Raises:
        CommitUnfinishedError: a writer died in the middle of a commit: some files are old, others new.
        DatasetLockedError: a commit was not finished within `timeout`.
        TargetChangedError: files changed while they were read.
    """
    location = Access(filesystem, storage_options).locate(path)
    with readers.snapshot(location, timeout) as infos:
        at = [location.at(info.path) for info in infos]
        yield [location.storage.local_path(file) or location.storage.url(file) for file in at]
