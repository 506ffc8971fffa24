"""The key sets of Spark give what the index in memory gives: counts, facts about source rows, and hits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.actions import PRESETS, Actions
from fsspeckit.core.dataset.footers import read_footers
from fsspeckit.core.dataset.listing import list_files
from fsspeckit.core.match.hits import MatchResult
from fsspeckit.core.match.key_index import IndexedKeys, KeySet
from fsspeckit.core.model import DeleteRows, Scan, Shape
from fsspeckit.core.rows import spool as parts
from fsspeckit.core.rows.spool import Part, PartWriter, Spool
from fsspeckit.core.rows.store import SharedFolder
from fsspeckit.core.storage import LocalStorage, Location, locate
from fsspeckit.datasets.spark.keys import BroadcastKeys, JoinedKeys
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.session import Cluster
from spark_session import settings
from support import write_lake

SEQUENCES: dict[str, pa.DataType] = {
    "int": pa.int8(),
    "float": pa.float64(),
    "decimal": pa.decimal128(5, 2),
    "text": pa.string(),
}
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("s", pa.int8()), ("t", pa.int8()), ("p", pa.int64())])


def value(chance: random.Random, kind: str) -> Any:
    if kind == "text":
        return chance.choice(["", "a", "ab", "b", "\x00", "ü"])
    if kind == "float":
        return chance.choice([-1.5, -0.0, 0.0, 2.0, float("nan"), float("-inf")])
    number = chance.randrange(-2, 3)
    return Decimal(number) / 4 if kind == "decimal" else number


def table(chance: random.Random, rows: int, schema: pa.Schema, kind: str, nulls: float) -> pa.Table:
    def maybe(drawn: Any) -> Any:
        return None if chance.random() < nulls else drawn

    columns = {
        "a": [maybe(chance.randrange(12)) for _ in range(rows)],
        "b": [maybe(chance.choice("xy")) for _ in range(rows)],
        "s": [maybe(value(chance, kind)) for _ in range(rows)],
        "t": [maybe(chance.randrange(-1, 2)) for _ in range(rows)],
        "p": [chance.choice([None, 0, 1, 2]) for _ in range(rows)],
    }
    return pa.table({name: columns[name] for name in schema.names}, schema)


def spooled(folder: Path, rows: pa.Table, shape: Shape) -> Spool:
    """Three parts; one row per key, as after the checks of a merge."""
    folder.mkdir()
    store, written = SharedFolder(LocalStorage(), str(folder)), list[Part]()
    firsts = {key: row for row, key in reversed(list(enumerate(zip(*(rows.column(k).to_pylist() for k in "ab")))))}
    one_per_key = rows.take(sorted(firsts.values()))
    for start in range(0, one_per_key.num_rows, 8):
        writer = PartWriter(store, shape)
        writer.write(one_per_key.slice(start, 8))
        written += writer.finish()
    return Spool(shape, store, tuple(written))


def lake(folder: Path, chance: random.Random, schema: pa.Schema, kind: str) -> tuple[Location, list[Scan]]:
    """Four partitions, of which one is null, with two files of several row groups each."""
    stored = pa.schema([field for field in schema if field.name != "p"])
    folders = ("p=0", "p=1", "p=2", "p=__HIVE_DEFAULT_PARTITION__")
    files = {f"{name}/f{i}.parquet": table(chance, 11, stored, kind, 0.15) for name in folders for i in range(2)}
    location = locate(write_lake(folder, files, row_group_size=4))
    footers = read_footers(location, list_files(location), ())
    return location, [Scan(footer, tuple(range(len(footer.row_groups)))) for footer in footers]


def found(keys: KeySet, location: Location, scans: list[Scan]) -> tuple[Any, Any]:
    result: MatchResult = keys.match(location, scans)
    return result.match, Counter(map(repr, result.hits.read().to_pylist()))


@pytest.fixture
def operation(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operation]:
    """Hits come in batches of three: those of one source row are in several."""
    monkeypatch.setattr(parts, "BATCH_ROWS", 5)
    with settings(spark, spark__sql__execution__arrow__maxRecordsPerBatch="3"):
        yield Operation(Cluster(spark), "merge", locate(str(tmp_path)))


# The strategy, the type and number of sequence columns, and whether some source rows are deletes.
CASES = [
    ("upsert", "int", 0, True),
    ("upsert", "int", 1, True),
    ("upsert", "float", 1, False),
    ("upsert", "decimal", 1, False),
    ("upsert", "text", 2, True),
    ("insert", "int", 0, False),
    ("delete", "text", 1, False),
]


@pytest.mark.parametrize(("strategy", "kind", "sequence", "has_deletes"), CASES)
def test_both_give_what_the_index_gives(
    operation: Operation, tmp_path: Path, strategy: str, kind: str, sequence: int, has_deletes: bool
) -> None:
    chance, actions = random.Random(f"{strategy} {kind} {sequence}"), PRESETS[strategy]
    schema = SCHEMA.set(2, pa.field("s", SEQUENCES[kind]))
    deletes = DeleteRows("op", None, "is_delete") if has_deletes else None
    shape = Shape(schema, ("a", "b", "s", "t"), ("a", "b"), ("p",), sequence=("s", "t")[:sequence], deletes=deletes)
    rows = table(chance, 60, schema, kind, nulls=0)
    if deletes is not None:
        rows = rows.append_column("is_delete", pa.array([chance.random() < 0.3 for _ in range(60)]))
    spool = spooled(tmp_path / "spool", rows, shape)
    location, scans = lake(tmp_path / "lake", chance, schema, kind)
    expected = found(IndexedKeys(spool, operation.cluster.local_engine, actions), location, scans)
    assert found(BroadcastKeys(operation, spool, actions), location, scans) == expected
    assert found(JoinedKeys(operation, spool, actions), location, scans) == expected
    match, hits = expected
    assert match.keys > 10 and match.total.total == sum(hits.values()) > 40
    if strategy == "upsert":
        assert match.total.updated and match.elsewhere > match.moved > 0 and len(match.elsewhere_samples) == 5
        assert bool(match.total.skipped) == bool(sequence)


def test_a_source_row_with_hits_everywhere_counts_once(operation: Operation, tmp_path: Path) -> None:
    """One key in all partitions, of which one row is newer: hits of one source row fill several batches."""
    shape = Shape(SCHEMA, ("a", "b", "s", "t"), ("a",), ("p",), sequence=("s",))
    rows = pa.table({"a": [1, 2], "b": ["x", "x"], "s": [5, 5], "t": [0, 0], "p": [7, 1]}, SCHEMA)
    spool = spooled(tmp_path / "spool", rows, shape)
    same = pa.table({"a": [1, 2] * 4, "b": ["y"] * 8, "s": [4, 4, 5, 5, None, 4, 6, 6], "t": [None] * 8})
    files = {f"p={p}/f.parquet": same.cast(SCHEMA.remove(4)) for p in range(3)}
    location = locate(write_lake(tmp_path / "lake", files, row_group_size=2))
    footers = read_footers(location, list_files(location), ())
    scans = [Scan(footer, (0, 1, 2, 3)) for footer in footers]
    actions = Actions(matched="update", new="insert", moved="move")
    for keys in (BroadcastKeys(operation, spool, actions), JoinedKeys(operation, spool, actions)):
        match = keys.match(location, scans).match
        assert (match.keys, match.elsewhere, match.moved) == (2, 2, 1)
        assert match.elsewhere_samples == ((1,), (2,))
        assert (match.total.updated, match.total.deleted, match.total.skipped) == (3, 9 + 6, 3 + 3)


@pytest.mark.parametrize("keys", [BroadcastKeys, JoinedKeys])
def test_without_files_nothing_matches(operation: Operation, tmp_path: Path, keys: Any) -> None:
    shape = Shape(SCHEMA, ("a", "b", "s", "t"), ("a",), ("p",), sequence=("s",))
    rows = pa.table({"a": [1], "b": ["x"], "s": [5], "t": [0], "p": [7]}, SCHEMA)
    spool = spooled(tmp_path / "spool", rows, shape)
    match, hits = found(keys(operation, spool, PRESETS["upsert"]), locate(str(tmp_path)), [])
    assert (match.groups, match.keys, match.elsewhere, match.moved, hits) == ({}, 0, 0, 0, Counter())
