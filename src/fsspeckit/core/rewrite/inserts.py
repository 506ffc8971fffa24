"""Insert new rows: which folder they go to, in which layout, and into how many files.

The aim is few files, few of them small, and no task with most of the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.actions import PRESETS, Actions
from fsspeckit.core.dataset.ledger import Ledger
from fsspeckit.core.dataset.partitions import PartitionMap
from fsspeckit.core.match.hits import Hits, rows_to_insert
from fsspeckit.core.model import Footer, Shape, Staged, WriteOptions
from fsspeckit.core.parquet.layout import Layout, template_layout
from fsspeckit.core.parquet.retype import NewColumns
from fsspeckit.core.parquet.writer import NewFileWriter
from fsspeckit.core.progress import SILENT, Progress
from fsspeckit.core.rows.exchange import BUCKET_BYTES, Bucketed, Read, Runner, Step, Task, by_bucket
from fsspeckit.core.rows.spool import PART_BYTES, Spool, numbered_partitions
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays, keys

Share = tuple[tuple[Any, ...], int]
"""A partition, and the number of a part with rows of it."""


@dataclass(frozen=True)
class NewFiles:
    """How new rows are written: all source rows, or those that `actions` insert.

    `template` is a file of the target whose layout new files get, if there is one. `evolved_template` is one that has
    the columns of the target before this merge, and the columns in which new files differ from it.
    """

    shape: Shape
    partitions: PartitionMap
    staging: str
    options: WriteOptions
    template: Footer | None = None
    ledger: Ledger = field(default_factory=dict)
    actions: Actions = PRESETS["insert"]
    evolved_template: tuple[Footer, NewColumns] | None = None
    progress: Progress = SILENT

    def write(self, location: Location, tables: Iterable[pa.Table]) -> list[Staged]:
        """Write tables in the shape's plain schema. Rows of one partition should be next to each other."""
        layout = self.layout(location)
        template = self.template or (self.evolved_template and self.evolved_template[0])
        may_be_nullable = template is not None and template.by_spark
        nullable_layout = self.layout(location, nullable=True) if may_be_nullable else None
        with NewFileWriter(location.storage, self.staging, layout, self.options, nullable_layout) as files:
            for table in map(self.complete, tables):
                for folder, rows in rows_by_folder(table, self.partitions):
                    files.write(folder, rows)
                self.progress.advance(bytes=table.nbytes)
            return files.finish()

    def complete(self, table: pa.Table) -> pa.Table:
        """With null in the columns that source rows do not have, in the order of the shape."""
        names, rows = self.shape.schema.names, table.num_rows
        if table.column_names == names:
            return table
        columns = dict(zip(table.column_names, table.columns, strict=True))
        types = {name: arrays.plain_type(self.shape.schema.field(name).type) for name in names}
        return pa.table([columns.get(name, arrays.null_array(rows, types[name])) for name in names], names=names)

    def write_empty(self, location: Location, folder: str) -> list[Staged]:
        """Write one file without rows, which keeps the schema."""
        with NewFileWriter(location.storage, self.staging, self.layout(location), self.options) as files:
            files.write_empty(folder)
            return files.finish()

    def layout(self, location: Location, *, nullable: bool = False) -> Layout:
        template, columns = (self.template, None) if self.template else self.evolved_template or (None, None)
        if template is not None:
            layout = template_layout(location, template, columns, nullable=nullable)
            layout = layout.compressed(self.options).in_modern_calendar()
        else:
            fields = [self.shape.schema.field(name) for name in self.shape.stored]
            layout = Layout.new(pa.schema(fields, self.shape.schema.metadata), self.options)
        return layout.with_entries(self.ledger)


def rows_by_folder(table: pa.Table, partitions: PartitionMap) -> Iterable[tuple[str, pa.Table]]:
    """Rows by folder. Rows of a folder keep their order."""
    columns = partitions.columns
    if not columns or not table.num_rows:
        return [("", table)]
    codes, first = keys.group([keys.canonical(table.column(c)) for c in columns])
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    sorted_rows = table.take(pa.array(order))
    return [
        (partitions.folder({c: table.column(c)[row] for c in columns}), sorted_rows.slice(start, end - start))
        for row, start, end in zip(first.tolist(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ]


def insert_rows(
    runner: Runner, location: Location, spool: Spool, hits: Hits | None, count: int, files: NewFiles
) -> list[Staged]:
    """Write the `count` rows with a new key or another partition, or all rows if there are no hits.

    If the target is partitioned, or if few of many rows are new, rows are exchanged first: rows of one partition go to
    one task, and few rows to few files. Otherwise each part is written where it is.
    """
    if not count:
        return []
    new_bytes = spool.bytes * count // spool.rows
    step = Step("insert", count, spool.bytes)
    if not spool.shape.partitions and (spool.of_one_process or 2 * new_bytes >= spool.bytes):
        write = partial(_write_parts, location, spool, hits, files)
        groups = [range(len(spool.parts))] if spool.of_one_process else _groups(spool, new_bytes)
        staged = runner.map(step, write, groups, lambda group: sum(spool.parts[p].bytes for p in group))
    else:
        tasks, buckets = _tasks(spool, new_bytes)
        send, receive = partial(_send, spool, hits, buckets, files.actions), partial(_receive, location, files)
        staged = runner.exchange(step, spool, send, receive, tasks)
    return [file for files in staged for file in files]


def _groups(spool: Spool, new_bytes: int) -> list[range]:
    """Parts in order, in groups of about equal size. Each group has about `PART_BYTES` of new rows."""
    count = max(1, -(-new_bytes // PART_BYTES))
    ends = np.cumsum([part.bytes for part in spool.parts])
    even_ends = np.arange(1, count) * (ends[-1] / count)
    cuts = sorted({0, len(ends), *(np.searchsorted(ends, even_ends) + 1).tolist()})
    return [range(start, end) for start, end in pairwise(cuts)]


def _tasks(spool: Spool, new_bytes: int) -> tuple[list[Task[range]], dict[Share, int]]:
    """Partitions in order. A bucket has several small partitions, or a piece of a large one.

    In one process there is one task. Sizes are estimates: new rows are assumed to be spread evenly.
    """
    bucket_bytes = spool.bytes if spool.in_memory else BUCKET_BYTES
    row_bytes = new_bytes / spool.rows
    buckets: dict[Share, int] = {}
    borders, bucket, size = [0], 0, 0.0
    for partition, shares in sorted(_shares(spool).items(), key=lambda item: repr(item[0])):
        if size and size + row_bytes * sum(shares.values()) > bucket_bytes:
            bucket, size = bucket + 1, 0
        for part, rows in shares.items():
            if size > bucket_bytes:
                bucket, size = bucket + 1, 0
            if not spool.of_one_process and (bucket - borders[-1]) * bucket_bytes >= PART_BYTES:
                borders.append(bucket)
            buckets[partition, part] = bucket
            size += row_bytes * rows
    ranges = [range(start, end) for start, end in pairwise([*borders, bucket + 1])]
    return [Task(r, r, len(r) * BUCKET_BYTES, len(r) * BUCKET_BYTES) for r in ranges], buckets


def _shares(spool: Spool) -> dict[tuple[Any, ...], dict[int, int]]:
    """The number of rows by partition and part."""
    shares: dict[tuple[Any, ...], dict[int, int]] = {}
    for number, part in enumerate(spool.parts):
        for partition, rows in part.partitions.items():
            shares.setdefault(partition, {})[number] = rows
    return shares


def count_by_folder(
    runner: Runner,
    spool: Spool,
    hits: Hits | None,
    count: int,
    partitions: PartitionMap,
    actions: Actions = PRESETS["insert"],
) -> dict[str, int]:
    """How many of the `count` rows that are inserted go to which folder."""
    if not count:
        return {}
    if not partitions.columns:
        return {"": count}
    step, parts = Step("insert", count, spool.bytes), list(range(len(spool.parts)))
    in_part = partial(_count, spool, hits, partitions, actions)
    counted = runner.map(step, in_part, parts, lambda part: spool.parts[part].bytes)
    return dict(sorted(sum(counted, Counter[str]()).items()))


# -- tasks: `_send` runs where the rows are, `_receive` where files are written


def _count(spool: Spool, hits: Hits | None, partitions: PartitionMap, actions: Actions, part: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for table in rows_to_insert(spool, hits, part, actions):
        counts.update({folder: rows.num_rows for folder, rows in rows_by_folder(table, partitions)})
    return counts


def _write_parts(
    location: Location, spool: Spool, hits: Hits | None, files: NewFiles, parts: Sequence[int]
) -> list[Staged]:
    tables = (table for part in parts for table in rows_to_insert(spool, hits, part, files.actions))
    return files.write(location, tables)


def _send(
    spool: Spool,
    hits: Hits | None,
    buckets: Mapping[Share, int],
    actions: Actions,
    parts: Sequence[int],
    only: range | None,
) -> Bucketed:
    """New rows by the bucket of their partition, batch by batch: a whole part may not fit into memory several times."""
    for part in parts:
        own = {buckets[partition, part] for partition in spool.parts[part].partitions}
        if only is None or not own.isdisjoint(only):
            for table in rows_to_insert(spool, hits, part, actions):
                codes, partitions = numbered_partitions(table, spool.shape)
                row_buckets = np.array([buckets[partition, part] for partition in partitions], dtype=np.int64)[codes]
                bucketed = by_bucket(table, row_buckets)
                yield from ((bucket, rows) for bucket, rows in bucketed if only is None or bucket in only)


def _receive(location: Location, files: NewFiles, buckets: range, read: Read) -> list[Staged]:
    def tables() -> Iterator[pa.Table]:
        for bucket in buckets:
            table = read(bucket)
            if table is not None:
                yield table

    return files.write(location, tables())
