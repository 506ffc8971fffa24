"""`make soak MINUTES=10`: random operations of all engines, kills, faults and recoveries, against a model.

One lake, one operation at a time, readers looping beside it. What a killed or failed operation left is compared with
the model before and after it: a commit that is recorded must be there after recovery, one that is not must not, and
nothing in between. So are the columns of every file, the last batch of a stream, and the commits that can be undone.
The folder is renamed or copied before some recoveries. No partition folder is left without files.
Prints what was done, and every difference.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crash.dying import with_tests_on_path
from crash.lakes import litter
from fsspeckit.api import recover
from fsspeckit.commits import history
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from fsspeckit.maintenance import plan_compact
from soak.draw import PARTITIONS, Draw
from soak.model import Operation, State, as_tuple, expected
from soak.worker import schema
from support import data_files, fingerprint, rows

Bytes = dict[str, tuple[str, int]]  # of each file: a hash of its content, and its modification time


@dataclass
class Worker:
    """A writer process, seen from here. It is started again when it died."""

    engine: str
    process: subprocess.Popen[str] | None = None

    def ask(self, operation: Operation) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(asdict(operation)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            return dict(json.loads(line))
        self.process = None
        code = process.wait()
        return {"outcome": "killed"} if code == -9 else {"outcome": "raw", "error": f"exit code {code}"}

    def _running(self) -> subprocess.Popen[str]:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "soak.worker", self.engine],
                env=with_tests_on_path(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # Spark's greetings
                text=True,
            )
            assert self.process.stdout is not None
            assert self.process.stdout.readline().strip() == "ready"
        return self.process

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


@dataclass(frozen=True)
class Kept:
    """An undoable commit: its id, what was before it, and the files before and after it."""

    id: str
    before: State
    files_before: Bytes
    files_after: Bytes


@dataclass(frozen=True)
class Turn:
    """An operation with the state and files before it, and the state and counts after it if it is done."""

    engine: str
    operation: Operation
    old: State
    files: Bytes
    after: State
    counts: dict[str, int]
    is_refused: bool = False
    undoes: Kept | None = None


@dataclass
class Soak:
    folder: Path
    engines: tuple[str, ...]
    chance: random.Random
    state: State = field(default_factory=State)
    kept: list[Kept] = field(default_factory=list)  # the last one first
    seen: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake = self.folder / "lake"
        self.draw = Draw(str(self.lake), self.chance)

    def run(self, seconds: float, turns: float = math.inf) -> None:
        workers = [Worker(engine) for engine in self.engines]
        weights = [1 if engine == "spark" else 4 for engine in self.engines]  # its driver takes its time to come back
        self._fill()
        reader = subprocess.Popen(
            [sys.executable, "-m", "soak.readers", str(self.lake)],
            env=with_tests_on_path(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.draw.number < turns:
            self.turn(self.chance.choices(workers, weights)[0])
        saw = json.loads(reader.communicate()[0])
        self.seen["reads"], self.seen["snapshots"] = saw.get("reads", 0), saw.get("snapshots", 0)
        self.differences += [f"{what} ({count} times)" for what, count in saw.items() if what.startswith("difference")]
        for worker in workers:
            worker.close()

    def turn(self, worker: Worker) -> None:
        turn = self._next(worker.engine)
        operation, old = turn.operation, turn.old
        answer = worker.ask(operation)
        outcome, recorded = answer["outcome"], bool(list(self.lake.glob(".fsspeckit-commit-*")))
        self._count(turn, outcome, recorded)
        if outcome == "raw":
            self._differs(turn, f"raw error {answer['error']}")
        if outcome == "done" and answer["counts"] not in ({}, turn.counts):
            self._differs(turn, f"counted {answer['counts']}, not {turn.counts}")
        if operation.fate == "live" and outcome == ("done" if turn.is_refused else "refused"):
            self._differs(turn, f"{outcome} {answer}")
        possible = {"done": [turn.after], "recorded": [turn.after], "refused": [old]}.get(outcome, [old, turn.after])
        if self._check(turn, possible if not recorded else [turn.after]) and self._check_kept(turn, outcome):
            options = operation.options  # one that can be undone is one commit, and may leave something to join
            if operation.kind == "compact" and outcome == "done" and not options.get("undoable"):
                again = plan_compact(str(self.lake), **options).bins
                self._differs(turn, f"a second one would do {again}") if again else None
        else:
            shutil.rmtree(self.folder)
            self._fill()

    def _next(self, engine: str) -> Turn:
        operation, files = self.draw.operation(self.state), self._files()
        if operation.kind != "undo":
            return Turn(engine, operation, self.state, files, *expected(operation, self.state))
        can_undo = bool(self.kept) and self.kept[0].files_after == files
        after = self.kept[0].before if can_undo else self.state
        undoes = self.kept[0] if can_undo else None
        return Turn(engine, operation, self.state, files, after, {}, is_refused=not can_undo, undoes=undoes)

    def _files(self) -> Bytes:
        """The files of the lake, without what undoable commits keep, which may be in the lake too."""
        return {name: file for name, file in fingerprint(self.lake).items() if not name.startswith(".fsspeckit/")}

    def _differs(self, turn: Turn, text: str) -> None:
        operation = turn.operation
        what = f"{turn.engine} {operation.kind} {operation.options}, {operation.fate} at {operation.point}"
        self.differences.append(f"{what}: {text}")

    def _count(self, turn: Turn, outcome: str, recorded: bool) -> None:
        engine, kind = turn.engine, turn.operation.kind
        self.seen[f"{engine} {outcome}"] += 1
        self.seen["done" if outcome == "done" else "kills" if outcome == "killed" else "faults"] += 1
        self.kinds[kind, outcome] += 1
        if recorded and outcome == "killed":
            self.seen[f"kills of {engine} that hit a live journal"] += 1
            self.kinds[kind, "killed after the commit point"] += 1

    def _check(self, turn: Turn, possible: list[State]) -> bool:
        """Recover, in one of several ways, and compare rows and columns."""
        if self._litter():
            self._recover()
        found = Counter(as_tuple(row | {"p": int(row["p"])}) for row in rows(self.lake))
        schemas = {pq.read_schema(self.lake / name).remove_metadata() for name in data_files(self.lake)}
        fitting = [state for state in possible if found == state.multiset and schemas == {_stored(state)}]
        if not fitting:
            wanted = [(len(state.rows), _stored(state)) for state in possible]
            self._differs(turn, f"{found.total()} rows of {schemas}, none of {wanted}")
        empty = [folder.name for folder in self.lake.glob("p=*") if not any(folder.iterdir())]
        if left := self._litter() + empty:
            self._differs(turn, f"left {left}")
        self.state = fitting[0] if fitting else self.state
        return bool(fitting) and not left

    def _check_kept(self, turn: Turn, outcome: str) -> bool:
        """An undoable commit that happened can be undone, one that did not cannot, and none twice."""
        operation, files = turn.operation, self._files()
        is_changed, known = files != turn.files, [kept.id for kept in self.kept]
        listed = [commit.id for commit in history(str(self.lake))]
        right = listed == known
        if is_changed and operation.options.get("undoable"):
            right = listed[1:] == known and listed[:1] != known[:1]
            self.kept = [Kept(id, turn.old, turn.files, files) for id in listed[:1]] + self.kept
        elif is_changed and turn.undoes is not None:
            self.kept = [kept for kept in self.kept if kept.id != turn.undoes.id]  # a copy may have lost it by now
            right = listed == [kept.id for kept in self.kept] and files == turn.undoes.files_before
        elif operation.kind == "forget":
            right = listed[:1] == known[:1] and set(listed) <= set(known) and (outcome != "done" or len(listed) < 2)
            self.kept = [kept for kept in self.kept if kept.id in listed]
        if not right:
            self._differs(turn, f"{outcome}, changed: {is_changed}, undoable {listed}, before {known}")
        return right

    def _litter(self) -> list[str]:
        """What is left of commits; what undoable ones keep has its own check."""
        homes = [*self.folder.glob(".fsspeckit-*"), *self.lake.glob(".fsspeckit")]
        kept = [str(home.relative_to(self.folder)) for home in homes if os.listdir(home) == ["undo"]]
        return [name for name in litter(self.folder) if name not in kept]

    def _recover(self) -> None:
        self.seen["recoveries"] += 1
        way = self.chance.choice(["api", "command", "merge", "rename", "copy"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if way == "command":
                subprocess.run([sys.executable, "-m", "fsspeckit", "recover", str(self.lake)], capture_output=True)
            elif way == "merge":
                nothing = pa.table({"id": pa.array([], pa.int64())})
                PyArrowDatasetIO().merge(nothing, str(self.lake), "delete", ["id"])
            elif way == "rename":
                os.rename(self.lake, self.folder / "renamed")
                recover(str(self.folder / "renamed"))
                os.rename(self.folder / "renamed", self.lake)
            elif way == "copy":
                self._recover_a_copy()
        recover(str(self.lake))

    def _recover_a_copy(self) -> None:
        """The whole tree is copied, and the copy takes the place of what it is a copy of.

        What was kept under another name belongs to the folder with the old inode, which is gone.
        """
        other = self.folder / ".fsspeckit-renamed"
        if other.is_dir():
            lost = os.listdir(other / "undo")
            self.kept = [kept for kept in self.kept if kept.id not in lost]
            shutil.rmtree(other)
        copy = self.folder.with_name("copy")
        subprocess.run(["cp", "-a", self.folder, copy], check=True)
        shutil.rmtree(self.folder)
        copy.rename(self.folder)

    def _fill(self) -> None:
        self.state, self.kept = self.draw.first_rows(), []
        stored = _stored(self.state)
        for i in range(2 * PARTITIONS):
            found = [{name: row[name] for name in stored.names} for row in list(self.state.rows.values())]
            folder = self.lake / f"p={i % PARTITIONS}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(found[i :: 2 * PARTITIONS], stored), folder / f"f{i}.parquet")

    def report(self) -> str:
        order = ("done", "kills", "faults", "recoveries", "reads", "snapshots")
        lines = [f"{self.seen[name]:8,} {name}" for name in order]
        live = {name: count for name, count in self.seen.items() if name.endswith("live journal")}
        lines.insert(2, f"{sum(live.values()):8,} kills that hit a live journal")
        lines += [f"{count:8,}   {name}" for name, count in sorted(live.items())]
        for kind in sorted({kind for kind, _ in self.kinds}):
            counts = [f"{count} {outcome}" for (of, outcome), count in sorted(self.kinds.items()) if of == kind]
            lines.append(f"         {kind}: {', '.join(counts)}")
        lines += [f"{len(self.differences):8,} differences", *(f"  {text}" for text in self.differences)]
        return "\n".join(lines)


def _stored(state: State) -> pa.Schema:
    """The schema of each file: the partition is in the path."""
    return schema([name for name in state.columns if name != "p"], is_wide=state.is_wide)


def soak(minutes: float, engines: tuple[str, ...], seed: int, turns: float = math.inf) -> Soak:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        made = Soak(Path(folder) / "soak", engines, random.Random(seed))
        made.run(minutes * 60, turns)
        return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--engines", default="pyarrow,duckdb,spark")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.minutes:g} minutes, {given.engines}", flush=True)
    done = soak(given.minutes, tuple(given.engines.split(",")), given.seed)
    print(done.report())
    sys.exit(bool(done.differences))
