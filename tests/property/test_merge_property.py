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
from feeds import feeds, two_feeds
from hypothesis import HealthCheck, given, note, settings

from fsspeckit.core.errors import DuplicateKeyError, MergeValidationError, NullKeyError, PartitionMoveError
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


REFUSALS = {
    "null key": NullKeyError,
    "duplicates": DuplicateKeyError,
    "move": PartitionMoveError,
    "null sequence": MergeValidationError,
    "no row to keep": MergeValidationError,
    "no partition": MergeValidationError,
}


def test_feeds_equal_the_reference(io: Any, examples: int, little: None) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(feeds())
    def check(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_case(io, case, Path(folder))

    check()


def test_the_same_feed_twice_ends_in_the_same_rows(io: Any, examples: int) -> None:
    @settings(max_examples=max(5, examples // 3), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(feeds())
    def check(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            if check_case(io, case, Path(folder)) is None:
                return
            lake, found = f"{folder}/lake", multiset(read(case, f"{folder}/lake"))
            before = fingerprint(lake)
            again = run(io, case, lake)
            assert (again.inserted, again.deleted, again.moved, again.changed) == (0, 0, 0, 0)
            assert multiset(read(case, lake)) == found
            assert fingerprint(lake) == before, "nothing differs, so no file is written"

    check()


def test_two_feeds_in_either_order_end_in_the_same_rows(io: Any, examples: int) -> None:
    @settings(max_examples=max(5, examples // 3), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(two_feeds())
    def check(pair: tuple[Case, Case]) -> None:
        first, second = pair
        note(f"{pair}")
        found = []
        for order in ((first, second), (second, first)):
            with tempfile.TemporaryDirectory() as folder:
                lake = first.write(Path(folder) / "lake")
                for case in order:
                    run(io, case, lake)
                found.append(multiset(read(first, lake)))
        assert found[0] == found[1]

    check()


def check_case(io: Any, case: Case, folder: Path) -> Any:
    """What the merge says of itself, held against the reference; `None` if it was refused, as it should be."""
    lake = case.write(folder / "lake")
    before = fingerprint(lake)
    note(f"{case}")
    expected = reference.merge(
        [rows for _, rows, _ in case.files], case.source, case.keys, case.partitions, case.options
    )
    if isinstance(expected, reference.Refused):
        check_refusal(io, case, lake, expected)
        assert fingerprint(lake) == before
        return None
    plan = None if case.mode != "merge" else planned(io, case, lake)
    result = run(io, case, lake)
    note(f"{result}")
    check_counts(result, plan, expected)
    assert (result.target_count_before, result.target_count_after) == (len(case.target), len(expected.rows))
    blank = dict.fromkeys(case.columns)
    assert multiset(read(case, lake)) == multiset([{**blank, **row} for row in expected.rows])
    assert {f.path for f in result.files} == {posixpath.join(lake, name) for name in data_files(lake)}
    assert {f.path: f.row_count for f in result.files} == {f"{lake}/{n}": count(lake, n) for n in data_files(lake)}
    assert all_names(folder)[0] == "lake" and all(n.startswith("lake") for n in all_names(folder))
    if case.mode != "full" or expected.counts.total() == 0:
        assert untouched(case, expected, before).items() <= fingerprint(lake).items()
    if case.mode == "merge":
        check_nothing_is_empty(case, lake)
    return result


def check_refusal(io: Any, case: Case, lake: str, expected: reference.Refused) -> None:
    for call in (run,) if case.mode != "merge" else (planned, run):
        with pytest.raises(MergeValidationError) as caught:
            call(io, case, lake)
        assert isinstance(caught.value, tuple(REFUSALS[reason] for reason in expected.reasons)), expected.reasons


def check_counts(result: Any, plan: Any, expected: reference.Merged) -> None:
    """`changed` is known after the merge only, and not by every way of writing."""
    known = [name for name in expected.counts if plan is not None or name in ("inserted", "updated", "deleted")]
    assert {name: getattr(result, name) for name in known} == {name: expected.counts[name] for name in known}
    if plan is not None:
        before = [name for name in known if name != "changed"]
        assert {name: getattr(plan, name) for name in before} == {name: expected.counts[name] for name in before}
        assert sum(file.skipped_rows for file in plan.files) == expected.counts["skipped"]
        assert plan.target_count_after == result.target_count_after


def check_nothing_is_empty(case: Case, lake: str) -> None:
    """A file that loses all rows goes, and an empty folder does; the last file stays."""
    names = data_files(lake)
    without_rows = [posixpath.basename(name).split(".")[0] for name in names if not count(lake, name)]
    old = {f"f{number}" for number, (_, rows, _) in enumerate(case.files) if not rows}
    assert set(without_rows) <= old or len(names) == 1
    assert bool(names) or not case.files
    folders = [name for name in all_names(lake) if (Path(lake) / name).is_dir()]
    assert all(any(name.startswith(folder + "/") for name in names) for folder in folders)


def arguments(case: Case) -> dict[str, Any]:
    return {"key_columns": case.keys, "partition_columns": case.partitions or None}


def run(io: Any, case: Case, lake: str) -> Any:
    strategy, table = case.options.strategy, case.source_table()
    if case.mode == "merge":
        return io.merge(table, lake, strategy, **arguments(case), **case.options.arguments())
    return io.write_parquet_dataset(table, lake, strategy=strategy, rewrite_mode=case.mode, **arguments(case))


def planned(io: Any, case: Case, lake: str) -> Any:
    options = case.options
    return io.plan(case.source_table(), lake, options.strategy, **arguments(case), **options.arguments())


def untouched(case: Case, expected: reference.Merged, before: dict[str, Any]) -> dict[str, Any]:
    """Files of which no row is updated or deleted."""
    names = {f"f{number}.parquet" for number in range(len(case.files)) if number not in expected.touched}
    return {name: seen for name, seen in before.items() if posixpath.basename(name) in names}


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
