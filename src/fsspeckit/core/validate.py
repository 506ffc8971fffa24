"""Checks that refuse a merge, with messages that say what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.core.actions import Actions
from fsspeckit.core.errors import ArgumentError, DuplicateKeyError, NullKeyError, PartitionMoveError
from fsspeckit.core.model import Match, MergeStrategy, Profile
from fsspeckit.core.values import keys


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
    if not strategy.actions.incremental:
        raise ArgumentError(
            f"Incremental rewrite is not supported for {strategy.value!r}: it concerns every row of the target. "
            f"Use write_parquet_dataset(..., strategy={strategy.value!r}, rewrite_mode='full')."
        )


def no_null_keys(null_counts: dict[str, int]) -> None:
    columns_with_nulls = {name: count for name, count in null_counts.items() if count}
    if columns_with_nulls:
        counts = ", ".join(f"{name!r} ({count} row{'s' * (count != 1)})" for name, count in columns_with_nulls.items())
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
    """Rows of one key that tie for the greatest must be identical."""
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


def no_moved_keys(match: Match, actions: Actions, partition_columns: Sequence[str]) -> None:
    if actions.matched == "update":
        partitions_unmoved(match.moved, match.moved_samples, partition_columns)
