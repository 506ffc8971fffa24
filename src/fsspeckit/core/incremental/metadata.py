"""Files of a data set, and what their footers say of them: `target.listing` and `target.footers`, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.core.errors import UnreadableFileError
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.storage import Location, locate
from fsspeckit.core.target.footers import read_footer
from fsspeckit.core.target.listing import list_files


def list_dataset_files(dataset_path: str, filesystem: Any = None) -> list[str]:
    """List all Parquet data files below a data set directory.

    Hidden names, names that begin with `_` and files that are not Parquet are left out.
    """
    location = locate(dataset_path, filesystem)
    return [location.show(file.path) for file in list_files(location)]


@dataclass
class ParquetFileMetadata:
    """Metadata for a single Parquet file; `column_stats` maps a column to `min`, `max` and `null_count`.

    A column without an entry has statistics that prove nothing. Text bounds are bytes, since a bound may be cut
    within a character; times are nanoseconds and dates are days since 1970.
    """

    path: str
    row_group_count: int
    total_rows: int
    column_stats: dict[str, dict[str, Any]]
    partition_values: dict[str, Any] | None = None


class ParquetMetadataAnalyzer:
    """The statistics of whole files; the merge itself goes by those of each row group."""

    def analyze_dataset_files(self, dataset_path: str, filesystem: Any = None) -> list[ParquetFileMetadata]:
        """Read the footers of all data files; a file whose footer cannot be read has no statistics."""
        location = locate(dataset_path, filesystem)
        return [_analyze(location, info) for info in list_files(location)]


def _analyze(location: Location, info: FileInfo) -> ParquetFileMetadata:
    try:
        footer = read_footer(location, info, None)
    except UnreadableFileError:
        footer = Footer(info, pa.schema([]), ())
    stats = {name: s for name in footer.schema.names if (s := _file_stats(footer, name)) is not None}
    shown, groups = location.show(info.path), len(footer.row_groups)
    return ParquetFileMetadata(shown, groups, footer.rows, stats, dict(footer.partition) or None)


def _file_stats(footer: Footer, column: str) -> dict[str, Any] | None:
    """The bounds of all row groups together, if every one that has rows has bounds."""
    bounds = [group.bounds.get(column) for group in footer.row_groups if group.rows]
    known = [b for b in bounds if b is not None]
    if not known or len(known) < len(bounds):
        return None
    nulls = None if any(b.nulls is None for b in known) else sum(b.nulls or 0 for b in known)
    filled = [b for b in known if b.lower is not None]
    if not filled:
        return {"min": None, "max": None, "null_count": nulls}
    return {"min": min(b.lower for b in filled), "max": max(b.upper for b in filled), "null_count": nulls}
