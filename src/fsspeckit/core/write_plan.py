"""Everything that is known about a plain write before the first byte is written."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.first_file import columns_to_unify
from fsspeckit.core.dataset.missing_columns import columns_that_files_lack, columns_to_add
from fsspeckit.core.dataset.replaced_partitions import replaced_files
from fsspeckit.core.dataset.target import files_of_other_types, partition_map
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.execution_plan import CommonRequest
from fsspeckit.core.model import (
    REFUSE_SCHEMA_CHANGES,
    FileInfo,
    Footer,
    SchemaChanges,
    Shape,
    Target,
)
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.rows.spool import Spool

Mode = Literal["append", "overwrite", "overwrite_partitions"]
MODES: tuple[Mode, ...] = ("append", "overwrite", "overwrite_partitions")


@dataclass(frozen=True)
class WriteRequest(CommonRequest):
    """The checked arguments of a plain write. `partitions` are the partitions to replace, as the caller names them."""

    mode: Mode
    partitions: Sequence[Mapping[str, Any]] | None = None

    def renamed(self, names_of: Callable[[Sequence[str]], tuple[str, ...]]) -> WriteRequest:
        """With the columns of `partitions` in the spelling of the target."""
        if self.partitions is None:
            return self
        spelled = [dict(zip(names_of(list(named)), named.values(), strict=True)) for named in self.partitions]
        for named, own in zip(self.partitions, spelled, strict=True):
            if len(own) < len(named):
                raise ArgumentError(f"partitions has names that differ only in case: {list(named)}.")
        return replace(self, partitions=spelled)


@dataclass(frozen=True)
class PlannedWrite:
    """The files before the write, the source's rows, and the files that the write removes.

    `removed_rows` are the rows of the removed files; `None` if one of these files cannot be read.
    """

    infos: Sequence[FileInfo]
    target: Target
    spool: Spool
    shape: Shape
    removed: Sequence[FileInfo]
    removed_rows: int | None
    schema: SchemaChanges = REFUSE_SCHEMA_CHANGES

    @property
    def keeps_no_file(self) -> bool:
        """Does the write remove all files? Without new rows, a file without rows then keeps the schema."""
        return len(self.removed) == len(self.infos)

    @property
    def folder_of_empty_file(self) -> str:
        """Where the file without rows is. PyArrow cannot read a data set whose only partition value is null."""
        files = sorted(self.target.files, key=lambda footer: None in footer.partition.values())
        return posixpath.dirname(files[0].path) if files else ""

    @cached_property
    def added(self) -> Mapping[str, Footer | None]:
        """The columns that files get that lack them."""
        if not self.target.files:  # of an overwrite, too: no file stays
            return {}
        if self.spool.rows and self.shape.added and self.schema.all_files:
            return {**columns_that_files_lack(self.target, self.shape), **dict.fromkeys(self.shape.added)}
        partitions = partial(partition_map, self.target, self.shape)
        return columns_to_add(self.target, self.shape, self._removed_paths, rows_by_partition(self.spool), partitions)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that get one type in all files, or new struct fields."""
        unified = columns_to_unify(self.target, (), self._removed_paths)
        return self.spool.columns_to_retype.union(unified, self.added, self.shape.extended if self.spool.rows else ())

    @cached_property
    def rewritten(self) -> list[Footer]:
        """The files that stay and are rewritten: they get another type or more columns, or the records of streams."""
        if not (self.spool.rows or self.removed):
            return []
        kept = [footer for footer in self.target.files if footer.path not in self._removed_paths]
        others = {f.path for f in files_of_other_types(self.target, self.shape, self.columns, self.added)}
        rewritten = [footer for footer in kept if footer.path in others]
        if rewritten or self.spool.rows or not kept:
            return rewritten
        copied = ledger.file_to_copy(kept, self.target.ledger)  # no new file would have the records
        return [] if copied is None else [copied]

    @cached_property
    def _removed_paths(self) -> frozenset[str]:
        return frozenset(info.path for info in self.removed)


def plan_removals(
    request: WriteRequest,
    infos: Sequence[FileInfo],
    target: Target,
    spool: Spool,
    shape: Shape,
    overwritten_rows: int | None,
) -> PlannedWrite:
    """Decide which files the write removes. `overwritten_rows` are those of all files, for `mode="overwrite"`."""
    if request.mode == "overwrite":
        return PlannedWrite(infos, target, spool, shape, infos, overwritten_rows, request.schema)
    replaced: list[Footer] = []
    if request.mode == "overwrite_partitions":
        source = rows_by_partition(spool)
        replaced = replaced_files(target, shape, partition_map(target, shape), source, request.partitions)
    removed = [footer.info for footer in replaced]
    rows = sum(footer.rows for footer in replaced)
    return PlannedWrite(infos, target, spool, shape, removed, rows, request.schema)


def rows_by_partition(spool: Spool) -> Counter[tuple[Any, ...]]:
    return sum((Counter(part.partitions) for part in spool.parts), Counter[tuple[Any, ...]]())
