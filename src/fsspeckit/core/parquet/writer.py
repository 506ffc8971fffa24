"""Write new files with PyArrow. DuckDB's `COPY` and Spark's writer do not keep an Arrow schema."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core import defaults
from fsspeckit.core.errors import DatasetMergeError, SchemaMismatchError
from fsspeckit.core.model import Staged, WriteOptions
from fsspeckit.core.parquet import thrift
from fsspeckit.core.parquet.footer_io import FooterOverrideSink, tail_bytes
from fsspeckit.core.parquet.footer_override import FooterOverride
from fsspeckit.core.parquet.format import FileMetaData, RowGroup
from fsspeckit.core.parquet.layout import Layout
from fsspeckit.core.parquet.metadata_entries import NewValues
from fsspeckit.core.parquet.statistics import leaves_without_bounds, nan_counts, with_safe_bounds, without_bounds
from fsspeckit.core.storage import Storage
from fsspeckit.core.values import arrays


def receipt_of(storage: Storage, path: str, rows: int) -> str | None:
    """The storage's receipt for a closed file.

    A file with a receipt cannot be read before the commit. So its row count is checked here, with the copy of the
    footer that the storage keeps.
    """
    receipt = storage.receipt(path)
    if receipt is not None:
        with storage.open_input(path) as source:
            footer = pq.read_metadata(pa.BufferReader(tail_bytes(source)))
        if footer.num_rows != rows:
            raise DatasetMergeError(
                f"Row counts do not add up: {footer.num_rows} rows are in a new file's footer, and {rows} were "
                "written. This is a bug in fsspeckit; nothing was changed.",
                operation="check",
            )
    return receipt


class Writer:
    """A context manager that abandons unfinished files after an error."""

    def abandon(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is not None:
            self.abandon()


_Written = tuple[list[int | None], Sequence[thrift.Struct] | None]
"""A written row group: the number of NaN in each leaf, and the column chunks that it replaces."""


class FileWriter(Writer):
    """One Parquet file, written row group by row group. `close` changes its footer and syncs it."""

    def __init__(self, storage: Storage, path: str, layout: Layout, final: str) -> None:
        self._storage, self._path, self._layout = storage, path, layout
        self._sink = FooterOverrideSink(storage.open_output(path, final))
        with storable(), contextlib.ExitStack() as stack:
            stack.callback(self._sink.abandon)
            self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, mode="w"), layout.storage, **layout.options)
            stack.pop_all()
        self._written: list[_Written] = []
        self.rows = 0

    def write_row_group(self, table: pa.Table, old: Sequence[thrift.Struct] | None = None) -> None:
        """`table` has the layout's plain columns; `old` are the column chunks of the file that it replaces."""
        with storable():
            stored = self._layout.store(table)
            self._writer.write_table(stored, row_group_size=max(1, table.num_rows))
        self._written.append((nan_counts(stored), old))
        self.rows += table.num_rows

    def close(self, *, in_order: bool = True, values: NewValues | None = None) -> int:
        """Finish the file and return its size. Sorting columns are dropped unless rows are `in_order`.

        With `values`, key-value entries that are not true for them are dropped.
        """
        layout = self._layout if values is None else self._layout.with_true_entries(values)
        self._sink.hold()
        self._writer.close()
        size = self._sink.finish(partial(self._footer, layout.override, in_order))
        self._storage.sync_file(self._path)
        return size

    def _footer(self, override: FooterOverride | None, in_order: bool, footer: thrift.Struct) -> thrift.Struct:
        groups = thrift.structs(footer, FileMetaData.ROW_GROUPS)
        written = self._written
        if len(groups) != len(written):  # PyArrow splits a row group of very many rows
            written = [(_largest([nans for nans, _ in written]), None)] * len(groups)
        if any(old is not None or nans.count(None) < len(nans) for nans, old in written):
            pairs = zip(groups, written, strict=True)
            groups = [_with_safe_bounds(group, *chunks) for group, chunks in pairs]
            unbounded = set[int]().union(*(leaves_without_bounds(*chunks) for chunks in written))
            footer = {**footer, FileMetaData.ROW_GROUPS: thrift.struct_list(without_bounds(groups, unbounded))}
        return footer if override is None else override.apply(footer, in_order=in_order)

    def abandon(self) -> None:
        self._sink.hold()
        self._writer.close()
        self._sink.abandon()


def _with_safe_bounds(
    group: thrift.Struct, nans: Sequence[int | None], old: Sequence[thrift.Struct] | None
) -> thrift.Struct:
    entries = with_safe_bounds(thrift.structs(group, RowGroup.COLUMNS), nans, old)
    return {**group, RowGroup.COLUMNS: thrift.struct_list(entries)}


def _largest(counts: list[list[int | None]]) -> list[int | None]:
    """The largest count of each leaf."""
    return [max((n for n in leaf if n is not None), default=None) for leaf in zip(*counts, strict=True)]


@contextlib.contextmanager
def storable() -> Iterator[None]:
    """Turn errors about types that Parquet does not have (intervals, unions, structs without fields) into ours."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(f"Rows cannot be written as Parquet: {error}. Nothing was changed.") from error
    except arrays.ValueDoesNotFit as error:
        raise SchemaMismatchError(
            f"The target's files cannot hold the value {error.args[0]!r}: a null within it may not be null there. Fill "
            "it, or rewrite the data set (write_dataset, mode='overwrite'). Nothing was changed."
        ) from None


class NewFileWriter(Writer):
    """Write rows to new files: at most `max_rows_per_file` in a file and `row_group_size` in a row group.

    After the first rows that the layout cannot hold, files get the `nullable_layout`.
    """

    def __init__(
        self,
        storage: Storage,
        staging: str,
        layout: Layout,
        options: WriteOptions,
        nullable_layout: Layout | None = None,
    ) -> None:
        self._storage, self._staging, self._layout, self._options = storage, staging, layout, options
        self._nullable_layout = (
            nullable_layout if nullable_layout is not None and nullable_layout.rows != layout.rows else None
        )
        self._token = uuid.uuid4().hex[:12]
        self._folder = ""
        self._file: FileWriter | None = None
        self._name = ""
        self._waiting: list[pa.Table] = []
        self._done: list[Staged] = []

    def write(self, folder: str, table: pa.Table) -> None:
        """Append rows (the layout's plain columns, extra ones are dropped) to the files of a folder."""
        if folder != self._folder:
            self._end_file()
            self._folder = folder
        table = table.select(self._layout.rows.names)
        if self._nullable_layout is not None and not self._layout.holds(table):
            self._end_file()
            self._layout, self._nullable_layout = self._nullable_layout, None
        while table.num_rows:
            room = self._options.max_rows_per_file - self._rows_in_file()
            self._waiting.append(table.slice(0, room))
            table = table.slice(room)
            self._flush(self._row_group_size())
            if self._rows_in_file() >= self._options.max_rows_per_file:
                self._end_file()

    def write_empty(self, folder: str) -> None:
        """Write a file without rows, so that the schema is kept."""
        self._folder, nothing = folder, self._layout.rows.empty_table()
        self._open(nothing).write_row_group(nothing)
        self._end_file()

    def finish(self) -> list[Staged]:
        self._end_file()
        return self._done

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()

    def discard(self) -> None:
        """Remove all files that were written."""
        names = [*(staged.staged for staged in self._done), *([self._name] if self._file is not None else [])]
        self.abandon()
        for name in names:
            self._storage.remove(posixpath.join(self._staging, name))

    def _rows_in_file(self) -> int:
        return (self._file.rows if self._file else 0) + self._waiting_rows()

    def _waiting_rows(self) -> int:
        return sum(table.num_rows for table in self._waiting)

    def _row_group_size(self) -> int:
        if self._options.row_group_size is not None:
            return self._options.row_group_size
        size: int = sum(table.nbytes for table in self._waiting)
        if size <= defaults.ROW_GROUP_BYTES:
            return defaults.ROW_GROUP_SIZE
        return max(1, min(self._waiting_rows() * defaults.ROW_GROUP_BYTES // size, defaults.ROW_GROUP_SIZE))

    def _flush(self, size: int) -> None:
        """Write row groups of `size` rows. A smaller rest waits for more rows."""
        while self._waiting_rows() >= size and self._waiting_rows():
            rows = pa.concat_tables(self._waiting)
            self._open(rows.slice(0, size)).write_row_group(rows.slice(0, size))
            rest = rows.slice(size)
            self._waiting = [rest] if rest.num_rows else []

    def _open(self, rows: pa.Table) -> FileWriter:
        if self._file is None:
            with storable():
                self._layout = self._layout.sampled(rows)
            self._name = f"part-{self._token}-{len(self._done):05d}"
            staged, final = posixpath.join(self._staging, self._name), self._target
            self._file = FileWriter(self._storage, staged, self._layout, final)
        return self._file

    def _end_file(self) -> None:
        if self._waiting_rows():
            self._flush(self._waiting_rows())
        if self._file is not None:
            rows, size = self._file.rows, self._file.close()
            receipt = receipt_of(self._storage, posixpath.join(self._staging, self._name), rows)
            self._done.append(Staged(self._name, self._target, rows, size, receipt=receipt))
            self._file = None

    @property
    def _target(self) -> str:
        return posixpath.join(self._folder, f"{self._name}.parquet")
