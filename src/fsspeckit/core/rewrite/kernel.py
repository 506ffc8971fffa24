"""Merge source rows into one file: row groups in, merged row groups out, in row order.

The kernel does not know how matches were found. An engine hands it, per row group, the positions to replace and the
rows to put there; every other row keeps its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.errors import DatasetMergeError, LayoutError, SchemaMismatchError
from fsspeckit.core.model import Footer, Rewritten, Shape, Staged, WriteOptions
from fsspeckit.core.rewrite.int96 import check_int96
from fsspeckit.core.rewrite.layout import Layout
from fsspeckit.core.rewrite.writer import FileWriter, FreshFiles
from fsspeckit.core.storage import Location
from fsspeckit.core.target.footers import checked_footer, open_parquet, reading
from fsspeckit.core.target.ledger import Ledger
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.values import arrays, keys, schema
from fsspeckit.core.values.calendars import in_calendar
from fsspeckit.core.values.equality import identical


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


def rewrite_file(location: Location, shape: Shape, job: Job, replacements: Replacements) -> Rewritten:
    """Write the merged file into staging, unless every matched row already equals its source row."""
    with open_parquet(location, job.footer.path, job.footer.metadata) as file:
        merge = _Merge(location, shape, job, file, replacements)
        if job.fresh is not None:
            return Rewritten(job.footer.path, tuple(merge.into_fresh_files(job.fresh)))
        change = merge.first_change()
        if change is None:
            return Rewritten(job.footer.path, ())
        return Rewritten(job.footer.path, (merge.into_one_file(change),))


def model_layout(location: Location, footer: Footer, *, loose: bool = False) -> Layout:
    """The layout of an existing file, to write another one like it; `loose` as of `Layout.like`."""
    if footer.metadata is None:
        with open_parquet(location, footer.path) as file:
            footer = replace(footer, metadata=file.metadata)
    raw = checked_footer(location, footer.path, footer.metadata)
    with reading(location, footer.path):
        if loose and footer.by_spark:
            with contextlib.suppress(LayoutError):  # elements of lists in Spark's legacy format cannot be null
                return Layout.like(footer, raw, loose=True)
        return Layout.like(footer, raw)


@dataclass
class _Merge:
    location: Location
    shape: Shape
    job: Job
    file: pq.ParquetFile
    replacements: Replacements

    @property
    def columns(self) -> list[str]:
        """The columns that this file is to hold. A partition column that its path names may be left to the path."""
        own, names = self.job.footer, set(self.job.footer.schema.names)
        return [n for n in self.shape.stored if n in names or n not in own.partition]

    def first_change(self) -> tuple[int, pa.Table] | None:
        """The first row group in which a matched row differs from its source row, already read."""
        for group in self.job.touched:
            positions, rows = self._rows(group)
            old = self._read(group)
            if not self._same(old.take(pa.array(positions)), rows, self.columns):
                return group, old
        return None

    def _same(self, old: pa.Table, new: pa.Table, names: Sequence[str]) -> bool:
        before, after = (dict(zip(t.column_names, t.columns, strict=True)) for t in (old, new))
        return all(_same_values(before.get(name), after[name]) for name in names)

    def into_one_file(self, change: tuple[int, pa.Table]) -> Staged:
        layout = self._layout()
        target = f"{self.job.staging}/{self.job.staged}"
        with FileWriter(self.location.storage, target, layout, self.job.path) as writer:
            for group in range(self.file.num_row_groups):
                old = change[1] if group == change[0] else self._read(group)
                writer.write_row_group(self._merged(group, old, layout.rows))
            rows, size = writer.rows, writer.close()
        self.location.storage.copy_mode(self.location.at(self.job.footer.path), target)
        receipt = self.location.storage.receipt(target)
        return Staged(self.job.staged, self.job.path, rows, size, self.job.footer.path, receipt)

    def into_fresh_files(self, options: WriteOptions) -> list[Staged]:
        layout = self._layout().compressed(options)
        folder = self.job.footer.path.rpartition("/")[0]
        with FreshFiles(self.location.storage, self.job.staging, layout, options) as files:
            for group in range(self.file.num_row_groups):
                files.write(folder, self._merged(group, self._read(group), layout.rows))
            return files.finish()

    def _merged(self, group: int, old: pa.Table, wanted: pa.Schema) -> pa.Table:
        old = self._as_schema(old, wanted)
        if group not in self.job.touched:
            return old
        positions, rows = self._rows(group)
        new = self._as_schema(rows, wanted)
        self._check_keys(old, positions, new)
        order = np.arange(old.num_rows, dtype=np.int64)
        order[positions] = old.num_rows + np.arange(len(positions))
        return pa.concat_tables([old, new]).take(pa.array(order))

    def _check_keys(self, old: pa.Table, positions: Any, new: pa.Table) -> None:
        """The last guard: whatever went wrong in matching, a row is only replaced by one of its own key."""
        for name in self.shape.keys:
            if name in old.column_names and name not in self.job.footer.partition:
                before, after = old.column(name).take(pa.array(positions)), new.column(name)
                if keys.differ(keys.canonical(before), keys.canonical(after)).any():
                    raise DatasetMergeError(
                        f"Rows of {self.location.show(self.job.footer.path)} would be replaced by rows of other keys. "
                        "This is a bug in fsspeckit; nothing was changed.",
                        operation="rewrite",
                    )

    def _as_schema(self, table: pa.Table, wanted: pa.Schema) -> pa.Table:
        columns = dict(zip(table.column_names, table.columns, strict=True))
        return pa.table([self._column(columns.get(f.name), f, table.num_rows) for f in wanted], schema=wanted)

    def _column(self, column: pa.ChunkedArray | None, wanted: pa.Field, rows: int) -> Any:
        if column is None:
            return arrays.nothing(rows, wanted.type)
        try:
            return arrays.cast(column, wanted.type)
        except arrays.DoesNotFit as error:
            raise SchemaMismatchError(
                f"Column {wanted.name!r} of {self.location.show(self.job.footer.path)} holds {error.args[0]!r}, which "
                f"the target's common type {wanted.type} cannot hold. Bring the files to one type first."
            ) from None

    def _rows(self, group: int) -> tuple[Any, pa.Table]:
        """The source rows for a row group, counted by the file's calendar: its other rows and its footer keep it."""
        positions, rows = self.replacements.rows(group)
        own = self.job.footer
        return positions, in_calendar(rows, own.calendar, self.location.show(own.path), own.int96)

    def _read(self, group: int) -> pa.Table:
        table = read_row_group(self.location, self.job.footer.path, self.file, group)
        return pa.table([arrays.plain(c) for c in table.columns], schema=schema.plain_schema(table.schema))

    def _layout(self) -> Layout:
        return self._model().stamped(self.job.ledger)

    def _model(self) -> Layout:
        """The file's own layout if the new values fit it, else the target's unified one."""
        check_int96(self.location, self.job.footer.path, self.file)
        for loose in (False, True) if self.job.footer.by_spark else (False,):
            own = model_layout(self.location, self.job.footer, loose=loose)
            if self._fits(own.rows):
                return own if self._stays_sorted(own) else own.unsorted()
        if self.job.template is not None and set(self.job.template.schema.names) <= set(self.columns):
            return model_layout(self.location, self.job.template, loose=True).worded_like(
                own, _codec(self.file.metadata)
            )
        columns = pa.schema([self.shape.schema.field(n) for n in self.columns], self.file.schema_arrow.metadata)
        return Layout.new(columns, WriteOptions(compression=_codec(self.file.metadata)))

    def _fits(self, wanted: pa.Schema) -> bool:
        unified = schema.plain_schema(self.shape.schema.field(n) for n in self.columns)
        own = {f.name: f for f in wanted}
        if all(f.name in own and _equal(f, own[f.name]) for f in unified):
            return True
        for group in self.job.touched:
            _, rows = self._rows(group)
            if not all(_column_fits(rows.column(n), own.get(n)) for n in unified.names):
                return False
        return True

    def _stays_sorted(self, layout: Layout) -> bool:
        """A declared sort order stays true if the sorting columns are keys, or did not change."""
        declared = layout.options.get("sorting_columns") or ()
        names = [self.file.schema.column(s.column_index).path for s in declared]
        if set(names) <= set(self.shape.keys):
            return True
        return not any(self._sorting_changed(group, names) for group in self.job.touched)

    def _sorting_changed(self, group: int, names: Sequence[str]) -> bool:
        positions, rows = self._rows(group)
        old = self._read(group).take(pa.array(positions))
        flat = [n for n in names if n in old.column_names]
        return len(flat) < len(names) or not self._same(old, rows, flat)


def _same_values(old: pa.ChunkedArray | None, new: pa.ChunkedArray) -> bool:
    if old is None:
        return bool(new.null_count == len(new))
    try:
        return identical(arrays.cast(old, new.type), new)
    except arrays.DoesNotFit:
        return False


def _column_fits(column: pa.ChunkedArray, wanted: pa.Field | None) -> bool:
    if wanted is None:
        return bool(column.null_count == len(column))
    if column.null_count and not wanted.nullable:
        return False
    try:
        arrays.cast(column, wanted.type)
    except arrays.DoesNotFit:
        return False
    return True


def _equal(unified: pa.Field, own: pa.Field) -> bool:
    return bool(unified.type == own.type) and (own.nullable or not unified.nullable)


def _codec(metadata: pq.FileMetaData) -> str:
    found = metadata.row_group(0).column(0).compression.lower() if metadata.num_row_groups else "snappy"
    return "none" if found == "uncompressed" else found.replace("_raw", "")
