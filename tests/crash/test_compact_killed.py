"""A compaction is killed at every storage call: no row is lost or doubled, and the next compaction goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from crash.dying import Server
from fsspeckit.api import recover
from fsspeckit.datasets.pyarrow import PyArrowDatasetIO
from support import all_names, data_files, multiset, rows, write_lake

SHARDS = 2


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_compaction_killed_at_every_storage_call(server: Server, ground: Path, shard: int) -> None:
    template, lake = ground / "template" / "lake", ground / "scratch" / "lake"
    tables = {f"p={p}/f{f}.parquet": pa.table({"id": [10 * p + f], "x": ["a"]}) for p in (1, 2) for f in range(3)}
    expected = multiset(rows(write_lake(template, tables)))

    def fresh() -> Path:
        shutil.rmtree(lake.parent, ignore_errors=True)
        shutil.copytree(template.parent, lake.parent)
        return lake

    labels = server.points("compact", fresh())
    assert len(data_files(lake)) == 2
    left = set()
    for point in range(shard, len(labels), SHARDS):
        where = f"killed at point {point}, {labels[point]}"
        assert server.run("compact", fresh(), point), where
        recover(str(lake))
        left.add(len(data_files(lake)))
        assert multiset(rows(lake)) == expected, where
        PyArrowDatasetIO().compact(str(lake))
        assert len(data_files(lake)) == 2, where
        assert multiset(rows(lake)) == expected, where
        assert [name for name in all_names(lake.parent) if "fsspeckit" in name] == [], where
    assert left == {6, 4, 2}, "some died before, between and after the two commits"
