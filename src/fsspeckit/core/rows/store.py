"""Stores of record batches between two steps: memory with a spill file of this process, or a shared folder.

Batches are Arrow, not Parquet: Arrow returns every type unchanged, and a batch is read by its number. Spilled batches
are read, not memory-mapped: a mapped file of 320 MB raised the peak memory of a process from 117 to 425 MB.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, Union

import pyarrow as pa

from fsspeckit.core.errors import StorageError, os_reason
from fsspeckit.core.storage import Storage

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class BatchFile:
    """Record batches of one schema in a store. Row offsets, rows and bytes are known without reading them."""

    name: str
    starts: tuple[int, ...] = ()
    rows: int = 0
    bytes: int = 0

    def with_batch(self, batch: pa.RecordBatch) -> BatchFile:
        return BatchFile(self.name, (*self.starts, self.rows), self.rows + batch.num_rows, self.bytes + batch.nbytes)


class Store(Protocol):
    """Batch files. One task writes a batch file; it is read after it is finished."""

    def writer(self, prefix: str) -> BatchFileWriter:
        """A new batch file with a unique name that starts with the prefix."""

    def read(self, file: BatchFile, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """All batches of a file, or those with the given numbers."""

    def close(self) -> None:
        """Free memory and remove files."""


class BatchFileWriter(Protocol):
    """Writes one batch file; `file` describes what was written so far."""

    @property
    def file(self) -> BatchFile: ...
    def write(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> BatchFile: ...


_Stored = Union[pa.RecordBatch, tuple[int, int, pa.Schema]]  # noqa: UP007 - a name for mypy
"""A batch in memory, or its offset, size and schema in the spill file."""


class LocalStore:
    """The store of one process. Batches beyond `memory` bytes go to an unnamed file, which ends with the process."""

    def __init__(self, memory: int, folder: Callable[[], str | None] = lambda: None) -> None:
        self._memory, self._folder = memory, folder
        self._memory_used, self._end = 0, 0
        self._file: BinaryIO | None = None
        self._spill_folder: str | None = None
        self._lock = threading.Lock()
        self._batches: dict[str, list[_Stored]] = {}

    def is_in_memory(self, file: BatchFile) -> bool:
        """Is every batch of the file in memory? Then random access to its rows costs nothing."""
        return not any(isinstance(stored, tuple) for stored in self._batches.get(file.name, []))

    def writer(self, prefix: str) -> BatchFileWriter:
        return _LocalWriter(self, BatchFile(unique_name(prefix)))

    def add_in_memory(self, prefix: str, batches: Sequence[pa.RecordBatch]) -> BatchFile:
        """Add batches that the caller holds in memory anyway. They do not count against `memory` and never spill."""
        file = BatchFile(unique_name(prefix))
        for batch in batches:
            file = file.with_batch(batch)
        self._batches[file.name] = list(batches)
        return file

    def append(self, name: str, batch: pa.RecordBatch) -> None:
        with self._lock:
            stored = self._batches.setdefault(name, [])
            if self._memory_used + batch.nbytes <= self._memory:
                self._memory_used += batch.nbytes
                stored.append(batch)
            else:
                stored.append(self._spill(batch))

    def _spill(self, batch: pa.RecordBatch) -> _Stored:
        if self._file is None:
            self._spill_folder = self._folder()
        raw = memoryview(batch.serialize())
        start, end = self._end, self._end + len(raw)
        with _spilling(self._spill_folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._spill_folder, prefix="fsspeckit-spool-", buffering=0)  # noqa: SIM115
            while self._end < end:
                self._end += os.pwrite(self._file.fileno(), raw[self._end - start :], self._end)
        return start, len(raw), batch.schema

    def read(self, file: BatchFile, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        stored = self._batches.get(file.name, [])
        for batch in stored if numbers is None else [stored[number] for number in numbers]:
            yield self._fetch(*batch) if isinstance(batch, tuple) else batch

    def _fetch(self, start: int, size: int, schema: pa.Schema) -> pa.RecordBatch:
        assert self._file is not None
        raw = bytearray(size)
        done = 0
        while done < size:
            count = os.preadv(self._file.fileno(), [memoryview(raw)[done:]], start + done)
            if not count:
                raise OSError(f"The spool ends {size - done} bytes early.")
            done += count
        return pa.ipc.read_record_batch(pa.py_buffer(raw), schema)

    def close(self) -> None:
        self._batches.clear()
        if self._file is not None:
            self._file.close()


@contextlib.contextmanager
def _spilling(folder: str | None) -> Iterator[None]:
    """Name the folder in errors: it may be on another disk than the data set."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Cannot spill rows of the source to {folder or tempfile.gettempdir()}: {os_reason(error)}. Rows that do "
            "not fit in memory go there. Free disk space, or choose another folder. Nothing was changed.",
            error,
            operation="spool",
        ) from error


@dataclass
class _LocalWriter:
    store: LocalStore
    file: BatchFile

    def write(self, batch: pa.RecordBatch) -> None:
        self.store.append(self.file.name, batch)
        self.file = self.file.with_batch(batch)

    def finish(self) -> BatchFile:
        return self.file


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder that several processes share. Names are unique per attempt: leftovers of failed tasks are not read."""

    storage: Storage
    folder: str
    temporary: bool = False

    def at(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    def writer(self, prefix: str) -> BatchFileWriter:
        return _FileWriter(self, BatchFile(unique_name(prefix)))

    def read(self, file: BatchFile, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        if not file.starts:
            return
        with self.storage.open_input(self.at(file.name)) as opened:
            reader = pa.ipc.open_file(opened)
            for number in range(reader.num_record_batches) if numbers is None else numbers:
                yield reader.get_batch(number)

    def copy(self, file: BatchFile, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the batches of a file of another store under the same name."""
        writer = _FileWriter(self, BatchFile(file.name))
        for batch in batches:
            writer.write(batch)
        writer.finish()

    def close(self) -> None:
        """A folder that is not `temporary` is part of the staging, and is removed with it."""
        if not self.temporary:
            return
        with contextlib.suppress(OSError):  # in a store, the next writer removes it when it is a day old
            self.storage.remove_all(self.folder)


@dataclass
class _FileWriter:
    folder: SharedFolder
    file: BatchFile
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _writer: pa.ipc.RecordBatchFileWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            path = self.folder.at(self.file.name)
            sink = self._open.enter_context(self.folder.storage.open_output(path))
            self._writer = pa.ipc.new_file(pa.PythonFile(sink, mode="w"), batch.schema, options=_LZ4)
            self._open.callback(self._writer.close)
        self._writer.write_batch(batch)
        self.file = self.file.with_batch(batch)

    def finish(self) -> BatchFile:
        self._open.close()
        return self.file


def unique_name(prefix: str) -> str:
    """A name that no other attempt of the same task uses."""
    return f"{prefix}-{uuid.uuid4().hex}"


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one record batch."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    (batch,) = batches
    return batch
