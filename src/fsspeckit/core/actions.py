"""Actions: what a merge does with matched, new and missing rows. Strategies are presets.

Planning, matching, rewriting, counting and results ask for actions. Only argument checks and reports know the name of
a strategy.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


class HitAction(enum.IntEnum):
    """What happens to a target row whose key the source has. A *hit* is such a row with its source row."""

    UPDATE = 0
    """The source row replaces it."""
    DELETE = 1
    """A delete row of the source removes it."""
    MOVE = 2
    """It is removed, because its source row is in another partition."""
    SKIP = 3
    """It stays, because the source row is older. Both are in the same partition."""
    SKIP_ELSEWHERE = 4
    """It stays, because the source row is older. They are in different partitions."""
    KEEP = 5
    """It stays, because the merge only inserts."""


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """The matched rows of a row group, a file or a data set, by what happens to them."""

    updated: int = 0
    deleted: int = 0
    skipped: int = 0
    kept: int = 0

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> MatchedRows:
        """From the number of hits by `HitAction`."""
        of = counts.get
        return cls(
            updated=of(HitAction.UPDATE, 0),
            deleted=of(HitAction.DELETE, 0) + of(HitAction.MOVE, 0),
            skipped=of(HitAction.SKIP, 0) + of(HitAction.SKIP_ELSEWHERE, 0),
            kept=of(HitAction.KEEP, 0),
        )

    @property
    def total(self) -> int:
        return self.updated + self.deleted + self.skipped + self.kept

    @property
    def changed(self) -> int:
        """The rows that a rewrite replaces or removes."""
        return self.updated + self.deleted

    def __add__(self, other: MatchedRows) -> MatchedRows:
        return MatchedRows(
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.skipped + other.skipped,
            self.kept + other.kept,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that a merge inserts, updates, deletes, skips and moves; false if it changes nothing.

    Moved rows are counted as updated too. Skipped rows stay because the source's row is older.
    """

    inserted: int
    updated: int
    deleted: int
    skipped: int = 0
    moved: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)

    @property
    def new_rows(self) -> int:
        """The source rows that go to new files."""
        return self.inserted + self.moved


@dataclass(frozen=True, slots=True)
class Actions:
    """What happens to each kind of row.

    - `matched`: target rows whose key the source has. With `update`, delete rows of the source still delete.
    - `new`: source rows whose key the target does not have
    - `missing`: target rows whose key the source does not have, and those with a null key; in all partitions, or only
      in those with rows of the source (`missing_scope`)
    - `surplus`: target rows that repeat a matched key. `keep` treats each of them as matched, `delete` leaves one row
      per key.
    - `moved`: matched rows in another partition than their source row
    - `reduce_source`: the source is reduced to one row per key before it is matched.

    >>> actions = Actions(matched="update", new="skip")
    >>> actions.counts(source_rows=3, target_rows=9, matched_keys=2, matched=MatchedRows(updated=2))
    Counts(inserted=0, updated=2, deleted=0, skipped=0, moved=0)
    """

    matched: Literal["update", "delete", "keep"]
    new: Literal["insert", "skip"]
    missing: Literal["keep", "delete"] = "keep"
    surplus: Literal["keep", "delete"] = "keep"
    reduce_source: bool = False
    missing_scope: Literal["all", "partitions"] = "all"
    moved: Literal["refuse", "move"] = "refuse"

    @property
    def changes_matched(self) -> bool:
        """Are files with matched rows rewritten?"""
        return self.matched != "keep"

    @property
    def inserts(self) -> bool:
        return self.new == "insert"

    @property
    def incremental(self) -> bool:
        """Is it enough to rewrite the files that have a matched row?"""
        return self.missing == self.surplus == "keep" and not self.reduce_source

    @property
    def replaces_target(self) -> bool:
        """Are the source's rows all that the target has afterwards?"""
        return (self.matched, self.new, self.missing, self.surplus) == ("update", "insert", "delete", "delete")

    def hit_actions(self, is_delete: Any, is_older: Any, is_elsewhere: Any) -> npt.NDArray[np.int8]:
        """The `HitAction` of each hit: is its source row a delete row, older, in another partition? (Boolean arrays)

        An older row changes nothing. A delete row deletes in every partition.
        """
        if self.matched == "keep":
            return np.full(len(is_elsewhere), HitAction.KEEP, dtype=np.int8)
        actions = np.where(is_elsewhere, HitAction.MOVE, HitAction.UPDATE).astype(np.int8)
        actions[is_delete | (self.matched == "delete")] = HitAction.DELETE
        actions[is_older] = np.where(is_elsewhere, HitAction.SKIP_ELSEWHERE, HitAction.SKIP)[is_older]
        return actions

    def counts(
        self,
        *,
        source_rows: int,
        target_rows: int,
        matched_keys: int,
        matched: MatchedRows,
        moved: int = 0,
        missing: int | None = None,
    ) -> Counts:
        """Exact counts.

        The source has one row per key; `source_rows` does not include delete rows, nor do the `matched_keys`, which
        are in the target. `moved` source rows go to another partition than their matched rows. Of the rows that the
        source does not have, `missing` are in the scope of the merge; by default all.
        """
        if missing is None:
            missing = target_rows - matched.total
        stays = matched.updated + matched.kept
        surplus = stays - matched_keys if self.surplus == "delete" and stays else 0
        return Counts(
            inserted=source_rows - matched_keys if self.inserts else 0,
            updated=matched.updated - (surplus if matched.updated else 0) + moved,
            deleted=matched.deleted + surplus - moved + (missing if self.missing == "delete" else 0),
            skipped=matched.skipped,
            moved=moved,
        )


PRESETS: Mapping[str, Actions] = MappingProxyType(
    {
        "insert": Actions(matched="keep", new="insert"),
        "update": Actions(matched="update", new="skip"),
        "upsert": Actions(matched="update", new="insert"),
        "full_merge": Actions(matched="update", new="insert", missing="delete", surplus="delete"),
        "deduplicate": Actions(matched="update", new="insert", reduce_source=True),
        "delete": Actions(matched="delete", new="skip"),
    }
)
"""The actions of each strategy, by its name in `MergeStrategy`."""
