"""Spark's own shuffle brings rows to their tasks, as Arrow in binary columns: Spark's types never touch a value.

If an executor is lost, Spark computes its rows again from the spool, which is durable. A payload has rows of one
bucket; `task` is the bin of tasks that receives them. Every bin gets a record without rows, so that tasks without rows
run too.

Spark passes records to Python in Arrow batches of a fixed number of records, 10,000 by default, whatever their size. So
a payload is cut into small records, whose size follows from that number. The setting itself is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F

from fsspeckit.core.rows.exchange import Bucketed, Buckets, Read, Send, Task
from fsspeckit.core.rows.spool import Spool
from fsspeckit.core.rows.store import LocalStore, one_batch
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.tasks import RESULT_TYPES, collect_results, map_in_arrow, partition_result, spread

Item = TypeVar("Item")
Result = TypeVar("Result")

_RECORD_NAMES = ["task", "bucket", "seq", "is_last", "payload"]
_RECORD_TYPES = "task int, bucket int, seq bigint, is_last boolean, payload binary"
_RECORDS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
PAYLOAD_BYTES = 1 << 20
"""Small tables of a bucket are gathered up to this size: the schema of 200 columns alone takes 11 kB."""
GATHERED_BYTES = 64 << 20
RECEIVED_BYTES = 64 << 20
BATCH_BYTES = 32 << 20
"""The size of the Arrow batches in which Spark passes records to Python."""
_NO_BUCKET = -1


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
            yield from (_records_of(number, _NO_BUCKET, 0, b"", record_bytes) for number in range(len(bins)))
        yield from sent(sender, send(sorted(parts), None), bin_of, record_bytes)

    records_frame = operation.rows(records, [part.bytes for part in spool.parts], _RECORD_TYPES)
    # Before Spark 4.1, hashing may put several bins into one partition and none into another.
    repartition = getattr(records_frame, "repartitionById", records_frame.repartition)
    shuffled = repartition(len(bins), F.col("task")).sortWithinPartitions("task", "bucket", "seq")
    items = [task.item for task in tasks]
    receiver = partition_result(lambda batches: _receive(batches, receive, items, bins), operation.paths)
    received = collect_results(step, map_in_arrow(shuffled, receiver, RESULT_TYPES), operation.label)
    results = {number: result for partition in received for number, result in partition.items()}
    return [results[number] for number in range(len(tasks))]


def _record_bytes(records_per_batch: int) -> int:
    """The size of a record, so that a batch of them has about `BATCH_BYTES`. 0 records means no bound.

    >>> _record_bytes(10_000), _record_bytes(1), _record_bytes(0) == PAYLOAD_BYTES
    (3355, 1048576, True)
    """
    if records_per_batch <= 0:
        return PAYLOAD_BYTES
    return min(PAYLOAD_BYTES, max(1 << 10, BATCH_BYTES // records_per_batch))


# -- what runs on executors


def sent(sender: int, bucketed: Bucketed, bin_of: dict[int, int], record_bytes: int) -> Iterator[pa.RecordBatch]:
    """Gather rows by bucket until they fill a payload, or all buckets together have `GATHERED_BYTES`."""
    gathered: dict[int, list[pa.Table]] = {}
    sizes: dict[int, int] = {}
    seq = sender << 32

    for bucket, table in bucketed:
        gathered.setdefault(bucket, []).append(table)
        sizes[bucket] = sizes.get(bucket, 0) + table.nbytes
        full = list(sizes) if sum(sizes.values()) >= GATHERED_BYTES else [bucket] * (sizes[bucket] >= PAYLOAD_BYTES)
        for done in full:
            batch = _records_of(bin_of[done], done, seq, _payload(gathered.pop(done)), record_bytes)
            del sizes[done]
            seq += batch.num_rows
            yield batch
    for bucket, tables in gathered.items():
        batch = _records_of(bin_of[bucket], bucket, seq, _payload(tables), record_bytes)
        seq += batch.num_rows
        yield batch


def _records_of(task: int, bucket: int, seq: int, payload: bytes, record_bytes: int) -> pa.RecordBatch:
    """Cut a payload into records of at most `record_bytes`, numbered in order."""
    pieces = [payload[i : i + record_bytes] for i in range(0, len(payload), record_bytes)] or [b""]
    count = len(pieces)
    constants = [pa.repeat(pa.scalar(value, pa.int32()), count) for value in (task, bucket)]
    is_last = pa.array([False] * (count - 1) + [True])
    columns = [*constants, pa.array(range(seq, seq + count), pa.int64()), is_last, pa.array(pieces, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, _RECORD_NAMES)


def _payload(tables: list[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    batch = one_batch(pa.concat_tables(tables))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _receive(
    batches: Iterable[pa.RecordBatch],
    receive: Callable[[Item, Read], Any],
    items: Sequence[Item],
    bins: Sequence[Sequence[int]],
) -> dict[int, Any]:
    """Run the tasks of every bin whose records are in this partition. Records are sorted by bin."""
    results: dict[int, Any] = {}
    for number, payloads in groupby(_payloads(batches), key=itemgetter(0)):
        with closing(LocalStore(RECEIVED_BYTES, _spill_folder)) as store:
            tables = ((bucket, _table(payload)) for _, bucket, payload in payloads if bucket != _NO_BUCKET)
            buckets = Buckets.of(store, tables)
            results |= {i: receive(items[i], buckets.read) for i in bins[number]}
    return results


def _payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes]]:
    """Task, bucket and payload, joined from its records, which follow each other."""
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
    """The folder to which Spark's Python workers spill."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
