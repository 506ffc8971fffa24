"""Matching a source whose keys are many: a Spark join of key columns, and nothing but key columns.

Both sides are read by PyArrow in `mapInArrow`: the target's keys by the core's key reader, the source's from the pin.
Hits are gathered by source part, in row order, and written to the scratch folder by the task that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from fsspeckit.core.model import Match, Scan
from fsspeckit.core.plan import confirm
from fsspeckit.core.storage import Location
from fsspeckit.datasets.spark import parts as pinned
from fsspeckit.datasets.spark.match import HITS, Hits, Source, scan_weight
from fsspeckit.datasets.spark.scratch import Scratch, unique
from fsspeckit.datasets.spark.session import (
    OUTCOME,
    TASKS_PER_CORE,
    Cluster,
    carried_errors,
    carrying_errors,
    collect,
    outcome,
    spread,
)
from fsspeckit.datasets.spark.shared import Shared


def match_large(
    cluster: Cluster, location: Location, source: Source, scans: Sequence[Scan]
) -> tuple[Match, list[Hits]]:
    weights = [part.rows for part in source.parts]
    bins = spread(weights, min(len(weights), TASKS_PER_CORE * cluster.parallelism))
    joined = _joined(cluster, location, source, scans, bins)
    written = _by_part(joined, len(bins)).mapInArrow(_write_hits(source.scratch, cluster.shared), OUTCOME)
    found = [one for one in collect("match", written) if one is not None]
    moved = sorted(row for one in found for row in one.moved_samples)[:5]
    samples = pinned.samples(source.scratch, source.parts, source.shape, moved)
    hits = [Hits(one.name, one.parts) for one in found]
    rows = _count_hits(cluster, source.scratch, hits, scans)
    return Match(rows, sum(one.met for one in found), sum(one.moved for one in found), samples), hits


def _joined(
    cluster: Cluster, location: Location, source: Source, scans: Sequence[Scan], bins: Sequence[Sequence[int]]
) -> Any:
    types = _column_types(source)
    ours = source_keys(cluster, source, bins).withColumnsRenamed({name: f"s_{name}" for name in types})
    theirs = _target_keys(cluster, location, source, scans)
    # Spark takes the output of a Python function for tiny; unhinted, it would broadcast either side.
    on = [F.col(f"s_{name}") == F.col(name) for name in types if name.startswith("k")]
    joined = theirs.join(ours.hint("merge"), on, "inner")
    moved = F.lit(False)
    for name in types:
        if name.startswith("p"):
            moved = moved | ~F.col(name).eqNullSafe(F.col(f"s_{name}"))
    return joined.select("file", "row_group", "position", "part", "row", "bin", moved.alias("moved"))


def _column_types(source: Source) -> dict[str, str]:
    """Canonical columns and their Spark types."""
    fields = source.scratch.reader(f"{source.parts[0].name}.keys").schema
    return {f.name: "bigint" if f.type == pa.int64() else "binary" for f in fields}


def _for_spark(columns: Iterable[pa.Array]) -> list[pa.Array]:
    return [c if c.type == pa.int64() else c.cast(pa.binary()) for c in columns]


def source_keys(cluster: Cluster, source: Source, bins: Sequence[Sequence[int]] = ()) -> Any:
    """The source's canonical columns as a DataFrame, with part and row, and the bin that the part is in."""
    types = _column_types(source)
    bin_of = {part: number for number, members in enumerate(bins) for part in members}
    ddl = ", ".join([*(f"{name} {kind}" for name, kind in types.items()), "part int", "bin int", "row bigint"])

    def read(numbers: list[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            row = 0
            for batch in pinned.read_keys(source.scratch, source.parts[number]):
                rows = pa.array(np.arange(row, row + batch.num_rows))
                part, bin_ = (_constant(n, batch.num_rows) for n in (number, bin_of.get(number, 0)))
                row += batch.num_rows
                columns = [*_for_spark(batch.columns), part, bin_, rows]
                yield pa.RecordBatch.from_arrays(columns, [*types, "part", "bin", "row"])

    return _rows_of(cluster, read, [part.rows * 16 for part in source.parts], ddl)


def _constant(value: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), length)


def _target_keys(cluster: Cluster, location: Location, source: Source, scans: Sequence[Scan]) -> Any:
    types, shape = _column_types(source), source.shape
    ddl = ", ".join([*(f"{n} {kind}" for n, kind in types.items()), "file int", "row_group int", "position bigint"])
    names = [*types, "file", "row_group", "position"]

    def read(numbers: list[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            for batch in confirm.read_keys(location, scans[number], shape):
                columns = _for_spark([*batch.keys, *batch.partitions])
                rows = len(columns[0])
                file, group = (_constant(n, rows) for n in (number, batch.row_group))
                whole = pa.RecordBatch.from_arrays([*columns, file, group, pa.array(np.arange(rows))], names)
                yield from (whole.slice(start, pinned.BATCH_ROWS) for start in range(0, rows, pinned.BATCH_ROWS))

    return _rows_of(cluster, read, [scan_weight(scan) for scan in scans], ddl)


def _rows_of(
    cluster: Cluster,
    read: Callable[[list[int]], Iterator[pa.RecordBatch]],
    weights: Sequence[int],
    ddl: str,
) -> Any:
    """A DataFrame of the rows that tasks read, each from the items whose numbers it is given."""
    bins, shared = spread(weights, cluster.task_count(weights)), cluster.shared

    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying_errors(shared):
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from read(bins[task])

    return cluster.spark.range(0, len(bins), 1, len(bins)).mapInArrow(remote, ddl)


def _by_part(joined: Any, count: int) -> Any:
    """All hits of a part in one task, in row order."""
    if hasattr(joined, "repartitionById"):  # Spark 4.1; before that, hashing spreads the bins less evenly
        gathered = joined.repartitionById(count, F.col("bin"))
    else:
        gathered = joined.repartition(count, F.col("bin"))
    return gathered.sortWithinPartitions("part", "row", "file", "row_group", "position")


@dataclass(frozen=True, slots=True)
class _Written:
    name: str
    parts: frozenset[int]
    met: int
    moved: int
    moved_samples: tuple[tuple[int, int], ...]


def _write_hits(scratch: Scratch, shared: Shared) -> Any:
    def remote(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield outcome(context.partitionId(), lambda: _store_hits(scratch, batches), shared)

    return remote


def _store_hits(scratch: Scratch, batches: Iterable[pa.RecordBatch]) -> _Written | None:
    """On an executor: hits sorted by source row into one file; a source row counts once, however often it was met."""
    name, met, moved, parts = unique("hits"), 0, 0, set()
    samples: list[tuple[int, int]] = []
    last_met = last_moved = (-1, -1)
    file = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        file = file or scratch.writer(name, HITS)
        file.write(pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in HITS], schema=HITS))
        rows = _pairs(batch)
        fresh, last_met = _distinct(rows, last_met)
        gone, last_moved = _distinct(rows[np.asarray(batch.column("moved"))], last_moved)
        met, moved = met + len(fresh), moved + len(gone)
        parts |= set(np.unique(rows["part"]).tolist())
        samples += [(int(p), int(r)) for p, r in gone[: 5 - len(samples)]]
    if file is None:
        return None
    file.close()
    return _Written(name, frozenset(parts), met, moved, tuple(samples))


def _pairs(batch: pa.RecordBatch) -> Any:
    pairs = np.empty(batch.num_rows, dtype=[("part", np.int64), ("row", np.int64)])
    pairs["part"], pairs["row"] = np.asarray(batch.column("part")), np.asarray(batch.column("row"))
    return pairs


def _distinct(ordered: Any, last: tuple[int, int]) -> tuple[Any, tuple[int, int]]:
    """The rows of a sorted run that were not seen before, and the last one."""
    if not len(ordered):
        return ordered, last
    fresh = np.ones(len(ordered), dtype=bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    fresh[0] = (int(ordered[0]["part"]), int(ordered[0]["row"])) != last
    return ordered[fresh], (int(ordered[-1]["part"]), int(ordered[-1]["row"]))


def _count_hits(
    cluster: Cluster, scratch: Scratch, hits: Sequence[Hits], scans: Sequence[Scan]
) -> dict[str, dict[int, int]]:
    """Matched rows per file and row group."""
    if not hits:
        return {}

    def read(numbers: list[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            reader = scratch.reader(hits[number].name)
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i).select(["file", "row_group"])

    frame = _rows_of(cluster, read, [1] * len(hits), "file int, row_group int")
    with carried_errors():
        counted = frame.groupBy("file", "row_group").count().collect()
    found: dict[str, dict[int, int]] = {}
    for row in sorted(counted):
        found.setdefault(scans[row["file"]].footer.path, {})[row["row_group"]] = row["count"]
    return found


def duplicates_large(cluster: Cluster, source: Source) -> tuple[int, list[tuple[int, int]]]:
    names = [f"k{i}" for i in range(len(source.shape.keys))]
    counted = (
        source_keys(cluster, source)
        .groupBy(*names)
        .agg(F.count(F.lit(1)).alias("times"), F.min(F.struct("part", "row")).alias("first"))
    )
    twice = counted.where("times > 1").select("first.part", "first.row")
    with carried_errors():
        shown = twice.orderBy("part", "row").limit(5).collect()
        count = twice.count() if len(shown) == 5 else len(shown)
    return count, [(row["part"], row["row"]) for row in shown]
