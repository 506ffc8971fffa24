"""Run every contender on every work on one machine: wall and CPU seconds, peak memory.

    python benchmarks/local.py [--works tiny partitioned] [--contenders Polars] [--rounds 5] [--scale 1.0]

Every contender has a process of its own, which has merged a small lake before, and an untouched copy of the lake for
each merge. The result is the round with the smallest wall time, and its CPU seconds. The rounds of one contender follow
each other: a virtual machine takes memory back from an idle process, and getting it again takes longer than the merge.
Peak memory is measured in another process that merges once. After the first and the last merge the rows are compared
with the expected ones. A contender with other rows is reported as wrong, without a time. A slow contender has fewer
rounds.

`--before CHECKOUT/src` also runs the merge of another checkout. Such a run is printed, but not saved.
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
    def __init__(self, contender: type[Contender], work: Work, root: Path, timeout: float) -> None:
        if contender.elsewhere and not PEER.exists():
            raise Failed("not run: no .venv-peer; scripts/peer-venv makes it")
        environment = os.environ | {"XDG_CACHE_HOME": str(root / "cache"), "TMPDIR": str(root)}
        if contender.elsewhere:
            environment.pop("PYTHONPATH", None)
        if contender.src:
            environment["PYTHONPATH"] = contender.src
        python = str(PEER) if contender.elsewhere else sys.executable
        self._command = [python, str(HERE / "worker.py"), contender.name, work.name]
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
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process ended"}')
        if "error" in answer:
            self.end()
            raise Failed(f"not run: {answer['error'].strip().splitlines()[0].replace(str(self._root), '')[:150]}")
        return dict(answer)

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

    def copy(self, work: Work, scale: str, contender: type[Contender]) -> Path:
        """An untouched lake under a new name. Files are linked, so that no copy is still being written to the disk.
        They are copied for the one contender that may write into old files."""
        self.copies += 1
        live = self.root / f"live{self.copies}"
        pristine = self.root / scale / "lakes" / work.lake.name
        shutil.copytree(pristine, live, copy_function=shutil.copy2 if contender.elsewhere else os.link)
        if contender.elsewhere:
            os.sync()
        return live

    def start(self, contender: type[Contender], work: Work) -> Worker:
        return Worker(contender, work, self.root, self.timeout)

    def merge(self, entrant: Entrant, worker: Worker, scale: str, *, check: bool = True) -> dict[str, float]:
        """One merge by this worker; another worker prepares the lake and checks the rows."""
        live, source = self.copy(entrant.work, scale, entrant.contender), self.source(entrant.work, scale)
        try:
            entrant.aside.ask("prepare", live, scale, source)
            measured = worker.ask("merge", live, scale, source)
            if entrant.contender.upserts and check:
                expected = json.loads(source.with_name("expected.json").read_text())
                rows = entrant.aside.ask("check", live, scale, source)
                if rows != expected:
                    raise Failed(f"wrong: {rows}, expected {expected}")
            return measured
        finally:
            shutil.rmtree(live)


@dataclass
class Entrant:
    """One contender at one work."""

    contender: type[Contender]
    work: Work
    warm: Worker
    aside: Worker
    row: Row
    rounds: int
    measured: list[dict[str, float]] = field(default_factory=list)

    def set_row(self) -> None:
        best = min(self.measured, key=lambda measured: measured["wall"])
        self.row.wall, self.row.cpu = round(best["wall"], 4), round(best["cpu"], 4)
        self.row.rounds = len(self.measured)


def enter(bench: Bench, contender: type[Contender], work: Work, row: Row) -> Entrant:
    """Warm up a worker, measure the peak memory of another, and choose the number of rounds."""
    unfit = contender().unfit(work.scaled(bench.scale))
    if unfit:
        raise Failed(f"not run: {unfit}")
    entrant = Entrant(contender, work, bench.start(contender, work), bench.start(contender, work), row, bench.rounds)
    bench.merge(entrant, entrant.warm, "small")
    once = bench.start(contender, work)
    cold = bench.merge(entrant, once, str(bench.scale))
    once.end()
    row.peak_mib = round(cold["peak_mib"], 1)
    entrant.rounds = max(1, min(bench.rounds, int(bench.budget / cold["wall"])))
    if entrant.rounds < bench.rounds:
        row.note = f"{entrant.rounds} of {bench.rounds} rounds, since one takes {cold['wall']:.1f} s"
    if entrant.rounds == 1:
        entrant.measured.append(cold)
    return entrant


def compare(bench: Bench, work: Work, chosen_contenders: list[type[Contender]]) -> list[Row]:
    rows, entrants = [], []
    for contender in chosen_contenders:
        rows.append(Row(work.name, contender.name))
        try:
            entrants.append(enter(bench, contender, work, rows[-1]))
        except Failed as failed:
            rows[-1].note = str(failed)
    for entrant in [entrant for entrant in entrants if entrant.rounds > 1]:
        try:
            for turn in range(entrant.rounds):
                check = turn == entrant.rounds - 1
                entrant.measured.append(bench.merge(entrant, entrant.warm, str(bench.scale), check=check))
        except Failed as failed:
            entrant.row.note, entrant.measured = str(failed), []
    for entrant in entrants:
        entrant.warm.end()
        entrant.aside.end()
        if entrant.measured:
            entrant.set_row()
    return rows


def plan_twice(bench: Bench, work: Work) -> list[Row]:
    """A plan by one process and by the next, on lakes whose footers are not cached."""
    rows = [Row(work.name, f"{Plan.name} {turn}") for turn in ("first", "again")]
    for _ in range(bench.rounds):
        live = bench.copy(work, str(bench.scale), Plan)
        time.sleep(3)  # footers of files that have just changed are not cached
        for row in rows:
            warm = bench.copy(work, "small", Plan)
            worker = bench.start(Plan, work)
            worker.ask("merge", warm, "small", bench.source(work, "small"))
            measured = worker.ask("merge", live, str(bench.scale), bench.source(work, str(bench.scale)))
            worker.end()
            shutil.rmtree(warm)
            if row.wall is None or measured["wall"] < row.wall:
                row.wall, row.cpu, row.peak_mib = (round(measured[name], 4) for name in ("wall", "cpu", "peak_mib"))
            row.rounds += 1
        shutil.rmtree(live)
    return rows


def versions(chosen_contenders: list[type[Contender]]) -> dict[str, str]:
    here = {package for contender in chosen_contenders if not contender.elsewhere for package in contender.packages}
    installed = {package: version(package) for package in sorted(here - {"fsspeckit"})}
    if PEER.exists() and any(contender.elsewhere for contender in chosen_contenders):
        command = [str(PEER), "-c", "from importlib.metadata import version as v; print(v('fsspeckit'))"]
        installed["PyPI's fsspeckit"] = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.strip()
    return {"fsspeckit": results.our_version(), **installed}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--works", nargs="+", help="beginnings of names", default=[""])
    parser.add_argument("--contenders", nargs="+", help="beginnings of names", default=[""])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows, for a trial")
    parser.add_argument("--budget", type=float, default=12, help="seconds for the rounds of one contender at one work")
    parser.add_argument("--timeout", type=float, default=30, help="seconds for one merge")
    parser.add_argument("--before", type=Path, help="src of another checkout, to compare with")
    parser.add_argument("--folder", type=Path, help="where the lakes are written: on the disk that is measured")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    chosen = [work for work in WORKS if work.name.startswith(tuple(options.works))]
    chosen_contenders = [
        contender for contender in [*OURS, *OTHERS] if contender.name.startswith(tuple(options.contenders))
    ]
    if options.before:
        chosen_contenders += [before(contender, options.before.resolve()) for contender in OURS]
    suite = Suite(
        "local",
        ours=[contender.name for contender in OURS],
        floor=ReadAndWrite.name,
        works={work.name: work.about for work in chosen},
        contenders={
            contender.name: contender.about
            for contender in EVERYONE
            if contender in chosen_contenders or contender is Plan
        },
        scale=options.scale,
        whole=options.scale == 1 and options.rounds >= 5 and (chosen, chosen_contenders) == (WORKS, [*OURS, *OTHERS]),
        versions=versions(chosen_contenders),
    )
    with tempfile.TemporaryDirectory(prefix="fsspeckit-bench-", dir=options.folder) as folder:
        bench = Bench(Path(folder).resolve(), options.scale, options.rounds, options.budget, options.timeout)
        for work in chosen:
            started = time.monotonic()
            bench.build(work)
            rows = compare(bench, work, chosen_contenders)
            rows += plan_twice(bench, work) if work.name == PLANNED else []
            print(f"{work.name}: {work.about} ({time.monotonic() - started:.0f} s)")
            for row in rows:
                figures = f"{row.wall:8.3f} s {row.cpu:8.3f} CPU s {row.peak_mib:7.0f} MiB" if row.wall else " " * 36
                print(f"  {row.contender:22}{figures}  {row.note}", flush=True)
            suite.rows += rows
    if not options.before:
        suite.save()


if __name__ == "__main__":
    main()
