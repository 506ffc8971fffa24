"""`plan(compare=True)` foretells what the merge does: which files it rewrites, and how many rows get other values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.reports import MergePlan
from support import fingerprint, write_lake

NAN = float("nan")


def lake_of(folder: Path) -> str:
    """Files whose columns and types differ; ids 0 to 49, ten in each file."""
    files: dict[str, pa.Table] = {}
    for number in range(5):
        ids = list(range(10 * number, 10 * number + 10))
        table = pa.table({"id": ids, "x": [float(i) for i in ids], "s": [f"s{i}" for i in ids], "v": [1] * 10})
        files[f"day={number % 2}/f{number}.parquet"] = table
    lake = write_lake(folder / "lake", files, row_group_size=4)
    narrow = files["day=0/f4.parquet"].set_column(3, "v", pa.array([1] * 10, pa.int32()))
    pq.write_table(narrow, f"{lake}/day=0/f4.parquet", row_group_size=4)
    return lake


def source(ids: list[int], **changes: dict[int, Any]) -> pa.Table:
    """The rows as they are in the data set, with other values for some ids."""
    columns: dict[str, list[Any]] = {
        "id": ids,
        "x": [float(i) for i in ids],
        "s": [f"s{i}" for i in ids],
        "v": [1] * len(ids),
        "day": [str(i // 10 % 2) for i in ids],
    }
    for name, values in changes.items():
        columns[name] = [values.get(i, old) for i, old in zip(ids, columns[name], strict=True)]
    return pa.table(columns)


CASES: dict[str, tuple[pa.Table, str, dict[str, Any]]] = {
    "all equal": (source([1, 2, 11, 25]), "upsert", {}),
    "some files equal": (source([1, 2, 11, 12, 25], x={2: -1.0, 12: NAN}), "upsert", {}),
    "a later row group and column": (source([0, 9, 19], v={9: 7}), "update", {}),
    "two columns of one row": (source([3, 4], x={3: 0.5}, s={3: "b", 4: "c"}), "upsert", {}),
    "nulls": (source([3, 4], s={3: None, 4: None}), "upsert", {}),
    "new rows, equal old ones": (source([1, 100, 120], day={100: "0", 120: "new"}), "upsert", {}),
    "only new rows": (source([100]), "insert", {}),
    "nothing matches": (source([100]), "update", {}),
    "a wider type": (source([1, 41], v={1: 2**40, 41: 2**40}), "upsert", {}),
    "an equal file takes the type of another": (source([41, 40, 11], v={41: 2**40}), "upsert", {}),
    "delete": (source([1, 2, *range(10, 20)]), "delete", {}),
    "delete column": (
        source([1, 2, 11, 25], v={2: 9}).append_column("op", pa.array(["D", None, None, None])),
        "upsert",
        {"delete_column": "op", "delete_values": ["D"]},
    ),
    "older rows": (source([1, 2, 11], x={2: 99.0, 11: -5.0}), "upsert", {"sequence_by": ["x"]}),
    "some columns": (source([1, 11], x={1: 5.0}, s={11: "z"}), "update", {"update_columns": ["s"]}),
    "moves": (source([1, 2, 11], day={1: "1"}), "upsert", {"on_move": "move"}),
    "missing rows": (source([0, 1, 2, 20, 21], x={2: 9.0}), "upsert", {"delete_missing": "partitions"}),
    "a new column": (
        source([1, 11], x={1: 5.0}).append_column("new", pa.array([None, 1])),
        "upsert",
        {"on_schema_change": "evolve", "evolve_files": "touched"},
    ),
    "a new column, equal rows": (
        source([1, 11]).append_column("new", pa.array([None, None], pa.int64())),
        "upsert",
        {"on_schema_change": "evolve", "evolve_files": "touched"},
    ),
    "no rows": (source([]).cast(source([1]).schema), "upsert", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_what_the_merge_does(io: Any, tmp_path: Path, case: str) -> None:
    rows, strategy, options = CASES[case]
    lake = lake_of(tmp_path)
    before = fingerprint(lake)
    quick = io.plan(rows, lake, strategy, ["id"], **options)
    plan = io.plan(rows, lake, strategy, ["id"], compare=True, **options)
    assert fingerprint(lake) == before
    result = io.merge(rows, lake, strategy, ["id"], replace="in_place", **options)

    counts = ("inserted", "updated", "deleted", "skipped", "moved", "target_count_after")
    assert [getattr(plan, n) for n in counts] == [getattr(result, n) for n in counts]
    assert plan.changed == result.changed and quick.changed is None
    planned = {f.path for f in plan.files if f.action == "rewrite"}
    assert planned == {*result.rewritten_files, *result.removed_files}
    assert planned <= {f.path for f in quick.files if f.action == "rewrite"}
    assert dict(plan.retyped_columns) == result.retyped_columns
    assert dict(plan.added_columns) == result.added_columns
    assert sum(f.changed_rows or 0 for f in plan.files) + plan.moved == plan.changed
    after = fingerprint(lake)
    assert {f.path for f in plan.files if f.path not in planned} == {
        f"{lake}/{name}" for name in before if after.get(name) == before[name]
    }


def test_files_that_are_equal_say_so(io: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    rows = source([1, 2, 11, 12], x={2: -1.0})
    plan: MergePlan = io.plan(rows, lake, "upsert", ["id"], compare=True)
    found = {f.path.rpartition("/")[2]: (f.action, f.reason, f.updated_rows, f.changed_rows) for f in plan.files}
    assert found["f0.parquet"] == ("rewrite", "2 matched rows, 1 with other values", 2, 1)
    assert found["f1.parquet"] == ("scan", "2 matched rows, equal already", 2, 0)
    assert found["f2.parquet"][0] in ("prune", "guard")
    assert plan.changed == 1
    quick = io.plan(rows, lake, "upsert", ["id"])
    assert plan.bytes_encoded < quick.bytes_encoded
