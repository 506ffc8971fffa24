"""Matching a source whose keys are small: looked up where the target's keys are read.

Small is what Spark itself would broadcast; `join` does the rest. The target's keys are read on executors by the
core's key reader. Every meeting ends up in a file of hits in the scratch folder, and only counts come back.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.model import Match, Scan, Shape
from fsspeckit.core.plan import confirm
from fsspeckit.core.storage import Location
from fsspeckit.core.values import keys
from fsspeckit.datasets.spark import parts as pinned
from fsspeckit.datasets.spark.parts import Part
from fsspeckit.datasets.spark.scratch import Scratch, unique
from fsspeckit.datasets.spark.session import Cluster, spread

_PLACE = [("file", pa.int32()), ("row_group", pa.int32()), ("position", pa.int64())]
HITS = pa.schema([*_PLACE, ("part", pa.int32()), ("row", pa.int64())])


@dataclass(frozen=True, slots=True)
class Hits:
    """A file of hits, and the parts it may speak of (`None`: all)."""

    name: str
    parts: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The pinned source as tasks see it."""

    scratch: Scratch
    shape: Shape
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def key_bytes(self) -> int:
        return sum(part.key_bytes for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


def scan_weight(scan: Scan) -> int:
    """Rows count: only key columns are read, and how wide they are is the same everywhere."""
    return 16 * sum(scan.footer.row_groups[g].rows for g in scan.row_groups)


@dataclass(frozen=True, slots=True)
class _Found:
    """What one task found: counts of its scans, which source rows were met, and which of them would move."""

    counts: list[dict[int, int]]
    hits: str
    met: bytes
    moved: bytes


def match_small(
    cluster: Cluster, location: Location, source: Source, scans: Sequence[Scan]
) -> tuple[Match, list[Hits]]:
    weights = [scan_weight(scan) for scan in scans]
    bins = spread(weights, cluster.task_count(weights))
    tasks = [[(i, scans[i]) for i in members] for members in bins]
    found: list[_Found] = cluster.run("match", partial(_look_up, location, source), tasks)
    counts = {i: n for members, f in zip(bins, found) for i, n in zip(members, f.counts)}
    rows = {scans[i].footer.path: n for i, n in sorted(counts.items()) if n}
    met, moved = (_either([getattr(f, name) for f in found], source.rows) for name in ("met", "moved"))
    gone = np.flatnonzero(moved)
    starts = pinned.offsets(source.parts)
    shown = [pinned.locate_row(starts, row) for row in gone[:5].tolist()]
    samples = pinned.samples(source.scratch, source.parts, source.shape, shown)
    return Match(rows, int(met.sum()), len(gone), samples), [Hits(f.hits) for f in found]


def _either(packed: Sequence[bytes], rows: int) -> Any:
    bits = np.zeros((rows + 7) // 8, dtype=np.uint8)
    for one in packed:
        bits |= np.frombuffer(zlib.decompress(one), dtype=np.uint8)
    return np.unpackbits(bits, count=rows).astype(bool)


def _look_up(location: Location, source: Source, scans: list[tuple[int, Scan]]) -> _Found:
    """On an executor: the source's keys against the row groups of some files."""
    table = pinned.all_keys(source.scratch, source.parts)
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    index = keys.KeyIndex([columns[f"k{i}"] for i in range(len(source.shape.keys))])
    ours = [column for name, column in columns.items() if name.startswith("p")]
    starts, name = pinned.offsets(source.parts), unique("hits")
    met, moved = (np.zeros(source.rows, dtype=bool) for _ in range(2))
    counts: list[dict[int, int]] = []
    with source.scratch.writer(name, HITS) as file:
        for number, scan in scans:
            counts.append({})
            for batch in confirm.read_keys(location, scan, source.shape):
                found = index.find(batch.keys)
                positions = np.flatnonzero(found >= 0)
                rows = found[positions]
                if len(positions):
                    counts[-1][batch.row_group] = len(positions)
                    met[rows] = True
                    moved[rows[_moved(ours, batch.partitions, rows, positions)]] = True
                    file.write(_hits(number, batch.row_group, positions, rows, starts))
    return _Found(counts, name, _packed(met), _packed(moved))


def _packed(rows: Any) -> bytes:
    """Many tasks send one of these, but few rows are in more than one: compressed, all of them are about one bitmap."""
    return zlib.compress(np.packbits(rows).tobytes(), level=1)


def _moved(ours: list[pa.Array], theirs: list[pa.Array], rows: Any, positions: Any) -> Any:
    there = np.zeros(len(rows), dtype=bool)
    for mine, other in zip(ours, theirs, strict=True):
        there |= keys.differ(mine.take(pa.array(rows)), other.take(pa.array(positions)))
    return there


def _hits(file: int, group: int, positions: Any, rows: Any, starts: Any) -> pa.RecordBatch:
    part = np.searchsorted(starts, rows, side="right") - 1
    count = len(rows)
    columns = [np.full(count, file), np.full(count, group), positions, part, rows - starts[part]]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, HITS, strict=True)], schema=HITS)


def duplicates_small(source: Source) -> tuple[int, list[tuple[int, int]]]:
    """Keys that Spark would broadcast pass through the driver, as they do in a broadcast join."""
    table = pinned.all_keys(source.scratch, source.parts)
    index = keys.KeyIndex([table.column(f"k{i}").combine_chunks() for i in range(len(source.shape.keys))])
    count, rows = index.duplicates()
    starts = pinned.offsets(source.parts)
    return count, [pinned.locate_row(starts, row) for row in rows]
