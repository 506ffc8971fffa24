"""Rows that the tasks of a data source write for the commit on the driver: Arrow files in a folder beside the data set.

The first task makes the folder; the commit or the abort removes it. The next commit removes what a killed job left: the
folders of its own stream at once, others when they are a day old.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.rows.store import SharedFolder
from fsspeckit.core.storage import LocalStorage, Location

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """A file of rows that a task wrote. `key_bytes` are those of the columns that the driver holds in memory. `zone` is
    the session's, which only columns of TIMESTAMP reveal."""

    path: str
    rows: int
    bytes: int
    key_bytes: int = 0
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The folder of one job, `base/<prefix><unique>`."""

    base: str
    prefix: str
    folder: str

    @classmethod
    def beside(cls, location: Location, stream: str | None, scratch: str | None) -> OutputFolder:
        """In `scratch`, or in the nearest existing folder above the data set: a refused write leaves no folder."""
        base = scratch or location.parent
        while not os.path.isdir(base):
            base = os.path.dirname(base)
        prefix = f".fsspeckit-spool-{location.name}-"
        if stream is not None:
            prefix += f"{hashlib.sha256(stream.encode()).hexdigest()[:16]}-"
        return cls(base, prefix, os.path.join(base, prefix + uuid.uuid4().hex))

    def write(
        self, batches: Iterable[pa.RecordBatch], columns: Sequence[int], schema: pa.Schema, keys: Sequence[str] = ()
    ) -> TaskOutput | None:
        """On an executor: write some columns of the rows of a task, in the types of `schema`, if it has any rows."""
        if not os.path.isdir(self.base):
            raise DatasetMergeError(
                f"Spark's executors do not see {self.base}. Driver and executors must share the file system of the "
                "data set, under the same path; or pass a folder that they share as the option scratch.",
                operation="spark",
            )
        os.makedirs(self.folder, exist_ok=True)
        writer, zone, key_bytes = SharedFolder(LocalStorage(), self.folder).writer("rows"), None, 0
        for batch in batches:
            if not batch.num_rows:
                continue
            zone = next((f.type.tz for f in batch.schema if pa.types.is_timestamp(f.type) and f.type.tz), None)
            table = pa.Table.from_batches([batch]).select(list(columns)).rename_columns(schema.names)
            for piece in table.cast(schema).to_batches():
                writer.write(piece)
                key_bytes += sum(piece.column(name).nbytes for name in keys)
        file = writer.finish()
        path = os.path.join(self.folder, file.name)
        return TaskOutput(path, file.rows, file.bytes, key_bytes, zone) if file.rows else None

    def remove(self, outputs: Iterable[TaskOutput]) -> None:
        """After commit or abort. Folders of other jobs stay: their tasks may still write."""
        for folder in {os.path.dirname(output.path) for output in outputs} | {self.folder}:
            shutil.rmtree(folder, ignore_errors=True)

    def remove_leftovers(self, at_once: bool) -> None:
        """Folders of killed jobs with the same prefix: `at_once` if no other job uses it, otherwise after a day."""
        for folder in Path(self.base).glob(f"{self.prefix}*"):
            if at_once or time.time() - _modified(folder) > _DAY:
                shutil.rmtree(folder, ignore_errors=True)


def _modified(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def read_outputs(outputs: Iterable[TaskOutput], schema: pa.Schema) -> pa.RecordBatchReader:
    """On the driver: the rows of all tasks."""
    paths = [output.path for output in outputs]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise DatasetMergeError(
            f"Spark's executors wrote {missing[0]}, but the driver does not see it. They must share the file system of "
            "the data set; or pass a folder that they share as the option scratch.",
            operation="spark",
        )

    def batches() -> Iterator[pa.RecordBatch]:
        for path in paths:
            with pa.OSFile(path) as source:
                reader = pa.ipc.open_file(source)
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))

    return pa.RecordBatchReader.from_batches(schema, batches())
