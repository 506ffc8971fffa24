"""What is built and what runs around it: the version in one place, the shipped zip, the scripts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fsspeckit
from fsspeckit import installation
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
    names = zipfile.ZipFile(tmp_path / "fsspeckit.zip").namelist()
    assert {f"fsspeckit/report/assets/page.{kind}" for kind in ("html", "css", "js")} <= set(names)


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


def test_the_package_is_not_uploaded_and_never_installed_by_its_name() -> None:
    """PyPI has another project of this name."""
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    assert "Private :: Do Not Upload" in project["classifiers"]
    assert project["description"] == installation.SUMMARY
    extras = project["optional-dependencies"]
    assert not [need for needs in extras.values() for need in needs if need.startswith("fsspeckit")]
    assert set(extras["all"]) == {need for name in ("duckdb", "spark", "s3", "sql") for need in extras[name]}
    pages = [*(ROOT / "src").rglob("*.py"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/*")]
    by_name = re.compile(r"(pip|uv|pipx) (tool )?install (-\S+ )*['\"]?fsspeckit(?!\[?[\w,]*\]? @)")
    assert [str(page) for page in pages if page.is_file() and by_name.search(page.read_text())] == []


def test_a_mixed_installation_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installation.problems() == []
    (tmp_path / "fsspeckit/core").mkdir(parents=True)
    (tmp_path / "fsspeckit/storage_options").mkdir()
    (tmp_path / "fsspeckit/core/filesystem.py").touch()
    (found,) = installation.problems(tmp_path / "fsspeckit")
    assert "storage_options, core/filesystem" in found
    assert "install again from a checkout" in found
    (tmp_path / "fsspeckit-0.24.0.dist-info").mkdir()
    (tmp_path / "fsspeckit-0.24.0.dist-info/METADATA").write_text("Name: fsspeckit\nVersion: 0.24.0\nSummary: Other\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = installation.problems()
    assert "0.24.0" in found
