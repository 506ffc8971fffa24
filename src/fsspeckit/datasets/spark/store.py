"""The store of a Spark merge on the driver: few rows stay in memory, many are in a folder that executors share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.core.rows.store import BatchFile, BatchFileWriter, LocalStore, SharedFolder


class DriverStore:
    """Batch files that the driver writes stay in its memory until a job needs them in the shared folder.

    Executors get the shared folder: a `DriverStore` is pickled as its folder. The driver reads there what executors
    wrote. The folder is made when it is first needed.
    """

    def __init__(self, folder: Callable[[], SharedFolder]) -> None:
        self._folder = folder
        self._shared: SharedFolder | None = None
        self._memory = LocalStore(sys.maxsize)
        self._in_memory: set[str] = set()
        self._to_copy: list[BatchFile] = []

    def writer(self, prefix: str) -> BatchFileWriter:
        return _DriverWriter(self, self._memory.writer(prefix))

    def finished(self, file: BatchFile) -> None:
        self._in_memory.add(file.name)
        self._to_copy.append(file)

    def read(self, file: BatchFile, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        if file.name in self._in_memory:
            return self._memory.read(file, numbers)
        assert self._shared is not None, "an executor wrote it"
        return self._shared.read(file, numbers)

    def share(self) -> SharedFolder:
        """Copy the files that executors cannot see yet. Called before every job."""
        if self._shared is None:
            self._shared = self._folder()
        while self._to_copy:
            self._shared.copy(self._to_copy[0], self._memory.read(self._to_copy[0]))
            del self._to_copy[0]
        return self._shared

    def close(self) -> None:
        self._memory.close()
        if self._shared is not None:
            self._shared.close()

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._shared is not None and not self._to_copy, "call `share` before every job"
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
