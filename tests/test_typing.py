"""What a user's type checker says of calls: right ones pass, slips are errors at the place where they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

RIGHT = """
import fsspeckit
from fsspeckit import DuckDBDatasetIO, MergeStrategy, PyArrowDatasetIO, SparkDatasetIO

def right(data: object, day: str | None) -> None:
    fsspeckit.merge(data, "lake", "upsert", ["id"])
    fsspeckit.merge(data, "lake", key_columns="id", partition_by=["day"], compression="zstd", lock_timeout=5)
    fsspeckit.merge(data, "lake", MergeStrategy.INSERT, ("id", "day"), engine="duckdb", use_merge=False)
    fsspeckit.merge(data, table="db.orders", key_columns=["id"], replace="new_file", partition_timezone=day)
    fsspeckit.plan(data, "lake", "update", ["id"], partition_timezone="UTC").files[0].action
    fsspeckit.write_dataset(data, "lake", "overwrite_partitions", partitions=[{"day": day}], max_removed_rows=5).rows
    fsspeckit.plan_write(data, "lake", mode="overwrite", partition_by="day").removed_files[0].upper()
    fsspeckit.inspect("lake", ["id"]).rows
    fsspeckit.read("lake", ["id"], engine="spark").show()
    PyArrowDatasetIO().merge(data, "lake", "insert", ["id"], max_rows_per_file=10)
    DuckDBDatasetIO().merge(path="lake", key_columns=["id"], source_sql="SELECT 1 AS id")
    SparkDatasetIO().merge(data, table="db.orders", key_columns=["id"], row_group_size=10)
    PyArrowDatasetIO().write_parquet_dataset(data, "lake", "deduplicate", "id", dedup_order_by="version")
"""

WRONG = """
import fsspeckit
from fsspeckit import DuckDBDatasetIO, PyArrowDatasetIO, SparkDatasetIO

def wrong(data: object) -> None:
    fsspeckit.merge(data, "lake", "upser", ["id"])
    fsspeckit.merge(data, "lake", "upsert", 5)
    fsspeckit.merge(data, "lake", "upsert", ["id"], compresion="zstd")
    fsspeckit.merge(data, "lake", ["id"])
    fsspeckit.merge(data, "lake", "full_merge", ["id"])
    fsspeckit.merge(data, "lake", "upsert", ["id"], engine="polars")
    fsspeckit.merge(data, "lake", "upsert", ["id"], replace="in place")
    fsspeckit.merge(data, "lake", "upsert", ["id"], max_rows_per_file="10")
    fsspeckit.plan(data, "lake", "upser", ["id"])
    fsspeckit.plan(data, "lake", "upsert", ["id"], compression="zstd")
    fsspeckit.merge(data, "lake", key_columns=["id"]).updatd
    PyArrowDatasetIO().merge(data, "lake", "upser", ["id"])
    DuckDBDatasetIO().merge(data, "lake", "upsert", 5)
    SparkDatasetIO().merge(data, "lake", "upsert", ["id"], compresion="zstd")
    PyArrowDatasetIO().merge(data, table="db.orders", key_columns=["id"])
    DuckDBDatasetIO().plan(data, "lake", "upser", ["id"])
    SparkDatasetIO().plan(data, "lake", "upsert", 5)
    PyArrowDatasetIO().write_dataset(data, "lake", "overwrit")
    fsspeckit.write_dataset(data, "lake", "overwrite_partition")
    fsspeckit.plan_write(data, "lake", "append", ["id"], partitions="day=1")
"""


def errors_of(snippet: str, folder: Path) -> dict[str, str]:
    """mypy's error at each line of a snippet, by that line."""
    file = folder / "snippet.py"
    file.write_text(snippet)
    arguments = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", str(file)]
    done = subprocess.run([sys.executable, "-m", "mypy", *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = snippet.splitlines()
    hits = re.findall(r"snippet\.py:(\d+): error: (.*)", done.stdout)
    return {lines[int(number) - 1].strip(): message for number, message in reversed(hits)}


def test_right_calls_have_no_errors(tmp_path: Path) -> None:
    assert errors_of(RIGHT, tmp_path) == {}


def test_slips_are_type_errors(tmp_path: Path) -> None:
    errors = errors_of(WRONG, tmp_path)
    calls = [line.strip() for line in WRONG.splitlines() if "(data" in line and "def " not in line]
    assert [call for call in calls if call not in errors] == []
    for call, message in errors.items():
        if '"upser"' in call:
            assert "Literal['insert', 'update', 'upsert', 'delete']" in message
        if call.endswith(", 5)"):
            assert 'incompatible type "int"' in message
        if "compresion" in call:
            assert 'Unexpected keyword argument "compresion"' in message
            assert 'did you mean "compression"' in message


ARROW = """
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

def wrong(table: pa.Table) -> None:
    pa.tabel({})
    pc.is_nul(table)
    pq.write_table(table)
    pq.read_table("f.parquet", colums=["id"])
    pq.ParquetFile("f.parquet", page_checksum=True)
    pa.types.is_datetime(pa.int8())

def right(table: pa.Table) -> None:
    pq.write_table(table, "f.parquet", compression="zstd")
    pq.ParquetFile("f.parquet", page_checksum_verification=True).schema_arrow
    pc.sort_indices(table, sort_keys=[("id", "ascending")])
"""


def test_names_and_keywords_of_pyarrow_are_checked(tmp_path: Path) -> None:
    body = ARROW.split("def right", maxsplit=1)[0]
    wrong = [line.strip() for line in body.splitlines() if line.startswith("    ")]
    assert sorted(errors_of(ARROW, tmp_path)) == sorted(wrong)
