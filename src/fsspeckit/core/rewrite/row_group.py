"""Read the columns of a row group, compare them with the new rows, and merge both.

Columns are read in batches of about 2 MiB. A batch is read, compared, merged and encoded before the next one is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.errors import DatasetMergeError, UnreadableFileError
from fsspeckit.core.parquet.reader import read_row_group
from fsspeckit.core.rewrite.job import OpenFile, RowGroupChange
from fsspeckit.core.rewrite.patch import is_dictionary, patched, patched_dictionary, without_rows
from fsspeckit.core.values import arrays, keys
from fsspeckit.core.values.calendars import to_file_calendar
from fsspeckit.core.values.conform import to_common_type
from fsspeckit.core.values.equality import differing_rows, identical, same_bits

# Reading all of 200 columns at once took a third longer, and twice the memory.
_BATCH_BYTES = 2 << 20

Columns = dict[str, pa.ChunkedArray]
"""Columns of a row group by name."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A batch of columns: the `old` values of those to encode, and the names of those with `changed` values.

    Merging removes columns from `old` one by one, to free their memory.
    """

    old: Columns
    changed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """A changed row group: the first batch of columns with a change, and the batches that were not read yet.

    `differing` is a mask of the new rows. Each comparison marks the rows whose values differ from those in the file.
    """

    group: int
    change: RowGroupChange
    first_batch: Compared
    unread: tuple[Sequence[str], ...]
    differing: Any


# -- read


def read_columns(file: OpenFile, group: int, names: Sequence[str]) -> pa.Table:
    """Columns in plain types, except text that is read as dictionary indices."""
    read = partial(read_row_group, file.location, file.path, group=group)
    columns, dictionary_columns = None if names is file.names else list(names), file.dictionary_columns.names
    if file.old is not None:
        chunks = file.old.chunks_of(group, names)
        file.location.storage.will_read(file.source, ((chunk.start, chunk.end) for chunk in chunks))
    if group in file.job.changed_groups and not set(dictionary_columns).isdisjoint(names):
        with contextlib.suppress(UnreadableFileError):  # PyArrow may read the text where it fails on a dictionary
            table = read(file.per_thread.get(dictionaries=True), columns=columns)
            if file.dictionary_columns.is_as_stored(group, table):
                return _plain(table, dictionary_columns)
    return _plain(read(file.per_thread.get(), columns=columns))


def _plain(table: pa.Table, except_columns: Collection[str] = ()) -> pa.Table:
    columns = table.columns
    plain = [c if n in except_columns else arrays.plain(c) for n, c in zip(table.column_names, columns, strict=True)]
    if all(new is old for new, old in zip(plain, columns, strict=True)):
        return table
    return pa.Table.from_arrays(plain, table.column_names)


def by_name(table: pa.Table) -> Columns:
    return dict(zip(table.column_names, table.columns, strict=True))


def column_batches(file: OpenFile, group: int, names: Iterable[str], batch_bytes: int = 0) -> list[list[str]]:
    """Names of columns in batches of about 2 MiB, or `batch_bytes`, before compression."""
    batch_bytes = batch_bytes or _BATCH_BYTES
    batches: list[list[str]] = []
    size = batch_bytes
    for name in names:
        if size >= batch_bytes:
            batches.append([])
            size = 0
        batches[-1].append(name)
        size += _stored_bytes(file, group, name)
    return batches


def _stored_bytes(file: OpenFile, group: int, name: str) -> int:
    assert file.old is not None
    return sum(chunk.uncompressed_size for chunk in file.old.chunks_of(group, [name]))


def _batches_to_compare(file: OpenFile, group: int, change: RowGroupChange) -> Sequence[Sequence[str]]:
    if file.old is None:
        return [file.names]
    encoded, compared = set(always_encoded(file, change)), set(change.rows.column_names) - _equal_keys(file)
    names = [n for n in file.names if n in encoded or n in compared]
    if file.location.storage.opens_by_request:
        return [names] if names else []
    if file.pool.workers == 1:
        return column_batches(file, group, names)
    # The smallest columns come first and show whether anything changes. Then come the largest, so that all threads
    # finish at about the same time.
    names.sort(key=partial(_stored_bytes, file, group), reverse=True)
    batches = column_batches(file, group, names, max(1, _BATCH_BYTES // 8))
    return [*batches[-1:], *batches[:-1]]


def _equal_keys(file: OpenFile) -> set[str]:
    """Key columns that need not be read: matched rows have equal values in them."""
    if file.job.verify_keys:
        return set()
    types = {n: arrays.plain_type(file.schema.field(n).type) for n in file.shape.keys if n in file.names}
    return {n for n, dtype in types.items() if keys.equal_is_identical(dtype) and n not in file.job.footer.partition}


def always_encoded(file: OpenFile, change: RowGroupChange) -> Collection[str]:
    """The columns of a changed row group that are encoded even if no value changes in them."""
    return file.names if file.old is None or len(change.deleted) else file.reencoded


# -- compare


def change_of(file: OpenFile, group: int) -> RowGroupChange:
    """The change of a row group, with dates and timestamps in the calendar of the file."""
    own = file.job.footer
    if group in file.job.deleted_groups:
        change = RowGroupChange((), pa.table({}), range(file.rows(group)))
    else:
        change = file.changes.row_group(group)
    assert file.job.deletes or not len(change.deleted)
    int96 = own.int96.union(column.name for column, other in file.added if other and column.name in other.int96)
    return replace(change, rows=to_file_calendar(change.rows, own.calendar, file.shown, int96))


def replaced_columns(file: OpenFile, change: RowGroupChange) -> list[str]:
    """The columns of the new file that get values from the new rows."""
    new = set(change.rows.column_names)
    return [name for name in file.columns if name in new]


def first_difference(file: OpenFile) -> Difference | None:
    """The first row group that changes."""
    groups = filter(file.job.changes, range(file.metadata.num_row_groups))
    differences = (find_difference(file, group) for group in groups)
    return next((difference for difference in differences if difference is not None), None)


def find_difference(file: OpenFile, group: int) -> Difference | None:
    """Read batches of columns until one shows a change; `None` if the row group does not change."""
    change = change_of(file, group)
    differing = differing_in_missing_columns(file, change)
    if 0 < len(change.deleted) == file.rows(group):
        return Difference(group, change, Compared({}), (), differing)
    batches, compared, unchanged = _batches_to_compare(file, group, change), Compared({}), list[str]()
    for number, names in enumerate(batches, 1):
        compared = compare(file, group, change, names, always_encoded(file, change), differing)
        if compared.changed or len(change.deleted):
            unread = (*batches[number:], *_reencoded_batches(file, group, unchanged))
            return Difference(group, change, compared, unread, differing)
        unchanged += names
    if not differing.any():
        return None
    first_batch = compared if file.old is None else Compared({})
    return Difference(group, change, first_batch, _reencoded_batches(file, group, unchanged), differing)


def differing_in_missing_columns(file: OpenFile, change: RowGroupChange) -> Any:
    """A mask of the new rows: those with a value in a column that the file lacks."""
    differing = np.zeros(len(change.positions), dtype=bool)
    for name in replaced_columns(file, change):
        if name not in file.names:
            differing |= change.rows.column(name).is_valid().to_numpy()
    return differing


def _reencoded_batches(file: OpenFile, group: int, unchanged: Iterable[str]) -> tuple[Sequence[str], ...]:
    """Unchanged columns that are encoded in every row group. They are read again: their values were not kept."""
    if file.old is None:
        return ()
    return tuple(column_batches(file, group, [n for n in unchanged if n in file.reencoded]))


def compare(
    file: OpenFile, group: int, change: RowGroupChange, names: Sequence[str], keep: Collection[str], differing: Any
) -> Compared:
    """Read columns and compare them with the new rows. Changed columns and those in `keep` are kept.

    New rows with other values are marked in `differing`. Threads may do so at the same time, as no mark is removed.
    """
    table = read_columns(file, group, names)
    changed = _changed(file, change, table, differing)
    kept = changed.union(keep)
    return Compared({name: column for name, column in by_name(table).items() if name in kept}, changed)


def _changed(file: OpenFile, change: RowGroupChange, columns: pa.Table, differing: Any) -> frozenset[str]:
    if not len(change.positions):
        return frozenset()
    all_match = len(change.positions) == columns.num_rows
    matched = columns if all_match else columns.take(pa.array(change.positions))
    replaced, changed = {*change.rows.column_names}.intersection(file.columns), []
    names = [n for n in columns.column_names if n in replaced]
    old, new = matched.select(names), change.rows.select(names)
    if old.schema.types == new.schema.types and same_bits(old, new):  # one comparison for all columns is much faster
        return frozenset()
    for name in names:
        before, after = arrays.plain(matched.column(name)), change.rows.column(name)
        if not _same_values(before, after):
            _check_key(file, name, before, change.rows)
            changed.append(name)
            if not differing.all():
                differing[_differing_rows(before, after)] = True
    return frozenset(changed)


def _same_values(old: pa.ChunkedArray, new: pa.ChunkedArray) -> bool:
    try:
        return identical(arrays.cast(old, new.type), new)
    except arrays.ValueDoesNotFit:
        return False


def _differing_rows(old: pa.ChunkedArray, new: pa.ChunkedArray) -> Any:
    """A mask of the rows with other values, among them those whose old value does not fit the type of the new rows."""
    try:
        return differing_rows(arrays.cast(old, new.type), new)
    except arrays.ValueDoesNotFit:
        if len(old) == 1:
            return np.ones(1, dtype=bool)
        half = len(old) // 2
        halves = (slice(None, half), slice(half, None))
        return np.concatenate([_differing_rows(old[part], new[part]) for part in halves])


def _check_key(file: OpenFile, name: str, before: pa.ChunkedArray, rows: pa.Table) -> None:
    """The last check after matching: a row is only replaced by a row with its own key."""
    if name in file.shape.keys and name not in file.job.footer.partition:
        old = _fitted(file, before, file.unified.field(name), rows.num_rows)
        if keys.differ(keys.canonical(old), keys.canonical(rows.column(name))).any():
            raise DatasetMergeError(
                f"Rows of {file.shown} would be replaced by rows of other keys. "
                "This is a bug in fsspeckit; nothing was changed.",
                operation="rewrite",
            )


# -- merge


def merged(
    file: OpenFile,
    group: int,
    change: RowGroupChange | None,
    old: Columns,
    fields: Iterable[pa.Field],
    *,
    dictionaries: bool = False,
) -> pa.Table:
    """The new columns. Their old values are removed from `old`. With `dictionaries`, dictionary indices are kept."""
    rows, columns, types = file.rows(group), [], []
    for target in fields:
        before = old.pop(target.name, None)
        if change is None:
            column = _fitted(file, before, target, rows)
        else:
            positions, new = _new_values(file, change, target)
            if dictionaries and is_dictionary(before, target.type) and len(positions) < rows:
                column = patched_dictionary(before, positions, new, change.deleted)
            else:
                column = patched(_fitted(file, before, target, rows), positions, new)
                column = without_rows(column, change.deleted)
        columns.append(column)
        types.append(target.with_type(column.type))
    return pa.table(columns, schema=pa.schema(types))


def _new_values(file: OpenFile, change: RowGroupChange, target: pa.Field) -> tuple[Any, pa.ChunkedArray]:
    """The positions at which a column is replaced, and its new values: none if it is not in the new rows."""
    if target.name not in change.rows.column_names:
        return (), pa.chunked_array([], target.type)
    return change.positions, _fitted(file, change.rows.column(target.name), target, len(change.positions))


def _fitted(file: OpenFile, column: pa.ChunkedArray | None, target: pa.Field, rows: int) -> Any:
    if column is None:
        return pa.chunked_array([arrays.null_array(rows, target.type)])
    return to_common_type(column, target.type, target.name, file.shown)
