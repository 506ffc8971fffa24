"""How keys are matched: tasks look up few keys themselves, and Spark joins many.

Keys are few if Spark would broadcast them. Of many keys, Spark joins the key columns only. Hits are written to batch
files in the spool's store, and only counts return to the driver.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from fsspeckit.core.actions import Actions, HitAction, MatchedRows
from fsspeckit.core.match.hits import HITS, HitFile, Hits, MatchResult
from fsspeckit.core.match.key_index import (
    GroupCounts,
    IndexedKeys,
    KeyLookup,
    match_of,
    match_step,
    matched_rows,
    scan_bytes,
)
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

    def __init__(self, operation: Operation, spool: Spool, actions: Actions) -> None:
        self._operation, self._spool, self._actions = operation, spool, actions
        self._indexed = IndexedKeys(spool, operation.cluster.local_engine, actions, operation.progress)

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        return self._indexed.duplicates()

    def match(self, location: Location, scans: Sequence[Scan]) -> MatchResult:
        operation, spool, step = self._operation, self._spool, match_step(scans)
        if not scans or operation.cluster.runs_on_driver(step):
            return self._indexed.match(location, scans)
        operation.describe_step(step)
        weights = [scan_bytes(scan) for scan in scans]
        bins = spread(weights, operation.cluster.task_count(weights))
        tasks = [[(i, scans[i]) for i in members] for members in bins]
        look_up = partial(_look_up, location, spool, self._actions)
        with operation.counting(step):
            by_task: list[_TaskMatches] = operation.run("match", look_up, tasks)
        counts = {number: groups for task in by_task for number, groups in task.counts.items()}
        groups = {scans[number].footer.path: counts[number] for number in sorted(counts)}
        facts = [_union_of_bitmaps(bitmaps, spool.rows) for bitmaps in zip(*(task.facts for task in by_task))]
        return MatchResult(match_of(spool, groups, *facts), _hits(spool, [task.hits for task in by_task], scans))


@dataclass(frozen=True, slots=True)
class _TaskMatches:
    """The matches of one task: counts by scan and row group, hits, and a bitmap for each fact about source rows:
    matched, elsewhere and at home (see `KeyLookup`)."""

    counts: dict[int, dict[int, MatchedRows]]
    hits: HitFile
    facts: tuple[bytes, bytes, bytes]


def _look_up(location: Location, spool: Spool, actions: Actions, scans: list[tuple[int, Scan]]) -> _TaskMatches:
    """On an executor: look up the keys of row groups of some files in the source's keys."""
    lookup, writer = KeyLookup(spool, actions), spool.store.writer("hits")
    counts: dict[int, dict[int, MatchedRows]] = {}
    for number, scan in scans:
        for batch in lookup.search(read_keys(location, scan, spool.shape), number):
            writer.write(batch)
            counts.setdefault(number, {})[batch.column("row_group")[0].as_py()] = matched_rows(batch)
    hits = HitFile(writer.finish(), frozenset(counts))
    matched, elsewhere, at_home = map(_compressed_bitmap, (lookup.matched, lookup.elsewhere, lookup.at_home))
    return _TaskMatches(counts, hits, (matched, elsewhere, at_home))


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

    def __init__(self, operation: Operation, spool: Spool, actions: Actions) -> None:
        self._operation, self._spool, self._actions = operation, spool, actions
        # Canonical columns are integers or bytes; the column `d` marks delete rows.
        types = {pa.int64(): "bigint", pa.bool_(): "boolean"}
        self._types = {f.name: types.get(f.type, "binary") for f in spool.key_schema}

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

    def match(self, location: Location, scans: Sequence[Scan]) -> MatchResult:
        if not scans:
            return MatchResult(Match({}, 0), _hits(self._spool, (), scans))
        self._operation.describe_step(match_step(scans))
        weights = [part.rows for part in self._spool.parts]
        bins = spread(weights, min(len(weights), TASKS_PER_CORE * self._operation.cluster.parallelism))
        joined, store, actions = self._joined(location, scans, bins), self._spool.store, self._actions
        # All hits of a part in one task, in row order. Before Spark 4.1 hashing distributes the bins less evenly.
        repartition = getattr(joined, "repartitionById", joined.repartition)
        by_part = repartition(len(bins), F.col("bin")).sortWithinPartitions("source", "file", "row_group", "position")
        write = partition_result(lambda batches: _store_hits(store, actions, batches), self._operation.paths)
        with self._operation.counting(match_step(scans)):
            by_task: list[_WrittenHits] = collect_results(
                "match", map_in_arrow(by_part, write, RESULT_TYPES), self._operation.label
            )
        hits = _hits(self._spool, [task.hits for task in by_task], scans)
        samples = sorted(row for task in by_task for row in task.elsewhere_samples)[:5]
        match = Match(
            self._counts(hits.hit_files, scans),
            sum(task.matched for task in by_task),
            sum(task.elsewhere for task in by_task),
            self._spool.samples([(row >> _ROW_BITS, row & _ROW_MASK) for row in samples]),
            sum(task.moved for task in by_task),
        )
        return MatchResult(match, hits)

    def _joined(self, location: Location, scans: Sequence[Scan], bins: Sequence[Sequence[int]]) -> Any:
        """Hits with facts about each: is its source row a delete row, older, or in another partition?"""
        source = self._source_keys(bins).withColumnsRenamed({name: f"s_{name}" for name in self._types})
        target = self._target_keys(location, scans)
        on = [F.col(f"s_{name}") == F.col(name) for name in self._types if name.startswith("k")]
        # Spark estimates the output of a Python function as tiny, and would broadcast one side without the hint.
        joined = target.join(source.hint("merge"), on, "inner")
        is_delete = F.col("s_d") if "d" in self._types else F.lit(False)
        elsewhere = older = F.lit(False)
        for name in self._types:
            if name.startswith("p"):
                elsewhere = elsewhere | ~F.col(name).eqNullSafe(F.col(f"s_{name}"))
        for name in reversed(self._types):  # the first column that differs decides; a null of the target is least
            if name.startswith("q"):
                new, old = F.col(f"s_{name}"), F.col(name)
                older = F.coalesce((new < old) | ((new == old) & older), F.lit(False))
        facts = {"is_delete": is_delete, "older": older, "elsewhere": elsewhere}
        hits = ("file", "row_group", "position", "source", "bin")
        return joined.select(*hits, *(column.alias(name) for name, column in facts.items()))

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
        return self._operation.rows(read, weights, f"{_ddl(self._types)}, source bigint, bin int")

    def _target_keys(self, location: Location, scans: Sequence[Scan]) -> Any:
        types, shape = {name: sql for name, sql in self._types.items() if name != "d"}, self._spool.shape
        names = [*types, "file", "row_group", "position"]

        def read(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
            for number in numbers:
                for batch in read_keys(location, scans[number], shape):
                    columns = _for_spark([*batch.keys, *batch.partitions, *batch.sequence])
                    rows = len(columns[0])
                    file, group = (_constant(n, rows) for n in (number, batch.row_group))
                    whole = pa.RecordBatch.from_arrays([*columns, file, group, pa.array(np.arange(rows))], names)
                    yield from (whole.slice(start, BATCH_ROWS) for start in range(0, rows, BATCH_ROWS))

        weights = [scan_bytes(scan) for scan in scans]
        return self._operation.rows(read, weights, f"{_ddl(types)}, file int, row_group int, position bigint")

    def _counts(self, hit_files: Sequence[HitFile], scans: Sequence[Scan]) -> GroupCounts:
        """Matched rows by file and row group. Spark counts them, since there may be many of each."""
        if not hit_files:
            return {}
        store, names = self._spool.store, ["file", "row_group", "action"]

        def read(_: int, numbers: list[int]) -> Iterator[pa.RecordBatch]:
            for number in numbers:
                yield from (batch.select(names) for batch in store.read(hit_files[number].batch_file))

        frame = self._operation.rows(read, [1] * len(hit_files), "file int, row_group int, action tinyint")
        with errors_from_executors():
            counted = frame.groupBy(*names).count().collect()
        counts: GroupCounts = {}
        for file, row_group, action, rows in sorted(counted):
            groups = counts.setdefault(scans[file].footer.path, {})
            groups[row_group] = groups.get(row_group, MatchedRows()) + MatchedRows.of({action: rows})
        return counts


def _ddl(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {sql_type}" for name, sql_type in types.items())


def _for_spark(columns: Iterable[pa.Array]) -> list[pa.Array]:
    return [c if c.type in (pa.int64(), pa.bool_()) else c.cast(pa.binary()) for c in columns]


def _constant(value: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), length)


@dataclass(frozen=True, slots=True)
class _WrittenHits:
    """The hits of one task, and how many of its source rows matched, have a hit elsewhere, and move."""

    hits: HitFile
    matched: int
    elsewhere: int
    moved: int
    elsewhere_samples: tuple[int, ...]


def _store_hits(store: Store, actions: Actions, batches: Iterable[pa.RecordBatch]) -> _WrittenHits:
    """On an executor: decide what happens to each hit, and write the hits. They are sorted by source row."""
    writer, facts, parts = store.writer("hits"), _RowFacts(), set[int]()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        source = batch.column("source").to_numpy()
        is_delete, older, elsewhere = (
            batch.column(name).to_numpy(zero_copy_only=False) for name in ("is_delete", "older", "elsewhere")
        )
        hit_actions = actions.hit_actions(is_delete, older, elsewhere)
        target = [batch.column(name) for name in HITS.names[:3]]
        columns = [*target, pa.array(hit_actions), pa.array(source >> _ROW_BITS), pa.array(source & _ROW_MASK)]
        arrays = [column.cast(field.type) for column, field in zip(columns, HITS, strict=True)]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=HITS))
        facts.add(source, is_delete, hit_actions)
        parts |= set(np.unique(source >> _ROW_BITS).tolist())
    facts.finish()
    hits = HitFile(writer.finish(), parts=frozenset(parts))
    return _WrittenHits(hits, facts.matched, facts.elsewhere, facts.moved, tuple(facts.samples))


class _RowFacts:
    """Counts source rows by what their hits say. A source row counts once, however many hits it has; its hits follow
    each other, but may be in several batches. So the last source row of a batch is counted with the next batch."""

    def __init__(self) -> None:
        self.matched = self.elsewhere = self.moved = 0
        self.samples: list[int] = []
        self._rows: Any = np.empty(0, dtype=np.int64)
        self._facts: Any = np.empty((3, 0), dtype=bool)

    def add(self, source: Any, is_delete: Any, actions: Any) -> None:
        """Add hits, sorted by source row."""
        at_home = (actions == HitAction.UPDATE) | (actions == HitAction.SKIP)
        facts = np.array([~is_delete, actions == HitAction.MOVE, at_home])
        source, facts = np.concatenate([self._rows, source]), np.concatenate([self._facts, facts], axis=1)
        firsts = np.flatnonzero(np.diff(source, prepend=-1))
        rows, facts = source[firsts], np.logical_or.reduceat(facts, firsts, axis=1)
        self._count(rows[:-1], facts[:, :-1])
        self._rows, self._facts = rows[-1:], facts[:, -1:]

    def finish(self) -> None:
        self._count(self._rows, self._facts)

    def _count(self, rows: Any, facts: Any) -> None:
        matched, elsewhere, at_home = facts
        self.matched += int(matched.sum())
        self.elsewhere += int(elsewhere.sum())
        self.moved += int((elsewhere & ~at_home).sum())
        self.samples += rows[elsewhere][: 5 - len(self.samples)].tolist()
