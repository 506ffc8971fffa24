"""`--on-schema-change` and its companions, in merges, plans and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import Result

from support import fingerprint, rows, write_lake

Call = Callable[..., Result]


def lake_and_source(folder: Path) -> tuple[str, str]:
    lake = write_lake(folder / "schema-lake", {f"f{n}.parquet": pa.table({"id": [n], "x": ["a"]}) for n in range(3)})
    pq.write_table(pa.table({"id": [1], "x": ["b"], "new": [0.5]}), folder / "source.parquet")
    return lake, str(folder / "source.parquet")


def test_merge_and_plan(call: Call, tmp_path: Path) -> None:
    lake, source = lake_and_source(tmp_path)
    before = fingerprint(lake)
    assert "--on-schema-change evolve" in call("merge", source, lake, "-k", "id").stderr
    planned = json.loads(call("plan", source, lake, "-k", "id", "--on-schema-change", "evolve", "--json").stdout)
    assert planned["added_columns"] == {"new": "double"} and fingerprint(lake) == before
    done = call("merge", source, lake, "-k", "id", "--on-schema-change", "evolve")
    assert "New columns: new is double. 2 files without a changed row were rewritten" in " ".join(done.stdout.split())
    assert {row["id"]: row["new"] for row in rows(lake)} == {0: None, 1: 0.5, 2: None}


def test_touched_files(call: Call, tmp_path: Path) -> None:
    lake, source = lake_and_source(tmp_path)
    options = ("--on-schema-change", "evolve", "--evolve-files", "touched")
    assert "mergeSchema=true" in " ".join(call("plan", source, lake, "-k", "id", *options).stdout.split())
    call("merge", source, lake, "-k", "id", *options)
    assert [row.get("new") for row in sorted(rows(lake), key=lambda row: int(row["id"]))] == [None, 0.5, None]
    assert sum("new" in row for row in rows(lake)) == 1


def test_write(call: Call, tmp_path: Path) -> None:
    lake, source = lake_and_source(tmp_path)
    call("write", source, lake, "--on-schema-change", "evolve")
    assert sorted(repr(row.get("new")) for row in rows(lake)) == ["0.5", "None", "None", "None"]
    assert all("new" in row for row in rows(lake))
