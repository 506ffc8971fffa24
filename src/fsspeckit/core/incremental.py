"""The door of spec 001: its names, thin over the code that the pipeline runs."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.core.commit import staging
from fsspeckit.core.commit.session import writing
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import MergeFileMetadata, MergeResult, Staged
from fsspeckit.core.plan.confirm import confirm_affected_files
from fsspeckit.core.plan.prune import (
    ConservativeMembershipChecker,
    ParquetFileMetadata,
    ParquetMetadataAnalyzer,
    PartitionPruner,
    key_table,
)
from fsspeckit.core.plan.validate import validate_no_null_keys, validate_partition_column_immutability
from fsspeckit.core.storage import Location, Storage, locate
from fsspeckit.core.target.listing import is_data_file, list_dataset_files, list_files
from fsspeckit.core.target.partitions import parse_hive_partition_path

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

_CHUNK = 8 << 20


def merge(
    data: pa.Table,
    path: str,
    strategy: Literal["insert", "update", "upsert"],
    key_columns: Sequence[str],
    partition_columns: Sequence[str] | None = None,
    filesystem: Any = None,
    compression: str = "snappy",
    max_rows_per_file: int = 5_000_000,
    row_group_size: int = 500_000,
) -> MergeResult:
    """Merge data into a Parquet data set, rewriting only the files its keys touch. See `PyArrowDatasetIO.merge`."""
    from fsspeckit.datasets.pyarrow import PyArrowDatasetIO  # the core imports no engine when it is loaded

    return PyArrowDatasetIO(filesystem).merge(
        data,
        path,
        strategy,
        key_columns,
        partition_columns,
        compression=compression,
        max_rows_per_file=max_rows_per_file,
        row_group_size=row_group_size,
    )


@dataclass
class IncrementalRewritePlan:
    """Which files an incremental rewrite touches."""

    affected_files: list[str]
    unaffected_files: list[str]
    new_files: list[str]
    affected_rows: int


def plan_incremental_rewrite(
    dataset_path: str,
    source_keys: Iterable[Any],
    key_columns: Sequence[str] | str,
    filesystem: Any = None,
    partition_schema: pa.Schema | None = None,
) -> IncrementalRewritePlan:
    """Plan from metadata alone: files that partition values and statistics cannot prove free of the keys are affected.

    `new_files` is empty: which keys are new is known only once the affected files' keys are read
    (`confirm_affected_files`, or `plan` of a `DatasetIO`).
    """
    keys = key_table(key_columns, source_keys)
    files = ParquetMetadataAnalyzer().analyze_dataset_files(dataset_path, filesystem)
    admitted = set(PartitionPruner().identify_candidate_files(files, keys.column_names, keys, partition_schema))
    checker = ConservativeMembershipChecker()
    affected = [f for f in files if f.path in admitted and checker.file_might_contain_keys(f, keys.column_names, keys)]
    paths = {f.path for f in affected}
    return IncrementalRewritePlan(
        affected_files=[f.path for f in affected],
        unaffected_files=[f.path for f in files if f.path not in paths],
        new_files=[],
        affected_rows=sum(f.total_rows for f in affected),
    )


class IncrementalFileManager:
    """Stage, replace and clean up files, for callers who bring their own."""

    def __init__(self) -> None:
        self._created: list[tuple[Storage, str]] = []

    def create_staging_directory(self, base_path: str, filesystem: Any = None) -> str:
        """Make `<base>/.staging_<uuid>` and return its path."""
        location = locate(base_path, filesystem)
        name = f"{staging.PREFIX}{uuid.uuid4().hex}"
        location.storage.make_folder(location.at(name))
        self._created.append((location.storage, location.at(name)))
        return location.show(name)

    def atomic_replace_files(
        self, source_files: Sequence[str], target_files: Sequence[str], filesystem: Any = None
    ) -> None:
        """Replace each target file by its source file, all of them or none: one commit to the folder they share.

        Sources are gone afterwards, unless they are targets too.
        """
        sources, targets = ([locate(f, filesystem) for f in files] for files in (source_files, target_files))
        if len(sources) != len(targets):
            raise ArgumentError(f"{len(sources)} source files for {len(targets)} target files; give one for each.")
        foreign = [target.shown for target in targets if not is_data_file(target.name)]
        if foreign:
            raise ArgumentError(f"Not names of data files: {foreign}; nothing was replaced.")
        missing = [source.shown for source in sources if not source.storage.is_plain(source.root)]
        if missing:
            raise FileNotFoundError(f"Staged files not found: {missing}; nothing was replaced.")
        if targets:
            _replace_in_one_commit(sources, targets)

    def cleanup_staging_files(self) -> None:
        """Remove every staging directory that this object created."""
        while self._created:
            storage, path = self._created.pop()
            if storage.is_dir(path):
                staging.remove(storage, path)


def _replace_in_one_commit(sources: Sequence[Location], targets: Sequence[Location]) -> None:
    """Copies of the sources are committed: until then they are the caller's, whatever happens."""
    root = posixpath.commonpath([target.parent for target in targets])
    if root == "/":
        raise ArgumentError(f"{[t.shown for t in targets]} have no folder in common; nothing was replaced.")
    shared = Location(targets[0].storage, root, root)
    with writing(shared) as session:
        files = {info.path: info for info in list_files(shared)}
        folder, staged = session.stage(()), []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            staged.append(Staged(f"file-{number:05d}", posixpath.relpath(target.root, root), rows=0, size=0))
            copy = posixpath.join(folder, staged[-1].staged)
            _copy(source, replace(shared, root=copy))
            if staged[-1].path in files:
                shared.storage.copy_mode(target.root, copy)
        session.commit(staged, [], tuple(files.values()))
    for source in {s.root: s for s in sources}.values():
        if source.root not in {target.root for target in targets}:
            with contextlib.suppress(OSError):
                source.storage.remove(source.root)


def _copy(source: Location, target: Location) -> None:
    with source.storage.open_input(source.root) as file, target.storage.open_output(target.root) as sink:
        while chunk := file.read(_CHUNK):
            sink.write(chunk)
    target.storage.sync_file(target.root)
