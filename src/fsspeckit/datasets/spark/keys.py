"""How keys are matched: tasks look up few keys themselves, and Spark joins many.

Keys are few if Spark would broadcast them. Of many keys, Spark joins the key columns only. Hits are written to batch
files in the spool's store, and only counts return to the driver.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from fsspeckit.core.actions import Actions
from fsspeckit.core.match.hits import HITS, HitFile, Hits, MatchResult
from fsspeckit.core.match.key_index import Counts, IndexedKeys, KeyLookup, match_step, scan_bytes
from fsspeckit.core.match.key_reader import read_keys
from fsspeckit.core.model import Match, Scan
from fsspeckit.core.rows.spool import BATCH_ROWS, RowId, Spool
from fsspeckit.core.rows.store import Store
from fsspeckit.core.storage import Location
from fsspeckit.datasets.spark.operation import Operation
from fsspeckit.datasets.spark.session import TASKS_PER_CORE
from fsspeckit.datasets.spark.tasks import (
    RESULT_TYPES,
    collect_results,
    errors_from_executors,
    map_in_arrow,
    partition_result,
    spread,
)


class BroadcastKeys:
    """`core.match.key_index.KeySet` of few keys: every task reads them all and looks up the target's keys in them."""

    def __init__(self, operation: Operation, spool: Spool) -> None:
        self._operation, self._spool = operation, spool
        self._indexed = IndexedKeys(spool, operation.cluster.local_engine)

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        return self._indexed.duplicates()

    def match(self, location: Location, scans: Sequence[Scan], actions: Actions) -> MatchResult:
        operation, spool, step = self._operation, self._spool, match_step(scans)
        if not scans or operation.cluster.runs_on_driver(step):
            return self._indexed.match(location, scans, actions)
        operation.describe_step(step)
        weights = [scan_bytes(scan) for scan in scans]
        bins = spread(weights, operation.cluster.task_count(weights))
        tasks = [[(i, scans[i]) for i in members] for members in bins]
        by_task: list[_TaskMatches] = operation.run("match", partial(_look_up, location, spool), tasks)
        counts = {number: groups for task in by_task for number, groups in task.counts.items()}
        matched = _union_of_bitmaps([task.matched for task in by_task], spool.rows)
        moved = np.flatnonzero(_union_of_bitmaps([task.moved for task in by_task], spool.rows))
        samples = spool.samples(spool.row_ids(moved[:5].tolist()))
        rows = {scans[number].footer.path: counts[number] for number in sorted(counts)}
        match = Match(rows, int(matched.sum()), len(moved), samples)
        return MatchResult(match, _hits(spool, [task.hits for task in by_task], scans))


@dataclass(frozen=True, slots=True)
class _TaskMatches:
    """The matches of one task: counts by scan and row group, hits, and bitmaps of the matched and moved source rows."""

    counts: dict[int, dict[int, int]]
    hits: HitFile
    matched: bytes
    moved: bytes


def _look_up(location: Location, spool: Spool, scans: list[tuple[int, Scan]]) -> _TaskMatches:
    """On an executor: look up the keys of row groups of some files in the source's keys."""
    lookup, writer = KeyLookup(spool), spool.store.writer("hits")
    counts: dict[int, dict[int, int]] = {}
    for number, scan in scans:
        for batch in lookup.search(read_keys(location, scan, spool.shape), number):
            writer.write(batch)
            counts.setdefault(number, {})[batch.column("row_group")[0].as_py()] = batch.num_rows
    hits = HitFile(writer.finish(), frozenset(counts))
    return _TaskMatches(counts, hits, _compressed_bitmap(lookup.matched), _compressed_bitmap(lookup.moved))


def _compressed_bitmap(rows: Any) -> bytes:
    """Every task sends a bitmap, but few rows are in more than one: compressed, all together have the size of one."""
    return zlib.compress(np.packbits(rows).tobytes(), level=1)


def _union_of_bitmaps(compressed: Sequence[bytes], rows: int) -> Any:
    bits = np.zeros((rows + 7) // 8, dtype=np.uint8)
    for bitmap in compressed:
        bits |= np.frombuffer(zlib.decompress(bitmap), dtype=np.uint8)
    return np.unpackbits(bits, count=rows).astype(bool)


def _hits(spool: Spool, hit_files: Iterable[HitFile], scans: Sequence[Scan]) -> Hits:
    files = {scan.footer.path: number for number, scan in enumerate(scans)}
    return Hits(spool.store, tuple(file for file in hit_files if file.batch_file.rows), files)


# -- many keys

# For Spark, a source row is one number, with the part in the upper bits: a hash aggregate has no `min` of structs.
_ROW_BITS = 40
_ROW_MASK = (1 << _ROW_BITS) - 1


class JoinedKeys:
    """`core.match.key_index.KeySet` of many keys, joined by Spark. Hits are grouped by source part, in row order."""

    def __init__(self, operation: Operation, spool: Spool) -> None:
        self._operation, self._spool = operation, spool
        # Canonical columns are integers or bytes.
        self._types = {f.name: "bigint" if f.type == pa.int64() else "binary" for f in spool.key_schema}

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        self._operation.describe("look for duplicate keys")
        names = [f"k{i}" for i in range(len(self._spool.shape.keys))]
        counted = (
            self._source_keys().groupBy(*names).agg(F.count(F.lit(1)).alias("times"), F.min("source").alias("first"))
        )
        duplicates = counted.where("times > 1").select("first")
        with errors_from_executors():
            firsts = [row["first"] for row in duplicates.orderBy("first").limit(5).collect()]
            count = duplicates.count() if len(firsts) == 5 else len(firsts)
        return count, [(first >> _ROW_BITS, first & _ROW_MASK) for first in firsts]

    def match(self, location: Location, scans: Sequence[Scan], actions: Actions) -> MatchResult:
        if not scans:
            return MatchResult(Match({}, 0), _hits(self._spool, (), scans))
        self._operation.describe_step(match_step(scans))
        weights = [part.rows for part in self._spool.parts]
        bins = spread(weights, min(len(weights), TASKS_PER_CORE * self._operation.cluster.parallelism))
        joined, store = self._joined(location, scans, bins), self._spool.store
        # All hits of a part in one task, in row order. Before Spark 4.1 hashing distributes the bins less evenly.
        repartition = getattr(joined, "repartitionById", joined.repartition)
        by_part = repartition(len(bins), F.col("bin")).sortWithinPartitions("source", "file", "row_group", "position")
        write = partition_result(lambda batches: _store_hits(store, batches), self._operation.paths)
        by_task: list[_WrittenHits] = collect_results("match", map_in_arrow(by_part, write, RESULT_TYPES))
        moved = sorted(row for task in by_task for row in task.moved_samples)[:5]
        hits = _hits(self._spool, [task.hits for task in by_task], scans)
        match = Match(
            self._counts(hits.hit_files, scans),
            sum(task.matched for task in by_task),
            sum(task.moved for task in by_task),
            self._spool.samples(moved),
        )
        return MatchResult(match, hits)

    def _joined(self, location: Location, scans: Sequence[Scan], bins: Sequence[Sequence[int]]) -> Any:
        source = self._source_keys(bins).withColumnsRenamed({name: f"s_{name}" for name in self._types})
        target = self._target_keys(location, scans)
        on = [F.col(f"s_{name}") == F.col(name) for name in self._types if name.startswith("k")]
        # Spark estimates the output of a Python function as tiny, and would broadcast one side without the hint.
        joined = target.join(source.hint("merge"), on, "inner")
        moved = F.lit(False)
        for name in self._types:
            if name.startswith("p"):
                moved = moved | ~F.col(name).eqNullSafe(F.col(f"s_{name}"))
        return joined.select("file", "row_group", "position", "source", "bin", moved.alias("moved"))

    def _source_keys(self, bins: Sequence[Sequence[int]] = ()) -> Any:
        """The source's canonical columns as a DataFrame, with the number of the row and the bin of its part."""
        spool, names = self._spool, [*self._types, "source", "bin"]
        bin_of = {part: number for number, members in enumerate(bins) for part in members}

        def read(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
            for number in numbers:
                first = number << _ROW_BITS
                for batch in spool.read_keys(number):
                    rows = pa.array(np.arange(first, first + batch.num_rows))
                    bin_ = _constant(bin_of.get(number, 0), batch.num_rows)
                    first += batch.num_rows
                    yield pa.RecordBatch.from_arrays([*_for_spark(batch.columns), rows, bin_], names)

        weights = [part.rows * 16 for part in spool.parts]
        return self._operation.rows(read, weights, f"{self._ddl}, source bigint, bin int")

    def _target_keys(self, location: Location, scans: Sequence[Scan]) -> Any:
        names, shape = [*self._types, "file", "row_group", "position"], self._spool.shape

        def read(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
            for number in numbers:
                for batch in read_keys(location, scans[number], shape):
                    columns = _for_spark([*batch.keys, *batch.partitions])
                    rows = len(columns[0])
                    file, group = (_constant(n, rows) for n in (number, batch.row_group))
                    whole = pa.RecordBatch.from_arrays([*columns, file, group, pa.array(np.arange(rows))], names)
                    yield from (whole.slice(start, BATCH_ROWS) for start in range(0, rows, BATCH_ROWS))

        weights = [scan_bytes(scan) for scan in scans]
        return self._operation.rows(read, weights, f"{self._ddl}, file int, row_group int, position bigint")

    @property
    def _ddl(self) -> str:
        return ", ".join(f"{name} {sql_type}" for name, sql_type in self._types.items())

    def _counts(self, hit_files: Sequence[HitFile], scans: Sequence[Scan]) -> Counts:
        """Matched rows by file and row group. Spark counts them, since there may be many of each."""
        if not hit_files:
            return {}
        store = self._spool.store

        def read(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
            for number in numbers:
                yield from (batch.select(["file", "row_group"]) for batch in store.read(hit_files[number].batch_file))

        frame = self._operation.rows(read, [1] * len(hit_files), "file int, row_group int")
        with errors_from_executors():
            counted = frame.groupBy("file", "row_group").count().collect()
        counts: Counts = {}
        for row in sorted(counted):
            counts.setdefault(scans[row["file"]].footer.path, {})[row["row_group"]] = row["count"]
        return counts


def _for_spark(columns: Iterable[pa.Array]) -> list[pa.Array]:
    return [c if c.type == pa.int64() else c.cast(pa.binary()) for c in columns]


def _constant(value: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), length)


@dataclass(frozen=True, slots=True)
class _WrittenHits:
    hits: HitFile
    matched: int
    moved: int
    moved_samples: tuple[RowId, ...]


def _store_hits(store: Store, batches: Iterable[pa.RecordBatch]) -> _WrittenHits:
    """On an executor: write hits, sorted by source row. A source row counts once, however often it matched."""
    writer, matched, moved, parts = store.writer("hits"), 0, 0, set()
    samples: list[RowId] = []
    last_matched = last_moved = -1
    for batch in batches:
        if batch.num_rows == 0:
            continue
        source = batch.column("source").to_numpy()
        target = [batch.column(name) for name in HITS.names[:3]]
        columns = [*target, pa.array(source >> _ROW_BITS), pa.array(source & _ROW_MASK)]
        arrays = [column.cast(field.type) for column, field in zip(columns, HITS, strict=True)]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=HITS))
        matched_rows, last_matched = _distinct(source, last_matched)
        moved_rows, last_moved = _distinct(source[np.asarray(batch.column("moved"))], last_moved)
        matched, moved = matched + len(matched_rows), moved + len(moved_rows)
        parts |= set(np.unique(source >> _ROW_BITS).tolist())
        samples += [(row >> _ROW_BITS, row & _ROW_MASK) for row in moved_rows[: 5 - len(samples)].tolist()]
    return _WrittenHits(HitFile(writer.finish(), parts=frozenset(parts)), matched, moved, tuple(samples))


def _distinct(ordered: Any, last: int) -> tuple[Any, int]:
    """The distinct values of a sorted array without `last`, and the last of them."""
    if not len(ordered):
        return ordered, last
    return ordered[np.diff(ordered, prepend=last) != 0], int(ordered[-1])
