"""What was asked for, and everything that is known before the first byte is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fsspeckit.core import defaults
from fsspeckit.core.model import Footer, Match, MergeStrategy, Profile, Replace, Shape, Target, WriteOptions
from fsspeckit.core.plan.prune import Pruned
from fsspeckit.core.target.ledger import Batch


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

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


@dataclass(frozen=True)
class Counts:
    """What happens to rows; `bool(counts)` tells whether anything does."""

    inserted: int
    updated: int
    deleted: int

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


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
        strategy, match = self.request.strategy, self.match
        new = self.profile.rows - match.keys
        if strategy is MergeStrategy.FULL_MERGE:
            return Counts(new, match.keys, self.target.rows - match.keys)
        return Counts(new if strategy.inserts else 0, match.total if strategy.updates else 0, 0)

    @property
    def touched(self) -> list[Footer]:
        """The files to rewrite, or to replace if all of them are: those with matched rows, or all."""
        if self.request.rewrite_mode == "full":
            return list(self.target.files)
        if not self.request.strategy.updates:
            return []
        files = self.target.files
        return [files[n] for n, info in enumerate(files.infos) if self.match.rows_in(info.path)]
