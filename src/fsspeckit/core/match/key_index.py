"""Key sets: match the source's keys with the target's.

Engines implement `KeySet`. `IndexedKeys` is the default: a sorted index of the source's keys in memory, in which the
target's keys are looked up as they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.actions import Actions, HitAction, MatchedRows
from fsspeckit.core.match.hits import HitFile, Hits, MatchResult, hit_batch, write_hits
from fsspeckit.core.match.key_reader import KeyBatch, read_keys
from fsspeckit.core.model import Match, Profile, Scan, Shape
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.progress import Progress
from fsspeckit.core.rows.exchange import Runner, Step
from fsspeckit.core.rows.spool import Numbers, RowId, Spool
from fsspeckit.core.storage import Location
from fsspeckit.core.values import keys
from fsspeckit.core.values.keys import merge_intervals

GroupCounts = dict[str, dict[int, MatchedRows]]
"""Matched rows by path and row group."""


class KeySet(Protocol):
    """The keys of a spool, ready to be matched."""

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        """The number of keys that occur more than once, and the first rows of up to five of them, in order."""

    def match(self, location: Location, scans: Sequence[Scan]) -> MatchResult:
        """Match the keys of the scanned row groups (`key_reader.read_keys`) with the source's."""


class KeyLookup:
    """An index of a spool's keys. It collects facts about source rows: is the key in the target (`matched`), in another
    partition from which the row would move (`elsewhere`), or in the row's own partition (`at_home`)?

    Several threads may search at once: marks are set and never cleared.
    """

    def __init__(self, spool: Spool, actions: Actions) -> None:
        columns = spool.all_keys()
        self.index = keys.KeyIndex([columns[f"k{i}"] for i in range(len(spool.shape.keys))])
        self._partitions = [column for name, column in columns.items() if name.startswith("p")]
        self._sequence = [column for name, column in columns.items() if name.startswith("q")]
        self._is_delete = np.zeros(spool.rows, dtype=bool)
        if "d" in columns:
            self._is_delete = columns["d"].to_numpy(zero_copy_only=False)
        self._offsets, self._actions = spool.offsets, actions
        self.matched, self.elsewhere, self.at_home = (np.zeros(spool.rows, dtype=bool) for _ in range(3))

    def search(self, batches: Iterable[KeyBatch], file: int) -> Iterator[pa.RecordBatch]:
        """The hits of one file, one batch for each row group that has hits."""
        for batch in batches:
            source_rows = self.index.find(batch.keys)
            positions = np.flatnonzero(source_rows >= 0)
            if len(positions):
                rows = source_rows[positions]
                is_delete = self._is_delete[rows]
                elsewhere = self._differ(batch.partitions, rows, positions)
                actions = self._actions.hit_actions(is_delete, self._older(batch, rows, positions), elsewhere)
                self.matched[rows[~is_delete]] = True
                self.elsewhere[rows[actions == HitAction.MOVE]] = True
                self.at_home[rows[(actions == HitAction.UPDATE) | (actions == HitAction.SKIP)]] = True
                yield hit_batch(file, batch.row_group, positions, actions, rows, self._offsets)

    def _differ(self, theirs: Sequence[pa.Array], rows: Numbers, positions: Numbers) -> npt.NDArray[np.bool_]:
        elsewhere = np.zeros(len(rows), dtype=bool)
        for ours, other in zip(self._partitions, theirs, strict=True):
            elsewhere |= keys.differ(ours.take(pa.array(rows)), other.take(pa.array(positions)))
        return elsewhere

    def _older(self, batch: KeyBatch, rows: Numbers, positions: Numbers) -> npt.NDArray[np.bool_]:
        """Is the source row older? The first column that differs decides; a null of the target is least."""
        older, undecided = np.zeros(len(rows), dtype=bool), np.ones(len(rows), dtype=bool)
        for ours, theirs in zip(self._sequence, batch.sequence, strict=True):
            new, old = ours.take(pa.array(rows)), theirs.take(pa.array(positions))
            older |= undecided & pc.less(new, old).fill_null(False).to_numpy(zero_copy_only=False)
            undecided &= pc.equal(new, old).fill_null(False).to_numpy(zero_copy_only=False)
        return older


class IndexedKeys:
    """`KeySet` of one process: the source's keys are in memory, and the runner's threads look up the target's."""

    def __init__(self, spool: Spool, runner: Runner, actions: Actions, progress: Progress | None = None) -> None:
        self._spool, self._runner, self._actions = spool, runner, actions
        self._progress = progress or runner.progress

    @cached_property
    def _lookup(self) -> KeyLookup:
        """Built on first use: null keys cannot be indexed, and are refused before that."""
        return KeyLookup(self._spool, self._actions)

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        count, rows = self._lookup.index.duplicates()
        return count, self._spool.row_ids(rows)

    def match(self, location: Location, scans: Sequence[Scan]) -> MatchResult:
        shape, lookup = self._spool.shape, self._lookup

        def search(numbered: tuple[int, Scan]) -> list[pa.RecordBatch]:
            number, scan = numbered
            return list(lookup.search(counted_keys(location, scan, shape, self._progress), number))

        def weight(numbered: tuple[int, Scan]) -> int:
            scan = numbered[1]
            return max((scan.footer.row_groups[group].bytes for group in scan.row_groups), default=0)

        hits = self._runner.map(match_step(scans), search, list(enumerate(scans)), weight)
        batches = [batch for file in hits for batch in file]
        match = match_of(self._spool, counted(scans, batches), lookup.matched, lookup.elsewhere, lookup.at_home)
        return MatchResult(match, hits_of(self._spool, scans, self._sorted(batches)))

    def _sorted(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Hits grouped by part if parts are read one after the other."""
        if self._spool.in_memory or not batches:
            return batches
        ordered = pa.Table.from_batches(batches).sort_by([("part", "ascending")]).combine_chunks()
        borders = np.searchsorted(ordered.column("part").to_numpy(), np.arange(len(self._spool.parts) + 1))
        return [batch for start, end in pairwise(borders) for batch in ordered.slice(start, end - start).to_batches()]


def match_step(scans: Sequence[Scan]) -> Step:
    """The size of a match is its rows: only key columns are read, of the same width in all files."""
    return Step("match", len(scans), sum(map(scan_bytes, scans)))


def counted_keys(
    location: Location, scan: Scan, shape: Shape, progress: Progress, files: int = 1
) -> Iterator[KeyBatch]:
    """The keys of one file, which counts as `scan_bytes`; `files` is 0 if more scans of the file follow."""
    meter = progress.meter(scan_bytes(scan))
    for number, batch in enumerate(read_keys(location, scan, shape), 1):
        yield batch
        meter.reach(number / len(scan.row_groups))
    meter.finish(files)


def scan_bytes(scan: Scan) -> int:
    return 16 * sum(scan.footer.row_groups[group].rows for group in scan.row_groups)


def match_of(
    spool: Spool,
    counts: GroupCounts,
    matched: npt.NDArray[np.bool_],
    elsewhere: npt.NDArray[np.bool_],
    at_home: npt.NDArray[np.bool_],
) -> Match:
    """The match, from facts about each source row (see `KeyLookup`)."""
    rows = np.flatnonzero(elsewhere)
    samples = spool.samples(spool.row_ids(rows[:5].tolist()))
    return Match(counts, int(matched.sum()), len(rows), samples, int((elsewhere & ~at_home).sum()))


def hits_of(spool: Spool, scans: Sequence[Scan], batches: Iterable[pa.RecordBatch]) -> Hits:
    hit_files: tuple[HitFile, ...] = tuple(write_hits(spool.store, batches))
    return Hits(spool.store, hit_files, {scan.footer.path: number for number, scan in enumerate(scans)})


def counted(scans: Sequence[Scan], batches: Iterable[pa.RecordBatch]) -> GroupCounts:
    """Matched rows by path and row group; each batch is of one row group."""
    counts: GroupCounts = {}
    for batch in batches:
        path = scans[batch.column("file")[0].as_py()].footer.path
        counts.setdefault(path, {})[batch.column("row_group")[0].as_py()] = matched_rows(batch)
    return counts


def matched_rows(batch: pa.RecordBatch) -> MatchedRows:
    """The hits of a batch by what happens to them."""
    return MatchedRows.of(dict(enumerate(np.bincount(batch.column("action").to_numpy()).tolist())))


def profile_of(spool: Spool, keys: KeySet) -> Profile:
    """The profile of a source, from the metadata of its parts and its duplicate keys."""
    names = spool.shape.keys
    nulls = {name: sum(part.nulls[i] for part in spool.parts) for i, name in enumerate(names)}
    sequence = {n: sum(part.null_sequences[i] for part in spool.parts) for i, n in enumerate(spool.shape.sequence)}
    count, rows = (0, []) if any(nulls.values()) or not spool.parts else keys.duplicates()
    return Profile(
        rows=spool.rows,
        null_keys=nulls,
        duplicate_keys=count,
        duplicate_samples=spool.samples(rows),
        partitions=frozenset(partition for part in spool.parts for partition in part.partitions if partition),
        intervals={name: merge_intervals([part.intervals[i] for part in spool.parts]) for i, name in enumerate(names)},
        columns_to_retype=spool.columns_to_retype,
        delete_rows=sum(part.delete_rows for part in spool.parts),
        delete_partitions=frozenset[tuple[Any, ...]]().union(*(part.delete_partitions for part in spool.parts)),
        null_sequences=sequence,
    )
