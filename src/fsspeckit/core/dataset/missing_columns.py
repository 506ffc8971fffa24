"""Columns that some files lack, and when all files have to get them.

DuckDB expects the columns of the first file in all files, and refuses a data set in which another file lacks one. Other
readers do not depend on the order of files. So a data set that DuckDB reads stays readable as long as its first file
stays the same. If a new or rewritten file may come first, all files get all columns: the values are null, and nothing
else changes in a file that has no matched row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from fsspeckit.core.dataset.first_file import ORDERS, lowest_new_name
from fsspeckit.core.dataset.partitions import PartitionMap
from fsspeckit.core.model import Footer, Shape, Target
from fsspeckit.core.values.unify import types_differ


def columns_to_add(
    target: Target,
    shape: Shape,
    rewritten: Collection[str],
    inserted: Collection[tuple[Any, ...]],
    partitions: Callable[[], PartitionMap],
) -> Mapping[str, Footer | None]:
    """The columns that every file gets, each with a file that has it in the shape's type.

    `rewritten` are the paths of files to rewrite, `inserted` the partitions that may get new files.
    """
    missing = _missing_columns(target)
    if not missing or not (rewritten or inserted):
        return {}
    if not any(_may_come_first(target, missing, rewritten, inserted, partitions, order) for order in ORDERS):
        return {}
    return columns_that_files_lack(target, shape)


def columns_that_files_lack(target: Target, shape: Shape) -> Mapping[str, Footer | None]:
    """The columns that some files lack, each with a file that has it in the shape's type."""
    missing = _missing_columns(target)
    return {name: _file_with(target, shape, name) for name in shape.stored if name in missing}


def _missing_columns(target: Target) -> frozenset[str]:
    """The columns that some files have and others lack, without partition columns, which paths have."""
    names = [set(footer.schema.names) for footer in target.files.templates]
    in_all = set[str].intersection(*names) if names else set()
    return frozenset(set[str]().union(*names) - in_all - set(target.partition_columns))


def _may_come_first(
    target: Target,
    missing: frozenset[str],
    rewritten: Collection[str],
    inserted: Collection[tuple[Any, ...]],
    partitions: Callable[[], PartitionMap],
    order: Callable[[str], Any],
) -> bool:
    """May a new or rewritten file come first, in a data set that DuckDB reads now?"""
    paths = [info.path for info in target.files.infos]
    first = min(range(len(paths)), key=lambda number: order(paths[number]))
    if not missing.isdisjoint(target.files[first].schema.names):
        return False
    first_kept = min((order(path) for path in paths if path not in rewritten), default=None)
    if first_kept is None:
        return True
    if any(order(name) < first_kept for path in rewritten for name in (path, lowest_new_name(path))):
        return True
    folders = (partitions().folder_of(values) for values in inserted)
    return any(folder is None or order(f"{folder}/part-".lstrip("/")) < first_kept for folder in folders)


def _file_with(target: Target, shape: Shape, name: str) -> Footer | None:
    dtype = shape.schema.field(name).type
    files = (f for f in target.files.templates if name in f.schema.names)
    return next((f for f in files if not types_differ(f.schema.field(name).type, dtype)), None)
