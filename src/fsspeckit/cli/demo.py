"""`fsspeckit demo`: build a small lake, merge into it with every installed engine, and check what did not change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fsspeckit.api import dataset_io
from fsspeckit.cli import sample
from fsspeckit.cli.options import open_engine
from fsspeckit.cli.output import console, emit
from fsspeckit.core.errors import ArgumentError, DatasetMergeError, PartitionMoveError
from fsspeckit.core.model import MergeResult
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.report.inspection import inspect
from fsspeckit.report.terminal import InspectionView, PlanView, ResultView
from fsspeckit.report.text import count

# The order in which the demo shows them: the pipeline's engine first.
ENGINES = ("spark", "duckdb", "pyarrow")
KEYS = ["order_id"]


def run(engines: Sequence[str] = (), keep: str | None = None) -> None:
    """Run the demo. With `engines`, run only those; each must be installed."""
    said = console()
    ready, missing = _engines(engines or ENGINES)
    if engines and missing:
        raise ArgumentError("; ".join(missing.values()))
    with _folder(keep) as folder:
        _Demo(said, folder, ready, missing).tell()


def _engines(names: Sequence[str]) -> tuple[dict[str, DatasetIO[Any]], dict[str, str]]:
    """The engines that can run here, and why the others cannot."""
    ready, missing = {}, {}
    for name in sorted(names, key=ENGINES.index):
        try:
            ready[name] = open_engine(name)
        except ArgumentError as error:
            missing[name] = str(error)
    return ready, missing


@contextlib.contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="fsspeckit-demo-") as made:
            yield Path(made)
        return
    folder = Path(keep)
    if folder.exists() and any(folder.iterdir()):
        raise ArgumentError(f"{keep} is not empty; name a new folder for the demo.")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


class _Demo:
    def __init__(
        self, said: Console, folder: Path, engines: dict[str, DatasetIO[Any]], missing: dict[str, str]
    ) -> None:
        self._said, self._folder, self._engines, self._missing = said, folder, engines, missing
        self._step = 0
        self._first = next(iter(engines))
        self._source = str(folder / "changes.parquet")

    def tell(self) -> None:
        pq.write_table(sample.changes(), self._source)
        lake = self._lake("lake")
        self._heading("A lake of orders: plain Parquet files, one folder per month")
        emit(InspectionView(inspect(lake, KEYS)), self._said)
        self._plan(lake)
        before = _fingerprints(Path(lake))
        result = self._merge(self._first, lake)
        self._prove(lake, before, result)
        self._agree(lake, result)
        self._refuse(lake)
        self._said.line()
        self._say("Done. `fsspeckit --help` lists the commands; the README has a walk-through.")

    def _lake(self, name: str) -> str:
        sample.build_lake(self._folder / name)
        return str(self._folder / name)

    def _plan(self, lake: str) -> None:
        self._heading("The plan: which files contain these keys? Nothing is changed yet")
        self._say("A day's changes: 60 orders from October and November were returned, 16 orders are new.")
        self._say("$ fsspeckit plan changes.parquet lake --key order_id --strategy upsert", "bold green")
        emit(PlanView(self._engines[self._first].plan(self._source, lake, "upsert", KEYS), lake), self._said)

    def _merge(self, engine: str, lake: str) -> MergeResult:
        self._heading(f"The merge, with {_NAMES[engine]}")
        self._say(f"$ fsspeckit merge changes.parquet lake --key order_id --engine {engine}", "bold green")
        result, seconds = self._timed(engine, lake)
        emit(ResultView(result, lake, seconds), self._said)
        return result

    def _timed(self, engine: str, lake: str) -> tuple[MergeResult, float]:
        started = time.perf_counter()
        result = self._engines[engine].merge(self._source, lake, "upsert", KEYS)
        return result, time.perf_counter() - started

    def _prove(self, lake: str, before: dict[str, tuple[str, int]], result: MergeResult) -> None:
        self._heading("Untouched files are untouched")
        after = _fingerprints(Path(lake))
        kept = {os.path.relpath(path, lake) for path in result.preserved_files}
        _insist(all(before[name] == after[name] for name in kept), "a preserved file changed")
        self._say(f"SHA-256 and modification time of {count(len(kept))} of {count(len(before), 'file')}: as before.")
        left = sorted(name for name in after if not name.endswith(".parquet"))
        beside = sorted(os.listdir(self._folder))
        _insist(not left and beside == ["changes.parquet", "lake"], f"something was left behind: {left or beside}")
        self._say("The directory contains only Parquet files: no log, no manifest, no lock file.")

    def _agree(self, lake: str, result: MergeResult) -> None:
        self._heading("Every engine gives the same result")
        for name, reason in self._missing.items():
            self._say(f"{_NAMES[name]} is skipped. {reason}", "yellow")
        expected = _expected()
        for name in self._engines:
            path = lake if name == self._first else self._lake(f"lake-{name}")
            other, seconds = (result, None) if name == self._first else self._timed(name, path)
            _insist(_rows(path) == expected, f"{name} gave other rows")
            _insist(_numbers(other) == _numbers(result), f"{name} gave other counts")
            took = f" in {seconds:.2f} s" if seconds is not None else ""
            self._say(
                f"{_NAMES[name]:<8} {count(other.updated)} updated, {count(other.inserted)} inserted{took}: {_SAME}"
            )

    def _refuse(self, lake: str) -> None:
        self._heading("A merge that would corrupt the lake is refused")
        self._say("An order from March arrives with the month April. Writing it there would store the order twice.")
        before = _fingerprints(Path(lake))
        try:
            self._engines[self._first].merge(sample.moved(), lake, "upsert", KEYS)
        except PartitionMoveError as error:
            self._say(f"Error: {error}", "red")
        else:
            _insist(False, "a moved key was accepted")
        _insist(_fingerprints(Path(lake)) == before, "a refused merge changed the lake")
        self._say("Not a byte of the lake has changed.")

    def _heading(self, text: str) -> None:
        self._step += 1
        self._said.line()
        self._said.print(Text(f"━━ {self._step}. {text}", style="bold", overflow="fold"))

    def _say(self, text: str, style: str = "") -> None:
        emit(Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, 2), expand=False), self._said)


_NAMES = {"spark": "Spark", "duckdb": "DuckDB", "pyarrow": "PyArrow"}
_SAME = "all rows as expected"


def _numbers(result: MergeResult) -> tuple[int, ...]:
    return result.inserted, result.updated, result.deleted, result.target_count_before, result.target_count_after


def _rows(path: str) -> list[dict[str, Any]]:
    columns = [*sample.SCHEMA.names, "month"]
    return _listed(dataset_io("pyarrow").read(path).select(columns))


def _expected() -> list[dict[str, Any]]:
    """The same upsert in plain Python: the rows of the lake, overwritten by those of the source."""
    with tempfile.TemporaryDirectory(prefix="fsspeckit-demo-") as folder:
        sample.build_lake(Path(folder))
        rows = {row["order_id"]: row for row in _rows(folder)}
    rows.update((row["order_id"], row) for row in _listed(sample.changes()))
    return [rows[key] for key in sorted(rows)]


def _listed(table: Any) -> list[dict[str, Any]]:
    month = table.schema.get_field_index("month")
    table = table.set_column(month, "month", table.column("month").cast("string"))
    rows: list[dict[str, Any]] = table.sort_by("order_id").to_pylist()
    return rows


def _fingerprints(root: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(root)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _insist(true: bool, otherwise: str) -> None:
    """Check every claim that the demo makes."""
    if not true:
        raise DatasetMergeError(f"The demo failed: {otherwise}. This is a bug in fsspeckit.")
