"""Every engine against the reference model: rows, counts, and the bytes of untouched files."""

from __future__ import annotations

import datetime as dt
import posixpath
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference
from cases import Case, cases, updates
from hypothesis import HealthCheck, given, note, settings

from fsspeckit import MergeValidationError
from fsspeckit.core.parquet import dictionaries
from support import all_names, data_files, fingerprint

ALL = ("insert", "update", "upsert", "full_merge", "deduplicate")


@pytest.fixture
def examples(request: pytest.FixtureRequest, engine: str) -> int:
    return request.config.getoption("--examples") or {"pyarrow": 300, "spark": 15}.get(engine, 100)


@pytest.fixture(params=["by executors", "by the driver"])
def little(engine: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark's driver does what is little itself, unless an option forbids it; other engines have no such choice."""
    if engine != "spark":
        if request.param == "by the driver":
            pytest.skip("of Spark only")
        yield
        return
    conf = request.getfixturevalue("spark").conf
    before = conf.get("spark.fsspeckit.driverBytes")
    conf.set("spark.fsspeckit.driverBytes", "0" if request.param == "by executors" else "8m")
    yield
    conf.set("spark.fsspeckit.driverBytes", before)


@pytest.fixture(autouse=True)
def small_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """In files of few rows too, text in dictionaries is changed by its indices."""
    monkeypatch.setattr(dictionaries, "_ROWS_PER_VALUE", 1)


def test_merge_equals_the_reference(io: Any, examples: int, little: None) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(cases(ALL))
    def check(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_case(io, case, Path(folder))

    check()


def test_updates_are_copied_or_written_anew_to_the_same_rows(io: Any, examples: int) -> None:
    ways: Counter[str] = Counter()

    @settings(max_examples=min(examples, 100), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(updates())
    def check(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            result = check_case(io, case, Path(folder))
            ways["merged"] += 1
            ways["spliced"] += result.bytes_copied > 0
            ways["written anew"] += bool(result.rewritten_files) and result.bytes_copied == 0

    check()
    assert examples < 100 or min(ways["spliced"], ways["written anew"]) > 0, ways


def check_case(io: Any, case: Case, folder: Path) -> Any:
    """What the merge says of itself, held against the reference; `None` if it was refused, as it should be."""
    lake = case.write(folder / "lake")
    before = fingerprint(lake)
    note(f"{case}")
    if case.strategy != "insert" and reference.moved(case.target, case.source, case.keys, case.partitions):
        with pytest.raises(MergeValidationError, match="cannot change"):
            run(io, case, lake)
        assert fingerprint(lake) == before
        return None
    expected, counts = reference.merge(case.target, case.source, case.keys, case.strategy)
    result = run(io, case, lake)
    assert Counter(inserted=result.inserted, updated=result.updated, deleted=result.deleted) == counts
    assert (result.target_count_before, result.target_count_after) == (len(case.target), len(expected))
    assert multiset(read(case, lake)) == multiset(expected)
    assert {f.path for f in result.files} == {posixpath.join(lake, name) for name in data_files(lake)}
    assert {f.path: f.row_count for f in result.files} == {f"{lake}/{n}": count(lake, n) for n in data_files(lake)}
    assert all_names(folder)[0] == "lake" and all(n.startswith("lake") for n in all_names(folder))
    if case.mode == "incremental" or counts.total() == 0:
        assert untouched(case, before).items() <= fingerprint(lake).items()
    return result


def run(io: Any, case: Case, lake: str) -> Any:
    return io.write_parquet_dataset(
        case.source_table(),
        lake,
        strategy=case.strategy,
        key_columns=case.keys,
        rewrite_mode=case.mode,
        partition_columns=case.partitions or None,
    )


def untouched(case: Case, before: dict[str, Any]) -> dict[str, Any]:
    """Files without a row whose key the source has; all of them for an insert."""
    wanted = {reference.key_of(row, case.keys) for row in case.source}
    numbers = [
        i
        for i, (_, rows, _) in enumerate(case.files)
        if case.strategy == "insert" or not any(reference.key_of(r, case.keys) in wanted for r in rows)
    ]
    return {n: v for n, v in before.items() if posixpath.basename(n) in {f"f{i}.parquet" for i in numbers}}


def count(lake: str, name: str) -> int:
    rows: int = pq.read_metadata(Path(lake) / name).num_rows
    return rows


def read(case: Case, lake: str) -> list[dict[str, Any]]:
    """All rows, in the types that were drawn: a new data set has the source's."""
    found = []
    for name in data_files(lake):
        table = pq.ParquetFile(Path(lake) / name).read()
        rows = pa.table({c: as_drawn(table.column(c), case.kinds[c].type) for c in table.column_names}).to_pylist()
        folders = [part.partition("=") for part in name.split("/")[:-1]]
        partition = {c: None if v.startswith("__HIVE") else case.kinds[c].type for c, _, v in folders}
        values = {
            c: None if partition[c] is None else pa.scalar(unquote(v)).cast(partition[c]).as_py() for c, _, v in folders
        }
        found += [{**row, **values} for row in rows]
    return found


def as_drawn(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Nanoseconds as numbers, since Python's datetime has none."""
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], column.type.value_type)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return column.cast(plain).cast(pa.int64() if kind == pa.timestamp("ns") else plain)


def multiset(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted((name, shown(value)) for name, value in row.items())) for row in rows)


def shown(value: Any) -> Any:
    """Instants in one zone, whatever zone a file stores them in."""
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value
