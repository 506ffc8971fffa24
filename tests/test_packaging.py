"""What is built and what runs around it: the version in one place, the shipped zip, the scripts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import fsspeckit
from fsspeckit.ship import make_zip

ROOT = Path(__file__).parent.parent


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment or None)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_stands_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/fsspeckit/__init__.py"
    spelled = [p.name for p in (ROOT / "src").rglob("*.py") if f'"{fsspeckit.__version__}"' in p.read_text()]
    assert spelled == ["__init__.py"]


def test_the_zip_for_executors_knows_its_version(tmp_path: Path) -> None:
    """Alone: no package of that name is installed beside it."""
    make_zip(tmp_path / "fsspeckit.zip")
    code = "import fsspeckit; print(fsspeckit.__version__, fsspeckit.__file__)"
    printed = run(sys.executable, "-S", "-c", code, PYTHONPATH=str(tmp_path / "fsspeckit.zip"))
    assert printed.split() == [fsspeckit.__version__, str(tmp_path / "fsspeckit.zip/fsspeckit/__init__.py")]


def test_the_lowest_versions_are_those_promised() -> None:
    lowest = run(sys.executable, "scripts/lowest.py").split()
    assert {"pyarrow==25.*", "numpy==1.26.*", "duckdb==1.1.3", "pyspark[connect]==4.0.*"} <= set(lowest)


def test_the_trace_of_a_merge() -> None:
    printed = run(sys.executable, "scripts/trace_merge.py", "--engines=pyarrow", "--list")
    counts = re.search(r"^pyarrow +(\d+) +(\d+) +(\d+) +(\d+)$", printed, re.MULTILINE)
    assert counts is not None, printed
    files, functions, switches, row_path = map(int, counts.groups())
    assert 10 < row_path < files < switches
    assert files < functions < 1000
    assert re.search(r"fsspeckit/core/merge\.py  \d+", printed)
    size = re.search(r"^core/values +(\d+) +(\d+) +(\d+)$", printed, re.MULTILINE)
    assert size is not None, printed
    assert 3 < int(size[1]) < int(size[3]) < int(size[2])


def test_what_the_quick_tests_name_is_there() -> None:
    named = [word.removeprefix("--ignore=") for word in run("scripts/quick-tests").split()]
    assert [path for path in named if not (ROOT / path).exists()] == []
