"""One contender on one work, in a process of its own. It answers each line of JSON with a line of JSON.

    python benchmarks/worker.py CONTENDER WORK

A request is `prepare`, `merge` or `check`, with a folder, the scale of the work and its source. Reading the source is
not timed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from contenders import BEFORE, EVERYONE, Contender
from works import WORKS, Work, sums_of_files


def measured(contender: Contender, folder: Path, source: Any, work: Work) -> dict[str, float]:
    before, started = cpu_seconds(), time.perf_counter()
    contender.merge(folder, source, work)
    wall = time.perf_counter() - started
    return {"wall": wall, "cpu": cpu_seconds() - before, "peak_mib": peak_mib()}


def cpu_seconds() -> float:
    """The CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mib() -> float:
    """VmHWM of the kernel. `ru_maxrss` would include the memory of the parent when it forked."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def answer(contender: Contender, full: Work, request: dict[str, str]) -> dict[str, Any]:
    folder = Path(request["folder"])
    work = full.small() if request["scale"] == "small" else full.scaled(float(request["scale"]))
    match request["do"]:
        case "prepare":
            contender.prepare(folder, work)
            return {}
        case "merge":
            return measured(contender, folder, pq.ParquetFile(request["source"]).read(), work)
        case "check":
            return vars(sums_of_files(work.lake, contender.files(folder)))
    raise ValueError(request)


def main(name: str, work_name: str) -> None:
    # What libraries print goes to stderr.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    contender = next(one for one in EVERYONE if one.name == name.removesuffix(BEFORE))()
    work = next(work for work in WORKS if work.name == work_name)
    for line in sys.stdin:
        try:
            result = answer(contender, work, json.loads(line))
        except BaseException as error:  # panics of Rust are no Exception; every failure is a result here
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
