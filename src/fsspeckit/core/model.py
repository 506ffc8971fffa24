"""The values that one step of a merge passes to the next.

They are frozen, picklable (Spark sends them to executors) and do no I/O. The two result classes of spec 001 are plain
dataclasses, as in the spec.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core import defaults
from fsspeckit.core.actions import PRESETS, Actions
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.values.calendars import Calendar
from fsspeckit.core.values.unify import MixedTypes

if TYPE_CHECKING:
    from fsspeckit.core.footer_columns import Footers

Operation = Literal["rewritten", "inserted", "preserved"]
Replace = Literal["in_place", "new_file"]


class MergeStrategy(enum.StrEnum):
    """The names of the strategies; each is a preset of `Actions`.

    >>> MergeStrategy.parse("update").actions.new
    'skip'
    """

    INSERT = "insert"
    UPDATE = "update"
    UPSERT = "upsert"
    FULL_MERGE = "full_merge"
    DEDUPLICATE = "deduplicate"

    @classmethod
    def parse(cls, value: Any) -> MergeStrategy:
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(s.value) for s in cls)
            hint = f" Name columns by key_columns={value!r}." if isinstance(value, (list, tuple)) else ""
            raise ArgumentError(f"Unknown merge strategy {value!r}. Choose one of {names}.{hint}") from None

    @property
    def actions(self) -> Actions:
        """What this strategy does with matched, new and missing rows."""
        return PRESETS[self.value]


@dataclass
class MergeFileMetadata:
    """One file after a merge or a write."""

    path: str
    row_count: int
    operation: Operation
    size_bytes: int | None = None


@dataclass
class MergeResult:
    """What a merge did: exact counts, and what happened to each file of the data set.

    `files` has all files of the data set after the merge; `rewritten_files`, `inserted_files` and `preserved_files` are
    their paths by operation, and `removed_files` are paths that no longer exist.
    `bytes_copied` were copied from old files without decoding, `bytes_encoded` are all other bytes that were written.
    `spliced_files` is the number of files rewritten with unchanged row groups and columns copied as bytes;
    `reencoded_files` were decoded and encoded completely, and the logger `fsspeckit.rewrite` gives the reason (INFO).
    `retyped_columns` had different types in different files, and have the given type in all files since this merge;
    `retyped_files` were rewritten for that reason only, without a changed row.
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

    @property
    def total(self) -> int:
        """The number of rows after the merge; another name of `target_count_after`."""
        return self.target_count_after


@dataclass
class WriteResult:
    """What `write_dataset` wrote.

    `retyped_files` are existing files that were rewritten with a wider type of a column, because new rows have values
    that their own type could not hold.
    """

    mode: str
    rows: int
    files: list[MergeFileMetadata]
    removed_files: list[str] = field(default_factory=list)
    retyped_files: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as it was listed; `same_as` checks that it has not changed since.

    A change of mode or links changes `ctime_ns` too, so a merge ignores it; caches compare it.
    """

    path: str
    size: int
    mtime_ns: int
    inode: int = 0
    etag: str = ""
    ctime_ns: int = field(default=0, compare=False)
    device: int = field(default=0, compare=False)

    def same_as(self, other: FileInfo) -> bool:
        """Is it the same file, unchanged? ETags decide if there are any: times of object stores are unreliable."""
        if self.etag and other.etag:
            return (self.path, self.size, self.etag) == (other.path, other.size, other.etag)
        return self == other


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower and upper bound of a column in a row group, as order values (see `keys`); both `None`: only nulls."""

    lower: Any
    upper: Any
    nulls: int | None = None


@dataclass(frozen=True, slots=True)
class RowGroup:
    rows: int
    bytes: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Footer:
    """One data file of the target: its path, contents, and the partition values of its path.

    `int96` are the columns with INT96 timestamps, also nested ones; `calendar` is the calendar of dates and instants;
    `collated` are the columns whose text Spark does not compare byte by byte.
    Required columns of a file `by_spark` are no promise: Spark reads every column as nullable.
    `certain`: the footer was read from the file that `info` describes, and the file was not replaced meanwhile.
    """

    info: FileInfo
    schema: pa.Schema
    row_groups: tuple[RowGroup, ...]
    partition: Mapping[str, str | None] = field(default_factory=dict)
    metadata: pq.FileMetaData | None = None
    ledger: Mapping[str, str] = field(default_factory=dict)
    int96: frozenset[str] = frozenset()
    calendar: Calendar = field(default_factory=Calendar)
    collated: Mapping[str, str] = field(default_factory=dict)
    by_spark: bool = False
    certain: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Without `metadata` when pickled: it is large, and opening the file reads it again."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return type(self), tuple((values | {"metadata": None}).values())

    @property
    def path(self) -> str:
        return self.info.path

    @property
    def rows(self) -> int:
        return sum([group.rows for group in self.row_groups])


@dataclass(frozen=True, slots=True)
class Target:
    """The data set before the merge.

    `schema` is the unified schema of all files, with partition columns; `stored` are the columns in files,
    `partition_columns` those in paths. `ledger` has the committed batches of streams (see `dataset.ledger`).
    """

    files: Footers
    schema: pa.Schema | None
    stored: tuple[str, ...]
    partition_columns: tuple[str, ...]
    ledger: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.files.group_rows)

    @property
    def int96(self) -> frozenset[str]:
        return frozenset[str]().union(*(f.int96 for f in self.files.templates))


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a merge: the schema that source rows are cast to, and the key and partition columns.

    INT96 has no zone: Spark writes instants, and Arrow reads times without a zone. In the columns `int96` an instant
    of the source becomes the time in UTC. In the key columns `old_instants` a file with another calendar may have
    instants before 1900. Instants in folder names are in `partition_timezone`. `mixed` are the columns whose type
    differs between files, with the types that are not the shape's (see `values.unify`). `local_times` gives the zone of
    source columns whose times have none.
    """

    schema: pa.Schema
    stored: tuple[str, ...]
    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    int96: frozenset[str] = frozenset()
    partition_timezone: str = "UTC"
    old_instants: Mapping[str, str] = field(default_factory=dict)
    mixed: MixedTypes = field(default_factory=dict)
    local_times: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition_in_key(self) -> bool:
        """Is every partition column part of the key? Then a key cannot move between partitions."""
        return set(self.partitions) <= set(self.keys)


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts about the source that planning needs; small for sources of any size.

    `columns_to_retype` are the columns with a value that the type of one of the target's files cannot hold.
    """

    rows: int
    null_keys: Mapping[str, int]
    duplicate_keys: int
    duplicate_samples: tuple[tuple[Any, ...], ...]
    partitions: frozenset[tuple[Any, ...]]
    intervals: Mapping[str, Sequence[tuple[Any, Any]] | None]
    columns_to_retype: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scan:
    """Row groups of one file whose keys are matched with the source's."""

    footer: Footer
    row_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The counts of a match. `rows[path][row_group]` are matched target rows, `keys` matched source keys."""

    rows: Mapping[str, Mapping[int, int]]
    keys: int
    moved: int = 0
    moved_samples: tuple[tuple[Any, ...], ...] = ()

    def rows_in(self, path: str) -> int:
        groups = self.rows.get(path)
        return sum(groups.values()) if groups else 0

    @property
    def total(self) -> int:
        return sum(self.rows_in(path) for path in self.rows)


Action = Literal["rewrite", "scan", "guard", "prune"]


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What the merge does with one file, and why.

    - `rewrite`: contains `matched_rows` rows with a key of the source; or none, and takes the common type of a column
    - `scan`: its key columns were read, and no row has to be replaced
    - `guard`: is in another partition; its key columns were read to find keys that would move
    - `prune`: partition values or statistics prove that it contains no source key
    """

    path: str
    action: Action
    reason: str
    rows: int
    bytes: int
    row_groups: int
    scanned_row_groups: int = 0
    matched_rows: int = 0


@dataclass(frozen=True)
class MergePlan:
    """What a merge would do: exact counts, and the action for each file with its reason.

    `retyped_columns` have different types in different files now, and would have the given type in all files.

    `bytes_copied` estimates how many bytes of the rewritten files would at least be copied, because their row groups
    contain no matched row; at most `bytes_encoded` would be encoded again. New rows are not included.
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

    @property
    def target_count_after(self) -> int:
        return self.target_count_before + self.inserted - self.deleted

    def by_action(self, action: Action) -> tuple[FilePlan, ...]:
        return tuple(f for f in self.files if f.action == action)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How new files are written. Rewritten files keep their own layout."""

    compression: str = defaults.COMPRESSION
    max_rows_per_file: int = defaults.MAX_ROWS_PER_FILE
    row_group_size: int = defaults.ROW_GROUP_SIZE

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "row_group_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ArgumentError(f"{name} must be a positive whole number, not {value!r}.")
        if str(self.compression).lower() not in defaults.CODECS:
            raise ArgumentError(
                f"Unknown compression {self.compression!r}. Use 'snappy', 'zstd', 'gzip', 'lz4', 'brotli' or 'none'."
            )


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished file in staging, and its path after the commit, relative to the data set.

    `receipt` is what the storage returned when the file was closed, if anything.
    """

    staged: str
    path: str
    rows: int
    size: int
    replaces: str | None = None
    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The outcome of one rewrite: the staged files, or none if every matched row already equals the source's.

    A file that is `removed` lost all rows, and nothing is staged in its place.

    `copied` are bytes of the old file that were copied as they were, instead of being decoded and encoded again. A file
    that is not `spliced` was decoded and encoded whole.
    `only_types` if no row changed, and the file took the common type of a column.
    `changed` is the number of replaced rows whose new values differ from the old ones.
    """

    path: str
    staged: tuple[Staged, ...]
    copied: int = 0
    spliced: bool = False
    only_types: bool = False
    removed: bool = False
    changed: int = 0
