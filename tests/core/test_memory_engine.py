"""An engine over plain Python lists and dicts: the core needs no more of an engine than these sixty lines."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import merge as core
from fsspeckit.core.actions import Actions, HitAction, MatchedRows
from fsspeckit.core.dataset.partitions import parse_hive_partition_path
from fsspeckit.core.engine import Engine, Source
from fsspeckit.core.errors import DuplicateKeyError, NullKeyError, PartitionMoveError
from fsspeckit.core.local_engine import ArrowSource, LocalEngine
from fsspeckit.core.match.hits import HITS, MatchResult
from fsspeckit.core.match.key_index import KeySet, hits_of
from fsspeckit.core.match.key_reader import read_keys
from fsspeckit.core.model import Match, MergeStrategy, Scan
from fsspeckit.core.reports import MergeResult
from fsspeckit.core.rows.spool import RowId, Spool
from fsspeckit.core.storage import Location, locate

Row = dict[str, Any]


class ListKeys:
    """The source's keys in a dict; `rows[key]` are its rows as part, row and partition."""

    def __init__(self, spool: Spool, actions: Actions) -> None:
        self.spool, self.actions, self.rows = spool, actions, dict[Any, list[tuple[int, int, Any]]]()
        for part in range(len(spool.parts)):
            for row, (key, partition) in enumerate(split(spool, spool.read_keys(part))):
                self.rows.setdefault(key, []).append((part, row, partition))

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        firsts = sorted(rows[0][:2] for rows in self.rows.values() if len(rows) > 1)
        return len(firsts), firsts[:5]

    def match(self, location: Location, scans: Sequence[Scan]) -> MatchResult:
        counts, hits = dict[str, dict[int, MatchedRows]](), list[tuple[int, ...]]()
        moved, at_home = set[RowId](), set[RowId]()
        for file, scan in enumerate(scans):
            for batch in read_keys(location, scan, self.spool.shape):
                columns = [column.to_pylist() for column in (*batch.keys, *batch.partitions)]
                for position, values in enumerate(zip(*columns, strict=True)):
                    key, theirs = values[: len(batch.keys)], values[len(batch.keys) :]
                    for part, row, partition in self.rows.get(key, []):
                        facts = (np.array([fact]) for fact in (False, False, partition != theirs))
                        action = int(self.actions.hit_actions(*facts)[0])
                        hits.append((file, batch.row_group, position, action, part, row))
                        groups = counts.setdefault(scan.footer.path, {})
                        groups[batch.row_group] = groups.get(batch.row_group, MatchedRows()) + MatchedRows.of(
                            {action: 1}
                        )
                        moved |= {(part, row)} if action == HitAction.MOVE else set()
                        at_home |= {(part, row)} if action == HitAction.UPDATE else set()
        table = pa.table([list(c) for c in zip(*hits, strict=True)] or [[]] * len(HITS), names=HITS.names).cast(HITS)
        met = len({hit[4:] for hit in hits})
        match = Match(counts, met, len(moved), self.spool.samples(sorted(moved)[:5]), len(moved - at_home))
        return MatchResult(match, hits_of(self.spool, scans, table.combine_chunks().to_batches()))


def split(spool: Spool, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, Any]]:
    count = len(spool.shape.keys)
    for batch in batches:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield values[:count], values[count:]


class ListEngine(LocalEngine):
    """See `core.engine.Engine`."""

    name = "list"

    def open(self, source: object) -> Source:
        assert isinstance(source, list)
        table = pa.Table.from_pylist(source)
        return ArrowSource(table.schema, table)

    @contextlib.contextmanager
    def keys(self, spool: Spool, actions: Actions) -> Iterator[KeySet]:
        yield ListKeys(spool, actions)


# The tests


@pytest.fixture
def lake() -> Location:
    location = locate(f"memory://lists-{uuid.uuid4().hex}/lake")
    for i in range(4):
        table = pa.table({"id": range(i * 10, i * 10 + 10), "x": ["old"] * 10})
        with location.storage.open_output(location.at(f"f{i}.parquet")) as file:
            pq.write_table(table, file, row_group_size=5)
    return location


def run(location: Location, rows: list[Row], strategy: str, keys: Sequence[str] = ("id",), **more: Any) -> MergeResult:
    engine: Engine = ListEngine()
    return core.run(engine, location, rows, core.Request(MergeStrategy(strategy), tuple(keys), **more))


def rows_of(location: Location) -> list[Row]:
    fs, root = fsspec.filesystem("memory"), location.root
    found = []
    for path in sorted(fs.find(root)):
        partition = parse_hive_partition_path(path[len(root) + 1 :])
        with fs.open(path) as file:
            found += [{**row, **partition} for row in pq.ParquetFile(file).read().to_pylist()]
    return found


def counts(result: MergeResult) -> tuple[int, ...]:
    return result.inserted, result.updated, result.deleted, result.target_count_before, result.target_count_after


DATA = [{"id": 3, "x": "A"}, {"id": 22, "x": "B"}, {"id": 99, "x": "C"}]


@pytest.mark.parametrize(
    ("strategy", "mode", "expected"),
    [
        ("insert", "incremental", (1, 0, 0, 40, 41)),
        ("update", "incremental", (0, 2, 0, 40, 40)),
        ("upsert", "incremental", (1, 2, 0, 40, 41)),
        ("insert", "full", (1, 0, 0, 40, 41)),
        ("update", "full", (0, 2, 0, 40, 40)),
        ("upsert", "full", (1, 2, 0, 40, 41)),
        ("full_merge", "full", (1, 2, 38, 40, 3)),
        ("deduplicate", "full", (1, 2, 0, 40, 41)),
    ],
)
def test_strategies(lake: Location, strategy: str, mode: Any, expected: tuple[int, ...]) -> None:
    old = {row["id"]: row["x"] for row in rows_of(lake)}
    new = {row["id"]: row["x"] for row in DATA}
    result = run(lake, DATA, strategy, rewrite_mode=mode)
    assert counts(result) == expected
    wanted = {
        "insert": new | old,
        "update": old | {k: v for k, v in new.items() if k in old},
        "full_merge": new,
    }.get(strategy, old | new)
    found = rows_of(lake)
    assert {row["id"]: row["x"] for row in found} == wanted
    assert len(found) == len(wanted)
    fs = fsspec.filesystem("memory")
    assert all(path.startswith(f"{lake.root}/") for path in fs.find(lake.parent))  # no staging left


def test_plan(lake: Location) -> None:
    found = core.plan(ListEngine(), lake, DATA, core.Request(MergeStrategy.UPSERT, ("id",)))
    assert [f.action for f in found.files] == ["rewrite", "prune", "rewrite", "prune"]
    assert [f.scanned_row_groups for f in found.files] == [1, 0, 1, 0]
    assert (found.inserted, found.updated) == (1, 2)


def test_identical_rows_spare_the_file(lake: Location) -> None:
    result = run(lake, [{"id": 3, "x": "old"}, {"id": 22, "x": "B"}], "update")
    assert (result.updated, len(result.rewritten_files), len(result.preserved_files)) == (2, 1, 3)


def test_refusals(lake: Location) -> None:
    before = rows_of(lake)
    with pytest.raises(NullKeyError):
        run(lake, [{"id": None, "x": "A"}], "upsert")
    with pytest.raises(DuplicateKeyError):
        run(lake, [{"id": 1, "x": "A"}, {"id": 1, "x": "B"}], "upsert")
    with pytest.raises(ValueError, match=r"missing from the source: \['x'\]"):
        run(lake, [{"id": 1}], "upsert")
    assert rows_of(lake) == before


def test_deduplicate(lake: Location) -> None:
    data = [{"id": 3, "x": "a"}, {"id": 3, "x": "c"}, {"id": 3, "x": "b"}]
    assert counts(run(lake, data, "deduplicate", dedup_order_by=("x",), rewrite_mode="full")) == (0, 1, 0, 40, 40)
    assert [row["x"] for row in rows_of(lake) if row["id"] == 3] == ["c"]


def test_partitions() -> None:
    lake = locate(f"memory://lists-{uuid.uuid4().hex}/lake")
    first = [{"id": i, "x": "old", "day": f"d/{i % 2}"} for i in range(6)]
    assert run(lake, first, "upsert", partition_columns=("day",)).inserted == 6
    assert sorted(rows_of(lake), key=lambda r: r["id"]) == first
    second = [{"id": 1, "x": "new", "day": "d/1"}, {"id": 7, "x": "new", "day": "d/1"}]
    assert counts(run(lake, second, "upsert")) == (1, 1, 0, 6, 7)
    with pytest.raises(PartitionMoveError, match="2"):
        run(lake, [{"id": 2, "x": "new", "day": "d/1"}], "upsert")
    third = [{"id": 2, "x": "new", "day": "d/1"}]
    assert counts(run(lake, third, "upsert", ("id", "day"))) == (1, 0, 0, 7, 8)


def test_any_sequence_of_merges_equals_a_dict() -> None:
    chance = random.Random(7)
    lake = locate(f"memory://lists-{uuid.uuid4().hex}/lake")
    model: dict[int, str] = {}
    for turn in range(60):
        ids = chance.sample(range(50), chance.randrange(1, 12))
        new = dict.fromkeys(ids, f"turn {turn}")
        strategy = chance.choice(["insert", "update", "upsert", "upsert", "full_merge"])
        mode = "full" if strategy == "full_merge" else "incremental"
        result = run(lake, [{"id": i, "x": x} for i, x in new.items()], strategy, rewrite_mode=mode)
        met, before = new.keys() & model.keys(), len(model)
        if strategy == "full_merge":
            model = new
        else:
            model |= {
                i: x
                for i, x in new.items()
                if (i in met) in {"insert": [False], "update": [True]}.get(strategy, [True, False])
            }
        assert {row["id"]: row["x"] for row in rows_of(lake)} == model
        assert len(rows_of(lake)) == len(model) == result.target_count_after
        assert result.updated == (0 if strategy == "insert" else len(met))
        assert result.target_count_before == before
