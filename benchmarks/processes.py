"""CPU time and memory of this process and of all that it started, such as Java and Python workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path


def cpu_seconds() -> float:
    """The CPU time of this process and its descendants, also of those that ended; 0 without /proc."""
    return sum(_ticks(stat) for stat in _family(os.getpid()).values()) / os.sysconf("SC_CLK_TCK")


def _family(top: int) -> dict[int, list[str]]:
    """The fields of /proc/<pid>/stat after the name, for a process and all its descendants. Names may have blanks."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
    family = {top}
    while more := {pid for pid, stat in stats.items() if int(stat[1]) in family} - family:
        family |= more
    return {pid: stats[pid] for pid in family if pid in stats}


def _ticks(stat: list[str]) -> int:
    return sum(map(int, stat[11:15]))


def java_processes() -> Iterator[int]:
    """Java's among the descendants of this process."""
    for pid in _family(os.getpid()):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                yield pid
        except (FileNotFoundError, ProcessLookupError):
            continue


def peak_mib(pid: int | str = "self") -> float:
    """The most memory that a process had, in MiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


class Peaks:
    """The peak memory of every descendant while the block runs, also of those that end meanwhile."""

    def __init__(self) -> None:
        self.by_process: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            for pid in _family(os.getpid()):
                self.by_process[pid] = max(peak_mib(pid), self.by_process.get(pid, 0.0))
