"""Ctrl-C while DuckDB runs a statement of a merge: the merge ends, nothing is changed and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import fingerprint, write_lake

# A merge whose statement of that name takes hours. It is DuckDB that runs it, and real signals that end it.
CHILD = """
import signal
import sys
from fsspeckit.datasets.duckdb.workspace import Workspace

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let programs in the background ignore it
name, *arguments = sys.argv[1:]
original = getattr(Workspace, name)
ENDLESS = "SELECT i FROM range(1000000000000) t(i) WHERE hash(i) % 1000000007 = 3"

def endless(self, sql, *rest):
    if "source_view" not in sql and "DROP" not in sql:
        print("running", flush=True)
        sql = f"CREATE TEMP TABLE endless AS {ENDLESS}" if name == "run" else ENDLESS
    return original(self, sql, *rest)

setattr(Workspace, name, endless)
if arguments[0] == "merge":
    sys.argv = ["fsspeckit", *arguments]
    from fsspeckit.cli import main
    main()
else:
    import pyarrow.parquet as pq
    from fsspeckit.api import dataset_io
    dataset_io("duckdb").merge(pq.read_table(arguments[1]), arguments[0], "upsert", ["id"])
"""


def wait_until_it_works(process: int) -> None:
    """Until half a second of processor time is spent: an endless statement spends it, however slow the machine is."""

    def spent() -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])

    begin, ticks, deadline = spent(), os.sysconf("SC_CLK_TCK"), time.monotonic() + 300
    while 2 * (spent() - begin) < ticks:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs /proc")
@pytest.mark.parametrize("signals", [1, 2, 5])
@pytest.mark.parametrize("name", ["run", "fetch"])
@pytest.mark.parametrize("how", ["cli", "api"])
def test_ctrl_c_while_a_statement_runs(tmp_path: Path, how: str, name: str, signals: int) -> None:
    lake = write_lake(tmp_path / "lake", {f"f{n}.parquet": pa.table({"id": [n], "x": [n]}) for n in range(3)})
    source = tmp_path / "source.parquet"
    pq.write_table(pa.table({"id": [1, 9], "x": [10, 90]}), source)
    before, names = fingerprint(lake), sorted(path.name for path in tmp_path.iterdir())
    asked = ["merge", str(source), lake, "--key", "id", "--engine", "duckdb"] if how == "cli" else [lake, str(source)]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, name, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "running\n"
        wait_until_it_works(child.pid)
        for _ in range(signals):
            child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=300)
    finally:
        child.kill()
    if how == "cli":
        assert child.returncode == 130, said
        assert signals > 1 or said == "Interrupted. Nothing was changed.\n", said
        assert "RuntimeError" not in said and "Query interrupted" not in said
    else:
        assert child.returncode == -signal.SIGINT, said
        assert "KeyboardInterrupt" in said and "RuntimeError" not in said
    assert fingerprint(lake) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == names


# Signals come every 300 microseconds, and are raised wherever they meet code of the workspace or what it calls.
STORM = """
import signal
import duckdb
from fsspeckit.datasets.duckdb import workspace

raised = 0

def interrupt(number, frame):
    global raised
    while frame is not None and frame.f_code.co_filename != workspace.__file__:
        frame = frame.f_back
    if frame is not None and raised < 20:
        raised += 1
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for _ in range(40):
    space, raised = workspace.Workspace(duckdb.connect()), 0
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.0003)
    try:
        space.run("SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) % 1000000007 = 3")
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        space.close()
        print("interrupted")
"""


def test_signals_that_come_while_others_are_handled() -> None:
    ended = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n" * 40, "")
