"""`fsspeckit doctor`: what is installed, which engines work, and how to fix the rest."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Literal

import click

from fsspeckit.cli.output import emit_json, run_facts

_PACKAGES = ("pyarrow", "numpy", "fsspec", "duckdb", "pyspark", "pandas", "polars", "obstore", "botocore", "sqlglot")
_ROWS = [{"id": 1, "x": "a"}, {"id": 2, "x": "b"}]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. A `problem` has a `fix`; `absent` is something optional that is not installed."""

    name: str
    state: Literal["ok", "absent", "problem"]
    found: str
    fix: str = ""


def run(engines: Sequence[str], as_json: bool) -> None:
    """Print every check as soon as it is made. Exit with 1 if there is a problem."""
    checks = []
    for check in _checks(engines, only_these=len(engines) < 3):
        checks.append(check)
        if not as_json:
            _print(check)
    problems = [check for check in checks if check.state == "problem"]
    if as_json:
        emit_json({"checks": [asdict(check) for check in checks], "problems": len(problems), **run_facts()})
    else:
        click.echo(f"\n{len(problems)} problem(s) found." if problems else "\nEverything works.")
    if problems:
        click.get_current_context().exit(1)


def _print(check: Check) -> None:
    colour = {"ok": "green", "problem": "red"}.get(check.state, "yellow")
    click.echo(f"{click.style(f'{check.state:<8}', fg=colour)} {check.name:<16} {check.found}")
    if check.fix:
        click.echo(f"{'':<25} {check.fix}")


def _checks(engines: Sequence[str], only_these: bool) -> Iterator[Check]:
    yield from _installation()
    yield Check("Python", "ok", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    yield _packages()
    yield _memory()
    yield from _folders()
    for engine in engines:
        yield from _engine(engine, wanted=only_these)


def _installation() -> Iterator[Check]:
    from fsspeckit import __version__, installation

    yield Check("fsspeckit", "ok", f"{__version__}, {installation.folder()}")
    for problem in installation.problems():
        found, _, fix = problem.partition(". ")
        yield Check("fsspeckit", "problem", f"{found}.", fix)


def _packages() -> Check:
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return Check("packages", "ok", ", ".join(versions))


def _memory() -> Check:
    """The memory of the machine, or of the container if it has a limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            limit = file.read().strip()
        total = min(total, int(limit)) if limit.isdigit() else total
    except OSError:
        pass
    shown = f"{total / 1e9:.1f} GB, {os.cpu_count()} processors"
    if total < 1e9:
        return Check("memory", "problem", shown, "Merges may need 1 GB. Use the duckdb engine with small row groups.")
    return Check("memory", "ok", shown)


def _folders() -> Iterator[Check]:
    from fsspeckit.core.storage import cache

    for name, folder, variable in (
        ("temporary files", tempfile.gettempdir(), "TMPDIR"),
        ("cache", str(cache.folder() or ""), cache.VARIABLE),
    ):
        if not folder:
            yield Check(name, "absent", "switched off")
            continue
        existing = folder
        while not os.path.isdir(existing):
            existing = os.path.dirname(existing) or "/"
        free = shutil.disk_usage(existing).free
        shown = f"{folder}, {free / 1e9:.1f} GB free"
        if not os.access(existing, os.W_OK):
            yield Check(name, "problem", f"{folder} cannot be written to.", f"Set {variable} to another folder.")
        elif free < 1e8:
            yield Check(name, "problem", shown, f"Free some space, or set {variable} to another folder.")
        else:
            yield Check(name, "ok", shown)


def _engine(engine: str, wanted: bool) -> Iterator[Check]:
    """A merge with two rows, and under Spark the Python of its executors."""
    from fsspeckit.api import dataset_io

    try:
        io = dataset_io(engine)
    except ValueError as error:
        found, _, fix = str(error).partition(" Run: ")
        yield Check(engine, "problem" if wanted else "absent", found, f"Run: {fix}" if fix else "")
        return
    if engine == "spark":
        java = _java()
        yield java
        if java.state == "problem":
            return
    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="fsspeckit-doctor-") as folder:
            io.merge(_ROWS, f"{folder}/lake", "upsert", ["id"])
            result = io.merge([{"id": 2, "x": "B"}, {"id": 3, "x": "c"}], f"{folder}/lake", "upsert", ["id"])
        if (result.updated, result.inserted) != (1, 1):
            raise RuntimeError(
                f"the test merge updated {result.updated} and inserted {result.inserted} rows, not 1 and 1"
            )
    except Exception as error:  # whatever it is, it is the finding
        reason = " ".join(str(error).split())[:300]
        yield Check(engine, "problem", f"{type(error).__name__}: {reason}", "Fix this, or choose another --engine.")
        return
    yield Check(engine, "ok", f"a test merge took {time.perf_counter() - started:.1f} s")
    if engine == "spark":
        yield _executors(io.spark)  # type: ignore[attr-defined]


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    fix = "Install Java 17 or newer, and set JAVA_HOME to its folder."
    if program is None or not os.access(program, os.X_OK):
        return Check("Java", "problem", "not found" if program is None else f"{program} is not a program", fix)
    output = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60).stderr
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', output)
    if version is None:
        return Check("Java", "problem", f"{program} does not print its version", fix)
    found = f"{version[0].partition(' ')[2].strip(chr(34))}, {program}"
    return Check("Java", "ok", found) if int(version[1]) >= 17 else Check("Java", "problem", found, fix)


def _executors(spark: Any) -> Check:
    """The Python of Spark's executors must have the same minor version, and the packages."""

    def versions(batches: Any) -> Any:  # runs on an executor, which may lack everything
        import importlib
        import platform

        import pyarrow as pa

        found = []
        for name in ("numpy", "pandas", "fsspeckit"):
            try:
                found.append(f"{name} {importlib.import_module(name).__version__}")
            except ImportError:
                found.append(f"no {name}")
        for _ in batches:
            yield pa.record_batch(
                {"found": [", ".join([platform.python_version(), f"pyarrow {pa.__version__}", *found])]}
            )

    try:
        rows = spark.range(1).mapInArrow(versions, "found string").collect()
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if "Error" in line), type(error).__name__)
        return Check("Spark executors", "problem", reason.strip()[:300], "Install pyarrow, numpy and pandas there.")
    found = str(rows[0]["found"])
    if "no " in found:
        return Check("Spark executors", "problem", found, "Install what is missing; fsspeckit: `fsspeckit ship`.")
    if found.split(".")[:2] != platform.python_version().split(".")[:2]:
        return Check("Spark executors", "problem", found, "Set PYSPARK_PYTHON to the Python of the driver.")
    return Check("Spark executors", "ok", f"Python {found}")
