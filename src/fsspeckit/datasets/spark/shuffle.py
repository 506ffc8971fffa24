"""Rows brought to their tasks by Spark's own shuffle, as Arrow in binary, so that its types never touch a value.

What an executor lost is computed again from the spool, which is durable. A record is some rows of one label; `task` is
the bin of tasks that receives them. Every bin gets a record without rows, so that tasks which receive nothing run too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from fsspeckit.core.spool.exchange import Dealt, Labelled, Read, Send, Task
from fsspeckit.core.spool.parts import Spool
from fsspeckit.core.spool.store import LocalStore, one_batch
from fsspeckit.datasets.spark.session import OUTCOME, Cluster, collect, mapped, outcome, spread
from fsspeckit.datasets.spark.shared import Shared

Item = TypeVar("Item")
Result = TypeVar("Result")

_RECORD = pa.schema([("task", pa.int32()), ("label", pa.int32()), ("seq", pa.int64()), ("payload", pa.binary())])
_RECORD_TYPES = "task int, label int, seq bigint, payload binary"
PAYLOAD_BYTES = 1 << 20
"""The schema of 200 columns takes 11 kB before any data: slivers are gathered."""
GATHERED_BYTES = 64 << 20
RECEIVED_BYTES = 64 << 20
RECORDS_PER_BATCH = 32
_NOTHING = -1


def shuffle(
    cluster: Cluster,
    step: str,
    spool: Spool,
    send: Send,
    receive: Callable[[Item, Read], Result],
    tasks: Sequence[Task[Item]],
) -> list[Result]:
    """See `core.spool.exchange.Runner.exchange`."""
    sizes = [task.size for task in tasks]
    bins = spread(sizes, cluster.task_count(sizes))
    bin_of = {label: number for number, members in enumerate(bins) for i in members for label in tasks[i].labels}

    def records(sender: int, parts: list[int]) -> Iterator[pa.RecordBatch]:
        if sender == 0:
            yield from (_record(number, _NOTHING, 0, b"") for number in range(len(bins)))
        yield from sent(sender, send(sorted(parts), None), bin_of)

    records_frame = cluster.rows(records, [part.bytes for part in spool.parts], _RECORD_TYPES)
    # Hashing, before Spark 4.1, may put several bins into one partition and none into another.
    place = getattr(records_frame, "repartitionById", records_frame.repartition)
    placed = place(len(bins), F.col("task")).sortWithinPartitions("task", "label", "seq")
    receiver = _receiver(receive, [task.item for task in tasks], bins, cluster.shared)
    # By default an Arrow batch holds 10,000 records, however large they are.
    with cluster.setting("spark.sql.execution.arrow.maxRecordsPerBatch", str(RECORDS_PER_BATCH)):
        received = collect(step, mapped(placed, receiver, OUTCOME))
    results = {number: result for some in received for number, result in some.items()}
    return [results[number] for number in range(len(tasks))]


# -- what runs on executors


def sent(sender: int, labelled: Labelled, bin_of: dict[int, int]) -> Iterator[pa.RecordBatch]:
    """Rows gathered by label until they are worth a record, and no more of them than fit in memory."""
    gathered: dict[int, list[pa.Table]] = {}
    sizes: dict[int, int] = {}
    seq = sender << 32

    for label, table in labelled:
        gathered.setdefault(label, []).append(table)
        sizes[label] = sizes.get(label, 0) + table.nbytes
        full = list(sizes) if sum(sizes.values()) >= GATHERED_BYTES else [label] * (sizes[label] >= PAYLOAD_BYTES)
        for done in full:
            yield _record(bin_of[done], done, seq, _packed(gathered.pop(done)))
            del sizes[done]
            seq += 1
    for label, tables in gathered.items():
        yield _record(bin_of[label], label, seq, _packed(tables))
        seq += 1


def _record(task: int, label: int, seq: int, payload: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"task": task, "label": label, "seq": seq, "payload": payload}], schema=_RECORD)


def _packed(tables: list[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    batch = one_batch(pa.concat_tables(tables))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _receiver(
    receive: Callable[[Item, Read], Any], items: Sequence[Item], bins: Sequence[Sequence[int]], shared: Shared
) -> Any:
    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield outcome(context.partitionId(), lambda: _receive(batches, receive, items, bins), shared)
        for _ in batches:  # an error ends the reading early, but Spark wants its rows taken
            pass

    return remote


def _receive(
    batches: Iterable[pa.RecordBatch],
    receive: Callable[[Item, Read], Any],
    items: Sequence[Item],
    bins: Sequence[Sequence[int]],
) -> dict[int, Any]:
    """The results of the tasks of every bin whose records arrive here; records come in the order of the bins."""
    records = (record for batch in batches for record in _records(batch))
    results: dict[int, Any] = {}
    for number, arrived in groupby(records, key=itemgetter(0)):
        with closing(LocalStore(RECEIVED_BYTES, _spill_folder)) as store:
            dealt = Dealt.of(store, ((label, _table(payload)) for _, label, payload in arrived if label != _NOTHING))
            results |= {i: receive(items[i], dealt.read) for i in bins[number]}
    return results


def _records(batch: pa.RecordBatch) -> Iterator[tuple[int, int, Any]]:
    payloads = (value.as_buffer() for value in batch.column("payload"))
    return zip(batch.column("task").to_pylist(), batch.column("label").to_pylist(), payloads, strict=True)


def _table(payload: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


def _spill_folder() -> str | None:
    """Where Spark lets its Python workers spill to."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
