"""`fsspeckit.compact` and its plan: files change, rows do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from fsspeckit.api import dataset_io
from fsspeckit.core.reports import CompactPlan, CompactResult
from fsspeckit.datasets.inputs import Path
from fsspeckit.datasets.options import CompactOptions, EngineName


def compact(
    path: Path,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[CompactOptions],
) -> CompactResult:
    """Join small files, cut large ones and encode small row groups again. No row changes.

    It commits several times: one that was killed continues where it stopped. A second one changes nothing.

    >>> import fsspeckit, pyarrow as pa
    >>> for day in range(3):
    ...     _ = fsspeckit.merge(pa.table({"id": [day], "n": [1]}), "memory://compact/orders", key_columns=["id"])
    >>> fsspeckit.compact("memory://compact/orders", target_size="256MB", sort_by="id").files_after
    1

    Args:
        path: a directory of Parquet files, which must exist.
        target_size: about the size of a file, in bytes or as text: `256MB` (default), `1GiB`.
        sort_by: columns to sort the rows of each partition by.
        partitions: only these partitions: `[{"day": "2026-01-01"}]`.
        undoable: keep the old files beside the data set, so that `undo` can put them back. The compaction is then one
            commit, which needs free space for all new files.
        engine, filesystem, storage_options, lock_timeout: as in `merge`. `spark` distributes the work.
    """
    return dataset_io(engine or "pyarrow", filesystem, storage_options).compact(path, **options)


def plan_compact(
    path: Path,
    *,
    engine: EngineName | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[CompactOptions],
) -> CompactPlan:
    """Describe what `compact` would do, and change nothing.

    >>> import fsspeckit, pyarrow as pa
    >>> for day in range(3):
    ...     _ = fsspeckit.merge(pa.table({"id": [day]}), "memory://plan_compact/orders", key_columns=["id"])
    >>> plan = fsspeckit.plan_compact("memory://plan_compact/orders")
    >>> plan.files_before, plan.files_after, plan.bins[0].reason
    (3, 1, 'small files')
    """
    return dataset_io(engine or "pyarrow", filesystem, storage_options).plan_compact(path, **options)
