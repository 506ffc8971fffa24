"""Write the new file: the layouts to try, and the ways to write a file.

`splice` copies the bytes of unchanged row groups and columns, and `copy` those of the whole file. `reencode` reads and
writes the whole file, with the row groups of the old one. `as_new_files` does so with new row groups and names.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from fsspeckit.core.model import Rewritten, Staged, WriteOptions
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.append import AppendedTo, append_columns
from fsspeckit.core.parquet.chunk_layout import NotSpliceable, chunk_entries
from fsspeckit.core.parquet.footer_override import with_entries
from fsspeckit.core.parquet.layout import Layout, column_fits, file_layout, holds_all_rows, template_layout
from fsspeckit.core.parquet.metadata_entries import NewValues, updated_entries
from fsspeckit.core.parquet.reader import check_int96
from fsspeckit.core.parquet.retype import NewColumns, fields_with_columns
from fsspeckit.core.parquet.schema import leaf_count
from fsspeckit.core.parquet.splice import ColumnBatch, SplicedFile, copy_with_footer
from fsspeckit.core.parquet.writer import FileWriter, NewFileWriter, receipt_of
from fsspeckit.core.parquet.writer_options import codec_of
from fsspeckit.core.rewrite.job import OpenFile, RowGroupChange
from fsspeckit.core.rewrite.row_group import (
    Columns,
    Difference,
    always_encoded,
    by_name,
    change_of,
    column_batches,
    compare,
    differing_in_missing_columns,
    find_difference,
    merged,
    read_columns,
    replaced_columns,
)

logger = logging.getLogger("fsspeckit.rewrite")


class RowsDoNotFit(Exception):
    """Source rows do not fit the layout of this attempt."""


@dataclass(frozen=True, slots=True)
class LayoutAttempt:
    """A layout to write the file in.

    `can_splice`: it is the file's own schema, so bytes can be copied. `check_rows`: some rows may not fit.
    `same_leaves`: it has the columns of the file, and some of them may have become nullable.
    """

    layout: Layout
    can_splice: bool
    check_rows: bool
    same_leaves: bool = True


def layouts(file: OpenFile) -> Iterator[LayoutAttempt]:
    """The file's own layout, the same with nullable columns, and the unified layout, which holds every row."""
    entries, footer = file.job.ledger, file.footer
    for nullable in (False, True) if footer.by_spark else (False,):
        own = file_layout(file.location, footer, file.decoded_footer, nullable)
        check_rows = not holds_all_rows(own.rows, file.unified)
        yield LayoutAttempt(own.with_entries(entries), can_splice=not nullable, check_rows=check_rows)
    yield LayoutAttempt(_unified_layout(file, own).with_entries(entries), False, False, same_leaves=False)


def _unified_layout(file: OpenFile, own: Layout) -> Layout:
    template, codec = file.job.template, codec_of(file.metadata)
    if template is not None and set(template.schema.names) <= set(file.columns):
        return template_layout(file.location, template, nullable=True).with_metadata_of(own, codec)
    values = NewValues(rows=None if file.job.deletes else file.metadata.num_rows)
    entries = updated_entries(file.schema.metadata or {}, values)
    columns = pa.schema([file.shape.schema.field(n) for n in file.columns], entries)
    return Layout.new(columns, WriteOptions(compression=codec))


def _check_fits(file: OpenFile, change: RowGroupChange, attempt: LayoutAttempt) -> None:
    if attempt.check_rows:
        own = {f.name: f for f in attempt.layout.rows}
        for name in replaced_columns(file, change):
            if not column_fits(change.rows.column(name), own.get(name)):
                raise RowsDoNotFit(f"new values of column {name!r} do not fit the file's own schema")


# -- splice


def splice(file: OpenFile, attempt: LayoutAttempt, start: int, already_read: Difference | None) -> Rewritten:
    """Copy unchanged row groups, and the unchanged columns of the others.

    No row group before `start` changes. `already_read` is the difference that was found in `start`.
    """
    assert file.old is not None
    location, job, changed, changed_rows, deleted = file.location, file.job, set[str](), 0, 0
    with SplicedFile(location.storage, job.staged_path, attempt.layout, file.old, job.path, file.pool) as writer:
        for group in range(file.metadata.num_row_groups):
            difference = already_read if already_read is not None and already_read.group == group else None
            if difference is None and group >= start and job.changes(group):
                difference = find_difference(file, group)
            if difference is None:
                _copy_row_group(writer, file, attempt, group)
            else:
                _check_fits(file, difference.change, attempt)
                changed |= _splice_row_group(writer, file, attempt, difference)
                changed_rows += int(np.count_nonzero(difference.differing))
                deleted += len(difference.change.deleted)
            file.meter.reach((group + 1) / file.metadata.num_row_groups)
        if deleted and not writer.rows and not job.keep_empty:
            writer.abandon()
            return _removed(file)
        size = writer.close(in_order=_stays_sorted(file, changed), changed=file.names if deleted else changed)
    logger.debug("%s: %d of %d bytes copied", location.show(job.path), writer.copied, size)
    return replace(_staged(file, writer.rows, size, changed_rows), copied=writer.copied, spliced=True)


def _copy_row_group(writer: SplicedFile, file: OpenFile, attempt: LayoutAttempt, group: int) -> None:
    """Copy a row group, except columns that are added or encoded in every row group."""
    if not file.reencoded and not file.added:
        writer.copy_row_group(group)
        return

    def batch(names: list[str]) -> Iterator[tuple[list[str], pa.Table]]:
        return _new_columns(file, attempt, group, None, by_name(read_columns(file, group, names)))

    batches = column_batches(file, group, [name for name in file.names if name in file.reencoded])
    added = _added_columns(file, attempt, group, None)
    writer.replace_columns(group, [*(partial(batch, names) for names in batches), *added], file.rows(group))


def _splice_row_group(writer: SplicedFile, file: OpenFile, attempt: LayoutAttempt, difference: Difference) -> set[str]:
    """Write a row group unless all of its rows are deleted. Returns the columns with changed values."""
    group, change, changed = difference.group, difference.change, set(difference.first_batch.changed)
    rows, keep = file.rows(group) - len(change.deleted), always_encoded(file, change)

    def first() -> Iterator[tuple[list[str], pa.Table]]:
        return _new_columns(file, attempt, group, change, difference.first_batch.old)

    def batch(names: Sequence[str]) -> Iterator[tuple[list[str], pa.Table]]:
        compared = compare(file, group, change, names, keep, difference.differing)
        changed.update(compared.changed)
        return _new_columns(file, attempt, group, change, compared.old)

    if rows:
        unread = (partial(batch, names) for names in difference.unread)
        writer.replace_columns(group, [first, *unread, *_added_columns(file, attempt, group, change)], rows)
    return changed


def _new_columns(
    file: OpenFile, attempt: LayoutAttempt, group: int, change: RowGroupChange | None, old: Columns
) -> Iterator[tuple[list[str], pa.Table]]:
    """The new columns of a row group, batch by batch."""
    fields = attempt.layout.rows
    if not old.keys().isdisjoint(file.job.footer.int96):
        check_int96(file.location, file.path, file.per_thread.get(), [group], old)
    for names in column_batches(file, group, [name for name in fields.names if name in old]):
        yield names, merged(file, group, change, old, [fields.field(name) for name in names], dictionaries=True)


def _added_columns(
    file: OpenFile, attempt: LayoutAttempt, group: int, change: RowGroupChange | None
) -> list[ColumnBatch]:
    """The columns that the file lacks, one per batch."""

    def batch(field: pa.Field) -> Iterator[tuple[list[str], pa.Table]]:
        yield [field.name], merged(file, group, change, {}, [field])

    return [partial(batch, attempt.layout.rows.field(field.name)) for field, _ in file.added]


def copy(file: OpenFile) -> Rewritten:
    """Copy the file with the job's ledger in its footer. That takes no layout, so every file can be copied."""
    job, storage = file.job, file.location.storage
    footer = thrift.encode(with_entries(file.decoded_footer, job.ledger))
    size = copy_with_footer(storage, file.source, file.pages_end, footer, job.staged_path, job.path)
    staged = _staged(file, file.metadata.num_rows, size, changed_rows=0)
    return replace(staged, copied=file.pages_end, spliced=True)


def append(file: OpenFile) -> Rewritten | None:
    """Copy the file with null in the columns that it lacks; `None` if they have to be stored in another way."""
    job, columns, storage = file.job, NewColumns({}, file.added), file.location.storage
    footer = fields_with_columns(file.location, file.footer, file.decoded_footer, columns, job.template)
    old = AppendedTo(file.source, file.pages_end, file.metadata)
    fields = [field for field, _ in file.added]
    try:
        size, copied = append_columns(storage, old, footer, fields, job.ledger, job.staged_path, job.path)
    except NotSpliceable:
        return None
    staged = _staged(file, file.metadata.num_rows, size, changed_rows=0)
    return replace(staged, copied=copied, spliced=True)


# -- re-encode


def reencode(file: OpenFile, attempt: LayoutAttempt, start: int, already_read: Difference | None) -> Rewritten:
    """Read and write the whole file. `start` and `already_read` as in `splice`; `already_read` has all columns."""
    check_int96(file.location, file.path, file.per_thread.get())
    changed, changed_rows, deleted = set[str](), 0, 0
    with FileWriter(file.location.storage, file.job.staged_path, attempt.layout, file.job.path) as writer:
        for group in range(file.metadata.num_row_groups):
            table, changed_here, count = _new_row_group(file, attempt, group, start, already_read)
            changed, changed_rows = changed | changed_here, changed_rows + count
            deleted += file.rows(group) - table.num_rows
            if table.num_rows or not file.rows(group):
                replaced = chunk_entries(file.decoded_footer, group) if attempt.same_leaves else None
                writer.write_row_group(table, replaced)
            file.meter.reach((group + 1) / file.metadata.num_row_groups)
        if deleted and not writer.rows and not file.job.keep_empty:
            writer.abandon()
            return _removed(file)
        values = NewValues(file.names if deleted else changed, writer.rows)
        size = writer.close(in_order=_stays_sorted(file, changed), values=values)
        return _staged(file, writer.rows, size, changed_rows)


def as_new_files(file: OpenFile, options: WriteOptions) -> Rewritten:
    """Write the rows to new files in the same folder, in the first layout that holds them."""
    folder = file.path.rpartition("/")[0]
    check_int96(file.location, file.path, file.per_thread.get())
    for attempt in layouts(file):
        layout, changed_rows, deleted = attempt.layout.compressed(options), 0, 0
        with NewFileWriter(file.location.storage, file.job.staging, layout, options) as writer:
            try:
                for group in range(file.metadata.num_row_groups):
                    table, _, count = _new_row_group(file, attempt, group, 0, None)
                    changed_rows += count
                    deleted += file.rows(group) - table.num_rows
                    writer.write(folder, table)
                    file.meter.reach((group + 1) / file.metadata.num_row_groups)
                if file.job.keep_empty and deleted == file.metadata.num_rows:
                    writer.write_empty(folder)
                staged = tuple(writer.finish())
                return Rewritten(file.path, staged, removed=bool(deleted) and not staged, changed=changed_rows)
            except RowsDoNotFit:
                writer.discard()
    raise AssertionError("the last layout holds every row")


def _new_row_group(
    file: OpenFile, attempt: LayoutAttempt, group: int, start: int, already_read: Difference | None
) -> tuple[pa.Table, frozenset[str], int]:
    """All columns of a row group, the names of those with changed values, and the number of changed rows."""
    fields = attempt.layout.rows
    if group < start or not file.job.changes(group):
        return merged(file, group, None, by_name(read_columns(file, group, file.names)), fields), frozenset(), 0
    difference = already_read if already_read is not None and already_read.group == group else None
    change = change_of(file, group) if difference is None else difference.change
    _check_fits(file, change, attempt)
    if len(change.deleted) == file.rows(group):
        return fields.empty_table(), frozenset(), 0
    if difference is None:
        differing = differing_in_missing_columns(file, change)
        compared = compare(file, group, change, file.names, file.names, differing)
    else:
        differing, compared = difference.differing, difference.first_batch
    return merged(file, group, change, compared.old, fields), compared.changed, int(np.count_nonzero(differing))


# -- the result


def _staged(file: OpenFile, rows: int, size: int, changed_rows: int) -> Rewritten:
    job = file.job
    if (disk := file.location.on_disk()) is not None:
        disk.storage.copy_mode(file.location.at(file.path), job.staged_path)
    receipt = receipt_of(file.location.storage, job.staged_path, rows)
    staged = Staged(job.staged, job.path, rows, size, file.path, receipt)
    return Rewritten(file.path, (staged,), keeps_rows=job.keeps_rows, changed=changed_rows)


def _removed(file: OpenFile) -> Rewritten:
    """All rows were deleted: there is no new file."""
    file.location.storage.remove(file.job.staged_path)
    return Rewritten(file.path, (), removed=True)


def _stays_sorted(file: OpenFile, changed: Collection[str]) -> bool:
    """A declared sort order stays true if the sorting columns are keys, or did not change."""
    leaves = dict(enumerate(f.name for f in file.schema for _ in range(leaf_count(f.type))))
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    sorting = {leaves.get(s.column_index) for group in groups for s in group.sorting_columns}
    return None not in sorting and sorting.isdisjoint(set(changed).difference(file.shape.keys))
