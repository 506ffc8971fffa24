"""Rows brought to their tasks by Spark's own shuffle, as Arrow in binary, so that its types never touch a value.

What an executor lost is computed again from the spool, which is durable. A payload is rows of one bucket; `task` is
the bin of tasks that receives them. Every bin gets a record without rows, so that tasks which receive nothing run too.

Spark hands records to Python in Arrow batches of so many records, 10,000 by default, however large they are. So a
payload travels as several small records, whose size follows from that number: the session keeps its settings.
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

from fsspeckit.core.rows.exchange import Bucketed, Buckets, Read, Send, Task
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.rows.store import LocalStore, one_batch
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.session import OUTCOME, collect, mapped, outcome, spread
from fsspeckit.datasets.spark.shared import Shared

Item = TypeVar("Item")
Result = TypeVar("Result")

_RECORD_NAMES = ["task", "bucket", "seq", "is_last", "payload"]
_RECORD_TYPES = "task int, bucket int, seq bigint, is_last boolean, payload binary"
_RECORDS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
PAYLOAD_BYTES = 1 << 20
"""The schema of 200 columns takes 11 kB before any data: slivers are gathered."""
GATHERED_BYTES = 64 << 20
RECEIVED_BYTES = 64 << 20
BATCH_BYTES = 32 << 20
"""Of the Arrow batches in which Spark hands records to Python."""
_NOTHING = -1


def shuffle(
    operation: Operation,
    step: str,
    spool: Spool,
    send: Send,
    receive: Callable[[Item, Read], Result],
    tasks: Sequence[Task[Item]],
) -> list[Result]:
    """See `core.rows.exchange.Runner.exchange`."""
    sizes = [task.size for task in tasks]
    bins = spread(sizes, operation.cluster.task_count(sizes))
    record_bytes = _record_bytes(int(operation.cluster.spark.conf.get(_RECORDS_PER_BATCH)))
    bin_of = {bucket: number for number, members in enumerate(bins) for i in members for bucket in tasks[i].buckets}

    def records(sender: int, parts: list[int]) -> Iterator[pa.RecordBatch]:
        if sender == 0:
            yield from (_records_of(number, _NOTHING, 0, b"", record_bytes) for number in range(len(bins)))
        yield from sent(sender, send(sorted(parts), None), bin_of, record_bytes)

    records_frame = operation.rows(records, [part.bytes for part in spool.parts], _RECORD_TYPES)
    # Hashing, before Spark 4.1, may put several bins into one partition and none into another.
    place = getattr(records_frame, "repartitionById", records_frame.repartition)
    placed = place(len(bins), F.col("task")).sortWithinPartitions("task", "bucket", "seq")
    receiver = _receiver(receive, [task.item for task in tasks], bins, operation.shared)
    received = collect(step, mapped(placed, receiver, OUTCOME))
    results = {number: result for some in received for number, result in some.items()}
    return [results[number] for number in range(len(tasks))]


def _record_bytes(records_per_batch: int) -> int:
    """How large a record may be, so that a batch of them has about `BATCH_BYTES`. 0 records means without bound.

    >>> _record_bytes(10_000), _record_bytes(1), _record_bytes(0) == PAYLOAD_BYTES
    (3355, 1048576, True)
    """
    if records_per_batch <= 0:
        return PAYLOAD_BYTES
    return min(PAYLOAD_BYTES, max(1 << 10, BATCH_BYTES // records_per_batch))


# -- what runs on executors


def sent(sender: int, bucketed: Bucketed, bin_of: dict[int, int], record_bytes: int) -> Iterator[pa.RecordBatch]:
    """Rows gathered by bucket until they are worth a payload, and no more of them than fit in memory."""
    gathered: dict[int, list[pa.Table]] = {}
    sizes: dict[int, int] = {}
    seq = sender << 32

    for bucket, table in bucketed:
        gathered.setdefault(bucket, []).append(table)
        sizes[bucket] = sizes.get(bucket, 0) + table.nbytes
        full = list(sizes) if sum(sizes.values()) >= GATHERED_BYTES else [bucket] * (sizes[bucket] >= PAYLOAD_BYTES)
        for done in full:
            batch = _records_of(bin_of[done], done, seq, _packed(gathered.pop(done)), record_bytes)
            del sizes[done]
            seq += batch.num_rows
            yield batch
    for bucket, tables in gathered.items():
        batch = _records_of(bin_of[bucket], bucket, seq, _packed(tables), record_bytes)
        seq += batch.num_rows
        yield batch


def _records_of(task: int, bucket: int, seq: int, payload: bytes, record_bytes: int) -> pa.RecordBatch:
    """A payload in records of at most `record_bytes`, numbered in order."""
    pieces = [payload[i : i + record_bytes] for i in range(0, len(payload), record_bytes)] or [b""]
    count = len(pieces)
    constants = [pa.repeat(pa.scalar(value, pa.int32()), count) for value in (task, bucket)]
    is_last = pa.array([False] * (count - 1) + [True])
    columns = [*constants, pa.array(range(seq, seq + count), pa.int64()), is_last, pa.array(pieces, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, _RECORD_NAMES)


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
    results: dict[int, Any] = {}
    for number, arrived in groupby(_payloads(batches), key=itemgetter(0)):
        with closing(LocalStore(RECEIVED_BYTES, _spill_folder)) as store:
            dealt = Buckets.of(
                store, ((bucket, _table(payload)) for _, bucket, payload in arrived if bucket != _NOTHING)
            )
            results |= {i: receive(items[i], dealt.read) for i in bins[number]}
    return results


def _payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes]]:
    """Task, bucket and payload, put together again: its records come one after the other."""
    pieces: list[bytes] = []
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _RECORD_NAMES]
        for task, bucket, _, is_last, piece in zip(*columns, strict=True):
            pieces.append(piece)
            if is_last:
                yield task, bucket, b"".join(pieces)
                pieces = []


def _table(payload: bytes) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


def _spill_folder() -> str | None:
    """Where Spark lets its Python workers spill to."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
