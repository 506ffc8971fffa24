"""Merge source rows into one file: row groups in, merged row groups out, in row order.

The kernel does not know how matches were found. An engine hands it, per row group, the positions to replace and the
rows to put there; every other row keeps its place. A touched row group is read once, and its rows are asked for once;
the others are copied as bytes (`splice`), and so are the columns in which nothing changed. Where that cannot be, all
of the file is read and written anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.errors import DatasetMergeError, SchemaMismatchError, UnreadableFileError
from fsspeckit.core.model import Footer, Rewritten, Shape, Staged, WriteOptions
from fsspeckit.core.rewrite.dictionaries import NumberedText, is_numbered, patched_numbers
from fsspeckit.core.rewrite.int96 import check_int96
from fsspeckit.core.rewrite.layout import Layout
from fsspeckit.core.rewrite.models import codec_of, column_fits, model_layout, own_layout, takes_all
from fsspeckit.core.rewrite.patch import patched
from fsspeckit.core.rewrite.splice import OldFile, SplicedFile
from fsspeckit.core.rewrite.writer import FileWriter, FreshFiles, receipt_of
from fsspeckit.core.storage import Location
from fsspeckit.core.target import thrift
from fsspeckit.core.target.chunks import check_chunks
from fsspeckit.core.target.common import leaf_count
from fsspeckit.core.target.footers import check_planned, open_source, reading
from fsspeckit.core.target.ledger import Ledger
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.target.spans import CannotCopy
from fsspeckit.core.target.tail import footer_bytes
from fsspeckit.core.values import arrays, keys, schema
from fsspeckit.core.values.calendars import in_calendar
from fsspeckit.core.values.equality import identical

logger = logging.getLogger("fsspeckit.rewrite")


class Replacements(Protocol):
    """The source rows that replace rows of one file."""

    def rows(self, row_group: int) -> tuple[Any, pa.Table]:
        """Ascending positions within the row group, and as many rows in the shape's plain schema."""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to rewrite: its touched row groups, and the staged file to make of it.

    `path` is where the commit puts the file. `template` is a file whose schema is the unified one, taken as the
    model when the new values do not fit this file's own. `fresh` makes new files instead, named and cut as such.
    `ledger` is added to the file's key-value metadata.
    """

    footer: Footer
    touched: tuple[int, ...]
    staging: str
    staged: str
    path: str
    template: Footer | None = None
    fresh: WriteOptions | None = field(default=None)
    ledger: Ledger = field(default_factory=dict)


def rewrite_file(
    location: Location, shape: Shape, job: Job, replacements: Replacements, *, threads: int = 1
) -> Rewritten:
    """Write the merged file into staging, unless every matched row already equals its source row.

    With `threads`, columns of a row group are decoded and encoded side by side.
    """
    path = job.footer.path
    location.expect(job.footer.info)
    with contextlib.ExitStack() as stack:
        with reading(location, path):
            source = stack.enter_context(location.storage.open_input(location.at(path)))
            file = open_source(source, job.footer.metadata)
        check_planned(location, job.footer, file)
        merge = _Merge(location, shape, job, source, file, replacements, threads)
        return merge.into_one_file() if job.fresh is None else merge.into_fresh_files(job.fresh)


@dataclass(frozen=True, slots=True)
class _Change:
    """A touched row group: its rows, the source rows that go to `positions`, and the columns that differ there."""

    old: pa.Table
    positions: Any
    rows: pa.Table
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A layout to write the file in: its `own` schema, so that bytes can be copied; `doubtful` if rows may not fit."""

    layout: Layout
    own: bool
    doubtful: bool


class _DoesNotFit(Exception):
    """Source rows cannot be stored in the layout that was tried."""


@dataclass
class _Merge:
    location: Location
    shape: Shape
    job: Job
    source: Any
    file: pq.ParquetFile
    replacements: Replacements
    threads: int
    changed: set[str] = field(default_factory=set)
    """The columns that differ in any row group so far."""
    read_ahead: dict[int, _Change] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[str]:
        """The columns that this file is to hold. A partition column that its path names may be left to the path."""
        own, names = self.job.footer, set(self.job.footer.schema.names)
        return [n for n in self.shape.stored if n in names or n not in own.partition]

    @cached_property
    def unified(self) -> pa.Schema:
        return schema.plain_schema(self.shape.schema.field(n) for n in self.columns)

    # -- the ways through the file

    def into_one_file(self) -> Rewritten:
        first = self._first_change()
        if first is None:
            return Rewritten(self.job.footer.path, ())
        for attempt in self._attempts():
            with contextlib.suppress(_DoesNotFit):
                try:
                    if attempt.own:
                        return self._spliced(attempt, first)
                except (CannotCopy, thrift.Damaged) as why:
                    logger.debug("%s is written anew: %s", self.location.show(self.job.footer.path), why)
                check_int96(self.location, self.job.footer.path, self.file)
                return self._rewritten(attempt, first)
        raise AssertionError("the last layout takes every row")

    def _spliced(self, attempt: _Attempt, first: int) -> Rewritten:
        """Row groups that do not change are copied, and of the others the columns that do not."""
        old = OldFile.of(self.source, *self._raw_footer, self.file.metadata, self.file.schema_arrow)
        target = f"{self.job.staging}/{self.job.staged}"
        with SplicedFile(self.location.storage, target, attempt.layout, old, self.job.path, self.threads) as writer:
            for group in range(self.file.num_row_groups):
                if group >= first and group in self.job.touched:
                    self._splice_changes(writer, group, attempt)
                else:
                    writer.keep(group)
            size = writer.close(in_order=self._stays_sorted())
        logger.debug("%s: %d of %d bytes copied", self.location.show(self.job.path), writer.copied, size)
        return replace(self._staged(target, writer.rows, size), copied=writer.copied)

    def _splice_changes(self, writer: SplicedFile, group: int, attempt: _Attempt) -> None:
        change = self._change(group)
        if not change.columns:
            writer.keep(group)
            return
        self._check_fits(change, attempt)
        check_int96(self.location, self.job.footer.path, self.file, [group], change.columns)
        fields = [f for f in attempt.layout.rows if f.name in change.columns]
        writer.replace(group, self._merged(change, fields, numbered=True))

    def _rewritten(self, attempt: _Attempt, first: int) -> Rewritten:
        """All of the file is read and written."""
        target = f"{self.job.staging}/{self.job.staged}"
        with FileWriter(self.location.storage, target, attempt.layout, self.job.path) as writer:
            for group in range(self.file.num_row_groups):
                writer.write_row_group(self._whole(group, attempt, touched=group >= first))
            return self._staged(target, writer.rows, writer.close(in_order=self._stays_sorted()))

    def into_fresh_files(self, options: WriteOptions) -> Rewritten:
        folder = self.job.footer.path.rpartition("/")[0]
        check_int96(self.location, self.job.footer.path, self.file)
        for attempt in self._attempts():
            layout = attempt.layout.compressed(options)
            with FreshFiles(self.location.storage, self.job.staging, layout, options) as files:
                try:
                    for group in range(self.file.num_row_groups):
                        files.write(folder, self._whole(group, attempt))
                    return Rewritten(self.job.footer.path, tuple(files.finish()))
                except _DoesNotFit:
                    files.discard()
        raise AssertionError("the last layout takes every row")

    def _staged(self, target: str, rows: int, size: int) -> Rewritten:
        own = self.job.footer.path
        self.location.storage.copy_mode(self.location.at(own), target)
        receipt = receipt_of(self.location.storage, target, rows)
        return Rewritten(own, (Staged(self.job.staged, self.job.path, rows, size, own, receipt),))

    # -- the layout

    @cached_property
    def _raw_footer(self) -> tuple[thrift.Struct, int]:
        """The footer, decoded, and where it begins; PyArrow can be asked for any of its column chunks."""
        with reading(self.location, self.job.footer.path):
            raw = footer_bytes(self.source)
            fields = thrift.decode(raw)
            check_chunks(fields, self.file.metadata.schema)
            return fields, self.source.size() - 8 - len(raw)

    def _attempts(self) -> Iterator[_Attempt]:
        """The file's own layout if the new values fit it, else the target's unified one."""
        footer = replace(self.job.footer, metadata=self.file.metadata)
        for loose in (False, True) if footer.by_spark else (False,):
            own = own_layout(self.location, footer, self._raw_footer[0], loose)
            yield _Attempt(own.stamped(self.job.ledger), own=not loose, doubtful=not takes_all(own.rows, self.unified))
        yield _Attempt(self._unified_layout(own).stamped(self.job.ledger), own=False, doubtful=False)

    def _unified_layout(self, own: Layout) -> Layout:
        template, codec = self.job.template, codec_of(self.file.metadata)
        if template is not None and set(template.schema.names) <= set(self.columns):
            return model_layout(self.location, template, loose=True).with_metadata_of(own, codec)
        columns = pa.schema([self.shape.schema.field(n) for n in self.columns], self.file.schema_arrow.metadata)
        return Layout.new(columns, WriteOptions(compression=codec))

    def _check_fits(self, change: _Change, attempt: _Attempt) -> None:
        if attempt.doubtful:
            own = {f.name: f for f in attempt.layout.rows}
            if not all(column_fits(change.rows.column(n), own.get(n)) for n in self.columns):
                raise _DoesNotFit

    # -- what changes

    def _first_change(self) -> int | None:
        """The first row group in which a matched row differs from its source row; it need not be read again."""
        for group in self.job.touched:
            change = self._change(group)
            if change.columns:
                self.read_ahead[group] = change
                return group
        return None

    def _change(self, group: int) -> _Change:
        if group in self.read_ahead:
            return self.read_ahead.pop(group)
        positions, rows = self._rows(group)
        old = self._read(group)
        place = None if len(positions) == old.num_rows else pa.array(positions)
        columns = zip(old.column_names, old.columns, strict=True)
        before = {n: arrays.plain(c if place is None else c.take(place)) for n, c in columns}
        changed = frozenset(n for n in self.columns if not _same_values(before.get(n), rows.column(n)))
        self.changed |= changed
        self._check_keys(before, rows, changed)
        return _Change(old, positions, rows, changed)

    def _check_keys(self, before: dict[str, Any], rows: pa.Table, changed: Collection[str]) -> None:
        """The last guard: whatever went wrong in matching, a row is only replaced by one of its own key."""
        for name in self.shape.keys:
            if name in changed and name in before and name not in self.job.footer.partition:
                old = self._column(before[name], self.unified.field(name), rows.num_rows)
                if keys.differ(keys.canonical(old), keys.canonical(rows.column(name))).any():
                    raise DatasetMergeError(
                        f"Rows of {self.location.show(self.job.footer.path)} would be replaced by rows of other keys. "
                        "This is a bug in fsspeckit; nothing was changed.",
                        operation="rewrite",
                    )

    def _stays_sorted(self) -> bool:
        """A declared sort order stays true if the sorting columns are keys, or did not change."""
        leaves = dict(enumerate(f.name for f in self.file.schema_arrow for _ in range(leaf_count(f.type))))
        groups = [self.file.metadata.row_group(g) for g in range(self.file.num_row_groups)]
        sorting = {leaves.get(s.column_index) for group in groups for s in group.sorting_columns}
        return None not in sorting and sorting.isdisjoint(self.changed - set(self.shape.keys))

    # -- rows

    @cached_property
    def _numbered(self) -> NumberedText:
        if self.job.fresh is not None:
            return NumberedText({})
        with reading(self.location, self.job.footer.path):
            return NumberedText.of(self.source, self._raw_footer[0], self.file, self.job.touched)

    @cached_property
    def _numbering(self) -> pq.ParquetFile:
        """The file once more, with that text as numbers."""
        with reading(self.location, self.job.footer.path):
            return open_source(self.source, self.file.metadata, self._numbered.columns)

    def _whole(self, group: int, attempt: _Attempt, *, touched: bool = True) -> pa.Table:
        """A row group as it is to be, all columns of it."""
        if not touched or group not in self.job.touched:
            return self._as_schema(self._read(group), attempt.layout.rows)
        change = self._change(group)
        self._check_fits(change, attempt)
        return self._merged(change, attempt.layout.rows)

    def _merged(self, change: _Change, fields: Iterable[pa.Field], *, numbered: bool = False) -> pa.Table:
        """Columns as they are to be; text that was read as numbers may stay `numbered`."""
        before, after, positions = _by_name(change.old), _by_name(change.rows), change.positions
        columns, merged = [], []
        for target in fields:
            old, new = before.get(target.name), self._column(after[target.name], target, len(positions))
            if numbered and is_numbered(old, target.type) and len(positions) < len(old):
                columns.append(patched_numbers(old, positions, new))
            else:
                columns.append(patched(self._column(old, target, change.old.num_rows), positions, new))
            merged.append(target.with_type(columns[-1].type))
        return pa.table(columns, schema=pa.schema(merged))

    def _as_schema(self, table: pa.Table, plain: pa.Schema) -> pa.Table:
        columns = _by_name(table)
        return pa.table([self._column(columns.get(f.name), f, table.num_rows) for f in plain], schema=plain)

    def _column(self, column: pa.ChunkedArray | None, target: pa.Field, rows: int) -> Any:
        if column is None:
            return pa.chunked_array([arrays.nothing(rows, target.type)])
        try:
            return arrays.cast(arrays.plain(column), target.type)
        except arrays.DoesNotFit as error:
            raise SchemaMismatchError(
                f"Column {target.name!r} of {self.location.show(self.job.footer.path)} holds {error.args[0]!r}, which "
                f"the target's common type {target.type} cannot hold. Bring the files to one type first."
            ) from None

    def _rows(self, group: int) -> tuple[Any, pa.Table]:
        """The source rows for a row group, counted by the file's calendar: its other rows and its footer keep it."""
        positions, rows = self.replacements.rows(group)
        own = self.job.footer
        return positions, in_calendar(rows, own.calendar, self.location.show(own.path), own.int96)

    def _read(self, group: int) -> pa.Table:
        """Plain columns, but for text that is read as numbers into its dictionary."""
        path, threads, numbered = self.job.footer.path, self.threads > 1, self._numbered.columns
        if numbered and group in self.job.touched:
            with contextlib.suppress(UnreadableFileError):  # of dictionaries that PyArrow makes others of
                columns = _by_name(read_row_group(self.location, path, self._numbering, group, use_threads=threads))
                if self._numbered.were_read(group, columns):
                    return pa.table({n: c if n in numbered else arrays.plain(c) for n, c in columns.items()})
        table = read_row_group(self.location, path, self.file, group, use_threads=threads)
        return pa.table([arrays.plain(c) for c in table.columns], schema=schema.plain_schema(table.schema))


def _by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _same_values(old: pa.ChunkedArray | None, new: pa.ChunkedArray) -> bool:
    if old is None:
        return bool(new.null_count == len(new))
    try:
        return identical(arrays.cast(old, new.type), new)
    except arrays.DoesNotFit:
        return False
