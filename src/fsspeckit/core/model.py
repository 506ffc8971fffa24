"""What one step of a merge learned, carried to the next.

Everything here is data: frozen, picklable (Spark ships it to executors) and free of I/O. The two result classes
of spec 001 are plain dataclasses, as the spec writes them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core import defaults
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.record import record
from fsspeckit.core.values.calendars import Calendar

if TYPE_CHECKING:
    from fsspeckit.core.footers import Footers

Operation = Literal["rewritten", "inserted", "preserved"]
Replace = Literal["in_place", "new_file"]


class MergeStrategy(enum.StrEnum):
    """What happens to rows whose key exists and to rows whose key is new.

    >>> MergeStrategy.parse("upsert").updates
    True
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
    def updates(self) -> bool:
        return self is not MergeStrategy.INSERT

    @property
    def inserts(self) -> bool:
        return self is not MergeStrategy.UPDATE

    @property
    def incremental(self) -> bool:
        """Can this strategy rewrite only the files that its keys touch?"""
        return self in (MergeStrategy.INSERT, MergeStrategy.UPDATE, MergeStrategy.UPSERT)


@dataclass
class MergeFileMetadata:
    """One file after a merge or a write."""

    path: str
    row_count: int
    operation: Operation
    size_bytes: int | None = None


@dataclass
class MergeResult:
    """What a merge did: exact counts, and every file of the data set by what happened to it.

    `bytes_copied` were taken over from old files as they were, `bytes_encoded` are all others that were written.
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


@dataclass
class WriteResult:
    """What `write_dataset` wrote."""

    mode: str
    rows: int
    files: list[MergeFileMetadata]
    removed_files: list[str] = field(default_factory=list)


@record
class FileInfo:
    """A file as the listing saw it; `same_as` tells that nobody touched the file in between.

    A change of its mode or of its links moves `ctime_ns` as well, so a merge does not go by it; caches do.
    """

    path: str
    size: int
    mtime_ns: int
    inode: int = 0
    etag: str = ""
    ctime_ns: int = field(default=0, compare=False)
    device: int = field(default=0, compare=False)

    def same_as(self, other: FileInfo) -> bool:
        """Is it still the same file? Where there are ETags they say it; the times of a store do not."""
        if self.etag and other.etag:
            return (self.path, self.size, self.etag) == (other.path, other.size, other.etag)
        return self == other


@record
class Bounds:
    """Lower and upper bound of a column in a row group, as order values (see `keys`); both `None`: only nulls."""

    lower: Any
    upper: Any
    nulls: int | None = None


@record
class RowGroup:
    rows: int
    bytes: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict)


@record
class Footer:
    """One data file of the target: where it is, what is in it, and the partition its path names.

    `int96` are the columns that hold INT96 timestamps, on top or within; `calendar` is what dates and instants are
    counted in, `collated` names the columns whose text Spark compares otherwise than byte by byte.
    What is required in a file `by_spark` is no promise: Spark itself reads every column as one that may be null.
    It is `certain` if it was read of the very file that `info` tells of, and no other was in its place meanwhile.
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
        """What travels to another process is without the bulk that whoever opens the file reads anyway."""
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

    `schema` is the unified schema of all files, partition columns included; `stored` are the columns that files
    hold, `partition_columns` those that paths name. `ledger` is what streams recorded (see `target.ledger`).
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
        return frozenset[str]().union(*(f.int96 for f in self.files.kinds))


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a merge: what every source row is brought to, and how keys and partitions are named.

    INT96 says nothing of zones: Spark writes instants in it, and Arrow reads plain times. In the columns `int96` an
    instant of the source is the plain time in UTC. In the key columns `old_instants` a file of another calendar may
    hold instants before 1900. Instants in the names of folders are local to `partition_timezone`.
    """

    schema: pa.Schema
    stored: tuple[str, ...]
    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    int96: frozenset[str] = frozenset()
    partition_timezone: str = "UTC"
    old_instants: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition_in_key(self) -> bool:
        """When every partition column is part of the key, a key cannot move between partitions."""
        return set(self.partitions) <= set(self.keys)


@dataclass(frozen=True, slots=True)
class Profile:
    """What planning needs to know of the source: small, whatever the source's size."""

    rows: int
    null_keys: Mapping[str, int]
    duplicate_keys: int
    duplicate_samples: tuple[tuple[Any, ...], ...]
    partitions: frozenset[tuple[Any, ...]]
    intervals: Mapping[str, Sequence[tuple[Any, Any]] | None]


@dataclass(frozen=True, slots=True)
class Scan:
    """Row groups of one file whose keys are to be compared with the source's."""

    footer: Footer
    row_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Where source keys were found. `rows[path][row_group]` counts matched target rows."""

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

    - `rewrite`: holds `matched_rows` rows whose keys the source has
    - `scan`: its keys were read, none matched
    - `guard`: lies in another partition; its keys were read only to make sure that no key moves
    - `prune`: partition values or statistics prove that no source key is in it
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
    """The merge without the rewrite: exact counts, and for every file what would happen and why.

    Of the files to rewrite, about `bytes_copied` at least would be taken over as they are, since no key lies in their
    row groups, and `bytes_encoded` at most written anew; new rows come on top.
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
    """A finished file in staging, and where the commit puts it (relative to the data set).

    `receipt` is what the storage said of it when it was closed, if it says anything.
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

    `copied` are bytes of the old file that were copied as they were, instead of being decoded and encoded again.
    """

    path: str
    staged: tuple[Staged, ...]
    copied: int = 0
