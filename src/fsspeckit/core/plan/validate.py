"""What a merge refuses, in the words that say how to go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.errors import ArgumentError, DuplicateKeyError, NullKeyError, PartitionMoveError
from fsspeckit.core.model import Match, MergeStrategy, Profile
from fsspeckit.core.values import arrays, keys, schema


def key_names(key_columns: Any) -> tuple[str, ...]:
    """Key columns as a tuple of names; one name may be given as a string."""
    names = column_names("key_columns", key_columns)
    if not names:
        raise ArgumentError("key_columns is empty. Name the columns that identify a row, e.g. key_columns=['id'].")
    return names


def column_names(argument: str, columns: Any) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if not isinstance(columns, Iterable):
        raise ArgumentError(f"{argument} takes column names, not {columns!r}.")
    return _distinct(argument, (columns,) if isinstance(columns, str) else tuple(columns))


def _distinct(argument: str, names: tuple[Any, ...]) -> tuple[str, ...]:
    wrong = [n for n in names if not isinstance(n, str)]
    if wrong:
        raise ArgumentError(f"{argument} takes column names, not {wrong[0]!r}.")
    if len(set(names)) < len(names):
        raise ArgumentError(f"{argument} names a column twice: {list(names)}.")
    return names


def order_columns(names: Sequence[str], columns: pa.Schema) -> None:
    missing = [n for n in names if n not in columns.names]
    if missing:
        raise ArgumentError(f"dedup_order_by names {missing}, which the source does not have. It has: {columns.names}.")
    unordered = [n for n in names if not keys.is_plain_value(columns.field(n).type)]
    if unordered:
        raise ArgumentError(f"dedup_order_by names {unordered}, whose values have no order; name other columns.")


def incremental(strategy: MergeStrategy) -> None:
    if not strategy.incremental:
        raise ArgumentError(
            f"Incremental rewrite is not supported for {strategy.value!r}: it concerns every row of the target. "
            f"Use write_parquet_dataset(..., strategy={strategy.value!r}, rewrite_mode='full')."
        )


def no_null_keys(null_counts: dict[str, int]) -> None:
    found = {name: count for name, count in null_counts.items() if count}
    if found:
        counts = ", ".join(f"{name!r} ({count} row{'s' * (count != 1)})" for name, count in found.items())
        raise NullKeyError(
            f"Key columns of the source contain NULL values: {counts}. A NULL matches nothing; drop or fill these rows."
        )


def no_duplicate_keys(count: int, samples: Sequence[tuple[Any, ...]], key_columns: Sequence[str]) -> None:
    if count:
        raise DuplicateKeyError(
            f"The source has duplicate keys: {count} key(s) of {list(key_columns)} occur more than once, e.g. "
            f"{keys.show(samples)}. Keep one row per key; write_parquet_dataset(..., strategy='deduplicate') does that."
        )


def no_differing_duplicates(
    count: int, samples: Sequence[tuple[Any, ...]], key_columns: Sequence[str], order_by: Sequence[str]
) -> None:
    """Rows of one key that tie for the greatest may only be copies of each other."""
    if count:
        how = f"dedup_order_by={list(order_by)} leaves ties between them" if order_by else "dedup_order_by is not given"
        raise DuplicateKeyError(
            f"The source has {count} key(s) of {list(key_columns)} with differing rows, and {how}, e.g. "
            f"{keys.show(samples)}. Name columns in dedup_order_by whose greatest value tells the row to keep."
        )


def source(profile: Profile, key_columns: Sequence[str]) -> None:
    no_null_keys(dict(profile.null_keys))
    no_duplicate_keys(profile.duplicate_keys, profile.duplicate_samples, key_columns)


def partitions_unmoved(count: int, samples: Sequence[tuple[Any, ...]], partition_columns: Sequence[str]) -> None:
    if count:
        raise PartitionMoveError(
            f"Partition columns {list(partition_columns)} cannot change for existing keys: {count} key(s) lie in "
            f"another partition of the target, e.g. {keys.show(samples)}. Keep their partition, or delete the old rows "
            "first."
        )


def no_moved_keys(match: Match, strategy: MergeStrategy, partition_columns: Sequence[str]) -> None:
    if strategy.updates:
        partitions_unmoved(match.moved, match.moved_samples, partition_columns)


def validate_no_null_keys(source_table: pa.Table, key_columns: Sequence[str]) -> None:
    """Reject merges where the source has null keys.

    Raises:
        ValueError: if any key column contains NULL values.
    """
    no_null_keys({name: _column(source_table, name).null_count for name in key_names(key_columns)})


def validate_partition_column_immutability(
    source_table: pa.Table, target_table: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]
) -> None:
    """Reject merges that would change partition columns for existing keys.

    Raises:
        ValueError: if a key that is in both tables has another partition value in the source.
    """
    names, partitions = key_names(key_columns), column_names("partition_columns", partition_columns) or ()
    validate_no_null_keys(source_table, names)
    ours, theirs = {}, {}
    for name in [*names, *partitions]:
        ours[name], theirs[name] = _canonical_pair(source_table, target_table, name)
    index = keys.KeyIndex([ours[name] for name in names])
    rows = index.find([theirs[name] for name in names])
    found = rows >= 0
    moved = np.zeros(int(found.sum()), dtype=bool)
    for name in partitions:
        moved |= keys.differ(ours[name].take(pa.array(rows[found])), theirs[name].filter(pa.array(found)))
    shown = [_column(source_table, name) for name in names]
    where = rows[found][moved]
    partitions_unmoved(len(where), keys.sample(shown, where[:5].tolist()), partitions)


def _canonical_pair(source_table: pa.Table, target_table: pa.Table, name: str) -> tuple[pa.Array, pa.Array]:
    columns = [_column(table, name) for table in (source_table, target_table)]
    kind = schema.comparable_type(name, columns[0], columns[1].type)
    ours, theirs = (keys.canonical(arrays.cast(arrays.plain(column), kind)) for column in columns)
    return ours, theirs


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ArgumentError(f"Column {name!r} not found; the table has {table.column_names}.")
    return table.column(name)
