"""The footers of a data set's files: schema, row groups and the bounds of key columns.

A lake has thousands of files and few schemas. What the footers of many files share is a `FooterTemplate`. It is parsed
once, and footers that differ only in their row groups are parsed in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.dataset import ledger
from fsspeckit.core.dataset.partitions import parse_hive_partition_path
from fsspeckit.core.errors import UnreadableFileError
from fsspeckit.core.model import FileInfo, Footer, RowGroup
from fsspeckit.core.parallel import cached_property, chunked_map, parallel_map
from fsspeckit.core.parquet.footer_batch import FooterBatch
from fsspeckit.core.parquet.footer_checks import check_chunks, check_flat_chunks, check_not_encrypted
from fsspeckit.core.parquet.footer_io import bytes_after_row_groups, bytes_before_row_groups, footer_of, tail_bytes
from fsspeckit.core.parquet.reader import arrow_schema, check_counts, open_parquet, reading, unreadable
from fsspeckit.core.parquet.schema import int96_columns, leaf_indexes
from fsspeckit.core.parquet.statistics import Leaf, row_group
from fsspeckit.core.storage import Location
from fsspeckit.core.values.calendars import SPARK_VERSION, Calendar
from fsspeckit.core.values.schema import collated_columns

# Footers that are read at the same time: network disks are slow, object stores slower.
_DISK_THREADS = 8
_REQUESTS = 32
# Footers of more files are read without their metadata.
_MANY = 16
# A footer is compared with at most this many templates. If each file has an entry of its own, no two footers match.
_MAX_TEMPLATES = 16


@dataclass(frozen=True, eq=False)
class FooterTemplate:
    """Everything in a footer except its row groups; the fields are those of `model.Footer`.

    `raw` is the first footer of this template, `head` its bytes up to the end of the schema.
    """

    raw: bytes
    head: bytes
    entries: Mapping[bytes, bytes] | None
    created_by: str
    schema: pa.Schema
    columns: pq.ParquetSchema
    ledger: Mapping[str, str]
    int96: frozenset[str]
    calendar: Calendar
    collated: Mapping[str, str]
    by_spark: bool

    @classmethod
    def of(cls, raw: bytes, schema: pa.Schema, metadata: pq.FileMetaData) -> FooterTemplate:
        entries = metadata.metadata
        return cls(
            raw,
            bytes_before_row_groups(raw),
            entries,
            metadata.created_by,
            schema,
            metadata.schema,
            ledger.stream_entries(entries),
            int96_columns(schema, metadata),
            Calendar.of(entries),
            collated_columns(entries),
            SPARK_VERSION in (entries or {}),
        )

    @cached_property
    def rest(self) -> bytes | None:
        """The bytes after the row groups; `None` if the end of the row groups cannot be found."""
        return bytes_after_row_groups(self.raw)

    @cached_property
    def _leaf_indexes(self) -> dict[str, int]:
        return leaf_indexes(self.schema, len(self.columns))

    @cached_property
    def _leaves(self) -> dict[str, Leaf]:
        """Leaves by column name, filled on demand: PyArrow is slow to describe a leaf."""
        return {}

    def leaves_of(self, columns: Sequence[str] | None) -> list[Leaf]:
        """The leaves of `columns`, or of all columns."""
        names = [name for name in self._leaf_indexes if columns is None or name in columns]
        for name in [name for name in names if name not in self._leaves]:
            index = self._leaf_indexes[name]
            self._leaves[name] = Leaf.of(name, index, self.columns.column(index), self.calendar)
        return [self._leaves[name] for name in names]

    def matches_bytes(self, raw: bytes) -> bool:
        """Has another footer the same bytes before and after its row groups?"""
        return self.rest is not None and raw.startswith(self.head) and raw.endswith(self.rest)

    def matches(self, raw: bytes, metadata: pq.FileMetaData) -> bool:
        """Has another footer the same schema, key-value entries and writer?"""
        return (
            raw.startswith(self.head) and metadata.metadata == self.entries and metadata.created_by == self.created_by
        )


@dataclass(frozen=True, slots=True)
class FooterTemplates:
    """The templates of the footers read so far."""

    templates: list[FooterTemplate] = field(default_factory=list)

    def find(self, raw: bytes, metadata: pq.FileMetaData) -> FooterTemplate | None:
        return next((template for template in self.templates if template.matches(raw, metadata)), None)

    def find_by_bytes(self, raw: bytes) -> FooterTemplate | None:
        return next((template for template in self.templates if template.matches_bytes(raw)), None)

    def add(self, raw: bytes, schema: pa.Schema, metadata: pq.FileMetaData) -> FooterTemplate:
        template = FooterTemplate.of(raw, schema, metadata)
        if len(self.templates) < _MAX_TEMPLATES:
            self.templates.append(template)
        return template


def read_footers(
    location: Location, files: Iterable[FileInfo], columns: Sequence[str] | None, *, all_chunks: bool = False
) -> list[Footer]:
    """The footers of files, with the bounds of `columns`, or of all columns.

    `all_chunks` checks every column chunk, for callers that ask PyArrow for any of them: see `checked_footer`.
    """
    templates = FooterTemplates()
    return _in_chunks(
        location,
        list(files),
        lambda chunk: [
            read_footer(location, info, columns, all_chunks=all_chunks, templates=templates) for info in chunk
        ],
    )


def read_planned(location: Location, infos: list[FileInfo], columns: Sequence[str]) -> list[Footer]:
    """The footers for a plan. Those of many files have no metadata: it takes 18 kB each, and few files are opened."""
    if len(infos) <= _MANY:
        return read_footers(location, infos, columns)
    templates = FooterTemplates()
    return _in_chunks(location, infos, lambda chunk: _read_batches(location, chunk, columns, templates))


def _in_chunks(
    location: Location, infos: list[FileInfo], read: Callable[[Sequence[FileInfo]], list[Footer]]
) -> list[Footer]:
    if not location.storage.opens_by_request:
        return chunked_map(read, infos, _DISK_THREADS)
    return [footer for (footer,) in parallel_map(lambda info: read([info]), infos, _REQUESTS)]


def read_footer(
    location: Location,
    info: FileInfo,
    columns: Sequence[str] | None,
    *,
    all_chunks: bool = False,
    templates: FooterTemplates | None = None,
) -> Footer:
    """The footer of one file; `templates` are those of the footers that were read before."""
    with reading(location, info.path):
        return _parse(_FileEnd.of(location, info), columns, templates or FooterTemplates(), all_chunks=all_chunks)


@dataclass(frozen=True, slots=True)
class _FileEnd:
    """The last bytes of a file, and whether the file is certainly the one that was listed."""

    info: FileInfo
    tail: bytes
    certain: bool

    @classmethod
    def of(cls, location: Location, info: FileInfo) -> _FileEnd:
        path = location.at(info.path)
        with location.storage.open_input_end(path) as source:
            return cls(info, tail_bytes(source), location.storage.is_listed(path, source, info))

    @property
    def footer(self) -> bytes:
        return footer_of(self.tail)


def _parse(
    end: _FileEnd, columns: Sequence[str] | None, templates: FooterTemplates, *, all_chunks: bool = False
) -> Footer:
    raw, file = end.footer, pq.ParquetFile(pa.BufferReader(end.tail))  # it reads no pages
    metadata = file.metadata
    check_not_encrypted(raw, metadata)
    check_counts(metadata)
    template = templates.find(raw, metadata) or templates.add(raw, arrow_schema(file, end.tail), metadata)
    checked = check_chunks(raw, metadata.schema) if all_chunks or columns is None else None
    groups = _row_groups(raw, metadata, range(metadata.num_row_groups), template.leaves_of(columns), checked)
    return _footer(end, template, groups, metadata)


def _read_batches(
    location: Location, infos: Sequence[FileInfo], columns: Sequence[str], templates: FooterTemplates
) -> list[Footer]:
    """Footers without metadata. Those that differ only in their row groups are parsed in batches."""
    footers: dict[str, Footer] = {}
    batches: dict[FooterTemplate, list[_FileEnd]] = {}

    def parse_one(end: _FileEnd) -> None:
        with reading(location, end.info.path):
            footers[end.info.path] = replace(_parse(end, columns, templates), metadata=None)

    for info in infos:
        with reading(location, info.path):
            end = _FileEnd.of(location, info)
            template = templates.find_by_bytes(end.footer)
        if template is None:
            parse_one(end)
        else:
            batches.setdefault(template, []).append(end)
    for template, ends in batches.items():
        try:
            footers |= _parse_batch(template, ends, columns)
        except (pa.ArrowException, OSError, ValueError):  # one is damaged: parse each, for an error that names it
            for end in ends:
                parse_one(end)
    return [footers[info.path] for info in infos]


def _parse_batch(template: FooterTemplate, ends: list[_FileEnd], columns: Sequence[str]) -> dict[str, Footer]:
    raws = [end.footer for end in ends]
    leaves, batch = template.leaves_of(columns), FooterBatch.of(template.head, template.rest or b"", raws)
    return {
        end.info.path: _footer(end, template, _row_groups(raw, batch.metadata, numbers, leaves))
        for end, raw, numbers in zip(ends, raws, batch.ranges, strict=True)
    }


def _row_groups(
    raw: bytes, metadata: pq.FileMetaData, numbers: range, leaves: list[Leaf], checked: frozenset[int] | None = None
) -> tuple[RowGroup, ...]:
    """The row groups with these numbers; `checked` are the leaves whose statistics PyArrow can read."""
    if checked is None:
        checked = check_flat_chunks(raw, len(numbers), metadata.schema, leaves)
    leaves = [leaf for leaf in leaves if leaf.index in checked]
    return tuple(row_group(metadata.row_group(number), leaves) for number in numbers)


def _footer(
    end: _FileEnd, template: FooterTemplate, groups: tuple[RowGroup, ...], metadata: pq.FileMetaData | None = None
) -> Footer:
    return Footer(
        end.info,
        template.schema,
        groups,
        parse_hive_partition_path(end.info.path),
        metadata,
        template.ledger,
        template.int96,
        template.calendar,
        template.collated,
        template.by_spark,
        end.certain,
    )


def open_planned(location: Location, footer: Footer) -> pq.ParquetFile:
    """Open a file of the plan, and check that it agrees with the footer that was read before."""
    file = open_parquet(location, footer.path, footer.metadata)
    try:
        check_planned(location, footer, file)
    except UnreadableFileError:
        file.close(force=True)
        raise
    return file


def check_planned(location: Location, footer: Footer, file: pq.ParquetFile) -> None:
    """Refuse a file that is not the one whose footer was read, perhaps by another process and days ago."""
    if footer.metadata is None:
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        if [(g.num_rows, g.total_byte_size) for g in groups] != [(g.rows, g.bytes) for g in footer.row_groups]:
            raise unreadable(location, footer.path, "it was changed or replaced since its footer was read")
