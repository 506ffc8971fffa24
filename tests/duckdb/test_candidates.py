"""Keys of the target that cannot meet a source key stay out of DuckDB: whether they do, the outcome is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.datasets.duckdb import DuckDBDatasetIO, keys
from fsspeckit.datasets.duckdb.workspace import Workspace
from support import rows, write_lake

NAN = float("nan")
LAKES: dict[str, tuple[pa.Table, pa.Table, list[str], int]] = {
    "numbers": (
        pa.table({"k": [1, 2, None, 4], "x": list("abcd")}),
        pa.table({"k": [2, 4, 5], "x": list("BDE")}),
        ["k"],
        2,
    ),
    "pairs": (
        pa.table({"k": [1, 1, 2, 2], "l": ["a", "b", "a", None], "x": list("abcd")}),
        pa.table({"k": [1, 2, 3], "l": ["b", "b", "a"], "x": list("BDE")}),
        ["k", "l"],
        3,
    ),
    "floats": (
        pa.table({"k": [NAN, -0.0, 1.5, None], "x": list("abcd")}),
        pa.table({"k": [NAN, 0.0, 2.5], "x": list("ABE")}),
        ["k"],
        2,
    ),
}
"""Target, source, keys; how many keys of the target are kept where few are known."""


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("name", LAKES)
def test_only_keys_that_could_meet_one_are_kept(
    name: str, few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, source, key_columns, possible = LAKES[name]
    kept: list[int] = []
    insert = Workspace.insert

    def noting(self: Workspace, table: str, data: pa.Table) -> Any:
        if "source_row" in data.column_names:
            kept.append(data.num_rows)
        return insert(self, table, data)

    monkeypatch.setattr(Workspace, "insert", noting)
    if not few:
        monkeypatch.setattr(keys, "SMALL_SOURCE_ROWS", -1)
    lake = write_lake(tmp_path / "lake", {"f.parquet": target})
    result = DuckDBDatasetIO().merge(source, lake, "upsert", key_columns)
    changed = {row["x"] for row in rows(lake)}
    assert result.updated + result.inserted == source.num_rows
    assert set(source.column("x").to_pylist()) <= changed
    assert len(rows(lake)) == target.num_rows + result.inserted
    nulls = sum(any(row[k] is None for k in key_columns) for row in target.to_pylist())
    assert sum(kept) == (possible if few else target.num_rows - nulls)
