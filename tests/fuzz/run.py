"""`make fuzz`: thousands of broken files, used as source and as target. Every one is merged as PyArrow reads it, or
refused with an error of ours and nothing changed.

    python -m fuzz.run --n 10000                  # in two processes
    python -m fuzz.run --mutant 4711 --keep out   # one of them again, its file kept

Mutants are run in child processes: one that aborts or hangs takes only its child with it, and is listed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from fsspeckit.core.parquet import dictionaries
from fuzz import oracle
from fuzz.case import Case, Finding, Mode
from fuzz.samples import samples
from fuzz.trial import run, scratch_folder

PATIENCE = 60.0


@dataclass
class Summary:
    """What came of all mutants."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    aborts: list[tuple[int, str]] = field(default_factory=list)

    def add(self, number: int, kind: str, text: str) -> None:
        if kind == "outcome":
            self.outcomes[text] += 1
        elif kind == "abort":
            self.aborts.append((number, text))
        else:
            self.findings.append((number, text))


class Child:
    """A process that runs mutants one by one, and says who is at work."""

    def __init__(self, seed: int, mode: Mode) -> None:
        command = [sys.executable, "-m", "fuzz.run", "--seed", str(seed), "--child", "--mode", mode]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        found_at = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        self.process = subprocess.Popen(command, env=found_at, **pipes)  # type: ignore[call-overload]
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.buffer = b""

    def ask(self, number: int, only_pyarrow: bool = False) -> tuple[str, str, str]:
        """(kind, text, phase) of one mutant."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([number, only_pyarrow]).encode() + b"\n")
        self.process.stdin.flush()
        deadline, phase = time.monotonic() + PATIENCE, "fsspeckit"
        while True:
            line = self._line(deadline)
            if line is None:
                self.process.kill()
                self.process.wait()
                kind = "hang" if time.monotonic() >= deadline else "died"
                return kind, f"by signal {-self.process.returncode}", phase
            said = json.loads(line)
            if "phase" in said:
                phase = said["phase"]
            else:
                return said["kind"], said["text"], phase

    def _line(self, deadline: float) -> bytes | None:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = self.process.stdout.read()
                if not chunk:
                    return None
                self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def fuzz(seed: int, numbers: range, workers: int = 2, mode: Mode = "merge") -> Summary:
    """Run mutants in child processes."""
    summary, waiting, lock = Summary(), iter(numbers), threading.Lock()

    def work() -> None:
        child = Child(seed, mode)
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                break
            kind, text, phase = child.ask(number)
            if kind in ("died", "hang"):
                child = Child(seed, mode)
                kind, text = _judge(child, number, kind, text, phase)
                if child.process.poll() is not None:
                    child = Child(seed, mode)
            with lock:
                summary.add(number, kind, text)
        child.close()

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return summary


def _judge(child: Child, number: int, kind: str, text: str, phase: str) -> tuple[str, str]:
    """A process that died while we were at work: would PyArrow alone have died as well?"""
    if phase == "pyarrow":
        return "abort", f"PyArrow alone {kind} {text}; refused or not read by us"
    again, _, _ = child.ask(number, only_pyarrow=True)
    if again in ("died", "hang"):
        return "abort", f"{kind} {text}, as PyArrow alone does"
    return "finding", f"{kind} {text}; PyArrow alone does not"


def child(seed: int, mode: Mode) -> None:
    _limit_memory()
    dictionaries._ROWS_PER_VALUE = 1  # the files to break have few rows
    known = samples()
    say = os.fdopen(os.dup(1), "w", buffering=1)
    with tempfile.TemporaryDirectory(dir=scratch_folder(), prefix="fuzz-") as folder:
        for line in sys.stdin:
            number, only_pyarrow = json.loads(line)
            case = Case.of(seed, number, known, mode)
            kind, text = _run(case, Path(folder) / "trial", only_pyarrow, say)
            say.write(json.dumps({"kind": kind, "text": text}) + "\n")


def _run(case: Case, folder: Path, only_pyarrow: bool, say: Any) -> tuple[str, str]:
    if only_pyarrow:
        with contextlib.suppress(Exception):
            oracle.touch_chunks(case.mutant)
        with contextlib.suppress(Exception):
            oracle.read(case.mutant)
        return "outcome", "read"
    try:
        return "outcome", run(case, folder, lambda name: say.write(json.dumps({"phase": name}) + "\n") and None)
    except Finding as error:
        return "finding", f"{case}: {error}"[:2000]
    except Exception as error:
        return "finding", f"{case}: the test itself failed: {type(error).__name__}: {error}"[:2000]


def _limit_memory() -> None:
    """A mutant may promise a billion rows; the machine is not to pay for it."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def report(summary: Summary, seed: int, count: int, seconds: float, mode: Mode = "merge") -> str:
    known = samples()
    lines = [f"{count} mutants (seed {seed}) in {seconds:.0f} s"]
    lines += [f"  {n:6d}  {name}" for name, n in sorted(summary.outcomes.items())]
    hangs = sum("hang" in text for _, text in summary.aborts)
    lines += [f"  {len(summary.aborts) - hangs:6d}  aborts inside PyArrow", f"  {hangs:6d}  hangs inside PyArrow"]
    lines += [f"  {len(summary.findings):6d}  findings"]
    smallest = (
        min((len(Case.of(seed, n, known, mode).mutant), n, text) for n, text in summary.aborts)
        if summary.aborts
        else None
    )
    if smallest:
        lines.append(f"  the smallest that aborts: mutant {smallest[1]}, {smallest[0]} bytes: {smallest[2]}")
    lines += [f"  abort {n}: {Case.of(seed, n, known, mode)}: {text}" for n, text in summary.aborts]
    lines += [f"  FINDING {n}: {text}" for n, text in sorted(summary.findings)[:50]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--mode",
        choices=get_args(Mode),
        default="merge",
        help="splice: files of the target of which most is to be copied; maintain: compactions, new columns, deletes",
    )
    parser.add_argument("--mutant", type=int, help="run this one again, in this process")
    parser.add_argument("--keep", type=Path, help="a folder for the file, the lake and the source of --mutant")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.seed, given.mode)
        return 0
    if given.mutant is not None:
        case = Case.of(given.seed, given.mutant, samples(), given.mode)
        print(case, flush=True)
        print(
            run(case, given.keep or Path(tempfile.mkdtemp(prefix="fuzz-")), lambda name: print("…", name, flush=True))
        )
        return 0
    begin = time.monotonic()
    summary = fuzz(given.seed, range(given.first, given.first + given.n), given.workers, given.mode)
    print(report(summary, given.seed, given.n, time.monotonic() - begin, given.mode))
    return 1 if summary.findings else 0


if __name__ == "__main__":
    sys.exit(main())
