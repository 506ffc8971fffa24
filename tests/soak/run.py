"""`make soak MINUTES=10`: random merges of all engines, kills, faults and recoveries, against a model.

One lake, one operation at a time, readers looping beside it. What a killed or failed operation left is compared with
the model before and after it: a commit that is recorded must be there after recovery, one that is not must not, and
nothing in between. The folder is renamed or copied before some recoveries. No partition folder is left without files.
Prints what was done, and every difference.
"""

from __future__ import annotations

import argparse
import json
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
from soak.readers import text_of
from soak.worker import COUNTS, SCHEMA, Operation
from support import rows

KEYS = 120
PARTITIONS = 4
STRATEGIES = ("insert", "update", "upsert", "upsert", "upsert", "full_merge", "deduplicate", "append", "overwrite")
# Operations of the model's own names: a change feed with deletes and late rows, rows that move, whole partitions gone.
ROW_CHANGES = ("delete", "feed", "feed", "move", "move", "empty a partition")
FEED = {"delete_column": "op", "delete_values": ["D"], "sequence_by": "n", "on_duplicates": "latest"}
Model = dict[int, tuple[int, int]]  # key -> the number that a row of it carries, and its partition


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


@dataclass
class Soak:
    folder: Path
    engines: tuple[str, ...]
    chance: random.Random
    model: Model = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    number: int = 0

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def run(self, seconds: float) -> None:
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
        while time.monotonic() < end:
            self.turn(self.chance.choices(workers, weights)[0])
        saw = json.loads(reader.communicate()[0])
        self.seen["reads"] = saw.get("reads", 0)
        self.differences += [f"{what} ({count} times)" for what, count in saw.items() if what.startswith("difference")]
        for worker in workers:
            worker.close()

    def turn(self, worker: Worker) -> None:
        operation = self._draw()
        after, counts = self._expected(operation)
        answer = worker.ask(operation)
        outcome, recorded = answer["outcome"], bool(list(self.lake.glob(".fsspeckit-commit-*")))
        self.seen[f"{worker.engine} {outcome}"] += 1
        self.seen["merges" if outcome == "done" else "kills" if outcome == "killed" else "faults"] += 1
        if recorded and outcome == "killed":
            self.seen[f"kills of {worker.engine} that hit a live journal"] += 1
        what = f"{worker.engine} {operation.strategy} {operation.options}, {operation.fate} at {operation.point}"
        if outcome == "raw":
            self.differences.append(f"{what}: raw error {answer['error']}")
        if outcome == "done" and operation.fate != "kill" and answer["counts"] not in ({}, counts):
            self.differences.append(f"{what}: counted {answer['counts']}, not {counts}")
        possible = {"done": [after], "recorded": [after], "refused": [self.model]}.get(outcome, [self.model, after])
        self._check(possible if not recorded else [after], what)

    def _check(self, possible: list[Model], what: str) -> None:
        """Recover, in one of several ways, and compare."""
        if litter(self.folder):
            self._recover(what)
        found = Counter((row["id"], row["x"], row["n"], int(row["p"])) for row in rows(self.lake))
        fitting = [m for m in possible if found == Counter((k, text_of(k, n), n, p) for k, (n, p) in m.items())]
        if not fitting:
            self.differences.append(f"{what}: {len(found)} rows, none of {[len(m) for m in possible]}")
        empty = [folder.name for folder in self.lake.glob("p=*") if not any(folder.iterdir())]
        if left := litter(self.folder) + empty:
            self.differences.append(f"{what}: left {left}")
        if not fitting or left:
            shutil.rmtree(self.folder)
            self._fill()
        else:
            self.model = fitting[0]

    def _recover(self, what: str) -> None:
        self.seen["recoveries"] += 1
        way = self.chance.choice(["api", "command", "merge", "rename", "copy"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if way == "command":
                subprocess.run([sys.executable, "-m", "fsspeckit", "recover", str(self.lake)], capture_output=True)
            elif way == "merge":
                from crash.lakes import merge

                merge(self.lake, pa.Table.from_pylist([], SCHEMA))
            elif way == "rename":
                os.rename(self.lake, self.folder / "renamed")
                recover(str(self.folder / "renamed"))
                os.rename(self.folder / "renamed", self.lake)
            elif way == "copy":
                self._recover_a_copy()
        recover(str(self.lake))

    def _recover_a_copy(self) -> None:
        """The whole tree is copied, and the copy takes the place of what it is a copy of."""
        copy = self.folder.with_name("copy")
        subprocess.run(["cp", "-a", self.folder, copy], check=True)
        shutil.rmtree(self.folder)
        copy.rename(self.folder)

    def _draw(self) -> Operation:
        self.number += 1
        drawn = self.chance.choice([*STRATEGIES, *ROW_CHANGES])
        fate = self.chance.choice(["live", "kill", "kill", "kill", "fail"])
        recorded = self.chance.random() < 0.7
        options: dict[str, dict[str, Any]] = {"feed": FEED, "move": {"on_move": "move"}}
        more = options.get(drawn, {})
        strategy = "upsert" if more else drawn
        return Operation(
            str(self.lake),
            self._rows(drawn),
            "delete" if drawn == "empty a partition" else strategy,
            {"replace": self.chance.choice(["in_place", "new_file"]), **more},
            fate,
            recorded,
            self.chance.randrange(20 if recorded else 150),
        )

    def _rows(self, drawn: str) -> list[dict[str, Any]]:
        ids = self.chance.sample(range(KEYS), self.chance.randint(1, KEYS // 3))
        if drawn == "append":
            ids = [key for key in ids if key not in self.model]
        if drawn == "empty a partition":
            gone = self.chance.randrange(PARTITIONS)
            ids = [key for key, (_, p) in self.model.items() if p == gone] or ids
        if drawn in ("delete", "empty a partition"):
            return [{"id": key} for key in ids]
        if drawn == "feed":
            return [change for key in ids for change in self._changes(key)]
        return [self._row(key, self.number, self._partition(key, drawn == "move")) for key in ids]

    def _changes(self, key: int) -> list[dict[str, Any]]:
        """One or two changes of a key, in any order. Some are older than its row."""
        changes = []
        for n in self.chance.sample(range(max(0, self.number - 5), self.number + 2), self.chance.randint(1, 2)):
            if self.chance.random() < 0.3:
                changes.append({"id": key, "x": None, "n": n, "p": None, "op": "D"})
            else:
                is_older = n < self.model.get(key, (-1, 0))[0]  # its partition does not matter
                changes.append({**self._row(key, n, self._partition(key, is_older)), "op": "U"})
        return changes

    def _partition(self, key: int, is_any: bool) -> int:
        """The partition of an existing key, or any."""
        old = self.model.get(key)
        return self.chance.randrange(PARTITIONS) if is_any or old is None else old[1]

    def _row(self, key: int, number: int, partition: int) -> dict[str, Any]:
        return {"id": key, "x": text_of(key, number), "n": number, "p": partition}

    def _expected(self, operation: Operation) -> tuple[Model, dict[str, int]]:
        strategy, old, counts = operation.strategy, self.model, Counter[str]()
        source = {row["id"]: row for row in sorted(operation.rows, key=lambda row: row.get("n", 0))}
        new = {} if strategy in ("full_merge", "overwrite") else dict(old)
        counts["deleted"] = len(old.keys() - source.keys()) if not new else 0
        for key, row in source.items():
            if "sequence_by" in operation.options and key in old and row["n"] < old[key][0]:
                counts["skipped"] += 1
            elif strategy == "delete" or row.get("op") == "D":
                counts["deleted"] += key in old
                new.pop(key, None)
            elif strategy != ("update" if key not in old else "insert"):
                counts["updated" if key in old else "inserted"] += 1
                counts["moved"] += key in old and old[key][1] != row["p"]
                new[key] = row["n"], row["p"]
        return new, {name: counts[name] for name in COUNTS}

    def _fill(self) -> None:
        self.model = {key: (0, key // 2 % PARTITIONS) for key in range(0, KEYS, 2)}
        stored = SCHEMA.remove(SCHEMA.get_field_index("p"))
        for i in range(2 * PARTITIONS):
            found = [self._row(key, 0, 0) for key in list(self.model)[i :: 2 * PARTITIONS]]
            folder = self.lake / f"p={i % PARTITIONS}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(found, stored), folder / f"f{i}.parquet")

    def report(self) -> str:
        order = ("merges", "kills", "faults", "recoveries", "reads")
        lines = [f"{self.seen[name]:8,} {name}" for name in order]
        live = {name: count for name, count in self.seen.items() if name.endswith("live journal")}
        lines.insert(2, f"{sum(live.values()):8,} kills that hit a live journal")
        lines += [f"{count:8,}   {name}" for name, count in sorted(live.items())]
        lines += [f"{len(self.differences):8,} differences", *(f"  {text}" for text in self.differences)]
        return "\n".join(lines)


def soak(minutes: float, engines: tuple[str, ...], seed: int) -> Soak:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        made = Soak(Path(folder) / "soak", engines, random.Random(seed))
        made.run(minutes * 60)
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
