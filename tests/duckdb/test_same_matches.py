"""Both ways of matching in DuckDB, the MERGE statement and the join, find what `IndexedKeys` finds."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from fsspeckit.core.actions import PRESETS, Actions, HitAction
from fsspeckit.core.dataset.target import read_target
from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.local_engine import ArrowSource
from fsspeckit.core.match.hits import Hits, MatchResult
from fsspeckit.core.match.key_index import IndexedKeys
from fsspeckit.core.model import RowOptions, Scan
from fsspeckit.core.rows import spool as spools
from fsspeckit.core.storage import locate
from fsspeckit.core.values.shape import shape_of
from fsspeckit.datasets.duckdb import keys
from fsspeckit.datasets.duckdb.engine import DuckDBEngine
from fsspeckit.datasets.duckdb.keys import SqlKeys
from fsspeckit.datasets.duckdb.version import library_version, supports_merge
from fsspeckit.datasets.duckdb.workspace import Workspace
from fsspeckit.datasets.pyarrow.engine import PyArrowEngine
from support import write_lake

native_only = pytest.mark.skipif(not supports_merge(library_version()), reason="this DuckDB has no MERGE statement")
WAYS = [pytest.param(True, marks=native_only, id="native"), pytest.param(False, id="union")]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-1, 0, 5, 2**40],
    pa.string(): ["", "a", "ä", "b\0"],
    pa.float64(): [float("-inf"), -1.5, 0.0, float("nan")],
    pa.decimal128(20, 2): [Decimal("-1.00"), Decimal("0.50"), Decimal("3.00"), Decimal("10.00")],
}


@dataclass(frozen=True)
class Case:
    """The target's `files`, the source and what to do with it. A `spilled` source is in several parts on disk."""

    files: dict[str, pa.Table]
    source: pa.Table
    keys: list[str]
    options: RowOptions
    actions: Actions
    spilled: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    strategy = draw(st.sampled_from(["insert", "update", "upsert", "delete"]))
    key_types = [pa.int64(), *draw(st.sampled_from([[], [pa.string()], [pa.float64()]]))]
    sequence_types = draw(st.lists(st.sampled_from(list(VALUES)), max_size=2))
    partitioned, deletes = draw(st.booleans()), strategy in ("update", "upsert") and draw(st.booleans())
    key_names = [f"key{i}" for i in range(len(key_types))]
    key_columns = dict(zip(key_names, key_types, strict=True))
    sequence = {f"seq{i}": dtype for i, dtype in enumerate(sequence_types)}
    folders = [f"p={p}/" for p in "xyz"] if partitioned else [""]
    names = draw(st.lists(st.sampled_from([f"{f}{i}.parquet" for f in folders for i in "01"]), min_size=1, unique=True))
    rows = partial(_rows, draw, {**key_columns, **sequence})
    files = {name: rows(True, 12) for name in names}
    source = _one_per_key(rows(False, 15), key_names)
    if partitioned:
        source = source.append_column("p", _column(draw, [*"xyz"], source.num_rows, pa.string()))
    if deletes:
        source = source.append_column("gone", _column(draw, [True, False, None], source.num_rows, pa.bool_()))
    options = RowOptions("gone" if deletes else None, sequence_by=tuple(sequence), only_keys=strategy == "delete")
    return Case(files, source, key_names, options, PRESETS[strategy], draw(st.booleans()))


def _rows(draw: st.DrawFn, types: dict[str, pa.DataType], nulls: bool, most: int) -> pa.Table:
    count = draw(st.integers(0, most))
    columns = {}
    for name, dtype in types.items():
        values = [*range(8)] if name == "key0" else VALUES[dtype]
        columns[name] = _column(draw, [*values, None] if nulls else values, count, dtype)
    return pa.table(columns)


def _column(draw: st.DrawFn, values: list[Any], count: int, dtype: pa.DataType) -> pa.Array:
    return pa.array(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)), dtype)


def _one_per_key(table: pa.Table, names: list[str]) -> pa.Table:
    first: dict[Any, int] = {}
    for number, row in enumerate(table.to_pylist()):
        first.setdefault(tuple(repr(row[name]) for name in names), number)
    return table.take(pa.array(first.values(), pa.int64()))


@contextlib.contextmanager
def spooled(case: Case, folder: str) -> Iterator[tuple[Any, list[Scan], spools.Spool]]:
    lake = write_lake(Path(folder) / "lake", case.files, row_group_size=4)
    location = locate(lake)
    target = read_target(PyArrowEngine().footers, location, case.keys, None)
    shape = shape_of(target, case.source.schema, case.keys, options=case.options)
    batches = case.source.to_batches(max_chunksize=3)
    rows: Any = (lambda: iter(batches)) if case.spilled else case.source
    spool = ArrowSource(case.source.schema, rows, 0, folder).spool(shape, None)
    scans = [Scan(footer, tuple(range(len(footer.row_groups)))) for footer in target.files]
    with contextlib.closing(spool.store):
        yield location, scans, spool


def hits(found: Hits) -> list[dict[str, Any]]:
    order = [(name, "ascending") for name in ("file", "row_group", "position")]
    return list(found.read().sort_by(order).to_pylist())


def match_both(connection: Any, case: Case, native: bool) -> tuple[MatchResult, MatchResult, list[dict[str, Any]]]:
    """The results of DuckDB and of the index, which must be the same, and the hits."""
    with tempfile.TemporaryDirectory() as folder, spooled(case, folder) as (location, scans, spool):
        expected = IndexedKeys(spool, PyArrowEngine(), case.actions).match(location, scans)
        with contextlib.closing(Workspace(connection)) as workspace:
            found = SqlKeys(workspace, spool, case.actions, native).match(location, scans)
        assert hits(found.hits) == hits(expected.hits)
        assert found.hits.files == expected.hits.files
        parts = found.hits.read().column("part").to_pylist()
        assert not case.spilled or parts == sorted(parts)
        return found, expected, hits(found.hits)


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts, chunks and statements for a few rows."""
    monkeypatch.setattr(spools, "PART_BYTES", 60)
    monkeypatch.setattr(spools, "BATCH_ROWS", 3)
    monkeypatch.setattr(keys, "CHUNK_ROWS", 5)
    monkeypatch.setattr(keys, "SCAN_ROWS", 5)
    monkeypatch.setattr(keys, "MERGE_ROWS", 4)


@pytest.mark.parametrize("native", WAYS)
@pytest.mark.parametrize("all_loaded", [True, False])
def test_same_as_the_index(
    native: bool,
    all_loaded: bool,
    connection: Any,
    small_chunks: None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if all_loaded:
        monkeypatch.setattr(keys, "SMALL_SOURCE_ROWS", -1)

    @settings(
        max_examples=request.config.getoption("--examples") or 50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(cases())
    def check(case: Case) -> None:
        note(str(case))
        found, expected, _ = match_both(connection, case, native)
        assert repr(found.match) == repr(expected.match), "the text, because NaN in samples is not equal to itself"

    check()


FEED = Case(
    files={
        "p=x/0.parquet": pa.table({"id": [1, 2, 3, 4, 5, None], "seq": [1, 1, 9, 9, None, 1]}),
        "p=y/0.parquet": pa.table({"id": [1, 6, 7, 3, 8], "seq": [1, 1, 1, 1, 9]}),
    },
    source=pa.table(
        {
            "id": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            "seq": [5] * 10,
            "p": ["x", "x", "x", "x", "x", "x", None, "x", "y", "y"],
            "gone": [False, True, False, True, True, False, True, False, False, True],
        }
    ),
    keys=["id"],
    options=RowOptions("gone", sequence_by=("seq",)),
    actions=PRESETS["upsert"],
    spilled=False,
)


@pytest.mark.parametrize("native", WAYS)
def test_every_action(native: bool, connection: Any) -> None:
    """The numbers are ids. 1 and 3 have a row at home, so that only 6 moves; 4 is a delete row, which has no partition;
    5 is deleted, since the target's null is least; 9 is new."""
    found, expected, rows = match_both(connection, FEED, native)
    assert found.match == expected.match
    assert [(hit["file"], hit["row"] + 1, HitAction(hit["action"]).name) for hit in rows] == [
        (0, 1, "UPDATE"),
        (0, 2, "DELETE"),
        (0, 3, "SKIP"),
        (0, 4, "SKIP_ELSEWHERE"),
        (0, 5, "DELETE"),
        (1, 1, "MOVE"),
        (1, 6, "MOVE"),
        (1, 7, "DELETE"),
        (1, 3, "MOVE"),
        (1, 8, "SKIP_ELSEWHERE"),
    ]
    match = found.match
    assert (match.keys, match.elsewhere, match.elsewhere_samples, match.moved) == (4, 3, ((1,), (3,), (6,)), 1)


@pytest.mark.parametrize("column", ["UPDATE", "DELETE"])
@native_only
def test_counts_that_differ_from_the_positions(column: str, connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement's counts are checked: a row that it counted and that has no position stops the merge."""
    counted = keys._counted

    def one_more(returned: pa.Table) -> Any:
        counts = counted(returned)
        counts[HitAction[column]] += 1
        return counts

    monkeypatch.setattr(keys, "_counted", one_more)
    with pytest.raises(DatasetMergeError, match=f"it counted .*{column}: .*but the positions say"):
        match_both(connection, FEED, native=True)


def test_the_engine_chooses_the_way(connection: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, spooled(FEED, folder) as (location, scans, spool):
        engine = DuckDBEngine(lambda: connection, use_merge=False)
        with engine.keys(spool, FEED.actions) as key_set:
            assert key_set.match(location, scans).match.moved == 1
