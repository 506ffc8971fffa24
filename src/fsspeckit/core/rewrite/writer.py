"""The one writer. DuckDB's `COPY` and Spark's writer do not keep an Arrow schema; PyArrow's does."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.errors import DatasetMergeError, SchemaMismatchError
from fsspeckit.core.model import Staged, WriteOptions
from fsspeckit.core.rewrite.graft import GraftingSink
from fsspeckit.core.rewrite.layout import Layout
from fsspeckit.core.storage import Storage
from fsspeckit.core.target.tail import tail_bytes
from fsspeckit.core.values import arrays


def receipt_of(storage: Storage, path: str, rows: int) -> str | None:
    """What the storage says of a file that was closed.

    Where it says anything, nobody can read the file before the commit; so its writer, who remembers the footer, looks
    whether that has the rows it wrote.
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
    """Whoever writes files: what is not finished because of an error is abandoned."""

    def abandon(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is not None:
            self.abandon()


class FileWriter(Writer):
    """One Parquet file: row groups as they are given, the footer grafted, synced to disk when it is closed."""

    def __init__(self, storage: Storage, path: str, layout: Layout, final: str) -> None:
        self._storage, self._path, self._layout = storage, path, layout
        self._sink = GraftingSink(storage.open_output(path, final), layout.graft)
        with storable(), contextlib.ExitStack() as stack:
            stack.callback(self._sink.abandon)
            self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, mode="w"), layout.storage, **layout.options)
            stack.pop_all()
        self.rows = 0

    def write_row_group(self, table: pa.Table) -> None:
        """`table` has the layout's plain columns."""
        with storable():
            self._writer.write_table(self._layout.store(table), row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows

    def close(self, *, in_order: bool = True) -> int:
        """Without the declared sort order, if rows are not in it any more."""
        self._sink.hold()
        self._writer.close()
        size = self._sink.finish(in_order=in_order)
        self._storage.sync_file(self._path)
        return size

    def abandon(self) -> None:
        self._sink.hold()
        self._writer.close()
        self._sink.abandon()


@contextlib.contextmanager
def storable() -> Iterator[None]:
    """Parquet does not have all types of Arrow: intervals, unions, structs without fields."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(f"Rows cannot be written as Parquet: {error}. Nothing was changed.") from error
    except arrays.DoesNotFit as error:
        raise SchemaMismatchError(
            f"The target's files cannot hold the value {error.args[0]!r}: a null within it may not be null there. Fill "
            "it, or write the data set anew (write_dataset, mode='overwrite'). Nothing was changed."
        ) from None


class FreshFiles(Writer):
    """New files: rows go to a folder, a file is full at `max_rows_per_file`, a row group at `row_group_size`.

    From the first rows on that the layout cannot hold, files are laid out by the `looser` one.
    """

    def __init__(
        self, storage: Storage, staging: str, layout: Layout, options: WriteOptions, looser: Layout | None = None
    ) -> None:
        self._storage, self._staging, self._layout, self._options = storage, staging, layout, options
        self._looser = looser if looser is not None and looser.rows != layout.rows else None
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
        if self._looser is not None and not self._layout.holds(table):
            self._end_file()
            self._layout, self._looser = self._looser, None
        while table.num_rows:
            room = self._options.max_rows_per_file - self._rows_in_file()
            self._waiting.append(table.slice(0, room))
            table = table.slice(room)
            self._flush(self._options.row_group_size)
            if self._rows_in_file() >= self._options.max_rows_per_file:
                self._end_file()

    def write_empty(self, folder: str) -> None:
        """A file without rows, so that the schema survives."""
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
        """Begin again: nothing was written."""
        names = [*(staged.staged for staged in self._done), *([self._name] if self._file is not None else [])]
        self.abandon()
        for name in names:
            self._storage.remove(posixpath.join(self._staging, name))

    def _rows_in_file(self) -> int:
        return (self._file.rows if self._file else 0) + self._waiting_rows()

    def _waiting_rows(self) -> int:
        return sum(table.num_rows for table in self._waiting)

    def _flush(self, size: int) -> None:
        """Write full row groups of `size` rows; what is left waits."""
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
