"""The names of spec 001, for callers who plan, check and replace files themselves.

No merge runs through this module. It is thin over what merges run: listing and footers (`dataset`), pruning and the key
reader (`match`), commits (`commit`). So its answers are those of a merge. `merge` is the PyArrow engine's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from fsspeckit.core import defaults
from fsspeckit.core.commit.replace import create_staging, remove_staging, replace_files
from fsspeckit.core.dataset import partitions
from fsspeckit.core.dataset.footers import read_footer, read_footers
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.dataset.partitions import PartitionMap, identities
from fsspeckit.core.errors import ArgumentError, UnreadableFileError
from fsspeckit.core.footer_columns import Footers
from fsspeckit.core.match.key_reader import read_keys
from fsspeckit.core.match.prune import CANNOT_MATCH, MIGHT_MATCH, bounds_might_match, prune
from fsspeckit.core.model import FileInfo, Footer, Profile, RowGroup, Scan, Shape
from fsspeckit.core.parallel import Threads
from fsspeckit.core.reports import MergeFileMetadata, MergeResult
from fsspeckit.core.storage import Location, locate
from fsspeckit.core.validate import column_names, key_names, no_null_keys, partitions_unmoved
from fsspeckit.core.values import arrays, keys, python_values

__all__ = [
    "ConservativeMembershipChecker",
    "IncrementalFileManager",
    "IncrementalRewritePlan",
    "MergeFileMetadata",
    "MergeResult",
    "ParquetFileMetadata",
    "ParquetMetadataAnalyzer",
    "PartitionPruner",
    "confirm_affected_files",
    "list_dataset_files",
    "merge",
    "parse_hive_partition_path",
    "plan_incremental_rewrite",
    "validate_no_null_keys",
    "validate_partition_column_immutability",
]

_NEW_FILES = "new keys are known when the keys of the affected files are read, and new files are named when written"
_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\|[^/]*\\[^/]*$")


def merge(
    data: pa.Table,
    path: str,
    strategy: Literal["insert", "update", "upsert"],
    key_columns: Sequence[str],
    partition_columns: Sequence[str] | None = None,
    filesystem: Any = None,
    compression: str = defaults.COMPRESSION,
    max_rows_per_file: int = defaults.MAX_ROWS_PER_FILE,
    row_group_size: int = defaults.ROW_GROUP_SIZE,
) -> MergeResult:
    """Merge data into a Parquet data set, rewriting only the files its keys touch. See `PyArrowDatasetIO.merge`.

    New files get the codec and the row-group size of the data set's own files, unless other values than the defaults
    are given.
    """
    from fsspeckit.datasets.pyarrow import PyArrowDatasetIO  # the core imports no engine when it is loaded

    given = {"compression": compression, "max_rows_per_file": max_rows_per_file, "row_group_size": row_group_size}
    layout: Any = {name: value for name, value in given.items() if value != getattr(defaults, name.upper())}
    return PyArrowDatasetIO(filesystem).merge(data, path, strategy, key_columns, partition_columns, **layout)


# Files, partition values and statistics


def list_dataset_files(dataset_path: str, filesystem: Any = None) -> list[str]:
    """List all Parquet data files below a data set directory.

    Hidden names, names that begin with `_` and files that are not Parquet are left out.
    """
    location = locate(dataset_path, filesystem)
    return [location.show(file.path) for file in list_files(location)]


def parse_hive_partition_path(file_path: str, partition_columns: Sequence[str] | None = None) -> dict[str, Any]:
    r"""Read the `column=value` folders of a path, of Windows too; with `partition_columns`, only those.

    >>> parse_hive_partition_path("/data/year=2024/month=12/file.parquet")
    {'year': '2024', 'month': '12'}
    >>> parse_hive_partition_path(r"C:\data\year=2024\file.parquet")
    {'year': '2024'}
    """
    if _WINDOWS_PATH.match(file_path):  # elsewhere a backslash may be part of a value
        file_path = file_path.replace("\\", "/")
    return partitions.parse_hive_partition_path(file_path, partition_columns)


@dataclass
class ParquetFileMetadata:
    """Metadata for a single Parquet file; `column_stats` maps a column to `min`, `max` and `null_count`.

    Bounds are Python values of the column's type (`str`, `date`, `datetime`, `Decimal`, …). A column has no entry if
    its statistics prove nothing, or if Python has no such value (text that is cut within a character, the year 10000).
    """

    path: str
    row_group_count: int
    total_rows: int
    column_stats: dict[str, dict[str, Any]]
    partition_values: dict[str, Any] | None = None


class ParquetMetadataAnalyzer:
    """The statistics of whole files; a merge prunes by those of each row group."""

    def analyze_dataset_files(self, dataset_path: str, filesystem: Any = None) -> list[ParquetFileMetadata]:
        """Read the footers of all data files; a file whose footer cannot be read has no statistics."""
        location = locate(dataset_path, filesystem)
        return [_file_metadata(location, *file) for file in _read_footers(location, None)]


def _read_footers(location: Location, columns: Sequence[str] | None) -> list[tuple[FileInfo, Footer | None]]:
    """The data files with their footers, `None` where one cannot be read."""

    def read(infos: Sequence[FileInfo]) -> list[tuple[FileInfo, Footer | None]]:
        try:
            return list(zip(infos, read_footers(location, infos, columns), strict=True))
        except UnreadableFileError:
            return [(infos[0], None)] if len(infos) == 1 else [file for info in infos for file in read([info])]

    return read(list_files(location))


def _file_metadata(location: Location, info: FileInfo, footer: Footer | None) -> ParquetFileMetadata:
    footer = footer or Footer(info, pa.schema([]), (), partitions.parse_hive_partition_path(info.path))
    groups = [group for group in footer.row_groups if group.rows]
    stats = {f.name: python_values.statistics([g.bounds.get(f.name) for g in groups], f.type) for f in footer.schema}
    known = {name: column for name, column in stats.items() if column is not None}
    where, partition = location.show(info.path), dict(footer.partition) or None
    return ParquetFileMetadata(where, len(footer.row_groups), footer.rows, known, partition)


# Which files may hold the keys, and which do


class PartitionPruner:
    """Pruning by the values that paths name."""

    def identify_candidate_files(
        self,
        file_metadata: Iterable[ParquetFileMetadata],
        key_columns: Sequence[str] | str,
        source_keys: Iterable[Any],
        partition_schema: pa.Schema | None = None,
    ) -> list[str]:
        """Keep the files whose partition holds a row of the source, as far as the source has the columns.

        A partition column that is not part of the key is compared where `source_keys`, as a table or as mappings, has
        it. Values in paths are read in the column's type of `partition_schema`, else of the source.
        """
        files, names = list(file_metadata), key_names(key_columns)
        source = python_values.key_table(names, source_keys, {n for file in files for n in file.partition_values or ()})
        candidates: set[str] = set()
        for columns in {frozenset(file.partition_values or ()) for file in files}:
            same_columns = [file for file in files if frozenset(file.partition_values or ()) == columns]
            possible = _might_hold_keys(
                Footers(map(_without_statistics, same_columns)), names, source, partition_schema
            )
            candidates.update(file.path for file, might in zip(same_columns, possible, strict=True) if might)
        return [file.path for file in files if file.path in candidates]


def _without_statistics(file: ParquetFileMetadata) -> Footer:
    texts = {name: None if value is None else str(value) for name, value in (file.partition_values or {}).items()}
    return Footer(FileInfo(file.path, 0, 0), pa.schema([]), (RowGroup(1, 0),), texts)


def _might_hold_keys(
    files: Footers, names: Sequence[str], source: pa.Table, partition_schema: pa.Schema | None
) -> list[bool]:
    """`prune`, as a merge runs it: could each file hold a key of the source, in a partition of the source?"""
    types = {field.name: arrays.plain_type(field.type) for field in [*source.schema, *(partition_schema or ())]}
    given: dict[str, list[Any]] = {}
    for name in source.column_names:
        if any(name in footer.partition for footer in files):
            with contextlib.suppress(pa.ArrowException):  # values of another type prove nothing
                given[name] = identities(arrays.plain(source.column(name)).cast(types[name]))
    intervals: dict[str, Any] = {}
    for name in names:
        column = arrays.plain(source.column(name))
        stored = [arrays.plain_type(f.schema.field(name).type) for f in files.templates if name in f.schema.names]
        one_order = all(python_values.have_one_order(column.type, dtype) for dtype in stored)
        intervals[name] = keys.intervals(column) if one_order else None
    shape = Shape(pa.schema(types), (), tuple(names), tuple(given))
    profile = Profile(source.num_rows, {}, 0, (), frozenset(zip(*given.values(), strict=True)), intervals)
    folders = PartitionMap.of(files, shape.partitions, [types[name] for name in given])
    return [bool(left.row_groups) and not left.guard for left in prune(files, shape, profile, folders)]


class ConservativeMembershipChecker:
    """Pruning by the statistics of a whole file."""

    def file_might_contain_keys(
        self, file_metadata: ParquetFileMetadata, key_columns: Sequence[str] | str, source_keys: Iterable[Any]
    ) -> bool:
        """Could the file contain any of the source keys? Only statistics that prove the contrary say no."""
        if isinstance(source_keys, Iterator):  # no keys would be left for the next file
            raise ArgumentError("source_keys can be read only once, and every file needs them; give a list.")
        source = python_values.key_table(key_names(key_columns), source_keys)
        for name in source.column_names:
            column, stats = arrays.plain(source.column(name)), file_metadata.column_stats.get(name)
            known = python_values.bounds(stats, file_metadata.total_rows, column.type)
            if not bounds_might_match(known, keys.intervals(column)):
                return CANNOT_MATCH
        return MIGHT_MATCH


def confirm_affected_files(
    candidate_files: Iterable[str], key_columns: Sequence[str] | str, source_keys: Iterable[Any], filesystem: Any = None
) -> list[str]:
    """Scan candidate files to confirm which actually contain source keys; only `key_columns` are read."""
    source = python_values.key_table(key_names(key_columns), source_keys).drop_null()  # nulls match nothing
    candidates = [candidate_files] if isinstance(candidate_files, str) else list(candidate_files)
    if not source.num_rows:
        return []
    with Threads(4) as pool:
        answers = pool.map(lambda path: _contains_any(path, source, filesystem), candidates)
        return [path for path, contains in zip(candidates, answers, strict=True) if contains]


def _contains_any(path: str, source: pa.Table, filesystem: Any) -> bool:
    location, name = _locate_file(path, filesystem)
    info = location.storage.stat(location.at(name))
    if info is None:
        raise FileNotFoundError(path)
    footer = read_footer(location, replace(info, path=name), source.column_names, all_chunks=True)
    shape = _file_shape(footer, source)
    index = keys.KeyIndex([_canonical(source.column(k), shape.schema.field(k).type) for k in shape.keys])
    scan = Scan(footer, tuple(range(len(footer.row_groups))))
    return any((index.find(batch.keys) >= 0).any() for batch in read_keys(location, scan, shape))


def _locate_file(path: str, filesystem: Any) -> tuple[Location, str]:
    """A single file as a data set of its own, keeping the partition folders of its path."""
    location = locate(path, filesystem)
    parts = location.root.split("/")
    depth = next((i for i, part in enumerate(parts) if "=" in part and i), len(parts) - 1)
    name = "/".join(parts[depth:])
    shown = location.shown.removesuffix(name).rstrip("/") or "."
    return Location(location.storage, "/".join(parts[:depth]), shown), name


def _file_shape(footer: Footer, source: pa.Table) -> Shape:
    """The file's columns, with keys in a type that holds both the file's values and the caller's."""
    fields = {field.name: field for field in footer.schema}
    in_path = [n for n in source.column_names if n not in fields and n in footer.partition]
    for name in source.column_names:
        if name not in fields and name not in in_path:
            raise ArgumentError(f"Key column {name!r} not found in {footer.path}. It has: {footer.schema.names}.")
        field = fields.get(name, source.schema.field(name))
        fields[name] = field.with_type(python_values.comparable_type(name, source.column(name), field.type))
    names = tuple(source.column_names)
    return Shape(pa.schema(list(fields.values())), tuple(footer.schema.names), names, tuple(in_path))


def _canonical(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.Array:
    return keys.canonical(arrays.cast(arrays.plain(column), dtype))


# The plan


@dataclass
class IncrementalRewritePlan:
    """Which files an incremental rewrite touches.

    `new_files` stays empty, and `new_files_reason` says why: only a merge knows which keys are new, and it names the
    files that it inserts when it writes them.
    """

    affected_files: list[str]
    unaffected_files: list[str]
    new_files: list[str]
    affected_rows: int
    new_files_reason: str = ""


def plan_incremental_rewrite(
    dataset_path: str,
    source_keys: Iterable[Any],
    key_columns: Sequence[str] | str,
    filesystem: Any = None,
    partition_schema: pa.Schema | None = None,
) -> IncrementalRewritePlan:
    """Plan from metadata alone, by the pruning of a merge: files that may hold a key are affected.

    `source_keys` may have partition columns beside the keys; see `PartitionPruner`. Statistics are those of each row
    group. A file whose footer cannot be read is affected.
    """
    location, names = locate(dataset_path, filesystem), key_names(key_columns)
    files = _read_footers(location, names)
    footers = Footers(footer for _, footer in files if footer is not None)
    named = {name for footer in footers for name in footer.partition}
    source = python_values.key_table(names, source_keys, named)
    possible = _might_hold_keys(footers, names, source, partition_schema)
    excluded = {footer.path for footer, might in zip(footers, possible, strict=True) if not might}
    affected = {info.path: footer for info, footer in files if info.path not in excluded}
    return IncrementalRewritePlan(
        affected_files=[location.show(path) for path in affected],
        unaffected_files=[location.show(info.path) for info, _ in files if info.path not in affected],
        new_files=[],
        affected_rows=sum(footer.rows for footer in affected.values() if footer is not None),
        new_files_reason=_NEW_FILES if source.num_rows else "the source has no keys",
    )


# Files that the caller wrote


class IncrementalFileManager:
    """Stage, replace and clean up files, for callers who bring their own."""

    def __init__(self) -> None:
        self._created: list[Location] = []

    def create_staging_directory(self, base_path: str, filesystem: Any = None) -> str:
        """Make `<base>/.staging_<uuid>` and return its path."""
        self._created.append(create_staging(locate(base_path, filesystem)))
        return self._created[-1].shown

    def atomic_replace_files(
        self, source_files: Sequence[str], target_files: Sequence[str], filesystem: Any = None
    ) -> None:
        """Replace each target file by its source file, all of them or none: see `commit.replace`.

        Sources are gone afterwards, unless they are targets too.
        """
        sources, targets = ([locate(f, filesystem) for f in files] for files in (source_files, target_files))
        if len(sources) != len(targets):
            raise ArgumentError(f"{len(sources)} source files for {len(targets)} target files; give one for each.")
        missing = [source.shown for source in sources if not source.storage.is_plain(source.root)]
        if missing:
            raise FileNotFoundError(f"Staged files not found: {missing}; nothing was replaced.")
        if targets:
            replace_files(sources, targets)

    def cleanup_staging_files(self) -> None:
        """Remove every staging directory that this object created."""
        while self._created:
            remove_staging(self._created.pop())


# Checks of tables, in the words of a merge


def validate_no_null_keys(source_table: pa.Table, key_columns: Sequence[str]) -> None:
    """Reject merges where the source has null keys.

    Raises:
        ValueError: if any key column contains NULL values.
    """
    no_null_keys({name: python_values.column_of(source_table, name).null_count for name in key_names(key_columns)})


def validate_partition_column_immutability(
    source_table: pa.Table, target_table: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]
) -> None:
    """Reject merges that would change partition columns for existing keys.

    Raises:
        ValueError: if a key that is in both tables has another partition value in the source.
    """
    names, moving = key_names(key_columns), column_names("partition_columns", partition_columns) or ()
    validate_no_null_keys(source_table, names)
    ours, theirs = {}, {}
    for name in [*names, *moving]:
        ours[name], theirs[name] = _canonical_pair(source_table, target_table, name)
    positions = keys.KeyIndex([ours[name] for name in names]).find([theirs[name] for name in names])
    matched = positions >= 0
    rows = positions[matched]
    moved = np.zeros(len(rows), dtype=bool)
    for name in moving:
        moved |= keys.differ(ours[name].take(pa.array(rows)), theirs[name].filter(pa.array(matched)))
    samples = keys.sample([python_values.column_of(source_table, name) for name in names], rows[moved][:5].tolist())
    partitions_unmoved(int(moved.sum()), samples, moving)


def _canonical_pair(source_table: pa.Table, target_table: pa.Table, name: str) -> tuple[pa.Array, pa.Array]:
    source, target = python_values.column_of(source_table, name), python_values.column_of(target_table, name)
    dtype = python_values.comparable_type(name, source, target.type)
    return _canonical(source, dtype), _canonical(target, dtype)
