"""The key reader: canonical keys of the rows of a file, and nothing else of it.

Every engine reads target keys through here. Spark silently reads `f0.parquet` when asked for `f[0].parquet` and
refuses some types; DuckDB expands a literal `*` in a name; PyArrow does neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.errors import ArgumentError, SchemaMismatchError
from fsspeckit.core.model import Footer, Scan, Shape
from fsspeckit.core.plan import prune
from fsspeckit.core.storage import Location, locate
from fsspeckit.core.target.footers import open_parquet, read_footer
from fsspeckit.core.target.pages import read_row_group
from fsspeckit.core.target.partitions import value_array
from fsspeckit.core.values import arrays, keys, schema
from fsspeckit.core.values.calendars import corrected


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Canonical key and partition columns of one row group, in row order."""

    row_group: int
    keys: list[pa.Array]
    partitions: list[pa.Array]


def read_keys(location: Location, scan: Scan, shape: Shape) -> Iterator[KeyBatch]:
    """Key columns of the row groups to scan; partition columns too where a key could move."""
    compared = () if shape.partition_in_key else shape.partitions
    with open_parquet(location, scan.footer.path, scan.footer.metadata) as file:
        for group in scan.row_groups:
            rows = scan.footer.row_groups[group].rows
            read = _ColumnReader(location, scan.footer, file, group, rows, shape)
            names = list(dict.fromkeys([*shape.keys, *compared]))
            columns = dict(zip(names, read(names), strict=True))
            yield KeyBatch(group, [columns[k] for k in shape.keys], [columns[p] for p in compared])


@dataclass(frozen=True, slots=True)
class _ColumnReader:
    location: Location
    footer: Footer
    file: pq.ParquetFile
    group: int
    rows: int
    shape: Shape

    def __call__(self, names: Sequence[str]) -> list[pa.Array]:
        stored = [n for n in names if self._is_stored(n)]
        table = read_row_group(self.location, self.footer.path, self.file, self.group, stored)
        dates = [n for n in stored if pa.types.is_date(table.schema.field(n).type)]  # `conform` looks after instants
        for name, column in zip(dates, self._corrected(table.select(dates)).columns, strict=True):
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return [keys.canonical(self._column(name, table)) for name in names]

    def _corrected(self, table: pa.Table) -> pa.Table:
        return corrected(table, self.footer.calendar, self.location.show(self.footer.path))

    def _is_stored(self, name: str) -> bool:
        """The path's word counts for a partition column, whether or not the file repeats it."""
        return name in self.footer.schema.names and not (
            name in self.shape.partitions and name in self.footer.partition
        )

    def _column(self, name: str, table: pa.Table) -> Any:
        kind = arrays.plain_type(self.shape.schema.field(name).type)
        if name in self.shape.partitions and name in self.footer.partition:
            return value_array(self.footer.partition[name], kind, self.rows, self.shape.partition_timezone)
        if not self._is_stored(name):
            return pa.nulls(self.rows, kind)
        try:
            return arrays.cast(arrays.plain(table.column(name)), kind)
        except arrays.DoesNotFit as error:
            raise SchemaMismatchError(
                f"Key column {name!r} of {self.location.show(self.footer.path)} holds {error.args[0]!r}, which the "
                f"target's common type {kind} cannot hold. Bring the files to one type first."
            ) from None


def confirm_affected_files(
    candidate_files: Iterable[str], key_columns: Sequence[str] | str, source_keys: Iterable[Any], filesystem: Any = None
) -> list[str]:
    """Scan candidate files to confirm which actually contain source keys; only `key_columns` are read."""
    wanted = prune.key_table(key_columns, source_keys).drop_null()  # nulls match nothing
    candidates = [candidate_files] if isinstance(candidate_files, str) else list(candidate_files)
    if not wanted.num_rows:
        return []
    with ThreadPoolExecutor(max_workers=4) as pool:
        holds = pool.map(lambda path: _holds_any(path, wanted, filesystem), candidates)
        return [path for path, found in zip(candidates, holds, strict=True) if found]


def _holds_any(path: str, wanted: pa.Table, filesystem: Any) -> bool:
    location, name = locate_file(path, filesystem)
    info = location.storage.stat(location.at(name))
    if info is None:
        raise FileNotFoundError(path)
    footer = read_footer(location, replace(info, path=name), wanted.column_names, all_chunks=True)
    shape = _file_shape(footer, wanted)
    index = keys.KeyIndex([_canonical_as(wanted.column(k), shape.schema.field(k).type) for k in shape.keys])
    scan = Scan(footer, tuple(range(len(footer.row_groups))))
    return any((index.find(batch.keys) >= 0).any() for batch in read_keys(location, scan, shape))


def locate_file(path: str, filesystem: Any) -> tuple[Location, str]:
    """A single file as a data set of its own, keeping the partition folders of its path."""
    location = locate(path, filesystem)
    parts = location.root.split("/")
    depth = next((i for i, part in enumerate(parts) if "=" in part and i), len(parts) - 1)
    name = "/".join(parts[depth:])
    shown = location.shown.removesuffix(name).rstrip("/") or "."
    return Location(location.storage, "/".join(parts[:depth]), shown), name


def _file_shape(footer: Footer, wanted: pa.Table) -> Shape:
    fields = {field.name: field for field in footer.schema}
    partitions = [n for n in wanted.column_names if n not in fields and n in footer.partition]
    for name in wanted.column_names:
        given = fields.get(name, wanted.schema.field(name))
        if name not in fields and name not in partitions:
            raise ArgumentError(f"Key column {name!r} not found in {footer.path}. It has: {footer.schema.names}.")
        fields[name] = given.with_type(schema.comparable_type(name, wanted.column(name), given.type))
    return Shape(
        pa.schema(list(fields.values())), tuple(footer.schema.names), tuple(wanted.column_names), tuple(partitions)
    )


def _canonical_as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return keys.canonical(arrays.cast(arrays.plain(column), kind))
