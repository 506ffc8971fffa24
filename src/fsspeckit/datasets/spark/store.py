"""Where the spool of a Spark merge is: few rows in the driver's memory, many in a folder that executors share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.core.rows.store import BatchFile, BatchFileWriter, LocalStore, SharedFolder


class DriverStore:
    """Batch files that the driver writes stay in its memory, and are copied to the shared folder when a job needs them.

    Executors get the shared folder, since a pickled `DriverStore` is its folder. The driver reads there what executors
    wrote. The folder is made when it is first needed.
    """

    def __init__(self, folder: Callable[[], SharedFolder]) -> None:
        self._folder = folder
        self._shared: SharedFolder | None = None
        self._memory = LocalStore(sys.maxsize)
        self._in_memory: set[str] = set()
        self._unshared: list[BatchFile] = []

    def writer(self, prefix: str) -> BatchFileWriter:
        return _DriverWriter(self, self._memory.writer(prefix))

    def finished(self, file: BatchFile) -> None:
        self._in_memory.add(file.name)
        self._unshared.append(file)

    def read(self, file: BatchFile, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        if file.name in self._in_memory:
            return self._memory.read(file, numbers)
        assert self._shared is not None, "executors wrote it"
        return self._shared.read(file, numbers)

    def share(self) -> SharedFolder:
        """Copy what executors cannot see yet; call it before every job."""
        if self._shared is None:
            self._shared = self._folder()
        while self._unshared:
            self._shared.copy(self._unshared[0], self._memory.read(self._unshared[0]))
            del self._unshared[0]
        return self._shared

    def close(self) -> None:
        self._memory.close()
        if self._shared is not None:
            self._shared.close()

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._shared is not None and not self._unshared, "`share` comes before every job"
        return SharedFolder, (self._shared.storage, self._shared.folder, self._shared.temporary)


@dataclass
class _DriverWriter:
    store: DriverStore
    writer: BatchFileWriter

    @property
    def file(self) -> BatchFile:
        return self.writer.file

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write(batch)

    def finish(self) -> BatchFile:
        file = self.writer.finish()
        self.store.finished(file)
        return file
