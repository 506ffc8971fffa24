"""`fsspeckit demo`: build a small lake, merge into it with every installed engine, and check what did not change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.padding import Padding
from rich.text import Text

from fsspeckit.api import dataset_io
from fsspeckit.cli.options import open_engine
from fsspeckit.cli.output import console, emit
from fsspeckit.core.errors import ArgumentError, DatasetMergeError, PartitionMoveError
from fsspeckit.core.reports import MergeResult
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.report.content import Record
from fsspeckit.report.html import page
from fsspeckit.report.inspection import inspect
from fsspeckit.report.summary import count
from fsspeckit.report.terminal import InspectionView, PlanView, ResultView

# In the order of the demo.
ENGINES = ("spark", "duckdb", "pyarrow")
KEYS = ["order_id"]
_NAMES = {"spark": "Spark", "duckdb": "DuckDB", "pyarrow": "PyArrow"}
_MONTHS = tuple(f"2026-{number:02d}" for number in range(1, 13))
_FILES_PER_MONTH = 3
_ROWS_PER_FILE = 400
_STATES = ("paid", "packed", "shipped", "delivered")
_START = datetime(2026, 1, 1, tzinfo=UTC)

_SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        pa.field("customer", pa.string()),
        pa.field("status", pa.dictionary(pa.int32(), pa.string())),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("ordered_at", pa.timestamp("us", "UTC")),
    ]
)


def run(engines: Sequence[str] = (), keep: str | None = None) -> None:
    """Run the demo. With `engines`, run only those; each must be installed."""
    ready, missing = _engines(engines or ENGINES)
    if engines and missing:
        raise ArgumentError("; ".join(missing.values()))
    with _folder(keep) as folder:
        pages = _Demo(folder, ready, missing).run()
        if keep is not None:
            _keep(folder, pages)


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


def _keep(folder: Path, pages: dict[str, str]) -> None:
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    text = f"Kept in {folder}: the lake, and the plan and the merge as web pages, {' and '.join(pages)}."
    emit(Padding(Text(text, overflow="fold"), (0, 0, 0, 2), expand=False))


class _Demo:
    """The steps of the demo, and the web pages that the commands would write with `--html`."""

    def __init__(self, folder: Path, engines: dict[str, DatasetIO[Any]], missing: dict[str, str]) -> None:
        self._console, self._folder, self._engines, self._missing = console(), folder, engines, missing
        self._step, self._pages = 0, dict[str, str]()
        self._first = next(iter(engines))
        self._source = str(folder / "changes.parquet")

    def run(self) -> dict[str, str]:
        pq.write_table(changes(), self._source)
        lake = self._lake("lake")
        self._heading("A lake of orders: plain Parquet files, one folder per month")
        emit(InspectionView(inspect(lake, KEYS)), self._console)
        self._plan(lake)
        before = _fingerprints(Path(lake))
        result = self._merge(self._first, lake)
        self._check_unchanged_files(lake, before, result)
        self._compare_engines(lake, result)
        self._show_refusal(lake)
        self._console.line()
        self._say("Done. `fsspeckit --help` lists the commands; the README has a walk-through.")
        return self._pages

    def _lake(self, name: str) -> str:
        build_lake(self._folder / name)
        return str(self._folder / name)

    def _plan(self, lake: str) -> None:
        self._heading("The plan: which files contain these keys? Nothing is changed yet")
        self._say("A day's changes: 60 orders from October and November were returned, 16 orders are new.")
        command = "fsspeckit plan changes.parquet lake --key order_id --strategy upsert"
        self._say(f"$ {command}", "bold green")
        plan = self._engines[self._first].plan(self._source, lake, "upsert", KEYS)
        emit(PlanView(plan, lake), self._console)
        self._pages["plan.html"] = page(plan, lake, Record(command, self._first))

    def _merge(self, engine: str, lake: str) -> MergeResult:
        self._heading(f"The merge, with {_NAMES[engine]}")
        command = f"fsspeckit merge changes.parquet lake --key order_id --engine {engine}"
        self._say(f"$ {command}", "bold green")
        result, seconds = self._timed(engine, lake)
        emit(ResultView(result, lake, seconds), self._console)
        self._pages["merge.html"] = page(result, lake, Record(command))
        return result

    def _timed(self, engine: str, lake: str) -> tuple[MergeResult, float]:
        started = time.perf_counter()
        result = self._engines[engine].merge(self._source, lake, "upsert", KEYS)
        return result, time.perf_counter() - started

    def _check_unchanged_files(self, lake: str, before: dict[str, tuple[str, int]], result: MergeResult) -> None:
        self._heading("Untouched files are untouched")
        after = _fingerprints(Path(lake))
        kept = {os.path.relpath(path, lake) for path in result.preserved_files}
        _check(all(before[name] == after[name] for name in kept), "a preserved file changed")
        self._say(f"SHA-256 and modification time of {count(len(kept))} of {count(len(before), 'file')}: as before.")
        left = sorted(name for name in after if not name.endswith(".parquet"))
        beside = sorted(os.listdir(self._folder))
        _check(not left and beside == ["changes.parquet", "lake"], f"something was left behind: {left or beside}")
        self._say("The directory contains only Parquet files: no log, no manifest, no lock file.")

    def _compare_engines(self, lake: str, result: MergeResult) -> None:
        self._heading("Every engine gives the same result")
        for name, reason in self._missing.items():
            self._say(f"{_NAMES[name]} is skipped. {reason}", "yellow")
        expected = _expected()
        for name in self._engines:
            path = lake if name == self._first else self._lake(f"lake-{name}")
            other, seconds = (result, None) if name == self._first else self._timed(name, path)
            _check(_rows(path) == expected, f"{name} gave other rows")
            _check(_counts(other) == _counts(result), f"{name} gave other counts")
            took = f" in {seconds:.2f} s" if seconds is not None else ""
            numbers = f"{count(other.updated)} updated, {count(other.inserted)} inserted{took}"
            self._say(f"{_NAMES[name]:<8} {numbers}: all rows as expected")

    def _show_refusal(self, lake: str) -> None:
        self._heading("A merge that would corrupt the lake is refused")
        self._say("An order from March arrives with the month April. Writing it there would store the order twice.")
        before = _fingerprints(Path(lake))
        try:
            self._engines[self._first].merge(moved_order(), lake, "upsert", KEYS)
        except PartitionMoveError as error:
            self._say(f"Error: {error}", "red")
        else:
            _check(False, "a moved key was accepted")
        _check(_fingerprints(Path(lake)) == before, "a refused merge changed the lake")
        self._say("Not a byte of the lake has changed.")

    def _heading(self, text: str) -> None:
        self._step += 1
        self._console.line()
        self._console.print(Text(f"━━ {self._step}. {text}", style="bold", overflow="fold"))

    def _say(self, text: str, style: str = "") -> None:
        emit(Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, 2), expand=False), self._console)


def _counts(result: MergeResult) -> tuple[int, ...]:
    return result.inserted, result.updated, result.deleted, result.target_count_before, result.target_count_after


def _rows(path: str) -> list[dict[str, Any]]:
    columns = [*_SCHEMA.names, "month"]
    return _sorted_rows(dataset_io("pyarrow").read(path).select(columns))


def _expected() -> list[dict[str, Any]]:
    """The same upsert in plain Python: the rows of the lake, overwritten by those of the source."""
    with tempfile.TemporaryDirectory(prefix="fsspeckit-demo-") as folder:
        build_lake(Path(folder))
        rows = {row["order_id"]: row for row in _rows(folder)}
    rows.update((row["order_id"], row) for row in _sorted_rows(changes()))
    return [rows[key] for key in sorted(rows)]


def _sorted_rows(table: Any) -> list[dict[str, Any]]:
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


def _check(condition: bool, failure: str) -> None:
    """Every statement of the demo is checked."""
    if not condition:
        raise DatasetMergeError(f"The demo failed: {failure}. This is a bug in fsspeckit.")


# The sample data: a year of orders, and the changes of one day


def _orders(ids: Iterable[int], status: str | None = None) -> pa.Table:
    """Orders with columns computed from their ids."""
    numbers = list(ids)
    return pa.table(
        {
            "order_id": numbers,
            "customer": [f"customer {i * 7919 % 997}" for i in numbers],
            "status": pa.array([status or _STATES[i // 10 % 4] for i in numbers]).dictionary_encode(),
            "amount": [Decimal(i * 31 % 99_999) / 100 for i in numbers],
            "ordered_at": [_START + timedelta(minutes=i) for i in numbers],
        },
        schema=_SCHEMA,
    )


def build_lake(root: Path) -> None:
    """Three files per month, sorted by order id, and one with late orders of the whole year, which cannot be pruned."""
    for number, month in enumerate(_MONTHS):
        folder = root / f"month={month}"
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"orders-{part}.parquet": _file_ids(number, part) for part in range(_FILES_PER_MONTH)}
        if month == _MONTHS[-1]:
            files["late.parquet"] = range(5, _file_ids(number + 1, 0)[0], 1000)
        for name, ids in files.items():
            pq.write_table(_orders(ids), folder / name, compression="zstd", row_group_size=100)


def changes() -> pa.Table:
    """Forty orders of October and twenty of November are returned; one of November and fifteen of January are new."""
    return pa.concat_tables(
        [
            _in_month(_orders(_file_ids(9, 1)[100:140], "returned"), _MONTHS[9]),
            _in_month(_orders(_file_ids(10, 0)[-20:], "returned"), _MONTHS[10]),
            _in_month(_orders([_file_ids(10, 2)[200] + 3]), _MONTHS[10]),
            _in_month(_orders(range(_file_ids(12, 0)[0], _file_ids(12, 0)[15], 10)), "2027-01"),
        ]
    )


def moved_order() -> pa.Table:
    """An order of March with the month April."""
    return _in_month(_orders(_file_ids(2, 0)[:1], "returned"), _MONTHS[3])


def _file_ids(month: int, part: int) -> Sequence[int]:
    """The order ids in one file of the lake."""
    first = (month * _FILES_PER_MONTH + part) * 10 * _ROWS_PER_FILE
    return range(first, first + 10 * _ROWS_PER_FILE, 10)


def _in_month(table: pa.Table, month: str) -> pa.Table:
    return table.append_column("month", pa.array([month] * table.num_rows))
