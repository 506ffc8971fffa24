"""Rows that executors lay down for a commit on the driver: Arrow files in a folder beside the data set.

The folder is made by the first task and goes with the commit or the abort. What a killed job leaves is removed by the
next commit: a stream's own folders at once, others when they are a day old.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.rows.store import SharedFolder
from fsspeckit.core.storage import LocalStorage, Location

_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Laid:
    """A file of rows that a task wrote. `zone` is the session's, which instants bring along; nobody else tells it."""

    path: str
    rows: int
    bytes: int
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Spool:
    """Folders `<prefix><unique>` in `base`; this one is `folder`."""

    base: str
    prefix: str
    folder: str

    @classmethod
    def beside(cls, location: Location, stream: str | None, scratch: str | None) -> Spool:
        base = scratch or _existing(location.parent)
        prefix = f".fsspeckit-spool-{location.name}-"
        if stream is not None:
            prefix += f"{hashlib.sha256(stream.encode()).hexdigest()[:16]}-"
        return cls(base, prefix, os.path.join(base, prefix + uuid.uuid4().hex))

    def lay(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Laid | None:
        """On an executor: write the rows of a task, if it has any."""
        self._make()
        writer, zone = SharedFolder(LocalStorage(), self.folder).writer("rows"), None
        for batch in batches:
            if not batch.num_rows:
                continue
            zone = next((f.type.tz for f in batch.schema if pa.types.is_timestamp(f.type) and f.type.tz), None)
            for piece in pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema).to_batches():
                writer.write(piece)
        file = writer.finish()
        return Laid(os.path.join(self.folder, file.name), file.rows, file.bytes, zone) if file.rows else None

    def _make(self) -> None:
        if not os.path.isdir(self.base):
            raise DatasetMergeError(
                f"Spark's executors do not see {self.base}. Driver and executors must share the file system that the "
                "data set is on, under the same path; or name a folder that they share by the option scratch.",
                operation="spark",
            )
        os.makedirs(self.folder, exist_ok=True)

    def clear(self, laid: Iterable[Laid]) -> None:
        """After commit or abort. What another job may still write to is let alone."""
        for folder in {os.path.dirname(one.path) for one in laid} | {self.folder}:
            shutil.rmtree(folder, ignore_errors=True)

    def clear_left_behind(self, own: bool) -> None:
        """Folders of jobs that were killed: all of this name, if nobody else uses it, else those a day old."""
        for folder in Path(self.base).glob(f"{self.prefix}*"):
            if own or time.time() - _changed(folder) > _A_DAY:
                shutil.rmtree(folder, ignore_errors=True)


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _existing(folder: str) -> str:
    """The folder, or the nearest above it that is there: a refused write leaves no folder behind."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def read_spool(laid: Iterable[Laid], schema: pa.Schema) -> pa.RecordBatchReader:
    """On the driver: the rows of all tasks."""
    files = [one.path for one in laid]
    unseen = [path for path in files if not os.path.exists(path)]
    if unseen:
        raise DatasetMergeError(
            f"Spark's executors wrote {unseen[0]}, but it cannot be seen from the driver. They must share the file "
            "system that the data set is on; or name a folder that they share by the option scratch.",
            operation="spark",
        )

    def batches() -> Iterator[pa.RecordBatch]:
        for path in files:
            with pa.OSFile(path) as source:
                reader = pa.ipc.open_file(source)
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))

    return pa.RecordBatchReader.from_batches(schema, batches())
