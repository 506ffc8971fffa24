"""Writers that tests start as processes: `python -m crash.writers <what> <lake> [numbers]`.

Each says `ready` and waits for a line before it begins.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from crash.dying import with_tests_on_path
from crash.lakes import STEPS
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

SHARED = range(40)


def start(what: str, lake: Path | str, *numbers: int) -> subprocess.Popen[str]:
    """Start a writer and wait until it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "crash.writers", what, str(lake), *map(str, numbers)],
        env=with_tests_on_path(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    expect(process, "ready")
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def expect(process: subprocess.Popen[str], word: str) -> list[str]:
    """Wait for the writer to say a word; returns what it says after it."""
    assert process.stdout is not None
    said = process.stdout.readline().split()
    assert said[:1] == [word], f"expected {word!r}, got {said}"
    return said[1:]


def batch(writer: int, turn: int) -> pa.Table:
    """The keys that all writers share, and five that belong to this writer, two of them new."""
    own = [1000 * writer + 2 * turn + i for i in range(-3, 2)]
    ids = [*SHARED, *(i for i in own if i >= 1000 * writer)]
    return pa.table({"id": ids, "x": [f"{writer}:{turn}"] * len(ids)})


def merge_in_turns(lake: str, writer: int, turns: int) -> None:
    for turn in range(turns):
        result = PyArrowDatasetIO().merge(batch(writer, turn), lake, "upsert", ["id"])
        say(f"done {result.inserted} {result.updated}")


def update_for(lake: str, milliseconds: int, keys: int) -> None:
    """Update every row again and again, in place; ten times at least, on a machine that is busy."""
    end, turn = time.monotonic() + milliseconds / 1000, 0
    while time.monotonic() < end or turn < 10:
        table = pa.table({"id": range(keys), "x": ["longer" * (turn % 7) + str(turn)] * keys})
        PyArrowDatasetIO().merge(table, lake, "update", ["id"])
        turn += 1
    say(f"done {turn}")


def hold_in(step: str) -> Callable[[str, int], None]:
    """Merge key 1, but sleep at a step while the lock is held."""

    def hold(lake: str, milliseconds: int) -> None:
        def wait() -> None:
            say("holding")
            time.sleep(milliseconds / 1000)

        _before(step, wait)
        PyArrowDatasetIO().merge(pa.table({"id": [1], "x": ["held"]}), lake, "upsert", ["id"])
        say("done")

    return hold


def fork_in_merge(lake: str) -> None:
    """Merge, and while the lock is held fork a process that lives on."""

    def fork() -> None:
        child = os.fork()
        if not child:
            time.sleep(30)
            os._exit(0)
        say(f"forked {child}")

    _before("rewrite", fork)
    PyArrowDatasetIO().merge(pa.table({"id": [1], "x": ["held"]}), lake, "upsert", ["id"])
    say("done")


def fork_and_exit_in_merge(lake: str) -> None:
    """Merge, and while the lock is held fork a process that ends as programs do: by unwinding what it inherited."""

    def fork() -> None:
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
        say("holding")
        sys.stdin.readline()

    _before("rewrite", fork)
    PyArrowDatasetIO().merge(pa.table({"id": [1], "x": ["held"]}), lake, "upsert", ["id"])
    say("done")


def fork_and_go_on(lake: str, staged: int) -> None:
    """Merge, and let a forked child go on with the same merge: it has no lock, and may not stage, write or commit."""
    children: list[int] = []
    codes: list[int] = []

    def fork() -> None:
        children.append(os.fork())
        if children[0]:  # the parent waits, else it may be done before the child looks at the files
            codes.append(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))

    _before("rewrite" if staged else "match", fork)
    try:
        PyArrowDatasetIO().merge(pa.table({"id": [1], "x": ["held"]}), lake, "upsert", ["id"])
    except Exception as error:
        assert children == [0], error
        os._exit(7 if "forked child cannot commit" in str(error) else 8)
    if children == [0]:
        os._exit(0)
    say(f"done {codes[0]}")


def _before(step: str, action: Callable[[], None]) -> None:
    place, name = STEPS[step]
    original = getattr(place, name)

    def wrapped(*arguments: Any) -> Any:
        action()
        return original(*arguments)

    setattr(place, name, wrapped)


def say(words: str) -> None:
    print(words, flush=True)


WRITERS: dict[str, Callable[..., None]] = {
    "merge": merge_in_turns,
    "update": update_for,
    "hold-match": hold_in("match"),
    "hold-rewrite": hold_in("rewrite"),
    "fork": fork_in_merge,
    "fork-exit": fork_and_exit_in_merge,
    "fork-go-on": fork_and_go_on,
}

if __name__ == "__main__":
    say("ready")
    sys.stdin.readline()
    WRITERS[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
