"""Which files may hold the keys, which do: the predicates of `plan.prune` and the key reader, for keys in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fsspeckit.core.errors import ArgumentError
from fsspeckit.core.incremental.metadata import ParquetFileMetadata, ParquetMetadataAnalyzer
from fsspeckit.core.model import Bounds, Footer, Scan, Shape
from fsspeckit.core.parallel import Threads
from fsspeckit.core.plan.confirm import read_keys
from fsspeckit.core.plan.prune import CANNOT_MATCH, MIGHT_MATCH, bounds_might_match
from fsspeckit.core.plan.validate import key_names
from fsspeckit.core.storage import Location, locate
from fsspeckit.core.target.footers import read_footer
from fsspeckit.core.target.partitions import Unreadable, identities, read_value
from fsspeckit.core.values import arrays, keys, schema


@dataclass
class IncrementalRewritePlan:
    """Which files an incremental rewrite touches."""

    affected_files: list[str]
    unaffected_files: list[str]
    new_files: list[str]
    affected_rows: int


def plan_incremental_rewrite(
    dataset_path: str,
    source_keys: Iterable[Any],
    key_columns: Sequence[str] | str,
    filesystem: Any = None,
    partition_schema: pa.Schema | None = None,
) -> IncrementalRewritePlan:
    """Plan from metadata alone: files that partition values and statistics cannot prove free of the keys are affected.

    `new_files` is empty: which keys are new is known only once the affected files' keys are read
    (`confirm_affected_files`, or `plan` of a `DatasetIO`).
    """
    table = key_table(key_columns, source_keys)
    files = ParquetMetadataAnalyzer().analyze_dataset_files(dataset_path, filesystem)
    admitted = set(PartitionPruner().identify_candidate_files(files, table.column_names, table, partition_schema))
    checker = ConservativeMembershipChecker()
    affected = [
        f for f in files if f.path in admitted and checker.file_might_contain_keys(f, table.column_names, table)
    ]
    paths = {f.path for f in affected}
    return IncrementalRewritePlan(
        affected_files=[f.path for f in affected],
        unaffected_files=[f.path for f in files if f.path not in paths],
        new_files=[],
        affected_rows=sum(f.total_rows for f in affected),
    )


class ConservativeMembershipChecker:
    """Pruning by the statistics of a whole file."""

    def file_might_contain_keys(
        self, file_metadata: ParquetFileMetadata, key_columns: Sequence[str] | str, source_keys: Iterable[Any]
    ) -> bool:
        """Could the file contain any of the source keys? Only statistics that prove the contrary say no."""
        if isinstance(source_keys, Iterator):  # the next file would be asked for no keys at all
            raise ArgumentError("source_keys can be read only once, and every file is asked for them; give a list.")
        table = key_table(key_columns, source_keys)
        stats, rows = file_metadata.column_stats, file_metadata.total_rows
        return all(
            bounds_might_match(_as_bounds(stats.get(name), rows), keys.intervals(arrays.plain(table.column(name))))
            for name in table.column_names
        )


def _as_bounds(stats: Mapping[str, Any] | None, rows: int) -> Bounds | None:
    """Bounds out of a caller's statistics; missing and unordered ones (NaN) prove nothing."""
    if stats is None or "min" not in stats or "max" not in stats:
        return None
    lower, upper = (_order_value(stats[k]) for k in ("min", "max"))
    if lower is None and upper is None and stats.get("null_count") == rows:
        return Bounds(None, None, rows)
    known = None not in (lower, upper) and lower == lower and upper == upper
    return Bounds(lower, upper, stats.get("null_count")) if known else None


def _order_value(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):  # also beyond 64 bits with a sign
        return value
    return keys.order_values(arrays.plain(pa.array([value])))[0]


class PartitionPruner:
    """Pruning by the values that paths name."""

    def identify_candidate_files(
        self,
        file_metadata: Iterable[ParquetFileMetadata],
        key_columns: Sequence[str] | str,
        source_keys: Iterable[Any],
        partition_schema: pa.Schema | None = None,
    ) -> list[str]:
        """Keep the files whose partition values admit a source key.

        Partition columns that are key columns are compared; of the others the keys say nothing, and nothing is
        pruned by them. Values in paths are read in the column's type of `partition_schema`, else of the keys.
        """
        table = key_table(key_columns, source_keys)
        return [f.path for f in file_metadata if _admits(f.partition_values or {}, table, partition_schema)]


def _admits(values: Mapping[str, Any], table: pa.Table, partition_schema: pa.Schema | None) -> bool:
    typed = partition_schema if partition_schema is not None else pa.schema([])
    for name in table.column_names:
        dtype = typed.field(name).type if name in typed.names else table.schema.field(name).type
        if name in values and not _column_admits(values[name], table.column(name), dtype):
            return CANNOT_MATCH
    return MIGHT_MATCH


def _column_admits(text: Any, column: pa.ChunkedArray, dtype: pa.DataType) -> bool:
    value = read_value(None if text is None else str(text), arrays.plain_type(dtype))
    if isinstance(value, Unreadable):
        return MIGHT_MATCH
    try:
        return value in identities(arrays.plain(column.cast(dtype)))
    except pa.ArrowException:
        return MIGHT_MATCH


def confirm_affected_files(
    candidate_files: Iterable[str], key_columns: Sequence[str] | str, source_keys: Iterable[Any], filesystem: Any = None
) -> list[str]:
    """Scan candidate files to confirm which actually contain source keys; only `key_columns` are read."""
    table = key_table(key_columns, source_keys).drop_null()  # nulls match nothing
    candidates = [candidate_files] if isinstance(candidate_files, str) else list(candidate_files)
    if not table.num_rows:
        return []
    with Threads(4) as pool:
        answers = pool.map(lambda path: _holds_any(path, table, filesystem), candidates)
        return [path for path, holds in zip(candidates, answers, strict=True) if holds]


def _holds_any(path: str, table: pa.Table, filesystem: Any) -> bool:
    location, name = _locate_file(path, filesystem)
    info = location.storage.stat(location.at(name))
    if info is None:
        raise FileNotFoundError(path)
    footer = read_footer(location, replace(info, path=name), table.column_names, all_chunks=True)
    shape = _file_shape(footer, table)
    index = keys.KeyIndex([canonical_as(table.column(k), shape.schema.field(k).type) for k in shape.keys])
    scan = Scan(footer, tuple(range(len(footer.row_groups))))
    return any((index.find(batch.keys) >= 0).any() for batch in read_keys(location, scan, shape))


def _locate_file(path: str, filesystem: Any) -> tuple[Location, str]:
    """A single file as a data set of its own, keeping the partition folders of its path."""
    location = locate(path, filesystem)
    parts = location.root.split("/")
    depth = next((i for i, part in enumerate(parts) if "=" in part and i), len(parts) - 1)
    name = "/".join(parts[depth:])
    shown = location.shown.removesuffix(name).rstrip("/") or "."
    return Location(location.storage, "/".join(parts[:depth]), shown), name


def _file_shape(footer: Footer, table: pa.Table) -> Shape:
    """The file's columns, with keys in a type that holds both the file's values and the caller's."""
    fields = {field.name: field for field in footer.schema}
    partitions = [n for n in table.column_names if n not in fields and n in footer.partition]
    for name in table.column_names:
        if name not in fields and name not in partitions:
            raise ArgumentError(f"Key column {name!r} not found in {footer.path}. It has: {footer.schema.names}.")
        field = fields.get(name, table.schema.field(name))
        fields[name] = field.with_type(schema.comparable_type(name, table.column(name), field.type))
    names = tuple(table.column_names)
    return Shape(pa.schema(list(fields.values())), tuple(footer.schema.names), names, tuple(partitions))


def canonical_as(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.Array:
    return keys.canonical(arrays.cast(arrays.plain(column), dtype))


def key_table(key_columns: Sequence[str] | str, source_keys: Iterable[Any]) -> pa.Table:
    """Keys as Python values (tuples or mappings for composite keys) become a table."""
    names = key_names(key_columns)
    if isinstance(source_keys, pa.Table):
        return source_keys.select(list(names))
    if isinstance(source_keys, (str, bytes)):
        raise ArgumentError(f"source_keys takes the keys to look for, not the text {source_keys!r}; give a list.")
    values = list(source_keys)  # it is gone through more than once, and a generator gives its keys only once
    if len(names) == 1 and not any(isinstance(k, (tuple, list, Mapping)) for k in values):
        values = [(key,) for key in values]
    rows = [k if isinstance(k, Mapping) else dict(zip(names, k, strict=True)) for k in values]
    return pa.table({name: _key_array([row[name] for row in rows]) for name in names})


def _key_array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # integers beyond 63 bits
        return pa.array(values, pa.uint64())
