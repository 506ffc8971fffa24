"""Rewrite the files of one bin: full row groups are copied as bytes, others are decoded, joined and encoded."""

from __future__ import annotations

import contextlib
import logging
import os
import posixpath
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import pyarrow as pa

from fsspeckit.core.dataset.ledger import Ledger, without_streams
from fsspeckit.core.errors import LayoutError
from fsspeckit.core.model import Footer, Staged, WriteOptions
from fsspeckit.core.parallel import Pool, prefetch_map
from fsspeckit.core.parquet.chunk_layout import NotSpliceable
from fsspeckit.core.parquet.chunk_writer import Encoded, encode
from fsspeckit.core.parquet.join import MAX_ROW_GROUPS, JoinedFile, Template, check_row_group
from fsspeckit.core.parquet.layout import Layout, file_layout, template_layout
from fsspeckit.core.parquet.metadata_entries import NewValues, updated_entries
from fsspeckit.core.parquet.retype import NewColumns
from fsspeckit.core.parquet.splice import OldFile
from fsspeckit.core.parquet.thrift import CorruptFile
from fsspeckit.core.parquet.writer import FileWriter, Writer, receipt_of
from fsspeckit.core.parquet.writer_options import codec_of
from fsspeckit.core.rewrite.compaction import (
    LARGE,
    LIMIT,
    MAX_ROWS,
    Bin,
    RowGroupOf,
    Unit,
    divide,
    max_bytes,
    row_groups_of,
)
from fsspeckit.core.rewrite.files import new_name, own_token
from fsspeckit.core.rewrite.group_reader import Entries, GroupFile, open_group_file, read_pieces
from fsspeckit.core.rewrite.sort_files import sorted_tables
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays
from fsspeckit.core.values.schema import effective_schema, unify_footers

logger = logging.getLogger("fsspeckit.rewrite")

# A template with fewer rows says little about which columns repeat.
_FEW_ROWS = 5_000
# Names of files have 255 bytes at most.
_NAME_BYTES = 220


@dataclass(frozen=True, slots=True)
class JoinJob:
    """A bin to write, and where. `ledger` is added to the key-value metadata of every new file."""

    bin: Bin
    staging: str
    staged: str
    target_size: int
    ledger: Ledger = field(default_factory=dict)
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """The new files of a bin; `copied` bytes of them were not decoded."""

    staged: tuple[Staged, ...]
    copied: int


@dataclass(frozen=True, slots=True)
class JoinLayout:
    """How the rows of a bin are written; `template` is `None` if none of its files has the common schema."""

    layout: Layout
    template: Template | None


def join_files(location: Location, pool: Pool, job: JoinJob, new_rows: pa.Table | None = None) -> Joined:
    """Write the rows of a bin to new files, in the order of its files, or sorted; `new_rows` follow them."""
    how = layout_of(location, job)
    if job.bin.sort:
        return _sort_files(location, how, job)
    units, most = divide(row_groups_of(job.bin), job.target_size), max_bytes(job.target_size)
    if new_rows is not None:
        units, new_rows = _before_new_rows(location, how, list(units), new_rows)
    with Outputs(location, job, how) as outputs, CopySource(location) as source:
        while batch := list(islice(units, max(1, pool.workers))):
            encoded = pool.map(partial(_encode_unit, location, how, most), batch)
            for unit, encodings in zip(batch, encoded, strict=True):
                if encodings is None and not _copy(source, outputs, unit.groups[0]):
                    encodings = _encode_unit(location, how, most, replace(unit, copied=False))
                if encodings is not None:
                    outputs.add(*encodings)
        if new_rows is not None:
            outputs.add([_encode_rows(how, new_rows)], [])
        return outputs.finish()


def _before_new_rows(
    location: Location, how: JoinLayout, units: list[Unit], new_rows: pa.Table
) -> tuple[Iterator[Unit], pa.Table]:
    """The units without an undersized last one, and its rows before the new ones."""
    if not units or units[-1].copied or sum(g.group.rows for g in units[-1].groups) + new_rows.num_rows > MAX_ROWS:
        return iter(units), new_rows
    last = read_pieces(location, how.layout.rows, units.pop().groups, [])
    return iter(units), pa.concat_tables([*last, new_rows.cast(how.layout.rows.remove_metadata())])


def _sort_files(location: Location, how: JoinLayout, job: JoinJob) -> Joined:
    """Row groups are encoded in a thread while the next rows are read and sorted."""
    entries: list[Entries] = []
    tables = read_pieces(location, how.layout.rows, row_groups_of(job.bin), entries)
    folder = location.storage.local_path(job.staging)
    own = [name for name in job.sort_by if name in how.layout.rows.names]
    with (
        Outputs(location, job, how) as outputs,
        contextlib.closing(sorted_tables(tables, own, max_bytes(job.target_size), folder)) as in_order,
        contextlib.closing(prefetch_map(partial(_encode_rows, how), in_order, 1)) as encoded,
    ):
        for row_group in encoded:
            outputs.add([row_group], entries)
        return outputs.finish()


def _encode_rows(how: JoinLayout, rows: pa.Table) -> Encoded:
    return encode(_for_rows(how.layout, rows.num_rows), rows)


_Encodings = tuple[list[Encoded], list[Entries]] | None
"""The row groups of a unit, and the key-value entries of its files; `None` if its bytes are copied."""


def _encode_unit(location: Location, how: JoinLayout, most: int, unit: Unit) -> _Encodings:
    if unit.copied and how.template is not None and how.template.copies:
        return None
    entries: list[Entries] = []
    tables = read_pieces(location, how.layout.rows, unit.groups, entries, most)
    if len(unit.groups) > 1:
        tables = iter([pa.concat_tables(tables)])
    return [_encode_rows(how, table) for table in tables], entries


class CopySource(contextlib.ExitStack):
    """The file that row groups are copied from; it stays open for the next one."""

    def __init__(self, location: Location) -> None:
        super().__init__()
        self._location = location
        self._opened: GroupFile | None = None
        self._old: OldFile | None = None

    def open(self, file: Footer) -> tuple[GroupFile, OldFile]:
        """`NotSpliceable` or `CorruptFile` if its row groups cannot be copied."""
        if self._opened is None or self._opened.planned is not file:
            self.close()
            self._opened = self.enter_context(open_group_file(self._location, file))
            self._old = None
        if self._old is None:
            self._old = self._opened.old_file()
        return self._opened, self._old


def _copy(source: CopySource, outputs: Outputs, group: RowGroupOf) -> bool:
    """Copy a row group, unless its file does not allow that."""
    try:
        opened, old = source.open(group.file)
        outputs.check_copyable(old, group.number)
    except (NotSpliceable, CorruptFile) as error:
        logger.info("%s is re-encoded, not copied: %s", group.file.path, error)
        return False
    outputs.for_bytes(group.stored_bytes)
    outputs.file.add_source(opened.shown, opened.entries)
    outputs.file.copy_row_group(old, group.number)
    return True


def _for_rows(layout: Layout, rows: int) -> Layout:
    """With bloom filters for as many values as the row group has rows: those of the template may be much smaller."""
    filters = layout.options.get("bloom_filter_options")
    if not filters:
        return layout
    sized = {path: {**options, "ndv": max(rows, options["ndv"])} for path, options in filters.items()}
    return replace(layout, options={**layout.options, "bloom_filter_options": sized})


# -- layout


def layout_of(location: Location, job: JoinJob) -> JoinLayout:
    """The layout of the largest file that has the common schema of the bin, or could have it with other types."""
    files = job.bin.files
    unified = unify_footers([replace(file, schema=effective_schema(file)) for file in files])
    like = [file for file in files if effective_schema(file).equals(unified)]
    largest = max(like, key=lambda file: (file.rows, file.info.size), default=None)
    if largest is None:
        return JoinLayout(_layout_with_types(location, files, unified).unsorted().with_entries(job.ledger), None)
    nullable = largest.by_spark and not all(file.schema.equals(largest.schema) for file in files)
    with open_group_file(location, largest) as opened:
        footer, _ = opened.footer()
        layout = file_layout(location, replace(largest, metadata=opened.file.metadata), footer, nullable)
        template = Template.of(footer, opened.file.metadata, layout)
    if 0 < largest.rows <= _FEW_ROWS and template.copies:
        layout = layout.sampled(_first_rows(location, layout, job.bin), replaces_template=True)
    return JoinLayout(layout.unsorted().with_entries(job.ledger), template)


def _layout_with_types(location: Location, files: Sequence[Footer], unified: pa.Schema) -> Layout:
    """The layout of the largest file with the common types, which no file has, and its key-value entries.

    PyArrow's own layout if a column that is not nullable in a file would get nulls, or if PyArrow cannot write it.
    """
    largest = max(files, key=lambda file: (file.rows, file.info.size))
    columns = effective_schema(largest)
    if all(columns.field(field.name).nullable or not field.nullable for field in unified):
        own = {field.name: arrays.plain_type(field.type) for field in columns}
        types = {f.name: f.type for f in unified if arrays.plain_type(f.type) != own[f.name]}
        with contextlib.suppress(LayoutError):
            return template_layout(location, largest, NewColumns(types), nullable=True)
    with open_group_file(location, largest) as opened:
        options = WriteOptions(compression=codec_of(opened.file.metadata))
        entries = updated_entries(without_streams(opened.file.schema_arrow.metadata or {}), NewValues())
    return Layout.new(unified.with_metadata(entries), options)


def _first_rows(location: Location, layout: Layout, chosen: Bin) -> pa.Table:
    """Rows of the first row groups, of which a sample shows which columns repeat."""
    groups, rows = list[RowGroupOf](), 0
    for group in row_groups_of(chosen):
        if rows > 4 * _FEW_ROWS:
            break
        groups, rows = [*groups, group], rows + group.group.rows
    return pa.concat_tables(read_pieces(location, layout.rows, groups, []))


# -- write


def _shortened(path: str) -> str:
    """The path of a file, whose name is so short that there is room for the token of a new name."""
    folder, name = posixpath.split(path)
    stem, suffix = posixpath.splitext(name)
    while len(os.fsencode(stem)) > _NAME_BYTES:
        stem = stem[:-1]
    return posixpath.join(folder, stem + suffix)


class Outputs(Writer):
    """The new files of a bin, one after the other. A file ends when the next row group would make it too large."""

    def __init__(self, location: Location, job: JoinJob, how: JoinLayout) -> None:
        self._location, self._job, self._how = location, job, how
        self._limit = (LARGE if job.bin.reason == "small files" else LIMIT) * job.target_size
        self._token = uuid.uuid4().hex[:4]
        self._file: JoinedFile | None = None
        self._done: list[Staged] = []
        self._copied = 0

    @property
    def file(self) -> JoinedFile:
        assert self._file is not None
        return self._file

    def check_copyable(self, old: OldFile, group: int) -> None:
        """`NotSpliceable` unless the bytes of the row group can be in these files."""
        if self._how.template is None:
            raise NotSpliceable("No file has the common schema")
        self._how.template.check_copyable(old.footer, group)
        check_row_group(self._location.storage, old, group)

    def for_bytes(self, size: int) -> None:
        """Make room for a row group of about this size."""
        full = self._file is not None and (
            self._file.size + size > self._limit or self._file.row_groups >= MAX_ROW_GROUPS
        )
        if self._file is not None and self._file.row_groups and full:
            self._end_file()
        if self._file is None:
            staged, final = self._names()
            path = f"{self._job.staging}/{staged}"
            self._file = JoinedFile(self._location.storage, path, final, self._how.layout, self._how.template)

    def add(self, row_groups: Iterable[Encoded], entries: Sequence[Entries]) -> None:
        """Add encoded row groups with rows of the files that have these entries."""
        for encoded in row_groups:
            self.for_bytes(encoded.buffer.size)
            for source in entries:
                self.file.add_source(*source)
            self.file.add_row_group(encoded)

    def finish(self) -> Joined:
        if self._file is not None:
            self._end_file()
        if not self._done:
            self._write_empty()
        return Joined(tuple(self._done), self._copied)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()

    def _names(self) -> tuple[str, str]:
        """Names that sort in the order of the files, after the name of the bin's first file.

        A compaction may write a file again. Its name then stays between those of its neighbours: the last hexadecimal
        digit counts how often.
        """
        number, first = len(self._done), min(file.path for file in self._job.bin.files)
        shortened = _shortened(first)
        token, own = f"{self._token}{16 * number & 0xFFFF:04x}", own_token(first)
        if own is not None and not number and self._job.bin.reason in ("small files", "small row groups"):
            token = f"{int(own, 16) + 1:08x}" if own[-1] != "f" else token
        return f"{self._job.staged}-{self._token}-{number:05d}", new_name(shortened, token)

    def _end_file(self) -> None:
        file, (staged, final) = self.file, self._names()
        self._copied += file.copied
        self._add(staged, final, file.rows, file.close())
        self._file = None

    def _write_empty(self) -> None:
        """A bin without rows becomes one file without rows, which keeps the schema."""
        staged, final = self._names()
        with FileWriter(self._location.storage, f"{self._job.staging}/{staged}", self._how.layout, final) as file:
            file.write_row_group(self._how.layout.rows.empty_table())
            self._add(staged, final, 0, file.close())

    def _add(self, staged: str, final: str, rows: int, size: int) -> None:
        target, paths = f"{self._job.staging}/{staged}", [file.path for file in self._job.bin.files]
        if (disk := self._location.on_disk()) is not None:
            disk.storage.copy_common_mode([disk.at(path) for path in paths], target)
        receipt = receipt_of(self._location.storage, target, rows)
        self._done.append(Staged(staged, final, rows, size, replaces=paths[0], receipt=receipt))
