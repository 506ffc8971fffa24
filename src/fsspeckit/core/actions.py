"""Actions: what a merge does with matched, new and missing rows. Strategies are presets.

Planning, matching, rewriting, counting and results ask for actions. Only argument checks and reports know the name of
a strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that a merge inserts, updates and deletes; false if it does nothing."""

    inserted: int
    updated: int
    deleted: int

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


@dataclass(frozen=True, slots=True)
class Actions:
    """What happens to each kind of row.

    - `matched`: target rows whose key the source has
    - `new`: source rows whose key the target does not have
    - `missing`: target rows whose key the source does not have, and those with a null key
    - `surplus`: target rows that repeat a matched key. `keep` treats each of them as matched, `delete` leaves one row
      per key.
    - `reduce_source`: the source is reduced to one row per key before it is matched.

    >>> Actions(matched="update", new="skip").counts(source_rows=3, target_rows=9, matched_keys=2, matched_rows=2)
    Counts(inserted=0, updated=2, deleted=0)
    """

    matched: Literal["update", "delete", "keep"]
    new: Literal["insert", "skip"]
    missing: Literal["keep", "delete"] = "keep"
    surplus: Literal["keep", "delete"] = "keep"
    reduce_source: bool = False

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

    def counts(self, *, source_rows: int, target_rows: int, matched_keys: int, matched_rows: int) -> Counts:
        """Exact counts. The source has one row per key; `matched_rows` target rows have one of the `matched_keys`."""
        surplus = matched_rows - matched_keys if self.surplus == "delete" else 0
        deleted = matched_rows if self.matched == "delete" else surplus
        deleted += target_rows - matched_rows if self.missing == "delete" else 0
        return Counts(
            inserted=source_rows - matched_keys if self.inserts else 0,
            updated=matched_rows - surplus if self.matched == "update" else 0,
            deleted=deleted,
        )


PRESETS: Mapping[str, Actions] = MappingProxyType(
    {
        "insert": Actions(matched="keep", new="insert"),
        "update": Actions(matched="update", new="skip"),
        "upsert": Actions(matched="update", new="insert"),
        "full_merge": Actions(matched="update", new="insert", missing="delete", surplus="delete"),
        "deduplicate": Actions(matched="update", new="insert", reduce_source=True),
    }
)
"""The actions of each strategy, by its name in `MergeStrategy`."""
