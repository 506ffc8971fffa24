"""Merge source rows into one file: row groups in, merged row groups out, in row order.

The kernel does not know how matches were found. An engine hands it, per row group, the positions to replace and the
rows to put there; every other row keeps its place. A touched row group is read once, and its rows are asked for once;
the others are copied as bytes (`splice`), and so are the columns in which nothing changed. Where that cannot be, all
of the file is read and written anew.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from fsspeckit.core.cached import cached_property
from fsspeckit.core.errors import DatasetMergeError, SchemaMismatchError, UnreadableFileError
from fsspeckit.core.model import Footer, Rewritten, Shape, Staged, WriteOptions
from fsspeckit.core.rewrite.bounds import text_statistics
from fsspeckit.core.rewrite.dictionaries import NumberedText, is_numbered, patched_numbers
from fsspeckit.core.rewrite.in_pages import InPages
from fsspeckit.core.rewrite.int96 import check_int96
from fsspeckit.core.rewrite.layout import Layout
from fsspeckit.core.rewrite.models import codec_of, column_fits, model_layout, own_layout, takes_all
from fsspeckit.core.rewrite.page_bytes import PatchedChunk
from fsspeckit.core.rewrite.patch import patched
from fsspeckit.core.rewrite.splice import Bounded, Lot, OldFile, SplicedFile
from fsspeckit.core.rewrite.writer import FileWriter, FreshFiles, receipt_of
from fsspeckit.core.storage import LocalStorage, Location
from fsspeckit.core.target import thrift
from fsspeckit.core.target.common import leaf_count
from fsspeckit.core.target.footers import check_planned, checked_footer, open_source, reading
from fsspeckit.core.target.ledger import Ledger
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.target.spans import UNCOMPRESSED, CannotCopy
from fsspeckit.core.target.tail import footer_bytes
from fsspeckit.core.values import arrays, keys, schema
from fsspeckit.core.values.calendars import in_calendar
from fsspeckit.core.values.equality import identical, same_bits

logger = logging.getLogger("fsspeckit.rewrite")

# Columns that are read at once. With all of 200 columns at once a file took a third longer, and twice the memory.
_LOT_BYTES = 2 << 20
# To write a column by itself takes some time of its own.
_LARGE_TEXT = 1 << 20


class Replacements(Protocol):
    """The source rows that replace rows of one file."""

    def rows(self, row_group: int) -> tuple[Any, pa.Table]:
        """Ascending positions within the row group, and as many rows in the shape's plain schema."""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to rewrite: its touched row groups, and the staged file to make of it.

    `path` is where the commit puts the file. `template` is a file whose schema is the unified one, taken as the
    model when the new values do not fit this file's own. `fresh` makes new files instead, named and cut as such.
    `ledger` is added to the file's key-value metadata. `guarded` if keys are read again, to be sure of the matches.
    """

    footer: Footer
    touched: tuple[int, ...]
    staging: str
    staged: str
    path: str
    template: Footer | None = None
    fresh: WriteOptions | None = field(default=None)
    ledger: Ledger = field(default_factory=dict)
    guarded: bool = True


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


Columns = dict[str, Any]
"""Columns as they were; those that were changed within their pages are `PatchedChunk`."""


@dataclass(slots=True)
class _Touched:
    """A row group of `count` rows, of which those at `positions` are to be `rows`.

    What was read of it already is `whole`; or `differing` gives the columns that differ, a lot at a time. Of some,
    which are `bounded`, the statistics will be these.
    """

    group: int
    count: int
    positions: Any
    rows: pa.Table
    whole: Columns | None = None
    differing: list[Callable[[], Columns]] | None = None
    bounded: dict[str, thrift.Struct] = field(default_factory=dict)


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
    read_ahead: dict[int, _Touched] = field(default_factory=dict)
    thread: int = field(default_factory=threading.get_ident)
    opened: dict[tuple[int, bool], pq.ParquetFile] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[str]:
        """The columns that this file is to hold. A partition column that its path names may be left to the path."""
        own, names = self.job.footer, set(self.job.footer.schema.names)
        return [n for n in self.shape.stored if n in names or n not in own.partition]

    @cached_property
    def _compared(self) -> frozenset[str]:
        return frozenset(self.columns)

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
                    if attempt.own and self._old_file is not None:
                        return self._spliced(attempt, first, self._old_file)
                except (CannotCopy, thrift.Damaged) as why:
                    self._log_anew(why)
                check_int96(self.location, self.job.footer.path, self.file)
                return self._rewritten(attempt, first)
        raise AssertionError("the last layout takes every row")

    @cached_property
    def _old_file(self) -> OldFile | None:
        """The file as one to copy from, if it can be."""
        try:
            return OldFile.of(self.source, *self._raw_footer, self.file.metadata, self._schema)
        except (CannotCopy, thrift.Damaged) as why:
            self._log_anew(why)
            return None

    def _log_anew(self, why: Exception) -> None:
        logger.debug("%s is written anew: %s", self.location.show(self.job.footer.path), why)

    def _spliced(self, attempt: _Attempt, first: int, old: OldFile) -> Rewritten:
        """Row groups that do not change are copied, and of the others the columns that do not."""
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
        touched = self._touch(group)
        if touched.differing is None and not self._differs(touched):
            writer.keep(group)
            return
        self._check_fits(touched, attempt)
        writer.replace(group, self._lots_to_write(touched, attempt.layout.rows))

    def _lots_to_write(self, touched: _Touched, fields: pa.Schema) -> Iterator[Lot]:
        assert touched.differing is not None
        while touched.differing:  # what was read is let go
            yield partial(self._columns_to_write, touched, touched.differing.pop(0), fields)

    def _columns_to_write(
        self, touched: _Touched, differing: Callable[[], Columns], fields: pa.Schema
    ) -> Iterator[tuple[list[str], pa.Table | Bounded | PatchedChunk]]:
        """A lot is read, compared, patched and encoded before the next one is."""
        old = differing()
        for name in [n for n, column in old.items() if isinstance(column, PatchedChunk)]:
            yield [name], old.pop(name)
        if not old:
            return
        if not old.keys().isdisjoint(self.job.footer.int96):
            check_int96(self.location, self.job.footer.path, self._open(), [touched.group], old)
        for name in [n for n in old if n in touched.bounded]:
            yield [name], Bounded(self._merged(touched, old, [fields.field(name)]), touched.bounded[name])
        for names in self._lots(touched.group, [f.name for f in fields if f.name in old], _LOT_BYTES):
            yield names, self._merged(touched, old, [fields.field(n) for n in names], numbered=True)

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
    def _raw_footer(self) -> tuple[thrift.Whole, int]:
        """The footer, decoded, and where it begins; PyArrow can be asked for any of its column chunks."""
        with reading(self.location, self.job.footer.path):
            raw = footer_bytes(self.source)
        fields = checked_footer(self.location, self.job.footer.path, raw, self.file.metadata)
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

    def _check_fits(self, touched: _Touched, attempt: _Attempt) -> None:
        if attempt.doubtful:
            own = {f.name: f for f in attempt.layout.rows}
            if not all(column_fits(touched.rows.column(n), own.get(n)) for n in self.columns):
                raise _DoesNotFit

    # -- what changes

    def _first_change(self) -> int | None:
        """The first row group in which a matched row differs from its source row; what is read of it is kept."""
        for group in self.job.touched:
            touched = self._touch(group)
            if self._differs(touched):
                self.read_ahead[group] = touched
                return group
        return None

    def _touch(self, group: int) -> _Touched:
        """The source rows for a row group, counted by the file's calendar: its other rows and its footer keep it."""
        ahead = self.read_ahead.pop(group, None)
        if ahead is not None:
            return ahead
        positions, rows = self.replacements.rows(group)
        own = self.job.footer
        rows = in_calendar(rows, own.calendar, self.location.show(own.path), own.int96)
        return _Touched(group, self.file.metadata.row_group(group).num_rows, positions, rows)

    def _differs(self, touched: _Touched) -> bool:
        """Is a row to be another than it is? No more is read than tells."""
        lacking = [touched.rows.column(n) for n in self._compared.difference(self._names)]
        changes = any(column.null_count < len(column) for column in lacking)
        if self._old_file is None:
            return bool(self._differing(touched, self._read_whole(touched))) or changes
        in_pages = self._in_pages(touched, self._old_file)
        lots = [partial(self._read_and_compare, touched, in_pages, lot) for lot in self._lots_to_read(touched.group)]
        first: Columns = {}
        while lots and not first:
            first = lots.pop(0)()
        touched.differing = [lambda: first, *lots]
        return bool(first) or changes

    def _read_whole(self, touched: _Touched) -> pa.Table:
        table = self._read(touched.group, self._names)
        touched.whole = _by_name(table)
        return table

    def _read_and_compare(self, touched: _Touched, in_pages: InPages, names: list[str]) -> Columns:
        """The columns in which a row is to become another; some are changed within their pages at once."""
        undecoded = in_pages.undecoded(names)
        changed = {name: chunk for name, chunk in undecoded.items() if chunk is not None}
        self.changed.update(changed)
        others = [n for n in names if n not in undecoded]
        differing = self._differing(touched, self._read(touched.group, others)) if others else {}
        return {**differing, **changed}

    def _in_pages(self, touched: _Touched, old: OldFile) -> InPages:
        names = self._compared - set(self.shape.keys) if self._is_local else ()
        return InPages(old, touched.group, touched.count, touched.positions, touched.rows, names, self._types)

    @cached_property
    def _is_local(self) -> bool:
        return isinstance(self.location.storage, LocalStorage)

    def _differing(self, touched: _Touched, columns: pa.Table) -> Columns:
        """The columns, as they are, in which a row is to become another."""
        everywhere = len(touched.positions) == touched.count
        matched = columns if everywhere else columns.take(pa.array(touched.positions))
        names = [n for n in columns.column_names if n in self._compared]
        if _same_rows(matched.select(names), touched.rows.select(names)):
            return {}
        before = {n: arrays.plain(matched.column(n)) for n in names}
        changed = [n for n in names if not _same_values(before[n], touched.rows.column(n))]
        for name in changed:
            self._check_key(name, before[name], touched.rows)
            self._keep_bounds(touched, name, before[name])
        self.changed.update(changed)
        return {n: columns.column(n) for n in changed}

    def _keep_bounds(self, touched: _Touched, name: str, before: pa.ChunkedArray) -> None:
        """Of a large column of text, if rows that changed were within its bounds, these are known already."""
        is_text = types.is_string(self._types[name]) or types.is_binary(self._types[name])
        if self._old_file is None or not is_text or name in self._numbered.columns:
            return
        (chunk,) = self._old_file.chunks_of(touched.group, [name])
        if chunk.metadata[UNCOMPRESSED][1] >= _LARGE_TEXT:
            statistics = text_statistics(chunk, before, touched.rows.column(name))
            touched.bounded |= {} if statistics is None else {name: statistics}

    @cached_property
    def _names(self) -> list[str]:
        return list(self._schema.names)

    @cached_property
    def _schema(self) -> pa.Schema:
        """The columns as they are read, which PyArrow makes anew whenever it is asked."""
        return self.file.schema_arrow

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {column.name: column.type for column in self._schema}

    def _lots_to_read(self, group: int) -> list[list[str]]:
        names = [n for n in self._names if n not in self._same_by_key]
        if not self._is_local:  # each time is a request
            return [names]
        if self.threads == 1:
            return self._lots(group, names, _LOT_BYTES)
        # Little tells first whether anything changes. Then the longest work, so that all are done at about one time.
        names.sort(key=partial(self._stored_bytes, group), reverse=True)
        lots = self._lots(group, names, _LOT_BYTES // 8)
        return [*lots[-1:], *lots[:-1]]

    @cached_property
    def _same_by_key(self) -> set[str]:
        """Key columns that need not be read again: rows that met have the same in them."""
        if self.job.guarded:
            return set()
        types = {n: arrays.plain_type(self._types[n]) for n in self.shape.keys if n in self._types}
        return {n for n, dtype in types.items() if keys.equal_is_same(dtype) and n not in self.job.footer.partition}

    def _lots(self, group: int, names: Iterable[str], enough: int) -> list[list[str]]:
        """Columns that are comfortable to hold together."""
        lots: list[list[str]] = []
        size = enough
        for name in names:
            if size >= enough:
                lots.append([])
                size = 0
            lots[-1].append(name)
            size += self._stored_bytes(group, name)
        return lots

    def _stored_bytes(self, group: int, name: str) -> int:
        assert self._old_file is not None
        return sum(chunk.metadata[UNCOMPRESSED][1] for chunk in self._old_file.chunks_of(group, [name]))

    def _check_key(self, name: str, before: pa.ChunkedArray, rows: pa.Table) -> None:
        """The last guard: whatever went wrong in matching, a row is only replaced by one of its own key."""
        if name in self.shape.keys and name not in self.job.footer.partition:
            old = self._column(before, self.unified.field(name), rows.num_rows)
            if keys.differ(keys.canonical(old), keys.canonical(rows.column(name))).any():
                raise DatasetMergeError(
                    f"Rows of {self.location.show(self.job.footer.path)} would be replaced by rows of other keys. "
                    "This is a bug in fsspeckit; nothing was changed.",
                    operation="rewrite",
                )

    def _stays_sorted(self) -> bool:
        """A declared sort order stays true if the sorting columns are keys, or did not change."""
        leaves = dict(enumerate(f.name for f in self._schema for _ in range(leaf_count(f.type))))
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

    def _open(self, *, numbered: bool = False) -> pq.ParquetFile:
        """The file for this thread, as PyArrow's are not for several at once; `numbered` with that text as numbers."""
        if not numbered and threading.get_ident() == self.thread:
            return self.file
        key = threading.get_ident(), numbered
        if key not in self.opened:
            columns = self._numbered.columns if numbered else None
            with reading(self.location, self.job.footer.path):
                self.opened[key] = open_source(self.source, self.file.metadata, columns)
        return self.opened[key]

    def _whole(self, group: int, attempt: _Attempt, *, touched: bool = True) -> pa.Table:
        """A row group as it is to be, all columns of it."""
        plain = attempt.layout.rows
        if not touched or group not in self.job.touched:
            columns, count = _by_name(self._read(group, self._names)), self.file.metadata.row_group(group).num_rows
            return pa.table([self._column(columns.get(f.name), f, count) for f in plain], schema=plain)
        change = self._touch(group)
        self._check_fits(change, attempt)
        if change.whole is None:
            self._differing(change, self._read_whole(change))
        assert change.whole is not None
        return self._merged(change, change.whole, plain)

    def _merged(
        self, touched: _Touched, old: Columns, fields: Iterable[pa.Field], *, numbered: bool = False
    ) -> pa.Table:
        """Columns as they are to be, which are no longer needed as they were; text that was read as numbers may stay
        `numbered`."""
        positions, columns, merged = touched.positions, [], []
        for target in fields:
            before = old.pop(target.name, None)
            new = self._column(touched.rows.column(target.name), target, len(positions))
            if numbered and is_numbered(before, target.type) and len(positions) < touched.count:
                columns.append(patched_numbers(before, positions, new))
            else:
                columns.append(patched(self._column(before, target, touched.count), positions, new))
            merged.append(target.with_type(columns[-1].type))
        return pa.table(columns, schema=pa.schema(merged))

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

    def _read(self, group: int, names: list[str]) -> pa.Table:
        """Plain columns, but for text that is read as numbers into its dictionary."""
        read = partial(read_row_group, self.location, self.job.footer.path, group=group)
        some, numbered = None if names is self._names else names, self._numbered.columns
        if self._old_file is not None:
            chunks = self._old_file.chunks_of(group, names)
            self.location.storage.will_read(self.source, ((chunk.start, chunk.end) for chunk in chunks))
        if group in self.job.touched and not set(numbered).isdisjoint(names):
            with contextlib.suppress(UnreadableFileError):  # of dictionaries that PyArrow makes others of
                table = read(self._open(numbered=True), columns=some)
                if self._numbered.were_read(group, _by_name(table)):
                    return _plain(table, numbered)
        return _plain(read(self._open(), columns=some))


def _plain(table: pa.Table, but: Collection[str] = ()) -> pa.Table:
    columns = table.columns
    plain = [c if n in but else arrays.plain(c) for n, c in zip(table.column_names, columns, strict=True)]
    if all(new is old for new, old in zip(plain, columns, strict=True)):
        return table
    return pa.Table.from_arrays(plain, table.column_names)


def _by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _same_rows(old: pa.Table, new: pa.Table) -> bool:
    """Are all columns the same, bit for bit? Many of them are compared much quicker together."""
    return bool(old.schema.types == new.schema.types) and same_bits(old, new)


def _same_values(old: pa.ChunkedArray, new: pa.ChunkedArray) -> bool:
    try:
        return identical(arrays.cast(old, new.type), new)
    except arrays.DoesNotFit:
        return False
