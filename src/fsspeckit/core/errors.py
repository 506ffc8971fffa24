"""The error tree.

    FsspeckitError
    ├── DatasetMergeError                the operation could not be done; the data set is as it was
    │   ├── DatasetLockedError           another writer holds the data set
    │   ├── TargetChangedError           a foreign program changed the target between plan and commit
    │   ├── UnreadableFileError          a file of the target (or source) cannot be read; it is named
    │   ├── LayoutError                  the writer cannot reproduce this file's Parquet layout
    │   ├── StorageError                 the file system failed (also an OSError); the data set is as it was
    │   └── CommitUnfinishedError        the commit is recorded but not all applied; `fsspeckit recover` finishes it
    └── MergeValidationError             the input is wrong (also a ValueError); the data set is as it was
        ├── ArgumentError                strategy, key columns, options
        │   └── RemovedRowsError         more rows would be removed than `max_removed_rows` allows
        ├── NullKeyError
        ├── DuplicateKeyError
        ├── SchemaMismatchError          columns missing or extra, types of different families, a value that is lost
        ├── PartitionMoveError           an existing key would change its partition
        └── TargetError                  the target is a file, a Delta/Hudi/Iceberg table, or cannot be made sense of

Every message says what was wrong, where, and what to do about it.
"""

from __future__ import annotations

import os
from typing import Any


def os_reason(error: OSError) -> str:
    """What the system says, and about which file, without Python's `[Errno 13]`.

    >>> os_reason(PermissionError(13, "Permission denied", "/lake"))
    'Permission denied: /lake'
    """
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.strerror}: {os.fsdecode(error.filename)}"


class FsspeckitError(Exception):
    """Base of everything this package raises on purpose."""


class DatasetMergeError(FsspeckitError):
    """An operation on a data set failed; unless a subclass says otherwise nothing was changed.

    `context` carries what the caller may want to log: strategy, key columns, operation.
    """

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.context = context


class DatasetLockedError(DatasetMergeError):
    """Another writer held the lock for longer than `lock_timeout`."""


class TargetChangedError(DatasetMergeError):
    """A file of the target appeared, vanished or changed while the merge was under way."""


class UnreadableFileError(DatasetMergeError):
    """A Parquet file could not be read; the message names it."""


class LayoutError(DatasetMergeError):
    """The file's Parquet layout cannot be written again exactly; refused rather than changed."""


class StorageError(DatasetMergeError, OSError):
    """The file system failed before anything was recorded; `errno` is that of the failed call."""

    def __init__(self, message: str, cause: OSError | None = None, **context: Any) -> None:
        super().__init__(message, **context)
        if cause is not None:
            self.errno = cause.errno


class CommitUnfinishedError(DatasetMergeError):
    """The commit is recorded but not all of it applied. Do not repeat it: `fsspeckit recover` finishes it."""


class MergeValidationError(FsspeckitError, ValueError):
    """The input was refused; nothing was changed."""


class ArgumentError(MergeValidationError):
    """An argument makes no sense."""


class RemovedRowsError(ArgumentError):
    """A write would remove more rows than `max_removed_rows`: `rows`, or `None` if a file cannot be read."""

    def __init__(self, message: str, rows: int | None = None) -> None:
        super().__init__(message)
        self.rows = rows


class NullKeyError(MergeValidationError):
    """The source has nulls in a key column."""


class DuplicateKeyError(MergeValidationError):
    """The source has two rows for one key."""


class SchemaMismatchError(MergeValidationError):
    """The source does not fit the target's columns or types."""


class PartitionMoveError(MergeValidationError):
    """An existing key would move to another partition."""


class TargetError(MergeValidationError):
    """The target is not a plain directory of Parquet files."""
