"""Which files `mode="overwrite_partitions"` replaces: those of the source's partitions, or of named ones.

Partitions are compared by value in the column's type, as everywhere: `month=01` and `month=1` are one partition if the
column holds numbers.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.core.dataset.partitions import PartitionMap, Unreadable, identities, read_value
from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.model import Footer, Shape, Target
from fsspeckit.core.values import arrays

Partition = tuple[Any, ...]
"""The comparable values of all partition columns."""
Named = Mapping[str, Any]
"""The comparable values of some partition columns: all partitions with these values."""

_FORM = 'partitions takes a list of dictionaries such as [{"day": "2026-01-01"}]'


def check_form(mode: str, partitions: Any) -> None:
    """Refuse partitions of another form, before anything is read."""
    if partitions is None:
        return
    if mode != "overwrite_partitions":
        raise ArgumentError(f"partitions has no effect with mode={mode!r}. Use mode='overwrite_partitions'.")
    if not isinstance(partitions, (list, tuple)) or not all(isinstance(p, Mapping) for p in partitions):
        raise ArgumentError(f"{_FORM}, not {partitions!r}.")
    if not partitions or not all(partitions):
        raise ArgumentError(f"{_FORM}. An empty one names no partition; to replace all files, use mode='overwrite'.")


def replaced_files(
    target: Target, shape: Shape, partitions: PartitionMap, source: Mapping[Partition, int], named: Any
) -> list[Footer]:
    """The files of the partitions that the source has rows of, or of those that `named` names.

    `source` are the source's rows by partition. Rows outside of the named partitions are refused.
    """
    if not shape.partitions:
        raise ArgumentError(
            "mode='overwrite_partitions' needs a partitioned data set, and this one has no partition folders. Name "
            "partition_columns for a new data set, or use mode='overwrite'."
        )
    if named is None and not source:
        raise ArgumentError(
            "The source has no rows, so it is unknown which partitions to replace. To empty some, name them: "
            "partitions=[{...}]."
        )
    if named is not None:
        partitions = _with_types(partitions, named)
    wanted = None if named is None else [_values(partitions, partition) for partition in named]
    if wanted is not None:
        _check_rows(partitions, source, wanted)
    replaced = []
    for footer in target.files:
        partition = _partition_of_file(partitions, footer)
        if partition is None:
            continue
        if partition in source if wanted is None else _is_named(partitions, partition, wanted):
            replaced.append(footer)
    return replaced


def _partition_of_file(partitions: PartitionMap, footer: Footer) -> Partition | None:
    """The partition of a file; `None` for a file without rows outside of the folders, which keeps the schema."""
    values = partitions.values(footer)
    if values is None and footer.rows:
        raise ArgumentError(
            f"mode='overwrite_partitions' needs all files in partition folders, and {footer.path} is in none: its rows "
            "may belong to a partition that is replaced. Read the data set and write all of it again "
            "(mode='overwrite')."
        )
    if values is None:
        return None
    for column, dtype, value in zip(partitions.columns, partitions.types, values, strict=True):
        if isinstance(value, Unreadable):
            raise ArgumentError(
                f"Partition column {column!r} of the source is {dtype}, and the folder "
                f"{posixpath.dirname(footer.path)!r} is not such a value, so it is unknown whether it is replaced. "
                "Give the column as text, or rename the folder."
            )
    return values


def _with_types(partitions: PartitionMap, named: Iterable[Mapping[str, Any]]) -> PartitionMap:
    """A source without a value in a partition column gives it no type: the named values do, else it is text."""
    types = list(partitions.types)
    for number, column in enumerate(partitions.columns):
        if pa.types.is_null(types[number]):
            values = [partition[column] for partition in named if partition.get(column) is not None]
            types[number] = _arrow_type(column, values) if values else pa.string()
    return PartitionMap(partitions.columns, tuple(types), partitions.folders, partitions.zone)


def _arrow_type(column: str, values: Sequence[Any]) -> pa.DataType:
    try:
        return arrays.plain_type(pa.array(values).type)
    except (pa.ArrowException, TypeError, ValueError):
        raise ArgumentError(f"partitions has values of different types for {column!r}: {values!r}.") from None


def _values(partitions: PartitionMap, named: Mapping[str, Any]) -> Named:
    """The values of a named partition in the types of the columns."""
    types = dict(zip(partitions.columns, partitions.types, strict=True))
    unknown = [name for name in named if name not in types]
    if unknown:
        raise ArgumentError(
            f"partitions names {unknown}, which are not partition columns. The data set is partitioned by "
            f"{list(partitions.columns)}."
        )
    return {name: _value(name, value, types[name], partitions.zone) for name, value in named.items()}


def _value(column: str, given: Any, dtype: pa.DataType, zone: str) -> Any:
    if given is None:
        return None
    wrong = ArgumentError(f"partitions names {column}={given!r}, which is not a value of the column's type {dtype}.")
    if given == "":
        raise ArgumentError(f"partitions names {column}='', which no folder can hold. None names the null partition.")
    if isinstance(given, str):
        value = read_value(given, dtype, zone)
    else:
        try:
            value = identities(arrays.cast(pa.chunked_array([arrays.plain(pa.array([given]))]), dtype))[0]
        except (arrays.ValueDoesNotFit, pa.ArrowException, TypeError, ValueError):
            raise wrong from None
    if isinstance(value, Unreadable):
        raise wrong
    return value


def _is_named(partitions: PartitionMap, partition: Partition, wanted: Iterable[Named]) -> bool:
    values = dict(zip(partitions.columns, partition, strict=True))
    return any(all(values[name] == value for name, value in named.items()) for named in wanted)


def _check_rows(partitions: PartitionMap, source: Mapping[Partition, int], wanted: Sequence[Named]) -> None:
    outside = {p: rows for p, rows in source.items() if not _is_named(partitions, p, wanted)}
    if outside:
        first = next(iter(outside))
        folder = partitions.folder_of(first) or repr(first)
        raise ArgumentError(
            f"{sum(outside.values())} row(s) of the source are outside of the partitions that are named, e.g. in "
            f"{folder}. Name their partitions too, or leave these rows out."
        )
