"""A plan says what sorted files or smaller row groups would save, and sorting then saves that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO

FILES, ROWS = 20, 2_000
TOTAL = FILES * ROWS
KEYS = {
    "numbers": lambda ids: pa.array(ids),
    "text": lambda ids: pa.array([f"order-{i:09d}" for i in ids]),
    "instants": lambda ids: pa.array(ids * 1_000_000, pa.timestamp("us", "UTC")),
    "decimals": lambda ids: pa.array([int(i) for i in ids]).cast(pa.decimal128(24, 2)),
}


def table(ids: Any, kind: str = "numbers", x: str = "old") -> pa.Table:
    return pa.table({"id": KEYS[kind](np.asarray(ids)), "x": [x] * len(ids)})


def make_lake(folder: Path, kind: str = "numbers", days: int = 1, row_group_size: int = 1 << 20) -> str:
    """Every file has random keys of all, or of its day."""
    ids = np.random.default_rng(1).permutation(TOTAL) if days == 1 else np.arange(TOTAL)
    for number in range(FILES):
        of_day = ids[number % days * (TOTAL // days) :][: TOTAL // days]
        mine = np.random.default_rng(2).permutation(of_day)[number // days :: FILES // days]
        place = folder / (f"day={number % days}" if days > 1 else "") / f"f{number:02d}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(mine, kind), place, row_group_size=row_group_size)
    return str(folder)


def plan(source: pa.Table, lake: str) -> Any:
    return PyArrowDatasetIO().plan(source, lake, "upsert", ["id"])


@pytest.mark.parametrize("kind", KEYS)
def test_sorting_saves_what_the_plan_says(tmp_path: Path, kind: str) -> None:
    lake = make_lake(tmp_path / "my lake", kind)
    ids = [*range(3_000, 3_400), *range(30_000, 30_300)]
    found = plan(table(ids, kind, "new"), lake)
    assert len(found.by_action("rewrite")) == FILES
    (hint,) = found.hints
    said = re.fullmatch(
        r"Matched rows are in 20 of 20 files, 1\.[78] % of their rows\. Sorted by id they would be in about (\d+): "
        rf"fsspeckit compact '{re.escape(lake)}' --sort-by id",
        hint,
    )
    assert said, hint
    file_size = sum(path.stat().st_size for path in Path(lake).iterdir()) // FILES
    fsspeckit.compact(lake, sort_by="id", target_size=file_size)
    after = plan(table(ids, kind, "new"), lake)
    assert len(list(Path(lake).iterdir())) >= 10
    assert abs(len(after.by_action("rewrite")) - int(said[1])) <= 2, "of 20"
    assert after.hints == ()


def test_each_folder_is_sorted_for_itself(tmp_path: Path) -> None:
    """Rows of two days, in all ten files of each; new rows say nothing about layout."""
    lake = make_lake(tmp_path / "lake", days=2)
    ids = np.array([*range(100, 200), *range(TOTAL - 150, TOTAL + 50)])
    source = table(ids, x="new").append_column("day", pa.array((ids >= TOTAL // 2).astype(int)))
    (hint,) = PyArrowDatasetIO().plan(source, lake, "upsert", ["id", "day"]).hints
    assert "in 20 of 20 files" in hint and "Sorted by id they would be in about 2:" in hint


def test_keys_everywhere_are_not_helped_by_sorting(tmp_path: Path) -> None:
    found = plan(table(range(0, TOTAL, 20), x="new"), make_lake(tmp_path / "lake"))
    (hint,) = found.hints
    assert hint.startswith("Matched rows are in 20 of 20 files, 5 % of their rows. The keys are spread over all of id")


def test_few_keys_everywhere_are_helped_by_smaller_row_groups(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    ids = np.random.default_rng(1).permutation(10 * 100_000)
    for number in range(10):
        pq.write_table(pa.table({"id": ids[number::10]}), lake / f"f{number}.parquet")
    found = PyArrowDatasetIO().plan(pa.table({"id": ids[:10]}), str(lake), "delete", ["id"])
    (hint,) = found.hints
    assert "in 10 of 10 files, 0.001 % of their rows. Their row groups have up to 100,000 rows." in hint
    assert "With 10,000 rows in a row group" in hint and "at most 10 % of these files would be encoded again" in hint


def test_no_hint_where_little_would_be_saved(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake")
    assert plan(table(range(TOTAL // 2), x="new"), lake).hints == (), "half of the rows change"
    assert plan(table([1, 2], x="new"), lake).hints == (), "two files change"
    full = PyArrowDatasetIO().plan(table(range(100), x="new"), lake, "upsert", ["id"], delete_missing="all")
    assert full.hints == ()
