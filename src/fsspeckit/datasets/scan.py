"""Read a data set with PyArrow's scanner, which reads files in parallel and skips row groups by a filter.

The scanner does not notice a file with fewer rows than its footer says, and it filters rows before they can be counted.
So we count the rows of each file, and scan the filter as a column that we apply afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from fsspeckit.core.commit.readers import consistent_files
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.dataset.partitions import value_array
from fsspeckit.core.errors import TargetChangedError
from fsspeckit.core.model import FileInfo, Footer
from fsspeckit.core.parquet.footer_checks import check_chunks
from fsspeckit.core.parquet.reader import (
    check_rows,
    check_values,
    checked_footer,
    open_parquet,
    raw_footer,
    read_batches,
    read_file,
    unchecked_columns,
    unreadable,
)
from fsspeckit.core.parquet.schema import has_int96, int96_unit
from fsspeckit.core.storage import Location
from fsspeckit.core.values.calendars import from_file_calendar
from fsspeckit.core.values.conform import to_common_type
from fsspeckit.core.values.schema import plain_schema, unify_footers
from fsspeckit.datasets.sources import existing_files, path_fields

# How often to read a data set whose files change meanwhile.
_ATTEMPTS = 5


def read_dataset(location: Location, columns: list[str] | None = None, filter: Any = None) -> pa.Table:
    """The rows of a data set that pass the filter, all of one version. If files change meanwhile, it is read again."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with consistent_files(location) as infos:
                return _scan(location, infos, columns, filter, {}).read_all()
        except TargetChangedError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError  # the last attempt has returned or raised


def scan_dataset(location: Location, **readahead: int) -> pa.RecordBatchReader:
    """The rows of a data set as a stream; partition columns get the types that PyArrow infers from the paths."""
    return _scan(location, existing_files(location), None, None, readahead)


def column_names(location: Location) -> list[str]:
    """The columns of a data set, stored ones and those of its paths; none if it does not exist."""
    footers = read_footers(location, list_files(location), ())
    stored = unify_footers(footers) if footers else pa.schema([])
    return [*stored.names, *(partition.name for partition in path_fields(footers, stored))]


def _scan(
    location: Location, infos: Sequence[FileInfo], columns: list[str] | None, filter: Any, readahead: dict[str, int]
) -> pa.RecordBatchReader:
    footers = read_footers(location, infos, (), all_chunks=filter is not None)
    schema = unify_footers(footers)
    stored_too = any(name in schema.names for footer in footers for name in footer.partition)
    if stored_too or any(f.calendar or not f.schema.equals(schema) for f in footers):
        table = _file_by_file(location, footers, schema)
        return ds.dataset(table).scanner(columns=columns, filter=filter, **readahead).to_reader()
    return _Scan(location, footers, _dataset(location, footers, schema)).reader(columns, filter, readahead)


@dataclass(frozen=True)
class _Scan:
    location: Location
    footers: Sequence[Footer]
    dataset: ds.FileSystemDataset

    def reader(self, columns: list[str] | None, filter: Any, readahead: dict[str, int]) -> pa.RecordBatchReader:
        plain = self.dataset.scanner(columns=columns, filter=filter)
        schema, expected = plain.projected_schema, {f.path: f.rows for f in self.footers}
        scanner = self.dataset.scanner(columns=columns, **readahead)
        if filter is not None:
            fragments = self._pruned(filter)
            expected = {self._path(f): sum(group.num_rows for group in f.row_groups) for f in fragments}
            projection = {name: ds.field(name) for name in schema.names}
            unused_name = "kept" + "_" * max(map(len, schema.names), default=0)
            projection[unused_name] = filter
            dataset = self.dataset
            pruned = ds.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)
            scanner = pruned.scanner(columns=projection, **readahead)
        batches = self._counted(scanner, expected)
        if filter is not None:
            batches = (_filtered(batch, schema) for batch in batches)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _path(self, fragment: ds.Fragment) -> str:
        """Relative to the data set; some file systems leave out the first slash."""
        return str(fragment.path.lstrip("/").removeprefix(self.location.root.strip("/")).lstrip("/"))

    def _pruned(self, filter: Any) -> list[ds.ParquetFileFragment]:
        """The files and row groups that can contain rows for the filter, by partition values and statistics."""
        fragments, footers = [], {footer.path: footer for footer in self.footers}
        for fragment in self.dataset.get_fragments(filter):
            if self._statistics_are_valid(footers[self._path(fragment)]):
                fragment = fragment.subset(filter, schema=self.dataset.schema)
            fragments += [fragment] if fragment.num_row_groups else []
        return fragments

    def _statistics_are_valid(self, footer: Footer) -> bool:
        """Are the statistics complete? PyArrow aborts the process if a minimum or maximum is truncated."""
        metadata = footer.metadata
        assert metadata is not None
        fields = checked_footer(self.location, footer.path, raw_footer(self.location, footer.path), metadata)
        return bool(len(check_chunks(fields, metadata.schema)) == metadata.num_columns)

    def _counted(self, scanner: ds.Scanner, expected: dict[str, int]) -> Iterator[pa.RecordBatch]:
        read = dict.fromkeys(expected, 0)
        unchecked = unchecked_columns(scanner.projected_schema)
        try:
            for batch in scanner.scan_batches():
                read[self._path(batch.fragment)] += batch.record_batch.num_rows
                check_values(batch.record_batch, unchecked)
                yield batch.record_batch
        except (pa.ArrowException, OSError, ValueError) as error:
            self._raise_for_unreadable_file()
            raise unreadable(self.location, "", error) from error
        for path, rows in expected.items():
            check_rows(self.location, path, read[path], rows)

    def _raise_for_unreadable_file(self) -> None:
        """The scanner does not say which file failed. Read the files one by one until one raises an error."""
        for footer in self.footers:
            with open_parquet(self.location, footer.path, footer.metadata) as file:
                for _ in read_batches(self.location, footer.path, file, 16_384):
                    pass


def _filtered(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Apply the filter, which is the last column."""
    *columns, kept = batch.columns
    return pa.RecordBatch.from_arrays(columns, schema=schema).filter(kept)


def _dataset(location: Location, footers: Sequence[Footer], schema: pa.Schema) -> ds.FileSystemDataset:
    dataset = ds.dataset(
        [location.at(footer.path) for footer in footers],
        filesystem=location.storage.filesystem(),
        format=ds.ParquetFileFormat(
            coerce_int96_timestamp_unit=_int96_unit(footers),
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
        ),
        partitioning=ds.HivePartitioning(pa.schema(path_fields(footers, schema)), segment_encoding="uri"),
        partition_base_dir=location.root,
    )
    fields = [_readable(field, dataset.schema) for field in schema]
    fields += [field for field in dataset.schema if field.name not in schema.names]
    return dataset.replace_schema(pa.schema(fields, schema.metadata))


def _int96_unit(footers: Sequence[Footer]) -> str | None:
    units = {int96_unit(f.metadata) for f in footers if f.metadata is not None and has_int96(f.metadata)}
    return units.pop() if len(units) == 1 else None


def _readable(field: pa.Field, scanned: pa.Schema) -> pa.Field:
    """A scan returns the storage type of extension types."""
    if field.name in scanned.names and isinstance(field.type, pa.BaseExtensionType):
        return field.with_type(scanned.field(field.name).type)
    return field


def _file_by_file(location: Location, footers: Sequence[Footer], schema: pa.Schema) -> pa.Table:
    """Read files of different schemas and cast each to the common schema. Arrow's scanner refuses most of them."""
    common = plain_schema([*schema, *path_fields(footers, schema)])
    return pa.concat_tables([_one_file(location, footer, common) for footer in footers])


def _one_file(location: Location, footer: Footer, common: pa.Schema) -> pa.Table:
    with open_parquet(location, footer.path, footer.metadata) as file:
        table = read_file(location, footer.path, file)
    table = from_file_calendar(table, footer.calendar, location.show(footer.path), footer.int96)
    stored = dict(zip(table.column_names, table.columns, strict=True))

    def column(field: pa.Field) -> Any:
        if field.name in stored:
            return to_common_type(stored[field.name], field.type, field.name, location.show(footer.path))
        return value_array(footer.partition.get(field.name), field.type, table.num_rows)

    return pa.table([column(f) for f in common], schema=common)
