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
from fsspeckit.core.actions import PRESETS, Actions, MatchedRows
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.suggestions import did_you_mean
from fsspeckit.core.values.calendars import Calendar
from fsspeckit.core.values.unify import MixedTypes

if TYPE_CHECKING:
    from fsspeckit.core.footer_columns import Footers

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
    DELETE = "delete"

    @classmethod
    def parse(cls, value: Any, incremental: bool = False) -> MergeStrategy:
        """The strategy of this name. If it is none, the error lists all, or those that may be `incremental`."""
        try:
            return cls(value)
        except ValueError:
            names = [s.value for s in cls if s.actions.incremental or not incremental]
            hint = did_you_mean([value], names)
            if isinstance(value, (list, tuple)):
                hint = f" Name columns by key_columns={value!r}."
            choices = ", ".join(map(repr, names))
            raise ArgumentError(f"Unknown merge strategy {value!r}. Choose one of {choices}.{hint}") from None

    @property
    def actions(self) -> Actions:
        """What this strategy does with matched, new and missing rows."""
        return PRESETS[self.value]


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
class RowOptions:
    """Options about single rows: which rows delete, which are older, and which columns matched rows get.

    `only_keys`: the source only names keys to delete, and its other columns are ignored.
    """

    delete_column: str | None = None
    delete_values: tuple[Any, ...] | None = None
    sequence_by: tuple[str, ...] = ()
    update_columns: tuple[str, ...] | None = None
    exclude_columns: tuple[str, ...] | None = None
    only_keys: bool = False

    @property
    def some_columns(self) -> bool:
        """Do matched rows keep the values of some columns?"""
        return self.update_columns is not None or self.exclude_columns is not None


DEFAULT_ROW_OPTIONS = RowOptions()


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """Whether new columns and wider types of the source change the target, and which files get them.

    `all_files`: files without a changed row get new columns too, but at most `max_bytes` of them. `only_columns`: no
    column changes its type, because the catalog that describes the target cannot follow.
    """

    evolve: bool = False
    all_files: bool = True
    max_bytes: int = defaults.EVOLVE_MAX_BYTES
    only_columns: bool = False


REFUSE_SCHEMA_CHANGES = SchemaChanges()


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Which source rows are delete rows: those with one of the `values` in `column`, or, without values, with `true`.

    The spool marks them in a Boolean column `flag`, a name that the target does not have. All their other columns are
    null, except the key and the sequence.
    """

    column: str
    values: tuple[Any, ...] | None
    flag: str


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a merge: the schema that source rows are cast to, and the key and partition columns.

    Source rows have the columns `in_source`, by default all. Matched rows get the columns `updated`, by default all
    of these. A source row that is older by the columns `sequence` changes nothing. `deletes` marks delete rows; with
    `only_keys` all rows are.

    INT96 has no zone: Spark writes instants, and Arrow reads times without a zone. In the columns `int96` an instant
    of the source becomes the time in UTC. In the key columns `old_instants` a file with another calendar may have
    instants before 1900. Instants in folder names are in `partition_timezone`. `mixed` are the columns whose type
    differs between files, with the types that are not the shape's (see `values.unify`). `local_times` gives the zone of
    source columns whose times have none. Text in the columns `max_lengths` may not have more characters.

    `added` columns are new: only the source has them. `extended` columns of the target get new struct fields; their
    types have these fields, but no wider numbers. `evolves`: types may be wider than those of the target.
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
    in_source: tuple[str, ...] | None = None
    updated: tuple[str, ...] | None = None
    sequence: tuple[str, ...] = ()
    deletes: DeleteRows | None = None
    only_keys: bool = False
    max_lengths: Mapping[str, int] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    extended: Mapping[str, pa.DataType] = field(default_factory=dict)
    evolves: bool = False

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns that source rows have, in the order of the schema."""
        return tuple(self.schema.names) if self.in_source is None else self.in_source

    @property
    def updated_columns(self) -> tuple[str, ...]:
        """The columns that matched rows get from source rows."""
        return self.source_columns if self.updated is None else self.updated

    @property
    def partition_in_key(self) -> bool:
        """Is every partition column part of the key? Then a key cannot move between partitions."""
        return set(self.partitions) <= set(self.keys)

    @property
    def source_has_partitions(self) -> bool:
        """Do source rows have all partition columns?"""
        return self.in_source is None or set(self.partitions) <= set(self.in_source)

    @property
    def compared_partitions(self) -> tuple[str, ...]:
        """The partition columns that are compared with those of matched rows, to find rows that would move."""
        return () if self.partition_in_key or not self.source_has_partitions else self.partitions


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts about the source that planning needs; small for sources of any size.

    `partitions` are those of rows that are not delete rows; `delete_partitions` those of delete rows, if the key has
    the partition columns. `columns_to_retype` are the columns with a value that the type of one of the target's files
    cannot hold.
    """

    rows: int
    null_keys: Mapping[str, int]
    duplicate_keys: int
    duplicate_samples: tuple[tuple[Any, ...], ...]
    partitions: frozenset[tuple[Any, ...]]
    intervals: Mapping[str, Sequence[tuple[Any, Any]] | None]
    columns_to_retype: frozenset[str] = frozenset()
    delete_rows: int = 0
    delete_partitions: frozenset[tuple[Any, ...]] = frozenset()
    null_sequences: Mapping[str, int] = field(default_factory=dict)

    @property
    def write_rows(self) -> int:
        """The rows that are not delete rows."""
        return self.rows - self.delete_rows


@dataclass(frozen=True, slots=True)
class Scan:
    """Row groups of one file whose keys are matched with the source's."""

    footer: Footer
    row_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The counts of a match. `groups[path][row_group]` are matched target rows.

    `keys` source rows have a key of the target; delete rows are not counted. `elsewhere` of them match a row in another
    partition that they would replace. `moved` of these match none in their own partition: they move.
    """

    groups: Mapping[str, Mapping[int, MatchedRows]]
    keys: int
    elsewhere: int = 0
    elsewhere_samples: tuple[tuple[Any, ...], ...] = ()
    moved: int = 0

    def rows_in(self, path: str) -> MatchedRows:
        groups = self.groups.get(path)
        return sum(groups.values(), MatchedRows()) if groups else MatchedRows()

    @property
    def total(self) -> MatchedRows:
        return sum((self.rows_in(path) for path in self.groups), MatchedRows())


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How new files are written. Rewritten files keep their own layout.

    `None`: as the data set's own files, or by default.
    """

    compression: str | None = None
    max_rows_per_file: int = defaults.MAX_ROWS_PER_FILE
    row_group_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_rows_per_file", "row_group_size"):
            value = getattr(self, name)
            if value is None and name == "row_group_size":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ArgumentError(f"{name} must be a positive whole number, not {value!r}.")
        if self.compression is not None and str(self.compression).lower() not in defaults.CODECS:
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
    `keeps_rows` if no row changed, and the file only took new types, columns or another ledger.
    `changed` is the number of replaced rows whose new values differ from the old ones.
    """

    path: str
    staged: tuple[Staged, ...]
    copied: int = 0
    spliced: bool = False
    keeps_rows: bool = False
    removed: bool = False
    changed: int = 0
