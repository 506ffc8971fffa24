"""Key sets: match the source's keys with the target's.

Engines implement `KeySet`. `IndexedKeys` is the default: a sorted index of the source's keys in memory, in which the
target's keys are looked up as they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.core.actions import Actions
from fsspeckit.core.match.hits import HitFile, Hits, MatchResult, hit_batch, write_hits
from fsspeckit.core.match.key_reader import KeyBatch, read_keys
from fsspeckit.core.model import Match, Profile, Scan
from fsspeckit.core.parallel import cached_property
from fsspeckit.core.rows.exchange import Runner, Step
from fsspeckit.core.rows.spool import Numbers, RowId, Spool
from fsspeckit.core.storage import Location
from fsspeckit.core.values import keys
from fsspeckit.core.values.keys import merge_intervals

Counts = dict[str, dict[int, int]]
"""Matched rows by path and row group."""


class KeySet(Protocol):
    """The keys of a spool, ready to be matched."""

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        """The number of keys that occur more than once, and the first rows of up to five of them, in order."""

    def match(self, location: Location, scans: Sequence[Scan], actions: Actions) -> MatchResult:
        """Match the keys of the scanned row groups (`key_reader.read_keys`) with the source's."""


class KeyLookup:
    """An index of a spool's keys. It marks source rows as `matched`, and as `moved` if their partition differs.

    Several threads may search at once: marks are set and never cleared.
    """

    def __init__(self, spool: Spool) -> None:
        columns = spool.all_keys()
        self.index = keys.KeyIndex([columns[f"k{i}"] for i in range(len(spool.shape.keys))])
        self._partitions = [column for name, column in columns.items() if name.startswith("p")]
        self._offsets = spool.offsets
        self.matched, self.moved = (np.zeros(spool.rows, dtype=bool) for _ in range(2))

    def search(self, batches: Iterable[KeyBatch], file: int) -> Iterator[pa.RecordBatch]:
        """The hits of one file, one batch for each row group that has hits."""
        for batch in batches:
            source_rows = self.index.find(batch.keys)
            positions = np.flatnonzero(source_rows >= 0)
            if len(positions):
                rows = source_rows[positions]
                self.matched[rows] = True
                self.moved[rows[self._differ(batch.partitions, rows, positions)]] = True
                yield hit_batch(file, batch.row_group, positions, rows, self._offsets)

    def _differ(self, theirs: Sequence[pa.Array], rows: Numbers, positions: Numbers) -> npt.NDArray[np.bool_]:
        elsewhere = np.zeros(len(rows), dtype=bool)
        for ours, other in zip(self._partitions, theirs, strict=True):
            elsewhere |= keys.differ(ours.take(pa.array(rows)), other.take(pa.array(positions)))
        return elsewhere


class IndexedKeys:
    """`KeySet` of one process: the source's keys are in memory, and the runner's threads look up the target's."""

    def __init__(self, spool: Spool, runner: Runner) -> None:
        self._spool, self._runner = spool, runner

    @cached_property
    def _lookup(self) -> KeyLookup:
        """Built on first use: null keys cannot be indexed, and are refused before that."""
        return KeyLookup(self._spool)

    def duplicates(self) -> tuple[int, Sequence[RowId]]:
        count, rows = self._lookup.index.duplicates()
        return count, self._spool.row_ids(rows)

    def match(self, location: Location, scans: Sequence[Scan], actions: Actions) -> MatchResult:
        shape, lookup = self._spool.shape, self._lookup

        def search(numbered: tuple[int, Scan]) -> list[pa.RecordBatch]:
            number, scan = numbered
            return list(lookup.search(read_keys(location, scan, shape), number))

        def weight(numbered: tuple[int, Scan]) -> int:
            scan = numbered[1]
            return max((scan.footer.row_groups[group].bytes for group in scan.row_groups), default=0)

        hits = self._runner.map(match_step(scans), search, list(enumerate(scans)), weight)
        batches = [batch for file in hits for batch in file]
        moved = np.flatnonzero(lookup.moved)
        samples = self._spool.samples(self._spool.row_ids(moved[:5].tolist()))
        match = Match(counted(scans, batches), int(lookup.matched.sum()), len(moved), samples)
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


def scan_bytes(scan: Scan) -> int:
    return 16 * sum(scan.footer.row_groups[group].rows for group in scan.row_groups)


def hits_of(spool: Spool, scans: Sequence[Scan], batches: Iterable[pa.RecordBatch]) -> Hits:
    hit_files: tuple[HitFile, ...] = tuple(write_hits(spool.store, batches))
    return Hits(spool.store, hit_files, {scan.footer.path: number for number, scan in enumerate(scans)})


def counted(scans: Sequence[Scan], batches: Iterable[pa.RecordBatch]) -> Counts:
    """Matched rows by path and row group; each batch is of one row group."""
    counts: Counts = {}
    for batch in batches:
        path = scans[batch.column("file")[0].as_py()].footer.path
        counts.setdefault(path, {})[batch.column("row_group")[0].as_py()] = batch.num_rows
    return counts


def profile_of(spool: Spool, keys: KeySet) -> Profile:
    """The profile of a source, from the metadata of its parts and its duplicate keys."""
    names = spool.shape.keys
    nulls = {name: sum(part.nulls[i] for part in spool.parts) for i, name in enumerate(names)}
    count, rows = (0, []) if any(nulls.values()) or not spool.parts else keys.duplicates()
    return Profile(
        rows=spool.rows,
        null_keys=nulls,
        duplicate_keys=count,
        duplicate_samples=spool.samples(rows),
        partitions=frozenset(partition for part in spool.parts for partition in part.partitions if partition),
        intervals={name: merge_intervals([part.intervals[i] for part in spool.parts]) for i, name in enumerate(names)},
        columns_to_retype=spool.columns_to_retype,
    )
