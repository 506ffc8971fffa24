"""What a person sees of a long operation: a bar on terminals only, who has the lock, and what Ctrl-C says."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.commit.session import writing
from fsspeckit.core.progress import ProgressEvent
from fsspeckit.core.storage import locate
from fsspeckit.report.progress_bar import TerminalBar, progress_bar
from support import fingerprint, rows

MERGE = ("merge", "changes.parquet", "orders", "-k", "id")
FILES, ROWS = 6, 60_000


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set whose merge takes some seconds: its writers are slow."""
    monkeypatch.chdir(tmp_path)
    Path("orders").mkdir()
    for number in range(FILES):
        ids = np.arange(number, FILES * ROWS, FILES)
        pq.write_table(pa.table({"id": ids, "n": ids * 0.5}), f"orders/f{number}.parquet", row_group_size=ROWS // 10)
    ids = np.arange(0, FILES * ROWS, 7)
    pq.write_table(pa.table({"id": ids, "n": ids * 0.25}), "changes.parquet")
    return tmp_path


# The command line; reading a row group for the rewrite takes 30 ms longer, so that a merge takes some seconds.
SLOW = """
import sys, time
from fsspeckit.core.rewrite import row_group
from fsspeckit.cli import main
read = row_group.read_row_group
def slow(*args, **kwargs):
    time.sleep(0.03)
    return read(*args, **kwargs)
row_group.read_row_group = slow
main()
"""
LINE = re.compile(r"Writing files\W+(\d+) of 6 files, [\d.]+ \w+ of [\d.]+ MB")


def on_a_terminal(command: list[str], width: int = 120) -> tuple[int, str]:
    """The exit code, and what standard error shows if it is a terminal; standard output is a pipe."""
    leader, follower = pty.openpty()
    env = {**os.environ, "COLUMNS": str(width), "TERM": "xterm-256color"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, stdin=follower, env=env)
    os.close(follower)
    shown = b"".join(_read(leader))
    os.close(leader)
    child.communicate(timeout=300)
    return child.returncode, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # the last process has closed it
            return
        if not some:
            return
        yield some


def test_the_bar_moves_on_a_terminal(orders: Path) -> None:
    code, shown = on_a_terminal([sys.executable, "-c", SLOW, *MERGE])
    assert code == 0, shown
    finished = [int(files) for files in LINE.findall(shown)]
    assert finished == sorted(finished)
    assert len(set(finished)) >= 3, shown
    assert "left" in shown and "MB/s" in shown


@pytest.mark.parametrize("option", ["-q", "--json"])
def test_there_is_no_bar_if_it_is_not_wanted(orders: Path, option: str) -> None:
    code, shown = on_a_terminal([sys.executable, "-c", SLOW, *MERGE, option])
    assert (code, shown) == (0, "")


def test_there_is_no_bar_in_a_pipe(orders: Path) -> None:
    env = {**os.environ, "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", SLOW, *MERGE], capture_output=True, text=True, timeout=300, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_waiting_for_the_lock_shows_its_owner(orders: Path) -> None:
    command = [sys.executable, "-m", "fsspeckit", *MERGE, "--lock-timeout", "2"]
    with writing(locate("orders")):
        code, shown = on_a_terminal(command, width=200)
    assert code == 1
    assert f"Waiting for the lock of process {os.getpid()} on " in shown
    assert " s ago)" in shown


def test_every_command_that_works_has_quiet(orders: Path) -> None:
    for command in ("merge", "plan", "delete", "write", "compact", "undo"):
        done = subprocess.run([sys.executable, "-m", "fsspeckit", command, "--help"], capture_output=True, text=True)
        assert "-q, --quiet" in done.stdout


def test_a_narrow_terminal_has_no_line_that_wraps(orders: Path) -> None:
    _, shown = on_a_terminal([sys.executable, "-c", SLOW, *MERGE], width=40)
    assert "Writing" in shown
    assert max(map(len, re.split(r"[\r\n]", shown))) <= 40


def test_a_bar_is_for_terminals_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "log").open("w+") as log:
        for bar in (progress_bar(), progress_bar(log)):
            bar(ProgressEvent("write", 1, 2))
            bar(ProgressEvent("done"))
            assert not isinstance(bar, TerminalBar)
        assert log.tell() == 0
    assert capsys.readouterr() == ("", "")


# -- Ctrl-C, a real signal, while a phase works

PATCHED = {
    "footers": "fsspeckit.core.merge.read_target",
    "source": "fsspeckit.core.local_engine.ArrowSource.spool",
    "match": "fsspeckit.core.match.key_index.IndexedKeys.match",
    "write": "fsspeckit.core.rewrite.files.rewrite_file",
    "sync": "fsspeckit.core.commit.disk.DiskSession.sync_staging",
    "commit": "fsspeckit.core.commit.disk.check_unchanged",
}
INTERRUPTED = """
import importlib, os, signal, sys, time
from fsspeckit.cli import main
import fsspeckit.core.merge, fsspeckit.datasets.pyarrow
signal.signal(signal.SIGINT, signal.default_int_handler)
path = sys.argv.pop(1).split(".")
for length in range(len(path), 0, -1):
    try:
        owner = importlib.import_module(".".join(path[:length]))
        break
    except ImportError:
        pass
for name in path[length:-1]:
    owner = getattr(owner, name)
original = getattr(owner, path[-1])
signals = int(sys.argv.pop(1))
def slow(*args, **kwargs):
    global signals
    while signals:
        signals -= 1
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
    return original(*args, **kwargs)
setattr(owner, path[-1], slow)
main()
"""


def interrupted(where: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command; a function of it gets a signal."""
    arguments = [sys.executable, "-c", INTERRUPTED, where, "1", *command]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("phase", PATCHED)
def test_ctrl_c_in_a_phase_changes_nothing(orders: Path, phase: str) -> None:
    before, names = fingerprint("orders"), sorted(os.listdir())
    done = interrupted(PATCHED[phase], *MERGE)
    assert (done.returncode, done.stderr) == (130, "Interrupted. Nothing was changed.\n")
    assert fingerprint("orders") == before
    assert sorted(os.listdir()) == names


def test_ctrl_c_with_json_is_a_document(orders: Path) -> None:
    done = interrupted(PATCHED["match"], *MERGE, "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["message"], error["exit_code"]) == ("Interrupted. Nothing was changed.", 130)


def test_ctrl_c_after_the_commit_point_says_so(orders: Path) -> None:
    done = interrupted("fsspeckit.core.commit.disk.undo_records.publish", *MERGE)
    assert (done.returncode, done.stderr) == (130, "Interrupted. The commit is complete.\n")
    assert {row["id"]: row["n"] for row in rows("orders")}[7] == 1.75


def test_ctrl_c_that_leaves_a_recorded_commit_names_recover(orders: Path) -> None:
    script = INTERRUPTED.replace("while signals:", "while True:")  # whatever finishes the commit is interrupted too
    where = "fsspeckit.core.commit.disk.ApplyJournal.apply"
    done = subprocess.run(
        [sys.executable, "-c", script, where, "9", *MERGE], capture_output=True, text=True, timeout=300
    )
    said = "Interrupted. The commit is recorded: run `fsspeckit recover orders` to finish it; the next write does so"
    assert done.returncode == 130 and done.stderr.startswith(said), done.stderr
    recovered = subprocess.run([sys.executable, "-m", "fsspeckit", "recover", "orders"], timeout=300)
    assert recovered.returncode == 0
    assert {row["id"]: row["n"] for row in rows("orders")}[7] == 1.75


def test_ctrl_c_after_the_first_commit_of_a_compaction(orders: Path) -> None:
    """The second commit is interrupted. What the first one did stays, and no row is lost."""
    small_commits = "import fsspeckit.core.compact as c\nc._COMMIT_BYTES, c._FILES_PER_TASK = 1, 0\n"
    script = small_commits + INTERRUPTED.replace("signals = int(sys.argv.pop(1))", "signals = -int(sys.argv.pop(1))")
    script = script.replace("while signals:", "signals += 1\n    if signals == 1:").replace("signals -= 1", "pass")
    before = rows("orders")
    done = subprocess.run(
        [sys.executable, "-c", script, PATCHED["sync"], "1", "compact", "orders", "--target-size", "2MB"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = "Interrupted. No row was changed. Commits that stay: 1. Compact again to go on.\n"
    assert (done.returncode, done.stderr) == (130, said)
    assert sorted(map(str, rows("orders"))) == sorted(map(str, before))


def test_threads_stop_soon(orders: Path) -> None:
    """A file of ten row groups, half a second each, is not finished first."""
    script = SLOW.replace("0.03", "0.5").replace("main()", "")
    script += """
import os, signal, threading
from fsspeckit.core.rewrite import files
signal.signal(signal.SIGINT, signal.default_int_handler)
rewrite, began = files.rewrite_file, []
def begin(*args):
    began.append(time.monotonic())
    if len(began) == 1:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    return rewrite(*args)
files.rewrite_file = begin
try:
    main()
finally:
    print(time.monotonic() - began[0])
"""
    done = subprocess.run([sys.executable, "-c", script, *MERGE], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (130, "Interrupted. Nothing was changed.\n")
    assert float(done.stdout) < 4, "the file takes at least five seconds"
