"""Deduplicate the source: keep the greatest row of each key by the given columns."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core import validate
from fsspeckit.core.model import Shape
from fsspeckit.core.rows.exchange import BUCKET_BYTES, Bucketed, Read, Runner, Step, Task, by_bucket
from fsspeckit.core.rows.spool import Numbers, Part, PartWriter, Spool, canonical_keys
from fsspeckit.core.rows.store import Store
from fsspeckit.core.validate import RowOrder
from fsspeckit.core.values import arrays, keys
from fsspeckit.core.values.equality import identical_rows


def one_row_per_key(runner: Runner, spool: Spool, order: RowOrder) -> Spool:
    """Keys are hashed into buckets that fit in memory, and each bucket is reduced by itself.

    Null is least and NaN greatest. Rows that tie for the greatest must be identical.
    """
    buckets = 1 if spool.in_memory else max(1, -(-spool.bytes // BUCKET_BYTES))
    tasks = [Task(n, range(n, n + 1), spool.bytes // buckets, 4 * spool.bytes // buckets) for n in range(buckets)]
    send, receive = partial(_send, spool, buckets), partial(_receive, spool.shape, spool.store, order)
    reduced = runner.exchange(Step("deduplicate", spool.rows, spool.bytes), spool, send, receive, tasks)
    samples = [sample for _, sample in sorted(numbered for *_, differing in reduced for numbered in differing)[:5]]
    validate.no_differing_duplicates(sum(ties for _, ties, _ in reduced), samples, spool.shape.keys, order)
    return replace(spool, parts=tuple(part for parts, *_ in reduced for part in parts))


# -- these run where the parts are stored, and where the buckets are reduced


def _send(spool: Spool, buckets: int, parts: Sequence[int], only: range | None) -> Bucketed:
    """All rows of some parts with their row number in the source. Equal keys are in one bucket."""
    for row_number, rows, batch in _with_row_numbers(spool, parts):
        table = rows.add_column(0, "place", pa.array(np.arange(row_number, row_number + rows.num_rows)))
        hashed = np.zeros(table.num_rows, dtype=np.uint64)
        for i in range(len(spool.shape.keys)) if buckets > 1 else ():
            hashed = hashed * np.uint64(31) + _hash(batch.column(f"k{i}"))
        bucket_of = (hashed % np.uint64(buckets)).astype(np.int64)
        yield from ((n, rows) for n, rows in by_bucket(table, bucket_of) if only is None or n in only)


def _with_row_numbers(spool: Spool, parts: Sequence[int]) -> Iterator[tuple[int, pa.Table, pa.RecordBatch]]:
    """Rows and their keys, with the row number of the first."""
    for part in parts:
        row_number = int(spool.offsets[part])
        for rows, batch in zip(spool.read(part), spool.read_keys(part), strict=True):
            yield row_number, rows, batch
            row_number += rows.num_rows


def _hash(column: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash that is the same in every process. Null keys were refused before."""
    if column.type == pa.int64():
        numbers: npt.NDArray[np.uint64] = column.to_numpy(zero_copy_only=False).view(np.uint64)
        mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
        return mixed ^ (mixed >> np.uint64(32))
    return np.fromiter((zlib.crc32(v) for v in column.to_pylist()), dtype=np.uint64, count=len(column))


def _receive(
    shape: Shape, store: Store, order: RowOrder, bucket: int, read: Read
) -> tuple[tuple[Part, ...], int, tuple[tuple[int, tuple[Any, ...]], ...]]:
    """The parts that stay, the number of keys with differing ties, and some of these keys with their row numbers."""
    arrived = read(bucket)
    if arrived is None:
        return (), 0, ()
    row_numbers, table = arrived.column(0).to_numpy(), arrived.select(range(1, arrived.num_columns))
    rows, ties = _reduced(table, shape, order)
    writer = PartWriter(store, shape)
    writer.write(rows)
    first = sorted(ties, key=lambda row: row_numbers[row])[:5]
    samples = keys.sample([table.column(k) for k in shape.keys], first)
    return writer.finish(), len(ties), tuple(zip(row_numbers[first].tolist(), samples, strict=True))


def _reduced(table: pa.Table, shape: Shape, order: RowOrder) -> tuple[pa.Table, list[int]]:
    """One row per key, in the order of the keys' first rows; and one row of each key whose ties differ."""
    columns = canonical_keys(table, shape)
    codes = keys.KeyIndex([columns.column(f"k{i}") for i in range(len(shape.keys))]).groups()
    best = _greatest(table, codes, order.columns)
    winner = best[codes]
    tied = np.ones(table.num_rows, dtype=bool)
    for name in order.columns:
        column = keys.canonical(table.column(name))
        tied &= ~keys.differ(column, column.take(pa.array(winner)))
    if shape.deletes is not None:  # two deletes of one key and sequence are identical
        is_delete = table.column(shape.deletes.flag).to_numpy()
        tied &= ~(is_delete & is_delete[winner])
    rows = np.flatnonzero(tied & (winner != np.arange(table.num_rows)))
    _, first = np.unique(codes, return_index=True)
    reduced = table.take(pa.array(best[codes[np.sort(first)]]))
    return reduced, [] if order.ties_are_equal else _differing(table, rows, winner[rows])


def _greatest(table: pa.Table, codes: Numbers, order_by: Sequence[str]) -> Numbers:
    """The last row of each key by `order_by`; of ties, the first in the source."""
    ranks = [rank for name in order_by for rank in _ranks(table.column(name))]
    order = np.lexsort([-np.arange(len(codes)), *reversed(ranks), codes])
    last = np.flatnonzero(np.diff(codes[order], append=-1))
    return order[last]


def _ranks(column: pa.ChunkedArray) -> list[npt.NDArray[np.generic]]:
    """Numbers in the order of the column: null least, NaN greatest."""
    array = arrays.one_array(column)
    nan = np.zeros(len(array), dtype=bool)
    if pa.types.is_floating(array.type):
        array = array.cast(pa.float64())
        nan = pc.is_nan(array).fill_null(False).to_numpy(zero_copy_only=False)
    ranks = pc.rank(keys.sortable(array), sort_keys="ascending", tiebreaker="dense").to_numpy()
    return [nan, np.where(array.is_valid().to_numpy(zero_copy_only=False), ranks, 0)]


def _differing(table: pa.Table, rows: Numbers, winners: Numbers) -> list[int]:
    """The winners that differ from a row that they tie with."""
    losers, kept = (table.take(pa.array(r)) for r in (rows, winners))
    if identical_rows(losers, kept):
        return []
    wrong = [i for i in range(len(rows)) if not identical_rows(losers.slice(i, 1), kept.slice(i, 1))]
    return list(dict.fromkeys(winners[wrong].tolist()))
