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
from fsspeckit.core.spool.exchange import Labelled, Task, by_label
from fsspeckit.core.spool.parts import Part, PartWriter, Spool
from fsspeckit.core.spool.store import SharedFolder
from fsspeckit.core.storage import LocalStorage
from fsspeckit.datasets.spark import shuffle
from fsspeckit.datasets.spark.session import Cluster

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.string())])
Item = tuple[str, range]


@pytest.fixture(autouse=True)
def executors_cannot_import_this_file() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def spooled(folder: Path, parts: int, rows: int) -> Spool:
    shape, store = Shape(SCHEMA, ("id", "x"), ("id",), ()), SharedFolder(LocalStorage(), str(folder))
    written: list[Part] = []
    for part in range(parts):
        writer, ids = PartWriter(store, shape), range(part * rows, (part + 1) * rows)
        writer.write(pa.table({"id": ids, "x": [f"row {i}" for i in ids]}, SCHEMA))
        written += writer.finish()
    return Spool(shape, store, tuple(written))


def by_remainder(spool: Spool, labels: int) -> Any:
    """Rows labelled by `id` modulo the number of labels."""

    def send(parts: Sequence[int], only: range | None) -> Labelled:
        for part in parts:
            for table in spool.read(part):
                yield from by_label(table, table.column("id").to_numpy() % labels)

    return send


def tell(item: Item, read: Any) -> tuple[str, dict[int, Any]]:
    """The task's name, and the rows that it was given by label."""
    name, labels = item
    return name, {label: None if (table := read(label)) is None else table.to_pydict() for label in labels}


def tasks_of(*ranges: range) -> list[Task[Item]]:
    return [Task((f"task {n}", labels), labels, 1) for n, labels in enumerate(ranges)]


@pytest.fixture(params=["by id", "by hash"])
def cluster(spark: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Placed exactly, as Spark can since 4.1, or by hashing, which puts several bins into one partition."""
    if request.param == "by hash":
        for kind in {DataFrame, type(spark.range(1))}:
            monkeypatch.delattr(kind, "repartitionById", raising=False)
        assert not hasattr(spark.range(1), "repartitionById")
    elif not hasattr(spark.range(1), "repartitionById"):
        pytest.skip("Spark before 4.1")
    return Cluster(spark)


def test_every_task_runs_once_with_its_rows(cluster: Cluster, tmp_path: Path) -> None:
    """Also those that receive nothing: tasks without labels, and labels that no row has."""
    spool = spooled(tmp_path, 5, 20)
    tasks = tasks_of(range(2), range(2, 2), range(2, 3), range(3, 7), range(7, 7), range(7, 8), range(8, 8))
    results = shuffle.shuffle(cluster, "rewrite", spool, by_remainder(spool, 5), tell, tasks)
    assert [name for name, _ in results] == [f"task {n}" for n in range(7)]
    rows = {label: rows and sorted(rows["id"]) for _, labels in results for label, rows in labels.items()}
    assert rows == {**{label: list(range(label, 100, 5)) for label in range(5)}, 5: None, 6: None, 7: None}
    values = {i: x for _, labels in results for rows in labels.values() if rows for i, x in zip(*rows.values())}
    assert values == {i: f"row {i}" for i in range(100)}


def test_many_records_come_a_few_at_a_time(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 10,000 records, as is Spark's default, would be 10 GB."""
    receive, setting = shuffle._receive, "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)

    def counting(batches: Iterable[pa.RecordBatch], *arguments: Any) -> dict[int, Any]:
        sizes: list[int] = []

        def seen() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                sizes.append(batch.num_rows)
                yield batch

        return {number: (result, max(sizes)) for number, result in receive(seen(), *arguments).items()}

    spool = spooled(tmp_path, 1, 200)
    monkeypatch.setattr(shuffle, "_receive", counting)
    received: Any = shuffle.shuffle(
        Cluster(spark), "rewrite", spool, by_remainder(spool, 200), tell, tasks_of(range(200))
    )
    (((_, labels), largest),) = received
    assert [labels[i]["id"] for i in range(200)] == [[i] for i in range(200)]
    assert 1 < largest <= shuffle.RECORDS_PER_BATCH
    assert spark.conf.get(setting) == before


def test_an_error_of_ours_on_either_side_is_the_callers(spark: Any, tmp_path: Path) -> None:
    spool, tasks = spooled(tmp_path, 2, 10), tasks_of(range(1), range(1, 2))

    def refuse(*arguments: Any) -> Any:
        raise DatasetMergeError("refused", operation="test")

    for send, receive in ((refuse, tell), (by_remainder(spool, 2), refuse)):
        with pytest.raises(DatasetMergeError, match="refused"):
            shuffle.shuffle(Cluster(spark), "rewrite", spool, send, receive, tasks)


# -- what a sender gathers


def records(tables: Iterable[tuple[int, pa.Table]]) -> list[tuple[int, int, int, pa.Table]]:
    """Task, label, sequence and rows of what is sent; label `n` is for task `n // 10`."""
    batches = list(shuffle.sent(3, iter(tables), {label: label // 10 for label in range(100)}))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(r["task"], r["label"], r["seq"], pa.ipc.open_stream(r["payload"]).read_all()) for r in rows]


def test_slivers_of_wide_rows_are_gathered() -> None:
    """200 columns take 11 kB before any data."""
    sliver = pa.table({f"c{i}": [i] for i in range(200)})
    sent = records((label, sliver) for _ in range(50) for label in (4, 17))
    assert [(task, label, rows.num_rows) for task, label, _, rows in sent] == [(0, 4, 50), (1, 17, 50)]
    assert [seq for *_, seq, _ in sent] == [3 << 32, (3 << 32) + 1]


def test_a_record_is_about_a_megabyte() -> None:
    chunk = pa.table({"x": ["x" * 1000] * 100})
    sent = records((5, chunk) for _ in range(105))
    assert [rows.num_rows for *_, rows in sent] == [1100] * 9 + [600]
    assert len({seq for *_, seq, _ in sent}) == 10


def test_what_is_gathered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "GATHERED_BYTES", 4000)
    chunk = pa.table({"x": pa.array(range(100))})
    sent = records((label, chunk) for label in [*range(12), 0])
    assert [(label, rows.num_rows) for _, label, _, rows in sent] == [(n, 100) for n in [*range(12), 0]]
    assert [len(pa.concat_tables([rows])) for *_, rows in sent] == [100] * 13


def test_the_bytes_of_a_slice_are_its_own() -> None:
    """Else every sliver of a large table would weigh as much as the table."""
    whole = pa.table({"x": pa.array(range(1_000_000))})
    sent = records((1, whole.slice(i, 10)) for i in range(0, 1000, 10))
    assert [rows.column("x").to_pylist() for *_, rows in sent] == [list(range(1000))]
