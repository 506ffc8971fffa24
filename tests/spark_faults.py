"""Faults that strike a merge on Spark's executors: the first attempt at a step's first task, its work done.

Every attempt leaves a mark when it has done its work: what it then sees in the staging folder. Attempts are numbered
by that moment, not as Spark does: it may start a copy of any task that is slow.
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import functions as F

from fsspeckit.core.parquet.splice import SplicedFile
from fsspeckit.core.parquet.writer import FileWriter
from fsspeckit.datasets.spark import SparkDatasetIO, engine, keys, shuffle
from fsspeckit.datasets.spark.operation import Operation
from support import all_names

PATIENCE = 60
# What each step stages; to send rows stages nothing, so that what it sends is there.
KINDS = {
    "spool": "rows-*",
    "match": "hits-*",
    "join": "hits-*",
    "send": "rows-*",
    "rewrite": "file-*",
    "insert": "part-*",
}


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@dataclass(frozen=True)
class Marks:
    """Marks about the data set `lake`, in a folder of their own."""

    folder: Path
    lake: Path

    def put(self, name: str, content: Any = None) -> None:
        self.folder.mkdir(exist_ok=True)
        hidden = self.folder / f".{uuid.uuid4().hex}"
        hidden.write_text(json.dumps(content))
        os.link(hidden, self.folder / name)

    def put_next(self, name: str, content: Any) -> int:
        """Put the first of `name-0`, `name-1` … that is not there yet; returns its number."""
        for number in itertools.count():
            with contextlib.suppress(FileExistsError):
                self.put(f"{name}-{number}", content)
                break
        return number

    def wait(self, name: str) -> Any:
        wait_until((self.folder / name).exists)
        return json.loads((self.folder / name).read_text())

    def staged(self, pattern: str = "*") -> list[str]:
        home = self.lake.parent / f".fsspeckit-{self.lake.name}"
        return sorted(path.name for path in home.glob(f".staging_*/{pattern}"))

    def attempts(self, step: str, pattern: str) -> dict[str, int]:
        """By "task-attempt", and at the "end": how many such files were staged then."""
        found = {path.name.removeprefix(f"{step}-"): path for path in self.folder.glob(f"{step}-*")}
        return {name: len(fnmatch.filter(json.loads(p.read_text()), pattern)) for name, p in sorted(found.items())}


# -- on executors

Work = Callable[[], Any]
Fault = Callable[[Marks, int, Work], None]


def fail(marks: Marks, attempt: int, work: Work) -> None:
    """The first attempt fails when all is done, as if its outcome could not be sent."""
    if attempt == 0:
        raise RuntimeError("struck")


def lose_executor(marks: Marks, attempt: int, work: Work) -> None:
    """The first attempt takes its executor with it."""
    if attempt == 0:
        os.kill(executor_of(os.getppid()), signal.SIGKILL)
        time.sleep(PATIENCE)


def linger(marks: Marks, attempt: int, work: Work) -> None:
    """The first attempt is slow until Spark gives up on it, and has children that go on where Spark cannot stop them:
    one opens its file after the commit, one opened it before and closes it after. The second attempt is quick."""
    if attempt == 0:
        marks.put("slow", os.getpid())
        for moment in LATE:
            if os.fork() == 0:
                marks.put(moment, _late(marks, moment, work))
                os._exit(0)
        time.sleep(PATIENCE)
    for moment in LATE:
        marks.wait(f"at {moment}")


LATE = ("__init__", "close")


def _late(marks: Marks, moment: str, work: Work) -> str:
    """What becomes of work that is held up until after the commit?"""

    def late(real: Any) -> Any:
        def held_up(*arguments: Any, **named: Any) -> Any:
            marks.put(f"at {moment}")
            marks.wait("committed")
            return real(*arguments, **named)

        return held_up

    try:
        with contextlib.ExitStack() as stack:
            for writer in (FileWriter, SplicedFile):
                stack.enter_context(mock.patch.object(writer, moment, late(getattr(writer, moment))))
            return f"done: {work()}"
    except Exception as error:
        return type(error).__name__


def executor_of(daemon: int) -> int:
    """The executor is the parent of the daemon that its Python workers come from."""
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def _struck(fault: Fault, marks: Marks, step: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The work, the mark, the fault."""
    result = function(*arguments)
    task, attempt = _mark(marks, step)
    if task == 0:
        fault(marks, attempt, partial(function, *arguments))
    return result


def _struck_sending(fault: Fault, marks: Marks, *arguments: Any) -> Iterator[pa.RecordBatch]:
    yield from _sent(*arguments)
    _struck(fault, marks, "send", lambda: None)


_sent = shuffle.sent


def _mark(marks: Marks, step: str) -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    task = context.partitionId()
    return task, marks.put_next(f"{step}-{task}", marks.staged())


# -- on the driver


@contextlib.contextmanager
def striking(fault: Fault, marks: Marks, *steps: str) -> Iterator[None]:
    """Within the block, a fault strikes these steps."""
    run, store_hits, shuffled, receive = Operation.run, keys._store_hits, shuffle.shuffle, shuffle._receive

    def struck_run(operation: Operation, step: str, function: Any, *arguments: Any) -> Any:
        if step not in steps:
            return run(operation, step, function, *arguments)
        found = run(operation, step, partial(_struck, fault, marks, step, function), *arguments)
        marks.put(f"{step}-end", marks.staged())
        return found

    def struck_shuffle(operation: Operation, step: str, *arguments: Any) -> Any:
        struck_receive = partial(_struck, fault, marks, step, receive) if step in steps else receive
        struck_sent = partial(_struck_sending, fault, marks) if "send" in steps else _sent
        with mock.patch.multiple(shuffle, sent=struck_sent, _receive=struck_receive):
            received = shuffled(operation, step, *arguments)
        if step in steps:
            marks.put(f"{step}-end", marks.staged())
        return received

    struck_join = partial(_struck, fault, marks, "join", store_hits) if "join" in steps else store_hits
    with contextlib.ExitStack() as stack:
        for place, name, struck in (
            (Operation, "run", struck_run),
            (engine, "shuffle", struck_shuffle),
            (keys, "_store_hits", struck_join),
        ):
            stack.enter_context(mock.patch.object(place, name, struck))
        yield


def failing_source(frame: Any, marks: Marks) -> Any:
    """The same rows, of one partition; but when all are given out and some of them spooled, the first attempt fails."""

    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        wait_until(lambda: len(marks.staged(KINDS["spool"])) > len(marks.attempts("spool", "*")))
        if _mark(marks, "spool") == (0, 0):
            raise RuntimeError("struck")

    return frame.mapInArrow(remote, frame.schema)


# -- a merge that is struck

ROWS = 400


def make_lake(root: Path, files: int, x: float = 0.0) -> str:
    root.mkdir(parents=True)
    for number in range(files):
        ids = range(number * ROWS, (number + 1) * ROWS)
        pq.write_table(pa.table({"id": list(ids), "x": [x] * ROWS}), root / f"f{number:02d}.parquet")
    return str(root)


def contents(lake: str) -> dict[int, float]:
    columns = pq.read_table(lake).to_pydict()
    found = dict(zip(columns["id"], columns["x"], strict=True))
    assert len(found) == len(columns["id"])
    return found


class Struck:
    """A small lake, a merge into it that is struck, and what is there afterwards."""

    def __init__(self, io: SparkDatasetIO, folder: Path) -> None:
        self.io, self.lake = io, make_lake(folder / "home" / "lake", 4)
        self.marks = Marks(folder / "marks", Path(self.lake))

    def merge(self, fault: Fault, steps: Sequence[str], source: Any) -> dict[str, Any]:
        """Every row of the source has x = 1. Attempts are listed by step, with the number of files that each left."""
        with striking(fault, self.marks, *steps):
            self.result = self.io.merge(source, self.lake, "upsert", ["id"])
        self.marks.put("committed")
        counts = {"updated": self.result.updated, "inserted": self.result.inserted}
        attempts = {step: self.marks.attempts(step, kind) for step, kind in KINDS.items()}
        return {**counts, "attempts": attempts, **self.traces()}

    def traces(self) -> dict[str, Any]:
        """What lies in and beside the lake that the result does not name, and the rows by value."""
        home = Path(self.lake).parent
        named = {"lake", *(str(Path(file.path).relative_to(home)) for file in self.result.files)}
        there = set(all_names(home))
        return {"strays": sorted(named ^ there), "values": Counter(contents(self.lake).values())}


def ones(io: SparkDatasetIO, end: int, step: int = 100) -> Any:
    return io.spark.range(0, end, step, 1).withColumn("x", F.lit(1.0))
