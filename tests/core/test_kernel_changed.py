"""The number of replaced rows whose values differ, however the file is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from damage import edit_footer
from fsspeckit.core.model import Rewritten, WriteOptions
from fsspeckit.core.rewrite import row_group
from fsspeckit.core.rewrite.job import RowGroupChange
from rewriting import cannot_be_copied, change, rewrite

ROWS, SIZE = 60, 20
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS)),
        "x": pa.array([math.nan if i % 5 == 0 else i % 5 - 1.0 for i in range(ROWS)]),
        "name": pa.array([None if i % 7 == 6 else f"name {i % 3}" for i in range(ROWS)]),
        "tags": pa.array([[i, None][: i % 3] for i in range(ROWS)], pa.list_(pa.int64())),
    }
)
WAYS = ["spliced", "columns one by one", "several threads", "re-encoded", "as new files"]
Rewrite = Callable[..., Rewritten]


@pytest.fixture(params=WAYS)
def rewritten(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rewrite:
    """Rewrite the rows of a table in one of the ways."""
    path, way = tmp_path / "lake" / "f.parquet", request.param
    path.parent.mkdir()
    if way == "columns one by one":
        monkeypatch.setattr(row_group, "_BATCH_BYTES", 1)

    def run(table: pa.Table, changes: dict[int, RowGroupChange], **options: Any) -> Rewritten:
        pq.write_table(table, path, row_group_size=SIZE)
        if way == "re-encoded":
            edit_footer(path, cannot_be_copied)
        if way == "as new files":
            options["as_new_files"] = WriteOptions()
        return rewrite(path, changes, threads=4 if way == "several threads" else 1, **options)

    return run


def new_rows(positions: list[int], changes: dict[int, dict[str, Any]], group: int = 0) -> RowGroupChange:
    """Rows of a row group, with other values at some positions."""
    rows = TABLE.slice(group * SIZE, SIZE).to_pylist()
    return change(positions, pa.Table.from_pylist([{**rows[p], **changes.get(p, {})} for p in positions], TABLE.schema))


def test_a_row_counts_once_however_many_columns_differ(rewritten: Rewrite) -> None:
    """Row groups 0 and 2 change, 1 has equal rows only."""
    done = rewritten(
        TABLE,
        {
            0: new_rows(
                [0, 3, 6, 7, 9], {3: {"name": "new"}, 6: {"x": 7.0, "name": "", "tags": [1]}, 9: {"tags": None}}
            ),
            1: new_rows([1, 2, 3], {}, 1),
            2: new_rows(list(range(SIZE)), {0: {"x": 0.5}, 19: {"name": None}}, 2),
        },
    )
    assert done.changed == 5


def test_equal_rows_are_not_counted(rewritten: Rewrite) -> None:
    done = rewritten(TABLE, {group: new_rows(list(range(0, SIZE, 3)), {}, group) for group in range(3)})
    assert done.changed == 0


def test_nan_is_equal_and_zeros_differ(rewritten: Rewrite) -> None:
    """0 and 5 are NaN, 1 and 6 are 0.0."""
    other_nan = -math.nan
    done = rewritten(TABLE, {0: new_rows([0, 1, 5, 6], {0: {"x": other_nan}, 1: {"x": -0.0}, 6: {"x": 0.0}})})
    assert done.changed == 1


def test_deleted_rows_and_columns_that_are_not_replaced_are_not_counted(rewritten: Rewrite) -> None:
    done = rewritten(TABLE, {0: change([1, 2, 3], pa.table({"name": ["name 1", "new", "new"]}), [0, 4])})
    assert (done.changed, sum(staged.rows for staged in done.staged)) == (2, ROWS - 2)


@pytest.mark.parametrize("added", [True, False])
def test_a_value_in_a_column_that_the_file_lacks_differs(rewritten: Rewrite, added: bool) -> None:
    """Of four rows one differs in both columns, one in the new one, and one in the old one."""
    schema = TABLE.schema.append(pa.field("new", pa.int32()))
    rows = pa.table({"x": [math.nan, 0.5, 0.5, 2.0], "new": pa.array([1, 2, None, None], pa.int32())})
    done = rewritten(TABLE, {0: change([0, 1, 2, 3], rows)}, schema=schema, added={"new": None} if added else {})
    assert done.changed == 3


def test_values_of_another_type(rewritten: Rewrite) -> None:
    """The file's numbers have another type than the new rows; some of them do not fit it."""
    numbers = TABLE.set_column(1, "x", pa.array([i if i % 3 else 2**53 + 1 for i in range(ROWS)]))
    rows = pa.table({"id": range(6), "x": [5.0, 1.0, 7.0, float(2**53), 4.0, 5.0]})
    done = rewritten(numbers, {0: change(list(range(6)), rows)})
    assert done.changed == 3
