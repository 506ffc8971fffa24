"""The request of a merge, and everything that is known before the first byte is written."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.core import defaults
from fsspeckit.core.actions import Actions, Counts, MatchedRows
from fsspeckit.core.dataset.first_file import columns_to_unify
from fsspeckit.core.dataset.ledger import Batch, file_to_copy, with_batch
from fsspeckit.core.dataset.missing_columns import columns_that_files_lack, columns_to_add
from fsspeckit.core.dataset.target import files_of_other_types, partition_map
from fsspeckit.core.match.filters import RowFilter
from fsspeckit.core.match.hits import MatchResult
from fsspeckit.core.match.prune import Pruned
from fsspeckit.core.model import (
    REFUSE_SCHEMA_CHANGES,
    Footer,
    Match,
    MergeStrategy,
    Profile,
    Replace,
    RowOptions,
    SchemaChanges,
    Shape,
    Target,
    WriteOptions,
)
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.progress import OnProgress
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.validate import RowOrder


@dataclass(frozen=True, kw_only=True)
class CommonRequest:
    """The checked arguments that merges and plain writes have in common."""

    partition_columns: tuple[str, ...] | None = None
    options: WriteOptions = field(default_factory=WriteOptions)
    schema: SchemaChanges = REFUSE_SCHEMA_CHANGES
    partition_timezone: str | None = None
    source_timezone: str | None = None
    max_lengths: Mapping[str, int] = field(default_factory=dict)
    """The longest text of columns, by their name in lower case: the types `varchar(n)` of a catalog."""
    max_removed_rows: int | None = None
    """Refuse a merge or a write that removes more rows."""
    undoable: bool = False
    lock_timeout: float = defaults.LOCK_TIMEOUT
    on_progress: OnProgress | None = None


@dataclass(frozen=True)
class Request(CommonRequest):
    """The checked arguments of a merge. With `filters`, the rows that they select are deleted, and there is no source.

    `latest`: of several source rows with the same key, the greatest by `rows.sequence_by` counts. `must_exist` refuses
    a target without data files. `small_files`: new rows make new files, or are appended to small ones.
    """

    strategy: MergeStrategy
    key_columns: tuple[str, ...]
    rewrite_mode: Literal["full", "incremental"] = "incremental"
    dedup_order_by: tuple[str, ...] = ()
    replace: Replace | None = None
    batch: Batch | None = None
    rows: RowOptions = field(default_factory=RowOptions)
    latest: bool = False
    delete_missing: Literal["all", "partitions"] | None = None
    on_move: Literal["refuse", "move"] = "refuse"
    filters: Any = None
    must_exist: bool = False
    commit_log: str | None = None
    """A file that gets one JSON line per commit."""
    small_files: Literal["new", "append"] = "new"
    compare: bool = False
    """A plan reads the matched rows too, and says which change."""

    def renamed(self, names_of: Callable[[Sequence[str]], tuple[str, ...]]) -> Request:
        """With the columns of the target in its own spelling."""
        rows = self.rows
        return replace(
            self,
            key_columns=names_of(self.key_columns),
            dedup_order_by=names_of(self.dedup_order_by),
            rows=replace(
                rows,
                sequence_by=names_of(rows.sequence_by),
                update_columns=None if rows.update_columns is None else names_of(rows.update_columns),
                exclude_columns=None if rows.exclude_columns is None else names_of(rows.exclude_columns),
            ),
        )

    def rows_of(self, source: pa.Schema, *, ignores_case: bool) -> RowOptions:
        """The options about rows, with the delete column in the spelling of the source."""
        name = self.rows.delete_column
        if not ignores_case or name is None or name in source.names:
            return self.rows
        spelled = [column for column in source.names if column.lower() == name.lower()]
        return replace(self.rows, delete_column=spelled[0]) if len(spelled) == 1 else self.rows

    @property
    def actions(self) -> Actions:
        actions = replace(self.strategy.actions, moved=self.on_move)
        if self.delete_missing is None:
            return actions
        return replace(actions, missing="delete", missing_scope=self.delete_missing)

    @property
    def row_order(self) -> RowOrder | None:
        """By what one of several source rows with the same key is kept; `None` refuses such rows."""
        if self.actions.reduce_source:
            return RowOrder(self.dedup_order_by)
        if self.rows.only_keys:
            return RowOrder(self.rows.sequence_by, "sequence_by", ties_are_equal=True)
        return RowOrder(self.rows.sequence_by, "sequence_by") if self.latest else None


@dataclass(frozen=True)
class ExecutionPlan:
    """Everything that is known before the first byte is written."""

    request: Request
    target: Target
    shape: Shape
    source_rows: int
    spool: Spool
    """The source, perhaps reduced to one row per key; `source_rows` counts its rows before that."""
    profile: Profile
    pruned: Sequence[Pruned]
    matched: MatchResult
    row_filter: RowFilter | None = None

    @property
    def match(self) -> Match:
        return self.matched.match

    @cached_property
    def counts(self) -> Counts:
        missing = None
        if not self.request.actions.replaces_target:
            missing = sum(sum(self.missing_rows(number).values()) for number in self._files_with_missing_rows)
        return self.request.actions.counts(
            source_rows=self.profile.write_rows,
            target_rows=self.target.rows,
            matched_keys=self.match.keys,
            matched=self.match.total,
            moved=self.match.moved,
            missing=missing,
        )

    @cached_property
    def _files_with_missing_rows(self) -> frozenset[int]:
        return files_with_missing_rows(self.request.actions, self.target, self.shape, self.profile)

    def deletes_missing(self, number: int) -> bool:
        """Are the rows of a file deleted whose key the source does not have?"""
        return number in self._files_with_missing_rows

    def missing_rows(self, number: int) -> dict[int, int]:
        """By row group, the rows of a file that are deleted because the source does not have their key."""
        if not self.deletes_missing(number):
            return {}
        footer = self.target.files[number]
        matched, none = self.match.groups.get(footer.path, {}), MatchedRows()
        missing = {g: group.rows - matched.get(g, none).total for g, group in enumerate(footer.row_groups)}
        return {group: rows for group, rows in missing.items() if rows}

    def changed_groups(self, number: int) -> dict[int, MatchedRows]:
        """The row groups of a file with rows to replace or delete; deleted rows include missing ones."""
        footer, missing = self.target.files[number], self.missing_rows(number)
        matched = self.match.groups.get(footer.path, {})
        none = MatchedRows()
        groups = {g: matched.get(g, none) + MatchedRows(deleted=missing.get(g, 0)) for g in {*matched, *missing}}
        return {group: rows for group, rows in sorted(groups.items()) if rows.changed}

    @cached_property
    def emptied(self) -> frozenset[str]:
        """The paths of files that lose all rows."""
        if self.request.rewrite_mode == "full":
            return frozenset()
        deleted = {n: sum(rows.deleted for rows in self.changed_groups(n).values()) for n in self.touched_numbers}
        files = self.target.files
        return frozenset(files.infos[n].path for n, rows in deleted.items() if rows and rows == files.rows[n])

    @property
    def emptied_partitions(self) -> frozenset[str]:
        """The partition folders that lose all their files. New rows may come into them."""
        infos, folder = self.target.files.infos, posixpath.dirname
        left = {folder(info.path) for info in infos if info.path not in self.emptied}
        emptied = {folder(path) for path in self.emptied} if self.shape.partitions else set()
        return frozenset(emptied - left - {""})

    @property
    def retyped(self) -> frozenset[str]:
        """The columns that get one type in all files: the type of some file cannot hold the source's values, a file
        with a narrower type may come first, some files lack them, or they get new struct fields."""
        if not self.counts:
            return frozenset()
        return self.profile.columns_to_retype.union(self.unified, self.added_to_all, self.extended)

    @cached_property
    def unified(self) -> frozenset[str]:
        """The columns that get one type because a file with a narrower type may come first."""
        if self.request.actions.replaces_target:
            return frozenset()
        touched, is_full = {footer.path for footer in self.touched}, self.request.rewrite_mode == "full"
        return columns_to_unify(self.target, touched, self.emptied, any_name=is_full)

    @property
    def _writes_rows(self) -> bool:
        """Does a row of the source get into a file? Only then the schema changes."""
        return bool(self.counts.new_rows or self.counts.updated)

    @property
    def new_columns(self) -> tuple[str, ...]:
        """The columns of the source that the target gets."""
        return self.shape.added if self._writes_rows else ()

    @property
    def extended(self) -> frozenset[str]:
        """The columns that get new struct fields."""
        return frozenset(self.shape.extended) if self._writes_rows else frozenset()

    @property
    def evolves_all(self) -> bool:
        """Do all files get new columns or struct fields?"""
        return bool(self.extended or (self.new_columns and self.request.schema.all_files))

    @property
    def added(self) -> Mapping[str, Footer | None]:
        """The columns that files with changed rows get if they lack them, each with a file that has it."""
        return {**self.added_to_all, **dict.fromkeys(self.new_columns)}

    @cached_property
    def added_to_all(self) -> Mapping[str, Footer | None]:
        """The columns that all files get, each with a file that has it; no file has a new column."""
        if not self.counts:
            return {}
        if self.new_columns and self.request.schema.all_files:
            return {**columns_that_files_lack(self.target, self.shape), **dict.fromkeys(self.new_columns)}
        rewritten = {footer.path for footer in self.touched}
        partitioned = bool(self.shape.partitions)
        inserted = (self.profile.partitions if partitioned else {()}) if self.counts.new_rows else ()
        partitions = partial(partition_map, self.target, self.shape)
        return columns_to_add(self.target, self.shape, rewritten, inserted, partitions)

    @property
    def brought_along(self) -> list[Footer]:
        """The files without matched rows that are rewritten with another type or more columns."""
        touched = {footer.path for footer in self.touched}
        others = files_of_other_types(self.target, self.shape, self.retyped, self.added_to_all)
        return [footer for footer in others if footer.path not in touched]

    @cached_property
    def copied(self) -> Footer | None:
        """The file that is copied to keep the records of streams, because files are removed and none is written."""
        files_stay = len(self.touched_numbers) > len(self.emptied)
        if not self.emptied or self.counts.new_rows or files_stay or self.brought_along:
            return None
        left = [footer for footer in self.target.files if footer.path not in self.emptied]
        return file_to_copy(left, with_batch(self.target.ledger, self.request.batch)) if left else None

    @property
    def touched(self) -> list[Footer]:
        """The files that are rewritten or removed."""
        return [self.target.files[n] for n in self.touched_numbers]

    @cached_property
    def touched_numbers(self) -> list[int]:
        """The numbers of the files with rows to change, or of all files with `rewrite_mode="full"`."""
        infos = self.target.files.infos
        if self.request.rewrite_mode == "full":
            return list(range(len(infos)))
        matched = (n for n, info in enumerate(infos) if info.path in self.match.groups)
        return [n for n in sorted({*matched, *self._files_with_missing_rows}) if self.changed_groups(n)]


def files_with_missing_rows(actions: Actions, target: Target, shape: Shape, profile: Profile) -> frozenset[int]:
    """The numbers of the files whose rows without a hit are deleted."""
    if actions.missing == "keep" or actions.replaces_target:
        return frozenset()
    if actions.missing_scope == "all":
        return frozenset(range(len(target.files)))
    partitions = partition_map(target, shape)
    return frozenset(n for n, footer in enumerate(target.files) if partitions.values(footer) in profile.partitions)
