"""What callers get: results and plans of merges and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, get_args

from fsspeckit.core.report_text import Line, Report, Summary, count, counts, lines_of, size

Operation = Literal["rewritten", "inserted", "preserved"]
Action = Literal["rewrite", "scan", "guard", "prune"]


KeySpan = tuple[Any, Any]
"""The smallest and greatest value of a column, as order values (see `values.keys`); both `None` if there are none."""


@dataclass(frozen=True, slots=True)
class KeyMap:
    """Where the keys of files and source lie, for the map on a report's page.

    `ranges` are those of one `column` of the key (or of the condition of a delete), by file; `None` where statistics
    are missing. In very large data sets some files are left out. `source` are intervals that cover the source's keys;
    `None` if they have no order. `keys` are all key columns.
    """

    column: str
    type: str
    keys: tuple[str, ...]
    ranges: Mapping[str, KeySpan | None]
    source: tuple[KeySpan, ...] | None = ()


@dataclass
class MergeFileMetadata:
    """One file after a merge or a write."""

    path: str
    row_count: int
    operation: Operation
    size_bytes: int | None = None


def _lines(files: Sequence[MergeFileMetadata], removed: Sequence[str]) -> list[Line]:
    lines = lines_of(get_args(Operation), ((f.operation, f.row_count, f.size_bytes or 0) for f in files))
    return [*lines, ("removed", len(removed), 0, 0)] if removed else lines


@dataclass(repr=False)
class MergeResult(Report):
    """What a merge did: exact counts, and what happened to each file of the data set.

    `files` has all files of the data set after the merge; `rewritten_files`, `inserted_files` and `preserved_files` are
    their paths by operation, and `removed_files` are paths that no longer exist.
    `bytes_copied` were copied from old files without decoding, `bytes_encoded` are all other bytes that were written.
    `spliced_files` is the number of files rewritten with unchanged row groups and columns copied as bytes;
    `reencoded_files` were decoded and encoded completely, and the logger `fsspeckit.rewrite` gives the reason (INFO).
    `retyped_columns` had another type, or different types in different files, and have the given type in all files
    since this merge. `added_columns` are new in the data set, with their types (`on_schema_change="evolve"`); new
    struct fields are named `column.field`. `retyped_files` were rewritten for these reasons only; no row changed.
    `skipped` target rows stayed because the source's row is older (`sequence_by`). `moved` rows went to another
    partition; they are counted as updated too. `changed` of the updated rows have other values than before; `None` if
    that was not compared, as in a full rewrite by `full_merge`. `replayed`: the batch was committed before, and nothing
    was done.
    The merge began at `started` and took `seconds`, also by phase: waiting for the `lock`, reading the `footers` of the
    target, evaluating the `source`, `match` of keys, `write` of new files, `sync` to the disk with a check of their
    rows, and `commit`. `version` is that of fsspeckit, `application_id` that of Spark's application.
    `kept_copies` are folders in which undoable commits keep earlier versions of files; they may have deleted rows.
    `key_map` has the key ranges of files for the map on the page.
    """

    strategy: str
    source_count: int
    target_count_before: int
    target_count_after: int
    inserted: int
    updated: int
    deleted: int
    files: list[MergeFileMetadata]
    rewritten_files: list[str] = field(default_factory=list)
    inserted_files: list[str] = field(default_factory=list)
    preserved_files: list[str] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)
    bytes_copied: int = 0
    bytes_encoded: int = 0
    spliced_files: int = 0
    reencoded_files: int = 0
    retyped_files: list[str] = field(default_factory=list)
    retyped_columns: dict[str, str] = field(default_factory=dict)
    skipped: int = 0
    moved: int = 0
    changed: int | None = None
    added_columns: dict[str, str] = field(default_factory=dict)
    kept_copies: list[str] = field(default_factory=list)
    replayed: bool = False
    started: datetime | None = None
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    engine: str = ""
    version: str = ""
    application_id: str | None = None
    key_map: KeyMap | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """All fields but `key_map`, as JSON has them.

        >>> result = MergeResult("upsert", 1, 1, 2, 1, 0, 0, [])
        >>> result.to_dict()["inserted"]
        1
        """
        return {**without_map(self), "started": None if self.started is None else self.started.isoformat()}

    @property
    def files_changed(self) -> bool:
        """Did the merge write or remove a file?"""
        return bool(self.rewritten_files or self.inserted_files or self.removed_files)

    @property
    def total(self) -> int:
        """The number of rows after the merge; another name of `target_count_after`."""
        return self.target_count_after

    @property
    def creates_target(self) -> bool:
        """Was there no data set at the path before?"""
        old = self.removed_files or any(file.operation != "inserted" for file in self.files)
        return bool(self.files) and not old and self.inserted > 0

    def _summary(self) -> Summary:
        return Summary(f"{self.strategy}: {counts(self)}", _lines(self.files, self.removed_files))


@dataclass(repr=False)
class WriteResult(Report):
    """What `write_dataset` wrote.

    `retyped_files` are existing files that were rewritten without a changed row: with a wider type of a column, because
    new rows have values that their own type could not hold, with columns that they lacked, or with the records of
    streams. `removed_rows` are the rows of files that were replaced or removed; `None` if one of these files could not
    be read. `added_columns` are new in the data set, with their types.
    """

    mode: str
    rows: int
    files: list[MergeFileMetadata]
    removed_files: list[str] = field(default_factory=list)
    retyped_files: list[str] = field(default_factory=list)
    removed_rows: int | None = 0
    added_columns: dict[str, str] = field(default_factory=dict)

    def _summary(self) -> Summary:
        return Summary(f"{self.mode}: {count(self.rows, 'row')}", _lines(self.files, self.removed_files))


@dataclass(frozen=True, repr=False)
class WritePlan(Report):
    """What `write_dataset` would do: exact counts, and the files that would be removed or rewritten.

    `removed_rows` is `None` if a file that would be removed cannot be read. `new_rows` are the rows of new files by
    folder (`""` if the data set is not partitioned). `emptied_partitions` are folders that would lose their last file.
    `added_columns` would be new in the data set, with their types.
    """

    mode: str
    rows: int
    removed_rows: int | None
    removed_files: tuple[str, ...]
    retyped_files: tuple[str, ...]
    new_rows: Mapping[str, int]
    new_partitions: tuple[str, ...]
    emptied_partitions: tuple[str, ...]
    added_columns: Mapping[str, str] = field(default_factory=dict)

    def _lines(self) -> list[Line]:
        groups = (("rewritten", self.retyped_files), ("removed", self.removed_files))
        return [(label, len(files), 0, 0) for label, files in groups if files]

    def _summary(self) -> Summary:
        return Summary(f"plan of {self.mode}: {count(self.rows, 'row')}", self._lines())


@dataclass(frozen=True, repr=False)
class KeptCommit(Report):
    """A commit that kept the files that it replaced or removed (`undoable=True`), as `history` lists it.

    `counts` are those of its result. The kept files, of `bytes` in all, are in `folder`. The one that `is_next` is the
    first to be undone; `changes` say how the data set differs from what that commit left, and prevent it.
    """

    id: str
    operation: str
    committed_at: datetime
    counts: Mapping[str, int]
    kept_files: tuple[str, ...]
    bytes: int
    folder: str
    is_next: bool
    changes: tuple[str, ...] = ()

    def _summary(self) -> Summary:
        title = f"{self.operation} of {self.committed_at:%Y-%m-%d %H:%M}: {_counts(self.counts)}"
        kept = f"; keeps {count(len(self.kept_files), 'file')}, {size(self.bytes)}"
        return Summary(title + kept, notes=self.changes)


@dataclass(frozen=True, repr=False)
class UndoResult(Report):
    """The commit that was undone, the files that were put back, and the files of the commit that were removed."""

    operation: str
    committed_at: datetime
    counts: Mapping[str, int]
    restored_files: list[str]
    removed_files: list[str]

    def _summary(self) -> Summary:
        files = f"{count(len(self.restored_files), 'file')} put back, {count(len(self.removed_files), 'file')} removed"
        title = f"undone: {self.operation} of {self.committed_at:%Y-%m-%d %H:%M}: {_counts(self.counts)}"
        return Summary(title, notes=[files])


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count(number)}" for name, number in counted.items() if number)


def without_map(report: Any) -> dict[str, Any]:
    """The fields of a report for JSON: the map has the raw values of statistics, and may be large."""
    fields = asdict(replace(report, key_map=None))
    del fields["key_map"]
    return fields


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What the merge does with one file, and why.

    - `rewrite`: contains rows to update or delete; or none, and takes the common type of a column
    - `scan`: its key columns were read, and no row has to be replaced
    - `guard`: is in another partition; its key columns were read to find keys that would move
    - `prune`: partition values or statistics prove that it contains no source key

    `matched_rows` have a key of the source. `updated_rows` are replaced, `deleted_rows` removed, and `skipped_rows`
    stay because the source's row is older. `changed_rows` of the updated rows get other values; `None` if the plan did
    not compare them. With `plan(compare=True)` a file whose matched rows are all equal already is a `scan`.
    """

    path: str
    action: Action
    reason: str
    rows: int
    bytes: int
    row_groups: int
    scanned_row_groups: int = 0
    matched_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    skipped_rows: int = 0
    changed_rows: int | None = None


@dataclass(frozen=True, repr=False)
class MergePlan(Report):
    """What a merge would do: exact counts, and the action for each file with its reason.

    `retyped_columns` have another type, or different types in different files now, and would have the given type in all
    files. `added_columns` would be new in the data set, with their types; new struct fields are named `column.field`.

    `bytes_copied` estimates how many bytes of the rewritten files would at least be copied, because their row groups
    contain no matched row; at most `bytes_encoded` would be encoded again. New rows are not included.

    `new_rows` are the rows of new files by folder (`""` if the data set is not partitioned). `new_partitions` are
    folders that do not exist yet, `emptied_partitions` those that lose their last file. `key_map` has the key ranges of
    files for the map on the page.

    `changed` of the updated rows would have other values than now; `None` without `plan(compare=True)`.
    """

    strategy: str
    key_columns: tuple[str, ...]
    partition_columns: tuple[str, ...]
    source_count: int
    target_count_before: int
    inserted: int
    updated: int
    deleted: int
    files: tuple[FilePlan, ...]
    hints: tuple[str, ...] = ()
    bytes_copied: int = 0
    bytes_encoded: int = 0
    retyped_columns: Mapping[str, str] = field(default_factory=dict)
    skipped: int = 0
    moved: int = 0
    new_rows: Mapping[str, int] = field(default_factory=dict)
    new_partitions: tuple[str, ...] = ()
    emptied_partitions: tuple[str, ...] = ()
    added_columns: Mapping[str, str] = field(default_factory=dict)
    changed: int | None = None
    key_map: KeyMap | None = field(default=None, compare=False)

    @property
    def target_count_after(self) -> int:
        return self.target_count_before + self.inserted - self.deleted

    @property
    def creates_target(self) -> bool:
        """Is there no data set at the path yet?"""
        return not self.files and self.inserted > 0

    def _lines(self) -> list[Line]:
        return lines_of(get_args(Action), ((f.action, f.rows, f.bytes) for f in self.files))

    def _summary(self) -> Summary:
        return Summary(f"plan of {self.strategy}: {counts(self)}", self._lines(), self.hints)

    def by_action(self, action: Action) -> tuple[FilePlan, ...]:
        return tuple(f for f in self.files if f.action == action)


@dataclass(frozen=True, slots=True)
class BinPlan:
    """Files of one partition that a compaction rewrites together, and the reason. `new_files` is an estimate."""

    folder: str
    files: int
    rows: int
    bytes: int
    reason: str
    new_files: int


@dataclass(frozen=True, repr=False)
class CompactPlan(Report):
    """What a compaction would do. `files_after` is an estimate: sizes are known when files are written."""

    files_before: int
    files_after: int
    bytes_before: int
    rows: int
    bins: tuple[BinPlan, ...] = ()

    @property
    def bytes_to_rewrite(self) -> int:
        return sum(b.bytes for b in self.bins)

    def _summary(self) -> Summary:
        files = f"{count(self.files_before, 'file')} → about {count(self.files_after)}"
        groups = {b.reason: [g for g in self.bins if g.reason == b.reason] for b in self.bins}
        lines = [
            (reason, sum(b.files for b in bins), sum(b.rows for b in bins), sum(b.bytes for b in bins))
            for reason, bins in groups.items()
        ]
        return Summary(f"plan of compact: {files if self.bins else 'nothing to do'}", lines)


@dataclass(frozen=True, repr=False)
class CompactResult(Report):
    """What a compaction did. No row changed.

    `bytes_copied` of `bytes_written` were copied from old files without decoding. `new_files` and `removed_files` are
    paths.
    """

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    commits: int
    bytes_written: int = 0
    bytes_copied: int = 0
    new_files: list[str] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)

    def _summary(self) -> Summary:
        if not self.commits:
            return Summary(f"compact: nothing to do; {count(self.files_after, 'file')} of {size(self.bytes_after)}")
        files = f"{count(self.files_before)} → {count(self.files_after, 'file')}"
        sizes = f"{size(self.bytes_before)} → {size(self.bytes_after)}"
        written = f"{size(self.bytes_written)} written, {size(self.bytes_copied)} of them copied without decoding"
        return Summary(f"compact: {files}, {sizes}; {count(self.rows, 'row')}", notes=[written])
