"""The key reader: reads the key columns of a file as canonical keys.

Every engine reads the target's keys with it. Spark silently reads `f0.parquet` instead of `f[0].parquet` and refuses
some types; DuckDB expands a literal `*` in a name; PyArrow does neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.dataset.footers import open_planned
from fsspeckit.core.dataset.partitions import value_array
from fsspeckit.core.model import Footer, Scan, Shape
from fsspeckit.core.parquet.reader import read_row_group
from fsspeckit.core.storage import Location
from fsspeckit.core.values import arrays, keys
from fsspeckit.core.values.calendars import from_file_calendar
from fsspeckit.core.values.conform import to_common_type


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Canonical key and partition columns of one row group, in row order, and its sequence (`keys.ordered`)."""

    row_group: int
    keys: list[pa.Array]
    partitions: list[pa.Array]
    sequence: list[pa.Array]


def read_keys(location: Location, scan: Scan, shape: Shape) -> Iterator[KeyBatch]:
    """The key columns of the scanned row groups, the partition columns if a key could move, and the sequence."""
    compared, sequence = shape.compared_partitions, shape.sequence
    location.expect(scan.footer.info)
    with open_planned(location, scan.footer) as file:
        for group in scan.row_groups:
            rows = scan.footer.row_groups[group].rows
            read = _ColumnReader(location, scan.footer, file, group, rows, shape)
            names = list(dict.fromkeys([*shape.keys, *compared, *sequence]))
            columns = dict(zip(names, read(names), strict=True))
            identities = {name: keys.canonical(columns[name]) for name in (*shape.keys, *compared)}
            yield KeyBatch(
                group,
                [identities[name] for name in shape.keys],
                [identities[name] for name in compared],
                [keys.ordered(columns[name]) for name in sequence],
            )


@dataclass(frozen=True, slots=True)
class _ColumnReader:
    location: Location
    footer: Footer
    file: pq.ParquetFile
    group: int
    rows: int
    shape: Shape

    def __call__(self, names: Sequence[str]) -> list[Any]:
        stored = [n for n in names if self._is_stored(n)]
        table = read_row_group(self.location, self.footer.path, self.file, self.group, stored)
        dates = [n for n in stored if pa.types.is_date(table.schema.field(n).type)]  # `conform` corrects instants
        where = self.location.show(self.footer.path)
        corrected = from_file_calendar(table.select(dates), self.footer.calendar, where)
        for name, column in zip(dates, corrected.columns, strict=True):
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return [self._column(name, table) for name in names]

    def _is_stored(self, name: str) -> bool:
        """The path gives the value of a partition column, even if the file stores it too."""
        return name in self.footer.schema.names and not (
            name in self.shape.partitions and name in self.footer.partition
        )

    def _column(self, name: str, table: pa.Table) -> Any:
        dtype = arrays.plain_type(self.shape.schema.field(name).type)
        if name in self.shape.partitions and name in self.footer.partition:
            return value_array(self.footer.partition[name], dtype, self.rows, self.shape.partition_timezone)
        if not self._is_stored(name):
            return pa.nulls(self.rows, dtype)
        return to_common_type(table.column(name), dtype, name, self.location.show(self.footer.path))
