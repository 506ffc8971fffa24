"""A benchmark on two checkouts in turn: `python scripts/compare.py OLD/src NEW/src benchmarks/merge_ratio.py`.

On a shared machine two runs one after the other tell more of the neighbours than of the code. So the same script runs
on the old and on the new code alternately, each in a process of its own, and the best seconds of every line that it
prints are compared. The script is the same for both; it may only use what both have.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

_LINE = re.compile(r"^\s*(?P<what>[^:]+):.*?(?P<seconds>[\d.]+) s\b")
"""`1,000 keys in 5 files: merge 0.123 s, …`: the first seconds of a line are those of the merge."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout's src")
    parser.add_argument("new", type=Path, help="another's")
    parser.add_argument("benchmark", help="a script that prints a line of seconds for every case; its options follow")
    parser.add_argument("--rounds", type=int, default=5)
    options, its_own = parser.parse_known_args()
    sides = [options.old.resolve(), options.new.resolve()]
    best: list[dict[str, float]] = [{}, {}]
    for number in range(options.rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):  # so that neither always comes first
            for what, seconds in measured(sides[side], [options.benchmark, *its_own]).items():
                best[side][what] = min(seconds, best[side].get(what, seconds))
    print(f"{'old s':>9}{'new s':>9}{'new/old':>9}  best of {options.rounds}, in turn")
    for what, old in best[0].items():
        new = best[1][what]
        print(f"{old:>9.3f}{new:>9.3f}{new / old:>9.2f}  {what}")


def measured(src: Path, command: list[str]) -> dict[str, float]:
    """What a run of the benchmark says, by the words before the colon."""
    environment = {**os.environ, "PYTHONPATH": str(src)}
    done = subprocess.run([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True)
    lines = [match for line in done.stdout.splitlines() if (match := _LINE.match(line))]
    if not lines:
        raise SystemExit(f"{command[0]} ended with {done.returncode} and told no seconds.\n{done.stdout}")
    return {" ".join(match["what"].split()): float(match["seconds"]) for match in lines}


if __name__ == "__main__":
    main()
