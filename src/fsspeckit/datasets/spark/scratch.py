"""A folder that driver and executors both see: what one task writes, another reads.

Arrow files, not Parquet: every type comes back exactly as it went in, and a record batch can be read by number.
Names are unique to the attempt that wrote them; only those that a finished task returned are ever read.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.core.storage import Storage

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Scratch:
    """`folder` in `storage`."""

    storage: Storage
    folder: str

    def at(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    def writer(self, name: str, schema: pa.Schema) -> ArrowFile:
        return ArrowFile(self.storage.open_output(self.at(name)), schema)

    def reader(self, name: str) -> pa.ipc.RecordBatchFileReader:
        return pa.ipc.open_file(self.storage.open_input(self.at(name)))

    def size(self, name: str) -> int | None:
        info = self.storage.stat(self.at(name))
        return None if info is None else info.size

    def write_labelled(self, kind: str, tables: Iterable[tuple[int, pa.Table]]) -> str:
        """One record batch per label and table; the labels stand in a file beside it. Returns the name."""
        name, labels, file = unique(kind), [], None
        for label, table in tables:
            file = file or self.writer(name, table.schema)
            file.write(one_batch(table))
            labels.append(label)
        if file is not None:
            file.close()
        self.storage.write_bytes(self.at(f"{name}.labels"), json.dumps(labels).encode())
        return name

    def read_labelled(self, name: str, wanted: set[int]) -> Iterator[tuple[int, pa.Table]]:
        labels = json.loads(self.storage.read_bytes(self.at(f"{name}.labels")))
        if wanted.isdisjoint(labels):
            return
        reader = self.reader(name)
        for number, label in enumerate(labels):
            if label in wanted:
                yield label, pa.Table.from_batches([reader.get_batch(number)])


class ArrowFile:
    """An Arrow file being written."""

    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self._sink = sink
        self._writer = pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema, options=_LZ4)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._sink.close()

    def __enter__(self) -> ArrowFile:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close()


def unique(kind: str) -> str:
    """A name that no other attempt of the same task uses."""
    return f"{kind}-{uuid.uuid4().hex}"


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table of moderate size as one record batch."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    (batch,) = batches
    return batch
