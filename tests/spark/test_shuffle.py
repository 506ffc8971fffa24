"""Rows brought to their tasks by Spark's shuffle: every task runs once, with its rows and no others."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame

from fsspeckit.core.errors import DatasetMergeError
from fsspeckit.core.model import Shape
from fsspeckit.core.rows.exchange import Bucketed, Task, by_bucket
from fsspeckit.core.rows.spool import Part, PartWriter, Spool
from fsspeckit.core.rows.store import SharedFolder
from fsspeckit.core.storage import LocalStorage, locate
from fsspeckit.datasets.spark import shuffle
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.session import Cluster
from spark_session import settings

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.string())])
Item = tuple[str, range]


@pytest.fixture(autouse=True)
def executors_cannot_import_this_file() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def spooled(folder: Path, parts: int, rows: int, text: str = "") -> Spool:
    shape, store = Shape(SCHEMA, ("id", "x"), ("id",), ()), SharedFolder(LocalStorage(), str(folder))
    written: list[Part] = []
    for part in range(parts):
        writer, ids = PartWriter(store, shape), range(part * rows, (part + 1) * rows)
        writer.write(pa.table({"id": ids, "x": [f"row {i}{text}" for i in ids]}, SCHEMA))
        written += writer.finish()
    return Spool(shape, store, tuple(written))


def by_remainder(spool: Spool, buckets: int) -> Any:
    """Rows bucketed by `id` modulo the number of buckets."""

    def send(parts: Sequence[int], only: range | None) -> Bucketed:
        for part in parts:
            for table in spool.read(part):
                yield from by_bucket(table, table.column("id").to_numpy() % buckets)

    return send


def tell(item: Item, read: Any) -> tuple[str, dict[int, Any]]:
    """The task's name, and the rows that it was given by bucket."""
    name, buckets = item
    return name, {bucket: None if (table := read(bucket)) is None else table.to_pydict() for bucket in buckets}


def tasks_of(*ranges: range) -> list[Task[Item]]:
    return [Task((f"task {n}", buckets), buckets, 1) for n, buckets in enumerate(ranges)]


@pytest.fixture(params=["by id", "by hash"])
def operation(spark: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Operation:
    """Placed exactly, as Spark can since 4.1, or by hashing, which puts several bins into one partition."""
    if request.param == "by hash":
        for kind in {DataFrame, type(spark.range(1))}:
            monkeypatch.delattr(kind, "repartitionById", raising=False)
        assert not hasattr(spark.range(1), "repartitionById")
    elif not hasattr(spark.range(1), "repartitionById"):
        pytest.skip("Spark before 4.1")
    return merging(spark, tmp_path)


def merging(spark: Any, target: Path) -> Operation:
    return Operation(Cluster(spark), "merge", locate(str(target)))


def test_every_task_runs_once_with_its_rows(operation: Operation, tmp_path: Path) -> None:
    """Also those that receive nothing: tasks without buckets, and buckets that no row has."""
    spool = spooled(tmp_path, 5, 20)
    tasks = tasks_of(range(2), range(2, 2), range(2, 3), range(3, 7), range(7, 7), range(7, 8), range(8, 8))
    results = shuffle.shuffle(operation, "rewrite", spool, by_remainder(spool, 5), tell, tasks)
    assert [name for name, _ in results] == [f"task {n}" for n in range(7)]
    rows = {bucket: rows and sorted(rows["id"]) for _, buckets in results for bucket, rows in buckets.items()}
    assert rows == {**{bucket: list(range(bucket, 100, 5)) for bucket in range(5)}, 5: None, 6: None, 7: None}
    values = {i: x for _, buckets in results for rows in buckets.values() if rows for i, x in zip(*rows.values())}
    assert values == {i: f"row {i}" for i in range(100)}


@pytest.mark.parametrize("per_batch", [10_000, 7], ids=["by default", "as the user set it"])
def test_records_come_in_batches_of_bounded_bytes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_batch: int
) -> None:
    """A batch of 10,000 payloads would be 10 GB; and the session keeps its settings while they are shuffled."""
    receive, bound = shuffle._receive, 100_000

    def measuring(batches: Iterable[pa.RecordBatch], *arguments: Any) -> dict[int, Any]:
        sizes: list[int] = []

        def seen() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                sizes.append(batch.column("payload").nbytes)
                yield batch

        return {number: (result, sizes) for number, result in receive(seen(), *arguments).items()}

    spool = spooled(tmp_path, 1, 2000, "x" * 20_000)
    monkeypatch.setattr(shuffle, "_receive", measuring)
    monkeypatch.setattr(shuffle, "PAYLOAD_BYTES", 1_000_000)
    monkeypatch.setattr(shuffle, "BATCH_BYTES", bound)
    changed: list[str] = []
    conf, put = type(spark.conf), type(spark.conf).set
    monkeypatch.setattr(conf, "set", lambda self, name, value: [changed.append(name), put(self, name, value)])
    with settings(spark, spark__sql__execution__arrow__maxRecordsPerBatch=str(per_batch)):
        changed.clear()
        received: Any = shuffle.shuffle(
            merging(spark, tmp_path), "rewrite", spool, by_remainder(spool, 20), tell, tasks_of(range(20))
        )
        assert changed == []
    (((_, buckets), sizes),) = received
    assert [buckets[i]["id"] for i in range(20)] == [list(range(i, 2000, 20)) for i in range(20)]
    assert {len(x.lstrip("row 0123456789")) for rows in buckets.values() for x in rows["x"]} == {20_000}
    assert sum(sizes) > 40_000_000
    # A record has at least a kilobyte: more than 10,000 of them in a batch is what the user asked for.
    assert max(sizes) <= (11_000_000 if per_batch == 10_000 else 1.1 * bound)


def test_an_error_of_ours_on_either_side_is_the_callers(spark: Any, tmp_path: Path) -> None:
    spool, tasks = spooled(tmp_path, 2, 10), tasks_of(range(1), range(1, 2))

    def refuse(*arguments: Any) -> Any:
        raise DatasetMergeError("refused", operation="test")

    for send, receive in ((refuse, tell), (by_remainder(spool, 2), refuse)):
        with pytest.raises(DatasetMergeError, match="refused"):
            shuffle.shuffle(merging(spark, tmp_path), "rewrite", spool, send, receive, tasks)


# -- what a sender gathers


def records(tables: Iterable[tuple[int, pa.Table]]) -> list[tuple[int, int, int, pa.Table]]:
    """Task, bucket, sequence and rows of what is sent; bucket `n` is for task `n // 10`."""
    batches = list(shuffle.sent(3, iter(tables), {bucket: bucket // 10 for bucket in range(100)}, 1 << 30))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(row["is_last"] for row in rows)
    return [(r["task"], r["bucket"], r["seq"], pa.ipc.open_stream(r["payload"]).read_all()) for r in rows]


def test_a_payload_is_cut_into_records_and_put_together_again() -> None:
    """Whatever the size of a record, and wherever Spark's batches end."""
    tables = [(bucket, pa.table({"x": range(bucket, bucket + 500)})) for bucket in (3, 14, 15)]
    for size in (1, 999, 1 << 20):
        sent = list(shuffle.sent(2, iter(tables), {3: 0, 14: 1, 15: 1}, size))
        records = pa.Table.from_batches(sent)
        assert max(map(len, records.column("payload").to_pylist())) <= size
        assert records.column("seq").to_pylist() == [(2 << 32) + i for i in range(records.num_rows)]
        for batch_rows in (1, 7, 100_000):
            found = list(shuffle._payloads(records.to_batches(max_chunksize=batch_rows)))
            assert [(task, bucket) for task, bucket, _ in found] == [(0, 3), (1, 14), (1, 15)]
            assert [shuffle._table(payload) for *_, payload in found] == [table for _, table in tables]


def test_slivers_of_wide_rows_are_gathered() -> None:
    """200 columns take 11 kB before any data."""
    sliver = pa.table({f"c{i}": [i] for i in range(200)})
    sent = records((bucket, sliver) for _ in range(50) for bucket in (4, 17))
    assert [(task, bucket, rows.num_rows) for task, bucket, _, rows in sent] == [(0, 4, 50), (1, 17, 50)]
    assert [seq for *_, seq, _ in sent] == [3 << 32, (3 << 32) + 1]


def test_a_record_is_about_a_megabyte() -> None:
    chunk = pa.table({"x": ["x" * 1000] * 100})
    sent = records((5, chunk) for _ in range(105))
    assert [rows.num_rows for *_, rows in sent] == [1100] * 9 + [600]
    assert len({seq for *_, seq, _ in sent}) == 10


def test_what_is_gathered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "GATHERED_BYTES", 4000)
    chunk = pa.table({"x": pa.array(range(100))})
    sent = records((bucket, chunk) for bucket in [*range(12), 0])
    assert [(bucket, rows.num_rows) for _, bucket, _, rows in sent] == [(n, 100) for n in [*range(12), 0]]
    assert [len(pa.concat_tables([rows])) for *_, rows in sent] == [100] * 13


def test_the_bytes_of_a_slice_are_its_own() -> None:
    """Else every sliver of a large table would weigh as much as the table."""
    whole = pa.table({"x": pa.array(range(1_000_000))})
    sent = records((1, whole.slice(i, 10)) for i in range(0, 1000, 10))
    assert [rows.column("x").to_pylist() for *_, rows in sent] == [list(range(1000))]
