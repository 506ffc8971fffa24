"""The dbt project in `examples/dbt` runs, and merges. `make test-dbt` runs this in an environment that has dbt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from support import rows

pytest.importorskip("dbt.adapters.duckdb", reason="dbt is not installed: make test-dbt makes an environment for it")

EXAMPLE = Path(__file__).parent.parent / "examples/dbt"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "project", ignore=shutil.ignore_patterns("target", "logs", "lake"))
    (tmp_path / "project/landing").mkdir()
    return tmp_path / "project"


def land(project: Path, *changes: tuple[str, int, str, str | None, int]) -> None:
    """Put a file of changes where the model finds it."""
    columns: list[Any] = [list(column) for column in zip(*changes)]
    names = ["op", "id", "day", "state", "ts"]
    types = [pa.string(), pa.int64(), pa.string(), pa.string(), pa.int64()]
    table = pa.table({name: pa.array(column, dtype) for name, column, dtype in zip(names, columns, types)})
    pq.write_table(table, project / "landing" / f"{len(list((project / 'landing').iterdir()))}.parquet")


def build(project: Path, *arguments: str, succeeds: bool = True) -> str:
    command = [str(Path(sys.executable).parent / "dbt"), "--no-use-colors", "build", *arguments]
    environment = {**os.environ, "DBT_PROFILES_DIR": ".", "DO_NOT_TRACK": "1"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == succeeds, done.stdout + done.stderr
    return done.stdout


def query(project: Path, text: str) -> list[tuple[Any, ...]]:
    """In a process of its own, in the folder of the project, since views have relative paths."""
    code = "import duckdb, json, sys; print(json.dumps(duckdb.connect('orders.duckdb').sql(sys.argv[1]).fetchall()))"
    done = subprocess.run([sys.executable, "-c", code, text], cwd=project, capture_output=True, text=True, check=True)
    return [tuple(row) for row in json.loads(done.stdout)]


def test_runs_merge_the_changes(project: Path) -> None:
    land(
        project, ("I", 1, "2026-01-01", "new", 10), ("I", 2, "2026-01-02", "new", 10), ("I", 3, "2026-01-02", "new", 10)
    )
    assert "orders: 3 inserted, 0 updated, 0 deleted in lake/orders" in build(project)
    before = {path: path.stat().st_mtime_ns for path in (project / "lake/orders").rglob("*.parquet")}
    land(
        project,
        ("U", 2, "2026-01-02", "late", 5),
        ("U", 2, "2026-01-02", "sent", 20),
        ("U", 2, "2026-01-02", "paid", 30),
    )
    land(project, ("D", 3, "2026-01-02", None, 20))
    said = build(project)
    assert "orders: 0 inserted, 2 updated, 1 deleted in lake/orders" in said  # row 1 again: its sequence is the newest
    assert "PASS=4" in said
    found = sorted((row["id"], row["state"], row["ts"]) for row in rows(project / "lake/orders"))
    assert found == [(1, "new", 10), (2, "paid", 30)]
    untouched = [path for path, time in before.items() if path.exists() and path.stat().st_mtime_ns == time]
    assert [path.parent.name for path in untouched] == ["day=2026-01-01"]
    assert query(project, "SELECT id, state FROM orders ORDER BY id") == [(1, "new"), (2, "paid")]
    assert query(project, "SELECT day::VARCHAR, orders, paid FROM orders_per_day ORDER BY day") == [
        ("2026-01-01", 1, 0),
        ("2026-01-02", 1, 1),
    ]


def test_a_run_without_rows_changes_nothing(project: Path) -> None:
    """dbt writes a row of nulls for it."""
    land(project, ("I", 1, "2026-01-01", "new", 10))
    build(project, "--select", "orders")
    model = project / "models/orders.sql"
    model.write_text(model.read_text().replace("where ts >=", "where ts >"))
    assert "orders: 0 inserted, 0 updated, 0 deleted" in build(project, "--select", "orders")
    assert [row["id"] for row in rows(project / "lake/orders")] == [1]


def test_a_refused_merge_fails_the_model_and_loses_nothing(project: Path) -> None:
    land(project, ("I", 1, "2026-01-01", "new", 10))
    build(project, "--select", "orders")
    land(project, ("U", 1, "2026-01-01", "paid", 20), ("U", 1, "2026-01-01", "sent", 20))
    said = build(project, "--select", "orders", succeeds=False)
    assert "Name columns in sequence_by whose greatest value" in " ".join(said.split())
    assert query(project, "SELECT state FROM orders") == [("new",)]  # the data set, not the refused rows
    (project / "landing/1.parquet").unlink()
    land(project, ("U", 1, "2026-01-01", "paid", 20))
    build(project, "--select", "orders")
    assert query(project, "SELECT state FROM orders") == [("paid",)]


def test_a_model_without_a_path_is_refused(project: Path) -> None:
    land(project, ("I", 1, "2026-01-01", "new", 10))
    model = project / "models/orders.sql"
    model.write_text(model.read_text().replace('"path": "lake/orders",', ""))
    assert 'its config needs fsspeckit={"path": "lake/orders"}' in build(project, "--select", "orders", succeeds=False)
    assert not (project / "lake").exists()
    assert fsspeckit.__version__
