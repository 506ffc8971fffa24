"""A schema change is killed at every storage call: all files have the old columns, or all have the new ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crash.dying import EVOLVING, Server
from crash.test_kill import OLD, _markers, _table
from fsspeckit.api import recover
from support import all_names, data_files, rows, write_lake

SHARDS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.mark.parametrize(("operation", "step"), [("evolve", 1), ("evolve_append", 3)])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_at_every_storage_call(server: Server, ground: Path, shard: int, operation: str, step: int) -> None:
    """Every call of a merge, and every third one of an append, which writes in the same way."""
    template, lake = ground / "template", ground / "scratch" / "lake"
    write_lake(template, {f"p={p}/f{f}.parquet": _table(p, f) for p in (1, 2) for f in range(2)})
    labels = server.points(operation, _fresh(template, lake))
    new = _contents(lake)
    assert {names for names, _ in new} == {("id", "x", "new")} and len(labels) >= 30
    outcomes = set()
    for point in range(shard * step, len(labels), SHARDS * step):
        where = f"killed at point {point}, {labels[point]}"
        assert server.run(operation, _fresh(template, lake), point), where
        committed = bool(_markers(lake))
        recover(str(lake))
        found = _contents(lake)
        outcome = "new" if found == new else "old" if found == _contents(template) else "neither"
        assert outcome == "new" or (outcome == "old" and not committed), where
        assert all(name.endswith((".parquet", "p=1", "p=2")) for name in all_names(lake)), where
        assert [path.name for path in lake.parent.iterdir()] == ["lake"], where
        outcomes.add(outcome)
    assert outcomes == {"old", "new"}


def _fresh(template: Path, lake: Path) -> Path:
    shutil.rmtree(lake.parent, ignore_errors=True)
    shutil.copytree(template, lake)
    return lake


def _contents(lake: Path) -> list[tuple[tuple[str, ...], str]]:
    """The columns of each file, and all rows."""
    names = [tuple(pq.ParquetFile(lake / name).schema_arrow.names) for name in data_files(lake)]
    return [(columns, "") for columns in names] + [(names[0], repr(sorted(rows(lake), key=lambda r: int(r["id"]))))]


def test_what_is_merged() -> None:
    """Some rows are updated and some are new, and most files have none of either."""
    ids = set(EVOLVING["id"].to_pylist())
    assert ids & OLD.keys() and ids - OLD.keys()
