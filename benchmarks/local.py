"""Everyone at every work on one machine: wall and CPU seconds, peak memory.

    python benchmarks/local.py [--works tiny partitioned] [--contenders Polars] [--rounds 5] [--scale 1.0]

Every contender has a process of its own, which has merged a small lake before, and an untouched copy of the lake for
each merge. The smallest wall time of its rounds counts, with its CPU seconds; they come one after the other, because a
virtual machine takes memory back from who is idle, and to get it again costs more than the merge. Peak memory is of
another process that merges just once. After the first and the last merge rows are compared with what they have to be:
who gives others is reported as wrong, without a time. A contender whose one merge takes long has fewer rounds.

`--before CHECKOUT/src` has ours of another checkout take turns as well; such a run is printed, and not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import results
import works
from contenders import EVERYONE, OTHERS, OURS, Contender, Plan, ReadAndWrite, before
from results import Row, Suite
from works import WORKS, Work

HERE = Path(__file__).parent
PEER = HERE.parent / ".venv-peer/bin/python"
PLANNED = "2,000 files, 5 touched"


class Failed(Exception):
    """Why a contender has no figure."""


class Worker:
    def __init__(self, kind: type[Contender], work: Work, root: Path, timeout: float) -> None:
        if kind.elsewhere and not PEER.exists():
            raise Failed("not run: no .venv-peer; scripts/peer-venv makes it")
        environment = os.environ | {"XDG_CACHE_HOME": str(root / "cache"), "TMPDIR": str(root)}
        if kind.elsewhere:
            environment.pop("PYTHONPATH", None)
        if kind.src:
            environment["PYTHONPATH"] = kind.src
        python = str(PEER) if kind.elsewhere else sys.executable
        self._command = [python, str(HERE / "worker.py"), kind.name, work.name]
        self._root, self._timeout = root, timeout
        pipe, log = subprocess.PIPE, (root / "log").open("a")
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment)

    def ask(self, do: str, folder: Path, scale: str, source: Path) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        request = {"do": do, "folder": str(folder), "scale": scale, "source": str(source)}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], self._timeout)[0]:
            self.end()
            raise Failed(f"not run: {do} did not end within {self._timeout:.0f} s")
        told = json.loads(self._process.stdout.readline() or '{"error": "the process ended"}')
        if "error" in told:
            self.end()
            raise Failed(f"not run: {told['error'].strip().splitlines()[0].replace(str(self._root), '')[:150]}")
        return dict(told)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Bench:
    root: Path
    scale: float
    rounds: int
    budget: float
    timeout: float
    copies: int = 0

    def build(self, work: Work) -> None:
        for scale, sized in (("small", work.small()), (str(self.scale), work.scaled(self.scale))):
            (self.root / scale / "lakes").mkdir(parents=True, exist_ok=True)
            works.build(sized, self.root / scale)
        os.sync()

    def source(self, work: Work, scale: str) -> Path:
        return self.root / scale / work.name / "source.parquet"

    def copy(self, work: Work, scale: str, kind: type[Contender]) -> Path:
        """An untouched lake under a name that nobody has seen. Links, so that no copy is still on its way to the disk;
        bytes for the one contender that is not known to leave old files alone."""
        self.copies += 1
        live = self.root / f"live{self.copies}"
        pristine = self.root / scale / "lakes" / work.lake.name
        shutil.copytree(pristine, live, copy_function=shutil.copy2 if kind.elsewhere else os.link)
        if kind.elsewhere:
            os.sync()
        return live

    def start(self, kind: type[Contender], work: Work) -> Worker:
        return Worker(kind, work, self.root, self.timeout)

    def merge(self, who: Entrant, worker: Worker, scale: str, *, check: bool = True) -> dict[str, float]:
        """One merge by this worker; another one prepares and looks at the rows."""
        live, source = self.copy(who.work, scale, who.kind), self.source(who.work, scale)
        try:
            who.aside.ask("prepare", live, scale, source)
            told = worker.ask("merge", live, scale, source)
            if who.kind.upserts and check:
                expected = json.loads(source.with_name("expected.json").read_text())
                rows = who.aside.ask("check", live, scale, source)
                if rows != expected:
                    raise Failed(f"wrong: {rows}, expected {expected}")
            return told
        finally:
            shutil.rmtree(live)


@dataclass
class Entrant:
    """One contender at one work."""

    kind: type[Contender]
    work: Work
    warm: Worker
    aside: Worker
    row: Row
    rounds: int
    told: list[dict[str, float]] = field(default_factory=list)

    def settle(self) -> None:
        best = min(self.told, key=lambda told: told["wall"])
        self.row.wall, self.row.cpu = round(best["wall"], 4), round(best["cpu"], 4)
        self.row.rounds = len(self.told)


def enter(bench: Bench, kind: type[Contender], work: Work, row: Row) -> Entrant:
    """Warm a worker up, take the peak from another, and see how many rounds there is time for."""
    unfit = kind().unfit(work.scaled(bench.scale))
    if unfit:
        raise Failed(f"not run: {unfit}")
    who = Entrant(kind, work, bench.start(kind, work), bench.start(kind, work), row, bench.rounds)
    bench.merge(who, who.warm, "small")
    once = bench.start(kind, work)
    cold = bench.merge(who, once, str(bench.scale))
    once.end()
    row.peak_mib = round(cold["peak_mib"], 1)
    who.rounds = max(1, min(bench.rounds, int(bench.budget / cold["wall"])))
    if who.rounds < bench.rounds:
        row.note = f"{who.rounds} of {bench.rounds} rounds, since one takes {cold['wall']:.1f} s"
    if who.rounds == 1:
        who.told.append(cold)
    return who


def compare(bench: Bench, work: Work, kinds: list[type[Contender]]) -> list[Row]:
    rows, entrants = [], []
    for kind in kinds:
        rows.append(Row(work.name, kind.name))
        try:
            entrants.append(enter(bench, kind, work, rows[-1]))
        except Failed as failed:
            rows[-1].note = str(failed)
    for who in [who for who in entrants if who.rounds > 1]:
        try:
            for turn in range(who.rounds):
                check = turn == who.rounds - 1
                who.told.append(bench.merge(who, who.warm, str(bench.scale), check=check))
        except Failed as failed:
            who.row.note, who.told = str(failed), []
    for who in entrants:
        who.warm.end()
        who.aside.end()
        if who.told:
            who.settle()
    return rows


def plan_twice(bench: Bench, work: Work) -> list[Row]:
    """A plan by one process and by the next, on lakes that no process has seen."""
    rows = [Row(work.name, f"{Plan.name} {turn}") for turn in ("first", "again")]
    for _ in range(bench.rounds):
        live = bench.copy(work, str(bench.scale), Plan)
        time.sleep(3)  # files that have just changed are not remembered
        for row in rows:
            warm = bench.copy(work, "small", Plan)
            worker = bench.start(Plan, work)
            worker.ask("merge", warm, "small", bench.source(work, "small"))
            told = worker.ask("merge", live, str(bench.scale), bench.source(work, str(bench.scale)))
            worker.end()
            shutil.rmtree(warm)
            if row.wall is None or told["wall"] < row.wall:
                row.wall, row.cpu, row.peak_mib = (round(told[name], 4) for name in ("wall", "cpu", "peak_mib"))
            row.rounds += 1
        shutil.rmtree(live)
    return rows


def versions(kinds: list[type[Contender]]) -> dict[str, str]:
    here = {package for kind in kinds if not kind.elsewhere for package in kind.packages}
    told = {package: version(package) for package in sorted(here - {"fsspeckit"})}
    if PEER.exists() and any(kind.elsewhere for kind in kinds):
        command = [str(PEER), "-c", "from importlib.metadata import version as v; print(v('fsspeckit'))"]
        told["PyPI's fsspeckit"] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {"fsspeckit": results.our_version(), **told}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--works", nargs="+", help="those whose name begins so", default=[""])
    parser.add_argument("--contenders", nargs="+", help="those whose name begins so", default=[""])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows, for a try")
    parser.add_argument("--budget", type=float, default=12, help="seconds for the rounds of one contender at one work")
    parser.add_argument("--timeout", type=float, default=30, help="seconds for one merge")
    parser.add_argument("--before", type=Path, help="another checkout's src, for ours to be compared with")
    parser.add_argument("--folder", type=Path, help="where the lakes are made: on the disk that is measured")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    chosen = [work for work in WORKS if work.name.startswith(tuple(given.works))]
    kinds = [kind for kind in [*OURS, *OTHERS] if kind.name.startswith(tuple(given.contenders))]
    if given.before:
        kinds += [before(kind, given.before.resolve()) for kind in OURS]
    suite = Suite(
        "local",
        ours=[kind.name for kind in OURS],
        floor=ReadAndWrite.name,
        works={work.name: work.about for work in chosen},
        contenders={kind.name: kind.about for kind in EVERYONE if kind in kinds or kind is Plan},
        scale=given.scale,
        whole=given.scale == 1 and given.rounds >= 5 and (chosen, kinds) == (WORKS, [*OURS, *OTHERS]),
        versions=versions(kinds),
    )
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-", dir=given.folder) as folder:
        bench = Bench(Path(folder).resolve(), given.scale, given.rounds, given.budget, given.timeout)
        for work in chosen:
            started = time.monotonic()
            bench.build(work)
            rows = compare(bench, work, kinds)
            rows += plan_twice(bench, work) if work.name == PLANNED else []
            print(f"{work.name}: {work.about} ({time.monotonic() - started:.0f} s)")
            for row in rows:
                figures = f"{row.wall:8.3f} s {row.cpu:8.3f} CPU s {row.peak_mib:7.0f} MiB" if row.wall else " " * 36
                print(f"  {row.contender:22}{figures}  {row.note}", flush=True)
            suite.rows += rows
    if not given.before:
        suite.save()


if __name__ == "__main__":
    main()
