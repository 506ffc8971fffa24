"""What tests share: small lakes, and a look at them that does not go through the code under test."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq


def write_lake(root: Path | str, files: Mapping[str, pa.Table], **options: Any) -> str:
    """Write one Parquet file per entry (relative path -> table), with PyArrow and nothing else."""
    for name, table in files.items():
        target = Path(root) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target, **options)
    return str(root)


def data_files(root: Path | str) -> list[str]:
    """Relative paths of all Parquet files, hidden ones included."""
    found = [Path(folder, name) for folder, _, names in os.walk(root) for name in names if name.endswith(".parquet")]
    return sorted(str(path.relative_to(root)) for path in found)


def all_names(root: Path | str) -> list[str]:
    """Relative paths of everything below a folder, folders included."""
    return sorted(str(path.relative_to(root)) for path in Path(root).rglob("*"))


def rows(root: Path | str) -> list[dict[str, Any]]:
    """Every row of every file, partition values of the path added as text where the file does not store them."""
    found = []
    for name in data_files(root):
        with open(Path(root) / name, "rb") as file:
            table = pq.ParquetFile(file).read()
        partition = dict(_partition(part) for part in name.split("/")[:-1] if "=" in part)
        found += [{**partition, **row} for row in table.to_pylist()]
    return found


def read_rows(io: Any, path: str, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
    """What an engine's `read` gives, as rows: of a table, a Spark frame, or a list of them."""
    read = io.read(path, *arguments, **options)
    if hasattr(read, "sparkSession"):
        return [row.asDict() for row in read.collect()]
    found: list[dict[str, Any]] = read if isinstance(read, list) else read.to_pylist()
    return found


def _partition(folder: str) -> tuple[str, str | None]:
    name, _, value = folder.partition("=")
    return unquote(name), None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)


def multiset(found: list[dict[str, Any]]) -> Counter[str]:
    """Rows regardless of order; NaN equals NaN, and columns may stand in any order."""
    return Counter(repr(sorted(row.items())) for row in found)


def fingerprint(root: Path | str) -> dict[str, tuple[str, int]]:
    """Content hash and mtime of every file below a folder."""
    return {
        name: (hashlib.sha256((Path(root) / name).read_bytes()).hexdigest(), (Path(root) / name).stat().st_mtime_ns)
        for name in all_names(root)
        if (Path(root) / name).is_file()
    }
