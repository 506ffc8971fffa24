"""Files that PyArrow reads through Python."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet.reader import open_source
from fsspeckit.core.storage.local_files import read_at


class Watched(io.BytesIO):
    """Remembers who reads."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.readers: set[int] = set()

    def read(self, size: int | None = -1) -> bytes:
        self.readers.add(threading.get_ident())
        return super().read(size)


def test_nobody_reads_but_who_asks() -> None:
    """PyArrow's own threads may come too late to let go of a file: see `storage.object_files`."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(1000), "x": ["text"] * 1000}), sink)
    watched = Watched(sink.getvalue())
    file = open_source(pa.PythonFile(watched, mode="r"))
    assert file.read_row_group(0, use_threads=False).num_rows == 1000
    assert watched.readers == {threading.get_ident()}


ENDING = """
import atexit, sys, threading, time

atexit.register(lambda: print(len(object_files._RangeFile.open_files)))  # runs after those that are registered later
from fsspeckit.core.storage import object_files

object_files._EXIT_TIMEOUT = float(sys.argv[1])
held = [object_files.TailFile(1, b"x")]
threading.Thread(target=lambda: (time.sleep(0.3), held.clear()), daemon=True).start()
"""


@pytest.mark.parametrize(("patience", "living"), [(20, 0), (0, 1)])
def test_a_process_ends_when_threads_have_let_go_of_what_they_read(patience: float, living: int) -> None:
    """As those of a scan do, whenever they come to it."""
    done = subprocess.run([sys.executable, "-c", ENDING, str(patience)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(living)]


def test_what_the_system_gives_in_pieces_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(100))
    path = tmp_path / "file"
    path.write_bytes(data)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, count, at: pread(descriptor, min(count, 7), at))
    with path.open("rb") as file:
        assert read_at(file.fileno(), 3, 50) == data[3:53]
        assert read_at(file.fileno(), 90, 50) == data[90:]
        assert read_at(file.fileno(), 200, 50) == b""
