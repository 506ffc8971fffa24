"""Where record batches lie between two steps: in memory and, when they are many, in a file of this process; or in a
folder that several processes see.

Arrow, not Parquet: every type comes back as it went in, and a batch is read by its number. Batches are read, not
mapped: a mapped file of 320 MB raised the peak memory of a process from 117 to 425 MB.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, Union

import pyarrow as pa

from fsspeckit.core.errors import StorageError
from fsspeckit.core.storage import Storage, StoreStorage

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Run:
    """Batches in a store: where each begins, their rows and bytes are known without reading them."""

    name: str
    starts: tuple[int, ...] = ()
    rows: int = 0
    bytes: int = 0

    def grown_by(self, batch: pa.RecordBatch) -> Run:
        return Run(self.name, (*self.starts, self.rows), self.rows + batch.num_rows, self.bytes + batch.nbytes)


class Store(Protocol):
    """Runs of record batches. A run is written once, by one task, and read when it is finished."""

    def writer(self, label: str) -> RunWriter:
        """A new run, under a name of its own that begins with the label."""

    def read(self, run: Run, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """All batches of a run, or those of some numbers."""

    def close(self) -> None:
        """Let go of everything."""


class RunWriter(Protocol):
    """A run that is being written: batches of one schema."""

    run: Run

    def write(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> Run: ...


_Laid = Union[pa.RecordBatch, tuple[int, int, pa.Schema]]  # noqa: UP007 - a name for mypy
"""A batch in memory, or where it is in the file."""


class LocalStore:
    """Of one process. Beyond `memory` bytes, batches go to a file that has no name and goes with the process."""

    def __init__(self, memory: int, folder: Callable[[], str | None] = lambda: None) -> None:
        self._memory, self._folder = memory, folder
        self._held, self._end = 0, 0
        self._file: BinaryIO | None = None
        self._place: str | None = None
        self._lock = threading.Lock()
        self._runs: dict[str, list[_Laid]] = {}

    def holds(self, run: Run) -> bool:
        """Is all of a run in memory? Then its rows can be taken from anywhere at no cost."""
        return not any(isinstance(laid, tuple) for laid in self._runs.get(run.name, []))

    def writer(self, label: str) -> RunWriter:
        return _LocalWriter(self, Run(unique(label)))

    def hold(self, label: str, batches: Sequence[pa.RecordBatch]) -> Run:
        """A run of batches that somebody else holds anyway: they cost nothing and are never written out."""
        run = Run(unique(label))
        for batch in batches:
            run = run.grown_by(batch)
        self._runs[run.name] = list(batches)
        return run

    def lay(self, name: str, batch: pa.RecordBatch) -> None:
        with self._lock:
            laid = self._runs.setdefault(name, [])
            if self._held + batch.nbytes <= self._memory:
                self._held += batch.nbytes
                laid.append(batch)
            else:
                laid.append(self._append(batch))

    def _append(self, batch: pa.RecordBatch) -> _Laid:
        if self._file is None:
            self._place = self._folder()
        raw = memoryview(batch.serialize())
        start, end = self._end, self._end + len(raw)
        with _spilling(self._place):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._place, prefix="fsspeckit-spool-", buffering=0)  # noqa: SIM115
            while self._end < end:
                self._end += os.pwrite(self._file.fileno(), raw[self._end - start :], self._end)
        return start, len(raw), batch.schema

    def read(self, run: Run, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        laid = self._runs.get(run.name, [])
        for batch in laid if numbers is None else [laid[number] for number in numbers]:
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
        self._runs.clear()
        if self._file is not None:
            self._file.close()


@contextlib.contextmanager
def _spilling(folder: str | None) -> Iterator[None]:
    """A disk that fails here need not be the data set's, so it is named."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Cannot lay rows of the source down in {folder or tempfile.gettempdir()}: {error}. What is not held in "
            "memory goes there; make room, or choose another folder. Nothing was changed.",
            error,
            operation="spool",
        ) from error


@dataclass
class _LocalWriter:
    store: LocalStore
    run: Run

    def write(self, batch: pa.RecordBatch) -> None:
        self.store.lay(self.run.name, batch)
        self.run = self.run.grown_by(batch)

    def finish(self) -> Run:
        return self.run


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder that several processes see. Names are the attempt's own: what a failed task left is never read."""

    storage: Storage
    folder: str
    temporary: bool = False

    def at(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    def writer(self, label: str) -> RunWriter:
        return _FileWriter(self, Run(unique(label)))

    def read(self, run: Run, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        if not run.starts:
            return
        with self.storage.open_input(self.at(run.name)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches) if numbers is None else numbers:
                yield reader.get_batch(number)

    def close(self) -> None:
        """A folder that is not `temporary` goes with the staging that it is part of."""
        if not self.temporary:
            return
        if isinstance(self.storage, StoreStorage):
            with contextlib.suppress(OSError):  # a writer clears it away, when it is a day old
                self.storage.remove_all(self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class _FileWriter:
    folder: SharedFolder
    run: Run
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _writer: pa.ipc.RecordBatchFileWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            path = self.folder.at(self.run.name)
            sink = self._open.enter_context(self.folder.storage.open_output(path))
            self._writer = pa.ipc.new_file(pa.PythonFile(sink, mode="w"), batch.schema, options=_LZ4)
            self._open.callback(self._writer.close)
        self._writer.write_batch(batch)
        self.run = self.run.grown_by(batch)

    def finish(self) -> Run:
        self._open.close()
        return self.run


def unique(label: str) -> str:
    """A name that no other attempt of the same task uses."""
    return f"{label}-{uuid.uuid4().hex}"


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table of moderate size as one record batch."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    (batch,) = batches
    return batch
