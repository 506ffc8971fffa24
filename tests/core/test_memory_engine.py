"""An engine over Python lists and JSON "files": the core needs nothing else, no Arrow table and no Parquet."""

from __future__ import annotations

import itertools
import json
import posixpath
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core import merge as core
from fsspeckit.core.engine import Engine
from fsspeckit.core.errors import DuplicateKeyError, NullKeyError, PartitionMoveError
from fsspeckit.core.model import (
    Bounds,
    FileInfo,
    Footer,
    Match,
    MergeResult,
    MergeStrategy,
    Profile,
    Replace,
    Rewritten,
    RowGroup,
    Scan,
    Shape,
    Staged,
)
from fsspeckit.core.rewrite.kernel import Job
from fsspeckit.core.rewrite.sink import NewFiles
from fsspeckit.core.storage import Location, locate
from fsspeckit.core.target.partitions import parse_hive_partition_path

Row = dict[str, Any]
TYPES = {"id": pa.int64(), "x": pa.string(), "day": pa.string()}


def order(value: Any) -> Any:
    """Order values of text are bytes, as everywhere in the core."""
    return value.encode() if isinstance(value, str) else value


@dataclass
class Source:
    """The rows, and where their keys were met: `found[path]` maps a row number of the file to one of the source."""

    rows: list[Row]
    names: list[str]
    shape: Shape | None = None
    found: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({name: TYPES[name] for name in self.names})

    def key(self, row: Row) -> tuple[Any, ...]:
        assert self.shape is not None
        return tuple(row[k] for k in self.shape.keys)


class ListEngine:
    """See `core.engine.Engine`. A file is a JSON list of row groups, each a list of rows."""

    name = "list"
    replace: Replace = "in_place"
    wants_scratch = False
    partition_timezone = "UTC"
    ignores_case = False

    def open(self, source: list[Row]) -> Source:
        return Source(source, list(source[0]))

    def footers(self, location: Location, files: Iterable[FileInfo], columns: Sequence[str]) -> list[Footer]:
        return [self._footer(location, info, columns) for info in files]

    def _footer(self, location: Location, info: FileInfo, columns: Sequence[str]) -> Footer:
        groups = load(location, info.path)
        names = list(groups[0][0])
        bounds = [
            {c: Bounds(order(min(r[c] for r in g)), order(max(r[c] for r in g))) for c in columns if c in names}
            for g in groups
        ]
        schema = pa.schema({name: TYPES[name] for name in names})
        row_groups = tuple(RowGroup(len(g), 1, b) for g, b in zip(groups, bounds, strict=True))
        return Footer(info, schema, row_groups, parse_hive_partition_path(info.path))

    def pin(self, opened: Source, shape: Shape, scratch: Location | None) -> Source:
        return Source(list(opened.rows), opened.names, shape)

    def release(self, source: Source) -> None:
        source.found.clear()

    def profile(self, source: Source) -> Profile:
        assert source.shape is not None
        keys = Counter(map(source.key, source.rows))
        twice = [key for key, count in keys.items() if count > 1]
        return Profile(
            rows=len(source.rows),
            null_keys={k: sum(row[k] is None for row in source.rows) for k in source.shape.keys},
            duplicate_keys=len(twice),
            duplicate_samples=tuple(twice[:5]),
            partitions=frozenset(tuple(order(row[p]) for p in source.shape.partitions) for row in source.rows),
            intervals={
                k: [(v, v) for v in sorted({order(row[k]) for row in source.rows if row[k] is not None})]
                for k in source.shape.keys
            },
        )

    def deduplicate(self, source: Source, order_by: Sequence[str]) -> Source:
        best: dict[Any, Row] = {}
        for row in sorted(source.rows, key=lambda r: [r[c] for c in order_by]):
            best[source.key(row)] = row
        return Source(list(best.values()), source.names, source.shape)

    def match(self, location: Location, source: Source, scans: Sequence[Scan]) -> Match:
        assert source.shape is not None
        rows_of = {source.key(row): number for number, row in enumerate(source.rows)}
        counts: dict[str, dict[int, int]] = {}
        moved = set()
        for scan in scans:
            partition = scan.footer.partition
            for group, position, row in numbered(load(location, scan.footer.path)):
                number = rows_of.get(source.key({**partition, **row}))
                if group in scan.row_groups and number is not None:
                    source.found.setdefault(scan.footer.path, {})[position] = number
                    per_group = counts.setdefault(scan.footer.path, {})
                    per_group[group] = per_group.get(group, 0) + 1
                    if any(source.rows[number][p] != partition[p] for p in source.shape.partitions):
                        moved.add(number)
        met = {number for found in source.found.values() for number in found.values()}
        samples = tuple(source.key(source.rows[n]) for n in sorted(moved)[:5])
        return Match(counts, len(met), len(moved), samples)

    def rewrite(self, location: Location, source: Source, jobs: Sequence[Job]) -> list[Rewritten]:
        return [self._rewrite(location, source, job) for job in jobs]

    def _rewrite(self, location: Location, source: Source, job: Job) -> Rewritten:
        old = load(location, job.footer.path)
        found = source.found.get(job.footer.path, {}) if job.touched else {}
        new: list[list[Row]] = [[] for _ in old]
        for group, position, row in numbered(old):
            new[group].append({n: source.rows[found[position]][n] for n in row} if position in found else row)
        if new == old and job.fresh is None:
            return Rewritten(job.footer.path, ())
        path = job.path if job.fresh is None else fresh_name(posixpath.dirname(job.path))
        return Rewritten(job.footer.path, (store(location, job.staging, job.staged, path, new),))

    def insert(self, location: Location, source: Source, files: NewFiles, rows: Literal["new", "all"]) -> list[Staged]:
        met = {number for found in source.found.values() for number in found.values()} if rows == "new" else set()
        by_folder: dict[str, list[Row]] = {}
        for number, row in enumerate(source.rows):
            if number not in met:
                folder = ""
                if files.partitions.columns:
                    folder = files.partitions.folder({c: pa.scalar(row[c], TYPES[c]) for c in files.partitions.columns})
                by_folder.setdefault(folder, []).append({n: row[n] for n in files.shape.stored})
        return [
            store(location, files.staging, f"new-{i}", fresh_name(folder), [found])
            for i, (folder, found) in enumerate(by_folder.items())
        ]


def load(location: Location, path: str) -> list[list[Row]]:
    found: list[list[Row]] = json.loads(location.storage.read_bytes(location.at(path)))
    return found


def store(location: Location, staging: str, name: str, path: str, groups: list[list[Row]]) -> Staged:
    data = json.dumps(groups).encode()
    location.storage.write_bytes(posixpath.join(staging, name), data)
    return Staged(name, path, sum(map(len, groups)), len(data))


def fresh_name(folder: str) -> str:
    return posixpath.join(folder, f"part-{uuid.uuid4().hex}.parquet")


def numbered(groups: list[list[Row]]) -> Iterator[tuple[int, int, Row]]:
    """Row group, row number in the file, row."""
    position = itertools.count()
    return ((g, next(position), row) for g, rows in enumerate(groups) for row in rows)


# The tests


@pytest.fixture(autouse=True)
def no_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the core touched Parquet by itself")

    for name in ("ParquetFile", "ParquetWriter", "read_table", "read_metadata", "write_table"):
        monkeypatch.setattr(pq, name, refuse)


@pytest.fixture
def lake() -> Location:
    location = locate(f"memory://lists-{uuid.uuid4().hex}/lake")
    for i in range(4):
        groups = [[{"id": i * 10 + g * 5 + n, "x": "old"} for n in range(5)] for g in range(2)]
        location.storage.write_bytes(location.at(f"f{i}.parquet"), json.dumps(groups).encode())
    return location


def run(location: Location, rows: list[Row], strategy: str, keys: Sequence[str] = ("id",), **more: Any) -> MergeResult:
    engine: Engine = ListEngine()
    return core.run(engine, location, rows, core.Request(MergeStrategy(strategy), tuple(keys), **more))


def rows_of(location: Location) -> list[Row]:
    fs, root = fsspec.filesystem("memory"), location.root
    found = []
    for path in sorted(fs.find(root)):
        partition = parse_hive_partition_path(path[len(root) + 1 :])
        found += [{**row, **partition} for group in json.loads(fs.cat_file(path)) for row in group]
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
