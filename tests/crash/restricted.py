"""Merge in a process that may do less than we may: another user, or a limit on file sizes.

`python -m crash.restricted <lake> <user> <file size> <partition>` imports all it needs, then gives up its rights.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crash import lakes
from crash.dying import with_tests_on_path
from fsspeckit.core.commit import staging

NOBODY = 65534


@dataclass(frozen=True)
class Answer:
    """How the merge went, and where it staged."""

    error: str | None
    message: str
    staged_in: str | None


def merge_restricted(lake: Path, user: int = 0, file_size: int = -1, partition: int = 0) -> Answer:
    """Merge as another user, or with a limit on file sizes; one new row into a `partition`, if that is given."""
    command = [sys.executable, "-m", "crash.restricted", str(lake), *map(str, (user, file_size, partition))]
    done = subprocess.run(command, env=with_tests_on_path(), capture_output=True, text=True, check=True)
    return Answer(**json.loads(done.stdout))


def _merge(lake: str, partition: int) -> Answer:
    staged: list[str] = []
    create = staging.create

    def watched(*arguments: object) -> str:
        staged.append(create(*arguments))  # type: ignore[arg-type]
        return staged[-1]

    staging.create = watched  # type: ignore[assignment]
    try:
        lakes.merge(lake, pa.table({"id": [99], "x": ["new"], "p": [partition]}) if partition else lakes.SOURCE)
    except Exception as error:
        return Answer(type(error).__name__, str(error), staged[-1] if staged else None)
    return Answer(None, "", staged[-1])


if __name__ == "__main__":
    lakes.merge("memory://warm/up")
    user, file_size, partition = map(int, sys.argv[2:])
    if file_size >= 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    answer = _merge(sys.argv[1], partition)
    print(json.dumps(answer.__dict__))
