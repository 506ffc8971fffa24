"""The two checks that spec 001 names, over tables: the refusals are those of `plan.validate`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.incremental.candidates import canonical_as
from fsspeckit.core.plan.validate import column_names, key_names, no_null_keys, partitions_unmoved
from fsspeckit.core.values import keys, schema


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
    positions = keys.KeyIndex([ours[name] for name in names]).find([theirs[name] for name in names])
    matched = positions >= 0
    rows = positions[matched]
    moved = np.zeros(len(rows), dtype=bool)
    for name in partitions:
        moved |= keys.differ(ours[name].take(pa.array(rows)), theirs[name].filter(pa.array(matched)))
    samples = keys.sample([_column(source_table, name) for name in names], rows[moved][:5].tolist())
    partitions_unmoved(int(moved.sum()), samples, partitions)


def _canonical_pair(source_table: pa.Table, target_table: pa.Table, name: str) -> tuple[pa.Array, pa.Array]:
    source, target = _column(source_table, name), _column(target_table, name)
    dtype = schema.comparable_type(name, source, target.type)
    return canonical_as(source, dtype), canonical_as(target, dtype)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ArgumentError(f"Column {name!r} not found; the table has {table.column_names}.")
    return table.column(name)
