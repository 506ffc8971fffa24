"""Checks that refuse a merge, with messages that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.core.actions import Actions
from fsspeckit.core.errors import (
    ArgumentError,
    DuplicateKeyError,
    NullKeyError,
    PartitionMoveError,
    RemovedRowsError,
    SchemaMismatchError,
)
from fsspeckit.core.model import Match, MergeStrategy, Profile, RowOptions, SchemaChanges, Shape, Target
from fsspeckit.core.values import keys
from fsspeckit.core.values.shape import columns_differ, missing_columns
from fsspeckit.core.values.unify import types_differ


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The columns by which the greatest of several rows with the same key is kept, and the argument that names them.

    With `ties_are_equal`, any of the greatest may be kept.
    """

    columns: tuple[str, ...]
    argument: str = "dedup_order_by"
    ties_are_equal: bool = False


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


def no_null_keys(null_counts: Mapping[str, int]) -> None:
    counts = _columns_with_nulls(null_counts)
    if counts:
        raise NullKeyError(
            f"Key columns of the source contain NULL values: {counts}. A NULL matches nothing; drop or fill these rows."
        )


def _columns_with_nulls(null_counts: Mapping[str, int]) -> str:
    """`'id' (1 row), 'day' (3 rows)`; empty if there are no nulls."""
    return ", ".join(f"{name!r} ({count} row{'s' * (count != 1)})" for name, count in null_counts.items() if count)


def no_duplicate_keys(count: int, samples: Sequence[tuple[Any, ...]], key_columns: Sequence[str]) -> None:
    if count:
        raise DuplicateKeyError(
            f"The source has duplicate keys: {count} key(s) of {list(key_columns)} occur more than once, e.g. "
            f"{keys.show(samples)}. Keep one row per key, or name the columns that show which row is the latest: "
            "sequence_by=['updated_at'], on_duplicates='latest'."
        )


def no_differing_duplicates(
    count: int, samples: Sequence[tuple[Any, ...]], key_columns: Sequence[str], order: RowOrder
) -> None:
    """Rows of one key that tie for the greatest must be identical."""
    if count:
        how = f"{order.argument} is not given"
        if order.columns:
            how = f"{order.argument}={list(order.columns)} leaves ties between them"
        raise DuplicateKeyError(
            f"The source has {count} key(s) of {list(key_columns)} with differing rows, and {how}, e.g. "
            f"{keys.show(samples)}. Name columns in {order.argument} whose greatest value decides which row to keep."
        )


def partitions_unmoved(count: int, samples: Sequence[tuple[Any, ...]], partition_columns: Sequence[str]) -> None:
    if count:
        raise PartitionMoveError(
            f"Partition columns {list(partition_columns)} cannot change for existing keys: {count} key(s) lie in "
            f"another partition of the target, e.g. {keys.show(samples)}. Keep their partition, or delete the old rows "
            "first."
        )


def no_moved_keys(match: Match, actions: Actions, partition_columns: Sequence[str]) -> None:
    if actions.moved == "refuse":
        partitions_unmoved(match.elsewhere, match.elsewhere_samples, partition_columns)


def no_null_sequence(null_counts: Mapping[str, int]) -> None:
    counts = _columns_with_nulls(null_counts)
    if counts:
        raise ArgumentError(
            f"sequence_by columns of the source contain NULL values: {counts}. Without a value it is unknown which row "
            "is older; fill or drop these rows."
        )


def rows_to_write(target: Target, shape: Shape, profile: Profile, options: RowOptions, *, evolves: bool) -> None:
    """Rows that are not delete rows need all columns of the target, unless only some are updated."""
    if not profile.write_rows or options.some_columns or options.only_keys or target.schema is None or evolves:
        return
    missing = missing_columns(target, shape)
    if missing:
        raise columns_differ(missing, (), options)


def whole_rows(target: Target, shape: Shape, moved: int, actions: Actions) -> None:
    """Rows that replace the target, or move, are written whole: the values of missing columns would be lost."""
    missing = missing_columns(target, shape) if target.schema is not None and shape.updated != () else []
    if missing and (moved or actions.replaces_target):
        what = f"{moved} row(s) move to another partition" if moved else "full_merge replaces every row"
        raise SchemaMismatchError(
            f"Columns missing from the source: {missing}. {what}, so their values would be lost. Columns are not "
            "dropped by a merge: add them to the source."
        )


def missing_rows(actions: Actions, target: Target, shape: Shape, profile: Profile) -> None:
    """`delete_missing` needs rows that stay, and partitions to look at."""
    if actions.missing == "keep" or actions.replaces_target:
        return
    if not profile.write_rows:
        raise ArgumentError(
            "delete_missing would delete every row: the source has no row to keep. To empty the data set, use "
            "write_parquet_dataset(..., strategy='full_merge')."
        )
    if actions.missing_scope == "partitions" and not shape.partitions:
        raise ArgumentError("delete_missing='partitions' needs a partitioned target. Use delete_missing='all'.")
    if actions.missing_scope == "partitions" and not shape.source_has_partitions:
        raise ArgumentError(
            f"delete_missing='partitions' needs the partition columns {list(shape.partitions)} in the source."
        )
    if actions.missing_scope == "partitions":
        for footer in target.files:
            if not footer.partition:
                raise ArgumentError(
                    f"delete_missing='partitions' needs all files in partition folders, and {footer.path} is in none. "
                    "Move its rows into folders, or use delete_missing='all'."
                )


def rows_to_insert(count: int, shape: Shape) -> None:
    """Inserted rows need a partition, and a value in every column that may not be null."""
    if not count:
        return
    if not shape.source_has_partitions:
        raise SchemaMismatchError(
            f"{count} row(s) of the source have new keys, and the source has no partition column "
            f"{list(shape.partitions)}, so it is unknown where they belong. Add the column, or use strategy='update'."
        )
    in_source, stored = set(shape.source_columns), (shape.schema.field(name) for name in shape.stored)
    required = [field.name for field in stored if not field.nullable and field.name not in in_source]
    if required:
        raise SchemaMismatchError(
            f"{count} row(s) of the source have new keys, and the columns {required}, which the source does not have, "
            "may not be null in the target. Add them, or use strategy='update'."
        )


def removed_rows(rows: int | None, limit: int | None) -> None:
    """A write may not remove more rows than the caller allows."""
    if limit is None or (rows is not None and rows <= limit):
        return
    lost = "an unknown number of rows, because a file cannot be read" if rows is None else f"{rows:,} row(s)"
    raise RemovedRowsError(f"The write would remove {lost}; max_removed_rows is {limit:,}. Nothing was changed.", rows)


def bytes_to_rewrite(sizes: Sequence[int], schema: SchemaChanges) -> None:
    """Refuse a schema change that would rewrite very many bytes of files without a changed row."""
    if sum(sizes) > schema.max_bytes:
        raise SchemaMismatchError(
            f"The schema change would rewrite {len(sizes):,} file(s) without a changed row, {sum(sizes):,} bytes, and "
            f"at most {schema.max_bytes:,} are allowed. Allow more (evolve_max_bytes), or let only files with changed "
            "rows get new columns (evolve_files='touched')."
        )


def types_unchanged(target: Target, shape: Shape, schema: SchemaChanges) -> None:
    """Refuse another type of a column, and new struct fields, if the catalog cannot follow."""
    if not schema.only_columns or target.schema is None:
        return
    old = {field.name: field.type for field in target.schema}
    changed = [f.name for f in shape.schema if f.name in old and types_differ(old[f.name], f.type)]
    changed += [name for name in shape.extended if name not in changed]
    if changed:
        raise SchemaMismatchError(
            f"The type of {changed} would change, and Spark's catalog can add columns to a Parquet table but not "
            "change them. Merge by the path of the table, then create the table again at that path."
        )


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(|[kmgt]i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def byte_size(argument: str, value: Any) -> int:
    """A number of bytes, or text such as `256MB` (decimal) or `1GiB` (binary).

    >>> byte_size("target_size", "256MB"), byte_size("target_size", "1 GiB"), byte_size("target_size", 4096)
    (256000000, 1073741824, 4096)
    """
    size: int | None = None
    if isinstance(value, str) and value.strip().isdigit() and int(value) > 0:
        raise ArgumentError(
            f"{argument} {value!r} has no unit. Write {value.strip()}MB, or {value.strip()}B for bytes."
        )
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        unit = match[2].lower()
        size = int(float(match[1]) * (1024 if unit.endswith("i") else 1000) ** _POWERS[unit[:1]])
    if size is None or size < 1:
        raise ArgumentError(f"{argument} must be a size such as 256MB or 1GiB, or a number of bytes, not {value!r}.")
    return size
