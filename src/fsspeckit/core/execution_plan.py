"""What was asked for, and everything that is known before the first byte is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from fsspeckit.core import defaults
from fsspeckit.core.actions import Actions, Counts
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.core.dataset.missing_columns import columns_to_add
from fsspeckit.core.dataset.target import files_of_other_types, partition_map
from fsspeckit.core.match.prune import Pruned
from fsspeckit.core.model import Footer, Match, MergeStrategy, Profile, Replace, Shape, Target, WriteOptions
from fsspeckit.core.parallel import cached_property


@dataclass(frozen=True)
class Request:
    """The checked arguments of a merge."""

    strategy: MergeStrategy
    key_columns: tuple[str, ...]
    partition_columns: tuple[str, ...] | None = None
    rewrite_mode: Literal["full", "incremental"] = "incremental"
    dedup_order_by: tuple[str, ...] = ()
    options: WriteOptions = field(default_factory=WriteOptions)
    replace: Replace | None = None
    lock_timeout: float = defaults.LOCK_TIMEOUT
    batch: Batch | None = None
    partition_timezone: str | None = None
    source_timezone: str | None = None

    @property
    def actions(self) -> Actions:
        return self.strategy.actions


@dataclass(frozen=True)
class Planned:
    """Everything that is known before the first byte is written."""

    request: Request
    target: Target
    shape: Shape
    source_rows: int
    profile: Profile
    pruned: Sequence[Pruned]
    match: Match

    @property
    def counts(self) -> Counts:
        return self.request.actions.counts(
            source_rows=self.profile.rows,
            target_rows=self.target.rows,
            matched_keys=self.match.keys,
            matched_rows=self.match.total,
        )

    @property
    def retyped(self) -> frozenset[str]:
        """The columns that get one type in all files: the type of some file cannot hold the source's values, or some
        files lack them."""
        return self.profile.columns_to_retype.union(self.added) if self.counts else frozenset()

    @cached_property
    def added(self) -> Mapping[str, Footer | None]:
        """The columns that are added to files that lack them, each with a file that has it."""
        if not self.counts:
            return {}
        rewritten = {footer.path for footer in self.touched}
        partitioned = bool(self.shape.partitions)
        inserted = (self.profile.partitions if partitioned else {()}) if self.counts.inserted else ()
        partitions = partial(partition_map, self.target, self.shape)
        return columns_to_add(self.target, self.shape, rewritten, inserted, partitions)

    @property
    def brought_along(self) -> list[Footer]:
        """The files without matched rows that are rewritten with another type or more columns."""
        touched = {footer.path for footer in self.touched}
        others = files_of_other_types(self.target, self.shape, self.retyped, self.added)
        return [footer for footer in others if footer.path not in touched]

    @property
    def touched(self) -> list[Footer]:
        """The files that are rewritten: those with matched rows, or all files with `rewrite_mode="full"`."""
        if self.request.rewrite_mode == "full":
            return list(self.target.files)
        if not self.request.actions.changes_matched:
            return []
        files = self.target.files
        return [files[n] for n, info in enumerate(files.infos) if self.match.rows_in(info.path)]
