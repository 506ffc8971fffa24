"""Source rows brought to the file they belong to, through the scratch folder and without Spark's types.

A task per handful of parts takes the rows that it needs and writes them labelled: by target file for a rewrite, by
partition for an insert, by hash of the key to deduplicate. Whoever needs a label reads its batches out of every such
file. What is there survives the executor that wrote it, which a shuffle does not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.values import keys
from fsspeckit.datasets.spark import parts as pinned
from fsspeckit.datasets.spark.match import HITS, Hits, Source
from fsspeckit.datasets.spark.scratch import Scratch


@dataclass(frozen=True, slots=True)
class Section:
    """Rows of one label in one routed file."""

    label: int
    name: str
    rows: int
    bytes: int


def route(
    source: Source, rows: Callable[[int], Iterator[tuple[int, pa.Table]]], numbers: Sequence[int]
) -> list[Section]:
    """On an executor: labelled rows of some parts, into one file."""
    labelled = (found for number in numbers for found in rows(number))
    return write_sections(source.scratch, labelled)


def write_sections(scratch: Scratch, labelled: Iterator[tuple[int, pa.Table]]) -> list[Section]:
    totals: dict[int, tuple[int, int]] = {}

    def counted() -> Iterator[tuple[int, pa.Table]]:
        for label, table in labelled:
            rows, size = totals.get(label, (0, 0))
            totals[label] = rows + table.num_rows, size + table.nbytes
            yield label, table

    name = scratch.write_labelled("routed", counted())
    return [Section(label, name, rows, size) for label, (rows, size) in totals.items()]


# -- rows that replace rows of a file


def read_hits(source: Source, hits: Sequence[Hits], numbers: Sequence[int]) -> pa.Table:
    """The hits of some parts."""
    wanted, tables = set(numbers), [HITS.empty_table()]
    for one in hits:
        if one.parts is None or one.parts & wanted:
            table = source.scratch.reader(one.name).read_all()
            mask = np.isin(np.asarray(table.column("part")), numbers)
            tables.append(table.filter(pa.array(mask)))
    return pa.concat_tables(tables)


def matched_rows(
    source: Source, hits: Sequence[Hits], files: Sequence[int], numbers: Sequence[int]
) -> Iterator[tuple[int, pa.Table]]:
    """By file: row group, position and the source row to put there. Internal columns are told by place, not name."""
    found = read_hits(source, hits, numbers)
    found = found.filter(pa.array(np.isin(np.asarray(found.column("file")), files)))
    for number in numbers:
        here = found.filter(pa.array(np.asarray(found.column("part")) == number)).sort_by("row")
        if not here.num_rows:
            continue
        rows = pinned.take(source.scratch, source.parts[number], np.asarray(here.column("row")))
        columns = [here.column("row_group"), here.column("position"), *rows.columns]
        table = pa.table(columns, names=["row_group", "position", *rows.column_names])
        yield from by_label(table, np.asarray(here.column("file")))


def by_label(table: pa.Table, labels: Any) -> Iterator[tuple[int, pa.Table]]:
    """Rows grouped by their label, in order within it."""
    order = np.argsort(labels, kind="stable")
    distinct, starts = np.unique(labels[order], return_index=True)
    ordered = table.take(pa.array(order))
    for label, start, end in zip(distinct.tolist(), starts, [*starts[1:], len(order)], strict=True):
        yield label, ordered.slice(start, end - start)


class FileRows:
    """`kernel.Replacements` out of labelled rows."""

    def __init__(self, pieces: Sequence[pa.Table]) -> None:
        self._groups: dict[int, tuple[Any, pa.Table]] = {}
        if pieces:
            self._sort(pa.concat_tables(pieces))

    def _sort(self, table: pa.Table) -> None:
        groups, positions = (table.column(i).to_numpy() for i in range(2))
        order = np.lexsort((positions, groups))
        rows = table.select(range(2, table.num_columns)).take(pa.array(order))
        for group, start, end in _runs(groups[order]):
            self._groups[group] = positions[order][start:end], rows.slice(start, end - start)

    def rows(self, row_group: int) -> tuple[Any, pa.Table]:
        return self._groups[row_group]


def _runs(ordered: Any) -> Iterator[tuple[int, int, int]]:
    distinct, starts = np.unique(ordered, return_index=True)
    return zip(distinct.tolist(), starts.tolist(), [*starts[1:].tolist(), len(ordered)], strict=True)


# -- rows that are new


def new_rows(source: Source, hits: Sequence[Hits] | None, number: int) -> Iterator[pa.Table]:
    """Rows of a part that met no key of the target; without hits, all of them."""
    part = source.parts[number]
    new = np.ones(part.rows, dtype=bool)
    if hits is not None:
        new[np.asarray(read_hits(source, hits, [number]).column("row"))] = False
    start = 0
    for table in pinned.read_rows(source.scratch, part):
        mask = new[start : start + table.num_rows]
        start += table.num_rows
        yield table if mask.all() else table.filter(pa.array(mask))


def new_rows_by_partition(
    source: Source, hits: Sequence[Hits] | None, known: Sequence[tuple[Any, ...]], number: int
) -> Iterator[tuple[int, pa.Table]]:
    """New rows of a part, labelled by the number of their partition; all are 0 where there are no partitions."""
    table = pa.concat_tables(new_rows(source, hits, number))
    if not table.num_rows:
        return
    names = source.shape.partitions
    if not names:
        yield 0, table
        return
    place = {values: i for i, values in enumerate(known)}
    codes, first = keys.group([keys.canonical(table.column(p)) for p in names])
    values = pinned.partition_values(table.take(pa.array(first)), source.shape)
    yield from by_label(table, np.array([place[v] for v in values])[codes])


# -- rows by key


def rows_by_key(source: Source, buckets: int, number: int) -> Iterator[tuple[int, pa.Table]]:
    """All rows of a part, labelled so that equal keys have equal labels."""
    batches = pinned.read_keys(source.scratch, source.parts[number])
    for table, batch in zip(pinned.read_rows(source.scratch, source.parts[number]), batches, strict=True):
        hashed: Any = np.zeros(table.num_rows, dtype=np.uint64)
        for i in range(len(source.shape.keys)):
            hashed = hashed * np.uint64(31) + _hash(batch.column(f"k{i}"))
        yield from by_label(table, (hashed % np.uint64(buckets)).astype(np.int64))


def _hash(column: pa.Array) -> Any:
    """The same in every process; a key column has no nulls by now."""
    if column.type == pa.int64():
        mixed = column.to_numpy(zero_copy_only=False).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return mixed ^ (mixed >> np.uint64(32))
    return np.fromiter((zlib.crc32(v) for v in column.to_pylist()), dtype=np.uint64, count=len(column))
