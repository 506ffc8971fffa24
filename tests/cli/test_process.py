"""The command line as a process among others: pipes, locks, permissions, signals, death."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import all_names, fingerprint, rows

Shell = Callable[..., "subprocess.CompletedProcess[str]"]

MERGE = ("merge", "new.parquet", "lake", "--key", "id")

# A merge that is killed after the commit is recorded and before it is carried out.
KILLED = """
import os, signal
from fsspeckit.core.commit.apply import ApplyJournal
ApplyJournal.apply = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
from fsspeckit.cli import main
main()
"""

# A merge that holds the lock for as long as it lives.
HOLDING = """
import sys, time
from fsspeckit.core.commit.session import writing
from fsspeckit.core.storage import locate
with writing(locate("lake")) as session:
    session.stage([""])
    print("locked", flush=True)
    time.sleep(60)
"""

NOBODY = """
import os
import fsspeckit.cli.commands, fsspeckit.datasets.pyarrow, fsspeckit.report.terminal
os.setuid(65534)
fsspeckit.cli.main()
"""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")


def kill_a_merge() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, *MERGE], capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL


def test_json_stands_alone_on_standard_output(shell: Shell) -> None:
    done = shell("plan", "new.parquet", "lake", "-k", "id", "--json")
    assert json.loads(done.stdout)["updated"] == 2
    assert done.stderr == ""


def test_a_pipe_gets_whole_paths_and_no_colour(shell: Shell, here: Path) -> None:
    long = here / ("folder " + "x" * 120)
    os.rename("lake", long)
    done = shell("plan", "new.parquet", str(long), "-k", "id")
    assert "\x1b" not in done.stdout
    assert f"into {long}\n" in done.stdout
    assert "  month=02/part-0.parquet  rewrite " in done.stdout
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())


def test_colour_in_a_terminal(shell: Shell) -> None:
    done = shell("plan", "new.parquet", "lake", "-k", "id", env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert "\x1b[" in done.stdout


@pytest.mark.parametrize("width", [30, 50, 80])
def test_narrow_terminals_fold_and_cut_nothing(shell: Shell, width: int) -> None:
    for args in (("plan", *MERGE[1:]), ("inspect", "lake", "-k", "id"), MERGE):
        done = shell(*args, env={"COLUMNS": str(width)})
        lines = done.stdout.splitlines()
        assert max(map(len, lines)) <= width
        assert "month=02/part-0.parquet" in done.stdout.replace("\n  ", "")
        assert not any(line.endswith("…") for line in lines)


def test_paths_that_look_like_markup(shell: Shell, here: Path) -> None:
    os.rename("lake/month=02/part-0.parquet", "lake/month=02/part[red]0[bold] ü.parquet")
    assert "part[red]0[bold] ü.parquet" in shell("plan", *MERGE[1:]).stdout
    ascii_only = shell("plan", *MERGE[1:], env={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.returncode == 0
    assert "part[red]0[bold] \\xfc.parquet" in ascii_only.stdout
    assert "600 -> 601 rows" in ascii_only.stdout


def test_standard_input_through_the_shell(here: Path) -> None:
    command = f"cat new.parquet | {sys.executable} -m fsspeckit merge - lake --key id"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert len(rows("lake")) == 601


def test_a_reader_that_hangs_up_is_no_traceback(here: Path) -> None:
    command = f"set -o pipefail; {sys.executable} -m fsspeckit inspect lake --json | head -c 1 > /dev/null"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr


def test_a_killed_merge_is_warned_of_and_recovered(shell: Shell) -> None:
    before = fingerprint("lake")
    kill_a_merge()
    assert fingerprint("lake") == before
    for args in (("inspect", "lake"), ("plan", *MERGE[1:])):
        done = shell(*args, "--json")
        assert done.returncode == 0
        assert done.stderr.startswith("Warning: ")
        assert "unfinished commit" in done.stderr
        assert "fsspeckit recover" in done.stderr
        json.loads(done.stdout)
    done = shell("recover", "lake")
    assert done.returncode == 0
    assert "finished the commit" in done.stdout
    assert {row["id"]: row["name"] for row in rows("lake")}[201] == "A"
    assert len(rows("lake")) == 601
    assert sorted(n for n in all_names(".") if ".fsspeckit" in n) == []
    assert shell("inspect", "lake").stderr == ""


def test_the_next_merge_finishes_a_killed_one(shell: Shell) -> None:
    kill_a_merge()
    done = shell(*MERGE, "--json")
    said = json.loads(done.stdout)
    assert (said["target_count_before"], said["inserted"], said["updated"]) == (601, 0, 3)


@contextlib.contextmanager
def locked() -> Iterator[int]:
    """Another process holds the lock, which it is."""
    with subprocess.Popen([sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            assert owner.stdout.readline() == "locked\n"
            yield owner.pid
        finally:
            owner.kill()


def test_a_locked_target_is_refused_and_the_owner_named(shell: Shell) -> None:
    before = fingerprint("lake")
    with locked() as owner:
        done = shell(*MERGE, "--lock-timeout", "0.2")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"process {owner}" in done.stderr
        assert shell("recover", "lake", "--lock-timeout", "0").returncode == 1
        assert shell("plan", *MERGE[1:]).returncode == 0
    assert fingerprint("lake") == before
    assert shell(*MERGE).returncode == 0


def as_nobody(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command without any rights; what it imports is imported before."""
    for folder in (Path.cwd(), *Path.cwd().parents[:3]):
        folder.chmod(0o755)
    return subprocess.run([sys.executable, "-c", NOBODY, *args], capture_output=True, text=True, timeout=300)


@needs_root
def test_permission_denied_is_one_line(here: Path) -> None:
    before = fingerprint("lake")
    done = as_nobody(*MERGE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Permission denied" in done.stderr
    assert done.stderr.count("\n") == 1
    assert fingerprint("lake") == before


@needs_root
def test_a_file_that_may_not_be_read_is_named(here: Path) -> None:
    Path("lake/month=01/part-0.parquet").chmod(0)
    done = as_nobody("inspect", "lake")
    assert (done.returncode, done.stdout) == (1, "")
    assert "lake/month=01/part-0.parquet" in done.stderr
    assert done.stderr.count("\n") == 1


@needs_root
def test_a_folder_that_may_not_be_read_is_named(here: Path) -> None:
    Path("lake/month=02").chmod(0o700)
    done = as_nobody("inspect", "lake")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Permission denied" in done.stderr
    assert "lake/month=02" in done.stderr
    assert done.stderr.count("\n") == 1


def wait_for_the_lock(process: int) -> None:
    """Until the process has opened the data set's folder, which it does first of all to lock it."""
    lake, deadline = Path("lake").resolve(), time.monotonic() + 60
    while lake not in {handle.resolve() for handle in Path(f"/proc/{process}/fd").iterdir()}:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_ctrl_c_is_130_without_a_traceback(here: Path) -> None:
    before = fingerprint("lake")
    with locked():
        merge = subprocess.Popen([sys.executable, "-m", "fsspeckit", *MERGE], stderr=subprocess.PIPE, text=True)
        wait_for_the_lock(merge.pid)
        merge.send_signal(signal.SIGINT)
        _, said = merge.communicate(timeout=300)
    assert merge.returncode == 130
    assert said == "Interrupted. Nothing was changed.\n"
    assert "Traceback" not in said
    assert fingerprint("lake") == before
