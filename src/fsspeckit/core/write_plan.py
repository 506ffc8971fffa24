"""Everything that is known about a plain write before the first byte is written."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.missing_columns import columns_to_add
from fsspeckit.core.dataset.replaced_partitions import replaced_files
from fsspeckit.core.dataset.target import files_of_other_types, partition_map
from fsspeckit.core.model import FileInfo, Footer, Shape, Target
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.rows.spool import Spool

Mode = Literal["append", "overwrite", "overwrite_partitions"]
MODES: tuple[Mode, ...] = ("append", "overwrite", "overwrite_partitions")


@dataclass(frozen=True)
class PlannedWrite:
    """The files before the write, the source's rows, and the files that the write removes.

    `removed_rows` are their rows; `None` if one of them cannot be read.
    """

    infos: Sequence[FileInfo]
    target: Target
    spool: Spool
    shape: Shape
    removed: Sequence[FileInfo]
    removed_rows: int | None

    @cached_property
    def source_partitions(self) -> Mapping[tuple[Any, ...], int]:
        return _rows_by_partition(self.spool)

    @property
    def new_rows(self) -> dict[str, int]:
        """The rows of new files by folder."""
        partitions, rows = partition_map(self.target, self.shape), Counter[str]()
        for values, count in self.source_partitions.items():
            rows[partitions.folder_of(values) or "/".join(map(repr, values))] += count
        return dict(sorted(rows.items()))

    @property
    def keeps_no_file(self) -> bool:
        return len(self.removed) == len(self.infos)

    @property
    def folder_of_empty_file(self) -> str:
        """Where the file without rows is. PyArrow cannot read a data set whose only partition value is null."""
        files = sorted(self.target.files, key=lambda footer: None in footer.partition.values())
        return posixpath.dirname(files[0].path) if files else ""

    @cached_property
    def added(self) -> Mapping[str, Footer | None]:
        """The columns that files get that lack them."""
        partitions = partial(partition_map, self.target, self.shape)
        removed = {info.path for info in self.removed} if self.target.files else set[str]()
        return columns_to_add(self.target, self.shape, removed, set(self.source_partitions), partitions)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that get one type in all files."""
        return self.spool.columns_to_retype.union(self.added)

    @property
    def rewritten(self) -> list[Footer]:
        """The files that stay, and get another type or more columns."""
        removed = {info.path for info in self.removed}
        others = files_of_other_types(self.target, self.shape, self.columns, self.added)
        return [footer for footer in others if footer.path not in removed]

    @property
    def file_to_copy(self) -> Footer | None:
        """The file that is copied to keep the records of streams, if files are removed and none is written."""
        removed = {info.path for info in self.removed}
        kept = [footer for footer in self.target.files if footer.path not in removed]
        return ledger.file_to_copy(kept, self.target.ledger) if removed and kept else None


def planned_write(
    mode: Mode,
    infos: Sequence[FileInfo],
    target: Target,
    spool: Spool,
    shape: Shape,
    partitions: Any,
    overwritten_rows: int | None,
) -> PlannedWrite:
    """Decide which files go. `overwritten_rows` are those of all files, for `mode="overwrite"`."""
    if mode == "overwrite":
        return PlannedWrite(infos, target, spool, shape, infos, overwritten_rows)
    replaced: list[Footer] = []
    if mode == "overwrite_partitions":
        source = _rows_by_partition(spool)
        replaced = replaced_files(target, shape, partition_map(target, shape), source, partitions)
    removed = [footer.info for footer in replaced]
    return PlannedWrite(infos, target, spool, shape, removed, sum(footer.rows for footer in replaced))


def _rows_by_partition(spool: Spool) -> Counter[tuple[Any, ...]]:
    return sum((Counter(part.partitions) for part in spool.parts), Counter[tuple[Any, ...]]())
