"""Plans: what happens to the rows of each file, new files, new and emptied partitions, as data, text, JSON and HTML."""

from __future__ import annotations

import io as text_io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from damage import nothing_changes, spoil_pages
from fsspeckit.core.dataset.ledger import Batch
from fsspeckit.report.html import page
from fsspeckit.report.inspection import inspect
from fsspeckit.report.summary import document
from fsspeckit.report.terminal import PlanView
from row_lakes import changes, counts, day_lake, flat_lake, folders
from support import data_files, write_lake

FEED: dict[str, Any] = {"delete_column": "gone", "sequence_by": ["version"], "on_duplicates": "latest"}


def feed() -> pa.Table:
    """Updates 1 and 5, deletes 2, 3 and 4, skips 6, and inserts two rows into c and one into d."""
    days = ["a", "z", "z", "b", "c", "c", "c", "c", "d"]
    versions = [9, 9, 9, 9, 9, 4, 1, 1, 1]
    gone = [i in (2, 3, 4) for i in (1, 2, 3, 4, 5, 6, 100, 101, 102)]
    return changes([1, 2, 3, 4, 5, 6, 100, 101, 102], days, version=versions, gone=gone)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return day_lake(tmp_path)


def by_file(plan: Any) -> dict[str, tuple[int, int, int]]:
    return {
        Path(file.path).name.split(".")[0]: (file.updated_rows, file.deleted_rows, file.skipped_rows)
        for file in plan.files
    }


def planned(io: Any, lake: str) -> Any:
    with nothing_changes(lake):
        return io.plan(feed(), lake, "upsert", ["id"], **FEED)


def test_rows_of_each_file(io: Any, lake: str) -> None:
    plan = planned(io, lake)
    assert counts(plan) == {"inserted": 3, "updated": 2, "deleted": 3, "skipped": 1}
    assert by_file(plan) == {"fa": (1, 1, 0), "fb": (0, 2, 0), "fc": (1, 0, 1)}


def test_new_files_and_partitions(io: Any, lake: str) -> None:
    plan = planned(io, lake)
    assert dict(plan.new_rows) == {"day=c": 2, "day=d": 1}
    assert tuple(plan.new_partitions) == ("day=d",)
    assert tuple(plan.emptied_partitions) == ("day=b",)
    result = io.merge(feed(), lake, "upsert", ["id"], **FEED)
    assert folders(lake) == ["day=a", "day=c", "day=d"]
    made = {Path(file.path).parent.name: file.row_count for file in result.files if file.operation == "inserted"}
    assert made == {"day=c": 2, "day=d": 1}


def test_moved_rows_are_new_rows_of_their_partition(io: Any, lake: str) -> None:
    plan = io.plan(changes([1, 3, 4], ["d", "c", "c"]), lake, "upsert", ["id"], on_move="move")
    assert counts(plan) == {"updated": 3, "moved": 3}
    assert dict(plan.new_rows) == {"day=d": 1, "day=c": 2}
    assert (tuple(plan.new_partitions), tuple(plan.emptied_partitions)) == (("day=d",), ("day=b",))


def test_a_flat_data_set(io: Any, tmp_path: Path) -> None:
    lake = flat_lake(tmp_path)
    plan = io.plan(changes([1, 100, 101]), lake, "upsert", ["id"], delete_missing="all")
    assert by_file(plan) == {"f0": (1, 9, 0), "f1": (0, 10, 0), "f2": (0, 10, 0)}
    assert sum(plan.new_rows.values()) == 2
    assert (tuple(plan.new_partitions), tuple(plan.emptied_partitions)) == ((), ())


def test_a_partition_that_is_emptied_and_filled_is_neither(io: Any, lake: str) -> None:
    source = changes([3, 4, 100], ["b", "b", "b"], gone=[True, True, False])
    plan = io.plan(source, lake, "upsert", ["id"], delete_column="gone")
    assert dict(plan.new_rows) == {"day=b": 1}
    assert (tuple(plan.new_partitions), tuple(plan.emptied_partitions)) == ((), ())


@pytest.mark.parametrize("way", ["keys", "filters"])
def test_plans_of_deletes(io: Any, lake: str, way: str) -> None:
    with nothing_changes(lake):
        if way == "keys":
            plan = io.plan_delete(lake, keys=pa.table({"id": [1, 3, 4]}), key_columns=["id"])
        else:
            plan = io.plan_delete(lake, filters=[("id", "in", [1, 3, 4])])
    assert counts(plan) == {"deleted": 3}
    assert by_file(plan) == {"fa": (0, 1, 0), "fb": (0, 2, 0), "fc": (0, 0, 0)}
    assert (dict(plan.new_rows), tuple(plan.emptied_partitions)) == ({}, ("day=b",))


@pytest.mark.parametrize("way", ["keys", "filters"])
def test_a_file_that_is_copied_to_keep_the_record_of_a_stream(io: Any, lake: str, way: str) -> None:
    io.merge(changes([100], ["d"]), lake, "upsert", ["id"], batch=Batch("app", 1))
    arguments: dict[str, Any] = (
        {"keys": [100], "key_columns": ["id"]} if way == "keys" else {"filters": [("day", "=", "d")]}
    )
    with nothing_changes(lake):
        plan = io.plan_delete(lake, **arguments)
    rewritten = {Path(file.path).parent.name: file.reason for file in plan.files if file.action == "rewrite"}
    result = io.delete(lake, **arguments)
    (copied,) = [Path(path).parent.name for path in result.rewritten_files]
    assert rewritten == {"day=d": "1 deleted", copied: "keeps the record of a stream"}


def test_it_reads_key_and_sequence_columns_only(io: Any, tmp_path: Path) -> None:
    files = {
        f"day={d}/f{d}.parquet": pa.table(
            {"id": [2 * n + 1, 2 * n + 2], "x": ["old"] * 2, "version": [5, 5], "y": [1, 2]}
        )
        for n, d in enumerate("abc")
    }
    lake = write_lake(tmp_path / "lake", files)
    for name in data_files(lake):
        spoil_pages(Path(lake, name), ["x", "y"])
    source = feed().append_column("y", pa.array([0] * 9))
    plan = io.plan(source, lake, "upsert", ["id"], **FEED)
    assert counts(plan) == {"inserted": 3, "updated": 2, "deleted": 3, "skipped": 1}
    plan = io.plan(
        source.drop(["gone"]),
        lake,
        "upsert",
        ["id"],
        on_move="move",
        delete_missing="all",
        **{name: value for name, value in FEED.items() if name != "delete_column"},
    )
    assert (plan.inserted, plan.skipped) == (3, 1)


def test_a_plan_as_text(io: Any, lake: str) -> None:
    out = text_io.StringIO()
    Console(file=out, width=200, highlight=False).print(PlanView(planned(io, lake), lake))
    text = out.getvalue()
    for part in ("2 updated", "3 inserted", "3 deleted", "1 skipped", "day=d", "day=b", "day=c"):
        assert part in text


def test_a_plan_as_json(io: Any, lake: str) -> None:
    said = json.loads(json.dumps(document(planned(io, lake), lake)))
    assert {name: said[name] for name in ("inserted", "updated", "deleted", "skipped", "moved")} == {
        "inserted": 3,
        "updated": 2,
        "deleted": 3,
        "skipped": 1,
        "moved": 0,
    }
    assert said["new_rows"] == {"day=c": 2, "day=d": 1}
    assert (said["new_partitions"], said["emptied_partitions"]) == (["day=d"], ["day=b"])
    rows = {Path(f["path"]).name: (f["updated_rows"], f["deleted_rows"], f["skipped_rows"]) for f in said["files"]}
    assert rows == {"fa.parquet": (1, 1, 0), "fb.parquet": (0, 2, 0), "fc.parquet": (1, 0, 1)}


def test_a_plan_as_html(io: Any, lake: str) -> None:
    html = page(planned(io, lake), lake)
    for part in ("2 updated", "3 inserted", "3 deleted", "1 skipped", "day=d", "day=b"):
        assert part in html


def test_a_result_as_text_and_json(io: Any, lake: str) -> None:
    result = io.merge(feed(), lake, "upsert", ["id"], **FEED)
    said = json.loads(json.dumps(document(result, lake)))
    assert (said["skipped"], said["moved"], said["changed"]) == (1, 0, 2)
    assert "1 skipped" in page(result, lake)


def test_the_map_has_the_ranges_that_are_in_the_footers(io: Any, lake: str) -> None:
    """Before and after the merge, as `inspect` reads them; and all keys of the source are marked."""

    def ranges() -> Any:
        seen = inspect(lake, ["id"]).key_map
        assert seen is not None and len(seen.ranges) == len(data_files(Path(lake)))
        return seen.ranges

    plan = planned(io, lake)
    assert (plan.key_map.column, plan.key_map.type, plan.key_map.keys) == ("id", "int64", ("id",))
    assert dict(plan.key_map.ranges) == ranges()
    marks = plan.key_map.source
    assert all(any(a <= key <= b for a, b in marks) for key in (1, 2, 3, 4, 5, 6, 100, 101, 102))
    assert not any(a <= 50 <= b for a, b in marks)
    result = io.merge(feed(), lake, "upsert", ["id"], **FEED)
    assert dict(result.key_map.ranges) == ranges()
    assert "key_map" not in document(plan, lake) and "key_map" not in result.to_dict()
    result = io.delete(lake, filters=[("id", ">", 100)])
    assert (result.key_map.column, result.key_map.source) == ("id", ())
    assert dict(result.key_map.ranges) == ranges()
