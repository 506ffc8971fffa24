"""What happens when the source does not fit: the same answers, chunk by chunk and bucket by bucket."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from fsspeckit import DatasetMergeError
from fsspeckit.api import dataset_io
from fsspeckit.core import merge as core
from fsspeckit.core.errors import DuplicateKeyError, StorageError
from fsspeckit.core.model import MergeStrategy, Shape
from fsspeckit.core.rewrite import files, inserts
from fsspeckit.core.rows import deduplicate as dedup
from fsspeckit.core.rows import spool as parts
from fsspeckit.core.rows.exchange import by_bucket
from fsspeckit.core.rows.store import LocalStore
from fsspeckit.core.storage import locate
from fsspeckit.core.values import keys as values
from fsspeckit.datasets.duckdb import DuckDBDatasetIO, keys
from fsspeckit.datasets.duckdb.engine import DuckDBEngine
from fsspeckit.datasets.duckdb.version import library_version, supports_merge
from fsspeckit.datasets.pyarrow.engine import PyArrowEngine
from recording import Recording
from support import data_files, fingerprint, multiset, rows, write_lake

ENGINES = {"pyarrow": PyArrowEngine, "duckdb": DuckDBEngine}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays in memory; batches of a few rows, many parts and buckets: small tests go the way of large ones."""
    for engine in ENGINES.values():
        monkeypatch.setattr(engine, "spool_bytes", 0)
    monkeypatch.setattr(parts, "BATCH_ROWS", 7)
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    for module in (dedup, files, inserts):
        monkeypatch.setattr(module, "BUCKET_BYTES", 300)
    monkeypatch.setattr(keys, "CHUNK_ROWS", 7)
    monkeypatch.setattr(keys, "SCAN_ROWS", 5)
    monkeypatch.setattr(keys, "MERGE_ROWS", 11)


def streamed(table: pa.Table) -> pa.RecordBatchReader:
    """A table is held by its caller; only a stream is written out."""
    return table.to_reader(max_chunksize=10)


@pytest.fixture(params=["pyarrow", "duckdb"])
def local(request: pytest.FixtureRequest) -> str:
    """The name of an engine of one process."""
    return str(request.param)


def lake_of(folder: Path, partitioned: bool) -> str:
    rng = random.Random(5)
    ids = rng.sample(range(300), 150)
    files = {}
    for i in range(5):
        part = ids[i * 30 : i * 30 + 30]
        name = f"p={i % 3}/f{i}.parquet" if partitioned else f"f{i}.parquet"
        files[name] = pa.table({"id": part, "x": [f"old{n}" for n in part]})
    return write_lake(folder, files, row_group_size=8)


def source_of(lake: str, partitioned: bool) -> pa.Table:
    rng = random.Random(6)
    ids = rng.sample(range(300), 120)
    table = {"id": ids, "x": [f"new{n}" for n in ids]}
    if partitioned:
        there = {row["id"]: int(row["p"]) for row in rows(lake)}
        table["p"] = [there.get(n, n % 4) for n in ids]
    return pa.table(table)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "full_merge", "deduplicate"])
@pytest.mark.parametrize("use_merge", [None, False])
def test_same_answer(strategy: Any, partitioned: bool, use_merge: bool | None, tmp_path: Path) -> None:
    outcomes = []
    ways: list[tuple[str, dict[str, Any], Any]] = [
        ("pyarrow", {}, lambda table: table),
        ("pyarrow", {}, streamed),
        ("duckdb", {"use_merge": use_merge}, streamed),
    ]
    for number, (engine, options, given) in enumerate(ways):
        lake = lake_of(tmp_path / str(number), partitioned)
        table = source_of(lake, partitioned)
        table = pa.concat_tables([table, table.slice(10, 40)]) if strategy == "deduplicate" else table
        io = dataset_io(engine, **options)
        mode: Any = "full" if strategy in ("full_merge", "deduplicate") else "incremental"
        result = io.write_parquet_dataset(given(table), lake, strategy, ["id"], rewrite_mode=mode)
        counts = (result.inserted, result.updated, result.deleted, result.target_count_after)
        outcomes.append((counts, multiset(rows(lake))))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.usefixtures("tiny")
def test_rows_of_one_partition_come_together(local: str, tmp_path: Path) -> None:
    table = pa.table({"id": range(200), "p": [i % 4 for i in range(200)], "x": [str(i) for i in range(200)]})
    dataset_io(local).merge(streamed(table), str(tmp_path / "lake"), "insert", ["id"], partition_columns=["p"])
    assert len(data_files(tmp_path / "lake")) == 4
    assert [row["id"] for row in rows(tmp_path / "lake") if row["p"] == "1"] == list(range(1, 200, 4))


@pytest.mark.usefixtures("tiny")
def test_the_order_of_the_source_is_kept(local: str, tmp_path: Path) -> None:
    ids = random.Random(1).sample(range(100), 100)
    dataset_io(local).merge(streamed(pa.table({"id": ids})), str(tmp_path / "lake"), "insert", ["id"])
    assert [row["id"] for row in rows(tmp_path / "lake")] == ids


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "order",
    [
        [1, None, 3, 2, None, 3],
        [1.5, float("nan"), None, -0.0, 0.0, float("inf")],
        ["b", None, "a", "", "ü", "z"],
        [b"\xff", None, b"", b"\x00", b"a", b"b"],
        [True, False, None, True, False, False],
    ],
    ids=["int", "float", "text", "bytes", "bool"],
)
def test_deduplicate_keeps_the_greatest(order: list[Any], tmp_path: Path) -> None:
    """Many copies of each key over many chunks; null is least and NaN greatest; as PyArrow does it."""
    count = 60
    table = pa.table(
        {
            "id": [i % 10 for i in range(count)],
            "by": [order[(i // 10) % len(order)] for i in range(count)],
            "then": list(range(count)),
        }
    )
    outcomes = []
    for number, (engine, given) in enumerate(
        [("pyarrow", table), ("pyarrow", streamed(table)), ("duckdb", streamed(table))]
    ):
        lake = tmp_path / str(number)
        order_by = ["by", "then"]
        dataset_io(engine).write_parquet_dataset(given, str(lake), "deduplicate", ["id"], dedup_order_by=order_by)
        outcomes.append(sorted(repr(row) for row in rows(lake)))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert len(outcomes[0]) == 10


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("order_by", [None, ["by"]])
def test_ties_between_differing_rows(order_by: list[str] | None, tmp_path: Path) -> None:
    same, other = float("nan"), [1.0, None, -0.0]
    table = pa.table(
        {
            "id": [*range(20), *range(20)],
            "by": [1] * 40,
            "x": pa.array([[same, *other]] * 37 + [[same, 1.0, None, 0.0]] * 3, pa.list_(pa.float64())),
        }
    )
    messages = []
    for engine in ("pyarrow", "duckdb"):
        with pytest.raises(DuplicateKeyError) as caught:
            dataset_io(engine).write_parquet_dataset(
                streamed(table), str(tmp_path / engine), "deduplicate", ["id"], dedup_order_by=order_by
            )
        messages.append(str(caught.value))
        assert not (tmp_path / engine).exists()
    assert messages[0] == messages[1]
    assert "3 key(s)" in messages[1] and "17, 18, 19" in messages[1]
    result = DuckDBDatasetIO().write_parquet_dataset(
        streamed(table.slice(0, 37)), str(tmp_path / "good"), "deduplicate", ["id"], dedup_order_by=order_by
    )
    assert result.inserted == 20


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "column",
    [
        pa.array([*range(0, 3000, 3), *range(10**12, 10**12 + 500)]),
        pa.array([2**64 - 1, 0, 2**63, 5, *range(100)], pa.uint64()),
        pa.array([-1.5, 2.5, -(10.0**300), 0.0, -0.0, *range(50)]),
        pa.array([f"{i:05d}" for i in range(100)] + ["zzz", ""]),
        pa.array([-5, 7, 10**15, *range(20)]).cast(pa.decimal128(38, 2)),
        pa.array([1.0, float("nan"), *range(30)]),
        pa.array([1, 2, 10**9] * 20, pa.timestamp("ms")),
    ],
    ids=["int", "uint64", "float", "text", "decimal", "nan", "time"],
)
def test_intervals_are_those_of_the_core(column: pa.Array) -> None:
    """Intervals of a spool's many batches cover as little as those of the whole column."""
    shape = Shape(pa.schema([("id", column.type)]), ("id",), ("id",), ())
    table = pa.table({"id": column.take(pa.array(np.random.default_rng(3).permutation(len(column))))})
    writer = parts.PartWriter(LocalStore(0), shape)
    for start in range(0, len(table), 7):
        writer.write(table.slice(start, 7))
    covers = [part.intervals[0] for part in writer.finish()]
    assert len(covers) > 1
    found = values.merge_intervals(covers)
    expected = values.intervals(column)
    assert (found is None) == (expected is None)
    if expected is not None:
        assert found is not None and len(found) <= values.MAX_INTERVALS
        assert (
            sum(upper - lower for lower, upper in found) == sum(upper - lower for lower, upper in expected)
            if not (isinstance(expected[0][0], bytes))
            else found == expected
        )


def test_less_at_a_time_when_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A MERGE of too many rows at once runs out of memory; a quarter of them does not."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": range(100), "x": ["old"] * 100})})
    monkeypatch.setattr(keys, "MERGE_ROWS", 64)
    monkeypatch.setattr(keys, "MIN_MERGE_ROWS", 2)
    sizes: list[int] = []

    def note(self: Recording, text: str) -> None:
        if "MERGE INTO" in text:
            start, stop = (int(text.split(mark)[1].split()[0].rstrip(")")) for mark in ("row >= ", "row < "))
            sizes.append(stop - start)
            if stop - start > 20:
                raise duckdb.OutOfMemoryException("too much")

    monkeypatch.setattr(Recording, "note", note)
    if not supports_merge(library_version()):
        pytest.skip("this DuckDB has no MERGE statement")
    table = pa.table({"id": range(50, 150), "x": ["new"] * 100})
    result = DuckDBDatasetIO(Recording()).merge(table, lake, "upsert", ["id"])
    assert (result.inserted, result.updated) == (50, 50)
    assert sizes == [64, *[16] * 7]


def test_a_limit_that_nothing_fits_in(tmp_path: Path) -> None:
    """An error that names the cause; the data set and the connection are as they were."""
    lake = write_lake(
        tmp_path / "lake", {"f.parquet": pa.table({"id": [str(i) for i in range(10)], "x": ["old"] * 10})}
    )
    con = duckdb.connect()
    con.execute("SET temp_directory = ''")
    con.execute("SET memory_limit = '20MB'")
    before = fingerprint(lake)
    with pytest.raises(DatasetMergeError, match=r"MERGE operation failed: .*Memory"):
        DuckDBDatasetIO(con).merge(
            path=lake,
            strategy="upsert",
            key_columns=["id"],
            source_sql="SELECT repeat('x', 1000) || range AS id, 'new' AS x FROM range(100000)",
        )
    assert fingerprint(lake) == before


def test_more_than_the_memory_limit(tmp_path: Path) -> None:
    """60 MB of rows with 40 MB allowed: it spills, and nothing is left of that."""
    lake = write_lake(tmp_path / "lake", {"f.parquet": pa.table({"id": range(0, 60_000, 2), "x": ["old"] * 30_000})})
    con = duckdb.connect()
    con.execute(f"SET temp_directory = '{tmp_path / 'spill'}'")
    con.execute("SET memory_limit = '60MB'")
    result = DuckDBDatasetIO(con).merge(
        path=lake,
        strategy="upsert",
        key_columns=["id"],
        source_sql="SELECT range AS id, repeat('x', 2000) || range AS x FROM range(60000)",
    )
    assert (result.inserted, result.updated) == (30_000, 30_000)
    assert con.execute("SELECT count(*) FROM duckdb_temporary_files()").fetchone() == (0,)
    assert all(row["x"].endswith(f"x{row['id']}") for row in rows(lake))


@pytest.mark.parametrize(("count", "expected"), [(1, [4]), (2, [2, 2]), (5, [1, 1, 1, 1, 4]), (8, [1] * 8)])
def test_few_large_files_are_written_by_all_threads(
    count: int, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, seen = files.rewrite_file, []  # type: ignore[attr-defined]

    def note(*arguments: Any) -> Any:
        seen.append(arguments[4].workers)
        return original(*arguments)

    monkeypatch.setattr(files, "rewrite_file", note)
    monkeypatch.setattr(files, "_PARALLEL_BYTES", 0)
    old = {f"f{i}.parquet": pa.table({"id": [i], "x": ["old"], "y": [1.5]}) for i in range(count)}
    lake = write_lake(tmp_path / "lake", old)
    request = core.Request(MergeStrategy.UPSERT, ("id",))
    new = pa.table({"id": range(count), "x": ["new"] * count, "y": [2.5] * count})
    core.run(PyArrowEngine(threads=4), locate(lake), new, request)
    assert sorted(seen) == expected
    assert {(row["x"], row["y"]) for row in rows(lake)} == {("new", 2.5)}


@pytest.mark.parametrize("verb", ["merge", "plan"])
def test_a_disk_that_takes_no_more_of_the_source_is_named(
    local: str, verb: str, tmp_path: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not be the data set's: `plan` has the system's temporary folder, DuckDB its `temp_directory`."""
    lake, spill = lake_of(tmp_path / "lake", False), tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spill))
    io = (
        DuckDBDatasetIO(duckdb.connect(config={"temp_directory": str(spill)}))
        if local == "duckdb"
        else dataset_io(local)
    )
    source = source_of(lake, False)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    place = tmp_path if (local, verb) == ("pyarrow", "merge") else spill
    before = fingerprint(lake)
    with pytest.raises(StorageError, match=f"rows of the source to {place}.*No space left.*Free disk space") as caught:
        getattr(io, verb)(streamed(source), lake, "upsert", ["id"])
    assert caught.value.errno == errno.ENOSPC
    assert fingerprint(lake) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "spill"]
    assert list(spill.iterdir()) == []


def test_new_rows_of_partitions_are_dealt_batch_by_batch(
    local: str, tmp_path: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part at once was held three times: 290 MB of rows in seven partitions took 850 MB, and take 480."""
    monkeypatch.setattr(parts, "PART_BYTES", 1 << 20)
    counts = list[int]()

    def recorded(table: pa.Table, buckets: Any) -> Any:
        counts.append(table.num_rows)
        return by_bucket(table, buckets)

    monkeypatch.setattr(inserts, "by_bucket", recorded)
    source = pa.table({"id": range(60), "p": [n % 5 for n in range(60)]})
    assert dataset_io(local).merge(streamed(source), str(tmp_path / "lake"), "upsert", ["id"], ["p"]).inserted == 60
    assert sum(counts) == 60 and max(counts) <= 7


def test_a_row_that_replaces_many_is_not_multiplied_at_once(
    local: str, tmp_path: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten rows of 4 MB that met sixty each were 2.4 GB in one table, and more than offsets can count."""
    monkeypatch.setattr(files, "PART_BYTES", 100)
    lake = write_lake(tmp_path / "lake", {f"f{i}.parquet": pa.table({"id": [1, 1], "x": ["o"] * 2}) for i in range(30)})
    sent, changes_of_hits = list[int](), files.changes_of_hits  # type: ignore[attr-defined]

    def recorded(spool: Any, hits: pa.Table) -> pa.Table:
        sent.append(hits.num_rows)
        return changes_of_hits(spool, hits)

    monkeypatch.setattr(files, "changes_of_hits", recorded)
    source = pa.table({"id": [1], "x": ["n" * 20]})
    assert dataset_io(local).merge(streamed(source), lake, "update", ["id"]).updated == 60
    assert sum(sent) == 60 and max(sent) <= 5
    assert {row["x"] for row in rows(lake)} == {"n" * 20}
